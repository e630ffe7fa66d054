"""Offers the host ``host``: the clock, the chance and the identifiers of this machine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, HostServices, hookimpl

__all__ = ["netplug_describe", "netplug_open_host"]


@hookimpl
def netplug_open_host(name: str) -> AbstractContextManager[HostServices] | None:
    """This machine."""
    if name != "host":
        return None
    from random import random

    from netplug_backends.host.machine import HostMachine, SystemClock

    return nullcontext(HostServices(clock=SystemClock(), chance=random, new_uid=HostMachine().new_uid))


@hookimpl
def netplug_describe() -> BackendDescription:
    """One host."""
    return BackendDescription(version=__version__, names={"host": ("host",)})
