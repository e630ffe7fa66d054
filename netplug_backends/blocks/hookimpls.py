"""Offers ``netplug-ipam``: block-based assignment over whatever datastore is configured."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.ipam.protocol import IPAM

__all__ = ["netplug_open_ipam"]


@hookimpl
def netplug_open_ipam(name: str, datastore: Datastore, clock: Clock) -> AbstractContextManager[IPAM] | None:
    """The block allocator, for ``netplug-ipam``."""
    if name != "netplug-ipam":
        return None
    from random import random

    from netplug_core.flows.ipam.service import BlockIPAM

    return nullcontext(BlockIPAM(datastore=datastore, clock=clock, chance=random))
