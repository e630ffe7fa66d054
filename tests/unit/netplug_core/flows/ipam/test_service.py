"""The block allocator over a store: round trips, endpoints in the commit, questions, races."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Attachment, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.outcome.refusals import PoolsExhausted, StrictlyExhausted
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import PAGE_SIZE
from netplug_core.testing.faults import Fault, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.ipam_service import NOTE_KIND, make_cluster, note_endpoint_part, refusing_endpoint_part


@pytest.fixture(params=MemoryMode)
def bench(request: pytest.FixtureRequest) -> IPAMHarness:
    """The cluster over a store of either sort."""
    return make_cluster(request.param)


# --- round trips -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [(ipv4(),), (ipv6(),), (ipv4(), ipv6())])
def test_a_nodes_first_assignment_takes_two_reads_and_one_commit(
    bench: IPAMHarness, wanted: tuple[Automatic, ...]
) -> None:
    bench.assign(evolve(make_request("h"), wanted=wanted))
    assert bench.take_call_counts() == (2, 1)


def test_an_assignment_from_its_own_block_takes_two_reads_and_one_commit(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(), ipv6())
    bench.take_call_counts()
    bench.assign(make_request("h2", ipv4(), ipv6()), part=note_endpoint_part())
    assert bench.take_call_counts() == (2, 1)


def test_an_assignment_beyond_its_own_block_takes_three_reads_and_one_commit(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(64))
    bench.take_call_counts()
    bench.assign_or_refuse("h2")
    assert bench.take_call_counts() == (3, 1)


def test_a_release_takes_two_reads_and_one_commit(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h1", ipv4(65), ipv6())
    bench.take_call_counts()
    bench.ipam().release(ReleaseRequest(handle="h1"), note_endpoint_part(), deadline=bench.deadline)
    assert bench.take_call_counts() == (2, 1)


# --- the endpoint ------------------------------------------------------------------------------------------------


def test_addresses_and_endpoint_are_settled_in_one_commit(bench: IPAMHarness) -> None:
    assert bench.assign(make_request("h"), part=note_endpoint_part()) == ["10.0.0.0"]
    assert bench.get(NOTE_KIND.key("n")) == "10.0.0.0"
    assert bench.take_call_counts() == (3, 1)  # one of the reads is this test's
    bench.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=bench.deadline)
    assert bench.find(NOTE_KIND.key("n")) is None
    assert bench.held() == {}


def test_an_endpoint_is_settled_where_the_addresses_were_held_already(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h")
    assert bench.assign(make_request("h"), part=note_endpoint_part()) == ["10.0.0.0"]
    assert bench.get(NOTE_KIND.key("n")) == "10.0.0.0"
    bench.release("h")
    bench.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=bench.deadline)
    assert bench.find(NOTE_KIND.key("n")) is None


def test_an_endpoint_that_refuses_keeps_everything_as_it_was(bench: IPAMHarness) -> None:
    refusal = ConfigurationError("endpoint", "x", "y")
    with pytest.raises(ConfigurationError):
        bench.assign(make_request("h"), part=refusing_endpoint_part(refusal))
    assert bench.held() == {}
    bench.assign_or_refuse("h")
    with pytest.raises(ConfigurationError):
        bench.ipam().release(ReleaseRequest(handle="h"), refusing_endpoint_part(refusal), deadline=bench.deadline)
    assert bench.held() == {"10.0.0.0": "h"}


def test_a_shortfall_leaves_the_endpoint_alone(bench: IPAMHarness) -> None:
    with pytest.raises(PoolsExhausted):
        bench.assign(make_request("h", ipv4(257)), part=note_endpoint_part())
    assert bench.find(NOTE_KIND.key("n")) is None


# --- locked while a commit is on its way -------------------------------------------------------------------------


def lock(harness: IPAMHarness) -> dict[int, Fault]:
    return {1: RunBefore(lambda: harness.set_ready(is_ready=False))}


def test_a_lock_that_comes_between_read_and_commit_is_seen() -> None:
    bench = make_cluster()
    bench.assign_or_refuse("held")
    wish, gone = make_request("h"), ReleaseRequest(handle="held")
    calls: tuple[Callable[[BlockIPAM], object], ...] = (
        lambda ipam: ipam.assign(wish, NO_ENDPOINT, deadline=bench.deadline),
        lambda ipam: ipam.assign(make_request("held"), note_endpoint_part(), deadline=bench.deadline),
        lambda ipam: ipam.release(gone, NO_ENDPOINT, deadline=bench.deadline),
        lambda ipam: ipam.release(ReleaseRequest(handle="h"), note_endpoint_part("old"), deadline=bench.deadline),
    )
    bench.put(NOTE_KIND.key("old"), "an endpoint without addresses")
    for call in calls:
        bench.set_ready(is_ready=True)
        with pytest.raises(Unavailable, match="pod networking is locked"):
            call(bench.ipam(lock(bench)))
    assert bench.held() == {"10.0.0.0": "held"}
    assert (bench.find(NOTE_KIND.key("n")), bench.find(NOTE_KIND.key("old"))) == (None, "an endpoint without addresses")


def test_a_pool_that_goes_between_read_and_commit_gives_nothing() -> None:
    bench = make_cluster()
    with pytest.raises(NetplugError, match="is disabled"):
        bench.assign(make_request("h"), {1: RunBefore(lambda: bench.disable_pool("main"))})
    assert (bench.blocks(), bench.handles()) == ({}, [])


# --- questions ---------------------------------------------------------------------------------------------------


def test_what_a_handle_holds_is_told_though_the_cluster_is_locked(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h", ipv4(2), ipv6())
    bench.set_ready(is_ready=False)
    bench.take_call_counts()
    held = bench.ipam().held("h", deadline=bench.deadline)
    assert [str(address) for address in held.addresses] == ["10.0.0.0", "10.0.0.1", "fd00::"]
    assert bench.ipam().held("unknown", deadline=bench.deadline).addresses == ()
    assert bench.take_call_counts() == (3, 0)


def test_a_probe_writes_nothing_and_says_what_an_assignment_would(bench: IPAMHarness) -> None:
    ipam = bench.ipam()
    ipam.probe(make_request("h"), deadline=bench.deadline)
    with pytest.raises(PoolsExhausted):
        ipam.probe(evolve(make_request("h", ipv4(257)), shortfall=Shortfall.RETURN), deadline=bench.deadline)
    bench.put_handle("h", b0=1)
    with pytest.raises(PoolsExhausted):
        ipam.probe(make_request("h", ipv4(257)), deadline=bench.deadline)
    assert bench.handles() == ["h"]
    bench.set_ready(is_ready=False)
    with pytest.raises(Unavailable):
        ipam.probe(make_request("h"), deadline=bench.deadline)


def test_attachments_are_found_in_all_blocks_page_by_page() -> None:
    bench = make_cluster()
    bench.add_pool("narrow", "11.0.0.0/20", 32)
    owner = (("container", "c1"), ("interface", "eth0"), ("network", "net"))
    bench.assign(evolve(make_request("h1", ipv4(1, "narrow")), owner=owner))
    for number in range(1, PAGE_SIZE):
        bench.put_block(f"11.0.{number // 256}.{number % 256}/32", node=OTHER_NODE)
    second = (("container", "c2"), ("interface", "eth0"), ("network", "net"))
    bench.assign(evolve(make_request("h2", ipv6()), owner=second))
    bench.take_call_counts()
    found = bench.ipam().attachments(node=NODE, network="net", deadline=bench.deadline)
    assert found == (
        Attachment(container_id="c1", interface="eth0", handle="h1"),
        Attachment(container_id="c2", interface="eth0", handle="h2"),
    )
    assert bench.take_call_counts() == (2, 0)
    assert bench.ipam().attachments(node=OTHER_NODE, network="net", deadline=bench.deadline) == ()


# --- races -------------------------------------------------------------------------------------------------------


def test_who_loses_the_race_for_an_address_gets_the_next(bench: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: bench.assign_or_refuse("rival"))}
    assert bench.assign(make_request("h"), rival) == ["10.0.0.1"]
    assert len(bench.blocks()) == 1


def test_who_loses_the_race_for_a_block_gets_another(bench: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: bench.assign_or_refuse("rival", node=OTHER_NODE))}
    assert bench.assign(make_request("h"), rival) == ["10.0.0.64"]
    assert bench.affinities() == {(OTHER_NODE, "10.0.0.0/26"): "confirmed", (NODE, "10.0.0.64/26"): "confirmed"}


def test_two_calls_for_one_handle_get_the_same_addresses(bench: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: bench.assign_or_refuse("h"))}
    assert bench.assign(make_request("h"), rival) == ["10.0.0.0"]
    assert bench.held() == {"10.0.0.0": "h"}


def test_who_loses_the_race_for_the_last_block_borrows_and_leaves_no_claim(bench: IPAMHarness) -> None:
    for number in range(3):
        bench.assign_or_refuse(f"h{number}", node=f"node-{number}")
    rival = {1: RunBefore(lambda: bench.assign_or_refuse("rival", node=OTHER_NODE))}
    assert bench.assign(make_request("h"), rival) == ["10.0.0.1"]
    assert NODE not in {node for node, _block in bench.affinities()}


def test_under_strict_affinity_it_is_refused_and_leaves_nothing(bench: IPAMHarness) -> None:
    bench.configure(is_affinity_strict=True)
    for number in range(3):
        bench.assign_or_refuse(f"h{number}", node=f"node-{number}")
    rival = {1: RunBefore(lambda: bench.assign_or_refuse("rival", node=OTHER_NODE))}
    with pytest.raises(StrictlyExhausted):
        bench.assign(make_request("h"), rival)
    assert NODE not in {node for node, _block in bench.affinities()}
    assert "h" not in bench.handles()


def test_a_release_that_meets_an_assignment_of_its_handle_leaves_one_of_the_two(bench: IPAMHarness) -> None:
    bench.assign_or_refuse("h")
    bench.release("h", {1: RunBefore(lambda: bench.assign_or_refuse("h", ipv4(3)))})
    assert (bench.held(), bench.handles()) == ({}, [])
    bench.assign_or_refuse("h")
    bench.assign(make_request("h", ipv4(2)), {1: RunBefore(lambda: bench.release("h"))})
    assert set(bench.held().values()) == {"h"}
    assert sum(bench.handle_counts("h").values()) == len(bench.held()) == 2


@contextmanager
def eager_switches() -> Iterator[None]:
    """Threads take turns far more often than they do by themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def settle(jobs: list[Callable[[], list[str]]]) -> list[list[str] | NetplugError]:
    """Run jobs in threads; their answers in order."""

    def run(job: Callable[[], list[str]]) -> list[str] | NetplugError:
        try:
            return job()
        except NetplugError as error:
            return error

    with eager_switches(), ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(run, jobs))


def test_many_at_once_on_one_node_get_an_address_each(bench: IPAMHarness) -> None:
    answers = settle([partial(bench.assign_or_refuse, f"h{number}", ipv4(), ipv6()) for number in range(40)])
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert len(given) == len(set(given)) == 80
    assert len(bench.held()) == 80
    assert set(bench.affinities().values()) == {"confirmed"}
    assert {(NODE, block) for block in bench.blocks()} == set(bench.affinities())


def settle_twenty_nodes(harness: IPAMHarness) -> list[list[str] | NetplugError]:
    names = [f"node-{number}" for number in range(20)]
    return settle([partial(harness.assign_or_refuse, f"h-{name}", node=name) for name in names])


def test_twenty_nodes_on_four_blocks_are_all_served_and_most_of_them_borrow(bench: IPAMHarness) -> None:
    answers = settle_twenty_nodes(bench)
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert len(given) == len(set(given)) == len(bench.held()) == len(bench.handles()) == 20
    assert len(bench.blocks()) == len(bench.affinities()) == 4
    assert {f"host:{node}" for node, _block in bench.affinities()} == set(bench.blocks().values())


def test_under_strict_affinity_four_of_twenty_nodes_are_served(bench: IPAMHarness) -> None:
    bench.configure(is_affinity_strict=True)
    answers = settle_twenty_nodes(bench)
    assert sum(isinstance(answer, list) for answer in answers) == 4
    assert all(isinstance(answer, StrictlyExhausted) for answer in answers if not isinstance(answer, list))
    assert len(bench.held()) == len(bench.handles()) == len(bench.blocks()) == len(bench.affinities()) == 4
    assert {f"host:{node}" for node, _block in bench.affinities()} == set(bench.blocks().values())


def test_assigning_and_releasing_at_once_leaves_the_books_balanced(bench: IPAMHarness) -> None:
    def churn(number: int) -> list[str]:
        node, given = f"node-{number % 3}", []
        for turn in range(5):
            given = bench.assign_or_refuse(f"h{number}-{turn}", ipv4(2), node=node)
            if turn < 4:
                bench.release(f"h{number}-{turn}")
        return given

    answers = settle([partial(churn, number) for number in range(8)])
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert sorted(given) == sorted(bench.held())
    assert len(given) == 16
    assert bench.handles() == [f"h{number}-4" for number in range(8)]
