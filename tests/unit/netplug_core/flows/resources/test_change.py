"""What the verbs have in common: kinds, concurrent changes, unknown fields."""

import pytest
from attrs import evolve

from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import (
    Effect,
    KindNotWritable,
    Outcome,
    ResourceExists,
    ResourceMissing,
    ResourceOutdated,
)
from netplug_core.records import Create
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec
from netplug_core.resources.ipreservation import IPReservationSpec
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, NodeSpec, node_key
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    ProfileSpec,
)
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import RunBefore
from tests.harness.resources import CLUSTER, CONFIGURATION, ENDPOINT, NODE, PROFILE, RESERVATION, ResourceHarness


@pytest.mark.parametrize(
    "resource, changed",
    [
        (NODE, evolve(NODE, metadata=Metadata(name="node-a", labels=(("rack", "b"),)))),
        (RESERVATION, evolve(RESERVATION, spec=IPReservationSpec())),
        (CONFIGURATION, evolve(CONFIGURATION, spec=IPAMConfigurationSpec(cooldown_s=5))),
        (PROFILE, evolve(PROFILE, spec=ProfileSpec(labels_to_apply=(("a", "b"),)))),
    ],
)
def test_nodes_reservations_and_the_configuration_are_written_as_pools_are(
    bench: ResourceHarness, resource: Resource, changed: Resource
) -> None:
    key = key_of(resource)
    outcome = bench.create(resource)
    assert outcome == Outcome(key=key, effect=Effect.CREATED)
    stored = bench.find(key)
    assert stored is not None
    assert stored.value.spec == resource.spec
    assert stored.value.metadata.uid
    assert stored.value.metadata.creation_time_ns == bench.clock.wall_ns
    with pytest.raises(ResourceExists):
        bench.create(resource)
    assert bench.apply(resource).effect is Effect.UNCHANGED
    assert bench.apply(changed).effect is Effect.UPDATED
    assert bench.replace(resource).effect is Effect.UPDATED
    assert delete(bench.store, key, pace=bench.pace) == Outcome(key=key, effect=Effect.DELETED)
    assert bench.find(key) is None
    with pytest.raises(ResourceMissing):
        bench.replace(resource)


def test_a_rewrite_keeps_what_nobody_here_can_read(bench: ResourceHarness) -> None:
    """D6 of the catalogue."""
    metadata = Metadata(name="node-a", uid="theirs", creation_time_ns=7, finalizers=("f",), unknown_json='{"new":1}')
    stored = Node(metadata=metadata, spec=NodeSpec(unknown_json='{"bgp":{}}'), unknown_json='{"status":{}}')
    bench.put(Create(node_key("node-a"), stored))
    bench.apply(NODE)
    found = bench.find(node_key("node-a"))
    assert found is not None
    assert found.value == evolve(stored, metadata=evolve(metadata, labels=NODE.metadata.labels))


def test_rules_of_other_kinds_are_kept_too(bench: ResourceHarness) -> None:
    for bad in (
        evolve(NODE, metadata=Metadata(name="Node")),
        evolve(CONFIGURATION, metadata=Metadata(name="mine")),
        evolve(CONFIGURATION, spec=IPAMConfigurationSpec(may_auto_allocate_blocks=False)),
    ):
        for act in (bench.create, bench.apply, bench.replace):
            with pytest.raises(InvalidResource):
                act(bad)
    assert bench.store.calls.commits == 0


def test_a_change_that_meets_another_is_decided_again(bench: ResourceHarness) -> None:
    """Trap 24 of the store and trap 38 of the allocator: no configuration is written over another one unseen."""
    bench.create(CONFIGURATION)
    key, latest = key_of(CONFIGURATION), evolve(CONFIGURATION, spec=IPAMConfigurationSpec(is_affinity_strict=True))
    before = bench.find(key)
    assert before is not None
    store = bench.with_faults(commit_1=RunBefore(lambda: bench.apply(latest)))
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPAMConfiguration\(default\)"):
        bench.apply(evolve(CONFIGURATION, spec=IPAMConfigurationSpec(cooldown_s=5)), before.revision, store=store)
    after = bench.find(key)
    assert after is not None
    assert after.value.spec == latest.spec


@pytest.mark.parametrize(
    "resource, reason",
    [
        (CLUSTER, r"ClusterInformation\(default\): it is kept by netplug itself"),
        (DEFAULT_ALLOW_PROFILE.value, r"Profile\(projectnetplug-default-allow\): it is kept by netplug itself"),
        (ENDPOINT, r"WorkloadEndpoint\(default/w\): it is kept by the node that runs the workload"),
    ],
)
def test_kinds_that_are_not_a_persons_to_write(bench: ResourceHarness, resource: Resource, reason: str) -> None:
    with pytest.raises(KindNotWritable, match=f"^operation Create is not supported on {reason}$"):
        bench.create(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Apply is not supported on {reason}$"):
        bench.apply(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Update is not supported on {reason}$"):
        bench.replace(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Delete is not supported on {reason}$"):
        delete(bench.store, key_of(resource), pace=bench.pace)
