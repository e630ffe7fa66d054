"""The one JSON of blocks, affinities and handles; etcd and sqlite store it, Kubernetes maps it to its own spelling.

Explicit functions and no generated converter: these three records have fixed shapes, are decoded for every pod, and
their nulls, exact integers and unknown keys have to survive. What is malformed raises ``ValueError`` naming the
field; the datastore adds the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import format_time, parse_time
from netplug_core.ipam.affinity import AFFINITY, Affinity, AffinityState
from netplug_core.ipam.block import BLOCK, Attribute, Block
from netplug_core.ipam.handle import HANDLE, Handle
from netplug_core.records import Kind

__all__ = ["from_mapping", "to_mapping"]

T = TypeVar("T")
Json = Mapping[str, object]

# "deleted" is a flag of stores that cannot delete under a condition; ours never write it, so it is neither kept nor
# meaningful here.
_BLOCK_KEYS = frozenset(
    ("cidr", "affinity", "affinity_claim_time", "allocations", "unallocated", "attributes", "sequenceNumber",
     "sequenceNumberForAllocation", "deleted")
)  # fmt: skip
_ATTRIBUTE_KEYS = frozenset(("handle_id", "secondary", "alternateOwnerAttrs", "releasedAt"))
_HANDLE_KEYS = frozenset(("block", "deleted"))
_AFFINITY_KEYS = frozenset(("state", "deleted"))
_LONGEST_ORDINAL = len("4095")


def to_mapping(value: object) -> dict[str, object]:
    """The JSON object that stands for a block, an affinity or a handle."""
    if isinstance(value, Block):
        return _with_carried(_block_out(value), value.carried)
    if isinstance(value, Handle):
        counts = {str(prefix): count for prefix, count in value.blocks}
        return _with_carried({"block": counts}, value.carried)
    affinity = cast("Affinity", value)
    return _with_carried({"state": affinity.state.value}, affinity.carried)


def from_mapping(kind: Kind[object], mapping: Json) -> object:
    """The value of that kind that a JSON object stands for.

    Raises:
        ValueError: it stands for none; the text names the field.
    """
    return _DECODERS[kind](mapping)


def _block_out(block: Block) -> dict[str, object]:
    out: dict[str, object] = {"cidr": str(block.prefix), "affinity": block.owner or None}
    if block.claim_time_ns is not None:
        out["affinity_claim_time"] = format_time(block.claim_time_ns)
    out["allocations"] = block.allocations
    out["unallocated"] = block.free
    out["attributes"] = [_attribute_out(attribute) for attribute in block.attributes]
    out["sequenceNumber"] = block.sequence
    out["sequenceNumberForAllocation"] = {str(ordinal): number for ordinal, number in block.sequences}
    return out


def _attribute_out(attribute: Attribute) -> dict[str, object]:
    out: dict[str, object] = {"handle_id": attribute.handle, "secondary": dict(attribute.owner) or None}
    if attribute.alternate:
        out["alternateOwnerAttrs"] = dict(attribute.alternate)
    if attribute.released_ns is not None:
        out["releasedAt"] = format_time(attribute.released_ns)
    return _with_carried(out, attribute.carried)


def _block_in(mapping: Json) -> Block:
    allocations = _items(mapping, "allocations")
    block = Block(
        prefix=_parsed("cidr", Prefix.parse, _text(mapping, "cidr")),
        owner=_text(mapping, "affinity"),
        claim_time_ns=_time(mapping, "affinity_claim_time"),
        allocations=tuple(None if index is None else _number(index, "allocations") for index in allocations),
        free=tuple(Ordinal(_number(ordinal, "unallocated")) for ordinal in _items(mapping, "unallocated")),
        attributes=tuple(_attribute_in(item) for item in _items(mapping, "attributes")),
        sequence=_number(mapping.get("sequenceNumber", 0), "sequenceNumber"),
        sequences=tuple(sorted(_sequences(mapping, "sequenceNumberForAllocation"))),
        carried=_carried(mapping, _BLOCK_KEYS),
    )
    problem = block.problem()
    if problem:
        raise ValueError(problem)
    return block


def _attribute_in(item: object) -> Attribute:
    if not isinstance(item, dict):
        raise ValueError(f"attributes: {item!r} is not an object")
    handle = _text(item, "handle_id")
    return Attribute(
        # Old writers stored "id\r\n<interface>"; the id is what stands before it.
        handle=handle.partition("\r")[0] if item.get("handle_id") is not None else None,
        owner=_owner(item, "secondary"),
        alternate=_owner(item, "alternateOwnerAttrs"),
        released_ns=_time(item, "releasedAt"),
        carried=_carried(item, _ATTRIBUTE_KEYS),
    )


def _handle_in(mapping: Json) -> Handle:
    counts = (
        (_parsed("block", Prefix.parse, text), _number(count, "block")) for text, count in _pairs(mapping, "block")
    )
    return Handle(
        blocks=tuple(sorted((prefix, count) for prefix, count in counts if count > 0)),
        carried=_carried(mapping, _HANDLE_KEYS),
    )


def _affinity_in(mapping: Json) -> Affinity:
    # Very old records have no state; they were written when every claim counted at once.
    text = _text(mapping, "state") or AffinityState.CONFIRMED.value
    return Affinity(state=_parsed("state", AffinityState, text), carried=_carried(mapping, _AFFINITY_KEYS))


_DECODERS: dict[Kind[object], Callable[[Json], object]] = {
    BLOCK: _block_in,
    HANDLE: _handle_in,
    AFFINITY: _affinity_in,
}


def _text(mapping: Json, key: str) -> str:
    value = mapping.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key}: {value!r} is not a string")
    return value


def _number(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{key}: {value!r} is not a number of at least 0")
    return value


def _parsed(key: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _time(mapping: Json, key: str) -> int | None:
    if mapping.get(key) is None:
        return None
    return _parsed(key, parse_time, _text(mapping, key))


def _items(mapping: Json, key: str) -> list[object]:
    value = mapping.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{key}: {value!r} is not a list")
    return value


def _pairs(mapping: Json, key: str) -> list[tuple[str, object]]:
    value = mapping.get(key)
    if value is None:
        return []
    if not isinstance(value, dict):
        raise ValueError(f"{key}: {value!r} is not an object")
    return list(value.items())


def _sequences(mapping: Json, key: str) -> Iterator[tuple[Ordinal, int]]:
    for ordinal, number in _pairs(mapping, key):
        if not (ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= _LONGEST_ORDINAL):
            raise ValueError(f"{key}: {ordinal!r} is not an ordinal")
        yield Ordinal(int(ordinal)), _number(number, key)


def _owner(mapping: Json, key: str) -> tuple[tuple[str, str], ...]:
    pairs = _pairs(mapping, key)
    for name, value in pairs:
        if not isinstance(value, str):
            raise ValueError(f"{key}.{name}: {value!r} is not a string")
    return cast("tuple[tuple[str, str], ...]", tuple(sorted(pairs)))


def _carried(mapping: Json, known: frozenset[str]) -> str:
    if mapping.keys() <= known:
        return ""
    extra = {key: value for key, value in mapping.items() if key not in known}
    return json.dumps(extra, sort_keys=True, separators=(",", ":"))


def _with_carried(out: dict[str, object], carried: str) -> dict[str, object]:
    if carried:
        out.update(json.loads(carried))
    return out
