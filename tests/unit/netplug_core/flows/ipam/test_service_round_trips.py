"""How often the store is asked, on one that applies all writes at once: the numbers that were promised.

Warm (a resident process): no read and one commit. Cold (a process per call): at most two reads and one commit, for an
assignment and for a release; the first on a node, and an address by name in a new block, at most three and one.
"""

from collections.abc import Callable, Sequence

import pytest
from attrs import define, evolve

from netplug_core.clock import Deadline
from netplug_core.errors import ContentionExhausted, Unauthorized
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import LinkLayer, ReleaseRequest, Wanted
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.records import Create, Get, Kind, OutcomeUnknown, Revision, Write
from netplug_core.testing.faults import Fault, LostRace, LostReply, RunBefore
from tests.harness.ipam import OTHER_NODE, IPAMHarness, first_block_first, ipv4, ipv6, make_request, specific
from tests.harness.stores import RecordingStore

NOTE: Kind[str] = Kind("Note", ("name",))


def note(name: str) -> EndpointWrites:
    """An endpoint of its own for a workload."""
    key = NOTE.key(name)
    return EndpointWrites(
        queries=(Get(key),), writes=lambda snapshot, _made: () if snapshot.find(key) else (Create(key, name),)
    )


def plain() -> IPAMHarness:
    """One pool of each family."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/16")
    harness.add_pool("six", "fd00::/64")
    return harness


def with_selectors() -> IPAMHarness:
    """Pools that select nodes and namespaces by labels."""
    harness = plain()
    for name in ("main", "six"):
        harness.change_pool(name, node_selector="zone == 'a'", namespace_selector="!has(team)")
    harness.label_node(zone="a")
    return harness


def with_reservations() -> IPAMHarness:
    """Reserved addresses and blocks, and a configuration."""
    harness = plain()
    harness.reserve("r", "10.0.0.0/30", "10.0.0.64/26", "fd00::/127")
    harness.configure(is_affinity_strict=True, max_blocks_per_host=10, cooldown_s=30)
    return harness


CLUSTERS = [plain, with_selectors, with_reservations]
REQUESTS: list[tuple[Wanted, ...]] = [
    (ipv4(),),
    (ipv6(),),
    (ipv4(), ipv6()),
    (ipv4(5), ipv6(5)),
    (ipv4(1, "main"), ipv6(1, "fd00::/64")),
]
clusters = pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.__name__)
requests = pytest.mark.parametrize(
    "wanted", REQUESTS, ids=lambda wanted: "+".join(f"{w.count}{w.family}" for w in wanted)
)


# --- cold ---------------------------------------------------------------------------------------------------------


@clusters
@requests
def test_the_first_assignment_on_a_node_takes_at_most_three_reads_and_one_commit(
    cluster: Callable[[], IPAMHarness], wanted: tuple[Wanted, ...]
) -> None:
    harness = cluster()
    harness.take_call_counts()
    harness.assign(make_request("h", *wanted), part=note("n"))
    reads, commits = harness.take_call_counts()
    assert (reads, commits) == (3 if cluster is with_selectors else 2, 1)


@clusters
@requests
def test_any_other_takes_two_reads_and_one_commit(
    cluster: Callable[[], IPAMHarness], wanted: tuple[Wanted, ...]
) -> None:
    harness = cluster()
    harness.assign_or_refuse("h0", ipv4(), ipv6())
    harness.take_call_counts()
    harness.assign(make_request("h", *wanted), part=note("n"))
    assert harness.take_call_counts() == (2, 1)


@clusters
@requests
def test_a_release_takes_two_reads_and_one_commit(
    cluster: Callable[[], IPAMHarness], wanted: tuple[Wanted, ...]
) -> None:
    harness = cluster()
    harness.assign_or_refuse("h", *wanted)
    harness.take_call_counts()
    harness.ipam().release(ReleaseRequest(handle="h"), note("n"), deadline=harness.deadline)
    assert harness.take_call_counts() == (2, 1)


@clusters
def test_asking_again_takes_two_reads_and_no_commit(cluster: Callable[[], IPAMHarness]) -> None:
    harness = cluster()
    harness.assign_or_refuse("h", ipv4(), ipv6())
    harness.take_call_counts()
    harness.assign_or_refuse("h", ipv4(), ipv6())
    assert harness.take_call_counts() == (2, 0)
    harness.release("nothing")
    assert harness.take_call_counts() == (1, 0)


@clusters
@pytest.mark.parametrize(
    "wanted", [(specific("10.0.9.9"),), (specific("fd00::99"),), (specific("10.0.9.9"), specific("fd00::99"))]
)
def test_an_address_by_name_takes_two_reads_and_one_commit_and_one_read_more_in_a_new_block(
    cluster: Callable[[], IPAMHarness], wanted: tuple[Wanted, ...]
) -> None:
    """Only for a new block the stored ones around it are read: on some stores that is a list of all blocks."""
    harness = cluster()
    harness.take_call_counts()
    harness.assign(make_request("h", *wanted), part=note("n"))
    assert harness.take_call_counts() == (3, 1)
    harness.release("h")
    harness.clock.sleep(60)
    harness.take_call_counts()
    harness.assign(make_request("h", *wanted), part=note("m"))
    assert harness.take_call_counts() == (2, 1)


def test_a_full_block_of_its_own_costs_one_read_more() -> None:
    harness = plain()
    harness.assign_or_refuse("h0", ipv4(64))
    harness.take_call_counts()
    harness.assign_or_refuse("h")
    assert harness.take_call_counts() == (3, 1)


# --- warm ---------------------------------------------------------------------------------------------------------


def warm(cluster: Callable[[], IPAMHarness]) -> IPAMHarness:
    """A cluster seen by a resident process that has served a call of each family."""
    harness = cluster()
    harness.enable_cache(NOTE)
    harness.assign_or_refuse("first", ipv4(), ipv6())
    harness.take_call_counts()
    return harness


@clusters
@requests
def test_an_assignment_of_a_resident_process_takes_no_read_and_one_commit(
    cluster: Callable[[], IPAMHarness], wanted: tuple[Wanted, ...]
) -> None:
    harness = warm(cluster)
    for number in range(3):
        harness.assign(make_request(f"h{number}", *wanted), part=note(f"n{number}"))
        assert harness.take_call_counts() == (0, 1)
    assert len(set(harness.held())) == len(harness.held())


@clusters
def test_an_address_by_name_from_a_block_that_is_remembered_takes_one_commit_too(
    cluster: Callable[[], IPAMHarness],
) -> None:
    harness = warm(cluster)
    harness.assign(make_request("h", specific("10.0.0.9"), specific("fd00::9")), part=note("n"))
    assert harness.take_call_counts() == (0, 1)


def test_a_block_that_nobody_looked_at_yet_is_read() -> None:
    harness = warm(plain)
    harness.assign_or_refuse("h", specific("10.0.9.9"))
    assert harness.take_call_counts() == (2, 1)
    harness.put_owned_block("10.0.8.0/26", OTHER_NODE)
    harness.take_call_counts()
    harness.assign_or_refuse("h2", specific("10.0.8.9"))
    assert harness.take_call_counts() == (1, 1)


def test_a_new_block_is_claimed_with_one_read() -> None:
    harness = warm(plain)
    harness.assign_or_refuse("h1", ipv4(64))
    assert harness.take_call_counts() == (1, 1)
    harness.assign_or_refuse("h2", ipv4(2))
    assert harness.take_call_counts() == (0, 1)


def test_what_others_changed_costs_a_conflict_and_a_fresh_read() -> None:
    harness = warm(plain)
    resident, harness.cache = harness.cache, None
    harness.assign_or_refuse("h1", node="node-a")
    harness.add_pool("a", "11.0.0.0/24")
    harness.take_call_counts()
    harness.cache = resident
    assert harness.assign_or_refuse("h2", ipv4(1, "main")) == ["10.0.0.2"]
    assert harness.take_call_counts() == (2, 2)


# --- against others -----------------------------------------------------------------------------------------------


def test_a_lost_race_waits_before_it_tries_again_and_longer_each_time() -> None:
    """Trap 41: full jitter, here half of 8, 16, 32 and 64 ms."""
    harness = plain()
    harness.take_call_counts()
    script: dict[int, Fault] = {number: LostRace() for number in range(1, 5)}
    assert harness.assign(make_request("h"), script) == ["10.0.0.0"]
    assert harness.clock.elapsed_ns == (4 + 8 + 16 + 32) * 1_000_000
    assert harness.take_call_counts() == (
        2 * 5 + 4,
        1,
    )  # two reads for each try; the script looks at what stood in the way


def test_a_call_that_loses_every_race_ends_at_its_deadline_and_waits_half_a_second_at_most() -> None:
    """Trap 41: the number of tries is bounded by the time, not by a hundred."""
    harness = plain()
    ipam = harness.ipam({number: LostRace() for number in range(1, 1000)})
    with pytest.raises(ContentionExhausted) as caught:
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=Deadline.after(harness.clock, 60))
    assert 240 <= caught.value.attempts <= 260
    assert harness.clock.elapsed_ns == 60 * 1_000_000_000


def test_two_nodes_that_lose_to_each_other_both_get_their_address() -> None:
    harness = plain()
    rival = RunBefore(lambda: harness.assign_or_refuse("h2", node=OTHER_NODE))
    assert harness.assign(make_request("h1"), {1: rival}) == ["10.0.0.64"]
    assert harness.held() == {"10.0.0.0": "h2", "10.0.0.64": "h1"}


@define
class ReadOnlyStore(RecordingStore):
    """A store that lets this client read and not write."""

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        self.commits.append(tuple(writes))
        raise Unauthorized("the store", "may not write")


def test_a_call_without_the_right_to_write_fails_at_once() -> None:
    """Trap 31: no right is won by asking a hundred times."""
    harness = plain()
    store = ReadOnlyStore(harness.store)
    ipam = BlockIPAM(datastore=store, clock=harness.clock, chance=lambda: 0.5, order=first_block_first)
    with pytest.raises(Unauthorized, match="may not write"):
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert (len(store.commits), harness.clock.elapsed_ns) == (1, 0)


def test_what_a_lost_reply_left_is_taken_back_with_time_of_its_own() -> None:
    """Trap 5: the call's deadline has passed, and still nothing stays held."""
    harness = plain()

    def pass_away() -> float:
        harness.clock.sleep(60)
        return 0.0

    ipam = evolve(harness.ipam({1: LostReply()}), chance=pass_away)
    with pytest.raises(OutcomeUnknown):
        ipam.assign(make_request("h"), NO_ENDPOINT, deadline=harness.deadline)
    assert (harness.held(), harness.handles()) == ({}, [])


def test_reach_costs_nothing() -> None:
    harness = plain()
    harness.take_call_counts()
    assert harness.assign(evolve(make_request("h"), link_layer=LinkLayer.L2)) == ["10.0.0.2"]
    assert harness.take_call_counts() == (2, 1)
