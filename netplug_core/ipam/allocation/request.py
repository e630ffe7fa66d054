"""The requests to an IPAM, and its results. ``flows`` builds the requests; every IPAM takes them."""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, require_count, require_tuple, require_type
from netplug_core.ipam.model import Pairs, host_owner
from netplug_core.resources.ippool import AllowedUse

__all__ = [
    "DNS", "NO_DNS", "AddressesReleased", "AssignRequest", "AssignedAddress", "Assignment", "Attachment", "Automatic",
    "LinkLayer", "ReleaseItem", "ReleaseRequest", "Released", "Shortfall", "Specific", "Wanted",
]  # fmt: skip

_POOLS_ACCEPTED = "a tuple of pools' names or prefixes is expected"
_USES_ACCEPTED = f"one of {', '.join(map(str, AllowedUse))} is expected"


class Shortfall(enum.Enum):
    """What to do when fewer addresses can be had than are wanted: refuse, or return those that can be had."""

    REFUSE = "refuse"
    RETURN = "return"


class LinkLayer(enum.Enum):
    """How the workload uses its address.

    ``L3``: alone, with a route of its own; every address of a pool may be assigned. ``L2``: with the pool's prefix
    length on a shared link, so the pool's network address, the one after it (the gateway) and the last one are not
    assigned.
    """

    L3 = "routed"
    L2 = "on-link"


@frozen(kw_only=True)
class Automatic:
    """A number of addresses of one family, chosen by netplug.

    ``count`` is the total that the handle shall hold. ``pools`` are names or prefixes, in the order to try them; empty
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

    Reservations, selectors, assignmentMode and block limits do not count for it. The address must lie in one of
    ``pools``; empty means any pool.
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
    """The addresses that a workload on a node shall hold.

    ``owner`` is stored with each address, as sorted pairs. ``handle`` releases them together; None for addresses that
    are released one by one. ``wanted`` has each family at most once; all families are decided together. ``use`` must
    be stated for automatic addresses. Pools select namespaces by ``namespace_labels``; a workload without a namespace
    has none.

    ``block_limit`` and ``max_per_handle`` (addresses of one family) are limits of this request; None sets none.
    ``host_reserved`` is how many of the first and of the last addresses of each new block the host keeps for itself.
    ``affine_to`` is the owner of claimed blocks if that is not the node, such as ``virtual:load-balancer``.
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
        require_tuple("AssignRequest.wanted", self.wanted, (Automatic, Specific), accepted)
        if self.use is not None:
            require_type("AssignRequest.use", self.use, AllowedUse, _USES_ACCEPTED)
        accepted = "Shortfall.REFUSE or Shortfall.RETURN is expected"
        require_type("AssignRequest.shortfall", self.shortfall, Shortfall, accepted)

    @property
    def claimant(self) -> str:
        """The owner of blocks that this request claims, as blocks name it."""
        return self.affine_to or host_owner(self.node)


@frozen(kw_only=True)
class AssignedAddress:
    """An address and the range it came from: its pool's, or its block's when the pool is gone.

    ``gateway`` is what an IPAM plugin of others names for it. A result repeats it, and nothing uses it.
    """

    address: Address
    prefix: Prefix
    gateway: Address | None = None


@frozen(kw_only=True)
class DNS:
    """Name resolution settings, passed on word for word."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


NO_DNS = DNS()
"""No settings."""


@frozen(kw_only=True)
class Assignment:
    """The addresses that are held after an assignment, in the order of the request's families and sorted in each.

    ``shortfalls`` says of each family that got less than was asked why (only where the request accepts that). An IPAM
    plugin of others may also say what the workload reaches, instead of everything (``routes``, the destinations), and
    how it resolves names (``dns``).
    """

    addresses: tuple[AssignedAddress, ...]
    shortfalls: tuple[AllocationError, ...] = ()
    routes: tuple[Prefix, ...] = ()
    dns: DNS = NO_DNS


@frozen(kw_only=True)
class ReleaseRequest:
    """Release all addresses of a handle; with a ``sequence`` only those that were assigned under that number.

    ``node`` is the node of the workload, as far as it is known. Where an assignment was killed, it leads to the block
    that this may still create. ``addresses`` are released one by one where no handle leads to them, each if it is still
    held as described. ``owner`` is that of the assignment: an IPAM that does not know handles releases by it, and
    nothing without it.
    """

    handle: str
    sequence: int | None = None
    node: str = ""
    addresses: tuple[ReleaseItem, ...] = ()
    owner: Pairs = ()


@frozen(kw_only=True)
class ReleaseItem:
    """Release one address, if it is held as described.

    ``sequence`` is the number that its block stores for the allocation. None for a handle or number means any.
    """

    address: Address
    handle: str | None = None
    sequence: int | None = None


@frozen(kw_only=True)
class AddressesReleased:
    """What a release of addresses did, each list sorted by address and without repetition.

    ``free_already`` were not held, or lie in no block. ``refused`` says why the rest is still held: if one item does
    not describe its address, all items of that block are refused.
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
    """An interface of a container, as the attributes of its addresses name it, and the handle that holds them.

    ``namespace`` and ``pod`` are empty for a container that is not a pod's. ``addresses`` are those that it holds; they
    do not count when attachments are compared.
    """

    container_id: str
    interface: str
    handle: str
    namespace: str = ""
    pod: str = ""
    addresses: tuple[ReleaseItem, ...] = field(default=(), eq=False)
