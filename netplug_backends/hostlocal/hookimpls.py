"""Offers the IPAM ``host-local``: one file on this host for each address that is held."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, IPAMContext, hookimpl

if TYPE_CHECKING:
    from netplug_core.ipam.protocol import IPAM

__all__ = ["netplug_describe", "netplug_open_ipam"]


@hookimpl
def netplug_open_ipam(name: str, context: IPAMContext) -> AbstractContextManager[IPAM] | None:
    """The allocator of fixed ranges; nothing is made or read before the first call."""
    if name != "host-local":
        return None
    from netplug_backends.hostlocal.ipam import HostLocalIPAM

    return nullcontext(HostLocalIPAM(context))


@hookimpl
def netplug_describe() -> BackendDescription:
    """One IPAM."""
    return BackendDescription(version=__version__, names={"ipam": ("host-local",)})
