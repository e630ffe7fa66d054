"""The JSON of blocks, affinities and handles; etcd and sqlite store it, Kubernetes maps it to its own fields.

Explicit functions and no tables: these three records have fixed shapes, are decoded for every pod, and their nulls,
exact integers and unknown keys must be kept. A malformed record raises ``ValueError`` with the name of the field; the
datastore adds the key. The entries of a block are checked all at once, and one by one only to name the wrong one. A
call for each entry would take longer than parsing and printing the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import TypeGuard, TypeVar, cast

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import format_time, parse_time
from netplug_core.errors import narrow, quote
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    FULL,
    HANDLE,
    RESERVED_HANDLE,
    Affinity,
    AffinityState,
    Attribute,
    Attributes,
    Block,
    Handle,
    Pairs,
    Row,
    row,
)
from netplug_core.records import Kind, ValueCondition

__all__ = ["from_mapping", "holds", "holds_stored", "is_marked_deleted", "to_mapping"]

T = TypeVar("T")
Json = Mapping[str, object]

# "deleted" is the flag of programs that delete in two steps. Our backends never write it, so it is dropped.
_BLOCK_KEYS = frozenset(
    ("cidr", "affinity", "affinity_claim_time", "allocations", "unallocated", "attributes", "sequenceNumber",
     "sequenceNumberForAllocation", "deleted")
)  # fmt: skip
_ATTRIBUTE_KEYS = frozenset(("handle_id", "secondary", "alternateOwnerAttrs", "releasedAt"))
_PLAIN_KEYS = frozenset(("handle_id", "secondary"))
_HANDLE_KEYS = frozenset(("block", "sequenceNumber", "deleted"))
_AFFINITY_KEYS = frozenset(("state", "deleted"))
_NO_FREE_ADDRESS = b'],"unallocated":[],"attributes":[{'
_NOT_ALL_HELD = (b'"releasedAt"', RESERVED_HANDLE.encode(), b'"deleted"')
_LONGEST_ORDINAL = len("4095")


def to_mapping(value: object) -> dict[str, object]:
    """The JSON object that stands for a block, an affinity or a handle."""
    if isinstance(value, Block):
        return _with_carried(_block_out(value), value.unknown_json)
    if isinstance(value, Handle):
        return _with_carried(_handle_out(value), value.unknown_json)
    affinity = narrow(value, Affinity)
    return _with_carried({"state": affinity.state.value}, affinity.unknown_json)


def from_mapping(kind: Kind[object], mapping: Json) -> object:
    """The value of that kind that a JSON object stands for.

    Raises:
        ValueError: it stands for none; the text names the field.
    """
    return _DECODERS[kind](mapping)


def is_marked_deleted(mapping: Json) -> bool:
    """Whether a stored record is marked as deleted, in either spelling: then it counts as not stored.

    A program that deletes in two steps has made the first one. The members of users' resources have no such mark.
    """
    return mapping.get("deleted") in (True, "true")


def holds(condition: ValueCondition, mapping: Json) -> bool:
    """Whether a condition certainly holds for the value that a JSON object stands for; it is not checked otherwise."""
    if condition != FULL or mapping.get("unallocated") != []:
        return False
    attributes = mapping.get("attributes")
    if not isinstance(attributes, list) or not attributes or not all(isinstance(entry, dict) for entry in attributes):
        return False
    return not any("releasedAt" in entry or entry.get("handle_id") == RESERVED_HANDLE for entry in attributes)


def holds_stored(condition: ValueCondition, data: bytes) -> bool:
    """The same for stored JSON, which is not parsed. Only compact JSON, as it is written here, is recognized.

    No text can contain what is searched for: a quotation mark in a text is escaped.
    """
    return condition == FULL and _NO_FREE_ADDRESS in data and not any(map(data.__contains__, _NOT_ALL_HELD))


def _block_out(block: Block) -> dict[str, object]:
    out: dict[str, object] = {"cidr": str(block.prefix), "affinity": block.owner or None}
    if block.claim_time_ns is not None:
        out["affinity_claim_time"] = format_time(block.claim_time_ns)
    out["allocations"] = block.allocations
    out["unallocated"] = block.free
    out["attributes"] = _attributes_out(block.attributes)
    out["sequenceNumber"] = block.sequence
    out["sequenceNumberForAllocation"] = {
        str(ordinal): number for ordinal, number in enumerate(block.sequences) if number
    }
    return out


def _attributes_out(attributes: Attributes) -> list[dict[str, object]]:
    owners = map(dict, map(zip, attributes.names, attributes.values))
    return [
        {"handle_id": handle, "secondary": owner or None} if whole is None else _attribute_out(whole)
        for handle, owner, whole in zip(attributes.handles, owners, attributes.whole, strict=True)
    ]


def _attribute_out(attribute: Attribute) -> dict[str, object]:
    out: dict[str, object] = {"handle_id": attribute.handle, "secondary": dict(attribute.owner) or None}
    if attribute.alternate:
        out["alternateOwnerAttrs"] = dict(attribute.alternate)
    if attribute.released_ns is not None:
        out["releasedAt"] = format_time(attribute.released_ns)
    return _with_carried(out, attribute.unknown_json)


def _handle_out(handle: Handle) -> dict[str, object]:
    out: dict[str, object] = {"block": {str(prefix): count for prefix, count in handle.blocks}}
    if handle.sequence:
        out["sequenceNumber"] = handle.sequence
    return out


def _block_in(mapping: Json) -> Block:
    allocations, free = _items(mapping, "allocations"), _items(mapping, "unallocated")
    _numbers([index for index in allocations if index is not None], "allocations")
    _numbers(free, "unallocated")
    block = Block(
        prefix=_parsed("cidr", _prefix, _text(mapping, "cidr")),
        owner=_text(mapping, "affinity"),
        claim_time_ns=_time(mapping, "affinity_claim_time"),
        # They were asked for their classes above, all at once: one by one it would take several times as long.
        allocations=cast("tuple[int | None, ...]", tuple(allocations)),
        free=cast("tuple[Ordinal, ...]", tuple(free)),
        attributes=_attributes_in(_items(mapping, "attributes")),
        sequence=_number(mapping.get("sequenceNumber", 0), "sequenceNumber"),
        sequences=_sequences(mapping, allocations),
        unknown_json=_carried(mapping, _BLOCK_KEYS),
    )
    problem = block.problem()
    if problem and block.has_unused_attributes:
        block = block.pruned()  # harmless: who holds what is not in doubt, and the next write stores it without them
        problem = block.problem()
    if problem:
        raise ValueError(problem)
    return block


def _attributes_in(items: list[object]) -> Attributes:
    rows: list[Row] = []
    names: tuple[str, ...] = ()
    for item in items:
        if not isinstance(item, dict):
            raise ValueError(f"attributes: {quote(item)} is not an object")
        handle, owner = item.get("handle_id"), item.get("secondary")
        is_plain = _PLAIN_KEYS.issuperset(item)
        if not (is_plain and isinstance(handle, str) and isinstance(owner, dict)) or "\r" in handle:
            rows.append(row(_attribute_in(item)))
            continue
        if tuple(owner) != names:  # mostly they are those of the entry before, and in order
            owner = dict(sorted(owner.items()))
            names = tuple(owner)
        rows.append((handle, names, tuple(owner.values()), None))
    attributes = Attributes(*zip(*rows, strict=True))
    try:
        "".join(map("".join, attributes.values))  # the quickest way to ask whether all of them are texts
    except TypeError:
        return Attributes.of(
            _attribute_in(item if isinstance(item, dict) else {}) for item in items
        )  # refuses the one that is not
    return attributes


def _attribute_in(item: Json) -> Attribute:
    # Old writers stored "id\r\n<interface>"; the id is the part before the line break.
    handle = _text(item, "handle_id").partition("\r")[0]
    return Attribute(
        handle=handle if item.get("handle_id") is not None else None,
        owner=_owner(item, "secondary"),
        alternate=_owner(item, "alternateOwnerAttrs"),
        released_ns=_time(item, "releasedAt"),
        unknown_json=_carried(item, _ATTRIBUTE_KEYS),
    )


def _handle_in(mapping: Json) -> Handle:
    counts = (
        (_parsed("block", _prefix, text), _number(count, "block")) for text, count in _object(mapping, "block").items()
    )
    return Handle(
        blocks=tuple(sorted((prefix, count) for prefix, count in counts if count > 0)),
        sequence=_number(mapping.get("sequenceNumber", 0), "sequenceNumber"),
        unknown_json=_carried(mapping, _HANDLE_KEYS),
    )


def _affinity_in(mapping: Json) -> Affinity:
    # Very old records have no state; they were written when every claim counted at once.
    text = _text(mapping, "state") or AffinityState.CONFIRMED.value
    return Affinity(state=_parsed("state", AffinityState, text), unknown_json=_carried(mapping, _AFFINITY_KEYS))


_DECODERS: dict[Kind[object], Callable[[Json], object]] = {BLOCK: _block_in, HANDLE: _handle_in, AFFINITY: _affinity_in}


def _text(mapping: Json, key: str) -> str:
    value = mapping.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key}: {quote(value)} is not a string")
    return value


def _number(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key}: {quote(value)} is not a number of at least 0")
    return value


def _parsed(key: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


@lru_cache(maxsize=16_384)  # a node's blocks and handles name the same few, again and again
def _prefix(text: str) -> Prefix:
    return Prefix.parse(text)


def _time(mapping: Json, key: str) -> int | None:
    if mapping.get(key) is None:
        return None
    return _parsed(key, parse_time, _text(mapping, key))


def _items(mapping: Json, key: str) -> list[object]:
    value = mapping.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{key}: {quote(value)} is not a list")
    return value


def _object(mapping: Json, key: str) -> dict[str, object]:
    value = mapping.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{key}: {quote(value)} is not an object")
    return value


def _are_integers(items: Collection[object]) -> TypeGuard[Collection[int]]:
    return set(map(type, items)) <= {int}


def _numbers(items: Collection[object], key: str) -> Collection[int]:
    if _are_integers(items) and min(items, default=0) >= 0:
        return items
    return [_number(item, key) for item in items]  # refuses the one that is none


def _sequences(mapping: Json, allocations: list[object]) -> tuple[int, ...]:
    """The numbers by ordinal; those of free ordinals mean nothing."""
    stored, size = _object(mapping, "sequenceNumberForAllocation"), len(allocations)
    numbers = [0] * size
    for text, number in zip(stored, _numbers(stored.values(), "sequenceNumberForAllocation"), strict=True):
        ordinal = _ordinal(text)
        if ordinal < size and allocations[ordinal] is not None:
            numbers[ordinal] = number
    return tuple(numbers)


@lru_cache(maxsize=4096)  # every block names the same ordinals
def _ordinal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_ORDINAL):
        raise ValueError(f"sequenceNumberForAllocation: {quote(text)} is not an ordinal")
    return int(text)


def _owner(mapping: Json, key: str) -> Pairs:
    pairs: list[tuple[str, str]] = []
    for name, value in _object(mapping, key).items():
        if not isinstance(value, str):
            raise ValueError(f"{key}.{name}: {quote(value)} is not a string")
        pairs.append((name, value))
    return tuple(sorted(pairs))


def _carried(mapping: Json, known: frozenset[str]) -> str:
    if mapping.keys() <= known:
        return ""
    extra = {key: value for key, value in mapping.items() if key not in known}
    return json.dumps(extra, sort_keys=True, separators=(",", ":"))


def _with_carried(out: dict[str, object], carried: str) -> dict[str, object]:
    if carried:
        out.update(json.loads(carried))
    return out
