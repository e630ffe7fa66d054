"""The settings that do not work yet: ADD and STATUS refuse them, DEL and GC do not.

A setting leaves these tables when it works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from netplug_core.errors import REDACTED, ConfigurationError, NotYetSupported, redact_url_credentials
from netplug_core.log import Level, Log
from netplug_core.netconf.model import NetConf
from netplug_core.settings.keys import KUBERNETES_NETCONF_KEYS

__all__ = ["refuse_unsupported", "require_supported"]

_WHERE = "network configuration"
_IPAM_TYPE: Final = "netplug-ipam"
_HOST_LOCAL_KEYS = ("subnet", "ranges", "routes", "dataDir", "resolvConf")
_MESOS = "org.apache.mesos"
_POLICY_KEYS = ("k8s_api_root", "k8s_auth_token", "k8s_client_certificate", "k8s_client_key",
                "k8s_certificate_authority")  # fmt: skip


def refuse_unsupported(netconf: NetConf) -> None:
    """Check that every setting works.

    Raises:
        NotYetSupported: one is set to anything but its default and does not work yet.
        ConfigurationError: the named dataplane does not exist.
    """
    if netconf.dataplane_type:
        raise ConfigurationError(
            f"{_WHERE}.dataplane_options.type", netconf.dataplane_type, "invalid dataplane type: leave it out for linux"
        )
    for where, value, accepted in _unsupported_settings(netconf):
        raise NotYetSupported(f"{_WHERE}.{where}", redact_url_credentials(value), accepted)


def require_supported(netconf: NetConf, log: Log) -> None:
    """Check that every setting works; log one warning for the settings that are ignored.

    Raises:
        ConfigurationError: a setting does not work; see ``refuse_unsupported``.
    """
    refuse_unsupported(netconf)
    keys = sorted(key for key, value in netconf.own_keys.items() if key.startswith("etcd_") and value)
    if keys and netconf.datastore.is_kubernetes:
        text = f"etcd's keys are ignored: the datastore is {netconf.datastore.type}"
        log(Level.WARNING, text, keys=", ".join(keys))


def _unsupported_settings(netconf: NetConf) -> Iterator[tuple[str, object, str]]:
    """Every setting that does not work yet: its key, its value, and what is accepted."""
    default = NetConf()
    leave_out = "leave it out"
    if netconf.ipam.type != _IPAM_TYPE:
        yield "ipam.type", netconf.ipam.type, f"{_IPAM_TYPE!r} is"
    for where, value, expected in (
        ("log_file_max_size", netconf.log.max_size_mb, default.log.max_size_mb),
        ("log_file_max_age", netconf.log.max_age_days, default.log.max_age_days),
        ("log_file_max_count", netconf.log.max_count, default.log.max_count),
        ("readiness_gates", list(netconf.readiness_gates), []),
        ("policy.type", netconf.policy_type, default.policy_type),
        ("feature_control.ip_addrs_no_ipam", netconf.feature_control.ip_addrs_no_ipam, False),
        ("feature_control.floating_ips", netconf.feature_control.floating_ips, False),
        ("include_default_routes", netconf.include_default_routes, False),
        ("policy_setup_timeout_seconds", netconf.policy_setup_timeout_s, 0),
        ("endpoint_status_dir", netconf.endpoint_status_dir, default.endpoint_status_dir),
        ("device_type", netconf.device_type, default.device_type),
    ):
        if value != expected:
            yield where, value, leave_out
    # With another datastore the Kubernetes API is not used yet.
    for key in () if netconf.datastore.is_kubernetes else KUBERNETES_NETCONF_KEYS:
        if netconf.own_keys.get(key):
            yield key, _redact_object(netconf.own_keys[key]), leave_out
    yield from _keys_of_other_plugins(netconf)


def _keys_of_other_plugins(netconf: NetConf) -> Iterator[tuple[str, object, str]]:
    ipam, args, policy = (netconf.own_keys.get(key) for key in ("ipam", "args", "policy"))
    if isinstance(ipam, dict):
        for key in _HOST_LOCAL_KEYS:
            if ipam.get(key):
                yield f"ipam.{key}", ipam[key], "it belongs to host-local"
    if isinstance(args, dict) and args.get(_MESOS):
        yield f"args[{_MESOS!r}]", REDACTED, "leave it out"
    if isinstance(policy, dict) and not netconf.datastore.is_kubernetes:
        for key in _POLICY_KEYS:
            if policy.get(key):
                yield f"policy.{key}", REDACTED, "leave it out"


def _redact_object(value: object) -> object:
    """What an error shows of a value: an object may contain tokens."""
    return REDACTED if isinstance(value, dict) else value
