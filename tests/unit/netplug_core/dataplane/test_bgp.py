"""The values of BGP: what follows from a session and from a plan, and the texts of errors."""

from attrs import evolve

from netplug_core.addressing import Address, Family
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, BgpSession

FOUR, SIX = Address.parse("10.240.0.11"), Address.parse("fd10::11")


def session(address: Address, *, peer_as: int) -> BgpSession:
    return BgpSession(name="s", peer="p", address=address, port=179, local_as=64512, peer_as=peer_as)


def test_a_session_is_for_the_family_of_its_address() -> None:
    assert [session(one, peer_as=1).family for one in (FOUR, SIX)] == [Family.IPV4, Family.IPV6]


def test_a_session_is_internal_within_one_as() -> None:
    assert session(FOUR, peer_as=64512).is_internal
    assert not session(FOUR, peer_as=65001).is_internal


def test_a_password_is_not_shown() -> None:
    one = evolve(session(FOUR, peer_as=1), password="secret")  # noqa: S106  # no password
    assert "secret" not in repr(one)


def test_a_plan_has_an_address_of_each_family_or_none() -> None:
    plan = BgpPlan(node="a", router_id=FOUR, addresses=(SIX,))
    assert (plan.find_address(Family.IPV4), plan.find_address(Family.IPV6)) == (None, SIX)


def test_a_refusal_says_what_the_daemon_said() -> None:
    error = BgpRefused("bird.conf:3:1 syntax error")
    assert str(error) == "the BGP daemon refuses its configuration: bird.conf:3:1 syntax error"
