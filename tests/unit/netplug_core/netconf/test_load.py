"""The network configuration: defaults, deprecated keys, what is refused, and what a teardown puts up with."""

import json
from collections.abc import Mapping

import pytest

from netplug_core.addressing import Prefix
from netplug_core.cni.dispatch import CNICommand, Plugin
from netplug_core.errors import ConfigurationError, DecodeError, NetplugError
from netplug_core.log import Level, LogSettings
from netplug_core.netconf.model import (
    ContainerLabel,
    ContainerSettings,
    FeatureControl,
    IPAMConfig,
    LoadPurpose,
    NetConf,
    load,
)
from netplug_core.settings.model import DatastoreSettings

MINIMAL: Mapping[str, object] = {
    "name": "any-net",
    "cniVersion": "1.0.0",
    "type": "netplug",
    "ipam": {"type": "netplug-ipam"},
}
A_PLUGIN = "the name of an IPAM plugin is expected, such as netplug-ipam"
UNUSED = "nothing reads it without kubernetes.kubeconfig or kubernetes.k8s_api_root; leave it out"
NEEDS_ACCESS = "pods are looked up for it: set kubernetes.kubeconfig or kubernetes.k8s_api_root"
NOT_NEGATIVE = "a number of at least 0 is expected"
REQUESTS = "a number from 0 to 4294967295 is expected"
BRIDGE: Mapping[str, object] = {"name": "any-net", "cniVersion": "1.0.0", "type": "bridge"}


def with_keys(**keys: object) -> dict[str, object]:
    return {**MINIMAL, **keys}


def with_ipam(**keys: object) -> dict[str, object]:
    return {**MINIMAL, "ipam": {"type": "netplug-ipam", **keys}}


def refusal(config: Mapping[str, object]) -> str:
    with pytest.raises((ConfigurationError, DecodeError)) as refused:
        load(config, Plugin.MAIN)
    assert str(refused.value).startswith("network configuration.")
    return f"{refused.value.code} {str(refused.value).removeprefix('network configuration.')}"


# --- what is read --------------------------------------------------------------------------------------------------


def test_check_15_the_minimal_configuration_is_all_defaults() -> None:
    assert load(MINIMAL, Plugin.MAIN) == NetConf(type="netplug", ipam=IPAMConfig(type="netplug-ipam"))


def test_equal_configurations_are_read_once() -> None:
    first, text = load(with_ipam(ipv4_pools=["a"]), Plugin.MAIN), json.dumps(with_ipam(ipv4_pools=["a"]))
    assert load(json.loads(text), Plugin.MAIN) is first
    assert load({**json.loads(text), "prevResult": {"ips": []}}, Plugin.MAIN) is first
    torn = load(json.loads(text), Plugin.MAIN, LoadPurpose.TEARDOWN)
    assert load({**json.loads(text), "prevResult": {}}, Plugin.MAIN, LoadPurpose.TEARDOWN) is torn


def test_configurations_that_differ_are_read_apart() -> None:
    assert [load(with_keys(mtu=mtu), Plugin.MAIN).mtu for mtu in (1400, 1500, 1400)] == [1400, 1500, 1400]
    ways = (load(MINIMAL, Plugin.MAIN), load(MINIMAL, Plugin.MAIN, LoadPurpose.TEARDOWN), load(MINIMAL, Plugin.IPAM))
    assert len(set(map(id, ways))) == len(ways)


def test_values_that_python_takes_for_equal_but_json_does_not_are_different() -> None:
    load(with_keys(nodename_file_optional=True), Plugin.MAIN)
    assert "nodename_file_optional" in refusal(with_keys(nodename_file_optional=1))
    assert "nodename_file_optional" in refusal(with_keys(nodename_file_optional=1.0))


def test_a_configuration_that_is_refused_is_refused_again() -> None:
    assert refusal(with_keys(mtu=-1)) == refusal(with_keys(mtu=-1))


def test_only_so_many_configurations_are_kept() -> None:
    first = load(with_keys(nodename="n-0"), Plugin.MAIN)
    for number in range(1, 100):
        load(with_keys(nodename=f"n-{number}"), Plugin.MAIN)
    again = load(with_keys(nodename="n-0"), Plugin.MAIN)
    assert again == first
    assert again is not first


EVERY_KEY = {
    **MINIMAL,
    "nodename": "node-1",
    "hostname": "old",
    "nodename_file": "/n",
    "nodename_file_optional": False,
    "datastore_type": "sqlite",
    "sqlite_path": "/db",
    "log_level": "debug",
    "log_file_path": "/log",
    "log_file_max_size": 1,
    "log_file_max_age": 2,
    "log_file_max_count": 3,
    "ipam": {"type": "netplug-ipam", "assign_ipv4": "false", "assign_ipv6": "true", "ipv6_pools": ["p", "q"]},
    "container_settings": {"allow_ip_forwarding": True},
    "feature_control": {"ip_addrs_no_ipam": True, "floating_ips": True},
    "policy": {"type": "k8s"},
    "readiness_gates": ["http://localhost:9099/ready"],
    "num_queues": 4,
    "mtu": 1450,
    "mtu_file": "/m",
    "require_mtu_file": True,
    "include_default_routes": True,
    "policy_setup_timeout_seconds": 3,
    "endpoint_status_dir": "/s",
    "ipam_lock_file": "/l",
    "release_record_dir": "/r",
    "annotation_prefix": "example.org",
    "device_type": "veth",
    "dataplane_options": {"type": "linux"},
    "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}],
}


def test_every_key_arrives() -> None:
    assert load(EVERY_KEY, Plugin.MAIN) == NetConf(
        type="netplug",
        nodename="node-1",
        hostname="old",
        nodename_file="/n",
        nodename_file_optional=False,
        datastore=DatastoreSettings(type="sqlite", sqlite_path="/db", annotation_prefix="example.org"),
        log=LogSettings(level=Level.DEBUG, file_path="/log", max_size_mb=1, max_age_days=2, max_count=3),
        ipam=IPAMConfig(type="netplug-ipam", assign_ipv4=False, assign_ipv6=True, ipv6_pools=("p", "q")),
        container_settings=ContainerSettings(allow_ip_forwarding=True),
        feature_control=FeatureControl(ip_addrs_no_ipam=True, floating_ips=True),
        policy_type="k8s",
        readiness_gates=("http://localhost:9099/ready",),
        num_queues=4,
        mtu=1450,
        mtu_file="/m",
        require_mtu_file=True,
        include_default_routes=True,
        policy_setup_timeout_s=3,
        endpoint_status_dir="/s",
        ipam_lock_file="/l",
        release_record_dir="/r",
        device_type="veth",
        dataplane_type="linux",
        valid_attachments=frozenset({("c1", "eth0")}),
    )


def test_null_and_zero_mean_the_default() -> None:
    nothing = dict.fromkeys(("mtu", "log_level", "nodename", "policy", "readiness_gates", "log_file_max_size"))
    config = with_keys(**nothing, log_file_max_age=0, log_file_max_count=0, policy_setup_timeout_seconds=0)
    assert load(config, Plugin.MAIN) == load(MINIMAL, Plugin.MAIN)


def test_unknown_keys_are_left_alone_and_kept() -> None:
    config = with_keys(runtimeConfig={"portMappings": []}, windows_use_single_network=True)
    netconf = load(config, Plugin.MAIN)
    assert netconf == load(MINIMAL, Plugin.MAIN)
    assert netconf.own_keys == config


def test_a_configuration_never_shows_its_secrets() -> None:
    hidden = ("s3cr3t", "k3y", "0ther")
    netconf = load(
        with_keys(policy={"k8s_auth_token": hidden[0], "k8s_client_key": hidden[1]}, x=hidden[2]), Plugin.MAIN
    )
    assert (netconf.datastore.kubernetes.token, netconf.datastore.kubernetes.key) == hidden[:2]
    assert all(text not in repr(netconf) for text in hidden)


@pytest.mark.parametrize("number,queues", [(None, 1), (4, 4), (1, 1), (0, 1), (-3, 1)])
def test_check_30_there_is_at_least_one_queue(number: int | None, queues: int) -> None:
    assert load(with_keys(num_queues=number), Plugin.MAIN).num_queues == queues


@pytest.mark.parametrize(
    "text,level",
    [
        ("ERROR", Level.ERROR),
        ("warning", Level.WARNING),
        ("Warn", Level.WARNING),
        ("info", Level.INFO),
        ("dEbUg", Level.DEBUG),
        ("", Level.INFO),
    ],
)
def test_check_35_levels_are_read_in_any_case(text: str, level: Level) -> None:
    assert load(with_keys(log_level=text), Plugin.MAIN).log.level is level


def test_pools_of_a_family_that_is_off_are_kept_for_pods_whose_annotation_switches_it_on() -> None:
    netconf = load(with_ipam(ipv6_pools=["later"]), Plugin.MAIN)
    assert (netconf.ipam.assign_ipv6, netconf.ipam.ipv6_pools) == (False, ("later",))
    assert load(with_ipam(ipv6_pools=["p"], assign_ipv6="true"), Plugin.MAIN).ipam.ipv6_pools == ("p",)


@pytest.mark.parametrize(
    "keys,attachments",
    [
        ({}, None),
        ({"cni.dev/valid-attachments": None}, frozenset()),
        ({"cni.dev/attachments": None}, frozenset()),
        ({"cni.dev/valid-attachments": None, "cni.dev/attachments": None}, frozenset()),
        ({"cni.dev/valid-attachments": []}, frozenset()),
        ({"cni.dev/attachments": []}, frozenset()),
        ({"cni.dev/valid-attachments": None, "cni.dev/attachments": []}, frozenset()),
        (
            {"cni.dev/attachments": [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c1", "ifname": "b"}]},
            {("c1", "eth0"), ("c1", "b")},
        ),
    ],
)
def test_no_list_of_attachments_is_not_an_empty_one(keys: dict[str, object], attachments: object) -> None:
    assert load(with_keys(**keys), Plugin.MAIN).valid_attachments == attachments


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config,text",
    [
        ({"type": "bridge", "ipam": {}}, "7 type: 'bridge' is not accepted; \"netplug\" is expected"),
        ({"ipam": {}}, "7 type: '' is not accepted; \"netplug\" is expected"),
        (
            {"type": "netplug"},
            '7 ipam: None is not accepted; an object such as {"type": "netplug-ipam"} is expected',
        ),
        (with_keys(ipam="netplug-ipam"), "6 ipam: must be an object"),
        (with_keys(ipam={}), f"7 ipam.type: '' is not accepted; {A_PLUGIN}"),
        (with_keys(ipam={"type": "a/b"}), f"7 ipam.type: 'a/b' is not accepted; {A_PLUGIN}"),
        (
            with_keys(log_level="Loud"),
            "7 log_level: 'Loud' is not accepted; ERROR, WARNING, INFO and DEBUG are accepted",
        ),
        (with_keys(log_file_max_size=-1), f"7 log_file_max_size: -1 is not accepted; {NOT_NEGATIVE}"),
        (
            with_keys(policy={"type": "foo"}),
            "7 policy.type: 'foo' is not accepted; \"k8s\" is the one policy type there is",
        ),
        (
            with_keys(policy_setup_timeout_seconds=-1),
            f"7 policy_setup_timeout_seconds: -1 is not accepted; {NOT_NEGATIVE}",
        ),
        (
            with_keys(device_type="bogus"),
            '7 device_type: \'bogus\' is not accepted; supported: "veth"; "netkit" comes with a later release',
        ),
        (with_keys(mtu=-1), "7 mtu: -1 is not accepted; a number from 0 to 65535 is expected"),
        (
            with_keys(annotation_prefix="a b/c"),
            "7 annotation_prefix: 'a b/c' is not accepted; a DNS name such as cni.projectnetplug.org is expected",
        ),
        (with_keys(qps=-1), f"7 qps: -1 is not accepted; {REQUESTS}"),
        (with_keys(burst=2**32), f"7 burst: 4294967296 is not accepted; {REQUESTS}"),
        (with_keys(qps="7"), "6 qps: must be an integer"),
        (with_keys(mtu=65536), "7 mtu: 65536 is not accepted; a number from 0 to 65535 is expected"),
        (with_keys(mtu=1450.0), "6 mtu: must be an integer"),
        (with_keys(mtu="1450"), "6 mtu: must be an integer"),
        (with_keys(num_queues=4097), "7 num_queues: 4097 is not accepted; at most 4096 are possible"),
        (with_keys(num_queues=True), "6 num_queues: must be an integer"),
        (with_keys(nodename=1), "6 nodename: must be a string"),
        (with_keys(require_mtu_file="true"), "6 require_mtu_file: must be true or false"),
        (
            with_keys(container_settings={"allow_ip_forwarding": "true"}),
            "6 container_settings.allow_ip_forwarding: must be true or false",
        ),
        (with_keys(dataplane_options=[]), "6 dataplane_options: must be an object"),
        (
            with_keys(**{"cni.dev/valid-attachments": [{"containerID": "c1"}]}),
            "6 cni.dev/valid-attachments[0].ifname: is missing or empty",
        ),
        (with_keys(**{"cni.dev/attachments": {}}), "6 cni.dev/attachments: must be an array"),
    ],
)
def test_a_bad_value_is_named_with_its_place(config: Mapping[str, object], text: str) -> None:
    assert refusal(config) == text


def test_check_16_a_json_boolean_is_no_string_boolean() -> None:
    assert refusal(with_ipam(assign_ipv4=True)) == "6 ipam.assign_ipv4: must be a string"


@pytest.mark.parametrize("key", ["assign_ipv4", "assign_ipv6"])
@pytest.mark.parametrize("text", ["yes", "True", "1"])
def test_a_string_boolean_is_one_of_two_strings(key: str, text: str) -> None:
    assert refusal(with_ipam(**{key: text})) == (
        f'7 ipam.{key}: {text!r} is not accepted; the string "true" or "false" is expected'
    )


def test_check_96_gates_are_a_list() -> None:
    assert refusal(with_keys(readiness_gates="http://x")) == ("6 readiness_gates: must be an array")


@pytest.mark.parametrize(
    "gate",
    [
        "",
        "localhost:9099/x",
        "/abs",
        "ftp://x",
        "http://",
        "http:///x",
        "http://a b/c",
        "http://:80/",
        "http://?x",
        "http://a\tb",
        "http://a:x/",
        "http://a:99999/",
        "http://a:0/",
        "http://[::1/",
        "http://a/\x7f",
    ],
)
def test_check_96_a_gate_is_a_url_with_a_host(gate: str) -> None:
    assert refusal(with_keys(readiness_gates=["https://fine", gate])) == (
        f"7 readiness_gates[1]: {gate!r} is not accepted; an http or https URL with a host is expected"
    )


def test_a_password_in_the_url_of_a_gate_is_not_shown() -> None:
    hidden = "s3cr3t"
    good, bad = f"http://u:{hidden}@h/ready", f"http://u:{hidden}@/ready"
    assert refusal(with_keys(readiness_gates=[good, bad])) == (
        "7 readiness_gates[1]: '…' is not accepted; an http or https URL with a host is expected"
    )
    assert hidden not in repr(load(with_keys(readiness_gates=[good]), Plugin.MAIN))
    assert "readiness_gates=('http://h/ready',)" in repr(
        load(with_keys(readiness_gates=["http://h/ready"]), Plugin.MAIN)
    )


def test_a_url_in_place_of_anything_else_is_not_shown_with_its_password() -> None:
    assert refusal(with_keys(log_level="https://u:s3cr3t@h")) == (
        "7 log_level: '…' is not accepted; ERROR, WARNING, INFO and DEBUG are accepted"
    )


# --- a teardown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"type": "netplug"},
        with_keys(ipam={"type": "a/b", "assign_ipv4": "yes"}),
        with_keys(log_level="LOUD", log_file_max_size=-1, mtu=-1, policy_setup_timeout_seconds=-1),
        with_keys(policy={"type": "foo"}, device_type="bogus", readiness_gates=["x"]),
        with_keys(etcd_endpoints="http://a", etcd_discovery_srv="b"),
    ],
)
def test_a_teardown_takes_a_bad_value_for_none(config: dict[str, object]) -> None:
    refusal(config)
    netconf = load(config, Plugin.MAIN, LoadPurpose.TEARDOWN)
    default = NetConf()
    assert (netconf.log, netconf.mtu, netconf.device_type) == (default.log, default.mtu, default.device_type)
    assert (netconf.policy_type, netconf.ipam.assign_ipv4) == ("", True)


def test_each_command_has_its_purpose() -> None:
    assert {command: LoadPurpose.of(command) for command in CNICommand} == {
        **dict.fromkeys(CNICommand, LoadPurpose.SETUP),
        CNICommand.DEL: LoadPurpose.TEARDOWN,
        CNICommand.GC: LoadPurpose.COLLECTION,
    }


def test_the_keys_of_gc_do_not_stop_a_del() -> None:
    config = with_keys(**{"cni.dev/valid-attachments": "all", "disableGC": "perhaps"})
    assert load(config, Plugin.MAIN, LoadPurpose.TEARDOWN).valid_attachments is None
    with pytest.raises(DecodeError, match=r"configuration\.disableGC: must be true or false"):
        load(config, Plugin.MAIN, LoadPurpose.COLLECTION)
    del config["disableGC"]
    with pytest.raises(DecodeError, match=r"valid-attachments: must be an array"):
        load(config, Plugin.MAIN, LoadPurpose.COLLECTION)


def test_a_del_takes_a_node_name_of_the_wrong_type_for_none() -> None:
    """The addresses name their node, and a name is no way to the datastore."""
    config = with_keys(nodename=["n1"], nodename_file=1, hostname=True, nodename_file_optional="no")
    refusal(config)
    torn = load(config, Plugin.MAIN, LoadPurpose.TEARDOWN)
    assert (torn.nodename, torn.nodename_file, torn.hostname) == ("", NetConf().nodename_file, "")


@pytest.mark.parametrize("ipam", [{"type": "netplug-ipam", "assign_ipv4": True}, "netplug-ipam"])
def test_a_teardown_does_not_look_at_keys_that_it_has_no_use_for(ipam: object) -> None:
    config = with_keys(mtu="1450", readiness_gates="x", container_settings=[], nodename="n1", ipam=ipam)
    with pytest.raises(DecodeError):
        load(config, Plugin.MAIN)
    assert load(config, Plugin.MAIN, LoadPurpose.TEARDOWN).nodename == "n1"


def test_a_teardown_uses_the_store_that_the_setup_used() -> None:
    """A DEL in the other API group would find nothing, and leave every address held."""
    config = with_keys(
        datastore_type="kubernetes",
        netplug_api_group="projectnetplug.org",
        kubernetes={"k8s_api_root": "https://a"},
        policy={"type": "k8s", "k8s_auth_token": "t", "k8s_certificate_authority": "/ca"},
        qps=7,
        burst=9,
    )
    torn = load(config, Plugin.MAIN, LoadPurpose.TEARDOWN)
    assert torn.datastore == load(config, Plugin.MAIN).datastore
    assert (torn.datastore.api_group, torn.datastore.kubernetes.token) == ("projectnetplug.org", "t")
    assert torn.policy_type == ""


def test_a_del_leads_to_the_configured_store_by_the_keys_that_it_uses() -> None:
    config = with_keys(
        datastore_type="of-somebody",
        etcd_endpoints="http://a:1",
        etcd_key_file="/k",
        sqlite_path="a.db",
        annotation_prefix="example.org",
        policy={"k8s_auth_token": "t"},
        qps=7,
        datastore_options={"address": "a"},
    )
    found = load(config, Plugin.MAIN, LoadPurpose.TEARDOWN).datastore
    assert found == load(config, Plugin.MAIN).datastore
    assert (found.etcd_endpoints, found.sqlite_path, found.qps) == (("http://a:1",), "a.db", 7)
    assert found.options == {"address": "a"}


@pytest.mark.parametrize("key,value", [("qps", -1), ("burst", 2**40), ("annotation_prefix", "not a name!")])
def test_a_teardown_in_the_orchestrator_takes_a_bad_value_for_none(key: str, value: object) -> None:
    config = with_keys(datastore_type="kubernetes", **{key: value})
    refusal(config)
    assert load(config, Plugin.MAIN, LoadPurpose.TEARDOWN).datastore == DatastoreSettings(type="kubernetes")


@pytest.mark.parametrize(
    "store,keys",
    [
        ("etcdv3", {"qps": "x", "kubernetes": "x", "netplug_api_group": 1, "policy": {"k8s_auth_token": 1}}),
        ("etcdv3", {"annotation_prefix": 1, "sqlite_path": "netplug.db"}),
        ("", {"burst": 2**40, "sqlite_path": 1}),
        (None, {"burst": 2**40, "sqlite_path": 1}),
        ("sqlite", {"qps": -1, "etcd_endpoints": [], "etcd_key_file": 1, "annotation_prefix": "not a name!"}),
        ("kubernetes", {"sqlite_path": "netplug.db", "etcd_scheme": 1}),
    ],
)
def test_a_teardown_does_not_look_at_the_way_to_another_store(store: str | None, keys: dict[str, object]) -> None:
    refusal(with_keys(datastore_type=store, **keys))
    inside = {**BRIDGE, "datastore_type": "kubernetes" if store != "kubernetes" else "sqlite"}
    inside["ipam"] = {"type": "netplug-ipam", "datastore_type": store or "etcdv3", **keys}
    for config, role in ((with_keys(datastore_type=store, **keys), Plugin.MAIN), (inside, Plugin.IPAM)):
        found = load(config, role, LoadPurpose.TEARDOWN).datastore
        assert found == DatastoreSettings(type=store or "etcdv3")


@pytest.mark.parametrize(
    "store,key,value",
    [("sqlite", "sqlite_path", 1), ("etcdv3", "etcd_endpoints", []), ("kubernetes", "qps", "x"), (1, "nodename", "n")],
)
def test_a_teardown_refuses_wrong_json_types_in_keys_that_it_uses(store: object, key: str, value: object) -> None:
    with pytest.raises(DecodeError, match=r": must be a"):
        load(with_keys(datastore_type=store, **{key: value}), Plugin.MAIN, LoadPurpose.TEARDOWN)


def test_a_teardown_refuses_a_store_that_is_nowhere() -> None:
    """Otherwise it would make an empty one in the runtime's folder, and say that all is given back."""
    with pytest.raises(ConfigurationError, match=r"sqlite_path: 'netplug.db' is not accepted; an absolute path"):
        load(with_keys(datastore_type="sqlite", sqlite_path="netplug.db"), Plugin.MAIN, LoadPurpose.TEARDOWN)


# --- under another main plugin -------------------------------------------------------------------------------------


def test_keys_inside_ipam_speak_to_netplug_ipam_and_win() -> None:
    config = {
        **BRIDGE,
        "nodename": "outside",
        "datastore_type": "sqlite",
        "sqlite_path": "/outside",
        "ipam": {"type": "netplug-ipam", "nodename": "inside", "sqlite_path": "/inside", "log_level": "ERROR"},
    }
    netconf = load(config, Plugin.IPAM)
    assert netconf.type == "bridge"
    assert netconf.nodename == "inside"
    assert netconf.datastore == DatastoreSettings(type="sqlite", sqlite_path="/inside")
    assert netconf.log.level is Level.ERROR


def test_null_inside_ipam_hides_nothing() -> None:
    config = {**BRIDGE, "nodename": "outside", "ipam": {"type": "netplug-ipam", "nodename": None}}
    assert load(config, Plugin.IPAM).nodename == "outside"


@pytest.mark.parametrize("gate", ["HTTP://h/", "https://[fd00::1]:80/x", "http://user@h?x"])
def test_a_gate_may_be_any_url_of_its_schemes(gate: str) -> None:
    assert load(with_keys(readiness_gates=[gate]), Plugin.MAIN).readiness_gates == (gate,)


def test_keys_of_the_other_plugin_are_not_ours() -> None:
    config = {
        **BRIDGE,
        "mtu": "as bridge likes it",
        "kubernetes": "something of its own",
        "readiness_gates": 1,
        "etcd_endpoints": "http://10.0.0.1:2379",
        "ipam": {"type": "netplug-ipam"},
    }
    netconf = load(config, Plugin.IPAM)
    assert netconf.mtu == 0
    assert netconf.readiness_gates == ()
    assert netconf.datastore.etcd_endpoints == ("http://10.0.0.1:2379",)
    assert netconf.own_keys == {
        "etcd_endpoints": "http://10.0.0.1:2379",
        "type": "netplug-ipam",
        "ipam": config["ipam"],
    }


@pytest.mark.parametrize("purpose", LoadPurpose)
@pytest.mark.parametrize("inside", [{}, {"datastore_type": "kubernetes"}])
def test_under_another_plugin_the_way_to_a_store_in_the_orchestrator_is_ours(
    inside: dict[str, object], purpose: LoadPurpose
) -> None:
    """A ``datastore_type`` that is set there moves the access with it; another kubeconfig's cluster is not meant."""
    config = {
        **BRIDGE,
        "datastore_type": "" if inside else "kubernetes",
        "kubernetes": {"kubeconfig": "/kc"},
        "netplug_api_group": "projectnetplug.org",
        "qps": 7,
        "ipam": {"type": "netplug-ipam", "burst": 9, **inside},
    }
    datastore = load(config, Plugin.IPAM, purpose).datastore
    assert (datastore.type, datastore.kubernetes.kubeconfig) == ("kubernetes", "/kc")
    assert (datastore.api_group, datastore.qps, datastore.burst) == ("projectnetplug.org", 7, 9)


def test_netplug_ipam_reads_a_configuration_of_netplug_itself() -> None:
    netconf = load(with_keys(nodename="node-1"), Plugin.IPAM)
    assert (netconf.type, netconf.nodename, netconf.ipam.type) == ("netplug", "node-1", "netplug-ipam")


def test_a_configuration_is_read_as_json_has_it() -> None:
    text = '{"type": "netplug", "ipam": {"type": "netplug-ipam", "assign_ipv6": "true"}, "mtu": 9000}'
    netconf = load(json.loads(text), Plugin.MAIN)
    assert (netconf.mtu, netconf.ipam.assign_ipv6) == (9000, True)


# --- what does not work yet ---------------------------------------------------------------------------------------


def unsupported(plugin: Plugin, **keys: object) -> str:
    netconf = load({"type": "netplug", "ipam": {"type": "netplug-ipam"}, **keys}, plugin)
    assert netconf.unsupported is not None
    assert netconf.unsupported.code == 7
    return str(netconf.unsupported).removeprefix("network configuration.")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"log_file_max_size": 1, "log_file_max_age": 2, "log_file_max_count": 3},
        {"readiness_gates": ["http://a", "https://[::1]:8/b?c"], "policy_setup_timeout_seconds": 3},
        {"endpoint_status_dir": "/s"},
        {"log_file_max_size": 0, "readiness_gates": [], "policy": {}, "policy_setup_timeout_seconds": 0},
        {"feature_control": {"floating_ips": False}, "device_type": "veth", "include_default_routes": False},
        {"etcd_discovery_srv": "a.org", "etcd_key_file": "/k", "etcd_cert_file": "/c", "etcd_ca_cert_file": "/ca"},
        {"etcd_endpoints": "http://a:1", "etcd_authority": "b:1", "etcd_scheme": "https"},
        {"etcd_endpoints": "", "kubernetes": {}, "qps": 0, "args": {"cni": {"ips": []}}, "dataplane_options": {}},
        {"ipam": {"type": "netplug-ipam", "routes": [], "subnet": ""}, "args": None},
        {"datastore_type": "kubernetes", "kubernetes": {"kubeconfig": "/k"}, "qps": 7},
        {"datastore_type": "kubernetes", "policy": {"k8s_api_root": "https://a"}},
        {"kubernetes": {"kubeconfig": "/k"}, "qps": 7, "burst": 9, "policy": {"k8s_auth_token": "t"}},
        {"datastore_type": "sqlite", "kubernetes": {"k8s_api_root": "https://a"}, "policy": {"type": "k8s"}},
        {"datastore_type": "kubernetes", "policy": {"type": "k8s"}},
        {"feature_control": {"ip_addrs_no_ipam": True, "floating_ips": True, "allowed_source_prefixes": True}},
        {"nodename": "n", "mtu": 1450, "num_queues": 4, "container_settings": {"allow_ip_forwarding": True}},
    ],
)
def test_what_works_is_not_refused(keys: dict[str, object]) -> None:
    netconf = load({"type": "netplug", "ipam": {"type": "netplug-ipam"}, **keys}, Plugin.MAIN)
    assert netconf.unsupported is None
    assert netconf.own_keys.items() >= keys.items()


@pytest.mark.parametrize(
    "keys,text",
    [
        ({"policy": {"type": "k8s"}}, f"policy.type: 'k8s' is not accepted; {NEEDS_ACCESS}"),
        ({"kubernetes": {"node_name": "n", "x": "t0ken"}}, f"kubernetes: '…' is not accepted; {UNUSED}"),
        (
            {"kubernetes": {"kubeconfig": "/k"}, "netplug_api_group": "projectnetplug.org"},
            "netplug_api_group: 'projectnetplug.org' is not accepted; it belongs to the datastore kubernetes",
        ),
        ({"policy": {"k8s_auth_token": "t0ken"}}, f"policy.k8s_auth_token: '…' is not accepted; {UNUSED}"),
        ({"qps": 7}, f"qps: 7 is not accepted; {UNUSED}"),
    ],
)
def test_what_does_not_work_is_refused_by_name(keys: dict[str, object], text: str) -> None:
    assert unsupported(Plugin.MAIN, **keys) == text


@pytest.mark.parametrize(
    "keys,text",
    [
        (
            {"dataplane_options": {"type": "invalid"}},
            "dataplane_options.type: 'invalid' is not accepted; invalid dataplane type: \"linux\" is the one there is",
        ),
        (
            {"device_type": "netkit"},
            'device_type: \'netkit\' is not accepted; supported: "veth"; "netkit" comes with a later release',
        ),
    ],
)
def test_check_31_what_makes_the_link(keys: dict[str, object], text: str) -> None:
    assert refusal(with_keys(**keys)) == f"7 {text}"


def test_deprecated_keys_are_named_with_what_to_use() -> None:
    policy = {"type": "k8s", "k8s_api_root": "https://a", "k8s_auth_token": ""}
    netconf = load(with_keys(etcd_scheme="https", hostname="h", policy=policy), Plugin.MAIN)
    assert netconf.deprecated_keys == (
        ("etcd_scheme", "etcd_endpoints"),
        ("policy.k8s_api_root", "kubernetes.k8s_api_root"),
    )
    assert load(with_keys(), Plugin.MAIN).deprecated_keys == ()


@pytest.mark.parametrize(
    "keys,has_orchestrator",
    [
        ({}, False),
        ({"kubernetes": {"node_name": "n"}}, False),
        ({"kubernetes": {"kubeconfig": "/k"}}, True),
        ({"policy": {"k8s_api_root": "https://a"}}, True),
        ({"datastore_type": "kubernetes"}, True),
    ],
)
def test_the_orchestrator_can_be_asked_where_the_configuration_says_how(
    keys: dict[str, object],
    has_orchestrator: bool,  # noqa: FBT001  # a parameter of the test
) -> None:
    assert load(with_keys(**keys), Plugin.MAIN).has_orchestrator is has_orchestrator


def test_annotations_of_the_runtimes_capability() -> None:
    """The runtime sends them if the plugin's configuration declares the capability."""
    name = "io.kubernetes.cri.pod-annotations"
    assert load(with_keys(), Plugin.MAIN).pod_annotations is None
    sent = with_keys(runtimeConfig={name: {"a/b": "c"}, "portMappings": []})
    assert load(sent, Plugin.MAIN).pod_annotations == {"a/b": "c"}
    assert load(sent, Plugin.MAIN, LoadPurpose.TEARDOWN).pod_annotations is None
    with pytest.raises(DecodeError, match=r"pod-annotations\['a/b'\]: must be a string"):
        load(with_keys(runtimeConfig={name: {"a/b": 1}}), Plugin.MAIN)


def mesos(*labels: object) -> dict[str, object]:
    return {"org.apache.mesos": {"network_info": {"labels": {"labels": list(labels)}}}}


@pytest.mark.parametrize(
    "key,value,name,text",
    [
        ("DCOS_SPACE", "/a/b/c", "DCOS_SPACE", "a.b.c"),
        ("k", "v", "k", "v"),
        ("k", "", "k", ""),
        ("k", "//", "k", ""),
        ("projectnetplug.org/orchestrator", "x", "projectnetplug.org.orchestrator", "x"),
        ("projectnetplug.org/namespace/", "x", "projectnetplug.org.namespace", "x"),
        ("-.a b ü_c", "a--b-.-c...d-", "a-b-_c", "a--b.c.d"),
        ("_a", "_b", "a_34fb716034edaa88", "b_a305900c6efe21ae"),
        ("k", "-" * 100_000 + "x", "k", "x"),
        ("a" * 63, "b" * 63, "a" * 63, "b" * 63),
    ],
)
def test_check_50_labels_of_mesos_in_the_characters_of_labels(key: str, value: str, name: str, text: str) -> None:
    netconf = load(with_keys(args=mesos({"key": key, "value": value})), Plugin.MAIN)
    assert netconf.labels == (ContainerLabel(name=name, value=text),)


def test_a_label_of_mesos_that_is_too_long_is_cut_and_ends_in_a_hash() -> None:
    (label,) = load(with_keys(args=mesos({"key": "a" * 64, "value": "/" + "b" * 64})), Plugin.MAIN).labels
    assert label.name.startswith("a" * 46 + "_")
    assert label.value.startswith("b" * 46 + "_")
    assert (len(label.name), len(label.value)) == (63, 63)


def test_labels_of_mesos_do_not_stop_a_teardown() -> None:
    """A DEL finds the endpoint by container and interface, whatever the labels are by then."""
    wrong = with_keys(args=mesos({"key": "projectnetplug.org/namespace", "value": "x"}, 7))
    assert load(wrong, Plugin.MAIN, LoadPurpose.TEARDOWN).labels == ()
    assert load({**BRIDGE, "ipam": {"type": "netplug-ipam"}, "args": 7}, Plugin.IPAM).labels == ()


def test_under_another_main_plugin_only_our_keys_are_judged() -> None:
    ipam = {"type": "netplug-ipam"}
    netconf = load({"type": "bridge", "kubernetes": {"x": 1}, "qps": 1, "ipam": ipam}, Plugin.IPAM)
    assert netconf.unsupported is None
    assert (
        unsupported(Plugin.IPAM, type="bridge", ipam={**ipam, "qps": 1})
        == "qps: 1 is not accepted; it belongs to the datastore kubernetes"
    )
    assert unsupported(Plugin.IPAM, type="bridge", ipam={**ipam, "ranges": [[]]}) == (
        "ipam.ranges: [[]] is not accepted; it belongs to host-local"
    )
    assert unsupported(Plugin.IPAM, type="bridge", ipam={"type": "host-local"}) == (
        "ipam.type: 'host-local' is not yet supported; 'netplug-ipam' is"
    )


@pytest.mark.parametrize(
    "keys,text",
    [
        ({"ipam": {"type": "netplug-ipam", "subnet": "usePodCidr"}}, "ipam.subnet: 'usePodCidr'@host-local"),
        ({"ipam": {"type": "netplug-ipam", "gateway": "10.0.0.1"}}, "ipam.gateway: '10.0.0.1'@host-local"),
        (
            {"include_default_routes": True},
            "include_default_routes: True@an ipam.type with routes of its own, such as host-local",
        ),
        ({"ipam": {"type": "host-local", "ipv4_pools": ["p"]}}, "ipam.ipv4_pools: ['p']@netplug-ipam"),
        ({"ipam": {"type": "host-local", "assign_ipv6": "true"}}, "ipam.assign_ipv6: 'true'@netplug-ipam"),
    ],
)
def test_a_key_of_another_ipam_is_refused(keys: dict[str, object], text: str) -> None:
    refusal, _, owner = text.partition("@")
    netconf = load({"type": "netplug", "ipam": {"type": "netplug-ipam"}, **keys}, Plugin.MAIN)
    assert str(netconf.unsupported) == f"network configuration.{refusal} is not accepted; it belongs to {owner}"


def test_host_local_is_served_and_may_use_the_api_of_the_orchestrator() -> None:
    ipam = {"type": "host-local", "subnet": "usePodCidr", "resolvConf": "/etc/resolv.conf"}
    keys = {"kubernetes": {"kubeconfig": "/k", "node_name": "n"}, "qps": 7, "include_default_routes": True}
    netconf = load({"type": "netplug", "ipam": ipam, **keys}, Plugin.MAIN)
    assert netconf.unsupported is None
    assert netconf.ipam.resolv_conf == "/etc/resolv.conf"
    assert netconf.datastore.kubernetes.kubeconfig == "/k"


def test_the_routes_of_host_local_are_their_destinations() -> None:
    routes = [{"dst": "10.0.0.0/8", "gw": "10.0.0.1"}, {"gw": "10.0.0.1"}, {"dst": ""}, {"dst": "fd00::/8"}]
    netconf = load({"type": "netplug", "ipam": {"type": "host-local", "routes": routes}}, Plugin.MAIN)
    assert netconf.ipam.routes == (Prefix.parse("10.0.0.0/8"), Prefix.parse("fd00::/8"))


@pytest.mark.parametrize(
    "routes,error,text",
    [
        ("10.0.0.0/8", DecodeError, r"ipam\.routes: must be an array"),
        (["10.0.0.0/8"], DecodeError, r"ipam\.routes\[0\]: must be an object"),
        ([{"dst": 10}], DecodeError, r"ipam\.routes\[0\]: must be a string"),
        ([{"dst": "10.0.0.1/8"}], ConfigurationError, r"ipam\.routes\[0\]\.dst: .* 10\.0\.0\.0/8 is the prefix"),
        ([{"dst": "x"}], ConfigurationError, r"routes\[0\]\.dst: 'x' is not accepted; .* a CIDR such as 10\.0\.0\.0/8"),
    ],
)
def test_routes_that_are_not_accepted(routes: object, error: type[NetplugError], text: str) -> None:
    with pytest.raises(error, match=text):
        load({"type": "netplug", "ipam": {"type": "host-local", "routes": routes}}, Plugin.MAIN)


def test_a_teardown_of_host_local_reads_where_its_files_are() -> None:
    ipam = {"type": "host-local", "dataDir": "/run/networks", "subnet": 7, "routes": 7}
    netconf = load({"name": "net1", "type": "netplug", "ipam": ipam}, Plugin.MAIN, LoadPurpose.TEARDOWN)
    assert netconf.ipam.type == "host-local"
    assert netconf.own_keys == {
        "name": "net1",
        "type": "netplug",
        "ipam": {"type": "host-local", "dataDir": "/run/networks"},
    }


def test_addresses_and_mac_of_the_runtime() -> None:
    asked = {"runtimeConfig": {"ips": ["10.0.0.9/24"], "mac": "02-00-00-00-00-0A"}, "args": {"cni": {"mac": ""}}}
    runtime = load(with_keys(**asked), Plugin.MAIN).runtime
    assert ([str(one) for one in runtime.runtime_ips], runtime.runtime_mac) == (["10.0.0.9"], "02:00:00:00:00:0a")
    assert (runtime.argument_ips, runtime.argument_mac) == ((), "")
    assert refusal(with_keys(runtimeConfig={"mac": "ee:ee:ee:ee:ee:ee"})) == (
        "7 runtimeConfig.mac: 'ee:ee:ee:ee:ee:ee' is not accepted; the 6 bytes of a unicast address are expected,"
        " such as 02:00:5e:10:00:01"
    )
    assert refusal(with_keys(args={"cni": {"ips": ["10.0.0.9/33"]}})).startswith("7 args.cni.ips[0]: '10.0.0.9/33'")
    assert refusal(with_keys(runtimeConfig={"ips": "10.0.0.9"})).startswith("6 runtimeConfig.ips: must be an array")
