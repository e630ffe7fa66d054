"""The installer on one node: its settings, the conflist, the plugin's kubeconfig and token, and the order of it all.

The order is what keeps a node from being ready without a working plugin: a runtime takes a node for ready as soon as
a network configuration is there, so the configuration comes last, and goes first.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from attrs import field, frozen

from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.errors import ConfigurationError

__all__ = [
    "BUILT_IN", "CERTIFICATES", "DEFAULT_CONF_NAME", "FILE_NAME", "LIFETIME_S", "RETRY_S", "BinFolder", "ConfFolder",
    "Conflist", "CopyProgram", "HostFacts", "InstallPrograms", "InstallerSettings", "IssuedToken", "NoWritableFolder",
    "PluginAccess", "PluginFile", "RemoveFile", "RenewKubeconfig", "SecretHost", "Step", "TokenIssuer", "WriteFile",
    "fill_conflist", "find_warnings", "helper_names", "is_ours", "plan_install", "plan_removal", "plan_tls",
    "read_installer_settings", "refresh_delay_s", "render_kubeconfig", "renew_plugin_token", "require_filled",
    "usable_folders",
]  # fmt: skip


# --- installer -------------------------------------------------------------------------------------------------------


# --- settings ---------------------------------------------------------------------------------------------------------


CERTIFICATES: Final = ("etcd-ca", "etcd-cert", "etcd-key")
"""The files of the etcd client, in the folder where they are mounted and in the folder on the host."""

DEFAULT_CONF_NAME: Final = "10-netplug.conflist"
"""The name of the network configuration. A runtime uses the first one of its folder."""

_TLS_FOLDER: Final = "netplug-tls"
_CONF_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.(conflist|conf|json)", re.ASCII)
_MODE: Final = re.compile(r"(0o?)?[0-7]{3}", re.ASCII)
_LITERALS: Final[Mapping[str, bool]] = {"true": True, "false": False}

_DEFAULTS: Final[Mapping[str, str]] = {
    "LOG_LEVEL": "info",
    "LOG_FILE_PATH": "/var/log/netplug/cni/cni.log",
    "LOG_FILE_MAX_SIZE": "100",
    "LOG_FILE_MAX_AGE": "30",
    "LOG_FILE_MAX_COUNT": "10",
    "DATASTORE_TYPE": "kubernetes",
    "CNI_MTU": "1500",
    "KUBERNETES_SERVICE_HOST": "",
    "KUBERNETES_SERVICE_PORT": "",
    "NETPLUG_API_GROUP": "crd.projectnetplug.org/v1",
    "ETCD_ENDPOINTS": "",
    "ETCD_DISCOVERY_SRV": "",
    "REQUIRE_MTU_FILE": "false",
}
"""What a placeholder of the same name stands for if the variable is not set, or empty."""


@frozen(kw_only=True)
class InstallerSettings:
    """Everything that the environment says.

    ``net_dir`` is the folder of the network configurations as the host sees it: for paths in what is written, not for
    writing. ``template`` is the text of ``CNI_NETWORK_CONFIG``, and ``template_file`` the path of one that is used
    instead; both may be empty. ``variables`` are the values of placeholders that are variables.
    """

    net_dir: str
    conf_name: str
    old_conf_name: str
    template_file: str
    template: str
    tls_assets_dir: str
    skipped_programs: frozenset[str]
    updates_programs: bool
    stays: bool
    conf_mode: int
    node_name: str
    variables: Mapping[str, str]

    @property
    def tls_dir(self) -> str:
        """The folder of the certificates as the host sees it."""
        return f"{self.net_dir}/{_TLS_FOLDER}"


def read_installer_settings(environ: Mapping[str, str]) -> InstallerSettings:
    """The settings of an environment; a variable that is empty counts as not set.

    Raises:
        ConfigurationError: a variable is not accepted.
    """
    return InstallerSettings(
        net_dir=_absolute(environ, "CNI_NET_DIR", "/etc/cni/net.d"),
        conf_name=_conf_name(environ, "CNI_CONF_NAME"),
        old_conf_name=_conf_name(environ, "CNI_OLD_CONF_NAME"),
        template_file=environ.get("CNI_NETWORK_CONFIG_FILE", ""),
        template=environ.get("CNI_NETWORK_CONFIG", ""),
        tls_assets_dir=_absolute(environ, "TLS_ASSETS_DIR", "/netplug-secrets"),
        skipped_programs=frozenset(filter(None, map(str.strip, environ.get("SKIP_CNI_BINARIES", "").split(",")))),
        updates_programs=_switch(environ, "UPDATE_CNI_BINARIES"),
        stays=_switch(environ, "SLEEP"),
        conf_mode=_mode(environ, "TEST_FILE_PERMISSION"),
        node_name=environ.get("KUBERNETES_NODE_NAME", ""),
        variables={name: environ.get(name) or default for name, default in _DEFAULTS.items()},
    )


def _absolute(environ: Mapping[str, str], name: str, default: str) -> str:
    path = environ.get(name) or default
    if not path.startswith("/"):
        raise ConfigurationError(name, path, "an absolute path is expected")
    return path.rstrip("/") or "/"


def _conf_name(environ: Mapping[str, str], variable: str) -> str:
    name = environ.get(variable) or DEFAULT_CONF_NAME
    if not _CONF_NAME.fullmatch(name):
        raise ConfigurationError(
            variable, name, "the name of a file without a folder, ending in .conflist, .conf or .json, is expected"
        )
    return name


def _switch(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name) or "true"
    value = _LITERALS.get(text.lower())
    if value is None:
        raise ConfigurationError(name, text, "true or false is expected")
    return value


def _mode(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name) or "0600"
    if not _MODE.fullmatch(text):
        raise ConfigurationError(name, text, "the mode of a file in octal, such as 0600, is expected")
    return int(text.removeprefix("0o"), 8)


# --- the plugin's kubeconfig ------------------------------------------------------------------------------------------


FILE_NAME = "netplug-kubeconfig"
"""The name of the file, in the folder of the network configurations."""

_CLUSTER, _USER, _CONTEXT = "local", "netplug", "netplug-context"


@frozen(kw_only=True)
class PluginAccess:
    """How the plugin reaches the API server at the URL ``server``.

    ``certificate_authority`` has the certificates (PEM) that the server's is verified with; None: it is not verified.
    """

    server: str
    certificate_authority: bytes | None
    token: str = field(repr=False)


def render_kubeconfig(access: PluginAccess) -> str:
    """The text of the file. It is JSON, which is YAML too, so that the plugin reads it without the YAML library."""
    authority = access.certificate_authority
    trust: dict[str, object] = (
        {"insecure-skip-tls-verify": True}
        if authority is None
        else {"certificate-authority-data": base64.b64encode(authority).decode()}
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": {"server": access.server, **trust}}],
        "users": [{"name": _USER, "user": {"token": access.token}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CLUSTER, "user": _USER}}],
        "current-context": _CONTEXT,
    }
    return f"{json.dumps(document, indent=2)}\n"


# --- the conflist -----------------------------------------------------------------------------------------------------


BUILT_IN: Final = "the built-in template"
"""The name of the template that is used without another one."""

_NAME: Final = r"__([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)__"
_PLACEHOLDER: Final = re.compile(_NAME, re.ASCII)
_STRING_OR_PLACEHOLDER: Final = re.compile(rf'"(?:[^"\\]|\\.)*"|{_NAME}', re.ASCII | re.DOTALL)
_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false", re.ASCII)
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)  # of a shell or envsubst
_OUR_TYPE: Final = re.compile(r'"type"\s*:\s*"netplug(?:-ipam)?"')

_NODE_NAME: Final = "KUBERNETES_NODE_NAME"
_CERTIFICATE_NAMES: Final[Mapping[str, str]] = dict(
    zip(("ETCD_CA_CERT_FILE", "ETCD_CERT_FILE", "ETCD_KEY_FILE"), CERTIFICATES, strict=True)
)


@frozen(kw_only=True)
class HostFacts:
    """What is known of the machine and the container besides the settings.

    ``certificates`` are the names of those that are mounted. ``token`` is the one of the pod; empty outside a pod.
    """

    host_name: str
    certificates: frozenset[str] = frozenset()
    token: str = field(default="", repr=False)


@frozen(kw_only=True)
class Conflist:
    """The text for the node. ``unknown`` are placeholders of any form that stand in it, since they have no value."""

    text: str = field(repr=False)
    unknown: tuple[str, ...]


def fill_conflist(template: str, source: str, settings: InstallerSettings, facts: HostFacts) -> Conflist:
    """A template, or the built-in one if it is empty, with the values of this node. ``source`` names it in errors.

    Raises:
        ConfigurationError: a value does not fit its place, or the result is no configuration with our plugin. The
            text is never shown: it may have secrets.
    """
    values = _values(settings, facts)
    unknown: dict[str, None] = {}

    def value_of(found: re.Match[str]) -> str | None:
        if found[1] not in values:
            unknown[f"__{found[1]}__"] = None
            return None
        return _value(found[1], values)

    def fill_string(found: re.Match[str]) -> str:
        value = value_of(found)
        return found[0] if value is None else json.dumps(value, ensure_ascii=False)[1:-1]

    def fill(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            unknown.update(dict.fromkeys(_VARIABLE.findall(found[0])))
            return _PLACEHOLDER.sub(fill_string, found[0])
        value = value_of(found)
        if value is not None and not _LITERAL.fullmatch(value):
            raise ConfigurationError(found[1], value, f"{source} uses it as a number, or as true or false")
        return found[0] if value is None else value

    text = _STRING_OR_PLACEHOLDER.sub(fill, template or _built_in(values))
    _check(text, source)
    return Conflist(text=text, unknown=tuple(unknown))


def require_filled(conflist: Conflist, source: str) -> None:
    """Return if no placeholder is left: the plugin would take its name for a value, as for the name of every node.

    Raises:
        ConfigurationError: one is left.
    """
    if conflist.unknown:
        accepted = "it has no value: set a variable of the environment, or write the value into the template"
        raise ConfigurationError(source, ", ".join(conflist.unknown), accepted)


def is_ours(text: str) -> bool:
    """Whether the text of a configuration, perhaps a damaged one, has our plugin in it; others are never touched."""
    return _OUR_TYPE.search(text) is not None


def _values(settings: InstallerSettings, facts: HostFacts) -> dict[str, str]:
    """The value of every placeholder, by its name without the underscores around it."""
    certificates = {
        name: f"{settings.tls_dir}/{file}" if file in facts.certificates else ""
        for name, file in _CERTIFICATE_NAMES.items()
    }
    return {
        **settings.variables,
        **certificates,
        _NODE_NAME: settings.node_name or facts.host_name.lower(),
        "KUBECONFIG_FILEPATH": f"{settings.net_dir}/{FILE_NAME}",
        "SERVICEACCOUNT_TOKEN": facts.token,
    }


def _value(name: str, values: Mapping[str, str]) -> str:
    value = values[name]
    if name == _NODE_NAME and (value == "localhost" or value.startswith("localhost.")):
        raise ConfigurationError(_NODE_NAME, value, "every machine has this name; set it to the name of the node")
    return value


def _check(text: str, source: str) -> None:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        # Its text has a place and never the content.
        raise ConfigurationError(source, "…", f"JSON is expected, with its placeholders filled in: {error}") from None
    except RecursionError:
        raise ConfigurationError(source, "…", "JSON is expected, and this is nested too deeply") from None
    if not isinstance(found, dict) or not is_ours(text):
        raise ConfigurationError(source, "…", 'a JSON object with a plugin of type "netplug" is expected')


def _built_in(values: Mapping[str, str]) -> str:
    """The list of ``netplug`` and ``portmap``, for either datastore."""
    names = _ETCD_NAMES if values["DATASTORE_TYPE"] == "etcdv3" else ()
    members = "".join(f'      "{name.lower()}": "__{name}__",\n' for name in names if values[name])
    return _BUILT_IN_TEXT.replace("      ETCD\n", members)


_ETCD_NAMES: Final = ("ETCD_ENDPOINTS", "ETCD_DISCOVERY_SRV", *_CERTIFICATE_NAMES)
_BUILT_IN_TEXT: Final = """{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "netplug",
      "log_level": "__LOG_LEVEL__",
      "log_file_path": "__LOG_FILE_PATH__",
      "log_file_max_size": __LOG_FILE_MAX_SIZE__,
      "log_file_max_age": __LOG_FILE_MAX_AGE__,
      "log_file_max_count": __LOG_FILE_MAX_COUNT__,
      "datastore_type": "__DATASTORE_TYPE__",
      ETCD
      "nodename": "__KUBERNETES_NODE_NAME__",
      "mtu": __CNI_MTU__,
      "ipam": {"type": "netplug-ipam"},
      "policy": {"type": "k8s"},
      "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}
    },
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ]
}
"""


# --- the plugin's token -----------------------------------------------------------------------------------------------


LIFETIME_S = 86_400
"""The lifetime that is asked for. The server may grant another one."""

RETRY_S = 5.0
"""The shortest pause after a failure, or before a token is renewed that expires soon."""

_SOON_S = 20.0


@frozen(kw_only=True)
class IssuedToken:
    """A token that is valid until ``expires_ns`` (nanoseconds since 1970-01-01 UTC).

    ``is_mounted``: it is the process's own, since the server issues none.
    """

    text: str = field(repr=False)
    expires_ns: int
    is_mounted: bool = False


class TokenIssuer(Protocol):
    """Issues tokens for service accounts of the process's own namespace."""

    @property
    def server(self) -> str:
        """The URL of the API server."""
        ...

    def read_certificate_authority(self) -> bytes:
        """The certificates (PEM) that the server's certificate is verified with.

        Raises:
            ConfigurationError: they cannot be read.
        """
        ...

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        """A new token of an account; a server that issues none gets the process's own token used.

        Raises:
            ConfigurationError: there is no access to the API server, or the account does not exist.
            Unauthorized: the right to create the token is missing.
            Unavailable: the server does not answer.
        """
        ...


def refresh_delay_s(issued: IssuedToken, *, now_ns: int, interval_s: float | None, chance: float) -> float:
    """How many seconds from now a token is renewed that was issued now.

    It is a quarter of the time that is left, or ``interval_s`` if that is configured, and up to twice as long by
    ``chance`` (from 0 to 1), so that the nodes of a cluster do not ask all at once.
    """
    left_s = (issued.expires_ns - now_ns) / SECOND_NS
    usual_s = left_s / 4 if interval_s is None else interval_s
    return (usual_s if left_s > _SOON_S else RETRY_S) * (1 + chance)


# --- the order on a host ----------------------------------------------------------------------------------------------


OWN_PROGRAMS: Final = ("netplug", "netplug-ipam")
_NO_HELPERS: Final = frozenset({*OWN_PROGRAMS, *(f"{name}-standalone" for name in OWN_PROGRAMS), "install"})
_SECRET_MODE: Final = 0o600
_CONF_ENDINGS: Final = (".conflist", ".conf", ".json")


@frozen
class NoWritableFolder(ConfigurationError):
    """None of the folders for plugins can be written."""


@frozen(kw_only=True)
class BinFolder:
    """A folder for plugins as it was found: whether it can be written, and the names in it."""

    path: str
    is_writable: bool
    names: frozenset[str]

    @property
    def has_own_programs(self) -> bool:
        """Whether both of ours are there."""
        return self.names.issuperset(OWN_PROGRAMS)


@frozen(kw_only=True)
class ConfFolder:
    """The folder of network configurations as it was found: the texts of the configurations by name."""

    path: str
    texts: Mapping[str, str] = field(repr=False)


@frozen
class InstallPrograms:
    """The two executables of ours, and what they execute, come into a folder for plugins."""

    bin_dir: str


@frozen
class CopyProgram:
    """A helper plugin is copied; ``keeps``: one that is there stays as it is."""

    source: str
    path: str
    keeps: bool


@frozen(kw_only=True)
class WriteFile:
    """A file gets a content and a mode."""

    path: str
    content: bytes = field(repr=False)
    mode: int


@frozen
class RenewKubeconfig:
    """The plugin's kubeconfig gets a new token; nothing is done outside a pod."""


@frozen
class RemoveFile:
    """A file is removed. It is missed by nothing, so it may be gone already."""

    path: str


Step: TypeAlias = InstallPrograms | CopyProgram | WriteFile | RenewKubeconfig | RemoveFile


def usable_folders(folders: Iterable[BinFolder], settings: InstallerSettings) -> tuple[BinFolder, ...]:
    """The folders into which plugins are installed; none if existing programs are to be kept and are there.

    Raises:
        NoWritableFolder: none can be written.
    """
    found = tuple(folders)
    writable = tuple(folder for folder in found if folder.is_writable)
    if writable or (not settings.updates_programs and any(folder.has_own_programs for folder in found)):
        return writable
    raise NoWritableFolder(
        "folders for plugins",
        ", ".join(folder.path for folder in found),
        "one that exists and can be written is expected; mount the runtime's plugin folder there",
    )


def helper_names(names: Iterable[str], settings: InstallerSettings) -> tuple[str, ...]:
    """Which of the files beside the image's plugins are helper plugins to be copied, sorted."""
    return tuple(sorted(frozenset(names) - _NO_HELPERS - settings.skipped_programs))


def plan_tls(folder: str, certificates: Mapping[str, bytes]) -> tuple[Step, ...]:
    """The steps that bring the certificates that are mounted into the folder of network configurations."""
    return tuple(
        WriteFile(path=f"{folder}/netplug-tls/{name}", content=certificates[name], mode=_SECRET_MODE)
        for name in CERTIFICATES
        if name in certificates
    )


def plan_install(
    settings: InstallerSettings,
    conflist: Conflist,
    *,
    bin_folders: Iterable[BinFolder],
    conf: ConfFolder,
    helpers: Mapping[str, str],
    certificates: Mapping[str, bytes],
) -> tuple[Step, ...]:
    """Every step of an installation, in order. ``helpers`` are the paths of the helper plugins by name.

    Raises:
        ConfigurationError: a configuration of others has the name of ours.
    """
    there = conf.texts.get(settings.conf_name)
    if there is not None and not is_ours(there) and there.strip():
        raise ConfigurationError(
            f"{conf.path}/{settings.conf_name}",
            "…",
            "it has no plugin of netplug, so it is not replaced; set CNI_CONF_NAME to another name, or remove it",
        )
    steps: list[Step] = []
    for folder in bin_folders:
        if settings.updates_programs or not folder.has_own_programs:
            steps.append(InstallPrograms(folder.path))
        steps += [
            CopyProgram(source, f"{folder.path}/{name}", not settings.updates_programs)
            for name, source in sorted(helpers.items())
        ]
    steps += plan_tls(conf.path, certificates)
    steps.append(RenewKubeconfig())
    text = conflist.text.encode()
    steps.append(WriteFile(path=f"{conf.path}/{settings.conf_name}", content=text, mode=settings.conf_mode))
    return (*steps, *_old_files(settings, conf, certificates))


def _old_files(
    settings: InstallerSettings, conf: ConfFolder, certificates: Mapping[str, bytes]
) -> tuple[RemoveFile, ...]:
    """What an earlier installation has left and nothing uses any more, now that the new configuration is there."""
    old = settings.old_conf_name
    has_old = old != settings.conf_name and is_ours(conf.texts.get(old, ""))
    unused = [name for name in CERTIFICATES if certificates and name not in certificates]
    return (
        *((RemoveFile(f"{conf.path}/{old}"),) if has_old else ()),
        *(RemoveFile(f"{conf.path}/netplug-tls/{name}") for name in unused),
    )


def plan_removal(settings: InstallerSettings, conf: ConfFolder) -> tuple[RemoveFile, ...]:
    """The files of ours in the folder of network configurations, the configurations first."""
    names = dict.fromkeys((settings.conf_name, settings.old_conf_name))
    return (
        *(RemoveFile(f"{conf.path}/{name}") for name in names if is_ours(conf.texts.get(name, ""))),
        RemoveFile(f"{conf.path}/{FILE_NAME}"),
        *(RemoveFile(f"{conf.path}/netplug-tls/{name}") for name in CERTIFICATES),
    )


def find_warnings(settings: InstallerSettings, conf: ConfFolder, certificates: Iterable[str]) -> tuple[str, ...]:
    """What is seldom meant: certificates that are missing, and configurations that hide ours or are not removed."""
    mounted = frozenset(certificates)
    found = [
        f"{settings.tls_assets_dir}/{name} is missing, although another of the three files is there"
        for name in CERTIFICATES
        if mounted and name not in mounted
    ]
    earlier = [name for name in sorted(conf.texts) if name < settings.conf_name and name.endswith(_CONF_ENDINGS)]
    found += [
        f"{conf.path}/{name} comes before {settings.conf_name}, and a runtime uses the first configuration"
        for name in earlier
        if name != settings.old_conf_name or not is_ours(conf.texts[name])
    ]
    old = settings.old_conf_name
    if old != settings.conf_name:
        there = conf.texts.get(old)
        if there is None:
            found.append(f"{conf.path}/{old}, which CNI_OLD_CONF_NAME names, is not there")
        elif not is_ours(there):
            found.append(f"{conf.path}/{old}, which CNI_OLD_CONF_NAME names, is not ours; it stays")
    return tuple(found)


# --- plugin token ----------------------------------------------------------------------------------------------------


class SecretHost(Protocol):
    """The machine that the plugin's files are on."""

    def replace_secret(self, path: str, text: str) -> None:
        """Replace a file that only its owner may read, whole or not at all. Its folder must be there.

        Raises:
            OSError: it cannot be written.
        """
        ...


@frozen(kw_only=True)
class PluginFile:
    """The kubeconfig at ``path``, with a token of the service account ``account``.

    ``skips_tls_verification``: the plugin does not verify the server's certificate.
    """

    path: str
    account: str
    skips_tls_verification: bool = False


def renew_plugin_token(issuer: TokenIssuer, host: SecretHost, file: PluginFile, *, deadline: Deadline) -> IssuedToken:
    """Replace the plugin's kubeconfig by one with a new token.

    Raises:
        ConfigurationError, Unauthorized, Unavailable: as for :meth:`TokenIssuer.issue`.
        OSError: the file cannot be written.
    """
    issued = issuer.issue(file.account, deadline=deadline)
    authority = None if file.skips_tls_verification else issuer.read_certificate_authority()
    access = PluginAccess(server=issuer.server, certificate_authority=authority, token=issued.text)
    host.replace_secret(file.path, render_kubeconfig(access))
    return issued
