"""What a stored record is, on each of the six stores alike: cases and invariants of the catalogue, by their ids.

The conformance suite holds every store to the calls' text with any values (D1); here the records are netplug's own, as
they come out of the allocator and from people.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.write import apply, replace
from netplug_core.ipam.model import AFFINITY, HANDLE, Affinity, AffinityState, Block, Handle, affinity_key, handle_key
from netplug_core.records import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Get,
    Key,
    List,
    NotFound,
    Record,
    Revision,
    Update,
    Write,
)
from netplug_core.resources.codec import Manifest, Mark, with_marks
from netplug_core.resources.fields import Metadata, OwnerReference
from netplug_core.resources.ippool import IPAMConfiguration, IPAMConfigurationSpec, IPPool, IPReservation
from netplug_core.resources.kinds import Resource, key_of, kind_of
from netplug_core.resources.networkpolicy import NETWORK_POLICY
from netplug_core.testing.strategies import affinities, blocks, configurations, handles, names, pools, reservations
from tests.harness.datastores import STORES, open_empty_store
from tests.harness.example_counts import APISERVER_EXAMPLES
from tests.harness.resources import NETWORK_KINDS, POLICY_KINDS
from tests.harness.resources import NETWORK_POLICY as NETWORK_POLICY_VALUE
from tests.harness.waiting import MARGIN_S

PREFIX = Prefix.parse("10.0.0.0/26")
KEY = affinity_key("host:node-a", PREFIX)
PENDING, CONFIRMED = (Affinity(state=state) for state in (AffinityState.PENDING, AffinityState.CONFIRMED))
V = TypeVar("V")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Datastore]:
    """Each of the stores in turn, empty."""
    with open_empty_store(request.param, request, tmp_path) as opened:
        yield opened


def deadline_in(seconds: float = 10.0) -> Deadline:
    return Deadline.after(SystemClock(), seconds)


def commit(store: Datastore, write: Write) -> Revision:
    return store.commit([write], deadline=deadline_in())[0]


def read(store: Datastore, key: Key[V]) -> Record[V] | None:
    return store.read([Get(key)], deadline=deadline_in()).find(key)


# --- one record ------------------------------------------------------------------------------------------------------


def test_s1_an_update_wants_the_record_that_was_read(store: Datastore) -> None:
    elsewhere = commit(store, Create(affinity_key("host:node-b", PREFIX), PENDING))
    with pytest.raises(NotFound) as missing:
        commit(store, Update(KEY, CONFIRMED, elsewhere))
    assert missing.value.current is None
    old = commit(store, Create(KEY, PENDING))
    commit(store, Update(KEY, CONFIRMED, old))
    with pytest.raises(Conflict) as conflict:
        commit(store, Update(KEY, PENDING, old))
    assert conflict.value.current == read(store, KEY)


def test_s2_a_record_is_created_once_and_again_after_its_deletion_with_another_revision(store: Datastore) -> None:
    first = commit(store, Create(KEY, PENDING))
    with pytest.raises(AlreadyExists) as refusal:
        commit(store, Create(KEY, CONFIRMED))
    assert refusal.value.current == Record(KEY, PENDING, first)
    commit(store, Delete(KEY, first))
    assert read(store, KEY) is None
    second = commit(store, Create(KEY, PENDING))
    assert second != first
    assert read(store, KEY) == Record(KEY, PENDING, second)


def test_s5_an_old_revision_deletes_nothing(store: Datastore) -> None:
    old = commit(store, Create(KEY, PENDING))
    new = commit(store, Update(KEY, CONFIRMED, old))
    with pytest.raises(Conflict):
        commit(store, Delete(KEY, old))
    assert read(store, KEY) == Record(KEY, CONFIRMED, new)
    commit(store, Delete(KEY, new))
    assert read(store, KEY) is None


def test_s6_a_handle_is_listed_by_its_whole_id_and_handles_are_watched(store: Datastore) -> None:
    key, alike = handle_key("k8s-pod-network.abc"), handle_key("k8s-pod-network.abcd")
    start = dict(store.read([List(HANDLE)], deadline=deadline_in()).revisions)
    held = Handle(blocks=((PREFIX, 1),))
    revision = commit(store, Create(key, held))
    commit(store, Create(alike, held))
    query = List(HANDLE, key.path)
    assert store.read([query], deadline=deadline_in()).list(query) == (Record(key, held, revision),)
    commit(store, Delete(key, revision))
    told = [(change.key, change.value) for change in islice(store.watch(start, deadline=deadline_in()), 3)]
    assert told == [(key, held), (alike, held), (key, None)]


def test_the_claims_of_a_node_are_not_those_of_one_whose_name_goes_on(store: Datastore) -> None:
    """D4, trap 9; trap 5: an owner that is no node may have a node's name."""
    claims = [affinity_key(owner, PREFIX) for owner in ("host:node-1", "host:node-10", "virtual:node-1")]
    for key in claims:
        commit(store, Create(key, CONFIRMED))
    for key in claims:
        query = List(AFFINITY, key.path[:2])
        assert [record.key for record in store.read([query], deadline=deadline_in()).list(query)] == [key]


# --- D3 --------------------------------------------------------------------------------------------------------------


@frozen
class StoredRecord:
    """Something to store, and where."""

    key: Key[object]
    value: object


@st.composite
def claims(draw: st.DrawFn) -> StoredRecord:
    owner = f"{draw(st.sampled_from(['host', 'virtual']))}:{draw(names())}"
    return StoredRecord(affinity_key(owner, draw(blocks()).prefix), draw(affinities()))


def configured(spec: IPAMConfigurationSpec) -> IPAMConfiguration:
    return IPAMConfiguration(metadata=Metadata(name="default"), spec=spec)


RECORDS = st.one_of(
    blocks().map(lambda block: StoredRecord(block.key, block)),
    claims(),
    st.builds(lambda name, handle: StoredRecord(handle_key(name), handle), names(), handles()),
    (pools() | reservations() | configurations().map(configured)).map(lambda found: StoredRecord(key_of(found), found)),
)


def without_object_metadata(value: object) -> object:
    """A resource without what an API server gives every object, its identity and birth, and with its defaults."""
    if isinstance(value, IPPool) and not value.spec.node_selector:
        value = evolve(value, spec=evolve(value.spec, node_selector="all()"))
    if isinstance(value, IPPool | IPReservation | IPAMConfiguration):
        return evolve(value, metadata=evolve(value.metadata, uid="", creation_time_ns=None))
    return value


def test_d3_what_was_stored_is_read(store: Datastore) -> None:
    @APISERVER_EXAMPLES
    @given(RECORDS)
    def law(stored: StoredRecord) -> None:
        revision = commit(store, Create(stored.key, stored.value))
        record = read(store, stored.key)
        commit(store, Delete(stored.key, revision))  # whatever was found: the next example begins with nothing
        assert record is not None
        assert record.revision == revision
        assert without_object_metadata(record.value) == without_object_metadata(stored.value)

    law()


def test_d3_numbers_beyond_those_of_a_float_nulls_and_newer_members_are_read_as_they_were(store: Datastore) -> None:
    """Traps 10, 11 and 12."""
    block = evolve(
        Block.new(PREFIX, owner="", now_ns=1),
        sequence=2**62 + 1,
        unknown_json='{"newer":[null,{"deep":9007199254740993}]}',
    )
    commit(store, Create(block.key, block))
    record = read(store, block.key)
    assert record is not None
    assert record.value == block


def test_d3_a_mapped_address_is_the_address_that_it_maps() -> None:
    assert str(Address.parse("::ffff:10.0.0.1")) == "10.0.0.1"
    with pytest.raises(ValueError, match="is not a CIDR"):
        Prefix.parse("::ffff:10.0.0.0/104")


# --- D6, D7 ----------------------------------------------------------------------------------------------------------

OWNER = OwnerReference(api_version="v1", kind="Node", name="n", uid="0f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0")


def test_d6_a_users_change_keeps_uid_creation_time_finalizers_and_owners(store: Datastore) -> None:
    """D7 too: what is shown of the metadata is what was given, and stays the same from read to read."""
    pool = IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name="main")
    born = evolve(
        pool.metadata,
        uid="7f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0",
        creation_time_ns=1_787_220_000_000_000_000,
        labels=(("a", "b"),),
        annotations=(("note", "x"), ("projectnetplug.org/own", "y")),
        finalizers=("example.org/keep",),
        owner_references=(OWNER,),
    )
    commit(store, Create(pool.key, evolve(pool, metadata=born)))
    before = read(store, pool.key)
    assert before is not None
    shown = before.value.metadata
    assert (shown.labels, shown.annotations, shown.finalizers) == (born.labels, born.annotations, born.finalizers)
    assert shown.owner_references == born.owner_references
    assert shown.uid
    assert shown.creation_time_ns

    pace = Pace(clock=SystemClock(), deadline=deadline_in(), chance=lambda: 0.5)
    labelled = evolve(pool, metadata=evolve(pool.metadata, labels=(("c", "d"),), uid="another", finalizers=("z",)))
    apply(store, Manifest(resource=labelled), pace=pace, new_uid=lambda: "a-third")
    disabled = evolve(pool, spec=evolve(pool.spec, is_disabled=True))
    replace(store, Manifest(resource=disabled), pace=pace, new_uid=lambda: "a-fourth")
    after = read(store, pool.key)
    assert after is not None
    assert after.value.spec.is_disabled
    assert after.value.metadata == evolve(shown, labels=(), annotations=())
    cleared = evolve(after.value, metadata=evolve(after.value.metadata, finalizers=()))
    commit(store, Update(pool.key, cleared, after.revision))


@pytest.mark.parametrize("resource", [*NETWORK_KINDS, *POLICY_KINDS], ids=lambda resource: kind_of(resource).name)
def test_the_kinds_of_network_and_policy_are_created_and_replaced(store: Datastore, resource: Resource) -> None:
    pace = Pace(clock=SystemClock(), deadline=deadline_in(), chance=lambda: 0.5)
    apply(store, Manifest(resource=resource), pace=pace, new_uid=lambda: "one")
    replace(
        store, Manifest(resource=with_marks(resource, Mark.LABEL, {"c": "d"})), pace=pace, new_uid=lambda: "another"
    )
    stored = read(store, key_of(resource))
    assert stored is not None
    labels = (("c", "d"), *resource.metadata.labels)
    assert (stored.value.spec, stored.value.metadata.labels) == (resource.spec, labels)
    commit(store, Delete(key_of(resource), stored.revision))


def test_resources_of_namespaces_are_listed_by_namespace(store: Datastore) -> None:
    spaces = ("default", "kube-system")
    before = store.read([List(NETWORK_POLICY)], deadline=deadline_in())
    policies = [evolve(NETWORK_POLICY_VALUE, metadata=Metadata(name="web", namespace=space)) for space in spaces]
    for policy in policies:
        commit(store, Create(key_of(policy), policy))
    for space, policy in zip(spaces, policies, strict=True):
        (found,) = store.read([List(NETWORK_POLICY, (space,))], deadline=deadline_in()).list(
            List(NETWORK_POLICY, (space,))
        )
        assert (found.key, found.value.spec) == (key_of(policy), policy.spec)
    listed = store.read([List(NETWORK_POLICY)], deadline=deadline_in()).list(List(NETWORK_POLICY))
    assert [record.key.path for record in listed] == [(space, "web") for space in spaces]
    events = store.watch(before.revisions, deadline=deadline_in())
    assert {next(events).key.path for _ in spaces} == {(space, "web") for space in spaces}
    for record in listed:
        commit(store, Delete(record.key, record.revision))


# --- D14 -------------------------------------------------------------------------------------------------------------


def test_d14_a_call_whose_time_is_over_does_nothing(store: Datastore) -> None:
    over = deadline_in(0.0)
    with pytest.raises(Unavailable):
        store.read([Get(KEY)], deadline=over)
    with pytest.raises(Unavailable):
        store.commit([Create(KEY, PENDING)], deadline=over)
    assert read(store, KEY) is None


def test_d14_a_watch_without_events_ends_by_its_deadline(store: Datastore) -> None:
    start = dict(store.read([List(AFFINITY)], deadline=deadline_in()).revisions)
    began = time.monotonic()
    assert list(store.watch(start, deadline=deadline_in(0.3))) == []
    assert 0.2 < time.monotonic() - began < 0.3 + MARGIN_S
