"""Writes the status of APIServer, FlowLogAPI and FlowLogViewer. ``netplug_core.operator.report`` has its texts."""

from __future__ import annotations

from typing import Final

from netplug_cli.operator.acting import Actor
from netplug_core.clock import Deadline, format_time
from netplug_core.operator.report import COMPONENT_REFS, pending_statuses

__all__ = ["write_component_statuses"]

_READ_S: Final = 5.0


def write_component_statuses(actor: Actor) -> None:
    """Make the status of each component that exists say what this release does for it.

    Raises:
        NetplugError: a component cannot be read, or its status cannot be written.
    """
    deadline = Deadline.after(actor.clock, _READ_S)
    read = {kind: actor.cluster.find(ref, deadline=deadline) for kind, ref in COMPONENT_REFS.items()}
    found = {kind: component for kind, component in read.items() if component is not None}
    for component, status in pending_statuses(found, format_time(actor.clock.now_ns())):
        actor.write_status(component, status)
