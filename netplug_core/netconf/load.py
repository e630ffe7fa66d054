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

from netplug_core.errors import ConfigurationError
from netplug_core.log import Level
from netplug_core.members import Members
from netplug_core.names import is_subdomain
from netplug_core.netconf.datastores import datastore_settings
from netplug_core.netconf.model import (
    DEFAULT_ANNOTATION_PREFIX,
    ETCD_STORE,
    FILE_STORE,
    LARGEST_MTU,
    MOST_QUEUES,
    MOST_REQUESTS,
    ORCHESTRATOR_KEYS,
    ORCHESTRATOR_STORE,
    ContainerSettings,
    DatastoreSettings,
    FeatureControl,
    IPAMConf,
    LogSettings,
    NetConf,
    without_password,
)

__all__ = ["Purpose", "Role", "load", "node_name"]

T = TypeVar("T")

_WHERE = "network configuration"
_ATTACHMENT_KEYS = ("cni.dev/valid-attachments", "cni.dev/attachments")
_LEVELS = {"ERROR": Level.ERROR, "WARNING": Level.WARNING, "WARN": Level.WARNING,
           "INFO": Level.INFO, "DEBUG": Level.DEBUG}  # fmt: skip
_CALL_KEYS = ("nodename", "nodename_file", "nodename_file_optional", "datastore_type", "log_level",
              "log_file_path", "log_file_max_size", "log_file_max_age", "log_file_max_count",
              "ipam_lock_file", "hostname")  # fmt: skip
_ETCD_KEYS = ("etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "etcd_scheme",
              "etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file")  # fmt: skip
_SHARED_KEYS = (*_CALL_KEYS, *_ETCD_KEYS, "sqlite_path", "annotation_prefix")
_TEARDOWN_KEYS = (*_CALL_KEYS, *_ATTACHMENT_KEYS, "type")
_STORE_KEYS: Mapping[str, tuple[str, ...]] = {
    ETCD_STORE: _ETCD_KEYS,
    FILE_STORE: ("sqlite_path",),
    ORCHESTRATOR_STORE: (*ORCHESTRATOR_KEYS, "annotation_prefix"),
}
"""What a store is reached by; one that somebody installed may use any of it."""
_ANY_STORES_KEYS = tuple(key for keys in _STORE_KEYS.values() for key in keys)


class Role(enum.Enum):
    """Whether ``netplug`` reads its own configuration, or ``netplug-ipam`` that of another main plugin.

    The top level of the latter belongs to that plugin, so our keys may stand inside ``ipam`` too, and win there.
    """

    MAIN = "main"
    IPAM = "ipam"


class Purpose(enum.Enum):
    """What the configuration is read for: to set something up, or to take it down."""

    SETUP = "setup"
    TEARDOWN = "teardown"


@frozen
class _Judge:
    """How values outside their set are met."""

    purpose: Purpose

    def allow(self, where: str, value: T, is_fine: Callable[[T], bool], accepted: str, default: T) -> T:
        """The value if it is fine, the default in a teardown.

        Raises:
            ConfigurationError: it is not fine.
        """
        if is_fine(value):
            return value
        if self.purpose is Purpose.TEARDOWN:
            return default
        # Whatever is not what it should be may be a URL in the wrong place.
        raise ConfigurationError(f"{_WHERE}.{where}", without_password(value), accepted)


def load(config: Mapping[str, object], role: Role, purpose: Purpose = Purpose.SETUP) -> NetConf:
    """The configuration that a JSON object is.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: a value is not accepted, or a key is missing.
    """
    judge = _Judge(purpose)
    if purpose is Purpose.TEARDOWN:
        config = _for_teardown(config, role)
    ipam = _ipam_object(config, judge)
    top = _own_keys(config, ipam, role)
    defaults = NetConf()
    return NetConf(
        type=Members(_WHERE, config).text("type"),
        nodename=top.text("nodename"),
        hostname=top.text("hostname"),
        nodename_file=top.text("nodename_file") or defaults.nodename_file,
        nodename_file_optional=top.flag("nodename_file_optional") is not False,
        datastore=_datastore(top, judge),
        log=_log(top, judge),
        ipam=_ipam(ipam, judge),
        container_settings=_container_settings(top),
        feature_control=_feature_control(top),
        policy_type=_policy_type(top, judge),
        readiness_gates=_gates(top, judge),
        num_queues=_queues(top, judge),
        mtu=judge.allow("mtu", top.integer("mtu") or 0, _is_mtu, f"a number from 0 to {LARGEST_MTU} is expected", 0),
        mtu_file=top.text("mtu_file") or defaults.mtu_file,
        require_mtu_file=top.flag("require_mtu_file") or False,
        include_default_routes=top.flag("include_default_routes") or False,
        policy_setup_timeout_s=_at_least_zero(top, judge, "policy_setup_timeout_seconds"),
        endpoint_status_dir=top.text("endpoint_status_dir") or defaults.endpoint_status_dir,
        ipam_lock_file=top.text("ipam_lock_file") or defaults.ipam_lock_file,
        device_type=_device_type(top, judge),
        dataplane_type=_object(top, "dataplane_options").text("type"),
        valid_attachments=_attachments(config),
        raw=top.values,
    )


def node_name(netconf: NetConf, *, file_text: str | None, host_name: str) -> str:
    """The name this node goes by: the first of four that is not empty.

    These are ``nodename``, the node-name file, ``hostname``, and the machine's own name in lower case.
    """
    in_file = (file_text or "").strip()
    return netconf.nodename or in_file or netconf.hostname or host_name.strip().lower()


def _ipam_object(config: Mapping[str, object], judge: _Judge) -> Members:
    ipam = Members(_WHERE, config).child("ipam")
    if ipam is None:
        if judge.purpose is Purpose.SETUP:
            raise ConfigurationError(f"{_WHERE}.ipam", None, 'an object such as {"type": "netplug-ipam"} is expected')
        return Members(f"{_WHERE}.ipam", {})
    return ipam


def _for_teardown(config: Mapping[str, object], role: Role) -> Mapping[str, object]:
    """The keys that a DEL or GC uses: who and where it is, which datastore, and where lines go."""
    ipam, store = config.get("ipam"), _store(config, role)
    used = _used_of(config, store)
    if isinstance(ipam, dict):
        used["ipam"] = _used_of(ipam, store)
    return used


def _store(config: Mapping[str, object], role: Role) -> str:
    """The store that is named. Of another JSON type the name is none of a store's, and refused where it is read."""
    ipam = config.get("ipam")
    inside = ipam.get("datastore_type") if role is Role.IPAM and isinstance(ipam, dict) else None
    return str((config.get("datastore_type") if inside is None else inside) or ETCD_STORE)


def _used_of(members: Mapping[str, object], store: str) -> dict[str, object]:
    keys = (*_TEARDOWN_KEYS, *_STORE_KEYS.get(store, _ANY_STORES_KEYS))
    used = {key: value for key, value in members.items() if key in keys}
    policy = members.get("policy")
    is_perhaps_orchestrators = store == ORCHESTRATOR_STORE or store not in _STORE_KEYS
    if is_perhaps_orchestrators and isinstance(policy, dict):  # where credentials once stood, and still may
        used["policy"] = {key: value for key, value in policy.items() if key.startswith("k8s_")}
    return used


def _own_keys(config: Mapping[str, object], ipam: Members, role: Role) -> Members:
    """The keys that speak to us.

    Of another main plugin's top level these are the keys that no main plugin has a use of its own for; with our store
    in the orchestrator, those that lead to it too.
    """
    if role is Role.IPAM:
        # Null counts as absent, so it hides nothing.
        inside = {key: value for key, value in ipam.values.items() if value is not None}
        keys = (*_SHARED_KEYS, *(ORCHESTRATOR_KEYS if _store(config, role) == ORCHESTRATOR_STORE else ()))
        shared = {key: value for key, value in config.items() if key in keys}
        return Members(_WHERE, {**shared, **inside, "ipam": ipam.values})
    top = Members(_WHERE, config)
    if top.text("type") != "netplug":
        raise ConfigurationError(f"{_WHERE}.type", top.text("type"), '"netplug" is expected')
    return top


def _datastore(top: Members, judge: _Judge) -> DatastoreSettings:
    return datastore_settings(
        top,
        annotation_prefix=_annotation_prefix(top, judge),
        requests=(_requests(top, judge, "qps"), _requests(top, judge, "burst")),
        is_strict=judge.purpose is Purpose.SETUP,
    )


def _annotation_prefix(top: Members, judge: _Judge) -> str:
    default = DEFAULT_ANNOTATION_PREFIX
    prefix, accepted = top.text("annotation_prefix") or default, f"a DNS name such as {default} is expected"
    return judge.allow("annotation_prefix", prefix, is_subdomain, accepted, default)


def _requests(top: Members, judge: _Judge, key: str) -> int:
    accepted = f"a number from 0 to {MOST_REQUESTS} is expected"
    return judge.allow(key, top.integer(key) or 0, range(MOST_REQUESTS + 1).__contains__, accepted, 0)


def _object(top: Members, key: str) -> Members:
    """An object, without members where there is none."""
    return top.child(key) or Members(f"{top.where}.{key}", {})


def _container_settings(top: Members) -> ContainerSettings:
    settings = _object(top, "container_settings")
    return ContainerSettings(allow_ip_forwarding=settings.flag("allow_ip_forwarding") or False)


def _feature_control(top: Members) -> FeatureControl:
    features = _object(top, "feature_control")
    return FeatureControl(
        ip_addrs_no_ipam=features.flag("ip_addrs_no_ipam") or False,
        floating_ips=features.flag("floating_ips") or False,
    )


def _log(top: Members, judge: _Judge) -> LogSettings:
    accepted = "ERROR, WARNING, INFO and DEBUG are accepted"
    level = judge.allow("log_level", top.text("log_level") or "INFO", _is_level, accepted, "INFO")
    defaults = LogSettings()
    return LogSettings(
        level=_LEVELS[level.upper()],
        file_path=top.text("log_file_path"),
        max_size_mb=_at_least_zero(top, judge, "log_file_max_size") or defaults.max_size_mb,
        max_age_days=_at_least_zero(top, judge, "log_file_max_age") or defaults.max_age_days,
        max_count=_at_least_zero(top, judge, "log_file_max_count") or defaults.max_count,
    )


def _ipam(ipam: Members, judge: _Judge) -> IPAMConf:
    accepted = "the name of an IPAM plugin is expected, such as netplug-ipam"
    kind = judge.allow("ipam.type", ipam.text("type"), _is_plugin_name, accepted, "")
    assign_ipv6 = _string_boolean(ipam, judge, "assign_ipv6", default="false")
    return IPAMConf(
        type=kind,
        assign_ipv4=_string_boolean(ipam, judge, "assign_ipv4", default="true"),
        assign_ipv6=assign_ipv6,
        ipv4_pools=ipam.texts("ipv4_pools"),
        # Pools of a family that is off are not honoured, so they are not judged either (spec 2.2).
        ipv6_pools=ipam.texts("ipv6_pools") if assign_ipv6 else (),
    )


def _string_boolean(ipam: Members, judge: _Judge, key: str, *, default: str) -> bool:
    """A key whose value is the *string* true or false (spec 2.2)."""
    text = ipam.text(key) or default
    accepted = 'the string "true" or "false" is expected'
    return judge.allow(f"ipam.{key}", text, ("true", "false").__contains__, accepted, default) == "true"


def _is_level(text: str) -> bool:
    return text.upper() in _LEVELS


def _is_plugin_name(name: str) -> bool:
    return bool(name) and "/" not in name


def _is_mtu(mtu: int) -> bool:
    return 0 <= mtu <= LARGEST_MTU


def _queues(top: Members, judge: _Judge) -> int:
    queues = max(top.integer("num_queues") or 1, 1)
    return judge.allow("num_queues", queues, MOST_QUEUES.__ge__, f"at most {MOST_QUEUES} are possible", 1)


def _at_least_zero(top: Members, judge: _Judge, key: str) -> int:
    return judge.allow(key, top.integer(key) or 0, (0).__le__, "a number of at least 0 is expected", 0)


def _policy_type(top: Members, judge: _Judge) -> str:
    kind = _object(top, "policy").text("type")
    return judge.allow("policy.type", kind, ("", "k8s").__contains__, '"k8s" is the one policy type there is', "")


def _gates(top: Members, judge: _Judge) -> tuple[str, ...]:
    gates = top.texts("readiness_gates")
    for position, gate in enumerate(gates):
        judge.allow(f"readiness_gates[{position}]", gate, _is_url, "an http or https URL with a host is expected", "")
    return gates


def _is_url(text: str) -> bool:
    scheme, _, rest = text.partition("://")
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    host = authority.rpartition("@")[2]
    has_host = bool(host) and not host.startswith(":")
    return scheme.lower() in ("http", "https") and has_host and not any(map(str.isspace, text))


def _device_type(top: Members, judge: _Judge) -> str:
    kind = top.text("device_type") or "veth"
    return judge.allow("device_type", kind, ("veth", "netkit").__contains__, 'supported: "veth", "netkit"', "veth")


def _attachments(config: Mapping[str, object]) -> frozenset[tuple[str, str]] | None:
    """GC's list under either of its names. Absent or null is not empty: nothing may be concluded from it."""
    key = next((key for key in _ATTACHMENT_KEYS if config.get(key) is not None), None)
    if key is None:
        return None
    listed = Members(_WHERE, config).children(key)
    return frozenset((item.required("containerID"), item.required("ifname")) for item in listed)
