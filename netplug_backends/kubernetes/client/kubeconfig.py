"""Reads kubeconfigs: one file, several that are merged, or a text; the result is the access of one context.

If a program or a provider gives the user's credentials, ``access`` fetches them later. PyYAML is needed only for files
that are not JSON, and the ``kubernetes`` package only for a provider.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from netplug_backends.kubernetes.client.credentials import ApiAccess, FileReader, TlsVerification, is_host
from netplug_backends.kubernetes.client.kubeconfig_entry import KubeconfigEntry, describe_type
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, UnusableFile, quote

if TYPE_CHECKING:
    import yaml

__all__ = ["from_files", "from_text"]

_KUBECONFIG = "kubeconfig"
_MAX_DEPTH = 10_000


class _MissingKubeconfig(UnusableFile):
    """None of the files that are named exists."""

    def __str__(self) -> str:
        return f"{self.where}: no such file: {quote(self.value)}; {self.accepted}"


def from_files(paths: Sequence[str], context: str, reader: FileReader) -> ApiAccess:
    """The access of some files, merged as ``kubectl`` merges them.

    The first file with a cluster, a context or a user of a name defines it completely; missing files are skipped. If
    ``context`` is empty, it is the files' current context.

    Raises:
        ConfigurationError: no file exists, or a file cannot be decoded; no error contains a secret.
    """
    existing = [path for path in paths if reader.record_stamp(path) is not None]
    if not existing:
        raise _MissingKubeconfig(
            _KUBECONFIG, os.pathsep.join(paths), "name a file that exists, by KUBECONFIG or --config"
        )
    parts = (
        KubeconfigEntry(
            path, _parse(path, reader.read_stripped(path, _KUBECONFIG)), os.path.dirname(os.path.abspath(path))
        )
        for path in existing
    )
    return _context_access(tuple(parts), context, reader)


def from_text(text: str, where: str, context: str, reader: FileReader) -> ApiAccess:
    """The access of a kubeconfig's text; error texts name it ``where``. Errors as for ``from_files``."""
    return _context_access((KubeconfigEntry(where, _parse(where, text), ""),), context, reader)


def _context_access(kubeconfigs: Sequence[KubeconfigEntry], context: str, reader: FileReader) -> ApiAccess:
    name = context or next(filter(None, (part.text("current-context") for part in kubeconfigs)), "")
    if not name:
        raise UnusableFile(f"{_describe_files(kubeconfigs)} current-context", "", "the name of a context is expected")
    chosen = _get_named_entry(kubeconfigs, "contexts", name, "context")
    cluster = _get_named_entry(kubeconfigs, "clusters", chosen.text("cluster"), "cluster")
    cluster.refuse_unsupported("proxy-url")
    server = cluster.text("server")
    if not server:
        raise ConfigurationError(f"{cluster.where}.server", "", "the API's URL is expected")
    skips = cluster.flag("insecure-skip-tls-verify")
    anonymous = ApiAccess(
        server=server,
        tls_server_name=_server_name(cluster),
        certificate_authority=cluster.pem("certificate-authority"),
        verification=TlsVerification.SKIPPED if skips else TlsVerification.REQUIRED,
    )
    user = chosen.text("user")
    return (
        _with_user(anonymous, _get_named_entry(kubeconfigs, "users", user, "user"), cluster, reader)
        if user
        else anonymous
    )


def _server_name(cluster: KubeconfigEntry) -> str:
    name = cluster.text("tls-server-name")
    if name and not is_host(name):
        raise ConfigurationError(f"{cluster.where}.tls-server-name", name, "the name of a host is expected")
    return name


def _get_named_entry(
    kubeconfigs: Sequence[KubeconfigEntry], collection: str, name: str, member: str
) -> KubeconfigEntry:
    """The ``member`` of the first entry with that name in a list of named entries."""
    for part in kubeconfigs:
        entries = part.members.get(collection)
        for entry in entries if isinstance(entries, Sequence) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                inner = entry.get(member)
                if isinstance(inner, Mapping):
                    where = f"{part.where} {collection}[{name}]"
                    return KubeconfigEntry(where, inner, part.folder)
    raise UnusableFile(f"{_describe_files(kubeconfigs)} {collection}", name, "an entry of that name is expected")


def _describe_files(kubeconfigs: Sequence[KubeconfigEntry]) -> str:
    return os.pathsep.join(part.where for part in kubeconfigs)


def _with_user(access: ApiAccess, user: KubeconfigEntry, cluster: KubeconfigEntry, reader: FileReader) -> ApiAccess:
    """The access of a user; a user without credentials is anonymous, as with ``kubectl``."""
    user.refuse_unsupported("as", "as-groups", "as-uid", "as-user-extra", "username", "password")
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) is not bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise ConfigurationError(f"{user.where}.{missing}", "", f"it is needed beside {present}")
    token_file = user.path("tokenFile")
    # The file wins over the member, which may be an old copy of it.
    token = reader.read_token(token_file, f"{user.where}.tokenFile") if token_file else user.text("token")
    identified = evolve(access, token=token, certificate=certificate, key=key)
    if token:  # it wins over a program or a provider
        return identified
    if user.members.get("exec"):
        from netplug_backends.kubernetes.client.exec_plugin import run_exec_plugin

        user.refuse_unsupported("auth-provider")
        return evolve(identified, fetch_credentials=partial(run_exec_plugin, user.entry("exec"), cluster))
    if user.members.get("auth-provider"):
        return evolve(identified, fetch_credentials=partial(_fetch_provider_token, user.entry("auth-provider")))
    return identified


def _fetch_provider_token(provider: KubeconfigEntry, access: ApiAccess, deadline: Deadline) -> ApiAccess:
    try:
        from netplug_backends.kubernetes.client.exec_plugin import fetch_provider_token
    except ModuleNotFoundError as error:
        raise _not_installed(provider.where, error) from error
    return fetch_provider_token(provider, access, deadline)


def _parse(where: str, text: str) -> Mapping[str, object]:
    """A kubeconfig as a mapping. One in JSON, which our installer writes, is read without the YAML library."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = _parse_yaml(where, text)
    except RecursionError:
        raise UnusableFile(where, "…", "it is nested too deeply") from None
    if parsed is None:  # an empty file counts as a missing one
        return {}
    if not isinstance(parsed, Mapping):
        raise UnusableFile(where, describe_type(parsed), "a kubeconfig is expected")
    return parsed


def _parse_yaml(where: str, text: str) -> object:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise _not_installed(where, error) from error
    parser: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # Times stay texts, as for other readers of kubeconfigs.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in parser.yaml_implicit_resolvers.items()
    }
    loader: type[yaml.SafeLoader] = type("Loader", (parser,), {"yaml_implicit_resolvers": resolvers})
    loader.add_constructor("tag:yaml.org,2002:binary", _construct_binary)
    try:
        _refuse_depth(text, yaml.parse(text, Loader=parser))
        return yaml.load(text, Loader=loader)  # noqa: S506  # a subclass of SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The library's text quotes the line, which may contain a token.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}" if mark else "…"
        raise UnusableFile(where, line, "YAML is expected") from None


def _construct_binary(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """What ``!!binary`` stands for, as a text: kubectl makes JSON of a kubeconfig before it reads it."""
    return loader.construct_yaml_binary(node).decode(errors="replace")


def _refuse_depth(text: str, events: Iterator[object]) -> None:
    """Refuse a text that is nested so deeply that the C library would overflow its stack and end the process.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if len(text) < _MAX_DEPTH:  # each level takes a character
        return
    depth = 0
    for event in events:
        name = type(event).__name__
        depth += name.endswith("StartEvent") - name.endswith("EndEvent")
        if depth > _MAX_DEPTH:
            raise RecursionError


def _not_installed(where: str, error: ModuleNotFoundError) -> ConfigurationError:
    accepted = f"the package {error.name} is not installed; netplug[kubernetes] brings it"
    return ConfigurationError(where, "…", accepted)
