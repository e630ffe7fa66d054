"""Settings that this release does not serve yet are refused by name, defaults and absent ones are not."""

import pytest

from netplug_core.errors import ConfigurationError, NotYetSupported
from netplug_core.netconf.load import PluginRole, load
from netplug_core.netconf.model import IPAMConfig, NetConf
from netplug_core.netconf.unsupported import refuse_unsupported


def refused(role: PluginRole, **keys: object) -> str:
    netconf = load({"type": "netplug", "ipam": {"type": "netplug-ipam"}, **keys}, role)
    with pytest.raises(ConfigurationError) as refusal:
        refuse_unsupported(netconf)
    assert refusal.value.code == 7
    return str(refusal.value).removeprefix("network configuration.")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"log_file_max_size": 100, "log_file_max_age": 30, "log_file_max_count": 10},
        {"log_file_max_size": 0, "readiness_gates": [], "policy": {}, "policy_setup_timeout_seconds": 0},
        {"feature_control": {"floating_ips": False}, "device_type": "veth", "include_default_routes": False},
        {"etcd_discovery_srv": "a.org", "etcd_key_file": "/k", "etcd_cert_file": "/c", "etcd_ca_cert_file": "/ca"},
        {"etcd_endpoints": "http://a:1", "etcd_authority": "b:1", "etcd_scheme": "https"},
        {"etcd_endpoints": "", "kubernetes": {}, "qps": 0, "args": {"cni": {"ips": []}}, "dataplane_options": {}},
        {"ipam": {"type": "netplug-ipam", "routes": [], "subnet": ""}, "args": None},
        {"datastore_type": "kubernetes", "kubernetes": {"kubeconfig": "/k"}, "qps": 7},
        {"datastore_type": "kubernetes", "policy": {"k8s_api_root": "https://a"}},
        {"nodename": "n", "mtu": 1450, "num_queues": 4, "container_settings": {"allow_ip_forwarding": True}},
    ],
)
def test_what_works_is_not_refused(keys: dict[str, object]) -> None:
    netconf = load({"type": "netplug", "ipam": {"type": "netplug-ipam"}, **keys}, PluginRole.MAIN)
    refuse_unsupported(netconf)
    assert netconf.own_keys.items() >= keys.items()


@pytest.mark.parametrize(
    "keys,text",
    [
        ({"log_file_max_size": 1}, "log_file_max_size: 1 is not yet supported; leave it out"),
        ({"log_file_max_age": 1}, "log_file_max_age: 1 is not yet supported; leave it out"),
        ({"log_file_max_count": 1}, "log_file_max_count: 1 is not yet supported; leave it out"),
        ({"readiness_gates": ["http://a"]}, "readiness_gates: ['http://a'] is not yet supported; leave it out"),
        ({"readiness_gates": ["http://u:s3cr3t@a"]}, "readiness_gates: '…' is not yet supported; leave it out"),
        ({"policy": {"type": "k8s"}}, "policy.type: 'k8s' is not yet supported; leave it out"),
        (
            {"feature_control": {"ip_addrs_no_ipam": True}},
            "feature_control.ip_addrs_no_ipam: True is not yet supported; leave it out",
        ),
        (
            {"feature_control": {"floating_ips": True}},
            "feature_control.floating_ips: True is not yet supported; leave it out",
        ),
        ({"include_default_routes": True}, "include_default_routes: True is not yet supported; leave it out"),
        (
            {"policy_setup_timeout_seconds": 3},
            "policy_setup_timeout_seconds: 3 is not yet supported; leave it out",
        ),
        ({"endpoint_status_dir": "/s"}, "endpoint_status_dir: '/s' is not yet supported; leave it out"),
        ({"device_type": "netkit"}, "device_type: 'netkit' is not yet supported; leave it out"),
        ({"kubernetes": {"kubeconfig": "/k", "x": "t0ken"}}, "kubernetes: '…' is not yet supported; leave it out"),
        ({"policy": {"k8s_auth_token": "t0ken"}}, "policy.k8s_auth_token: '…' is not yet supported; leave it out"),
        ({"qps": 7}, "qps: 7 is not yet supported; leave it out"),
        ({"ipam": {"type": "host-local"}}, "ipam.type: 'host-local' is not yet supported; 'netplug-ipam' is"),
        (
            {"ipam": {"type": "netplug-ipam", "subnet": "usePodCidr"}},
            "ipam.subnet: 'usePodCidr' is not yet supported; it belongs to host-local",
        ),
        (
            {"args": {"org.apache.mesos": {"network_info": {}}}},
            "args['org.apache.mesos']: '…' is not yet supported; leave it out",
        ),
    ],
)
def test_what_does_not_work_is_refused_by_name(keys: dict[str, object], text: str) -> None:
    assert refused(PluginRole.MAIN, **keys) == text


def test_check_31_a_dataplane_that_nobody_offers_is_invalid() -> None:
    netconf = load(
        {"type": "netplug", "ipam": {"type": "netplug-ipam"}, "dataplane_options": {"type": "invalid"}}, PluginRole.MAIN
    )
    with pytest.raises(ConfigurationError) as refusal:
        refuse_unsupported(netconf)
    assert not isinstance(refusal.value, NotYetSupported)
    assert str(refusal.value) == (
        "network configuration.dataplane_options.type: 'invalid' is not accepted; "
        "invalid dataplane type: leave it out for linux"
    )


def test_under_another_main_plugin_only_our_keys_are_judged() -> None:
    ipam = {"type": "netplug-ipam"}
    refuse_unsupported(load({"type": "bridge", "kubernetes": {"x": 1}, "qps": 1, "ipam": ipam}, PluginRole.IPAM))
    assert (
        refused(PluginRole.IPAM, type="bridge", ipam={**ipam, "qps": 1}) == "qps: 1 is not yet supported; leave it out"
    )
    assert refused(PluginRole.IPAM, type="bridge", ipam={**ipam, "ranges": [[]]}) == (
        "ipam.ranges: [[]] is not yet supported; it belongs to host-local"
    )


def test_a_configuration_that_was_never_json_is_judged_by_its_values() -> None:
    refuse_unsupported(NetConf(ipam=IPAMConfig(type="netplug-ipam")))
    with pytest.raises(NotYetSupported, match=r"device_type: 'netkit' is not yet supported"):
        refuse_unsupported(NetConf(ipam=IPAMConfig(type="netplug-ipam"), device_type="netkit"))
