"""The settings of the installer, which are the environment of its container.

``netplug-install`` reads them before it touches the host, so that a value that is not accepted changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError

__all__ = ["CERTIFICATES", "DEFAULT_CONF_NAME", "InstallerSettings", "read_installer_settings"]

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
