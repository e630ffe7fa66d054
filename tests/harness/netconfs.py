"""Network configurations for property tests: mostly fine ones, spoilt ones, and ones that are right."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

__all__ = ["GOOD", "IPAM_KEYS", "JUNK", "LISTS", "anything", "configurations", "objects", "right_configurations"]

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
GATES = (
    "http://a/b", "https://c", "HTTP://[fd00::1]:65535/b?c#d", "http://u:p@a:/", "http://a:080", "http://ä/ü", "ftp://d",
    "", "http://a:x", "http://a:0", "http://a:65536", "http://[fd00::1", "http://a]", "http://u:p/w@a", "http://a b",
    "http://", "http://a\n", "http://a/\x7f", "http://:80",
)  # fmt: skip
TEXTS = st.sampled_from(("", "a", "/x/y", "http://a:1,http://b", "node-1"))
FLAGS = st.booleans()
NUMBERS = st.integers(-2, 70_000)

_LABELS = ("a", "/a/b", "_", "\n", "x" * 64, "a\nb")
_NAMESPACE_LABEL = "projectnetplug.org/namespace"


def _args_of_mesos(names: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    label = st.fixed_dictionaries({"key": names}, optional={"value": st.sampled_from(("", *_LABELS))})
    labels = st.fixed_dictionaries({"labels": st.lists(label, max_size=2)})
    return st.fixed_dictionaries(
        {
            "org.apache.mesos": st.fixed_dictionaries(
                {"network_info": st.just({"name": "n"}) | labels.map(lambda one: {"labels": one})}
            )
        }
    )


_MACS = st.sampled_from(
    ("", "02:00:5e:10:00:01", "0A-00-5E-10-00-01", "0200.5e10.00aB", "ee:ee:ee:ee:ee:ee", "EE-EE-EE-EE-EE-EE",
     "eeee.eeee.eeee", "01:00:5e:10:00:01", "0300.5e10.0001", "00:00:00:00:00:00", "0000.0000.0000", "02:00:5e:10:00",
     "02:00:5e:10:00:01\n", "02:00-5e:10:00:01", "ee:ee:ee:ee:ee:e0", "eeee.eeee.eee0", "00-00-00-00-00-01")
)  # fmt: skip
_IPS = st.lists(st.sampled_from(("10.65.0.9", "10.65.0.9/24", "fd65::9/112", "fd65::9")), max_size=2)


def _asked(macs: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({}, optional={"ips": _IPS, "mac": macs})


GOOD: Mapping[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("nodename", "hostname", "nodename_file", "sqlite_path"), TEXTS),
    "datastore_type": st.sampled_from(("", "etcdv3", "sqlite", "kubernetes", "of-somebody")),
    **dict.fromkeys(("etcd_endpoints", "etcd_discovery_srv", "etcd_authority", "etcd_scheme", "etcd_key_file"), TEXTS),
    **dict.fromkeys(
        (
            "log_file_path",
            "mtu_file",
            "endpoint_status_dir",
            "ipam_lock_file",
            "release_record_dir",
            "annotation_prefix",
        ),
        TEXTS,
    ),
    "netplug_api_group": TEXTS,
    **dict.fromkeys(("nodename_file_optional", "require_mtu_file", "include_default_routes"), FLAGS),
    **dict.fromkeys(("log_file_max_size", "log_file_max_age", "log_file_max_count", "num_queues", "mtu"), NUMBERS),
    **dict.fromkeys(("policy_setup_timeout_seconds", "qps", "burst"), NUMBERS),
    "log_level": st.sampled_from(("", "debug", "WARN", "Error", "loud")),
    "device_type": st.sampled_from(("", "veth", "netkit", "bogus")),
    "readiness_gates": st.lists(st.sampled_from(GATES), max_size=2),
    "policy": st.fixed_dictionaries(
        {}, optional={"type": st.sampled_from(("", "k8s", "foo")), "k8s_api_root": TEXTS, "k8s_auth_token": TEXTS}
    ),
    "kubernetes": st.dictionaries(st.sampled_from(("kubeconfig", "k8s_api_root", "node_name")), TEXTS),
    "container_settings": st.dictionaries(st.just("allow_ip_forwarding"), FLAGS),
    "feature_control": st.dictionaries(st.sampled_from(("ip_addrs_no_ipam", "floating_ips")), FLAGS),
    "dataplane_options": st.dictionaries(st.just("type"), TEXTS),
    "args": _args_of_mesos(st.sampled_from((*_LABELS, "", "//", _NAMESPACE_LABEL, f"{_NAMESPACE_LABEL}\n", "a\0")))
    | _asked(_MACS).map(lambda asked: {"cni": asked}),
    "runtimeConfig": _asked(_MACS),
}
IPAM_KEYS: Mapping[str, st.SearchStrategy[object]] = {
    "type": st.sampled_from(("", "netplug-ipam", "host-local", "a/b")),
    "assign_ipv4": st.sampled_from(("", "true", "false", "yes")),
    "assign_ipv6": st.sampled_from(("", "true", "false", "no")),
    "ipv4_pools": st.lists(TEXTS, max_size=2),
    "ipv6_pools": st.lists(TEXTS, max_size=2),
}
ATTACHMENTS = st.lists(
    st.fixed_dictionaries({"containerID": TEXTS, "ifname": TEXTS}) | JUNK.map(lambda junk: {"ifname": junk}), max_size=2
)
LISTS: Mapping[str, st.SearchStrategy[object]] = dict.fromkeys(
    ("cni.dev/valid-attachments", "cni.dev/attachments"), st.none() | ATTACHMENTS
)


def objects(keys: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Some of the keys, each with a value of its kind."""
    return st.fixed_dictionaries({}, optional=dict(keys))


def _spoilt(keys: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """The same, and now and then a value of any kind."""
    return objects({key: st.one_of(value, value, value, JUNK) for key, value in keys.items()})


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, object]:
    """Configurations of netplug, most of which are fine."""
    ipam = {"type": "netplug-ipam"} | draw(objects(IPAM_KEYS))
    return {"name": "net1", "type": "netplug", "ipam": ipam} | draw(objects({**GOOD, **LISTS}))


@st.composite
def anything(draw: st.DrawFn) -> dict[str, object]:
    ipam = draw(st.one_of(_spoilt(IPAM_KEYS), _spoilt({**IPAM_KEYS, **GOOD}), JUNK))
    top = {"type": draw(st.sampled_from(("netplug", "netplug", "bridge", 1, None))), "ipam": ipam}
    return top | draw(_spoilt({**GOOD, **LISTS}))


# --- right ones ------------------------------------------------------------------------------------------------------

_PATHS = st.sampled_from(("", "/x", "/var/lib/x"))
_HOSTS = st.sampled_from(("", "a.example:2379", "127.0.0.1:1"))
_RIGHT: Mapping[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("nodename", "hostname"), st.sampled_from(("", "node-1"))),
    **dict.fromkeys(("nodename_file", "mtu_file", "ipam_lock_file", "release_record_dir", "log_file_path"), _PATHS),
    **dict.fromkeys(("nodename_file_optional", "require_mtu_file"), FLAGS),
    "log_level": st.sampled_from(("ERROR", "warning", "Warn", "INFO", "debug", "")),
    "mtu": st.integers(0, 65535),
    "num_queues": st.integers(-3, 4096),
    "annotation_prefix": st.sampled_from(("", "a", "cni.example.org")),
    "device_type": st.sampled_from(("", "veth")),
    "dataplane_options": st.dictionaries(st.just("type"), st.sampled_from(("", "linux"))),
    "container_settings": st.dictionaries(st.just("allow_ip_forwarding"), FLAGS),
    "feature_control": st.dictionaries(
        st.sampled_from(("ip_addrs_no_ipam", "floating_ips", "allowed_source_prefixes")), FLAGS
    ),
    "args": _args_of_mesos(st.sampled_from(("a", "/a/b", "_", "x" * 64, "a\nb", f"{_NAMESPACE_LABEL}\n")))
    | _asked(st.sampled_from(("", "02:00:5e:10:00:01"))).map(lambda asked: {"cni": asked}),
    "runtimeConfig": _asked(st.sampled_from(("", "0A-00-5E-10-00-01", "eeee.eeee.eee0"))),
    "capabilities": st.just({"ips": True, "mac": True}) | st.none() | st.just("of the runtime"),
    "datastore_options": st.dictionaries(st.text("ab", max_size=2), st.text("ab", max_size=2), max_size=2),
}
_BLOCKS: Mapping[str, st.SearchStrategy[object]] = {
    **dict.fromkeys(("assign_ipv4", "assign_ipv6"), st.sampled_from(("", "true", "false"))),
    **dict.fromkeys(("ipv4_pools", "ipv6_pools"), st.lists(st.sampled_from(("p", "10.0.0.0/8")), max_size=2)),
}
_RANGES: Mapping[str, st.SearchStrategy[object]] = {
    "subnet": st.sampled_from(("", "usePodCidr", "10.22.0.0/16")),
    "ranges": st.lists(st.lists(st.just({"subnet": "10.23.0.0/16", "rangeStart": "10.23.0.9"}), max_size=2)),
    "routes": st.lists(st.sampled_from(({"dst": "10.0.0.0/8"}, {})), max_size=2),
    "dataDir": _PATHS,
    "resolvConf": _PATHS,
}
_ACCESS: Mapping[str, st.SearchStrategy[object]] = {
    "kubernetes": st.fixed_dictionaries(
        {"kubeconfig": st.just("/k")}, optional={"k8s_api_root": st.just("https://a"), "node_name": st.just("n")}
    ),
    **dict.fromkeys(("qps", "burst"), st.integers(0, 2**32 - 1)),
    "policy": st.dictionaries(st.just("type"), st.sampled_from(("", "k8s"))),
}


@st.composite
def right_configurations(draw: st.DrawFn) -> dict[str, object]:
    """Configurations without any mistake."""
    ipam_type = draw(st.sampled_from(("netplug-ipam", "host-local")))
    config = draw(objects(_RIGHT))
    config["ipam"] = {"type": ipam_type, **draw(objects(_BLOCKS if ipam_type == "netplug-ipam" else _RANGES))}
    store = draw(st.sampled_from(("", "etcdv3", "sqlite", "kubernetes", "an-installed-one")))
    config["datastore_type"] = store
    config["sqlite_path"] = draw(_PATHS)
    config[draw(st.sampled_from(("etcd_endpoints", "etcd_discovery_srv")))] = draw(_HOSTS)
    if store == "kubernetes" or draw(FLAGS):
        config |= draw(objects(_ACCESS)) | {"kubernetes": draw(_ACCESS["kubernetes"])}
    if ipam_type == "host-local":
        config["include_default_routes"] = draw(FLAGS)
    version = draw(st.sampled_from(("", "0.3.1", "1.1.0", None)))
    return {"name": draw(st.sampled_from(("net1", "a_b-c.d"))), "cniVersion": version, "type": "netplug", **config}
