"""Everything that an allocator has stored, read in one snapshot: the input of the invariants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeVar, cast

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model import (
    AFFINITY,
    BLOCK,
    HANDLE,
    RESERVED_HANDLE,
    Affinity,
    Allocation,
    Block,
    Handle,
    claimed_block,
    claiming_owner,
)
from netplug_core.records import Get, Key, List, Query, Snapshot
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION_KEY
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPPOOL, IPRESERVATION, IPAMConfigurationSpec, IPPool
from netplug_core.resources.node import NODE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT

__all__ = ["ClusterConfiguration", "PossibleConfigurations", "StoredState", "read_state"]

T = TypeVar("T")

_QUERIES: tuple[Query, ...] = (
    List(IPPOOL),
    List(NODE),
    List(IPRESERVATION),
    Get(IPAM_CONFIGURATION_KEY),
    Get(CLUSTER_INFORMATION_KEY),
    List(BLOCK),
    List(AFFINITY),
    List(HANDLE),
    List(WORKLOAD_ENDPOINT),
)
_CALL_S = 5.0


@frozen(kw_only=True)
class ClusterConfiguration:
    """What users have configured: pools by name, node labels, reserved prefixes, settings, the lock."""

    pools: Mapping[str, IPPool]
    labels: Mapping[str, Mapping[str, str]]
    reserved: tuple[Prefix, ...]
    settings: IPAMConfigurationSpec
    is_locked: bool

    def is_reserved(self, address: Address) -> bool:
        """Whether automatic assignment must not choose an address."""
        return any(prefix.contains(address) for prefix in self.reserved)


@frozen
class PossibleConfigurations:
    """The configurations that were stored at some time within a call, or as long before it as its cache may be old.

    The last one is that of now. A process reads the kinds of records at different times. So it may decide by any
    combination of their states in that time, and by nothing else.
    """

    stored: tuple[ClusterConfiguration, ...]

    @property
    def is_certainly_locked(self) -> bool:
        """Whether the store was locked all the time."""
        return all(configuration.is_locked for configuration in self.stored)

    @property
    def may_be_locked(self) -> bool:
        """Whether the store was locked at some time."""
        return any(configuration.is_locked for configuration in self.stored)

    def unlocked(self) -> Iterator[ClusterConfiguration]:
        """Every combination, as if the store was not locked; that of now is the first."""
        newest_first = self.stored[::-1]
        for pools, labels, reserved, settings in product(
            _distinct([configuration.pools for configuration in newest_first]),
            _distinct([configuration.labels for configuration in newest_first]),
            _distinct([configuration.reserved for configuration in newest_first]),
            _distinct([configuration.settings for configuration in newest_first]),
        ):
            yield ClusterConfiguration(
                pools=pools, labels=labels, reserved=reserved, settings=settings, is_locked=False
            )


def _distinct(values: list[T]) -> list[T]:
    """Each of some values once, the first of them first; they need not be hashable."""
    return [value for place, value in enumerate(values) if value not in values[:place]]


@frozen(kw_only=True, eq=False)
class StoredState:
    """The configuration and the stored records of one moment.

    ``held`` has every address that is held, without those that cool down and those that are host-reserved.
    ``damaged`` are the keys of records that no process can read.
    """

    configuration: ClusterConfiguration
    blocks: Mapping[Prefix, Block]
    affinities: Mapping[Key[Affinity], Affinity]
    handles: Mapping[str, Handle]
    endpoints: Mapping[str, tuple[Address, ...]]
    held: Mapping[Address, Allocation]
    damaged: frozenset[Key[object]] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot) -> StoredState:
        """The state that a snapshot of all kinds describes."""
        configuration = snapshot.find(IPAM_CONFIGURATION_KEY)
        information = snapshot.find(CLUSTER_INFORMATION_KEY)
        blocks = {record.value.prefix: record.value for record in snapshot.list(List(BLOCK))}
        return cls(
            configuration=ClusterConfiguration(
                pools={record.key.name: record.value for record in snapshot.list(List(IPPOOL))},
                labels={record.key.name: dict(record.value.metadata.labels) for record in snapshot.list(List(NODE))},
                reserved=tuple(
                    prefix for record in snapshot.list(List(IPRESERVATION)) for prefix in record.value.spec.reserved
                ),
                settings=configuration.value.spec if configuration else IPAMConfigurationSpec(),
                is_locked=information is not None and information.value.is_locked,
            ),
            blocks=blocks,
            affinities={record.key: record.value for record in snapshot.list(List(AFFINITY))},
            handles={record.key.name: record.value for record in snapshot.list(List(HANDLE))},
            endpoints={
                record.key.name: record.value.spec.addresses for record in snapshot.list(List(WORKLOAD_ENDPOINT))
            },
            held={
                held.address: held
                for block in blocks.values()
                for held in block.held()
                if not held.is_cooling and held.attribute.handle != RESERVED_HANDLE
            },
        )

    def held_by(self, handle: str | None) -> frozenset[Address]:
        """The addresses of a handle in all blocks; for None those without a handle."""
        return frozenset(address for address, held in self.held.items() if held.attribute.handle == handle)

    def owned_blocks(self, owner: str, family: Family) -> frozenset[Prefix]:
        """The blocks of a family that an owner has."""
        return frozenset(
            prefix for prefix, block in self.blocks.items() if block.owner == owner and prefix.family is family
        )

    def claimed_blocks(self, owner: str) -> frozenset[Prefix]:
        """The blocks that an owner has affinities to, whether the blocks exist or not."""
        return frozenset(claimed_block(key) for key in self.affinities if claiming_owner(key) == owner)

    @property
    def has_leftovers(self) -> bool:
        """Whether a block in the range of a pool has another size than the pool's blocks."""
        return any(
            pool.spec.prefix.overlaps(prefix) and pool.spec.block_length != prefix.length
            for pool in self.configuration.pools.values()
            for prefix in self.blocks
        )

    @property
    def damaged_blocks(self) -> frozenset[Prefix]:
        """The blocks that cannot be read, or an affinity to which cannot."""
        blocks = (Prefix.parse(key.name) for key in self.damaged if key.kind == BLOCK)
        claims = (claimed_block(cast("Key[Affinity]", key)) for key in self.damaged if key.kind == AFFINITY)
        return frozenset((*blocks, *claims))

    def find_block(self, address: Address) -> Block | None:
        """The block that contains an address."""
        return next((block for prefix, block in self.blocks.items() if prefix.contains(address)), None)


def read_state(store: Datastore, deadline: Deadline) -> StoredState:
    """Read everything in one snapshot."""
    return StoredState.of(store.read(_QUERIES, deadline=deadline.capped(_CALL_S)))
