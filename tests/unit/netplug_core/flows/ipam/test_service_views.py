"""An allocator that remembers a store whose endpoints are views of pods: what it reads, and what it never relies on."""

from __future__ import annotations

from math import inf

import pytest
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.datastore.protocol import FRESH_S, EndpointStorage
from netplug_core.datastore.view import View
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.cache import FOLLOWED_KINDS, make_node_cache
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import Assignment, ReleaseRequest
from netplug_core.ipam.model import BLOCK, HANDLE, handle_query
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.records import Create, Delete, Get, Kind, List, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION,
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAM_CONFIGURATION
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.clock import ManualClock
from tests.harness.ipam import IPAMHarness, make_request
from tests.harness.ipam_service import make_cluster
from tests.harness.stores import HookedStore

POD_ENDPOINT = Kind[str](WORKLOAD_ENDPOINT.name, WORKLOAD_ENDPOINT.segments).key("shop", "web")
QUERY = Get(POD_ENDPOINT)


@define
class OpenWatch:
    """A watch through which changes arrive, and which says how long ago its store has spoken."""

    clock: ManualClock
    ago_s: float = 0.0

    def current_until_s(self, kind: Kind[object]) -> float | None:
        del kind
        return self.clock.monotonic() - self.ago_s

    def close(self) -> None:
        self.ago_s = inf

    silence = close


@define
class ViewHarness:
    """A cluster with one pod, and a resident process that has a block and remembers."""

    of: IPAMHarness
    cache: View
    store: HookedStore
    watch: OpenWatch

    @classmethod
    def make(cls, mode: MemoryMode = MemoryMode.ORDERED) -> ViewHarness:
        of = make_cluster(mode)
        of.store.description = evolve(of.store.description, endpoints=EndpointStorage.PODS)
        cache = of.cache = make_node_cache(of.store, clock=of.clock)
        of.store.commit([Create(POD_ENDPOINT, "free")], deadline=of.deadline)
        of.assign(make_request("first"))
        return cls(of, cache, HookedStore(of.store), OpenWatch(of.clock))

    @property
    def ipam(self) -> BlockIPAM:
        return evolve(self.of.ipam(), datastore=self.store)

    @property
    def calls(self) -> tuple[int, int]:
        """The reads and the commits since the last look."""
        found = len(self.store.reads), len(self.store.commits)
        self.store.reads.clear()
        self.store.commits.clear()
        return found

    @property
    def endpoint(self) -> str:
        found = self.of.store.read([QUERY], deadline=self.of.deadline).find(POD_ENDPOINT)
        return "" if found is None else found.value

    @property
    def has_handle(self) -> bool:
        query = handle_query("h")
        return self.of.store.read([query], deadline=self.of.deadline).find(query) is not None

    def look_up_pod(self) -> None:
        """Read the pod for a call."""
        self.cache.read(self.of.store, [QUERY], deadline=self.of.deadline)

    def follow(self) -> None:
        """Let watches keep true what people change, and the endpoints of the node; then let much time pass."""
        queries = [List(kind) for kind in FOLLOWED_KINDS]
        listed = self.of.store.read(queries, deadline=self.of.deadline)
        self.cache.follow_lists(listed, now_s=self.of.clock.monotonic())
        self.cache.watch = self.cache.endpoint_watch = self.watch

    def attach(self) -> None:
        self.look_up_pod()
        self.ipam.assign(make_request("h"), view_part(), deadline=self.of.deadline)
        assert (self.endpoint, self.has_handle) == ("ours", True)
        assert self.calls == (0, 1)
        self.of.clock.sleep(10 * FRESH_S)

    def detach(self, part: EndpointWrites | None = None) -> int:
        """Release; how many addresses became free."""
        wanted = ReleaseRequest(handle="h")
        return len(self.ipam.release(wanted, part or view_part(), deadline=self.of.deadline).addresses)

    def change_endpoint(self, text: str) -> None:
        """As another program."""
        found = self.of.store.read([QUERY], deadline=self.of.deadline).find(POD_ENDPOINT)
        assert found is not None
        self.of.store.commit([Update(found.key, text, found.revision)], deadline=self.of.deadline)

    def lock(self) -> None:
        """Lock the datastore, as a person."""
        value = ClusterInformation(
            metadata=Metadata(name="default"), spec=ClusterInformationSpec(is_datastore_ready=False)
        )
        self.of.store.commit([Create(CLUSTER_INFORMATION_KEY, value)], deadline=self.of.deadline)


def view_part() -> EndpointWrites:
    """The endpoint of a pod that exists: an ADD updates it, a DEL deletes it if it has this call's text."""

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...]:
        found = snapshot.find(POD_ENDPOINT)
        if found is None or (assignment is None and found.value != "ours"):
            return ()
        update = Update(POD_ENDPOINT, "ours", found.revision)
        return (Delete(POD_ENDPOINT, found.revision) if assignment is None else update,)

    return EndpointWrites(queries=(QUERY,), writes=writes)


@pytest.fixture
def harness() -> ViewHarness:
    return ViewHarness.make()


@pytest.fixture
def followed(harness: ViewHarness) -> ViewHarness:
    """With a pod that is attached, long ago."""
    harness.follow()
    harness.attach()
    return harness


# --- without a watch of the node's pods --------------------------------------------------------------------------


def test_an_endpoint_that_was_read_for_the_call_is_not_read_for_its_commit(harness: ViewHarness) -> None:
    harness.look_up_pod()
    harness.ipam.assign(make_request("h"), view_part(), deadline=harness.of.deadline)
    assert harness.calls == (0, 1)
    assert harness.cache.lookup([QUERY]).missing == (QUERY,), "it is not kept: others change the pod"


def test_an_endpoint_that_was_changed_since_it_was_read_is_read_again(harness: ViewHarness) -> None:
    harness.look_up_pod()
    harness.change_endpoint("theirs")
    harness.ipam.assign(make_request("h"), view_part(), deadline=harness.of.deadline)
    assert harness.endpoint == "ours"


def test_a_release_reads_the_endpoint(harness: ViewHarness) -> None:
    harness.look_up_pod()
    harness.ipam.assign(make_request("h"), view_part(), deadline=harness.of.deadline)
    harness.look_up_pod()
    harness.change_endpoint("theirs")
    assert (harness.detach(), harness.endpoint) == (1, "theirs")


# --- with one ----------------------------------------------------------------------------------------------------


def test_a_release_of_a_pod_that_is_followed_reads_nothing(followed: ViewHarness) -> None:
    assert followed.detach() == 1
    assert followed.calls == (0, 1)
    assert (followed.endpoint, followed.has_handle) == ("", False)


def test_a_lock_of_which_a_silent_watch_says_nothing_is_found_by_a_read(followed: ViewHarness) -> None:
    followed.lock()
    followed.watch.silence()
    with pytest.raises(Unavailable):
        followed.detach()
    assert (followed.has_handle, followed.store.commits) == (True, [])


def test_what_a_silent_watch_keeps_is_read_once_for_the_calls_of_some_seconds(followed: ViewHarness) -> None:
    followed.watch.silence()
    assert followed.detach() == 1
    wanted = {CLUSTER_INFORMATION, IPAM_CONFIGURATION}
    assert [{query.kind for query in queries} for queries in followed.store.reads] == [wanted]
    followed.store.reads.clear()
    followed.look_up_pod()
    followed.ipam.release(ReleaseRequest(handle="first"), NO_ENDPOINT, deadline=followed.of.deadline)
    assert followed.store.reads == []


def test_a_change_behind_a_silent_watch_opens_it_anew(followed: ViewHarness) -> None:
    followed.watch.ago_s = FRESH_S + 1
    followed.lock()
    with pytest.raises(Unavailable):
        followed.detach()
    assert followed.watch.ago_s == inf


def test_an_endpoint_that_is_anothers_is_read_before_it_is_left(followed: ViewHarness) -> None:
    """Another process may have made it this container's since."""
    followed.change_endpoint("theirs")
    followed.look_up_pod()
    followed.of.clock.sleep(10 * FRESH_S)
    followed.change_endpoint("ours")
    assert followed.detach() == 1
    assert (followed.endpoint, followed.has_handle) == ("", False)


def test_an_endpoint_that_was_changed_meanwhile_is_not_deleted(followed: ViewHarness) -> None:
    followed.change_endpoint("theirs")
    assert followed.detach() == 1
    assert (followed.endpoint, followed.has_handle) == ("theirs", False)


# --- a DEL of what is gone already ---------------------------------------------------------------------------------


def test_a_repeated_release_reads_the_handle_and_the_endpoint_once(followed: ViewHarness) -> None:
    """The ready flag and the configuration are followed."""
    followed.detach()
    followed.of.clock.sleep(10 * FRESH_S)
    assert (followed.calls, followed.detach()) == ((0, 1), 0)
    assert [{query.kind for query in queries} for queries in followed.store.reads] == [{WORKLOAD_ENDPOINT, HANDLE}]
    assert followed.store.commits == []


def test_a_repeated_release_of_a_pod_that_is_there_writes_the_pod_and_reads_the_handle(followed: ViewHarness) -> None:
    followed.detach()
    followed.of.store.commit([Create(POD_ENDPOINT, "ours")], deadline=followed.of.deadline)
    followed.look_up_pod()  # as the watch of the node's pods delivers it
    followed.of.clock.sleep(10 * FRESH_S)
    assert (followed.calls, followed.detach()) == ((0, 1), 0)
    assert [{query.kind for query in queries} for queries in followed.store.reads] == [{HANDLE}]
    assert followed.endpoint == ""


def test_a_repeated_release_behind_a_silent_watch_reads_everything(followed: ViewHarness) -> None:
    followed.detach()
    followed.watch.silence()
    followed.of.clock.sleep(10 * FRESH_S)
    assert followed.detach() == 0
    assert {query.kind for queries in followed.store.reads for query in queries} > {WORKLOAD_ENDPOINT, HANDLE}


def test_a_handle_that_another_process_made_since_is_released(followed: ViewHarness) -> None:
    followed.detach()
    evolve(followed.of.ipam(), cache=None).assign(make_request("h"), NO_ENDPOINT, deadline=followed.of.deadline)
    followed.of.clock.sleep(10 * FRESH_S)
    assert followed.detach() == 1
    assert not followed.has_handle


def test_a_view_that_is_only_cached_is_read_before_it_is_left(followed: ViewHarness) -> None:
    """It is another container's in the cache, and this one's by now."""
    followed.detach()
    followed.of.store.commit([Create(POD_ENDPOINT, "theirs")], deadline=followed.of.deadline)
    followed.look_up_pod()
    followed.change_endpoint("ours")
    followed.of.clock.sleep(10 * FRESH_S)
    assert (followed.detach(), followed.endpoint) == (0, "")


def test_a_release_of_one_assignment_is_not_decided_on_a_block_that_is_only_cached(followed: ViewHarness) -> None:
    """Another process has released the handle and assigned it anew. The handle is read, and the block is an old one."""
    other, deadline = evolve(followed.of.ipam(), cache=None), followed.of.deadline
    other.release(ReleaseRequest(handle="h"), NO_ENDPOINT, deadline=deadline)
    other.assign(make_request("h"), NO_ENDPOINT, deadline=deadline)
    followed.cache.forget([handle_query("h")])
    blocks = followed.of.store.read([List(BLOCK)], deadline=followed.of.deadline).list(List(BLOCK))
    (held,) = [held for block in blocks for held in block.value.held_by("h")]
    wanted = ReleaseRequest(handle="h", sequence=held.sequence)
    released = followed.ipam.release(wanted, NO_ENDPOINT, deadline=followed.of.deadline)
    assert released.addresses == (held.address,)


def test_a_store_that_checks_requirements_confirms_a_watch_by_a_commit_only() -> None:
    """So a repeated release, which commits nothing, reads whether the cluster is locked."""
    harness = ViewHarness.make(MemoryMode.ATOMIC)
    harness.follow()
    harness.lock()
    with pytest.raises(Unavailable):
        harness.detach(NO_ENDPOINT)
