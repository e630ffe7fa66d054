"""What is asked of address assignment, and what it answers. ``flows`` builds requests; any IPAM takes them."""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, require_count, require_tuple, require_type
from netplug_core.ipam.model.affinity import host_owner
from netplug_core.ipam.model.block import Pairs
from netplug_core.resources.ippool import AllowedUse

__all__ = [
    "AddressesReleased",
    "AssignRequest",
    "AssignedAddress",
    "Assignment",
    "Attachment",
    "Automatic",
    "LinkLayer",
    "ReleaseItem",
    "ReleaseRequest",
    "Released",
    "Shortfall",
    "Specific",
    "Wanted",
]

_POOLS_ACCEPTED = "a tuple of pools' names or prefixes is expected"


class Shortfall(enum.Enum):
    """What happens when less can be had than is asked: nothing at all, or what there is."""

    REFUSE = "refuse"
    RETURN = "return"


class LinkLayer(enum.Enum):
    """How the holder will use the address.

    ``L3``: alone, behind a route of its own; every address of a pool may serve. ``L2``: with the pool's prefix
    length on a shared link, so that the pool's network address, the one after it (the gateway) and the last one may
    not be given.
    """

    L3 = "routed"
    L2 = "on-link"


@frozen(kw_only=True)
class Automatic:
    """A number of addresses of one family, chosen by netplug.

    ``count`` is the total that the handle shall hold. ``pools`` are names or prefixes in the order to try them; none
    means every pool that may serve.
    """

    family: Family
    count: int = 1
    pools: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        require_type("Automatic.family", self.family, Family, "Family.IPV4 or Family.IPV6 is expected")
        require_count("Automatic.count", self.count)
        require_tuple("Automatic.pools", self.pools, str, _POOLS_ACCEPTED)


@frozen(kw_only=True)
class Specific:
    """One address that the handle shall hold, and no other.

    Reservations, selectors, assignmentMode and block limits do not count for it. ``pools`` restricts it to some pools;
    none means any.
    """

    address: Address
    pools: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        require_type("Specific.address", self.address, Address, "an Address is expected; Address.parse(text) makes one")
        require_tuple("Specific.pools", self.pools, str, _POOLS_ACCEPTED)

    @property
    def family(self) -> Family:
        """The address's family."""
        return self.address.family


Wanted: TypeAlias = Automatic | Specific
"""How the addresses of a request are chosen."""


@frozen(kw_only=True)
class AssignRequest:
    """One workload's wish for addresses on a node.

    ``owner`` is stored with each address, sorted pairs; ``handle`` is what they are released by, None for addresses
    that are released one by one. The families of ``wanted``, each at most once, are decided together. ``use`` must be
    stated for automatic addresses. ``namespace_labels`` is what pools select namespaces by; a workload without a
    namespace has none.

    ``block_limit`` and ``max_per_handle`` (addresses of one family) are limits of this request; None sets none.
    ``kept_back`` is how many of the first and of the last addresses of each new block the host keeps for itself.
    ``affine_to`` claims blocks for somebody other than the node, such as ``virtual:load-balancer``.
    """

    handle: str | None
    node: str
    wanted: tuple[Wanted, ...]
    owner: Pairs = ()
    use: AllowedUse | None = None
    link_layer: LinkLayer = LinkLayer.L3
    shortfall: Shortfall = Shortfall.RETURN
    namespace_labels: Pairs = ()
    block_limit: int | None = None
    max_per_handle: int | None = None
    host_reserved: tuple[int, int] = (0, 0)
    affine_to: str = ""

    def __attrs_post_init__(self) -> None:
        require_type("AssignRequest.node", self.node, str, "the name of a node is expected")
        accepted = "a tuple of Automatic and Specific is expected"
        require_tuple("AssignRequest.wanted", self.wanted, Automatic | Specific, accepted)
        if self.use is not None:
            uses = ", ".join(map(str, AllowedUse))
            require_type("AssignRequest.use", self.use, AllowedUse, f"one of {uses} is expected")
        accepted = "Shortfall.REFUSE or Shortfall.RETURN is expected"
        require_type("AssignRequest.shortfall", self.shortfall, Shortfall, accepted)

    @property
    def claimant(self) -> str:
        """Whom the blocks of this request belong to, as blocks name their owner."""
        return self.affine_to or host_owner(self.node)


@frozen(kw_only=True)
class AssignedAddress:
    """An address and the range it came from: its pool's, or its block's when the pool is gone."""

    address: Address
    prefix: Prefix


@frozen(kw_only=True)
class Assignment:
    """The addresses that are held after an assignment, in the order of the request's families and sorted in each.

    ``shortfalls`` says of each family that got less than was asked why (only where the request accepts that).
    """

    addresses: tuple[AssignedAddress, ...]
    shortfalls: tuple[AllocationError, ...] = ()


@frozen(kw_only=True)
class ReleaseRequest:
    """Everything a handle holds shall be free again; with a ``sequence`` only what was taken under that number."""

    handle: str
    sequence: int | None = None


@frozen(kw_only=True)
class ReleaseItem:
    """One address that shall be free again, if it is held as described.

    ``sequence`` is the number that its block remembers for the allocation; None for a handle or a number that does not
    matter.
    """

    address: Address
    handle: str | None = None
    sequence: int | None = None


@frozen(kw_only=True)
class AddressesReleased:
    """What became of some addresses, each list sorted by address and without repetition.

    ``free_already`` was not held by anybody, or in no block at all. ``refused`` says why the rest is
    held as before: if one item does not describe its address, all items of that block are refused.
    """

    released: tuple[Address, ...] = ()
    free_already: tuple[Address, ...] = ()
    refused: tuple[AllocationError, ...] = ()


@frozen(kw_only=True)
class Released:
    """The addresses that a release freed; none when the handle held nothing."""

    addresses: tuple[Address, ...]


@frozen(kw_only=True, order=True)
class Attachment:
    """An interface of a container, as addresses remember it, and the handle that holds them.

    ``namespace`` and ``pod`` are empty for a container that no orchestrator named.
    """

    container_id: str
    interface: str
    handle: str
    namespace: str = ""
    pod: str = ""
