"""Offers the BGP daemon ``bird``: BIRD 2 of this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, hookimpl

if TYPE_CHECKING:
    from netplug_core.dataplane.bgp import BgpDaemon
    from netplug_core.hookspecs import BgpContext

__all__ = ["netplug_describe", "netplug_open_bgp"]


@hookimpl
def netplug_open_bgp(name: str, context: BgpContext) -> AbstractContextManager[BgpDaemon] | None:
    """BIRD, which outlives the context."""
    if name != "bird":
        return None
    from netplug_backends.bird.process import BirdDaemon

    daemon = BirdDaemon(
        folder=context.folder,
        clock=context.clock,
        log=context.log,
        count_routes=context.count_routes,
        remove_routes=context.remove_routes,
        unit=context.unit,
    )
    return nullcontext(daemon)


@hookimpl
def netplug_describe() -> BackendDescription:
    """One BGP daemon."""
    return BackendDescription(version=__version__, names={"bgp": ("bird",)})
