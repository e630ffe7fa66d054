"""The environment of the container on every node."""

import pytest

from netplug_core.installation.daemonset import render_conflist, render_environment
from netplug_core.installation.settings import ClusterFacts
from tests.harness.installations import make_pool, network, resolved

V4, V6 = make_pool("10.0.0.0/16"), make_pool("fd00::/48", name="six")


def test_defaults() -> None:
    assert render_environment(resolved(pools=(V4,))) == {
        "CLUSTER_TYPE": "k8s,operator,bgp",
        "DATASTORE_TYPE": "kubernetes",
        "IP": "autodetect",
        "IP6": "none",
        "IP_AUTODETECTION_METHOD": "first-found",
        "NETPLUG_ENDPOINT_TO_HOST_ACTION": "Accept",
        "NETPLUG_MANAGE_CNI": "true",
        "NETPLUG_NETWORKING_BACKEND": "bird",
        "NETPLUG_POLICY": "Enabled",
        "NO_DEFAULT_POOLS": "true",
        "WAIT_FOR_DATASTORE": "true",
    }


def changed(spec: dict[str, object]) -> dict[str, str]:
    """What a spec adds to the defaults, or sets otherwise."""
    before, after = (render_environment(resolved(one, pools=(V4,))) for one in (None, spec))
    return {name: text for name, text in after.items() if before.get(name) != text}


@pytest.mark.parametrize("spec, variables", [
    (network(mtu=1450), {"NETPLUG_IPINIPMTU": "1450", "NETPLUG_VXLANMTU": "1450"}),  # check 9
    (  # check 7
        network(linuxPolicySetupTimeoutSeconds=15),
        {"NETPLUG_ENDPOINT_STATUS_PATH_PREFIX": "/var/run/netplug"},
    ),
    (network(bgp="Disabled"), {"CLUSTER_TYPE": "k8s,operator", "NETPLUG_NETWORKING_BACKEND": "vxlan"}),
    ({"cni": {"ipam": {"type": "HostLocal"}}}, {"USE_POD_CIDR": "true"}),
    (
        {"cni": {"ipam": {"type": "HostLocal"}}, **network(bgp="Disabled")},
        {"USE_POD_CIDR": "true", "CLUSTER_TYPE": "k8s,operator", "NETPLUG_NETWORKING_BACKEND": "none"},
    ),
    (
        {
            "cni": {"ipam": {"type": "HostLocal"}},
            **network(bgp="Disabled", ipPools=[{"cidr": "10.1.0.0/16", "encapsulation": "VXLAN"}]),
        },
        {"USE_POD_CIDR": "true", "CLUSTER_TYPE": "k8s,operator", "NETPLUG_NETWORKING_BACKEND": "vxlan"},
    ),
    ({"kubernetesProvider": "RKE2"}, {"CLUSTER_TYPE": "k8s,operator,rke2,bgp"}),
    (
        {"cni": {"type": "AmazonVPC"}},  # check 12
        {"CLUSTER_TYPE": "k8s,operator", "NETPLUG_MANAGE_CNI": "false", "NETPLUG_NETWORKING_BACKEND": "none"},
    ),
])  # fmt: skip
def test_what_a_setting_changes(spec: dict[str, object], variables: dict[str, str]) -> None:
    assert changed(spec) == variables


@pytest.mark.parametrize("detection, method", [
    ({"kubernetes": "NodeInternalIP"}, "kubernetes-internal-ip"),
    ({"interface": "eth.*"}, "interface=eth.*"),
    ({"skipInterface": "br-.*"}, "skip-interface=br-.*"),
    ({"canReach": "10.0.0.1"}, "can-reach=10.0.0.1"),
    ({"cidrs": ["10.0.0.0/8", "192.168.0.0/16"]}, "cidr=10.0.0.0/8,192.168.0.0/16"),
])  # fmt: skip
def test_methods(detection: dict[str, object], method: str) -> None:
    assert changed(network(nodeAddressAutodetectionV4=detection)) == {"IP_AUTODETECTION_METHOD": method}


def test_a_detection_without_a_method_finds_none() -> None:
    found = render_environment(resolved(network(nodeAddressAutodetectionV4={}), pools=(V4, V6)))
    assert (found["IP"], found["IP6"]) == ("none", "autodetect")
    assert "IP_AUTODETECTION_METHOD" not in found
    assert found["IP6_AUTODETECTION_METHOD"] == "first-found"


def test_native_definitions() -> None:
    assert render_environment(resolved(), api_group="projectnetplug.org/v3")["NETPLUG_API_GROUP"] == (
        "projectnetplug.org/v3"
    )


@pytest.mark.parametrize("spec", [{"cni": {"type": "AmazonVPC"}}, network(linuxDataplane="VPP")])
def test_policy_is_enforced_on_the_links_of_our_own_plugin_only(spec: dict[str, object]) -> None:
    """With links of others, or in another dataplane than the kernel, there is nothing to enforce it on."""
    variables = render_environment(resolved(spec, pools=(V4,)))
    assert not {"NETPLUG_POLICY", "NETPLUG_ENDPOINT_TO_HOST_ACTION"} & variables.keys()
    assert "policy_guard" not in (render_conflist(resolved(spec, pools=(V4,)), ClusterFacts(pools=(V4,))) or "")
