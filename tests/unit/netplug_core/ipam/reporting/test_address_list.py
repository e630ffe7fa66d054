"""The list of addresses: who has which one, and what is a problem."""

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.allocation.pools import Reserved
from netplug_core.ipam.model import Attribute, Block
from netplug_core.ipam.reporting.usage import (
    AddressUsers,
    AllocationReport,
    ListedAddress,
    ReportHeader,
    UseState,
    list_addresses,
    reported_allocations,
    used_addresses,
)
from netplug_core.orchestrator.model import ClusterView, PodFacts, PodNetwork, PodPhase
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from tests.harness.resources import make_pool

WEB = WORKLOAD_ENDPOINT.key("default", "web")
POOLS = (make_pool("10.1.0.0/16", "other"), make_pool("10.0.0.0/24", "main"))
HEADER = ReportHeader(version="v1", cluster_guid="", is_locked=False, revision="", cluster_type="")


def make_report(*allocated: tuple[int, str], used: Mapping[str, str], cooling: int | None = None) -> AllocationReport:
    """A report of one block, where endpoints have the ``used`` addresses; the handles are those of the ordinals."""
    block = Block.new(Prefix.parse("10.0.0.0/29"), owner="host:a", now_ns=1)
    for ordinal, handle in allocated:
        block = block.assign((Ordinal(ordinal),), Attribute(handle=handle))
    if cooling is not None:
        block = block.release(frozenset({Ordinal(cooling)}), cooling_from_ns=5)
    users = AddressUsers(endpoints={Address.parse(text): WEB for text in used})
    return AllocationReport(
        header=HEADER, allocations=tuple(reported_allocations(block, users)), leaked_handles=(), handles=0
    )


def problems(found: tuple[ListedAddress, ...]) -> dict[str, tuple[str, ...]]:
    return {str(each.address): each.problems for each in found}


def used(*texts: str) -> dict[Address, str]:
    return dict.fromkeys(map(Address.parse, texts), str(WEB))


def test_what_is_used_is_no_problem_and_what_is_not_is_one() -> None:
    report = make_report((1, "h-a"), (2, "h-b"), used={"10.0.0.1": "web"})
    found = list_addresses(report, used("10.0.0.1"), POOLS, ())
    assert problems(found) == {"10.0.0.1": (), "10.0.0.2": ("no workload endpoint has it",)}
    assert [(each.handle, each.use.state, each.is_allocated) for each in found] == [
        ("h-a", UseState.USED, True),
        ("h-b", UseState.LEAKED, True),
    ]


def test_what_is_used_and_not_allocated_is_a_problem_in_a_pool() -> None:
    report = make_report((3, "h-a"), used={"10.0.0.3": "web"})
    found = list_addresses(report, used("10.0.0.4", "10.0.0.3", "10.0.0.1", "192.0.2.1"), POOLS, ())
    text = "it is not allocated, so another workload may get it from IPPool(main)"
    assert problems(found) == {"10.0.0.1": (text,), "10.0.0.3": (), "10.0.0.4": (text,)}
    assert list(problems(found)) == ["10.0.0.1", "10.0.0.3", "10.0.0.4"]
    assert (found[0].use.text, found[0].is_allocated, found[0].handle) == (str(WEB), False, "")


def test_a_reservation_keeps_an_address_from_other_workloads() -> None:
    """As of pods that choose addresses of a pool without IPAM."""
    report = make_report((1, "h-a"), used={"10.0.0.1": "web"})
    reserved = Reserved.of((Prefix.parse("10.0.0.0/30"), Prefix.parse("10.9.0.0/16")))
    found = list_addresses(report, used("10.0.0.1", "10.0.0.2", "10.0.0.4"), POOLS, (), reserved=reserved)
    assert [(str(each.address), bool(each.problems)) for each in found] == [("10.0.0.1", False), ("10.0.0.4", True)]


def test_a_block_that_cannot_be_read_may_hold_any_address() -> None:
    report = AllocationReport(header=HEADER, allocations=(), leaked_handles=(), handles=0, has_unread_blocks=True)
    assert list_addresses(report, used("10.0.0.4"), POOLS, ()) == ()


@pytest.mark.parametrize("has_damaged_pool", [False, True])
def test_an_address_in_no_pool_is_a_problem_unless_a_pool_cannot_be_read(*, has_damaged_pool: bool) -> None:
    report = make_report((1, "h-a"), used={"10.0.0.1": "web"})
    found = list_addresses(report, used("10.0.0.1", "10.0.0.2"), POOLS[:1], (), has_unread_pools=has_damaged_pool)
    assert problems(found) == {"10.0.0.1": () if has_damaged_pool else ("no IPPool contains it",)}


def test_a_handle_that_is_missing_is_a_problem_of_each_of_its_addresses() -> None:
    report = make_report((1, "h-a"), (2, "h-b"), (3, "h-a"), used={"10.0.0.1": "web", "10.0.0.2": "web"})
    assert problems(list_addresses(report, {}, POOLS, {"h-a"})) == {
        "10.0.0.1": ("its handle is missing or damaged",),
        "10.0.0.2": (),
        "10.0.0.3": ("no workload endpoint has it", "its handle is missing or damaged"),
    }


def test_what_cools_down_is_no_problem() -> None:
    report = make_report((1, "h-a"), used={}, cooling=1)
    (found,) = list_addresses(report, {}, (), {"h-a"})
    assert (found.use.state, found.problems) == (UseState.COOLING, ())


def make_pod(name: str, address: str) -> PodFacts:
    return PodFacts(namespace="default", name=name, uid="", phase=PodPhase.RUNNING, addresses=(Address.parse(address),))


def test_pods_have_addresses_where_they_are_shown() -> None:
    """A pod that ends may have lost its address to another one, and one of the host's network has its node's."""
    pods = (
        make_pod("web", "10.0.0.1"),
        evolve(make_pod("done", "10.0.0.2"), phase=PodPhase.SUCCEEDED),
        evolve(make_pod("failed", "10.0.0.3"), phase=PodPhase.FAILED),
        evolve(make_pod("going", "10.0.0.4"), deletion_time_ns=1),
        evolve(make_pod("host", "10.0.0.5"), network=PodNetwork.HOST),
    )
    endpoints = {Address.parse("10.0.0.2"): WEB}
    assert used_addresses(AddressUsers(endpoints=endpoints, cluster=ClusterView(pods=pods))) == {
        Address.parse("10.0.0.1"): "pod default/web"
    }
    assert used_addresses(AddressUsers(endpoints=endpoints)) == {
        Address.parse("10.0.0.2"): "WorkloadEndpoint(default/web)"
    }
