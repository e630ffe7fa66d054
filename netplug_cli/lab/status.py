"""``look``: what is there of a lab, and who reaches whom in it. Changes nothing."""

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
    """What was seen. ``missing`` says what of the lab is not there; the matrix is of those who are."""

    lab: Lab
    missing: tuple[str, ...]
    matrix: ReachabilityMatrix

    @property
    def is_healthy(self) -> bool:
        """Whether everything is there and everybody reaches everybody."""
        return not self.missing and not self.matrix.failures


def inspect_lab(world: LabWorld, folder: LabFolder, lab: Lab) -> LabStatus:
    """See what is there of a lab, and try who reaches whom.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    pinned = frozenset(world.namespaces.find_below(folder.netns_dir))
    everybody = (
        ProbePeer(name=NODE_NETNS, netns=folder.netns(NODE_NETNS), addresses=NODE_ADDRESSES),
        *(ProbePeer(name=pod.name, netns=folder.netns(pod.name), addresses=pod.addresses) for pod in lab.pods),
    )
    missing = [f"{host.name}: its namespace is gone" for host in everybody if host.netns not in pinned]
    missing += [f"{pod.name}: it was never attached" for pod in lab.pods if not pod.is_attached]
    missing += [f"{name}: it is not running any more" for name in list_ended(folder)]
    there = [host for host in everybody if host.netns in pinned]
    return LabStatus(lab=lab, missing=tuple(missing), matrix=probe(there, world.namespaces, world.session.clock))
