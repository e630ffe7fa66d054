"""Repairs of records: handles and affinities are made from the blocks, and lost blocks from what workloads have.

Blocks are lost with their definition, while pods go on with their addresses. The endpoints of these say who has which:
``find_unheld`` finds the addresses that no block holds, ``plan_blocks`` the blocks that hold them again.

Each repair reads its records again, and writes only if they are still as they were judged. A repair that has nothing to
write any more counts as done, so that it may be decided again after a lost reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import frozen

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import format_time
from netplug_core.ipam.allocation.context import BLOCKS_PER_RESTORED_HANDLE
from netplug_core.ipam.allocation.ownership import is_owned
from netplug_core.ipam.model.affinity import Affinity, AffinityState, claiming_owner, host_owner
from netplug_core.ipam.model.attributes import Attribute
from netplug_core.ipam.model.block import Block, block_key
from netplug_core.ipam.model.handle import Handle
from netplug_core.names import DEFAULT_INTERFACE, handle_id
from netplug_core.records import (
    ABSENT,
    Absent,
    Create,
    Delete,
    Get,
    Key,
    Query,
    Record,
    Require,
    Revision,
    Snapshot,
    Update,
    Write,
)
from netplug_core.resources.ippool import IPPool
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "DeleteDamaged", "RestoreAffinity", "RestoreBlock", "RestoreHandle", "UnheldAddress", "find_unheld", "loss_text",
    "plan_blocks",
]  # fmt: skip


@frozen(kw_only=True)
class RestoreHandle:
    """Store a handle that is missing or damaged, as its blocks hold addresses for it.

    Of very many blocks only as many count as a commit takes. The next check finds that the handle lacks the others.
    """

    key: Key[Handle]
    blocks: tuple[Key[Block], ...]

    def __str__(self) -> str:
        return f"restore handle {self.key.name} from its blocks: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), *map(Get, self._first_blocks))

    @property
    def _first_blocks(self) -> tuple[Key[Block], ...]:
        return self.blocks[:BLOCKS_PER_RESTORED_HANDLE]

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...]:
        """The writes; empty if the handle is stored by now, or holds nothing any more."""
        if snapshot.readable(Get(self.key)):
            return ()
        found = [record for block in self._first_blocks if (record := snapshot.find(block)) is not None]
        counts = ((record.value.prefix, len(record.value.held_by(self.key.name))) for record in found)
        handle = Handle(blocks=tuple(sorted((prefix, count) for prefix, count in counts if count)))
        if not handle.blocks:
            return ()
        stored = snapshot.state(Get(self.key))
        return (*_unchanged(found), _put(self.key, handle, stored))


@frozen(kw_only=True)
class RestoreAffinity:
    """Store the affinity of a block's owner that is missing or damaged. The owner's next assignment confirms it."""

    key: Key[Affinity]
    block: Key[Block]

    def __str__(self) -> str:
        owner = claiming_owner(self.key)
        return f"restore the affinity of {owner} for block {self.block.name}: it is missing or damaged"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key), Get(self.block))

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the block has another owner by now."""
        if snapshot.readable(Get(self.key)):
            return ()
        block = snapshot.find(self.block)
        if block is None or not is_owned(block.value, self.key):
            return None
        stored = snapshot.state(Get(self.key))
        return (*_unchanged((block,)), _put(self.key, Affinity(state=AffinityState.PENDING), stored))


@frozen(kw_only=True)
class DeleteDamaged:
    """Delete a damaged handle that holds nothing, or a damaged affinity that owns no block."""

    key: Key[object]
    revision: Revision

    def __str__(self) -> str:
        return f"delete {self.key}: it is damaged, and no block needs it"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(self.key),)

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if it is done already, None if the record has changed."""
        state = snapshot.state(Get(self.key))
        if state is ABSENT:
            return ()
        is_damaged = bool(snapshot.malformed(Get(self.key)))
        return (Delete(self.key, self.revision),) if is_damaged and state == self.revision else None


# --- lost blocks ------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class UnheldAddress:
    """An address that a workload endpoint has and no block holds."""

    address: Address
    endpoint: WorkloadEndpoint

    @property
    def workload(self) -> str:
        """The workload for a person."""
        return f"{self.endpoint.metadata.namespace}/{self.endpoint.spec.pod or self.endpoint.metadata.name}"


def find_unheld(endpoints: Iterable[WorkloadEndpoint], blocks: Iterable[Block]) -> tuple[UnheldAddress, ...]:
    """The addresses of endpoints that no block holds, in their order."""
    held = {allocation.address for block in blocks for allocation in block.held() if not allocation.is_cooling}
    unheld = (
        UnheldAddress(address=address, endpoint=endpoint)
        for endpoint in endpoints
        for address in endpoint.spec.addresses
        if address not in held
    )
    return tuple(sorted(unheld, key=lambda one: (one.address.family.value, one.address)))


def loss_text(unheld: Sequence[UnheldAddress]) -> str:
    """What is wrong where workloads have addresses and there is no block, and what to do; empty if nothing is."""
    if not unheld:
        return ""
    first = unheld[0]
    return (
        f"workloads have {len(unheld)} addresses that no block holds, such as {first.workload} {first.address}: the "
        "definitions were deleted, with every block; a new pool would give these addresses a second time; run "
        "netplugctl ipam check --restore first"
    )


@frozen(kw_only=True)
class RestoreBlock:
    """Store a block that holds addresses which workloads have, or let a stored one hold them.

    ``holders`` are the addresses, each with the attribute that says who has it. ``owner`` is the node of most of them.
    An address that another workload holds by now stays with that one.
    """

    prefix: Prefix
    owner: str
    holders: tuple[tuple[Address, Attribute], ...]
    now_ns: int

    def __str__(self) -> str:
        return f"restore block {self.prefix} of {self.owner or 'no node'}: {len(self.holders)} addresses of workloads"

    @property
    def queries(self) -> tuple[Query, ...]:
        """What to read before ``writes``."""
        return (Get(block_key(self.prefix)),)

    def writes(self, snapshot: Snapshot) -> tuple[Write, ...] | None:
        """The writes; empty if the block holds all of them already, None if others hold one."""
        stored = snapshot.find(block_key(self.prefix))
        before = stored.value if stored else Block.new(self.prefix, owner=self.owner, now_ns=self.now_ns)
        block, is_taken = before, False
        for address, attribute in self.holders:
            found = block.find(address)
            if found is None:
                block = block.assign((Ordinal(before.prefix.offset(address)),), attribute)
            elif found.attribute.handle != attribute.handle:
                is_taken = True
        if stored is None:
            return (Create(block_key(self.prefix), block),)
        if block is before:
            return None if is_taken else ()
        return (Update(stored.key, block, stored.revision),)


def plan_blocks(
    unheld: Iterable[UnheldAddress],
    *,
    pools: Iterable[IPPool],
    blocks: Iterable[Block],
    network: str,
    now_ns: int,
) -> tuple[RestoreBlock, ...]:
    """The blocks that hold these addresses again.

    A block is the stored one of the range, or as large as those of the pool that has the address; without a pool it has
    the default size. Handles are those of the attachments to ``network``, as a DEL of the workload makes them.
    """
    ranges = tuple(pools)
    prefixes = [block.prefix for block in blocks]
    found = dict[Prefix, list[UnheldAddress]]()
    for one in unheld:
        stored = next((prefix for prefix in prefixes if prefix.contains(one.address)), None)
        found.setdefault(stored or _block_of(one.address, ranges), []).append(one)
    return tuple(
        RestoreBlock(
            prefix=prefix,
            owner=_owner_of(of_block),
            holders=tuple((one.address, _attribute(one, network, now_ns)) for one in of_block),
            now_ns=now_ns,
        )
        for prefix, of_block in sorted(found.items())
    )


def _block_of(address: Address, pools: Iterable[IPPool]) -> Prefix:
    specs = (pool.spec for pool in pools if pool.spec.prefix.contains(address))
    length = next((spec.block_length for spec in specs), address.family.default_block_length)
    return Prefix.at(address, length)


def _owner_of(unheld: Sequence[UnheldAddress]) -> str:
    nodes = Counter(one.endpoint.spec.node for one in unheld if one.endpoint.spec.node)
    if not nodes:
        return ""
    return host_owner(min(nodes, key=lambda node: (-nodes[node], node)))


def _attribute(one: UnheldAddress, network: str, now_ns: int) -> Attribute:
    """Who has an address. Without a container id the handle is of the pod, so that a collector may free it."""
    spec, metadata = one.endpoint.spec, one.endpoint.metadata
    container = spec.container_id or f"{metadata.namespace}-{spec.pod or metadata.name}"
    owner = {"namespace": metadata.namespace, "node": spec.node, "pod": spec.pod, "timestamp": format_time(now_ns)}
    return Attribute(
        handle=handle_id(network, container, spec.endpoint or DEFAULT_INTERFACE),
        owner=tuple(sorted((name, text) for name, text in owner.items() if text)),
    )


def _unchanged(blocks: Iterable[Record[Block]]) -> tuple[Write, ...]:
    return tuple(Require(block.key, block.revision) for block in blocks)


def _put(key: Key[object], value: object, stored: Revision | Absent) -> Write:
    return Create(key, value) if isinstance(stored, Absent) else Update(key, value, stored)
