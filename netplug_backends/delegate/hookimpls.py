"""Offers the IPAM that executes another IPAM plugin, under the name ``delegate``."""

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
    """The plugin that ``ipam.type`` of the call names; without a call there is none."""
    if name != "delegate" or context.request is None:
        return None
    from netplug_backends.delegate.ipam import DelegatedIPAM
    from netplug_core.cni.delegation import require_no_loop

    require_no_loop(context.request)
    return nullcontext(DelegatedIPAM(context, context.request))


@hookimpl
def netplug_describe() -> BackendDescription:
    """One IPAM."""
    return BackendDescription(version=__version__, names={"ipam": ("delegate",)})
