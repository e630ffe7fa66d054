"""``look``: what is there of a lab, and who reaches whom in it. Changes nothing."""

from __future__ import annotations

from attrs import frozen

from netplug_cli.lab.means import Means
from netplug_cli.lab.model import NODE, NODE_ADDRESSES, Lab
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.processes import find_ended
from netplug_cli.lab.reachability import Host, Matrix, probe

__all__ = ["Look", "look"]


@frozen(kw_only=True)
class Look:
    """What was seen. ``missing`` says what of the lab is not there; the matrix is of those who are."""

    lab: Lab
    missing: tuple[str, ...]
    matrix: Matrix

    @property
    def is_well(self) -> bool:
        """Whether everything is there and everybody reaches everybody."""
        return not self.missing and not self.matrix.problems


def look(means: Means, folder: Folder, lab: Lab) -> Look:
    """See what is there of a lab, and try who reaches whom.

    Raises:
        DataplaneError: a namespace cannot be entered.
    """
    pinned = frozenset(means.namespaces.find_below(folder.netns_dir))
    everybody = (
        Host(name=NODE, netns=folder.netns(NODE), addresses=NODE_ADDRESSES),
        *(Host(name=pod.name, netns=folder.netns(pod.name), addresses=pod.addresses) for pod in lab.pods),
    )
    missing = [f"{host.name}: its namespace is gone" for host in everybody if host.netns not in pinned]
    missing += [f"{pod.name}: it was never attached" for pod in lab.pods if not pod.is_attached]
    missing += [f"{name}: it is not running any more" for name in find_ended(folder)]
    there = [host for host in everybody if host.netns in pinned]
    return Look(lab=lab, missing=tuple(missing), matrix=probe(there, means.namespaces, means.session.clock))
