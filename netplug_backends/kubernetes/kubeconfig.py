"""Kubeconfigs: one file, several that are merged, or the text of one, made into the access of one context.

A file that asks for credentials of a program or a provider is handed to the ``kubernetes`` package, which knows them
all; loading it costs more than everything else a call does, so nothing else here needs it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping, Sequence
from typing import cast

from attrs import evolve, field, frozen

from netplug_backends.kubernetes.credentials import Access, Pem, Reader, Verification
from netplug_core.errors import ConfigurationError

__all__ = ["from_files", "from_text"]

_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def from_files(paths: Sequence[str], context: str, read: Reader) -> Access:
    """The access that some files give together, as ``kubectl`` merges them.

    What one file says of a cluster, a context or a user is all that is said of it, and the first file wins; a file
    that is not there says nothing. An empty ``context`` is the one that the files call current.

    Raises:
        ConfigurationError: no file is there, or what they say makes no sense; no secret is part of the error.
    """
    there = [path for path in paths if read.look(path) is not None] or paths[:1]
    parts = (_Part(path, _parsed(path, read.text(path)), os.path.dirname(os.path.abspath(path))) for path in there)
    return _access(tuple(parts), context, read)


def from_text(text: str, where: str, context: str, read: Reader) -> Access:
    """The access that the text of a kubeconfig gives, which people know as ``where``; errors as for ``from_files``."""
    return _access((_Part(where, _parsed(where, text), ""),), context, read)


@frozen
class _Part:
    """One object of a kubeconfig; errors name its place. Files that it names lie in ``folder``."""

    where: str
    members: Mapping[str, object] = field(repr=False)
    folder: str

    def text(self, name: str) -> str:
        value = self.members.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationError(f"{self.where}.{name}", type(value).__name__, "a text is expected")
        return value

    def path(self, name: str) -> str:
        path = self.text(name)
        return os.path.join(self.folder, path) if path else ""

    def pem(self, name: str) -> Pem:
        """A file, or base64 of its content in the member that ends in ``-data``, which wins."""
        encoded = self.text(f"{name}-data")
        if not encoded:
            return Pem(path=self.path(name))
        try:
            return Pem(data=base64.b64decode(encoded, validate=True))
        except binascii.Error:
            # The value may be a key: it is not shown.
            raise ConfigurationError(f"{self.where}.{name}-data", "…", "base64 is expected") from None

    def refuse(self, *names: str) -> None:
        """What a kubeconfig can say and this client does not do; passing it over would be to act as somebody else."""
        for name in names:
            if self.members.get(name):
                raise ConfigurationError(f"{self.where}.{name}", "…", "it is not supported; leave it out")

    def absolute(self) -> dict[str, object]:
        """The members, with the files that they name where they are."""
        return {**self.members, **{name: self.path(name) for name in _FILES if self.members.get(name)}}


def _named(parts: Sequence[_Part], collection: str, name: str, member: str) -> _Part:
    """The ``member`` of the first entry with that name in a list of named entries."""
    for part in parts:
        entries = part.members.get(collection)
        for entry in entries if isinstance(entries, Sequence) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                inner = entry.get(member)
                if isinstance(inner, Mapping):
                    where = f"{part.where} {collection}[{name}]"
                    return _Part(where, cast("Mapping[str, object]", inner), part.folder)
    raise ConfigurationError(f"{_places(parts)} {collection}", name, "an entry of that name is expected")


def _places(parts: Sequence[_Part]) -> str:
    return os.pathsep.join(part.where for part in parts)


def _access(parts: Sequence[_Part], context: str, read: Reader) -> Access:
    name = context or next(filter(None, (part.text("current-context") for part in parts)), "")
    if not name:
        raise ConfigurationError(f"{_places(parts)} current-context", "", "the name of a context is expected")
    chosen = _named(parts, "contexts", name, "context")
    cluster = _named(parts, "clusters", chosen.text("cluster"), "cluster")
    cluster.refuse("proxy-url")
    server = cluster.text("server")
    if not server:
        raise ConfigurationError(f"{cluster.where}.server", "", "the API's URL is expected")
    skips = cluster.members.get("insecure-skip-tls-verify") is True
    anonymous = Access(
        server=server,
        server_name=cluster.text("tls-server-name"),
        authority=cluster.pem("certificate-authority"),
        verification=Verification.SKIPPED if skips else Verification.REQUIRED,
    )
    user = chosen.text("user")
    return _identified(anonymous, _named(parts, "users", user, "user"), cluster, read) if user else anonymous


def _identified(access: Access, user: _Part, cluster: _Part, read: Reader) -> Access:
    user.refuse("as", "as-groups", "as-uid", "as-user-extra", "username", "password")
    if "exec" in user.members or "auth-provider" in user.members:
        from netplug_backends.kubernetes.provided import with_provided

        return with_provided(access, user.where, _with_program(user), cluster.absolute())
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) is not bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise ConfigurationError(f"{user.where}.{missing}", "", f"it is needed beside {present}")
    token_file = user.path("tokenFile")
    return evolve(
        access,
        # A file wins over the text beside it, which may be what the file was when somebody copied it.
        token=read.text(token_file) if token_file else user.text("token"),
        certificate=certificate,
        key=key,
    )


def _parsed(where: str, text: str) -> Mapping[str, object]:
    """The mapping that a kubeconfig is. One in JSON, as ours is written, is read without the YAML library."""
    try:
        parsed = json.loads(text)
    except ValueError:
        import yaml

        try:
            parsed = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both are safe
        except yaml.YAMLError as error:
            # Its own text would quote the line, which may hold a token.
            mark = getattr(error, "problem_mark", None)
            line = f"line {mark.line + 1}" if mark else "…"
            raise ConfigurationError(where, line, "YAML is expected") from None
    if not isinstance(parsed, Mapping):
        raise ConfigurationError(where, type(parsed).__name__, "a kubeconfig is expected")
    return parsed


def _with_program(user: _Part) -> dict[str, object]:
    """What is said of a user; a program that is named with a folder lies beside the kubeconfig."""
    members, program = user.absolute(), user.members.get("exec")
    command = program.get("command") if isinstance(program, Mapping) else None
    if isinstance(program, Mapping) and isinstance(command, str) and os.path.dirname(command):
        members["exec"] = {**program, "command": os.path.join(user.folder, command)}
    return members
