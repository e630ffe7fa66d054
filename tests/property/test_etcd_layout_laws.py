"""Laws of where records stand in etcd.

1. D4: a key is read back from the place it makes, so no two keys share one.
2. A list's span holds the keys whose paths begin so, and no others of its kind.
3. The span of a kind holds all of it, and nothing of another kind.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netplug_backends.etcdv3.layout import LAYOUT
from netplug_backends.etcdv3.operations import KeyRange
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import AFFINITY, BLOCK, HANDLE
from netplug_core.records import Key, Kind
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL
from netplug_core.resources.node import NODE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.testing.strategies import names, prefixes

KINDS: tuple[Kind[object], ...] = (
    AFFINITY,
    BLOCK,
    HANDLE,
    IPPOOL,
    NODE,
    WORKLOAD_ENDPOINT,
    IPAM_CONFIGURATION_KEY.kind,
)

# Few letters, and those that sort below and above a slash, so that one name often begins another.
NAMES = st.text("a-.0", min_size=1, max_size=3) | names()


def block_path(prefix: Prefix) -> tuple[str, str]:
    return f"ipv{prefix.family.value}", str(prefix)


BLOCKS = prefixes().map(lambda prefix: BLOCK.key(*block_path(prefix)))
AFFINITIES = st.builds(
    lambda type_, name, prefix: AFFINITY.key(type_, name, *block_path(prefix)),
    st.sampled_from(("host", "virtual")),
    NAMES,
    prefixes(),
)
HANDLES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6).map(HANDLE.key)
RESOURCES = st.builds(lambda kind, name: kind.key(name), st.sampled_from((IPPOOL, NODE)), NAMES)
ENDPOINTS = st.builds(WORKLOAD_ENDPOINT.key, NAMES, NAMES)

KEYS: st.SearchStrategy[Key[object]] = st.one_of(
    BLOCKS, AFFINITIES, HANDLES, RESOURCES, ENDPOINTS, st.just(IPAM_CONFIGURATION_KEY)
)


def holds(span: KeyRange, raw: bytes) -> bool:
    """Whether a range over the span finds a key."""
    return span.start <= raw < span.end if span.end else raw == span.start


@given(KEYS, KEYS)
def test_d4_a_place_is_one_keys(key: Key[object], other: Key[object]) -> None:
    raw = LAYOUT.key(key)
    assert LAYOUT.find_key(key.kind, raw) == key
    assert (raw == LAYOUT.key(other)) == (key == other)


@given(KEYS, KEYS, st.data())
def test_d4_a_span_holds_what_begins_so_and_nothing_else(
    key: Key[object], other: Key[object], data: st.DataObject
) -> None:
    within = other.path[: data.draw(st.integers(0, len(other.path)))]
    span = LAYOUT.list_range(other.kind, within)
    assert holds(span, LAYOUT.key(other))
    assert holds(span, LAYOUT.key(key)) == (key.kind == other.kind and key.path[: len(within)] == within)


@given(KEYS)
def test_each_kind_has_a_span_of_its_own(key: Key[object]) -> None:
    assert [kind for kind in KINDS if holds(LAYOUT.list_range(kind), LAYOUT.key(key))] == [key.kind]
