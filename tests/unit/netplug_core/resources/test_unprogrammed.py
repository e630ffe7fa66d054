"""What is said of pools whose settings nothing programs."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool
from netplug_core.resources.unprogrammed import NO_ROUTES, find_unrouted, inert_settings, is_wrapped, pools_warning
from tests.harness.installations import make_pool


def pool(name: str = "a", **settings: object) -> IPPool:
    made = make_pool("10.0.0.0/16", name=name)
    return evolve(made, spec=evolve(made.spec, **settings))  # type: ignore[arg-type]


def test_the_sentence() -> None:
    assert NO_ROUTES == "pods of different nodes do not reach each other: no routes are programmed"


@pytest.mark.parametrize(
    "settings, is_unrouted",
    [({}, True), ({"is_disabled": True}, False), ({"allowed_uses": (AllowedUse.LOAD_BALANCER,)}, False)],
)
def test_pools_for_pods_need_routes(settings: dict[str, object], *, is_unrouted: bool) -> None:
    assert bool(find_unrouted([pool("a", **settings)])) is is_unrouted


def test_what_of_a_pool_has_no_effect() -> None:
    plain = pool()
    wrapped = pool(has_outgoing_nat=True, ipip_mode=Encapsulation.ALWAYS, vxlan_mode=Encapsulation.CROSS_SUBNET)
    assert inert_settings(plain) == ()
    assert not is_wrapped(plain)
    assert inert_settings(wrapped) == ("natOutgoing", "ipipMode Always", "vxlanMode CrossSubnet")
    assert is_wrapped(wrapped)


@pytest.mark.parametrize(
    "pools, warning",
    [
        ([], ""),
        ([pool()], ""),
        ([pool(ipip_mode=Encapsulation.ALWAYS, is_disabled=True)], ""),
        ([pool(has_outgoing_nat=True)], "nothing in this release programs natOutgoing"),
        (
            [pool(), pool(has_outgoing_nat=True), pool(has_outgoing_nat=True, vxlan_mode=Encapsulation.ALWAYS)],
            f"nothing in this release programs natOutgoing, vxlanMode Always; {NO_ROUTES}",
        ),
    ],
)
def test_one_line_for_all_pools_of_a_table(pools: list[IPPool], warning: str) -> None:
    assert pools_warning(pools) == warning
