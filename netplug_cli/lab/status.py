"""Inspects a lab: which parts of it exist, and who reaches whom. Changes nothing."""

from __future__ import annotations

from attrs import frozen

from netplug_cli.lab.model import NODE_ADDRESSES, NODE_NETNS, Lab
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.processes import list_ended
from netplug_cli.lab.reachability import ProbePeer, ReachabilityMatrix, probe
from netplug_cli.lab.world import LabWorld

__all__ = ["LabStatus", "inspect_lab"]


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
