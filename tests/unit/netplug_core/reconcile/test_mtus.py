"""The MTU of pods and tunnels, by the interfaces of the host, the pools and what is configured."""

from __future__ import annotations

from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.routing import HostInterface
from netplug_core.reconcile.tunnels import (
    FALLBACK_MTU,
    MTUInputs,
    MTUSettings,
    PodMTU,
    find_mtus,
    find_pod_mtu,
    settle_pod_mtu,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import Encapsulation, IPPool, IPPoolSpec
from netplug_core.resources.nodeconfiguration import NodeConfiguration, NodeConfigurationSpec

V4, V6 = Family.IPV4, Family.IPV6
NOTHING = NodeConfigurationSpec()


def interface(name: str, index: int, *, mtu: int = 1500, is_up: bool = True) -> HostInterface:
    return HostInterface(name=name, index=index, is_up=is_up, mtu=mtu)


LO, ETH0 = interface("lo", 1, mtu=65_536), interface("eth0", 2)


def pool(
    cidr: str,
    *,
    vxlan: Encapsulation = Encapsulation.NEVER,
    ipip: Encapsulation = Encapsulation.NEVER,
    is_disabled: bool = False,
) -> IPPool:
    spec = IPPoolSpec(prefix=Prefix.parse(cidr), vxlan_mode=vxlan, ipip_mode=ipip, is_disabled=is_disabled)
    return IPPool(metadata=Metadata(name=cidr.replace("/", "-").replace(":", "-")), spec=spec)


def pod_mtu(
    *pools: IPPool, mtu: int = 9000, spec: NodeConfigurationSpec = NOTHING, configured: MTUSettings | None = None
) -> int:
    found = find_mtus((LO, interface("eth0", 2, mtu=mtu)), spec, configured or MTUSettings())
    return find_pod_mtu(found, pools, spec)


ALWAYS, CROSS = Encapsulation.ALWAYS, Encapsulation.CROSS_SUBNET


def test_the_mtu_of_pods_is_the_smallest_of_the_encapsulations_that_pools_use() -> None:
    plain, vxlan, vxlan6 = pool("10.1.0.0/16"), pool("10.2.0.0/16", vxlan=ALWAYS), pool("fd00::/64", vxlan=CROSS)
    ipip = pool("10.3.0.0/16", ipip=CROSS)
    assert pod_mtu() == pod_mtu(plain) == 9000
    assert pod_mtu(plain, vxlan) == 8950
    assert pod_mtu(vxlan, vxlan6) == 8930
    assert pod_mtu(ipip) == 8980
    assert pod_mtu(ipip, vxlan) == 8950
    assert pod_mtu(pool("10.2.0.0/16", vxlan=ALWAYS, is_disabled=True)) == 8950
    assert pod_mtu(pool("fd00::/64", ipip=ALWAYS)) == 9000, "IPIP is of IPv4"


def test_a_configured_mtu_counts_and_a_tunnel_that_is_switched_off_does_not() -> None:
    vxlan, vxlan6, ipip = (
        pool("10.2.0.0/16", vxlan=ALWAYS),
        pool("fd00::/64", vxlan=ALWAYS),
        pool("10.3.0.0/16", ipip=ALWAYS),
    )
    spec = NodeConfigurationSpec(vxlan_mtu=1400, vxlan_mtu_v6=1390, ipip_mtu=1380)
    assert (pod_mtu(vxlan, spec=spec), pod_mtu(vxlan6, spec=spec), pod_mtu(ipip, spec=spec)) == (1400, 1390, 1380)
    environ = MTUSettings(ipip=1280, vxlan=1300)
    assert pod_mtu(vxlan, spec=spec, configured=environ) == 1300
    assert pod_mtu(vxlan6, spec=spec, configured=environ) == 1390
    assert pod_mtu(ipip, spec=spec, configured=environ) == 1280
    assert pod_mtu(vxlan, ipip, spec=NodeConfigurationSpec(is_vxlan_enabled=False)) == 8980
    assert pod_mtu(vxlan, ipip, spec=NodeConfigurationSpec(is_ipip_enabled=False, is_vxlan_enabled=True)) == 8950


def test_the_mtu_of_the_host_is_the_smallest_of_its_uplinks() -> None:
    eth1 = interface("enp3s0", 3, mtu=1480)
    found = find_mtus(
        (LO, ETH0, eth1, interface("docker0", 5, mtu=1200), interface("eth9", 6, mtu=1000, is_up=False)), NOTHING
    )
    assert (found.host, found.ipip, found.vxlan, found.problems) == (1480, 1460, {V4: 1430, V6: 1410}, ())
    named = find_mtus((ETH0, interface("bond0", 3, mtu=4000)), NodeConfigurationSpec(mtu_interface_pattern="^bond"))
    assert named.host == 4000


def test_an_mtu_that_is_not_known_or_too_large_is_a_problem() -> None:
    found = find_mtus((LO, interface("bond0", 3, mtu=9000)), NodeConfigurationSpec(vxlan_mtu=2000))
    assert (found.host, found.vxlan[V4]) == (FALLBACK_MTU, 2000)
    (problem,) = found.problems
    assert problem.message == "the MTU of the host is not known; 1460 is taken"
    assert problem.cause == (
        "no interface that is up matches ^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*);"
        " NodeConfiguration mtuIfacePattern can name them"
    )
    large = find_mtus((ETH0,), NodeConfigurationSpec(vxlan_mtu=1501, vxlan_mtu_v6=1500, ipip_mtu=1600))
    assert [f"{each.message}: {each.cause}" for each in large.problems] == [
        "packets of pods are too large for the host: ipipMTU is 1600, and the MTU of the host 1500",
        "packets of pods are too large for the host: vxlanMTU is 1501, and the MTU of the host 1500",
    ]


def test_the_mtu_of_the_pods_of_a_node_follows_from_what_is_stored_and_configured() -> None:
    own = NodeConfiguration(metadata=Metadata(name="node.n1"), spec=NodeConfigurationSpec(vxlan_mtu=1400))
    stored = MTUInputs(pools=(pool("10.2.0.0/16", vxlan=ALWAYS),), configurations=(own,))
    assert settle_pod_mtu("n1", (ETH0,), stored) == PodMTU(mtu=1400)
    assert settle_pod_mtu("n2", (ETH0,), stored) == PodMTU(mtu=1450)
    assert settle_pod_mtu("n2", (ETH0,), stored, MTUSettings(vxlan=1300)) == PodMTU(mtu=1300)
    assert settle_pod_mtu("n2", (), MTUInputs()).mtu == FALLBACK_MTU
    assert len(settle_pod_mtu("n2", (), MTUInputs()).problems) == 1
