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
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import Attachment, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.outcome import PoolsExhausted, StrictlyExhausted
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import PAGE_SIZE
from netplug_core.testing.faults import Fault, RunBefore
from tests.harness.ipam import NODE, OTHER_NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.ipam_service import NOTE_KIND, make_cluster, note_endpoint_part, refusing_endpoint_part


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """The cluster over a store of either sort."""
    return make_cluster(request.param)


# --- round trips -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [(ipv4(),), (ipv6(),), (ipv4(), ipv6())])
def test_a_nodes_first_assignment_takes_two_reads_and_one_commit(
    harness: IPAMHarness, wanted: tuple[Automatic, ...]
) -> None:
    harness.assign(evolve(make_request("h"), wanted=wanted))
    assert harness.take_call_counts() == (2 + harness.rereads, 1)


def test_an_assignment_from_its_own_block_takes_two_reads_and_one_commit(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(), ipv6())
    harness.take_call_counts()
    harness.assign(make_request("h2", ipv4(), ipv6()), part=note_endpoint_part())
    assert harness.take_call_counts() == (2, 1)


def test_an_assignment_beyond_its_own_block_takes_three_reads_and_one_commit(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(64))
    harness.take_call_counts()
    harness.assign_or_refuse("h2")
    assert harness.take_call_counts() == (3 + harness.rereads, 1)


def test_a_release_takes_two_reads_and_one_commit(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h1", ipv4(65), ipv6())
    harness.take_call_counts()
    harness.ipam().release(ReleaseRequest(handle="h1"), note_endpoint_part(), deadline=harness.deadline)
    assert harness.take_call_counts() == (2, 1)


def test_a_list_from_a_cache_that_lacks_the_own_block_is_read_again_and_no_second_block_is_claimed() -> None:
    harness = IPAMHarness.new(MemoryMode.KUBE_LIKE)
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse("h1")
    harness.take_call_counts()
    assert harness.assign_or_refuse("h2") == ["10.0.0.1"]
    assert harness.take_call_counts() == (3, 1)
    harness.refresh_cache()
    assert harness.assign_or_refuse("h3") == ["10.0.0.2"]
    assert harness.take_call_counts() == (2, 1)
    assert list(harness.blocks()) == ["10.0.0.0/26"]


def test_a_list_from_a_cache_that_names_a_block_of_others_is_read_again_before_an_affinity_is_deleted() -> None:
    harness = IPAMHarness.new(MemoryMode.KUBE_LIKE)
    harness.add_pool("main", "10.0.0.0/24")
    harness.assign_or_refuse("h1")
    harness.refresh_cache()
    relinquish_node(harness.store, NODE, Emptiness.NOT_REQUIRED, pace=harness.pace)
    assert harness.affinities() == {}
    harness.take_call_counts()
    assert harness.assign_or_refuse("h2") == ["10.0.0.1"]
    assert harness.store.calls.commits == 1
    assert harness.affinities() == {(NODE, "10.0.0.0/26"): "confirmed"}


# --- the endpoint ------------------------------------------------------------------------------------------------


def test_addresses_and_endpoint_are_settled_in_one_commit(harness: IPAMHarness) -> None:
    assert harness.assign(make_request("h"), part=note_endpoint_part()) == ["10.0.0.0"]
    assert harness.get(NOTE_KIND.key("n")) == "10.0.0.0"
    assert harness.take_call_counts() == (3 + harness.rereads, 1)  # one of the reads is this test's
    harness.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=harness.deadline)
    assert harness.find(NOTE_KIND.key("n")) is None
    assert harness.held() == {}


def test_an_endpoint_is_settled_where_the_addresses_were_held_already(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    assert harness.assign(make_request("h"), part=note_endpoint_part()) == ["10.0.0.0"]
    assert harness.get(NOTE_KIND.key("n")) == "10.0.0.0"
    harness.release("h")
    harness.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=harness.deadline)
    assert harness.find(NOTE_KIND.key("n")) is None


def test_an_endpoint_that_refuses_keeps_everything_as_it_was(harness: IPAMHarness) -> None:
    refusal = ConfigurationError("endpoint", "x", "y")
    with pytest.raises(ConfigurationError):
        harness.assign(make_request("h"), part=refusing_endpoint_part(refusal))
    assert harness.held() == {}
    harness.assign_or_refuse("h")
    with pytest.raises(ConfigurationError):
        harness.ipam().release(ReleaseRequest(handle="h"), refusing_endpoint_part(refusal), deadline=harness.deadline)
    assert harness.held() == {"10.0.0.0": "h"}


def test_a_shortfall_leaves_the_endpoint_alone(harness: IPAMHarness) -> None:
    with pytest.raises(PoolsExhausted):
        harness.assign(make_request("h", ipv4(257)), part=note_endpoint_part())
    assert harness.find(NOTE_KIND.key("n")) is None


# --- locked while a commit is on its way -------------------------------------------------------------------------


def lock(harness: IPAMHarness) -> dict[int, Fault]:
    return {1: RunBefore(lambda: harness.set_ready(is_ready=False))}


def test_a_lock_that_comes_between_read_and_commit_is_seen() -> None:
    harness = make_cluster()
    harness.assign_or_refuse("held")
    request, gone = make_request("h"), ReleaseRequest(handle="held")
    calls: tuple[Callable[[BlockIPAM], object], ...] = (
        lambda ipam: ipam.assign(request, NO_ENDPOINT, deadline=harness.deadline),
        lambda ipam: ipam.assign(make_request("held"), note_endpoint_part(), deadline=harness.deadline),
        lambda ipam: ipam.release(gone, NO_ENDPOINT, deadline=harness.deadline),
        lambda ipam: ipam.release(ReleaseRequest(handle="h"), note_endpoint_part("old"), deadline=harness.deadline),
    )
    harness.put(NOTE_KIND.key("old"), "an endpoint without addresses")
    for call in calls:
        harness.set_ready(is_ready=True)
        with pytest.raises(Unavailable, match="pod networking is locked"):
            call(harness.ipam(lock(harness)))
    assert harness.held() == {"10.0.0.0": "held"}
    assert (harness.find(NOTE_KIND.key("n")), harness.find(NOTE_KIND.key("old"))) == (
        None,
        "an endpoint without addresses",
    )


def test_a_pool_that_goes_between_read_and_commit_gives_nothing() -> None:
    harness = make_cluster()
    with pytest.raises(NetplugError, match="is disabled"):
        harness.assign(make_request("h"), {1: RunBefore(lambda: harness.disable_pool("main"))})
    assert (harness.blocks(), harness.handles()) == ({}, [])


# --- questions ---------------------------------------------------------------------------------------------------


def test_the_addresses_of_a_handle_are_returned_though_the_cluster_is_locked(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", ipv4(2), ipv6())
    harness.set_ready(is_ready=False)
    harness.take_call_counts()
    held = harness.ipam().held("h", deadline=harness.deadline)
    assert [str(address) for address in held.addresses] == ["10.0.0.0", "10.0.0.1", "fd00::"]
    assert harness.ipam().held("unknown", deadline=harness.deadline).addresses == ()
    assert harness.take_call_counts() == (3, 0)


def test_a_probe_writes_nothing_and_says_what_an_assignment_would(harness: IPAMHarness) -> None:
    ipam = harness.ipam()
    ipam.probe(make_request("h"), deadline=harness.deadline)
    with pytest.raises(PoolsExhausted):
        ipam.probe(evolve(make_request("h", ipv4(257)), shortfall=Shortfall.RETURN), deadline=harness.deadline)
    harness.put_handle("h", b0=1)
    with pytest.raises(PoolsExhausted):
        ipam.probe(make_request("h", ipv4(257)), deadline=harness.deadline)
    assert harness.handles() == ["h"]
    harness.set_ready(is_ready=False)
    with pytest.raises(Unavailable):
        ipam.probe(make_request("h"), deadline=harness.deadline)


def test_attachments_are_found_in_all_blocks_page_by_page() -> None:
    harness = make_cluster()
    harness.add_pool("narrow", "11.0.0.0/20", 32)
    owner = (("container", "c1"), ("interface", "eth0"), ("network", "net"))
    harness.assign(evolve(make_request("h1", ipv4(1, "narrow")), owner=owner))
    for number in range(1, PAGE_SIZE):
        harness.put_block(f"11.0.{number // 256}.{number % 256}/32", node=OTHER_NODE)
    second = (("container", "c2"), ("interface", "eth0"), ("network", "net"))
    harness.assign(evolve(make_request("h2", ipv6()), owner=second))
    harness.take_call_counts()
    found = harness.ipam().attachments(node=NODE, network="net", deadline=harness.deadline)
    assert found == (
        Attachment(container_id="c1", interface="eth0", handle="h1"),
        Attachment(container_id="c2", interface="eth0", handle="h2"),
    )
    assert harness.take_call_counts() == (2, 0)
    assert harness.ipam().attachments(node=OTHER_NODE, network="net", deadline=harness.deadline) == ()


# --- races -------------------------------------------------------------------------------------------------------


def test_who_loses_the_race_for_an_address_gets_the_next(harness: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: harness.assign_or_refuse("rival"))}
    assert harness.assign(make_request("h"), rival) == ["10.0.0.1"]
    assert len(harness.blocks()) == 1


def test_who_loses_the_race_for_a_block_gets_another(harness: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: harness.assign_or_refuse("rival", node=OTHER_NODE))}
    assert harness.assign(make_request("h"), rival) == ["10.0.0.64"]
    assert harness.affinities() == {(OTHER_NODE, "10.0.0.0/26"): "confirmed", (NODE, "10.0.0.64/26"): "confirmed"}


def test_two_calls_for_one_handle_get_the_same_addresses(harness: IPAMHarness) -> None:
    rival = {1: RunBefore(lambda: harness.assign_or_refuse("h"))}
    assert harness.assign(make_request("h"), rival) == ["10.0.0.0"]
    assert harness.held() == {"10.0.0.0": "h"}


def test_who_loses_the_race_for_the_last_block_borrows_and_leaves_no_claim(harness: IPAMHarness) -> None:
    for number in range(3):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    rival = {1: RunBefore(lambda: harness.assign_or_refuse("rival", node=OTHER_NODE))}
    assert harness.assign(make_request("h"), rival) == ["10.0.0.1"]
    assert NODE not in {node for node, _block in harness.affinities()}


def test_under_strict_affinity_it_is_refused_and_leaves_nothing(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    for number in range(3):
        harness.assign_or_refuse(f"h{number}", node=f"node-{number}")
    rival = {1: RunBefore(lambda: harness.assign_or_refuse("rival", node=OTHER_NODE))}
    with pytest.raises(StrictlyExhausted):
        harness.assign(make_request("h"), rival)
    assert NODE not in {node for node, _block in harness.affinities()}
    assert "h" not in harness.handles()


def test_a_release_that_meets_an_assignment_of_its_handle_leaves_one_of_the_two(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h")
    harness.release("h", {1: RunBefore(lambda: harness.assign_or_refuse("h", ipv4(3)))})
    assert (harness.held(), harness.handles()) == ({}, [])
    harness.assign_or_refuse("h")
    harness.assign(make_request("h", ipv4(2)), {1: RunBefore(lambda: harness.release("h"))})
    assert set(harness.held().values()) == {"h"}
    assert sum(harness.handle_counts("h").values()) == len(harness.held()) == 2


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


def test_many_at_once_on_one_node_get_an_address_each(harness: IPAMHarness) -> None:
    answers = settle([partial(harness.assign_or_refuse, f"h{number}", ipv4(), ipv6()) for number in range(40)])
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert len(given) == len(set(given)) == 80
    assert len(harness.held()) == 80
    assert set(harness.affinities().values()) == {"confirmed"}
    assert {(NODE, block) for block in harness.blocks()} == set(harness.affinities())


def settle_twenty_nodes(harness: IPAMHarness) -> list[list[str] | NetplugError]:
    names = [f"node-{number}" for number in range(20)]
    return settle([partial(harness.assign_or_refuse, f"h-{name}", node=name) for name in names])


def test_twenty_nodes_on_four_blocks_are_all_served_and_most_of_them_borrow(harness: IPAMHarness) -> None:
    answers = settle_twenty_nodes(harness)
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert len(given) == len(set(given)) == len(harness.held()) == len(harness.handles()) == 20
    assert len(harness.blocks()) == len(harness.affinities()) == 4
    assert {f"host:{node}" for node, _block in harness.affinities()} == set(harness.blocks().values())


def test_under_strict_affinity_four_of_twenty_nodes_are_served(harness: IPAMHarness) -> None:
    harness.configure(is_affinity_strict=True)
    answers = settle_twenty_nodes(harness)
    assert sum(isinstance(answer, list) for answer in answers) == 4
    assert all(isinstance(answer, StrictlyExhausted) for answer in answers if not isinstance(answer, list))
    assert len(harness.held()) == len(harness.handles()) == len(harness.blocks()) == len(harness.affinities()) == 4
    assert {f"host:{node}" for node, _block in harness.affinities()} == set(harness.blocks().values())


def test_assigning_and_releasing_at_once_leaves_the_books_balanced(harness: IPAMHarness) -> None:
    def churn(number: int) -> list[str]:
        node, given = f"node-{number % 3}", []
        for turn in range(5):
            given = harness.assign_or_refuse(f"h{number}-{turn}", ipv4(2), node=node)
            if turn < 4:
                harness.release(f"h{number}-{turn}")
        return given

    answers = settle([partial(churn, number) for number in range(8)])
    given = [address for answer in answers if isinstance(answer, list) for address in answer]
    assert sorted(given) == sorted(harness.held())
    assert len(given) == 16
    assert harness.handles() == [f"h{number}-4" for number in range(8)]
