"""The conflist, byte for byte: E1 and what each setting changes of it."""

import json
from typing import cast

import pytest

from netplug_core.addressing import Prefix
from netplug_core.cni.dispatch import Plugin
from netplug_core.installation.daemonset import APIEndpoint, render_conflist
from netplug_core.installation.settings import ClusterFacts
from netplug_core.netconf.model import LoadPurpose, load
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AllowedUse, IPPool, IPPoolSpec
from tests.harness.installations import make_pool, network, resolved

E1 = (
    '{"cniVersion":"1.0.0","name":"k8s-pod-network","plugins":[{"container_settings":{"allow_ip_forwarding":false},'
    '"datastore_type":"kubernetes","endpoint_status_dir":"/var/run/netplug/endpoint-status","ipam":{"assign_ipv4":"true",'
    '"assign_ipv6":"false","type":"netplug-ipam"},"kubernetes":{"kubeconfig":"__KUBECONFIG_FILEPATH__"},'
    '"log_file_max_age":30,"log_file_max_count":10,"log_file_max_size":100,"log_file_path":"/var/log/netplug/cni/cni.log",'
    '"log_level":"INFO","mtu":0,"netplug_api_group":"","nodename_file_optional":false,"policy":{"type":"k8s"},'
    '"policy_guard":true,"policy_setup_timeout_seconds":0,"type":"netplug"},{"capabilities":{"portMappings":true},"snat":true,'
    '"type":"portmap"}]}'
)
IPAM_V4 = '"ipam":{"assign_ipv4":"true","assign_ipv6":"false","type":"netplug-ipam"}'
PORTMAP = ',{"capabilities":{"portMappings":true},"snat":true,"type":"portmap"}'
V4, V6 = make_pool("10.0.0.0/16"), make_pool("fd00::/48", name="six")
HOST_LOCAL = {"cni": {"ipam": {"type": "HostLocal"}}}


def rendered(spec: dict[str, object] | None = None, *pools: IPPool, api_group: str = "") -> str | None:
    return render_conflist(resolved(spec, pools=pools), ClusterFacts(pools=pools), api_group=api_group)


def pool(cidr: str, *uses: AllowedUse, is_disabled: bool = False) -> IPPool:
    spec = IPPoolSpec(prefix=Prefix.parse(cidr), allowed_uses=uses, is_disabled=is_disabled)
    return IPPool(metadata=Metadata(name="other"), spec=spec)


def test_e1_defaults() -> None:
    """Check 1."""
    assert rendered(None, V4) == E1


@pytest.mark.parametrize("spec, pools, before, after", [
    pytest.param({}, (V4, V6), '"assign_ipv6":"false"', '"assign_ipv6":"true"', id="E2, check 2"),
    pytest.param({}, (V6,), '"assign_ipv4":"true","assign_ipv6":"false"', '"assign_ipv4":"false","assign_ipv6":"true"',
                 id="E2b"),
    pytest.param(HOST_LOCAL, (V4,), IPAM_V4, '"ipam":{"subnet":"usePodCidr","type":"host-local"}', id="E3, check 4"),
    pytest.param(HOST_LOCAL, (), IPAM_V4, '"ipam":{"subnet":"usePodCidr","type":"host-local"}', id="E3, no pool"),
    pytest.param(HOST_LOCAL, (V6,), IPAM_V4, '"ipam":{"subnet":"usePodCidrIPv6","type":"host-local"}',
                 id="E4, check 5"),
    pytest.param(HOST_LOCAL, (V6, V4), IPAM_V4,
                 '"ipam":{"ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]],"type":"host-local"}',
                 id="E5, check 5"),
    pytest.param(network(hostPorts="Disabled"), (V4,), PORTMAP, "", id="E6, check 6"),
    pytest.param(network(linuxPolicySetupTimeoutSeconds=15), (V4,), '"policy_setup_timeout_seconds":0',
                 '"policy_setup_timeout_seconds":15', id="E7, check 7"),
    pytest.param(network(containerIPForwarding="Enabled"), (V4,), '"allow_ip_forwarding":false',
                 '"allow_ip_forwarding":true', id="E8, check 9"),
    pytest.param(network(mtu=1450), (V4,), '"mtu":0', '"mtu":1450', id="E9, check 9"),
    pytest.param(
        network(sysctl=[
            {"key": "net.ipv4.tcp_keepalive_time", "value": "40"},
            {"key": "net.ipv4.tcp_keepalive_intvl", "value": "15"},
        ]), (V4,), PORTMAP,
        f'{PORTMAP},{{"sysctl":{{"net.ipv4.tcp_keepalive_intvl":"15","net.ipv4.tcp_keepalive_time":"40"}},'
        '"type":"tuning"}', id="E11",
    ),
    pytest.param(
        network(cniFeatures={"floatingIPs": "Enabled", "ipAddrsNoIpam": "Enabled"}),
        (V4,), '"ipam":{', '"feature_control":{"floating_ips":true,"ip_addrs_no_ipam":true},"ipam":{', id="features",
    ),
    pytest.param(network(readinessGates=["http://127.0.0.1:1/"]), (V4,), '"type":"netplug"}',
                 '"readiness_gates":["http://127.0.0.1:1/"],"type":"netplug"}', id="gates"),
    pytest.param(network(linuxPodInterfaceType="Netkit"), (V4,), '"endpoint_status_dir"',
                 '"device_type":"netkit","endpoint_status_dir"', id="E12"),
    pytest.param({"kubernetesProvider": "DockerEnterprise"}, (V4,), '"nodename_file_optional":false',
                 '"nodename_file_optional":true', id="E14"),
    pytest.param(network(multiInterfaceMode="Multus"), (V4,), "", "", id="E15, check 11"),
    pytest.param({"cni": {"specVersion": "0.3.1"}}, (V4,), '"cniVersion":"1.0.0"', '"cniVersion":"0.3.1"', id="E16"),
    pytest.param({"cni": {"ipam": {"type": "hostLocal"}}}, (V4,), IPAM_V4,
                 '"ipam":{"subnet":"usePodCidr","type":"host-local"}', id="check 19"),
    pytest.param({}, (V4, pool("fd00::/48", AllowedUse.LOAD_BALANCER)), "", "", id="check 42"),
    pytest.param({}, (V4, pool("fd00::/48", AllowedUse.WORKLOAD, is_disabled=True)), "", "", id="disabled"),
])  # fmt: skip
def test_what_a_setting_changes(spec: dict[str, object], pools: tuple[IPPool, ...], before: str, after: str) -> None:
    assert before in E1
    assert rendered(spec, *pools) == (E1.replace(before, after) if before else E1)


def test_e13_another_dataplane() -> None:
    """It has no packet filter of the kernel, so there is no guard either."""
    options = '"dataplane_options":{"socket":"unix:///var/run/netplug/cni-server.sock","type":"grpc"},'
    expected = E1.replace('"datastore_type"', f'{options}"datastore_type"').replace('"policy_guard":true,', "")
    assert rendered(network(linuxDataplane="VPP"), V4) == expected


def test_e10_native_definitions_and_an_endpoint() -> None:
    text = render_conflist(
        resolved(pools=(V4,)),
        ClusterFacts(pools=(V4,)),
        api_group="projectnetplug.org/v3",
        endpoint=APIEndpoint("fd00:10:96::1", 443),
    )
    expected = E1.replace('"netplug_api_group":""', '"netplug_api_group":"projectnetplug.org/v3"')
    assert text == expected.replace('{"kubeconfig"', '{"k8s_api_root":"https://[fd00:10:96::1]:443","kubeconfig"')
    assert APIEndpoint("10.96.0.1", 6443).url == "https://10.96.0.1:6443"


def test_e17_logging() -> None:
    """Check 27."""
    log = {"logSeverity": "Warn", "logFileMaxSize": "1Mi", "logFileMaxAgeDays": 5, "logFileMaxCount": 5}
    expected = E1.replace("30", "5").replace('"log_file_max_count":10', '"log_file_max_count":5')
    expected = expected.replace('"log_file_max_size":100', '"log_file_max_size":1').replace("INFO", "WARNING")
    assert rendered({"logging": {"cni": log}}, V4) == expected


@pytest.mark.parametrize("severity, level", [("Error", "ERROR"), ("Debug", "DEBUG")])
def test_levels(severity: str, level: str) -> None:
    assert rendered({"logging": {"cni": {"logSeverity": severity}}}, V4) == E1.replace("INFO", level)


def test_there_is_none_with_another_plugin_or_before_a_pool() -> None:
    """Check 12."""
    assert rendered({"cni": {"type": "AmazonVPC"}}, V4) is None
    assert rendered(None) is None
    assert rendered(None, pool("10.0.0.0/16", AllowedUse.TUNNEL)) is None


@pytest.mark.parametrize("spec", [{}, HOST_LOCAL, network(mtu=1450, linuxPolicySetupTimeoutSeconds=15)])
def test_the_plugin_accepts_it(spec: dict[str, object]) -> None:
    text = rendered(spec, V4, V6)
    assert text is not None
    conflist = cast("dict[str, object]", json.loads(text))
    (plugin, *_) = cast("list[dict[str, object]]", conflist["plugins"])
    read = load({**plugin, "name": conflist["name"], "cniVersion": "1.0.0"}, Plugin.MAIN, LoadPurpose.SETUP)
    assert read.endpoint_status_dir == "/var/run/netplug/endpoint-status"
