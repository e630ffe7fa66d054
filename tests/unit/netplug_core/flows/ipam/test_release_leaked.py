"""Releases from reports on every memory store: old reports, other reports, races, kills, and lost replies."""

from collections.abc import Callable

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.datastore.protocol import Atomicity, Datastore
from netplug_core.flows.ipam.leaks import (
    HandleResult,
    ReleaseNotAllowed,
    ReleasePlan,
    plan_release,
    release_handle,
    release_planned_addresses,
    require_usable,
)
from netplug_core.ipam.model import Handle, handle_key
from netplug_core.ipam.reporting.usage import HandleRef, LeakList
from netplug_core.testing.faults import FaultyDatastore, LostReply, ProcessDeath, ProcessDied, RunBefore
from tests.harness.collector import CollectorHarness, leave_handle
from tests.harness.leaks import (
    VERSION,
    make_harness,
    make_pace,
    put_endpoint,
    put_pod,
    read_leaks,
    set_cluster,
    show_pods,
)
from tests.harness.stores import RecordingStore

LEAKED = ("10.0.0.1", "10.0.0.2", "10.0.0.5", "fd00::1")


@pytest.fixture(params=MemoryMode)
def harness(request: pytest.FixtureRequest) -> CollectorHarness:
    """Four leaked addresses in three blocks, one of them without a handle, and one address in use."""
    harness = make_harness(request.param)
    harness.assign_to("10.0.0.1", "h-one")
    harness.assign_to("10.0.0.2", "h-two")
    harness.assign_to("10.0.0.5", None)
    harness.assign_to("fd00::1", "h-one")
    harness.assign_to("10.0.0.3", "h-used")
    put_endpoint(harness, "used", "10.0.0.3")
    return harness


def plan(
    harness: CollectorHarness, *reports: LeakList, before_look: Callable[[], object] = lambda: None
) -> ReleasePlan:
    return plan_release(
        harness.store,
        reports or (read_leaks(harness),),
        deadline=harness.deadline,
        before_look=before_look,
    )


def due(found: ReleasePlan) -> list[str]:
    return [str(each.ref.address) for each in found.addresses if each.is_due]


def release(harness: CollectorHarness, found: ReleasePlan, store: Datastore | None = None) -> list[str]:
    released = release_planned_addresses(store or harness.store, found, pace=lambda: make_pace(harness))
    return [str(address) for addresses in released for address in addresses]


def give_again(harness: CollectorHarness, address: str, handle: str) -> None:
    harness.release(address)
    harness.assign_to(address, handle)


def test_leaked_addresses_are_released_and_their_handles_with_them(harness: CollectorHarness) -> None:
    found = plan(harness)
    assert due(found) == list(LEAKED)
    assert (found.outdated, found.handles) == (0, ())
    assert release(harness, found) == list(LEAKED)
    assert harness.held() == {"10.0.0.3": "h-used"}
    assert harness.handles() == ["h-used"]


def test_the_same_report_again_finds_nothing(harness: CollectorHarness) -> None:
    report = read_leaks(harness)
    release(harness, plan(harness, report))
    looks: list[int] = []
    again = plan(harness, report, before_look=lambda: looks.append(1))
    assert (again.addresses, again.outdated, looks) == ((), 4, [])
    assert release(harness, again) == []


def test_only_what_every_report_calls_leaked(harness: CollectorHarness) -> None:
    first = read_leaks(harness)
    give_again(harness, "10.0.0.2", "h-two")
    put_endpoint(harness, "late", "10.0.0.5")
    second = read_leaks(harness)
    assert due(plan(harness, first, second)) == ["10.0.0.1", "fd00::1"]
    assert due(plan(harness, second, first)) == ["10.0.0.1", "fd00::1"]


@pytest.mark.parametrize("handle", ["h-two", "h-other"])
def test_an_address_that_was_given_again_stays(harness: CollectorHarness, handle: str) -> None:
    report = read_leaks(harness)
    give_again(harness, "10.0.0.2", handle)
    found = plan(harness, report)
    assert (due(found), found.outdated) == (["10.0.0.1", "10.0.0.5", "fd00::1"], 1)
    release(harness, found)
    assert harness.held() == {"10.0.0.2": handle, "10.0.0.3": "h-used"}


@pytest.mark.parametrize("handle", ["h-two", "h-other"])
def test_an_address_that_is_given_again_right_before_the_commit_stays(harness: CollectorHarness, handle: str) -> None:
    """Its block is refused as a whole then; its other addresses are released all the same."""
    found = plan(harness)
    store = FaultyDatastore(harness.inner, {1: RunBefore(lambda: give_again(harness, "10.0.0.2", handle))})
    assert sorted(release(harness, found, store)) == ["10.0.0.1", "10.0.0.5", "fd00::1"]
    assert harness.held() == {"10.0.0.2": handle, "10.0.0.3": "h-used"}


def test_an_address_that_is_in_use_by_now_stays(harness: CollectorHarness) -> None:
    """The ADD had written its address when the report was made, and writes its endpoint while the release waits."""
    report = read_leaks(harness)
    found = plan(harness, report, before_look=lambda: put_endpoint(harness, "late", "10.0.0.1"))
    assert due(found) == ["10.0.0.2", "10.0.0.5", "fd00::1"]
    (kept,) = [each for each in found.addresses if not each.is_due]
    assert (str(kept.ref.address), kept.use.text) == ("10.0.0.1", "WorkloadEndpoint(default/late)")
    release(harness, found)
    assert harness.held() == {"10.0.0.1": "h-one", "10.0.0.3": "h-used"}


def test_pods_that_came_since_keep_their_addresses(harness: CollectorHarness) -> None:
    show_pods(harness, "node-a")
    harness.assign_to_pod("10.0.0.6", "web")
    report = read_leaks(harness)
    assert "10.0.0.6" in due(plan(harness, report))
    put_pod(harness, "web")
    found = plan(harness, report)
    assert [each.use.text for each in found.addresses if not each.is_due] == ["pod default/web"]


@pytest.mark.parametrize(
    "mode, applied",
    [
        (mode, applied)
        for mode in MemoryMode
        for applied in (0, 1, 2, None)
        if mode.atomicity is Atomicity.ORDERED or not applied
    ],
)
def test_killed_at_every_commit_and_run_again(mode: MemoryMode, applied: int | None) -> None:
    """Also between two writes of a commit, where the store applies them one after the other."""
    deaths = 0
    for number in range(1, 6):
        harness = make_harness(mode)
        for last in range(1, 40):
            harness.assign_to(f"10.0.0.{last}", f"h-{last % 7}")
        report = read_leaks(harness)
        store = FaultyDatastore(harness.inner, {number: ProcessDeath(applied)})
        try:
            release(harness, plan(harness, report), store)
        except ProcessDied:
            deaths += 1
            left = harness.held()
            assert set(release(harness, plan(harness, report))) == left.keys()
        assert harness.held() == {}
    assert deaths == 2


def test_two_releases_from_one_report_at_once(harness: CollectorHarness) -> None:
    found, released = plan(harness), []
    store = FaultyDatastore(harness.inner, {1: RunBefore(lambda: released.extend(release(harness, found)))})
    assert release(harness, found, store) == []
    assert released == list(LEAKED)
    assert harness.held() == {"10.0.0.3": "h-used"}


def test_a_lost_reply_and_an_outage(harness: CollectorHarness) -> None:
    found = plan(harness)
    store = FaultyDatastore(harness.inner, {1: LostReply()})
    release(harness, found, store)
    assert harness.held() == {"10.0.0.3": "h-used"}


# --- handles ----------------------------------------------------------------------------------------------------------


def leaked_handle(harness: CollectorHarness) -> HandleRef:
    leave_handle(harness)
    (handle,) = plan(harness).handles
    return handle


def test_a_handle_goes_once(harness: CollectorHarness) -> None:
    handle = leaked_handle(harness)
    assert release_handle(harness.store, handle, pace=make_pace(harness)) is HandleResult.RELEASED
    assert harness.find(handle_key("h-left")) is None
    assert release_handle(harness.store, handle, pace=make_pace(harness)) is HandleResult.SKIPPED


def test_a_handle_that_was_made_again_stays(harness: CollectorHarness) -> None:
    handle = leaked_handle(harness)
    harness.remove(handle_key("h-left"))
    leave_handle(harness)
    assert release_handle(harness.store, handle, pace=make_pace(harness)) is HandleResult.SKIPPED
    assert harness.find(handle_key("h-left")) is not None


def test_a_handle_that_holds_an_address_by_now_stays(harness: CollectorHarness) -> None:
    """An ADD on an ordered store writes its block after its handle, which does not change by that."""
    handle = leaked_handle(harness)
    stored = harness.get(handle_key("h-left"))
    harness.assign_to("10.0.0.0", "h-left")
    harness.remove(handle_key("h-left"))
    harness.put(handle_key("h-left"), stored)
    current = harness.find_record(handle_key("h-left"))
    assert current is not None
    unchanged = evolve(handle, revision=current.revision)
    assert release_handle(harness.store, unchanged, pace=make_pace(harness)) is HandleResult.SKIPPED
    assert harness.find(handle_key("h-left")) == stored


def test_the_lost_reply_of_a_handle_counts_as_its_release(harness: CollectorHarness) -> None:
    handle = leaked_handle(harness)
    store = FaultyDatastore(harness.inner, {1: LostReply()})
    assert release_handle(store, handle, pace=make_pace(harness)) is HandleResult.RELEASED


def test_a_handle_of_no_block_and_of_a_gone_one(harness: CollectorHarness) -> None:
    for name, handle in (("h-none", Handle()), ("h-gone", Handle(blocks=((Prefix.parse("10.0.0.40/30"), 2),)))):
        harness.put(handle_key(name), handle)
    found = plan(harness).handles
    assert [handle.id for handle in found] == ["h-gone", "h-none"]
    results = [release_handle(harness.store, handle, pace=make_pace(harness)) for handle in found]
    assert results == [HandleResult.RELEASED] * 2


def test_before_handles_alone_are_released_the_caller_waits_too(harness: CollectorHarness) -> None:
    leave_handle(harness)
    report = evolve(read_leaks(harness), addresses=frozenset())
    looks: list[int] = []
    assert [handle.id for handle in plan(harness, report, before_look=lambda: looks.append(1)).handles] == ["h-left"]
    assert looks == [1]


# --- preconditions ----------------------------------------------------------------------------------------------------


def refusal(harness: CollectorHarness, *reports: LeakList, version: str = VERSION, is_forced: bool = False) -> str:
    try:
        require_usable(harness.store, reports, version=version, is_forced=is_forced, deadline=harness.deadline)
    except ReleaseNotAllowed as error:
        return str(error)
    return ""


def test_what_is_refused_and_what_force_waives(harness: CollectorHarness) -> None:
    report = read_leaks(harness, "a.json")
    assert refusal(harness, report) == ""
    assert refusal(harness, report, version="v3.34.0") == (
        "a.json: $.version is 'v3.33.0', and 'v3.34.0' is expected: another release wrote it; write a new report, or "
        "re-run with --force"
    )
    assert refusal(harness, report, version="v3.34.0", is_forced=True) == ""
    set_cluster(harness, is_locked=False)
    assert refusal(harness, report) == "data store is not locked. Either lock the data store, or re-run with --force"
    assert refusal(harness, report, is_forced=True) == ""
    set_cluster(harness)
    assert refusal(harness, report).startswith(
        "no report is of the current state of ClusterInformation: its revision is "
    )
    assert refusal(harness, report, is_forced=True) == ""
    assert refusal(harness, report, read_leaks(harness)) == ""  # one of them is enough


def test_a_report_of_another_cluster_is_refused_also_by_force(harness: CollectorHarness) -> None:
    report = read_leaks(harness, "b.json")
    set_cluster(harness, "guid-2")
    text = "b.json: $.clusterGUID is 'guid-1', and 'guid-2' is expected: it is of another cluster"
    assert refusal(harness, report) == text
    assert refusal(harness, report, is_forced=True) == text
    assert refusal(harness, read_leaks(harness), report, is_forced=True) == text


def test_a_very_large_report_costs_one_look_at_what_is_stored() -> None:
    """A million addresses that are not assigned any more need no commit and no wait."""
    harness = make_harness(MemoryMode.ATOMIC)
    harness.assign_to("10.0.0.1", "h")
    report = read_leaks(harness)
    (ref,) = report.addresses
    old = frozenset(evolve(ref, sequence=number) for number in range(100_000))
    store = RecordingStore(harness.inner)
    harness.store = store
    found = plan(harness, evolve(report, addresses=report.addresses | old))
    assert (due(found), found.outdated) == (["10.0.0.1"], 100_000)
    assert (len(store.commits), len(store.reads)) == (0, 2)
