"""What pools ask for and this release does not program: routes between nodes, encapsulation and NAT.

The one place of this rule: when a later release programs them, this module goes, and its callers with it. They are the
warnings of a new pool and of ``netplugctl lint``, those of ``netplugctl get``, the status of an Installation, and
``netplugctl install status``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from netplug_core.resources.ippool import AllowedUse, Encapsulation, IPPool

__all__ = ["INERT", "NO_ROUTES", "find_unrouted", "inert_settings", "is_wrapped", "pools_warning"]

NO_ROUTES: Final = "pods of different nodes do not reach each other: no routes are programmed"
"""What follows for the pods of a pool, unless others make the routes."""

INERT: Final = "stored, but nothing in this release programs it"
"""What is said of a setting without an effect."""


def find_unrouted(pools: Iterable[IPPool]) -> tuple[IPPool, ...]:
    """The pools whose pods ``NO_ROUTES`` is said of: those that give addresses to pods."""
    return tuple(one for one in pools if not one.spec.is_disabled and AllowedUse.WORKLOAD in one.spec.allowed_uses)


def is_wrapped(pool: IPPool) -> bool:
    """Whether a pool asks for an encapsulation, and so for a network between the nodes."""
    return (pool.spec.ipip_mode, pool.spec.vxlan_mode) != (Encapsulation.NEVER, Encapsulation.NEVER)


def inert_settings(pool: IPPool) -> tuple[str, ...]:
    """The settings of a pool that have no effect, as a resource spells them."""
    spec = pool.spec
    return (
        *(["natOutgoing"] if spec.has_outgoing_nat else []),
        *([f"ipipMode {spec.ipip_mode.value}"] if spec.ipip_mode is not Encapsulation.NEVER else []),
        *([f"vxlanMode {spec.vxlan_mode.value}"] if spec.vxlan_mode is not Encapsulation.NEVER else []),
    )


def pools_warning(pools: Iterable[IPPool]) -> str:
    """What is said beside a table that shows pools with such settings as if they had an effect; empty without any."""
    unrouted = [one for one in find_unrouted(pools) if inert_settings(one)]
    settings = dict.fromkeys(setting for one in unrouted for setting in inert_settings(one))
    if not settings:
        return ""
    wrapped = f"; {NO_ROUTES}" if any(map(is_wrapped, unrouted)) else ""
    return f"nothing in this release programs {', '.join(settings)}{wrapped}"
