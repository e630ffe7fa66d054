"""What becomes of the addresses in a folder of host-local, when a node changes to netplug-ipam. Pure.

A file names a container and no pod, so the pod is found by the address. A pod shows its address some seconds after its
container has it; so a young file without a pod is looked at again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.hostlocal.folder import AddressFile, NetworkFolder, Owner
from netplug_core.orchestrator.model import PodFacts, PodName, PodNetwork

__all__ = ["ImportPlan", "ImportedAttachment", "plan_import"]

_YOUNG_NS = 60 * SECOND_NS


@frozen(kw_only=True)
class ImportedAttachment:
    """An interface of a container, its pod, and the files of its addresses, in the order of the addresses."""

    owner: Owner
    pod: PodName
    files: tuple[AddressFile, ...]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Its addresses, sorted."""
        return tuple(one.address for one in self.files)


@frozen(kw_only=True)
class ImportPlan:
    """What to do with each file: ``imported`` have a pod that runs, the containers of ``gone`` have none.

    ``young`` have none yet. ``elsewhere`` are addresses of pods of other nodes: perhaps this is not the node that was
    named, so they stay. ``unnamed`` name no container: no runtime has made them, and they stay too.
    """

    imported: tuple[ImportedAttachment, ...] = ()
    gone: tuple[AddressFile, ...] = ()
    young: tuple[AddressFile, ...] = ()
    elsewhere: tuple[AddressFile, ...] = ()
    unnamed: tuple[AddressFile, ...] = ()


def plan_import(folder: NetworkFolder, pods: Iterable[PodFacts], *, node: str, now_ns: int) -> ImportPlan:
    """The plan for the folder of a node. ``pods`` are those of all nodes; read them after the folder."""
    running = {
        address: pod
        for pod in pods
        if pod.network is PodNetwork.OWN and not pod.is_terminated
        for address in pod.addresses
    }
    held: defaultdict[tuple[Owner, PodName], list[AddressFile]] = defaultdict(list)
    gone, young = list[AddressFile](), list[AddressFile]()
    elsewhere, unnamed = list[AddressFile](), list[AddressFile]()
    for one in sorted(folder.files, key=lambda file: file.address):
        pod = running.get(one.address)
        if one.owner is None:
            unnamed.append(one)
        elif pod is not None and pod.node == node:
            held[one.owner, pod.pod_name].append(one)
        elif pod is not None:
            elsewhere.append(one)
        elif now_ns - one.modified_ns < _YOUNG_NS:
            young.append(one)
        else:
            gone.append(one)
    return ImportPlan(
        imported=tuple(
            ImportedAttachment(owner=owner, pod=pod, files=tuple(files)) for (owner, pod), files in held.items()
        ),
        gone=tuple(gone),
        young=tuple(young),
        elsewhere=tuple(elsewhere),
        unnamed=tuple(unnamed),
    )
