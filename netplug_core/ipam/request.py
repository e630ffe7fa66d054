"""What is asked of address assignment, and what it answers. ``flows`` builds requests; any IPAM takes them."""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.block import Pairs
from netplug_core.resources.ippool import AllowedUse

__all__ = [
    "AssignRequest",
    "AssignedAddress",
    "Assignment",
    "Attachment",
    "Automatic",
    "Reach",
    "ReleaseRequest",
    "Released",
    "Shortfall",
    "Wanted",
]


class Shortfall(enum.Enum):
    """What happens when less can be had than is asked: nothing at all, or what there is."""

    REFUSE = "refuse"
    RETURN = "return"


class Reach(enum.Enum):
    """How the holder will use the address.

    ``ROUTED``: alone, behind a route of its own; every address of a pool may serve. ``ON_LINK``: with the pool's prefix
    length on a shared link, so that the pool's network address, the one after it (the gateway) and the last one may
    not be given.
    """

    ROUTED = "routed"
    ON_LINK = "on-link"


@frozen(kw_only=True)
class Automatic:
    """A number of addresses of one family, chosen by netplug.

    ``count`` is the total that the handle shall hold. ``pools`` are names or prefixes in the order to try them; none
    means every pool that may serve.
    """

    family: Family
    count: int = 1
    pools: tuple[str, ...] = ()


Wanted: TypeAlias = Automatic
"""How the addresses of a request are chosen."""


@frozen(kw_only=True)
class AssignRequest:
    """One workload's wish for addresses on a node.

    ``owner`` is stored with each address, sorted pairs; ``handle`` is what they are released by. The families of
    ``wanted``, each at most once, are decided together.
    """

    handle: str
    node: str
    wanted: tuple[Wanted, ...]
    owner: Pairs = ()
    use: AllowedUse = AllowedUse.WORKLOAD
    reach: Reach = Reach.ROUTED
    shortfall: Shortfall = Shortfall.RETURN


@frozen(kw_only=True)
class AssignedAddress:
    """An address and the range it came from: its pool's, or its block's when the pool is gone."""

    address: Address
    prefix: Prefix


@frozen(kw_only=True)
class Assignment:
    """The addresses that a handle holds after an assignment, in the order of the request's families."""

    addresses: tuple[AssignedAddress, ...]


@frozen(kw_only=True)
class ReleaseRequest:
    """Everything a handle holds shall be free again."""

    handle: str


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
