"""What ``lab status`` prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from attrs import define, frozen

from netplug_cli.formatting import format_columns, print_error
from netplug_cli.lab.model import NODE_ADDRESSES, NODE_NETNS, Lab
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.processes import list_ended
from netplug_cli.lab.reachability import ProbePeer, ReachabilityMatrix, probe
from netplug_cli.lab.stores import OwnServers, store_environment
from netplug_cli.lab.world import LabWorld

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ConsoleProgress", "LabStatus", "access_lines", "inspect_lab", "make_progress", "matrix_lines", "pod_lines",
    "problem_lines",
]  # fmt: skip


# --- status ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class LabStatus:
    """The state of a lab. ``missing`` are sentences about missing parts; ``matrix`` covers the others."""

    missing: tuple[str, ...]
    matrix: ReachabilityMatrix


def inspect_lab(world: LabWorld, folder: LabFolder, lab: Lab) -> LabStatus:
    """Find out which parts of a lab exist, and who reaches whom.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    pinned = frozenset(world.namespaces.find_below(folder.netns_dir))
    peers = (
        ProbePeer(name=NODE_NETNS, netns=folder.netns(NODE_NETNS), addresses=NODE_ADDRESSES),
        *(ProbePeer(name=pod.name, netns=folder.netns(pod.name), addresses=pod.addresses) for pod in lab.pods),
    )
    missing = [f"{peer.name}: its namespace is gone" for peer in peers if peer.netns not in pinned]
    missing += [f"{pod.name}: it was never attached" for pod in lab.pods if not pod.is_attached]
    missing += [f"{name}: it is not running any more" for name in list_ended(folder)]
    present = [peer for peer in peers if peer.netns in pinned]
    return LabStatus(missing=tuple(missing), matrix=probe(present, world.namespaces, world.session.clock))


# --- report ----------------------------------------------------------------------------------------------------------


_SELF = "-"
_NONE = "none"


@define
class ConsoleProgress:
    """Progress as lines; on a terminal with a spinner beside the current activity."""

    _console: Console | None = None

    def info(self, text: str) -> None:
        """A line on standard output."""
        if self._console is not None:
            # Through the console, which moves the spinner out of the way.
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            click.echo(text)
        except BrokenPipeError:
            # The reader has closed the pipe. The lab is made, or removed, to the end all the same.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def warn(self, text: str) -> None:
        """Print a line on standard error."""
        print_error(text)

    @contextmanager
    def activity(self, text: str) -> Iterator[None]:
        """Show an activity on a terminal; print nothing elsewhere."""
        if self._console is None:
            yield
            return
        with self._console.status(text):
            yield


def make_progress(stream_is_terminal: bool) -> ConsoleProgress:  # noqa: FBT001 - the only parameter
    """Progress for a terminal, or for a file or a pipe."""
    if not stream_is_terminal:
        return ConsoleProgress()
    from rich.console import Console

    return ConsoleProgress(Console())


def pod_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """The table of the pods: addresses, host interface and namespace."""
    rows = (
        (pod.name, ", ".join(map(str, pod.addresses)) or _NONE, pod.host_interface or _NONE, folder.netns(pod.name))
        for pod in lab.pods
    )
    return format_columns(("POD", "ADDRESSES", "HOST INTERFACE", "NAMESPACE"), rows)


def matrix_lines(matrix: ReachabilityMatrix) -> list[str]:
    """The table of who reaches whom; a cell has the families over which replies came."""
    reached = matrix.reached_families()

    def cell(source: str, target: str) -> str:
        if source == target:
            return _SELF
        return "+".join(map(str, reached.get((source, target), ()))) or _NONE

    rows = ((source, *(cell(source, target) for target in matrix.names)) for source in matrix.names)
    return format_columns(("FROM / TO", *matrix.names), rows)


def problem_lines(status: LabStatus) -> list[str]:
    """The problems of a lab, a sentence each."""
    failures = (f"{path}: {reason}" for path, reason in status.matrix.failures)
    return [*status.missing, *failures]


def access_lines(lab: Lab, folder: LabFolder) -> list[str]:
    """Commands to look around in a lab by hand."""
    inside = isinstance(lab.store, OwnServers)
    store = " ".join(f"{name}={value}" for name, value in store_environment(lab.store, folder).items())
    prefix = f"nsenter --net={folder.netns(NODE_NETNS)} env " if inside else ""
    first, last = lab.pods[0], lab.pods[-1]
    address = last.addresses[-1] if last.addresses else ""
    return [
        f"  nsenter --net={folder.netns(first.name)} ping -c 1 {address}",
        f"  {prefix}{store} netplugctl get ippools",
        f"  less {folder.log_file}",
    ]
