"""Where the API answers, and how we prove who we are: from a kubeconfig, an API root, or a pod's own account.

``client`` asks for the :class:`Access` before every request. Files are looked at each time (one ``stat``) and read
again when they changed, so that a renewed token or certificate is used without a restart. A kubeconfig that names a
program or a provider for its credentials is handed to the ``kubernetes`` package, which knows them all; loading it
costs more than everything else a call does, so nothing else here needs it.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from attrs import define, evolve, field, frozen

from netplug_core.errors import ConfigurationError
from netplug_core.netconf.model import KubernetesAccess

__all__ = ["Access", "AccessSource", "Pem", "Verification"]

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_WHERE = "kubernetes"

_Stamp = tuple[int, int, int]


class Verification(enum.Enum):
    """Whether the server must prove who it is. Only an explicit wish of the user's switches it off."""

    REQUIRED = "required"
    SKIPPED = "skipped"


@frozen(kw_only=True)
class Pem:
    """A certificate, a key or several of them: in a file, or as they are. Empty: there is none."""

    path: str = ""
    data: bytes = field(default=b"", repr=False)

    def __bool__(self) -> bool:
        return bool(self.path or self.data)


@frozen(kw_only=True)
class Access:
    """The API's address, whom to trust there, and our credentials.

    ``server_name`` is the name that the server's certificate must have where that is not the address's.
    """

    server: str
    server_name: str = ""
    authority: Pem = Pem()
    verification: Verification = Verification.REQUIRED
    token: str = field(default="", repr=False)
    certificate: Pem = Pem()
    key: Pem = Pem()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the connection itself is made with."""
        return tuple(pem.path for pem in (self.authority, self.certificate, self.key) if pem.path)


@frozen
class _Loaded:
    access: Access
    stamps: Mapping[str, _Stamp | None]


@define
class AccessSource:
    """The access that some settings lead to, as it is now.

    ``environ`` says where a pod finds the API, and where the user's own kubeconfig is.
    """

    settings: KubernetesAccess
    environ: Mapping[str, str] = field(repr=False)
    _loaded: _Loaded | None = field(default=None, init=False, repr=False)

    def current(self) -> Access:
        """The access; read again if a file that it was made from has changed.

        Raises:
            ConfigurationError: there is none, or a file it needs cannot be read or makes no sense.
        """
        loaded = self._loaded
        if loaded is None or any(_stamp(path) != stamp for path, stamp in loaded.stamps.items()):
            loaded = self._loaded = self._load()
        return loaded.access

    def renew(self) -> None:
        """Read everything again when next asked: what there is was refused."""
        self._loaded = None

    @property
    def generation(self) -> object:
        """Changes its identity whenever something was read again, also where the access reads the same."""
        return self._loaded

    @property
    def origin(self) -> str:
        """What people call the place that the access is from."""
        return self._place()[0]

    def _load(self) -> _Loaded:
        read = _Reader()
        _, load = self._place()
        access = load(read)
        if self.settings.skips_verification:
            access = evolve(access, verification=Verification.SKIPPED)
        for path in access.files:
            read.look(path)
        return _Loaded(access, read.stamps)

    def _place(self) -> tuple[str, Callable[[_Reader], Access]]:
        settings = self.settings
        if settings.kubeconfig:
            return settings.kubeconfig, lambda read: _from_kubeconfig(settings.kubeconfig, settings.context, read)
        if settings.api_root:
            return settings.api_root, lambda read: _from_root(settings, read)
        own = os.path.join(self.environ.get("HOME") or "/root", ".kube", "config")
        if os.path.exists(own):
            return own, lambda read: _from_kubeconfig(own, settings.context, read)
        if self.environ.get("KUBERNETES_SERVICE_HOST"):
            return "the pod's service account", lambda read: _from_account(self.environ, read)
        raise ConfigurationError(
            _WHERE, "", "name a kubeconfig or k8s_api_root: there is no other access to the orchestrator's API here"
        )


class _Reader:
    """Reads small files and remembers how they looked."""

    def __init__(self) -> None:
        self.stamps: dict[str, _Stamp | None] = {}

    def look(self, path: str) -> None:
        self.stamps[path] = _stamp(path)

    def bytes(self, path: str) -> bytes:
        self.look(path)  # before reading: a change in between is seen at the next call
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise ConfigurationError(path, error.strerror or str(error), "a readable file is expected") from error

    def text(self, path: str) -> str:
        try:
            return self.bytes(path).decode().strip()
        except UnicodeDecodeError as error:
            raise ConfigurationError(path, "", "a text file is expected") from error


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _from_root(settings: KubernetesAccess, read: _Reader) -> Access:
    del read
    return Access(
        server=settings.api_root,
        token=settings.token,
        authority=Pem(path=settings.certificate_authority),
        certificate=Pem(path=settings.certificate),
        key=Pem(path=settings.key),
    )


def _from_account(environ: Mapping[str, str], read: _Reader) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        token=read.text(f"{_ACCOUNT}/token"),
        authority=Pem(path=f"{_ACCOUNT}/ca.crt"),
    )


# --- kubeconfig ----------------------------------------------------------------------------------------------------


@frozen
class _Section:
    """One object of a kubeconfig; errors name its place."""

    where: str
    members: Mapping[str, object] = field(repr=False)

    def text(self, name: str) -> str:
        value = self.members.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigurationError(f"{self.where}.{name}", type(value).__name__, "a text is expected")
        return value

    def named(self, collection: str, name: str, member: str) -> _Section:
        """The ``member`` of the entry with that name in a list of named entries."""
        entries = self.members.get(collection)
        for entry in entries if isinstance(entries, Sequence) else ():
            if isinstance(entry, Mapping) and entry.get("name") == name:
                inner = entry.get(member)
                if isinstance(inner, Mapping):
                    return _Section(f"{self.where} {collection}[{name}]", cast("Mapping[str, object]", inner))
        raise ConfigurationError(f"{self.where} {collection}", name, "an entry of that name is expected")

    def pem(self, folder: str, name: str) -> Pem:
        """A file, or base64 of its content in the member that ends in ``-data``, which wins."""
        encoded = self.text(f"{name}-data")
        if not encoded:
            path = self.text(name)
            return Pem(path=os.path.join(folder, path) if path else "")
        try:
            return Pem(data=base64.b64decode(encoded, validate=True))
        except binascii.Error:
            # The value may be a key: it is not shown.
            raise ConfigurationError(f"{self.where}.{name}-data", "…", "base64 is expected") from None


def _from_kubeconfig(path: str, context: str, read: _Reader) -> Access:
    top = _Section(path, _parsed(path, read.text(path)))
    name = context or top.text("current-context")
    if not name:
        raise ConfigurationError(f"{path} current-context", "", "the name of a context is expected")
    chosen = top.named("contexts", name, "context")
    cluster = top.named("clusters", chosen.text("cluster"), "cluster")
    _refuse(cluster, ("proxy-url",))
    folder = os.path.dirname(os.path.abspath(path))
    skips = cluster.members.get("insecure-skip-tls-verify") is True
    server = cluster.text("server")
    if not server:
        raise ConfigurationError(f"{cluster.where}.server", "", "the API's URL is expected")
    anonymous = Access(
        server=server,
        server_name=cluster.text("tls-server-name"),
        authority=cluster.pem(folder, "certificate-authority"),
        verification=Verification.SKIPPED if skips else Verification.REQUIRED,
    )
    user = chosen.text("user")
    if not user:
        return anonymous
    return _identified(anonymous, top.named("users", user, "user"), read, (path, name, folder))


def _refuse(section: _Section, names: tuple[str, ...]) -> None:
    """What a kubeconfig can say and this client does not do; passing it over would be to act as somebody else."""
    for name in names:
        if section.members.get(name):
            raise ConfigurationError(f"{section.where}.{name}", "…", "it is not supported; leave it out")


def _identified(access: Access, user: _Section, read: _Reader, place: tuple[str, str, str]) -> Access:
    path, context, folder = place
    _refuse(user, ("as", "as-groups", "as-uid", "as-user-extra", "username", "password"))
    if "exec" in user.members or "auth-provider" in user.members:
        return _with_provided(access, path, context)
    token_file = user.text("tokenFile")
    certificate, key = user.pem(folder, "client-certificate"), user.pem(folder, "client-key")
    if bool(certificate) is not bool(key):
        present, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise ConfigurationError(f"{user.where}.{missing}", "", f"it is needed beside {present}")
    return evolve(
        access,
        # A file wins over the text beside it, which may be what the file was when somebody copied it.
        token=read.text(os.path.join(folder, token_file)) if token_file else user.text("token"),
        certificate=certificate,
        key=key,
    )


def _parsed(path: str, text: str) -> Mapping[str, object]:
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
            raise ConfigurationError(path, line, "YAML is expected") from None
    if not isinstance(parsed, Mapping):
        raise ConfigurationError(path, type(parsed).__name__, "a kubeconfig is expected")
    return parsed


def _with_provided(access: Access, path: str, context: str) -> Access:
    """The access with the credentials that a program or a provider gives for a context."""
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import load_kube_config
    from kubernetes.config.config_exception import ConfigException

    given = Configuration()
    try:
        load: Callable[..., None] = load_kube_config  # it has no types
        load(config_file=path, context=context, client_configuration=given, persist_config=False)
    except ConfigException as error:
        raise ConfigurationError(f"{path} context {context}", "…", f"its credentials cannot be had: {error}") from None
    # Releases of the package differ in what they call it, and agree on what is sent.
    header = given.auth_settings().get("BearerToken", {}).get("value") or ""
    scheme, _, token = header.partition(" ")
    if not token and not given.cert_file:
        raise ConfigurationError(f"{path} context {context}", "…", "its program or provider gives no credentials")
    return evolve(
        access,
        token=token if scheme.lower() == "bearer" else "",
        certificate=Pem(path=given.cert_file or ""),
        key=Pem(path=given.key_file or ""),
    )
