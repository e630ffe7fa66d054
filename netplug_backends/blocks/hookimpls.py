"""Offers the IPAM ``netplug-ipam``: block allocation on the configured datastore."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, IPAMContext, hookimpl
from netplug_core.locks import no_lock

if TYPE_CHECKING:
    from netplug_core.ipam.protocol import IPAM

__all__ = ["netplug_describe", "netplug_open_ipam"]


@hookimpl
def netplug_open_ipam(name: str, context: IPAMContext) -> AbstractContextManager[IPAM] | None:
    """The block allocator, for ``netplug-ipam``."""
    if name != "netplug-ipam":
        return None
    from netplug_core.flows.ipam.service import BlockIPAM

    return nullcontext(
        BlockIPAM(
            datastore=context.datastore,
            clock=context.clock,
            chance=context.chance,
            cache=context.cache,
            queue=context.queue,
            # Calls of one queue do not collide, and a call that waits with the lock would keep the next one from it.
            lock=context.lock if context.queue is None else no_lock,
            turn=context.turn,
            memory=context.memory,
            log=context.log,
        )
    )


@hookimpl
def netplug_describe() -> BackendDescription:
    """One IPAM."""
    return BackendDescription(version=__version__, names={"ipam": ("netplug-ipam",)})
