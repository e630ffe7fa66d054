"""What a commit may suffer, and what a call that fails takes back: every row of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address
from netplug_core.datastore.protocol import Atomicity
from netplug_core.errors import (
    ConfigurationError,
    ContentionExhausted,
    NetplugError,
    RequestError,
    Unauthorized,
    Unavailable,
)
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.ipam.allocation.request import AssignRequest, ReleaseItem, ReleaseRequest
from netplug_core.ipam.outcome import PoolsExhausted
from netplug_core.records import (
    Conflict,
    NotSupported,
    OutcomeUnknown,
    Revision,
)
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.faults import Fault, LostRace, LostReply, LostRequest, ProcessDeath, ProcessDied, RunBefore
from tests.harness.ipam import NODE, IPAMHarness, ipv4, ipv6, make_request
from tests.harness.ipam_service import NOTE_KIND, make_cluster, note_endpoint_part
from tests.harness.stores import CommitScript, HookedStore, ScriptedStore, SendWrites

REQUEST = make_request("h", ipv4(), ipv6())
BLOCK_0 = "10.0.0.0/26"


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> IPAMHarness:
    """The cluster over a store of either sort."""
    return make_cluster(request.param)


# --- a fault at every write --------------------------------------------------------------------------------------


def faults(harness: IPAMHarness, count: int) -> Iterator[Fault]:
    """Everything that may happen to a commit of so many writes."""
    cuts = range(count + 1) if harness.store.description.atomicity is Atomicity.ORDERED else (0, count)
    for applied in cuts:
        yield ProcessDeath(applied)
        yield LostReply(applied) if applied else LostRequest()
        if applied < count:
            yield LostRequest(applied)
            yield LostRace(applied)


def writes_of_a_first_assignment(harness: IPAMHarness) -> int:
    """Those of both families, and one for the endpoint."""
    return len(harness.decision(make_request("h", ipv4(), ipv6())).writes) + 1


def named(harness: IPAMHarness) -> set[str]:
    """The addresses that the endpoint says it has."""
    return set((harness.find(NOTE_KIND.key("n")) or "").split())


@pytest.mark.parametrize("mode", MemoryMode)
def test_whatever_happens_to_an_assignment_its_release_leaves_nothing(mode: MemoryMode) -> None:
    request = make_request("h", ipv4(), ipv6())
    count = writes_of_a_first_assignment(make_cluster(mode))
    for fault in faults(make_cluster(mode), count):
        harness = make_cluster(mode)
        try:
            harness.assign(request, {1: fault}, part=note_endpoint_part())
        except (ProcessDied, Unavailable):
            pass
        else:
            assert harness.held() == {"10.0.0.0": "h", "fd00::": "h"}, fault
        assert named(harness) <= harness.held().keys(), fault
        harness.ipam().release(ReleaseRequest(handle="h"), note_endpoint_part(), deadline=harness.deadline)
        assert (harness.held(), harness.handles(), harness.find(NOTE_KIND.key("n"))) == ({}, [], None), fault
        # What is left of the claims serves the node's next pod.
        assert harness.assign_or_refuse("h2", ipv4(), ipv6())[0].startswith("10.0.0."), fault
        assert set(harness.affinities().values()) == {"confirmed"}, fault
        assert {(NODE, block) for block in harness.blocks()} == set(harness.affinities()), fault


@pytest.mark.parametrize("mode", MemoryMode)
def test_whatever_happens_to_a_release_the_next_one_ends_it(mode: MemoryMode) -> None:
    for fault in faults(make_cluster(mode), 6):  # lock, configuration, two blocks, handle, endpoint
        harness = make_cluster(mode)
        harness.assign(make_request("h", ipv4(), ipv6()), part=note_endpoint_part())
        harness.assign_or_refuse("other", ipv4(), ipv6())
        gone = ReleaseRequest(handle="h")
        try:
            harness.ipam({1: fault}).release(gone, note_endpoint_part(), deadline=harness.deadline)
        except (ProcessDied, Unavailable):
            assert named(harness) <= harness.held().keys(), fault
            harness.ipam().release(gone, note_endpoint_part(), deadline=harness.deadline)
        assert harness.held() == {"10.0.0.1": "other", "fd00::1": "other"}, fault
        assert named(harness) == set(), fault
        assert harness.handles() == ["other"], fault


def test_a_lost_reply_gives_the_same_addresses_once(harness: IPAMHarness) -> None:
    assert harness.assign(make_request("h", ipv4(2), ipv6()), {1: LostReply()}) == ["10.0.0.0", "10.0.0.1", "fd00::"]
    assert len(harness.held()) == 3


def test_an_assignment_cut_in_the_middle_goes_on_where_it_was() -> None:
    harness = make_cluster(MemoryMode.ORDERED)
    count = writes_of_a_first_assignment(harness)
    assert harness.assign(make_request("h", ipv4(), ipv6()), {1: LostReply(count - 2)}) == ["10.0.0.0", "fd00::"]
    assert harness.held() == {"10.0.0.0": "h", "fd00::": "h"}


def test_a_release_whose_reply_was_lost_returns_what_it_freed(harness: IPAMHarness) -> None:
    harness.assign_or_refuse("h", ipv4(2), ipv6())
    assert harness.release("h", {1: LostReply()}) == ["10.0.0.0", "10.0.0.1", "fd00::"]
    assert (harness.held(), harness.handles()) == ({}, [])


# --- what a call that fails takes back ---------------------------------------------------------------------------


def raise_before_commit(error: BaseException) -> CommitScript:
    """The process is signalled to stop before the commit leaves it."""

    def fault(_send: SendWrites) -> tuple[Revision, ...]:
        raise error

    return fault


def raise_after_commit(error: BaseException) -> CommitScript:
    """The process is signalled to stop when the commit is made."""

    def fault(send: SendWrites) -> tuple[Revision, ...]:
        send(None)
        raise error

    return fault


def answered_too_late(harness: IPAMHarness, applied: int | None = None) -> CommitScript:
    """The store does what it is asked, or so many writes of it, and the answer does not come in time."""

    def fault(send: SendWrites) -> tuple[Revision, ...]:
        send(applied)
        harness.clock.sleep(120)
        raise OutcomeUnknown("the store", "no answer", applied or 0)

    return fault


def lost_too_late(harness: IPAMHarness, applied: int) -> CommitScript:
    """Another writer was first at a write of an ordered store, and no time is left."""

    def fault(send: SendWrites) -> tuple[Revision, ...]:
        send(applied)
        harness.clock.sleep(120)
        raise Conflict(ippool_key("main"), applied, None, applied)

    return fault


REFUSALS: list[NetplugError] = [
    Unauthorized("the store", "a right is missing"),
    RequestError("the pod does not exist"),
    ConfigurationError("nodename", "a", "the pod is on another node"),
    NotSupported("storing", NOTE_KIND, "not here"),
]
"""What may come from the middle of an ordered store's writes, and is no lost race."""


def refused_at(applied: int, error: NetplugError) -> CommitScript:
    """An ordered store makes so many writes, and may not make the next one."""

    def fault(send: SendWrites) -> tuple[Revision, ...]:
        send(applied)
        raise error

    return fault


def unanswered(send: SendWrites) -> tuple[Revision, ...]:
    """The store does what it is asked, and there is time to look."""
    send(None)
    raise OutcomeUnknown("the store", "no answer")


def suffer(harness: IPAMHarness, *faults: CommitScript, request: AssignRequest = REQUEST) -> ScriptedStore:
    """Assign over a store that is unlucky."""
    store = ScriptedStore(harness.store, scripts=faults)
    evolve(harness.ipam(), datastore=store).assign(request, note_endpoint_part(), deadline=harness.deadline)
    return store


def assert_nothing_is_left(harness: IPAMHarness) -> None:
    assert (harness.held(), harness.handles(), harness.find(NOTE_KIND.key("n"))) == ({}, [], None)


def test_nothing_that_was_not_sent_is_taken_back(harness: IPAMHarness) -> None:
    store = ScriptedStore(harness.store, scripts=[raise_before_commit(Unavailable("the store", "away"))])
    with pytest.raises(Unavailable, match="away") as caught:
        evolve(harness.ipam(), datastore=store).assign(REQUEST, note_endpoint_part(), deadline=harness.deadline)
    assert (len(store.commits), len(store.reads)) == (1, 2 + harness.rereads)  # neither a read nor a commit more
    assert not hasattr(caught.value, "__notes__")


def test_a_reply_that_is_lost_in_time_is_looked_up_and_nothing_is_taken_back(harness: IPAMHarness) -> None:
    assert len(suffer(harness, unanswered).commits) == 1
    assert harness.held() == {"10.0.0.0": "h", "fd00::": "h"}


def test_trap_45_what_a_reply_that_came_too_late_may_mean_is_taken_back_in_time_of_its_own(
    harness: IPAMHarness,
) -> None:
    """The deadline has passed by then; taking back has another one (and trap 5: it cannot be used up by waiting)."""
    store = ScriptedStore(harness.store, scripts=[answered_too_late(harness)])
    with pytest.raises(OutcomeUnknown, match="no answer") as caught:
        evolve(harness.ipam(), datastore=store).assign(REQUEST, note_endpoint_part(), deadline=harness.deadline)
    assert not hasattr(caught.value, "__notes__")
    assert len(store.commits) == 2
    assert store.deadlines_s[-1] > 0
    assert_nothing_is_left(harness)
    assert set(harness.affinities().values()) == {"confirmed"}  # the node's next pod needs a block all the same


def test_trap_45_any_part_of_a_commit_is_taken_back() -> None:
    for applied in range(writes_of_a_first_assignment(make_cluster(MemoryMode.ORDERED)) + 1):
        for fault in (answered_too_late, lost_too_late):
            harness = make_cluster(MemoryMode.ORDERED)
            with pytest.raises((OutcomeUnknown, ContentionExhausted)):
                suffer(harness, fault(harness, applied))
            assert_nothing_is_left(harness)
            assert harness.assign_or_refuse("h2", ipv4(), ipv6())[0].startswith("10.0.0."), applied
            assert set(harness.affinities().values()) == {"confirmed"}, applied


def test_a_lost_race_that_left_no_handle_has_nothing_to_take_back() -> None:
    harness = make_cluster(MemoryMode.ORDERED)
    writes = harness.decision(REQUEST).writes
    handle = next(index for index, write in enumerate(writes) if "IPAMHandle" in str(getattr(write, "key", "")))
    for applied, commits in ((handle, 1), (handle + 1, 2)):
        harness = make_cluster(MemoryMode.ORDERED)
        store = ScriptedStore(harness.store, scripts=[lost_too_late(harness, applied)])
        with pytest.raises(ContentionExhausted):
            evolve(harness.ipam(), datastore=store).assign(REQUEST, note_endpoint_part(), deadline=harness.deadline)
        assert len(store.commits) == commits


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_what_an_ordered_store_wrote_before_it_refused_is_taken_back(error: NetplugError) -> None:
    """A right that is missing for the third write has not kept the first two from being made."""
    for applied in range(writes_of_a_first_assignment(make_cluster(MemoryMode.ORDERED))):
        harness = make_cluster(MemoryMode.ORDERED)
        with pytest.raises(type(error)) as caught:
            suffer(harness, refused_at(applied, error))
        assert caught.value is error
        assert not hasattr(error, "__notes__"), error.__notes__
        assert_nothing_is_left(harness)
        assert harness.assign_or_refuse("h2", ipv4(), ipv6())[0].startswith("10.0.0."), applied


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_what_it_wrote_without_a_handle_is_freed(error: NetplugError) -> None:
    for applied in range(writes_of_a_first_assignment(make_cluster(MemoryMode.ORDERED)) - 1):
        harness = make_cluster(MemoryMode.ORDERED)
        with pytest.raises(type(error)):
            suffer(harness, refused_at(applied, error), request=make_request(None, ipv4(), ipv6()))
        assert harness.held() == {}, applied


def test_a_handle_that_held_addresses_before_keeps_them_when_a_right_is_missing() -> None:
    harness = make_cluster(MemoryMode.ORDERED)
    harness.assign_or_refuse("h")
    with pytest.raises(Unauthorized):
        suffer(harness, refused_at(0, REFUSALS[0]), request=make_request("h", ipv4(3)))
    assert harness.held() == {"10.0.0.0": "h"}


def test_an_atomic_store_that_refuses_has_written_nothing() -> None:
    harness = make_cluster(MemoryMode.ATOMIC)
    store = ScriptedStore(harness.store, scripts=[refused_at(0, REFUSALS[0])])
    with pytest.raises(Unauthorized):
        evolve(harness.ipam(), datastore=store).assign(REQUEST, note_endpoint_part(), deadline=harness.deadline)
    assert (len(store.commits), len(store.reads)) == (1, 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
def test_trap_45_a_stopped_call_takes_back_its_writes_first(harness: IPAMHarness, error: BaseException) -> None:
    for fault in (raise_before_commit, raise_after_commit):
        with pytest.raises(type(error)) as caught:
            suffer(harness, fault(error))
        assert caught.value is error
        assert_nothing_is_left(harness)


def test_trap_45_a_call_stopped_after_the_deadline_takes_back_too(harness: IPAMHarness) -> None:
    def late(send: SendWrites) -> tuple[Revision, ...]:
        send(None)
        harness.clock.sleep(120)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suffer(harness, late)
    assert_nothing_is_left(harness)


def test_a_call_that_is_stopped_between_two_attempts_takes_back(harness: IPAMHarness) -> None:
    def chance() -> float:
        raise KeyboardInterrupt

    ipam = evolve(harness.ipam(), datastore=ScriptedStore(harness.store, scripts=[unanswered]), chance=chance)
    with pytest.raises(KeyboardInterrupt):
        ipam.assign(REQUEST, note_endpoint_part(), deadline=harness.deadline)
    assert_nothing_is_left(harness)


def test_a_handle_that_this_call_wrote_itself_is_not_taken_for_an_older_one() -> None:
    """The second try reads what the first one left, and fails too."""
    harness = make_cluster(MemoryMode.ORDERED)
    made = writes_of_a_first_assignment(harness) - 3  # the handle is written, and no address is taken

    def cut(send: SendWrites) -> tuple[Revision, ...]:
        send(made)
        raise OutcomeUnknown("the store", "no answer", made)

    with pytest.raises(OutcomeUnknown):
        suffer(harness, cut, answered_too_late(harness, 0))
    assert_nothing_is_left(harness)


@pytest.mark.parametrize("error", [OutcomeUnknown("the store", "no answer"), KeyboardInterrupt()])
def test_a_handle_that_held_addresses_before_keeps_them(harness: IPAMHarness, error: BaseException) -> None:
    def too_late(send: SendWrites) -> tuple[Revision, ...]:
        send(None)
        harness.clock.sleep(120)
        raise error

    harness.assign_or_refuse("h")
    with pytest.raises(type(error)):
        suffer(harness, too_late, request=make_request("h", ipv4(3)))
    assert harness.held() == {f"10.0.0.{number}": "h" for number in range(3)}
    assert harness.handle_counts("h") == {BLOCK_0: 3}


def test_what_cannot_be_taken_back_is_said_beside_the_reason(harness: IPAMHarness) -> None:
    away = raise_before_commit(Unavailable("the store", "away"))
    with pytest.raises(OutcomeUnknown) as caught:
        suffer(harness, answered_too_late(harness), away)
    assert caught.value.__notes__ == ["what it had written could not be taken back: the store: away"]
    assert set(harness.held().values()) == {"h"}
    harness.ipam().release(
        ReleaseRequest(handle="h"), note_endpoint_part(), deadline=harness.deadline
    )  # as the runtime's DEL does
    assert_nothing_is_left(harness)


def test_addresses_without_a_handle_cannot_be_recognized_and_stay(harness: IPAMHarness) -> None:
    store = ScriptedStore(harness.store, scripts=[answered_too_late(harness)])
    with pytest.raises(OutcomeUnknown):
        evolve(harness.ipam(), datastore=store).assign(
            make_request(None), note_endpoint_part(), deadline=harness.deadline
        )
    assert len(store.commits) == 1
    assert harness.held() == {"10.0.0.0": None}


def test_a_lost_reply_of_a_request_without_a_handle_is_not_tried_again(harness: IPAMHarness) -> None:
    with pytest.raises(OutcomeUnknown):
        harness.assign(make_request(None), {1: LostReply()})
    assert harness.held() == {"10.0.0.0": None}


def test_a_store_that_is_slow_to_answer_ends_the_call_at_its_deadline(harness: IPAMHarness) -> None:
    with pytest.raises(Unavailable, match="this process: the deadline passed while reading"):
        evolve(harness.ipam(), datastore=HookedStore(harness.store, after_read=lambda: harness.clock.sleep(61))).assign(
            REQUEST, note_endpoint_part(), deadline=harness.deadline
        )
    assert_nothing_is_left(harness)


def test_a_refusal_after_a_lost_reply_leaves_nothing() -> None:
    """The first try had taken what there was; the second one finds it, and may not have it any more."""
    harness = make_cluster()

    def lost(send: SendWrites) -> tuple[Revision, ...]:
        send(None)
        harness.release("h")
        harness.remove(ippool_key("main"))
        harness.add_pool("tiny", "11.0.0.0/32", 32)
        harness.assign_or_refuse("other", ipv4(1, "tiny"))
        raise OutcomeUnknown("the store", "no answer")

    with pytest.raises(PoolsExhausted):
        suffer(harness, lost, request=make_request("h", ipv4()))
    assert harness.held() == {"11.0.0.0": "other"}
    assert harness.handles() == ["other"]


def test_what_a_lost_race_leaves_of_a_request_without_a_handle_is_freed() -> None:
    """Of two blocks one had given its address already; the next try could not know that it was for this request."""

    def small() -> IPAMHarness:
        harness = make_cluster(MemoryMode.ORDERED)
        harness.add_pool("small", "11.0.0.0/29", 31)
        return harness

    request = make_request(None, ipv4(3, "small"))
    for applied in range(len(small().decision(request).writes)):
        harness = small()
        given = harness.assign(request, {1: LostRace(applied)})
        assert len(given) == 3
        assert harness.held().keys() == set(given), applied


def test_a_release_returns_what_it_freed_itself(harness: IPAMHarness) -> None:
    assert harness.assign_or_refuse("h", ipv4(2)) == ["10.0.0.0", "10.0.0.1"]

    def free_one() -> None:
        item = ReleaseItem(address=Address.parse("10.0.0.0"))
        release_addresses(harness.store, (item,), pace=harness.pace)

    assert harness.release("h", {1: RunBefore(free_one)}) == ["10.0.0.1"]
    assert harness.held() == {}
