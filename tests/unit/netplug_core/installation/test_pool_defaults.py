"""Which pools an installation asks for, and what an entry of the list leaves open."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.installation.settings import ResolvedPool
from netplug_core.resources.installation import PoolEncapsulation
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, Encapsulation
from tests.harness.installations import judge, make_pool, network, resolved

PLATFORM = tuple(map(Prefix.parse, ("10.244.0.0/16", "fd00::/48", "10.245.0.0/16")))


def pools(*cidrs: str, **fields: object) -> dict[str, object]:
    return network(ipPools=[{"cidr": cidr, **fields} for cidr in cidrs])


def names(found: tuple[ResolvedPool, ...]) -> list[tuple[str, str]]:
    return [(one.pool.metadata.name, str(one.pool.spec.prefix)) for one in found]


def test_check_32_a_new_cluster_gets_one_pool() -> None:
    (one,) = resolved().pools
    assert (one.path, one.encapsulation) == ("", PoolEncapsulation.VXLAN)
    spec = one.pool.spec
    assert (one.pool.metadata.name, str(spec.prefix), spec.block_length) == (
        "default-ipv4-ippool",
        "192.168.0.0/16",
        26,
    )
    assert (spec.ipip_mode, spec.vxlan_mode, spec.has_outgoing_nat) == (Encapsulation.NEVER, Encapsulation.ALWAYS, True)
    assert (spec.node_selector, spec.assignment_mode) == ("all()", AssignmentMode.AUTOMATIC)
    assert spec.allowed_uses == (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    assert not spec.is_disabled


def test_the_platform_decides_which() -> None:
    assert names(resolved(platform_prefixes=PLATFORM).pools) == [
        ("default-ipv4-ippool", "10.244.0.0/16"),
        ("default-ipv6-ippool", "fd00::/48"),
        ("10.245.0.0-16", "10.245.0.0/16"),
    ]


def test_check_34_a_listed_pool_lies_within_the_platforms() -> None:
    assert names(resolved(pools("10.244.1.0/24"), platform_prefixes=PLATFORM).pools) == [
        ("default-ipv4-ippool", "10.244.1.0/24")
    ]
    (problem,) = judge(pools("10.0.0.0/16"), platform_prefixes=PLATFORM).problems
    assert problem.accepted == "a CIDR within the platform's 10.244.0.0/16, fd00::/48, 10.245.0.0/16"
    existing = (make_pool("10.0.0.0/16"),)
    assert judge(pools("10.0.0.0/16"), platform_prefixes=PLATFORM, pools=existing).problems == ()


def test_check_35_an_empty_list_asks_for_none() -> None:
    found = resolved(network(ipPools=[]), platform_prefixes=PLATFORM)
    assert (found.pools, found.lists_pools) == ((), True)


def test_without_a_list_the_pools_of_a_cluster_are_left_to_others() -> None:
    found = resolved(pools=(make_pool("10.0.0.0/16"),))
    assert (found.pools, found.lists_pools) == ((), False)


def test_host_local_needs_no_pool() -> None:
    assert resolved({"cni": {"ipam": {"type": "HostLocal"}}}).pools == ()


def test_a_pool_of_ipv6() -> None:
    (one,) = resolved(pools("fd00::/48")).pools
    assert (one.pool.metadata.name, one.encapsulation) == ("default-ipv6-ippool", PoolEncapsulation.VXLAN)
    assert (one.pool.spec.block_length, one.pool.spec.has_outgoing_nat) == (122, False)


def test_check_40_names() -> None:
    assert names(resolved(pools("10.1.0.0/16", "fd00::/64")).pools) == [
        ("default-ipv4-ippool", "10.1.0.0/16"),
        ("default-ipv6-ippool", "fd00::/64"),
    ]
    found = resolved(pools("10.1.0.0/16", "10.2.0.0/16", "fd00::/64"), pools=(make_pool("10.2.0.0/16"),))
    assert names(found.pools) == [
        ("10.1.0.0-16", "10.1.0.0/16"),
        ("existing", "10.2.0.0/16"),
        ("fd00.0000.0000.0000.0000.0000.0000.0000-64", "fd00::/64"),
    ]
    assert names(resolved(pools("10.1.0.0/16", name="mine")).pools) == [("mine", "10.1.0.0/16")]


@pytest.mark.parametrize("text, ipip, vxlan", [
    ("IPIP", "Always", "Never"),
    ("IPIPCrossSubnet", "CrossSubnet", "Never"),
    ("VXLAN", "Never", "Always"),
    ("VXLANCrossSubnet", "Never", "CrossSubnet"),
    ("None", "Never", "Never"),
])  # fmt: skip
def test_encapsulations(text: str, ipip: str, vxlan: str) -> None:
    (one,) = resolved(pools("10.0.0.0/16", encapsulation=text)).pools
    assert (one.pool.spec.ipip_mode.value, one.pool.spec.vxlan_mode.value) == (ipip, vxlan)


def test_check_22_ipip_needs_no_bgp() -> None:
    spec = network(bgp="Disabled", ipPools=[{"cidr": "10.0.0.0/16", "encapsulation": "IPIP"}])
    assert resolved(spec).pools[0].encapsulation is PoolEncapsulation.IPIP


def test_an_address_of_a_load_balancer_is_not_wrapped() -> None:
    (one,) = resolved(pools("10.0.0.0/16", allowedUses=["LoadBalancer"])).pools
    assert one.encapsulation is PoolEncapsulation.NONE


def test_another_plugin_wraps_no_packets() -> None:
    found = resolved({"cni": {"type": "AmazonVPC"}}, platform_prefixes=PLATFORM).pools
    assert [one.encapsulation for one in found] == [PoolEncapsulation.NONE] * 3


@pytest.mark.parametrize("spec", [{}, network(bgp="Disabled")])
def test_host_local_may_use_vxlan(spec: dict[str, object]) -> None:
    spec = {**spec, "cni": {"ipam": {"type": "HostLocal"}}}
    found = resolved(spec, platform_prefixes=PLATFORM).pools
    assert [one.encapsulation for one in found] == [PoolEncapsulation.VXLAN] * 3


@pytest.mark.parametrize(
    "ipip, vxlan, kept",
    [
        (Encapsulation.ALWAYS, Encapsulation.NEVER, PoolEncapsulation.IPIP),
        (Encapsulation.NEVER, Encapsulation.NEVER, PoolEncapsulation.NONE),
        (Encapsulation.NEVER, Encapsulation.CROSS_SUBNET, PoolEncapsulation.VXLAN_CROSS_SUBNET),
        (Encapsulation.ALWAYS, Encapsulation.ALWAYS, PoolEncapsulation.VXLAN),  # no Installation can say that
    ],
)
def test_a_pool_that_exists_keeps_its_encapsulation(
    ipip: Encapsulation, vxlan: Encapsulation, kept: PoolEncapsulation
) -> None:
    """An entry that says none is no reason to change how packets travel in a cluster that runs."""
    made = make_pool("10.0.0.0/16", name="default-ipv4-ippool")
    made = evolve(made, spec=evolve(made.spec, ipip_mode=ipip, vxlan_mode=vxlan))
    (one,) = resolved(pools("10.0.0.0/16"), pools=(made,)).pools
    assert one.encapsulation is kept
    (other,) = resolved(pools("10.1.0.0/16"), pools=(made,)).pools
    assert other.encapsulation is PoolEncapsulation.VXLAN
    (said,) = resolved(pools("10.0.0.0/16", encapsulation="VXLAN"), pools=(made,)).pools
    assert said.encapsulation is PoolEncapsulation.VXLAN


def test_everything_can_be_said() -> None:
    fields = {
        "natOutgoing": "Disabled",
        "nodeSelector": "has(a)",
        "blockSize": 28,
        "disableBGPExport": True,
        "disableNewAllocations": True,
        "allowedUses": ["Workload"],
        "assignmentMode": "Manual",
    }
    (one,) = resolved(pools("10.1.2.3/16", **fields)).pools
    spec = one.pool.spec
    assert (str(spec.prefix), spec.block_length, spec.node_selector) == ("10.1.0.0/16", 28, "has(a)")
    assert (spec.has_outgoing_nat, spec.is_bgp_export_disabled, spec.is_disabled) == (False, True, True)
    assert (spec.allowed_uses, spec.assignment_mode) == ((AllowedUse.WORKLOAD,), AssignmentMode.MANUAL)
