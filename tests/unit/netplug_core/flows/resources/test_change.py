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
from netplug_core.flows.resources.write import edit
from netplug_core.records import Create
from netplug_core.resources.codec import Mark, with_marks
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAMConfigurationSpec, IPReservationSpec
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.node import Node, NodeSpec, node_key
from netplug_core.resources.nodeconfiguration import NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    ProfileSpec,
)
from netplug_core.resources.validation import InvalidResource
from netplug_core.testing.faults import RunBefore
from tests.harness.resources import (
    CLUSTER,
    CONFIGURATION,
    ENDPOINT,
    NETWORK_POLICY,
    NODE,
    PROFILE,
    RESERVATION,
    ResourceHarness,
)


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
    harness: ResourceHarness, resource: Resource, changed: Resource
) -> None:
    key = key_of(resource)
    outcome = harness.create(resource)
    assert outcome == Outcome(key=key, effect=Effect.CREATED)
    stored = harness.find(key)
    assert stored is not None
    assert stored.value.spec == resource.spec
    assert stored.value.metadata.uid
    assert stored.value.metadata.creation_time_ns == harness.clock.wall_ns
    with pytest.raises(ResourceExists):
        harness.create(resource)
    assert harness.apply(resource).effect is Effect.UNCHANGED
    assert harness.apply(changed).effect is Effect.UPDATED
    assert harness.replace(resource).effect is Effect.UPDATED
    assert delete(harness.store, key, pace=harness.pace) == Outcome(key=key, effect=Effect.DELETED)
    assert harness.find(key) is None
    with pytest.raises(ResourceMissing):
        harness.replace(resource)


def test_a_rewrite_keeps_what_nobody_here_can_read(harness: ResourceHarness) -> None:
    """D6 of the catalogue."""
    metadata = Metadata(name="node-a", uid="theirs", creation_time_ns=7, finalizers=("f",), unknown_json='{"new":1}')
    stored = Node(metadata=metadata, spec=NodeSpec(unknown_json='{"newer":{}}'), unknown_json='{"status":{}}')
    harness.put(Create(node_key("node-a"), stored))
    harness.apply(NODE)
    found = harness.find(node_key("node-a"))
    assert found is not None
    assert found.value == evolve(stored, metadata=evolve(metadata, labels=NODE.metadata.labels))


def test_a_rewrite_replaces_what_could_not_be_read_of_a_field(harness: ResourceHarness) -> None:
    spec = evolve(NETWORK_POLICY.spec, selector="", unknown_json='{"newer":1,"selector":2}')
    key, stored = key_of(NETWORK_POLICY), evolve(NETWORK_POLICY, spec=spec)
    harness.put(Create(key, stored))
    edit(harness.store, key, lambda found: with_marks(found, Mark.LABEL, {"a": "b"}), pace=harness.pace)
    labelled = harness.find(key)
    assert labelled is not None
    assert (labelled.value.spec, labelled.value.metadata.labels) == (spec, (("a", "b"),))
    harness.apply(NETWORK_POLICY)
    applied = harness.find(key)
    assert applied is not None
    assert applied.value.spec == evolve(NETWORK_POLICY.spec, unknown_json='{"newer":1}')


def configuration_of_nodes(name: str, prefix: str) -> NodeConfiguration:
    return NodeConfiguration(metadata=Metadata(name=name), spec=NodeConfigurationSpec(interface_prefix=prefix))


def test_the_prefix_of_interfaces_in_use_stays(harness: ResourceHarness) -> None:
    endpoint = evolve(ENDPOINT, spec=evolve(ENDPOINT.spec, interface_name="netp0123456789a"))
    harness.put(Create(key_of(endpoint), endpoint))
    harness.apply(configuration_of_nodes("default", "netp,tap"))
    harness.apply(configuration_of_nodes("node.b", "tap"))  # it has no workloads
    rule = (
        "1 interfaces of workloads have names that would not begin so any more, such as netp0123456789a of "
        "WorkloadEndpoint(default/w): keep their prefix too, or remove the workloads first"
    )
    for bad in (configuration_of_nodes("default", "tap"), configuration_of_nodes("node.a", "tap")):
        with pytest.raises(InvalidResource) as caught:
            harness.apply(bad)
        assert str(caught.value).endswith(f"error with field spec.interfacePrefix = 'tap' ({rule})")
    key = key_of(configuration_of_nodes("default", ""))
    with pytest.raises(InvalidResource, match=r"spec\.interfacePrefix = 'tap'"):
        edit(harness.store, key, lambda _: configuration_of_nodes("default", "tap"), pace=harness.pace)
    harness.apply(configuration_of_nodes("node.a", "netp"))
    harness.apply(configuration_of_nodes("default", "tap"))
    with pytest.raises(InvalidResource, match=r"spec\.interfacePrefix = ''"):
        delete(harness.store, key_of(configuration_of_nodes("node.a", "")), pace=harness.pace)
    other = evolve(
        configuration_of_nodes("default", "tap"), spec=NodeConfigurationSpec(interface_prefix="tap", vxlan_port=1)
    )
    assert harness.apply(other).effect is Effect.UPDATED
    delete(harness.store, key, pace=harness.pace)


def test_rules_of_other_kinds_are_kept_too(harness: ResourceHarness) -> None:
    for bad in (
        evolve(NODE, metadata=Metadata(name="Node")),
        evolve(CONFIGURATION, metadata=Metadata(name="mine")),
        evolve(CONFIGURATION, spec=IPAMConfigurationSpec(may_auto_allocate_blocks=False)),
    ):
        for act in (harness.create, harness.apply, harness.replace):
            with pytest.raises(InvalidResource):
                act(bad)
    assert harness.store.calls.commits == 0


def test_a_change_that_meets_another_is_decided_again(harness: ResourceHarness) -> None:
    """Trap 24 of the store and trap 38 of the allocator: no configuration is written over another one unseen."""
    harness.create(CONFIGURATION)
    key, latest = key_of(CONFIGURATION), evolve(CONFIGURATION, spec=IPAMConfigurationSpec(is_affinity_strict=True))
    before = harness.find(key)
    assert before is not None
    store = harness.with_faults(commit_1=RunBefore(lambda: harness.apply(latest)))
    with pytest.raises(ResourceOutdated, match=r"^update conflict: IPAMConfiguration\(default\)"):
        harness.apply(evolve(CONFIGURATION, spec=IPAMConfigurationSpec(cooldown_s=5)), before.revision, store=store)
    after = harness.find(key)
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
def test_kinds_that_are_not_a_persons_to_write(harness: ResourceHarness, resource: Resource, reason: str) -> None:
    with pytest.raises(KindNotWritable, match=f"^operation Create is not supported on {reason}$"):
        harness.create(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Apply is not supported on {reason}$"):
        harness.apply(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Update is not supported on {reason}$"):
        harness.replace(resource)
    with pytest.raises(KindNotWritable, match=f"^operation Delete is not supported on {reason}$"):
        delete(harness.store, key_of(resource), pace=harness.pace)
