"""The attachments that hold addresses, for the CNI command GC. A file names no pod, so the endpoints do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.hostlocal.folder import NetworkFolder, Owner
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = ["attachments"]


def attachments(
    folder: NetworkFolder, endpoints: Iterable[WorkloadEndpoint], *, node: str, network: str
) -> tuple[Attachment, ...]:
    """Every attachment that a file names, sorted, with the pod that the endpoint of its container names."""
    pods = {
        Owner(one.spec.container_id, one.spec.endpoint): (one.metadata.namespace, one.spec.pod)
        for one in endpoints
        if one.spec.node == node and one.spec.pod
    }
    held: defaultdict[Owner, list[ReleaseItem]] = defaultdict(list)
    for one in folder.files:
        if one.owner is not None:
            item = ReleaseItem(address=one.address, handle=one.owner.handle(network))
            held[one.owner].append(item)
    found: list[Attachment] = []
    for owner, items in sorted(held.items()):
        namespace, pod = pods.get(owner, ("", ""))
        found.append(
            Attachment(
                container_id=owner.container_id,
                interface=owner.interface,
                handle=owner.handle(network),
                namespace=namespace,
                pod=pod,
                addresses=tuple(items),
            )
        )
    return tuple(found)
