"""The values for routes between nodes: what identifies them, and their texts in errors."""

from __future__ import annotations

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import (
    ADVERTISED_TABLE,
    BLACKHOLE_METRIC,
    Entry,
    FailedChange,
    FdbEntry,
    Nexthop,
    Put,
    Route,
    RouteKind,
    Tunnel,
    TunnelKind,
    TunnelNeighbour,
    tunnel_gateway,
)

GATEWAY, MAC, BLOCK = Address.parse("10.1.0.1"), "66:00:00:00:00:01", Prefix.parse("10.1.0.0/26")
TUNNEL = Tunnel(name="vxlan.netplug", kind=TunnelKind.VXLAN, address=GATEWAY, local=GATEWAY, mtu=1450)


@pytest.mark.parametrize(
    "entry,key,text",
    [
        (TUNNEL, "vxlan.netplug", "the vxlan device vxlan.netplug"),
        (FdbEntry("v", MAC, GATEWAY), ("v", MAC), f"the FDB entry of v: {MAC} at 10.1.0.1"),
        (TunnelNeighbour("v", GATEWAY, MAC), ("v", GATEWAY), f"the neighbour 10.1.0.1 at {MAC} on v"),
        (Nexthop(7, "v", GATEWAY, is_onlink=True), 7, "nexthop 7: 10.1.0.1 over v"),
        (Route(destination=BLOCK, nexthop=7), (254, BLOCK, 20), "the route to 10.1.0.0/26 by nexthop 7"),
        (
            Route(destination=BLOCK, device="eth0", gateway=GATEWAY),
            (254, BLOCK, 20),
            "the route to 10.1.0.0/26 via 10.1.0.1 over eth0",
        ),
        (
            Route(destination=BLOCK, device="v", table=ADVERTISED_TABLE),
            (7801, BLOCK, 20),
            "the route to 10.1.0.0/26 via the link over v of table 7801",
        ),
        (
            Route(destination=BLOCK, kind=RouteKind.BLACKHOLE, metric=BLACKHOLE_METRIC),
            (254, BLOCK, 4096),
            "the blackhole 10.1.0.0/26",
        ),
    ],
)
def test_each_entry_has_a_key_and_a_text(entry: Entry, key: object, text: str) -> None:
    assert entry.key == key
    assert str(entry) == text


def test_a_failed_change_names_its_entry() -> None:
    failed = FailedChange(Put(TUNNEL), KernelError("adding the device", "File exists"))
    assert str(failed).startswith("the vxlan device vxlan.netplug: ")


@pytest.mark.parametrize(
    "address,mac,gateway",
    [
        ("10.65.2.0", MAC, "10.65.2.0"),
        ("fd65::2:0", MAC, "fe80::6400:ff:fe00:1"),
        ("fd65::2:0", "ee:ee:ee:ee:ee:ee", "fe80::ecee:eeff:feee:eeee"),
    ],
)
def test_a_tunnel_gateway_is_on_the_link(address: str, mac: str, gateway: str) -> None:
    assert tunnel_gateway(Address.parse(address), mac) == Address.parse(gateway)
