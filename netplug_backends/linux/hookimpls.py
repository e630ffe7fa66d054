"""Offers the dataplane ``linux``: veth pairs, routes and sysctls of this machine's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.hookspecs import BackendDescription, hookimpl
from netplug_core.log import Level

if TYPE_CHECKING:
    from netplug_core.clock import Clock
    from netplug_core.dataplane.protocol import Dataplane
    from netplug_core.log import Log

__all__ = ["netplug_describe", "netplug_open_dataplane"]


@hookimpl
def netplug_open_dataplane(
    name: str, clock: Clock, log: Log, namespaces: Mapping[str, int]
) -> AbstractContextManager[Dataplane] | None:
    """The kernel's dataplane."""
    if name != "linux":
        return None
    from netplug_backends.linux.dataplane import LinuxDataplane

    return nullcontext(LinuxDataplane(clock=clock, warn=lambda text: log(Level.WARNING, text), namespaces=namespaces))


@hookimpl
def netplug_describe() -> BackendDescription:
    """One dataplane."""
    return BackendDescription(version=__version__, names={"dataplane": ("linux",)})
