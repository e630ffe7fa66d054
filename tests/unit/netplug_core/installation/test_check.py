"""What is accepted with a warning."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import Encapsulation, IPPool, IPPoolSpec
from tests.harness.installations import judge, network

INERT = "Installation(default): nothing in this release programs "
SECONDS = "Installation(default): spec.netplugNetwork.linuxPolicySetupTimeoutSeconds: "


def quiet(**fields: object) -> dict[str, object]:
    """A network of which this release programs everything."""
    return network(bgp="Disabled", ipPools=[], **fields)


def test_nothing_to_warn_about() -> None:
    assert judge(quiet(linuxPolicySetupTimeoutSeconds=0)).warnings == ()


@pytest.mark.parametrize("spec, names", [
    (quiet(linuxDataplane="BPF"), "linuxDataplane BPF"),
    (quiet(linuxPodInterfaceType="Netkit"), "linuxPodInterfaceType Netkit"),
])  # fmt: skip
def test_what_nothing_programs_is_named(spec: dict[str, object], names: str) -> None:
    checked = judge(spec)
    assert checked.problems == ()
    assert checked.warnings == (INERT + names,)


@pytest.mark.parametrize("spec", [
    {},
    network(ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "IPIP"}, {"cidr": "fd00::/48", "encapsulation": "None"}]),
    network(bgp="Disabled", ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "VXLAN", "natOutgoing": "Enabled"}]),
    {"cni": {"ipam": {"type": "HostLocal"}}},
])  # fmt: skip
def test_routes_encapsulation_bgp_and_nat_are_programmed(spec: dict[str, object]) -> None:
    checked = judge(spec)
    assert (checked.problems, checked.warnings) == ((), ())


def stored_pool(**settings: object) -> IPPool:
    spec = IPPoolSpec(prefix=Prefix.parse("10.0.0.0/16"), **settings)  # type: ignore[arg-type]
    return IPPool(metadata=Metadata(name="default-ipv4-ippool"), spec=spec)


def test_a_pool_that_the_operator_has_made_is_judged_as_before() -> None:
    """Once the cluster has a pool, an Installation that lists none asks for none."""
    made = stored_pool(vxlan_mode=Encapsulation.ALWAYS, has_outgoing_nat=True)
    without, with_pool = judge({}), judge({}, pools=(made,))
    assert with_pool.resolved is not None
    assert with_pool.resolved.pools == ()
    assert with_pool.warnings == without.warnings


def test_another_plugin_makes_the_routes() -> None:
    made = stored_pool(ipip_mode=Encapsulation.ALWAYS, has_outgoing_nat=True)
    foreign = {"cni": {"type": "GKE"}}
    assert judge(foreign, pools=(made,)).warnings == (
        (
            "Installation(default): with the CNI plugin GKE another program connects the nodes, so that natOutgoing, "
            "ipipMode Always of pools have no effect"
        ),
    )
    disabled = stored_pool(ipip_mode=Encapsulation.ALWAYS, is_disabled=True)
    assert judge(foreign, pools=(disabled,)).warnings == ()


def test_with_host_local_the_platform_may_make_the_routes() -> None:
    spec = {"cni": {"ipam": {"type": "HostLocal"}}, **network(bgp="Disabled")}
    assert judge(spec, pools=(stored_pool(has_outgoing_nat=True),)).warnings == (
        (
            "Installation(default): with IPAM HostLocal and bgp Disabled another program connects the nodes, so that "
            "natOutgoing of pools have no effect"
        ),
    )
    assert judge(spec, pools=(stored_pool(has_outgoing_nat=True, vxlan_mode=Encapsulation.ALWAYS),)).warnings == ()


def test_holding_pods_back_for_longer_than_a_runtime_waits() -> None:
    assert judge(quiet(linuxPolicySetupTimeoutSeconds=220)).warnings == ()
    assert judge(quiet(linuxPolicySetupTimeoutSeconds=2**31 - 1)).warnings == (
        SECONDS + "more than 220 s; a runtime usually cancels the call of a pod after four minutes",
    )


def test_host_bits_are_named() -> None:
    pool = {"cidr": "10.1.2.3/16", "encapsulation": "VXLAN", "natOutgoing": "Disabled"}
    warnings = judge(network(bgp="Disabled", ipPools=[pool])).warnings
    path = "Installation(default): spec.netplugNetwork.ipPools[0].cidr: "
    assert warnings == (f"{path}10.1.2.3/16 is taken as 10.1.0.0/16",)


def test_an_installation_that_selects_nothing_known_is_not_resolved() -> None:
    checked = judge({"cni": {"type": "Calico"}})
    assert checked.resolved is None
    assert len(checked.problems) == 1


def test_a_pool_with_addresses_of_services_is_named() -> None:
    services = (Prefix.parse("10.96.0.0/12"), Prefix.parse("fd00::/108"))
    spec = network(
        bgp="Disabled", ipPools=[{"cidr": "10.100.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}]
    )
    assert judge(spec, service_prefixes=services).warnings == (
        (
            "IPPool(default-ipv4-ippool): spec.cidr: 10.100.0.0/16: it has addresses of the cluster's services "
            "(10.96.0.0/12), so that pods with them are not reached; choose another range"
        ),
    )
    assert judge(spec, service_prefixes=services[1:]).warnings == ()
