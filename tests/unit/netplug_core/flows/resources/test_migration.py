"""Moving all records: consistent exports, imports that are interrupted at every write, and other writers meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import define, evolve

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore, DatastoreDescription, EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.encoding.export import EXPORTED_KINDS, Export
from netplug_core.errors import Unavailable
from netplug_core.flows.ipam.check import SETTLE_S
from netplug_core.flows.resources.cluster import ImportUnfinished, lock, unlock
from netplug_core.flows.resources.migration import (
    DatastoreChanged,
    DatastoreNotEmpty,
    DatastoreNotLocked,
    ImportRefused,
    count_kinds,
    export_datastore,
    import_export,
    plan_import,
)
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Create, Delete, Get, Key, Query, Revision, Snapshot, Update, Write
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY, ClusterInformation
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kinds import key_of
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION
from netplug_core.resources.networkpolicy import NETWORK_POLICY, NetworkPolicy
from netplug_core.resources.node import NodeSpec, OrchestratorReference, node_key
from netplug_core.resources.profile import profile_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.faults import LostReply
from tests.harness.resources import ENDPOINT, NODE, POLICY_KINDS, PROFILE, ResourceHarness, make_pool
from tests.harness.stores import StoreOfOldDefinitions, StoreWrapper

PREFIX = Prefix.parse("10.0.0.0/26")
LARGE = Prefix.parse("10.1.0.0/20")
BATCHES = 4  # of the records below: each large block goes into a commit of its own


@define
class Scene:
    """A source that is locked and exported, and an empty target."""

    source: ResourceHarness
    target: ResourceHarness
    export: Export

    def run_import(self, store: Datastore | None = None) -> None:
        """One run of the import."""
        store = store or self.target.store
        plan = plan_import(store, self.export, deadline=self.target.deadline)
        import_export(
            store,
            self.export,
            plan,
            pace=lambda: self.target.pace,
            deadline=self.target.deadline,
            report=lambda _done: None,
        )

    def is_moved(self) -> bool:
        """Whether the target has the records of the source, each once, and is not marked any more."""
        plan = plan_import(self.target.store, self.export, deadline=self.target.deadline)
        return plan.is_done and values(self.target) == values(self.source)


def values(harness: ResourceHarness) -> dict[Key[object], object]:
    return {
        record.key: record.value
        for kind in EXPORTED_KINDS
        for record in read_pages(harness.store, kind, deadline=harness.deadline)
    }


def information(harness: ResourceHarness) -> ClusterInformation:
    found = harness.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=harness.deadline).find(CLUSTER_INFORMATION_KEY)
    assert found is not None
    return found.value


def export_of(harness: ResourceHarness, store: Datastore | None = None) -> Export:
    return export_datastore(
        store or harness.store, clock=harness.clock, deadline=Deadline.after(harness.clock, 600), export_id="e-1",
        release="v3",
    )  # fmt: skip


def fill(harness: ResourceHarness) -> None:
    """A record of every kind, and two blocks that are too large for one commit together."""
    harness.create(make_pool("10.0.0.0/24", "main"))
    block = Block.new(PREFIX, owner="host:a", now_ns=1).assign((Ordinal(0),), Attribute(handle="n.a"))
    large = [Block.new(LARGE.subprefix(number, 21), owner="", now_ns=1) for number in range(2)]
    harness.put(
        Create(node_key(NODE.metadata.name), NODE),
        Create(profile_key(PROFILE.metadata.name), PROFILE),
        *(Create(key_of(each), each) for each in POLICY_KINDS),
        Create(affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
        Create(handle_key("n.a"), Handle(blocks=((PREFIX, 1),))),
        *(Create(each.key, each) for each in (block, *large)),
        Create(WORKLOAD_ENDPOINT.key("default", "w"), ENDPOINT),
    )
    lock(harness.store, pace=harness.pace, new_uid=harness.new_uid)


@pytest.fixture(params=MemoryMode)
def scene(request: pytest.FixtureRequest) -> Scene:
    source = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    fill(source)
    return Scene(source, ResourceHarness.with_mode(request.param), export_of(source))


@define
class InterruptedStore(StoreWrapper):
    """A store that is out of reach after a number of commits; with ``is_applied`` the last one was applied."""

    commits_left: int = 0
    is_applied: bool = False

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        if not self.commits_left:
            if self.is_applied:
                self.inner.commit(writes, deadline=deadline)
            raise Unavailable("the store", "the process was killed")
        self.commits_left -= 1
        return self.inner.commit(writes, deadline=deadline)


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_export_has_every_record_but_what_every_cluster_has(scene: Scene) -> None:
    assert {record.key: record.value for record in scene.export.records} == values(scene.source)
    assert scene.export.header.cluster == information(scene.source)
    assert count_kinds(scene.export.records) == (
        "1 IPPool, 1 Node, 1 Profile, 1 NetworkPolicy, 1 GlobalNetworkPolicy, 1 NetworkSet, 1 GlobalNetworkSet, "
        "1 BlockAffinity, 1 IPAMHandle, 3 IPAMBlock, 1 WorkloadEndpoint"
    )
    assert count_kinds(()) == "no records"


def test_a_source_may_lack_kinds_that_came_after_its_release(scene: Scene) -> None:
    store = StoreOfOldDefinitions(scene.source.store, frozenset({KUBE_CONTROLLERS_CONFIGURATION}))
    assert export_of(scene.source, store).records == scene.export.records


def test_an_export_needs_a_lock(scene: Scene) -> None:
    unlock(scene.source.store, pace=scene.source.pace)
    for harness in (scene.source, scene.target):
        with pytest.raises(DatastoreNotLocked, match="the datastore is not locked: run datastore migrate lock first"):
            export_of(harness)


def test_an_unfinished_import_is_not_exported(scene: Scene) -> None:
    with pytest.raises(Unavailable):
        scene.run_import(InterruptedStore(scene.target.store, 1, is_applied=False))
    with pytest.raises(ImportUnfinished, match="the import of export e-1 is not finished"):
        export_of(scene.target)


@define
class ChangingStore(StoreWrapper):
    """A store in which another writer makes one change at the n-th read."""

    change: Write | None = None
    reads_left: int = 0

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        self.reads_left -= 1
        if not self.reads_left and self.change is not None:
            self.inner.commit([self.change], deadline=deadline)
        return self.inner.read(queries, deadline=deadline)


def changing(harness: ResourceHarness, change: Write, reads: int) -> ChangingStore:
    return ChangingStore(harness.store, change=change, reads_left=reads)


def test_a_record_that_changes_during_an_export_is_an_error(scene: Scene) -> None:
    handle = Create(handle_key("n.z"), Handle())
    message = r"IPAMHandle\(n.z\) was changed by another writer during the export; run it again"
    with pytest.raises(DatastoreChanged, match=message):
        export_of(scene.source, changing(scene.source, handle, 2 + len(EXPORTED_KINDS)))


def test_an_identity_that_changes_during_an_export_is_an_error(scene: Scene) -> None:
    stored = scene.source.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=scene.source.deadline)
    found = stored.find(CLUSTER_INFORMATION_KEY)
    assert found is not None
    changed = Update(found.key, evolve(found.value, spec=evolve(found.value.spec, version="v9")), found.revision)
    with pytest.raises(DatastoreChanged, match=r"ClusterInformation\(default\) was changed"):
        export_of(scene.source, changing(scene.source, changed, 2 + 2 * len(EXPORTED_KINDS)))


# --- import -----------------------------------------------------------------------------------------------------------


def test_everything_is_moved_and_the_target_stays_locked(scene: Scene) -> None:
    scene.run_import()
    assert scene.is_moved()
    assert information(scene.target).is_locked
    assert information(scene.target).spec.cluster_guid == information(scene.source).spec.cluster_guid


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("commits", range(BATCHES + 2))
def test_an_import_that_is_killed_at_any_commit_is_run_again(scene: Scene, commits: int, is_applied: bool) -> None:  # noqa: FBT001
    with pytest.raises(Unavailable):
        scene.run_import(InterruptedStore(scene.target.store, commits, is_applied=is_applied))
    assert not scene.is_moved() or (commits, is_applied) == (BATCHES + 1, True)
    if not scene.is_moved():
        scene.run_import()
    assert scene.is_moved()


@pytest.mark.parametrize("commit", range(1, BATCHES + 3))
def test_a_lost_reply_to_any_commit_changes_nothing(scene: Scene, commit: int) -> None:
    scene.run_import(scene.target.with_faults(**{f"commit_{commit}": LostReply()}))
    assert scene.is_moved()


def test_an_export_without_records_moves_the_identity(scene: Scene) -> None:
    scene.export = evolve(scene.export, records=())
    scene.run_import()
    assert information(scene.target).spec.cluster_guid == information(scene.source).spec.cluster_guid


def test_an_export_of_an_ordered_store_waits_until_running_adds_have_ended() -> None:
    harness = ResourceHarness.with_mode(MemoryMode.ORDERED)
    lock(harness.store, pace=harness.pace, new_uid=harness.new_uid)
    began = harness.clock.monotonic()
    assert export_of(harness).records == ()
    assert harness.clock.monotonic() - began >= SETTLE_S


def test_a_target_keeps_its_own_metadata_and_gets_the_identity(scene: Scene) -> None:
    own = ClusterInformation(metadata=Metadata(name="default", uid="own"))
    scene.target.put(Create(CLUSTER_INFORMATION_KEY, own))
    scene.run_import()
    assert information(scene.target).metadata == own.metadata
    assert scene.is_moved()


def test_a_target_with_records_is_refused(scene: Scene) -> None:
    scene.target.create(make_pool("10.9.0.0/24", "other"))
    with pytest.raises(DatastoreNotEmpty, match=r"the datastore is not empty \(IPPool\(other\)\): an import needs"):
        scene.run_import()


def test_the_unfinished_import_of_another_export_is_refused(scene: Scene) -> None:
    with pytest.raises(Unavailable):
        scene.run_import(InterruptedStore(scene.target.store, 2, is_applied=False))
    scene.export = evolve(scene.export, header=evolve(scene.export.header, id="e-2"))
    with pytest.raises(ImportUnfinished, match="the import of export e-1 is not finished: run it again with its file"):
        scene.run_import()


def test_a_record_of_another_writer_is_named_and_the_import_can_be_run_again(scene: Scene) -> None:
    with pytest.raises(Unavailable):
        scene.run_import(InterruptedStore(scene.target.store, 1, is_applied=False))
    revisions = scene.target.put(Create(ippool_key("main"), make_pool("10.7.0.0/24", "main")))
    with pytest.raises(ImportRefused, match=r"IPPool\(main\) differs from the export; another writer was at work"):
        scene.run_import()
    scene.target.store.commit([Delete(ippool_key("main"), revisions[0])], deadline=scene.target.deadline)
    revisions = scene.target.put(Create(ippool_key("more"), make_pool("10.7.0.0/24", "more")))
    with pytest.raises(ImportRefused, match=r"IPPool\(more\) is not of the export; another writer was at work"):
        scene.run_import()
    scene.target.store.commit([Delete(ippool_key("more"), revisions[0])], deadline=scene.target.deadline)
    scene.run_import()
    assert scene.is_moved()


def test_records_that_are_removed_meanwhile_are_named(scene: Scene) -> None:
    plan = plan_import(scene.target.store, scene.export, deadline=scene.target.deadline)

    def remove(done: int) -> None:
        if done == len(plan.records):
            scene.target.remove("main")

    with pytest.raises(ImportRefused, match=r"IPPool\(main\) is missing"):
        import_export(
            scene.target.store, scene.export, plan, pace=lambda: scene.target.pace, deadline=scene.target.deadline,
            report=remove,
        )  # fmt: skip


def test_a_target_that_is_unlocked_meanwhile_is_named(scene: Scene) -> None:
    plan = plan_import(scene.target.store, scene.export, deadline=scene.target.deadline)
    message = "the datastore was unlocked during the import; another writer was at work in the datastore"

    def unlock_by_hand(_done: int) -> None:
        found = scene.target.store.read([Get(CLUSTER_INFORMATION_KEY)], deadline=scene.target.deadline)
        record = found.find(CLUSTER_INFORMATION_KEY)
        assert record is not None
        ready = evolve(record.value, spec=evolve(record.value.spec, is_datastore_ready=True))
        scene.target.store.commit([Update(record.key, ready, record.revision)], deadline=scene.target.deadline)

    with pytest.raises(ImportRefused, match=message):
        import_export(
            scene.target.store, scene.export, plan, pace=lambda: scene.target.pace, deadline=scene.target.deadline,
            report=unlock_by_hand,
        )  # fmt: skip


# --- Kubernetes -------------------------------------------------------------------------------------------------------


@define
class PodStore(StoreWrapper):
    """A store whose endpoints are views of pods."""

    @property
    def description(self) -> DatastoreDescription:
        return evolve(self.inner.description, endpoints=EndpointStorage.PODS)


def test_kinds_that_the_target_reads_from_the_cluster_are_left_out(scene: Scene) -> None:
    store = PodStore(scene.target.store)
    scene.target.put(Create(node_key("b"), evolve(NODE, metadata=Metadata(name="b"))))
    plan = plan_import(store, scene.export, deadline=scene.target.deadline)
    assert count_kinds(plan.left_out) == "1 Node, 1 Profile, 1 WorkloadEndpoint"
    scene.run_import(store)
    assert plan_import(store, scene.export, deadline=scene.target.deadline).is_done


def test_copies_of_policies_of_kubernetes_are_not_brought_back_to_it() -> None:
    source, target = (ResourceHarness.with_mode(MemoryMode.ATOMIC) for _store in range(2))
    for name in ("knp.default.web", "own"):
        key = NETWORK_POLICY.key("x", name)
        source.put(Create(key, NetworkPolicy(metadata=Metadata(name=name, namespace="x"))))
    lock(source.store, pace=source.pace, new_uid=source.new_uid)
    export = export_of(source)
    plan = plan_import(PodStore(target.store), export, deadline=target.deadline)
    assert [record.key.name for record in plan.left_out] == ["knp.default.web"]
    assert "knp.default.web" in [
        record.key.name for record in plan_import(target.store, export, deadline=target.deadline).records
    ]


@pytest.mark.parametrize("name, is_refused", [("", False), ("node-a", False), ("other", True)])
def test_a_node_of_another_name_in_kubernetes_is_refused(name: str, is_refused: bool) -> None:  # noqa: FBT001
    source, target = (ResourceHarness.with_mode(MemoryMode.ATOMIC) for _store in range(2))
    references = (OrchestratorReference(node_name=name, orchestrator="k8s"),)
    source.put(Create(node_key("node-a"), evolve(NODE, spec=NodeSpec(orchestrator_references=references))))
    lock(source.store, pace=source.pace, new_uid=source.new_uid)
    export = export_of(source)
    assert plan_import(target.store, export, deadline=target.deadline).records
    store = PodStore(target.store)
    if not is_refused:
        assert plan_import(store, export, deadline=target.deadline).left_out
        return
    with pytest.raises(ImportRefused, match=r"Node\(node-a\) is called other in Kubernetes; an import into Kubernetes"):
        plan_import(store, export, deadline=target.deadline)


def test_pods_without_addresses_are_not_exported(scene: Scene) -> None:
    harness = scene.source
    address = Address.parse("10.0.0.0")
    with_address = evolve(ENDPOINT, metadata=Metadata(name="x", namespace="default"))
    with_address = evolve(with_address, spec=evolve(with_address.spec, addresses=(address,)))
    harness.put(Create(WORKLOAD_ENDPOINT.key("default", "x"), with_address))
    export = export_of(harness, PodStore(harness.store))
    assert [record.key.name for record in export.records if record.key.kind == WORKLOAD_ENDPOINT] == ["x"]
