"""From the JSON object of a runtime to a :class:`NetConf`: defaults in, deprecated keys folded, every value judged.

The executables call ``load`` once for a call. A DEL or GC must not fail over a setting that it does not use, so with
``Purpose.TEARDOWN`` only the keys that it uses are looked at, those of the one store that is named among them, and a
value outside its set counts as not set.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TypeVar

from attrs import frozen

from netplug_core.decoding.members import JSONObject
from netplug_core.errors import ConfigurationError, redact_url_credentials
from netplug_core.log import Level
from netplug_core.names import is_dns_subdomain
from netplug_core.netconf.model import (
    MAX_MTU,
    MAX_QUEUES,
    ContainerSettings,
    FeatureControl,
    IPAMConfig,
    LogSettings,
    NetConf,
)
from netplug_core.settings.model import (
    DEFAULT_ANNOTATION_PREFIX,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    MAX_REQUEST_RATE,
    SQLITE_DATASTORE,
    DatastoreSettings,
)
from netplug_core.settings.netconf_keys import KUBERNETES_NETCONF_KEYS, datastore_settings_from_netconf

__all__ = ["LoadPurpose", "PluginRole", "load", "resolve_node_name"]

T = TypeVar("T")

_WHERE = "network configuration"
_ATTACHMENT_KEYS = ("cni.dev/valid-attachments", "cni.dev/attachments")
_LEVELS = {"ERROR": Level.ERROR, "WARNING": Level.WARNING, "WARN": Level.WARNING,
           "INFO": Level.INFO, "DEBUG": Level.DEBUG}  # fmt: skip
_COMMON_KEYS = ("nodename", "nodename_file", "nodename_file_optional", "datastore_type", "log_level",
              "log_file_path", "log_file_max_size", "log_file_max_age", "log_file_max_count",
              "ipam_lock_file", "hostname")  # fmt: skip
_ETCD_KEYS = ("etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "etcd_scheme",
              "etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file")  # fmt: skip
_SHARED_KEYS = (*_COMMON_KEYS, *_ETCD_KEYS, "sqlite_path", "annotation_prefix")
_TEARDOWN_KEYS = (*_COMMON_KEYS, *_ATTACHMENT_KEYS, "type")
_DATASTORE_KEYS: Mapping[str, tuple[str, ...]] = {
    ETCD_DATASTORE: _ETCD_KEYS,
    SQLITE_DATASTORE: ("sqlite_path",),
    KUBERNETES_DATASTORE: (*KUBERNETES_NETCONF_KEYS, "annotation_prefix"),
}
"""What a store is reached by; one that somebody installed may use any of it."""
_ALL_DATASTORE_KEYS = tuple(key for keys in _DATASTORE_KEYS.values() for key in keys)


class PluginRole(enum.Enum):
    """Whether ``netplug`` reads its own configuration, or ``netplug-ipam`` that of another main plugin.

    The top level of the latter belongs to that plugin, so our keys may stand inside ``ipam`` too, and win there.
    """

    MAIN = "main"
    IPAM = "ipam"


class LoadPurpose(enum.Enum):
    """What the configuration is read for: to set something up, or to take it down."""

    SETUP = "setup"
    TEARDOWN = "teardown"


@frozen
class _ValueChecker:
    """How values outside their set are met."""

    purpose: LoadPurpose

    def accept(self, where: str, value: T, is_fine: Callable[[T], bool], accepted: str, default: T) -> T:
        """The value if it is fine, the default in a teardown.

        Raises:
            ConfigurationError: it is not fine.
        """
        if is_fine(value):
            return value
        if self.purpose is LoadPurpose.TEARDOWN:
            return default
        # Whatever is not what it should be may be a URL in the wrong place.
        raise ConfigurationError(f"{_WHERE}.{where}", redact_url_credentials(value), accepted)


def load(mapping: Mapping[str, object], role: PluginRole, purpose: LoadPurpose = LoadPurpose.SETUP) -> NetConf:
    """The configuration that a JSON object is.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: a value is not accepted, or a key is missing.
    """
    checker = _ValueChecker(purpose)
    if purpose is LoadPurpose.TEARDOWN:
        mapping = _teardown_config(mapping, role)
    ipam = _ipam_object(mapping, checker)
    top = _own_keys(mapping, ipam, role)
    defaults = NetConf()
    return NetConf(
        type=JSONObject(_WHERE, mapping).optional_string("type"),
        nodename=top.optional_string("nodename"),
        hostname=top.optional_string("hostname"),
        nodename_file=top.optional_string("nodename_file") or defaults.nodename_file,
        nodename_file_optional=top.optional_boolean("nodename_file_optional") is not False,
        datastore=_datastore(top, checker),
        log=_log(top, checker),
        ipam=_ipam(ipam, checker),
        container_settings=_container_settings(top),
        feature_control=_feature_control(top),
        policy_type=_policy_type(top, checker),
        readiness_gates=_gates(top, checker),
        num_queues=_queues(top, checker),
        mtu=_mtu(top, checker),
        mtu_file=top.optional_string("mtu_file") or defaults.mtu_file,
        require_mtu_file=top.optional_boolean("require_mtu_file") or False,
        include_default_routes=top.optional_boolean("include_default_routes") or False,
        policy_setup_timeout_s=_at_least_zero(top, checker, "policy_setup_timeout_seconds"),
        endpoint_status_dir=top.optional_string("endpoint_status_dir") or defaults.endpoint_status_dir,
        ipam_lock_file=top.optional_string("ipam_lock_file") or defaults.ipam_lock_file,
        device_type=_device_type(top, checker),
        dataplane_type=_object(top, "dataplane_options").optional_string("type"),
        valid_attachments=_attachments(mapping),
        own_keys=top.members,
    )


def resolve_node_name(netconf: NetConf, *, nodename_file_text: str | None, machine_name: str) -> str:
    """The name this node goes by: the first of four that is not empty.

    These are ``nodename``, the node-name file, ``hostname``, and the machine's own name in lower case.
    """
    in_file = (nodename_file_text or "").strip()
    return netconf.nodename or in_file or netconf.hostname or machine_name.strip().lower()


def _ipam_object(config: Mapping[str, object], checker: _ValueChecker) -> JSONObject:
    ipam = JSONObject(_WHERE, config).optional_object("ipam")
    if ipam is None:
        if checker.purpose is LoadPurpose.SETUP:
            raise ConfigurationError(f"{_WHERE}.ipam", None, 'an object such as {"type": "netplug-ipam"} is expected')
        return JSONObject(f"{_WHERE}.ipam", {})
    return ipam


def _teardown_config(config: Mapping[str, object], role: PluginRole) -> Mapping[str, object]:
    """The keys that a DEL or GC uses: who and where it is, which datastore, and where lines go."""
    ipam, store = config.get("ipam"), _datastore_type(config, role)
    used = _keys_for_teardown(config, store)
    if isinstance(ipam, dict):
        used["ipam"] = _keys_for_teardown(ipam, store)
    return used


def _datastore_type(config: Mapping[str, object], role: PluginRole) -> str:
    """The store that is named. Of another JSON type the name is none of a store's, and refused where it is read."""
    ipam = config.get("ipam")
    inside = ipam.get("datastore_type") if role is PluginRole.IPAM and isinstance(ipam, dict) else None
    return str((config.get("datastore_type") if inside is None else inside) or ETCD_DATASTORE)


def _keys_for_teardown(members: Mapping[str, object], store: str) -> dict[str, object]:
    keys = (*_TEARDOWN_KEYS, *_DATASTORE_KEYS.get(store, _ALL_DATASTORE_KEYS))
    used = {key: value for key, value in members.items() if key in keys}
    policy = members.get("policy")
    is_perhaps_orchestrators = store == KUBERNETES_DATASTORE or store not in _DATASTORE_KEYS
    if is_perhaps_orchestrators and isinstance(policy, dict):  # where credentials once stood, and still may
        used["policy"] = {key: value for key, value in policy.items() if key.startswith("k8s_")}
    return used


def _own_keys(config: Mapping[str, object], ipam: JSONObject, role: PluginRole) -> JSONObject:
    """The keys that speak to us.

    Of another main plugin's top level these are the keys that no main plugin has a use of its own for; with our store
    in the orchestrator, those that lead to it too.
    """
    if role is PluginRole.IPAM:
        # Null counts as absent, so it hides nothing.
        inside = {key: value for key, value in ipam.members.items() if value is not None}
        keys = (
            *_SHARED_KEYS,
            *(KUBERNETES_NETCONF_KEYS if _datastore_type(config, role) == KUBERNETES_DATASTORE else ()),
        )
        shared = {key: value for key, value in config.items() if key in keys}
        return JSONObject(_WHERE, {**shared, **inside, "ipam": ipam.members})
    top = JSONObject(_WHERE, config)
    if top.optional_string("type") != "netplug":
        raise ConfigurationError(f"{_WHERE}.type", top.optional_string("type"), '"netplug" is expected')
    return top


def _datastore(top: JSONObject, checker: _ValueChecker) -> DatastoreSettings:
    return datastore_settings_from_netconf(
        top,
        annotation_prefix=_annotation_prefix(top, checker),
        request_rates=(_requests(top, checker, "qps"), _requests(top, checker, "burst")),
        is_strict=checker.purpose is LoadPurpose.SETUP,
    )


def _annotation_prefix(top: JSONObject, checker: _ValueChecker) -> str:
    default = DEFAULT_ANNOTATION_PREFIX
    prefix, accepted = top.optional_string("annotation_prefix") or default, f"a DNS name such as {default} is expected"
    return checker.accept("annotation_prefix", prefix, is_dns_subdomain, accepted, default)


def _requests(top: JSONObject, checker: _ValueChecker, key: str) -> int:
    accepted = f"a number from 0 to {MAX_REQUEST_RATE} is expected"
    return checker.accept(key, top.optional_integer(key) or 0, range(MAX_REQUEST_RATE + 1).__contains__, accepted, 0)


def _object(top: JSONObject, key: str) -> JSONObject:
    """An object, without members where there is none."""
    return top.optional_object(key) or JSONObject(f"{top.path}.{key}", {})


def _container_settings(top: JSONObject) -> ContainerSettings:
    settings = _object(top, "container_settings")
    return ContainerSettings(allow_ip_forwarding=settings.optional_boolean("allow_ip_forwarding") or False)


def _feature_control(top: JSONObject) -> FeatureControl:
    features = _object(top, "feature_control")
    return FeatureControl(
        ip_addrs_no_ipam=features.optional_boolean("ip_addrs_no_ipam") or False,
        floating_ips=features.optional_boolean("floating_ips") or False,
    )


def _log(top: JSONObject, checker: _ValueChecker) -> LogSettings:
    accepted = "ERROR, WARNING, INFO and DEBUG are accepted"
    level = checker.accept("log_level", top.optional_string("log_level") or "INFO", _is_level, accepted, "INFO")
    defaults = LogSettings()
    return LogSettings(
        level=_LEVELS[level.upper()],
        file_path=top.optional_string("log_file_path"),
        max_size_mb=_at_least_zero(top, checker, "log_file_max_size") or defaults.max_size_mb,
        max_age_days=_at_least_zero(top, checker, "log_file_max_age") or defaults.max_age_days,
        max_count=_at_least_zero(top, checker, "log_file_max_count") or defaults.max_count,
    )


def _ipam(ipam: JSONObject, checker: _ValueChecker) -> IPAMConfig:
    accepted = "the name of an IPAM plugin is expected, such as netplug-ipam"
    kind = checker.accept("ipam.type", ipam.optional_string("type"), _is_plugin_name, accepted, "")
    assign_ipv6 = _string_boolean(ipam, checker, "assign_ipv6", default="false")
    return IPAMConfig(
        type=kind,
        assign_ipv4=_string_boolean(ipam, checker, "assign_ipv4", default="true"),
        assign_ipv6=assign_ipv6,
        ipv4_pools=ipam.string_list("ipv4_pools"),
        # Pools of a family that is off are not honoured, so they are not judged either (spec 2.2).
        ipv6_pools=ipam.string_list("ipv6_pools") if assign_ipv6 else (),
    )


def _string_boolean(ipam: JSONObject, checker: _ValueChecker, key: str, *, default: str) -> bool:
    """A key whose value is the *string* true or false (spec 2.2)."""
    text = ipam.optional_string(key) or default
    accepted = 'the string "true" or "false" is expected'
    return checker.accept(f"ipam.{key}", text, ("true", "false").__contains__, accepted, default) == "true"


def _is_level(text: str) -> bool:
    return text.upper() in _LEVELS


def _is_plugin_name(name: str) -> bool:
    return bool(name) and "/" not in name


def _is_mtu(mtu: int) -> bool:
    return 0 <= mtu <= MAX_MTU


def _queues(top: JSONObject, checker: _ValueChecker) -> int:
    queues = max(top.optional_integer("num_queues") or 1, 1)
    return checker.accept("num_queues", queues, MAX_QUEUES.__ge__, f"at most {MAX_QUEUES} are possible", 1)


def _mtu(top: JSONObject, checker: _ValueChecker) -> int:
    mtu = top.optional_integer("mtu") or 0
    return checker.accept("mtu", mtu, _is_mtu, f"a number from 0 to {MAX_MTU} is expected", 0)


def _at_least_zero(top: JSONObject, checker: _ValueChecker, key: str) -> int:
    return checker.accept(key, top.optional_integer(key) or 0, (0).__le__, "a number of at least 0 is expected", 0)


def _policy_type(top: JSONObject, checker: _ValueChecker) -> str:
    kind = _object(top, "policy").optional_string("type")
    return checker.accept("policy.type", kind, ("", "k8s").__contains__, '"k8s" is the one policy type there is', "")


def _gates(top: JSONObject, checker: _ValueChecker) -> tuple[str, ...]:
    gates = top.string_list("readiness_gates")
    for position, gate in enumerate(gates):
        checker.accept(
            f"readiness_gates[{position}]", gate, _is_url, "an http or https URL with a host is expected", ""
        )
    return gates


def _is_url(text: str) -> bool:
    scheme, _, rest = text.partition("://")
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    host = authority.rpartition("@")[2]
    has_host = bool(host) and not host.startswith(":")
    return scheme.lower() in ("http", "https") and has_host and not any(map(str.isspace, text))


def _device_type(top: JSONObject, checker: _ValueChecker) -> str:
    kind = top.optional_string("device_type") or "veth"
    return checker.accept("device_type", kind, ("veth", "netkit").__contains__, 'supported: "veth", "netkit"', "veth")


def _attachments(config: Mapping[str, object]) -> frozenset[tuple[str, str]] | None:
    """GC's list under either of its names. Absent or null is not empty: nothing may be concluded from it."""
    key = next((key for key in _ATTACHMENT_KEYS if config.get(key) is not None), None)
    if key is None:
        return None
    listed = JSONObject(_WHERE, config).object_list(key)
    return frozenset((item.required_string("containerID"), item.required_string("ifname")) for item in listed)
