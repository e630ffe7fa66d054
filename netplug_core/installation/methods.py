"""The ways to install netplug with a static manifest, and the settings that a person makes in one. Pure.

The settings are the keys of the ConfigMap ``netplug-config``. ``static_manifest`` renders them with everything else;
``netplugctl install render --method`` changes them.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError

__all__ = [
    "ENDPOINTS_KEY", "ETCD_PLACEHOLDER", "FLANNEL_KEY", "TEMPLATE_KEY", "TLS_FOLDER", "TLS_KEYS", "Method",
    "configure", "default_settings",
]  # fmt: skip

TEMPLATE_KEY: Final = "cni_network_config"
ENDPOINTS_KEY: Final = "etcd_endpoints"
FLANNEL_KEY: Final = "net-conf.json"
TLS_KEYS: Final = ("etcd_ca", "etcd_cert", "etcd_key")
"""The keys with the paths of certificates; a path ends like its key, with a hyphen."""

ETCD_PLACEHOLDER: Final = "http://<ETCD_IP>:<ETCD_PORT>"
"""What the published manifests have in place of the endpoints of an etcd."""

TLS_FOLDER: Final = "/etc/cni/net.d/netplug-tls"
"""Where the installer puts the certificates on a host. Other containers have them there too."""

_ENDPOINT: Final = re.compile(r"https?://(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}", re.ASCII)
_MAX_MTU: Final = 65_535


class Method(enum.Enum):
    """A static manifest, by its name."""

    KDD = "manifest-kdd"
    KDD_FLANNEL = "manifest-kdd-flannel"
    KDD_POLICY_ONLY = "manifest-kdd-policy-only"
    ETCD = "manifest-etcd"
    ETCD_FLANNEL = "manifest-etcd-flannel"

    @property
    def has_etcd(self) -> bool:
        """Whether the datastore is etcd, and not the orchestrator's API."""
        return self in (Method.ETCD, Method.ETCD_FLANNEL)

    @property
    def has_flannel(self) -> bool:
        """Whether flannel connects the nodes."""
        return self in (Method.KDD_FLANNEL, Method.ETCD_FLANNEL)

    @property
    def has_own_network(self) -> bool:
        """Whether addresses are those of netplug's own IPAM."""
        return self in (Method.KDD, Method.ETCD)


@frozen
class _Setting:
    """``accepted`` says which values are; ``is_accepted`` decides."""

    accepted: str
    is_accepted: Callable[[str], bool]


def default_settings(method: Method) -> dict[str, str]:
    """The settings of a published manifest; without the template of the conflist, which is no setting."""
    settings = {"veth_mtu": "0"}
    if method.has_own_network:
        settings["netplug_backend"] = "bird"
    if method.has_etcd:
        settings |= {ENDPOINTS_KEY: ETCD_PLACEHOLDER, **dict.fromkeys(TLS_KEYS, "")}
    if method.has_flannel:
        network = {"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}
        settings |= {"flannel_iface": "", "masquerade": "true", FLANNEL_KEY: json.dumps(network)}
    return settings


def configure(method: Method, changes: Mapping[str, str]) -> dict[str, str]:
    """The settings with some changes, checked for use in a cluster.

    Raises:
        ConfigurationError: a setting is unknown or not accepted, the endpoints of etcd are missing, or of the three
            certificates some are named and others not.
    """
    settings = default_settings(method)
    for name in changes:
        if name not in settings:
            raise ConfigurationError(
                f"{method.value} --set {name}", changes[name], f"there is no such setting; {', '.join(settings)}"
            )
    settings |= changes
    for name, text in settings.items():
        setting = _SETTINGS[name]
        if not setting.is_accepted(text):
            raise ConfigurationError(f"{method.value} --set {name}", text, setting.accepted)
    if method.has_etcd and len({bool(settings[name]) for name in TLS_KEYS}) > 1:
        missing = next(name for name in TLS_KEYS if not settings[name])
        raise ConfigurationError(f"{method.value} --set {missing}", "", f"set all of {', '.join(TLS_KEYS)}, or none")
    return settings


def _is_mtu(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _MAX_MTU


def _is_endpoint_list(text: str) -> bool:
    return all(_ENDPOINT.fullmatch(one.strip()) for one in text.split(","))


def _is_flannel_network(text: str) -> bool:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "Network" in found and "Backend" in found


def _path_setting(key: str) -> _Setting:
    path = f"{TLS_FOLDER}/{key.replace('_', '-')}"
    return _Setting(f"empty, or {path}", lambda text: text in ("", path))


_SETTINGS: Final[Mapping[str, _Setting]] = {
    "veth_mtu": _Setting(f"a number of bytes up to {_MAX_MTU}; 0 takes that of the node", _is_mtu),
    "netplug_backend": _Setting("bird or vxlan", lambda text: text in ("bird", "vxlan")),
    ENDPOINTS_KEY: _Setting("URLs with commas between, such as https://10.0.0.1:2379", _is_endpoint_list),
    **{key: _path_setting(key) for key in TLS_KEYS},
    "flannel_iface": _Setting("the name of an interface, or nothing", lambda text: not re.search(r"[\s/]", text)),
    "masquerade": _Setting("true or false", lambda text: text in ("true", "false")),
    FLANNEL_KEY: _Setting("a JSON object with Network and Backend, as flannel reads it", _is_flannel_network),
}  # fmt: skip
