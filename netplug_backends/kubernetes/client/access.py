"""Finds the API server and our credentials: in kubeconfigs, which it reads and merges, an API root, a service account.

``apiclient`` calls it before every request. Each time the files are checked (one ``stat`` each) and read again if they
have changed, so a renewed token or certificate is used without a restart. If a changed file is unusable, the earlier
access stays in use: the file may be half written.

If a program or a provider gives the user's credentials, they are fetched later. PyYAML is needed only for files
that are not JSON, and the ``kubernetes`` package only for a provider.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from netplug_backends.kubernetes.client.credentials import (
    ApiAccess,
    FileReader,
    FileStamp,
    KubeconfigEntry,
    Pem,
    TlsVerification,
    describe_type,
    find_file_stamp,
    in_cluster_server,
    is_host,
    parse_scheme,
)
from netplug_core.addressing import without_ipv4_brackets
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import ConfigurationError, Unavailable, UnusableFile, quote
from netplug_core.settings.model import KubernetesAccess

if TYPE_CHECKING:
    import yaml

__all__ = ["SERVICE_ACCOUNT_FOLDER", "AccessSource", "from_files", "from_text"]


# --- kubeconfigs -----------------------------------------------------------------------------------------------------

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


SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the files of its service account."""

_WHERE = "kubernetes"
_INLINE = "kubeconfigInline"
_ACCOUNT = "the pod's service account"
_CERTIFICATE, _KEY = "k8s_client_certificate or K8S_CERT_FILE", "k8s_client_key or K8S_KEY_FILE"


class _NoAccess(ConfigurationError):
    """Nothing says where the API server is."""

    def __str__(self) -> str:
        return f"{self.where}: nothing says where the API server is: {self.accepted}"


@frozen
class _LoadedAccess:
    access: ApiAccess
    stamps: Mapping[str, FileStamp | None]

    @property
    def has_changed(self) -> bool:
        """Whether a file that it was read from has changed."""
        return any(find_file_stamp(path) != known for path, known in self.stamps.items())

    def has_expired(self, clock: Clock) -> bool:
        """Whether the credentials have reached their expiry time."""
        return self.access.expires_ns is not None and clock.now_ns() >= self.access.expires_ns


@define
class AccessSource:
    """The current access for some settings, for any number of threads.

    ``environ`` is the environment: it has the API's address in a pod, and the user's home folder. ``account_folder``
    has the files of a service account, which is then the only access that is looked for.
    """

    settings: KubernetesAccess
    environ: Mapping[str, str] = field(repr=False)
    account_folder: str = ""
    _loaded: _LoadedAccess | None = field(default=None, init=False, repr=False)
    _loading: Lock = field(factory=Lock, init=False, repr=False, eq=False)

    def current(self, *, deadline: Deadline) -> ApiAccess:
        """The access; read again if one of its files has changed, or if the credentials have expired.

        An access that was read again is another object even if it is equal: its files may have new contents.

        Raises:
            ConfigurationError: there is none, or a file cannot be read or decoded.
            Unavailable: the source of the credentials did not answer by the deadline.
        """
        loaded = self._loaded
        if loaded is not None and not loaded.has_expired(deadline.clock) and not loaded.has_changed:
            return loaded.access
        # One thread loads for all, so that a credential program is not run once per thread.
        if not self._loading.acquire(timeout=deadline.remaining_s):
            raise Unavailable(self.origin, "another call is still waiting for credentials")
        try:
            return self._reloaded(deadline)
        finally:
            self._loading.release()

    @property
    def loaded(self) -> ApiAccess | None:
        """The access that the last request used; None if there was none."""
        return None if self._loaded is None else self._loaded.access

    @property
    def server(self) -> str:
        """The API's URL; credentials are not fetched. Errors are those of ``current``."""
        return self._configured_access(FileReader()).server

    def invalidate(self, refused: ApiAccess) -> None:
        """Discard an access that the server refused, unless another thread has replaced it already."""
        loaded = self._loaded
        if loaded is not None and loaded.access is refused:
            self._loaded = None

    @property
    def origin(self) -> str:
        """Where the access comes from, as error texts name it."""
        place, _ = self._find_origin()
        return "k8s_api_root" if "@" in place else place  # a URL may contain a password

    def _reloaded(self, deadline: Deadline) -> ApiAccess:
        loaded = self._loaded  # another thread may have replaced it
        if loaded is None or loaded.has_expired(deadline.clock):
            loaded = self._loaded = self._load(deadline)
        elif loaded.has_changed:
            with suppress(ConfigurationError):  # a rotation is half done: the next call tries again
                loaded = self._loaded = self._load(deadline)
        return loaded.access

    def _load(self, deadline: Deadline) -> _LoadedAccess:
        read = FileReader()
        access = self._configured_access(read)
        for pem in access.pem_files:
            read.check_pem(pem)
        if access.fetch_credentials is not None:
            access = evolve(access.fetch_credentials(access, deadline), fetch_credentials=None)
        if not _is_header_text(access.token):
            raise UnusableFile(f"the token of {self.origin}", "…", "one line of letters, digits and signs is expected")
        return _LoadedAccess(access, read.stamps)

    def _configured_access(self, reader: FileReader) -> ApiAccess:
        """The access that the settings name, before credentials are fetched."""
        _, load = self._find_origin()
        access = load(reader)
        access = evolve(access, server=without_ipv4_brackets(access.server))
        if self.settings.skips_tls_verification:
            access = evolve(access, verification=TlsVerification.SKIPPED)
        parse_scheme(access.server)  # refuses a URL with a password before it is shown anywhere
        return access

    def _find_origin(self) -> tuple[str, Callable[[FileReader], ApiAccess]]:
        settings = self.settings
        if self.account_folder:
            return _ACCOUNT, self._from_account
        if settings.kubeconfig_inline:
            return _INLINE, self._from_inline
        if settings.kubeconfig:
            return settings.kubeconfig, lambda read: self._from_files(_kubeconfig_paths(settings.kubeconfig), read)
        if settings.api_root:
            return settings.api_root, self._from_root
        own = os.path.join(self.environ.get("HOME") or "/root", ".kube", "config")
        if os.path.exists(own):
            return own, lambda read: self._from_files((own,), read)
        if self.environ.get("KUBERNETES_SERVICE_HOST"):
            return _ACCOUNT, self._from_account
        raise _NoAccess(_WHERE, "", f"name a kubeconfig (KUBECONFIG=FILE) or k8s_api_root; {own} does not exist")

    def _from_inline(self, reader: FileReader) -> ApiAccess:
        return from_text(self.settings.kubeconfig_inline, _INLINE, self.settings.context, reader)

    def _from_files(self, paths: tuple[str, ...], reader: FileReader) -> ApiAccess:
        return from_files(paths, self.settings.context, reader)

    def _from_root(self, reader: FileReader) -> ApiAccess:
        del reader
        settings = self.settings
        if bool(settings.certificate) is not bool(settings.key):
            present, missing = (_CERTIFICATE, _KEY) if settings.certificate else (_KEY, _CERTIFICATE)
            raise ConfigurationError(missing, "", f"it is needed beside {present}")
        return ApiAccess(
            server=settings.api_root,
            token=settings.token,
            certificate_authority=Pem(path=settings.certificate_authority),
            certificate=Pem(path=settings.certificate),
            key=Pem(path=settings.key),
        )

    def _from_account(self, reader: FileReader) -> ApiAccess:
        folder = self.account_folder or SERVICE_ACCOUNT_FOLDER
        return ApiAccess(
            server=in_cluster_server(self.environ),
            token=reader.read_token(f"{folder}/token"),
            certificate_authority=Pem(path=f"{folder}/ca.crt"),
        )


def _is_header_text(token: str) -> bool:
    """Whether a header can contain a token; the library's error would show one that it cannot."""
    return token.isascii() and token.isprintable()


def _kubeconfig_paths(text: str) -> tuple[str, ...]:
    """The files that a setting names: one, or several separated by colons, as in ``KUBECONFIG``."""
    return (text,) if os.path.exists(text) else tuple(filter(None, text.split(os.pathsep))) or (text,)
