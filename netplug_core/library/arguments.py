"""What callers pass to a :class:`~netplug_core.library.network.Network`, as checked values.

Every refusal is an ``InvalidArgument`` that names the argument, its value and what is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import InvalidArgument, require_count, require_type
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall, Specific, Wanted
from netplug_core.ipam.model import Pairs
from netplug_core.names import prefix_to_name
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPPoolSpec
from netplug_core.resources.metadata import Metadata

__all__ = ["LIBRARY_OWNER", "Arguments", "check_handle", "is_key_text", "pool_from_arguments", "request_from_arguments"]

LIBRARY_OWNER = "virtual:library"
"""Whose blocks an assignment takes addresses from if it names no node."""

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@frozen
class Arguments:
    """The keyword arguments of one function."""

    function: str
    values: Mapping[str, object]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises InvalidArgument for an argument that the function does not have."""
        for name, value in self.values.items():
            if name not in known:
                raise InvalidArgument(
                    self.where(name), value, f"there is no such argument; there are {', '.join(known)}"
                )

    def where(self, name: str) -> str:
        """How an error names an argument."""
        return f"{self.function}({name})"

    def get(self, name: str, check: Callable[[str, object], T], default: T) -> T:
        """The checked value of an argument; None is refused like any other wrong value."""
        return check(self.where(name), self.values[name]) if name in self.values else default


def pool_from_arguments(cidr: object, options: Mapping[str, object], known: Collection[str]) -> IPPool:
    """The pool that ``create_pool`` is to create. Its blocks are as large as the family's default, or as the pool."""
    given = Arguments("create_pool", options)
    given.refuse_unknown(known)
    prefix = _check_prefix(given.where("cidr"), cidr)
    spec = IPPoolSpec(
        prefix=prefix,
        block_length=_block_length(given, prefix),
        is_disabled=given.get("is_disabled", _check_flag, default=False),
        allowed_uses=given.get("allowed_uses", _check_uses, (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)),
        node_selector=given.get("node_selector", _check_text, "all()"),
        namespace_selector=given.get("namespace_selector", _check_text, ""),
        assignment_mode=given.get("assignment_mode", _member_of(AssignmentMode), AssignmentMode.AUTOMATIC),
    )
    return IPPool(metadata=Metadata(name=given.get("name", _check_text, prefix_to_name(prefix))), spec=spec)


def _block_length(given: Arguments, prefix: Prefix) -> int:
    length = given.get("block_length", _check_count, max(prefix.length, prefix.family.default_block_length))
    shortest, longest = prefix.family.block_lengths
    shortest = max(shortest, min(prefix.length, longest))
    if not shortest <= length <= longest:
        accepted = f"a prefix length from {shortest} to {longest} is expected for blocks of {prefix}"
        raise InvalidArgument(given.where("block_length"), length, accepted)
    return length


def request_from_arguments(
    handle: object, options: Mapping[str, object], known: Collection[str], *, default_node: str
) -> AssignRequest:
    """The request that ``assign`` is to make."""
    given = Arguments("assign", options)
    given.refuse_unknown(known)
    node = given.get("node", _check_node, default_node)
    return AssignRequest(
        handle=check_handle(given.function, handle),
        node=node,
        affine_to="" if node else LIBRARY_OWNER,
        wanted=_wanted(given),
        owner=given.get("owner", _check_pairs, ()),
        namespace_labels=given.get("namespace_labels", _check_pairs, ()),
        use=given.get("use", _member_of(AllowedUse), AllowedUse.WORKLOAD),
        shortfall=given.get("shortfall", _member_of(Shortfall), Shortfall.REFUSE),
    )


def check_handle(function: str, handle: object) -> str:
    """The handle that a function was called with.

    Raises:
        InvalidArgument: it is not a text, it is empty, or it has a control character.
    """
    if not isinstance(handle, str) or not handle or not is_key_text(handle):
        accepted = "a text of printable characters is expected, such as job-1"
        raise InvalidArgument(f"{function}(handle)", handle, accepted)
    return handle


def is_key_text(text: str) -> bool:
    """Whether every store can have a text in a key: it has no control character, and UTF-8 can encode it."""
    return text.isprintable()


def _wanted(given: Arguments) -> tuple[Wanted, ...]:
    any_pool: tuple[str, ...] = ()
    address, pools = given.get("address", _check_address, None), given.get("pools", _check_pools, any_pool)
    wanted: list[Wanted] = []
    for family, name in ((Family.IPV4, "ipv4"), (Family.IPV6, "ipv6")):
        count = given.get(name, _check_count, 0)
        if address is not None and address.family is family:
            if count:
                raise InvalidArgument(given.where(name), count, f"leave it out: address is {address}, of this family")
            wanted.append(Specific(address=address, pools=pools))
        elif count:
            wanted.append(Automatic(family=family, count=count, pools=pools))
    if not wanted:
        raise InvalidArgument(given.function, (), "one of ipv4, ipv6 and address is expected")
    if pools and len(wanted) > 1:
        accepted = "with pools, addresses of one family are expected: call once for each family"
        raise InvalidArgument(given.where("pools"), pools, accepted)
    return tuple(wanted)


# --- one argument ----------------------------------------------------------------------------------------------------


def _check_prefix(where: str, value: object) -> Prefix:
    if isinstance(value, Prefix):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return Prefix.parse(value)
        with suppress(ValueError):
            enclosing = Prefix.enclosing(value)
            raise InvalidArgument(where, value, f"it has host bits set; {enclosing} is the prefix that holds it")
    raise InvalidArgument(where, value, "a Prefix or a text such as 10.0.0.0/24 is expected")


def _check_address(where: str, value: object) -> Address | None:
    if isinstance(value, Address):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return Address.parse(value)
    raise InvalidArgument(where, value, "an Address or a text such as 10.0.0.7 is expected")


def _check_count(where: str, value: object) -> int:
    require_count(where, value)
    return value if isinstance(value, int) else 0


def _check_flag(where: str, value: object) -> bool:
    require_type(where, value, bool, "True or False is expected")
    return bool(value)


def _check_text(where: str, value: object) -> str:
    require_type(where, value, str, "a text is expected")
    return str(value)


def _check_node(where: str, value: object) -> str:
    if not isinstance(value, str) or not value or not is_key_text(value):
        accepted = "the name of a node is expected, of printable characters; leave it out for none"
        raise InvalidArgument(where, value, accepted)
    return value


def _check_pools(where: str, value: object) -> tuple[str, ...]:
    accepted = "a list of pools' names or prefixes is expected"
    if isinstance(value, str | bytes | Prefix) or not isinstance(value, Collection):
        raise InvalidArgument(where, value, accepted)
    for pool in value:
        if not isinstance(pool, str | Prefix | IPPool):
            raise InvalidArgument(where, pool, accepted)
    return tuple(pool.metadata.name if isinstance(pool, IPPool) else str(pool) for pool in value)


def _check_uses(where: str, value: object) -> tuple[AllowedUse, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Collection) or not value:
        raise InvalidArgument(where, value, f"a list is expected, of {_members(AllowedUse)}")
    return tuple(_member_of(AllowedUse)(where, use) for use in value)


def _check_pairs(where: str, value: object) -> Pairs:
    accepted = "a mapping of texts to texts is expected"
    require_type(where, value, Mapping, accepted)
    pairs = dict(value) if isinstance(value, Mapping) else {}
    if not all(isinstance(text, str) for pair in pairs.items() for text in pair):
        raise InvalidArgument(where, value, accepted)
    return tuple(sorted(pairs.items()))


def _member_of(enumeration: type[E]) -> Callable[[str, object], E]:
    def check(where: str, value: object) -> E:
        if isinstance(value, enumeration):
            return value
        raise InvalidArgument(where, value, f"one of {_members(enumeration)} is expected")

    return check


def _members(enumeration: type[Enum]) -> str:
    return ", ".join(map(str, enumeration))
