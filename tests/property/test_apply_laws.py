"""Laws of apply, over every kind that people write.

1. Applying again changes nothing and writes nothing (D10 of the catalogue).
2. What is stored has the spec, the labels and the annotations that were asked for, whatever was stored before.
3. A stored resource keeps name, uid, creation time, finalizers, owners, and what a newer release put there (D6).
4. A fault of one commit, a lost race or a lost reply, changes none of this.
5. What was applied, shown and handed in again changes nothing (D9).
"""

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.memory.datastore import MemoryMode
from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.flows.resources.outcome import Effect
from netplug_core.records import Create
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
)
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.testing.faults import Fault, LostRace, LostReply
from netplug_core.testing.strategies import labels, names, prefixes
from tests.harness.resources import ResourceHarness

FAULTS: st.SearchStrategy[Fault | None] = st.sampled_from([None, LostRace(), LostReply()])
RANGES = st.sampled_from(["10.0.0.0/16", "192.168.1.0/24", "fd00::/64", "fd00:0:0:1::/118"]).map(Prefix.parse)
USES = st.lists(st.sampled_from([AllowedUse.WORKLOAD, AllowedUse.TUNNEL]), min_size=1, unique=True).map(tuple)


def metadata(name: str, of_it: Labels, annotations: Labels) -> Metadata:
    return Metadata(name=name, labels=of_it, annotations=annotations)


def metadata_of(named: st.SearchStrategy[str]) -> st.SearchStrategy[Metadata]:
    return st.builds(metadata, named, labels(), labels())


@st.composite
def pools(draw: st.DrawFn, prefix: Prefix) -> IPPool:
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=prefix.family.default_block_length,
        is_disabled=draw(st.booleans()),
        allowed_uses=draw(USES),
        node_selector=draw(st.sampled_from(["all()", "rack == 'a'"])),
        assignment_mode=draw(st.sampled_from(AssignmentMode)),
        vxlan_mode=draw(st.sampled_from(Encapsulation)),
        has_outgoing_nat=draw(st.booleans()),
        is_bgp_export_disabled=draw(st.booleans()),
    )
    return IPPool(metadata=draw(metadata_of(st.just("p"))), spec=spec)


NODES = st.builds(
    Node,
    metadata=metadata_of(names()),
    spec=st.builds(
        NodeSpec,
        orchestrator_references=st.lists(
            st.builds(OrchestratorReference, orchestrator=names(), node_name=names()), max_size=2
        ).map(tuple),
    ),
)
RESERVATIONS = st.builds(
    IPReservation,
    metadata=metadata_of(names()),
    spec=st.builds(IPReservationSpec, reserved=st.lists(prefixes(), max_size=3).map(tuple)),
)
CONFIGURATIONS = st.builds(
    IPAMConfiguration,
    metadata=metadata_of(st.just("default")),
    spec=st.builds(
        IPAMConfigurationSpec,
        is_affinity_strict=st.sampled_from([True]),
        may_auto_allocate_blocks=st.booleans(),
        max_blocks_per_host=st.integers(0, 40),
        cooldown_s=st.integers(0, 600),
        vm_address_persistence=st.sampled_from(["", "Enabled", "Disabled"]),
    ),
)
# Two of one kind that may follow each other: a pool keeps its range.
PAIRS = st.one_of(
    RANGES.flatmap(lambda prefix: st.tuples(pools(prefix), pools(prefix))),
    st.tuples(NODES, NODES),
    st.tuples(RESERVATIONS, RESERVATIONS),
    st.tuples(CONFIGURATIONS, CONFIGURATIONS),
)


def stored_in(harness: ResourceHarness, resource: Resource) -> Resource:
    found = harness.find(key_of(resource))
    assert found is not None
    return found.value


def unlucky(fault: Fault | None) -> dict[str, Fault]:
    return {} if fault is None else {"commit_1": fault}


@given(PAIRS, FAULTS)
def test_what_is_applied_is_stored_and_applying_again_changes_nothing(
    pair: tuple[Resource, Resource], fault: Fault | None
) -> None:
    """Laws 1, 2, 4 and 5."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    for wanted in pair:
        harness.apply(wanted, store=harness.with_faults(**unlucky(fault)))
        stored = stored_in(harness, wanted)
        assert stored.spec == wanted.spec
        assert (stored.metadata.labels, stored.metadata.annotations) == (
            wanted.metadata.labels,
            wanted.metadata.annotations,
        )
        commits = harness.store.calls.commits
        shown = from_mapping(to_mapping(stored, revision="5"), origin=DocumentOrigin.USER)
        for again in (wanted, shown):
            assert harness.apply(again).effect is Effect.UNCHANGED
            assert harness.replace(again).effect is Effect.UNCHANGED
        assert harness.store.calls.commits == commits


@given(PAIRS, FAULTS)
def test_a_stored_resource_keeps_the_fields_that_users_do_not_write(
    pair: tuple[Resource, Resource], fault: Fault | None
) -> None:
    """Laws 2, 3 and 4."""
    harness = ResourceHarness.with_mode(MemoryMode.ATOMIC)
    first, second = pair
    kept = evolve(
        first.metadata, uid="theirs", creation_time_ns=7_000_000_000, finalizers=("f",), unknown_json='{"later":1}'
    )
    harness.put(Create(key_of(first), evolve(first, metadata=kept, unknown_json='{"later":2}')))
    wanted = evolve(second, metadata=evolve(second.metadata, name=first.metadata.name, uid="mine"))
    harness.apply(wanted, store=harness.with_faults(**unlucky(fault)))
    stored = stored_in(harness, first)
    assert stored.metadata == evolve(kept, labels=wanted.metadata.labels, annotations=wanted.metadata.annotations)
    assert stored.unknown_json == '{"later":2}'
    assert stored.spec == wanted.spec
