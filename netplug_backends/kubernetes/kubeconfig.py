"""Kubeconfigs: one file, several that are merged, or the text of one, made into the access of one context.

A user whose credentials a program or a provider gives gets an access that asks those; ``access`` has it do so. PyYAML
does not have to be installed where every file is JSON, nor the ``kubernetes`` package where none names a provider.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from attrs import evolve

from netplug_backends.kubernetes.credentials import Access, Reader, Verification, is_host
from netplug_backends.kubernetes.entries import Entry, called
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError

__all__ = ["from_files", "from_text"]

_DEEPEST = 10_000


def from_files(paths: Sequence[str], context: str, read: Reader) -> Access:
    """The access that some files give together, as ``kubectl`` merges them.

    What one file says of a cluster, a context or a user is all that is said of it, and the first file wins; a file
    that is not there says nothing. An empty ``context`` is the one that the files call current.

    Raises:
        ConfigurationError: no file is there, or what they say makes no sense; no secret is part of the error.
    """
    there = [path for path in paths if read.look(path) is not None] or paths[:1]
    parts = (Entry(path, _parsed(path, read.text(path)), os.path.dirname(os.path.abspath(path))) for path in there)
    return _access(tuple(parts), context, read)


def from_text(text: str, where: str, context: str, read: Reader) -> Access:
    """The access that the text of a kubeconfig gives, which people know as ``where``; errors as for ``from_files``."""
    return _access((Entry(where, _parsed(where, text), ""),), context, read)


def _access(parts: Sequence[Entry], context: str, read: Reader) -> Access:
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
        server_name=_server_name(cluster),
        authority=cluster.pem("certificate-authority"),
        verification=Verification.SKIPPED if skips else Verification.REQUIRED,
    )
    user = chosen.text("user")
    return _identified(anonymous, _named(parts, "users", user, "user"), cluster, read) if user else anonymous


def _server_name(cluster: Entry) -> str:
    name = cluster.text("tls-server-name")
    if name and not is_host(name):
        raise ConfigurationError(f"{cluster.where}.tls-server-name", name, "the name of a host is expected")
    return name


def _named(parts: Sequence[Entry], collection: str, name: str, member: str) -> Entry:
    """The ``member`` of the first entry with that name in a list of named entries."""
    for part in parts:
        entries = part.members.get(collection)
        for entry in entries if isinstance(entries, Sequence) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                inner = entry.get(member)
                if isinstance(inner, Mapping):
                    where = f"{part.where} {collection}[{name}]"
                    return Entry(where, cast("Mapping[str, object]", inner), part.folder)
    raise ConfigurationError(f"{_places(parts)} {collection}", name, "an entry of that name is expected")


def _places(parts: Sequence[Entry]) -> str:
    return os.pathsep.join(part.where for part in parts)


def _identified(access: Access, user: Entry, cluster: Entry, read: Reader) -> Access:
    """The access of a user; one of whom nothing is said is nobody, as for ``kubectl``."""
    user.refuse("as", "as-groups", "as-uid", "as-user-extra", "username", "password")
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) is not bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise ConfigurationError(f"{user.where}.{missing}", "", f"it is needed beside {present}")
    token_file = user.path("tokenFile")
    # A file wins over the text beside it, which may be what the file was when somebody copied it.
    token = read.token(token_file, f"{user.where}.tokenFile") if token_file else user.text("token")
    identified = evolve(access, token=token, certificate=certificate, key=key)
    if token:  # it goes before any program or provider
        return identified
    if user.members.get("exec"):
        from netplug_backends.kubernetes.program import ask_program

        user.refuse("auth-provider")
        return evolve(identified, login=partial(ask_program, user.part("exec"), cluster))
    if user.members.get("auth-provider"):
        return evolve(identified, login=partial(_ask_provider, user.part("auth-provider")))
    return identified


def _ask_provider(provider: Entry, access: Access, deadline: Deadline) -> Access:
    try:
        from netplug_backends.kubernetes.provided import ask_provider
    except ModuleNotFoundError as error:
        raise _not_installed(provider.where, error) from error
    return ask_provider(provider, access, deadline)


def _parsed(where: str, text: str) -> Mapping[str, object]:
    """The mapping that a kubeconfig is. One in JSON, as ours is written, is read without the YAML library."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = _parsed_yaml(where, text)
    except RecursionError:
        raise ConfigurationError(where, "…", "it is nested too deeply") from None
    if parsed is None:  # an empty file, which says as little as one that is not there
        return {}
    if not isinstance(parsed, Mapping):
        raise ConfigurationError(where, called(parsed), "a kubeconfig is expected")
    return parsed


def _parsed_yaml(where: str, text: str) -> object:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise _not_installed(where, error) from error
    parser: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # Times stay text, as they do for whoever else reads kubeconfigs.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in parser.yaml_implicit_resolvers.items()
    }
    loader = cast("type[yaml.SafeLoader]", type("Loader", (parser,), {"yaml_implicit_resolvers": resolvers}))
    try:
        _refuse_depth(text, yaml.parse(text, Loader=parser))
        return yaml.load(text, Loader=loader)  # noqa: S506  # it is a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Its own text would quote the line, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else "…"
        raise ConfigurationError(where, line, "YAML is expected") from None


def _refuse_depth(text: str, events: Iterator[object]) -> None:
    """Return unless a text is nested so deeply that the library, which looks no further, ends the whole process.

    Raises:
        RecursionError: it is.
    """
    if len(text) < _DEEPEST:  # every level takes a letter
        return
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _DEEPEST:
            raise RecursionError


def _not_installed(where: str, error: ModuleNotFoundError) -> ConfigurationError:
    accepted = f"the package {error.name} is not installed; netplug[kubernetes] brings it"
    return ConfigurationError(where, "…", accepted)
