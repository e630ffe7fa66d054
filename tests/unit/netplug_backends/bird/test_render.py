"""The configuration of BIRD: recorded texts, and what is never printed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.bird.render import render
from netplug_core.addressing import Address, Family
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, FilterRule, RouteFilter
from netplug_core.resources.bgp import FilterAction
from tests.harness.bgp import MESH_PLAN, PLANS

RECORDED = Path(__file__).parent / "recorded"
RECORDS = os.environ.get("NETPLUG_RECORD") == "1"
LOG = "/var/run/netplug/bird/bird.log"
SESSION = MESH_PLAN.sessions[0]


@pytest.mark.parametrize("name", PLANS)
def test_the_text_is_the_recorded_one(name: str) -> None:
    """With ``NETPLUG_RECORD=1`` the texts are written anew; read them then."""
    file, found = RECORDED / f"{name}.conf", render(PLANS[name], log_file=LOG)
    if RECORDS and (not file.exists() or file.read_text() != found):
        file.write_text(found)
        pytest.fail(f"recorded: read {file.name}")
    assert found == file.read_text()


def test_equal_plans_are_equal_bytes() -> None:
    assert render(evolve(MESH_PLAN), log_file=LOG) == render(MESH_PLAN, log_file=LOG)


def test_interfaces_are_looked_at_anew_when_their_addresses_change() -> None:
    """BIRD does so in a protocol of another name alone."""
    more = evolve(MESH_PLAN, interface_addresses=(Address.parse("fd10::99"),))
    first, second = (render(plan, log_file=LOG).splitlines() for plan in (MESH_PLAN, more))
    different = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
    assert [re.sub("interfaces_[0-9a-f]{8} ", "interfaces ", line) for line in different[0]] == [
        'protocol direct interfaces { ipv4; ipv6; interface -"kube-ipvs*", -"netp*", "*"; }'
    ] * 2
    assert len(different) == 1


def of_interface(name: str) -> BgpPlan:
    rules = (FilterRule(action=FilterAction.REJECT, interface=name),)
    return evolve(MESH_PLAN, filters=(RouteFilter(name="edge", family=Family.IPV4, exported=rules),))


@pytest.mark.parametrize(
    "plan, text",
    [
        (evolve(MESH_PLAN, sessions=(evolve(SESSION, name="a; b"),)), "'a; b' is no name of letters, digits and '_'"),
        (evolve(MESH_PLAN, sessions=(evolve(SESSION, filters=("a.b",)),)), "'a.b' is no name of letters"),
        (evolve(MESH_PLAN, filters=(RouteFilter(name="a-b", family=Family.IPV4),)), "'a-b' is no name of letters"),
        (evolve(MESH_PLAN, ignored_interfaces=('eth0"',)), "'eth0\"' is no name of interfaces"),
        (of_interface("eth0 }"), "'eth0 }' is no name of interfaces"),
    ],
)
def test_a_text_that_is_no_name_is_refused(plan: BgpPlan, text: str) -> None:
    with pytest.raises(BgpRefused) as caught:
        render(plan, log_file=LOG)
    assert caught.value.text.startswith(text)


@pytest.mark.parametrize("password", ['a"b', "a\\b", "a\nb"])
def test_a_password_that_cannot_be_quoted_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(BgpRefused) as caught:
        render(evolve(MESH_PLAN, sessions=(evolve(SESSION, password=password),)), log_file=LOG)
    assert caught.value.text == "a password has a quote, a backslash or a control character"


def test_the_log_has_a_path_that_can_be_quoted() -> None:
    with pytest.raises(BgpRefused, match="the path of the log"):
        render(MESH_PLAN, log_file='a"b')
