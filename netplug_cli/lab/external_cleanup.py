"""What a lab gives back to somebody else's servers: addresses, claims on blocks, pools, and objects of a cluster.

``lifecycle`` calls it when the lab's interfaces are gone. All of it is asked of the servers themselves, so it may be
done again after it has failed, also by a command that finds nothing of the lab but its record.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_cli.lab.model import IFNAME, LAB_LABEL, POD_NAMESPACE, Lab, LabPod
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.stores import ExternalServers, is_kubernetes
from netplug_cli.lab.world import LabWorld
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.read import list_all
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, get_kind
from netplug_core.workload.endpoint import endpoint_delete
from netplug_core.workload.identity import WorkloadIdentity

__all__ = ["remove_from_external_servers"]


def remove_from_external_servers(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    """Remove what the lab has on servers that outlive it; what of its pools others still hold, in sentences.

    Raises:
        NetplugError: some may still be there; doing it again goes on where this ended.
    """
    if not isinstance(lab.store, ExternalServers):
        return
    if not is_kubernetes(lab.store):
        yield from _remove_records(world, folder, lab)
        return
    with world.open_lab_cluster(lab, folder) as cluster:
        has_records = cluster.has_definitions()  # without them there is nothing to be asked
        try:
            if has_records:
                yield from _remove_records(world, folder, lab)
        finally:
            count = cluster.remove_all()  # which nothing of the records needs
            if count:
                world.progress.info(f"{count} objects removed; the definitions stay, others may use them")


def _remove_records(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    session = world.session
    with world.open_store(lab, folder) as store:
        pools = tuple(list_all(store, get_kind("IPPool"), deadline=session.deadline()))
        mine = [record for record in pools if (LAB_LABEL, lab.uid) in record.value.metadata.labels]
        was_attached = any(pod.is_attached for pod in lab.pods)
        # Names prove nothing: another lab that is up there calls its pools and its pods the same.
        if not mine and was_attached and any(map(_has_lab_label, pools)):
            yield "another lab is up there: what pods of this one may still hold is not given back"
        elif mine or was_attached:
            _release_addresses(world, store, lab)
        for record in mine:
            outcome = delete(store, record.key, pace=session.pace())
            yield from outcome.warnings
            world.progress.info(f"{record.key} deleted{'' if outcome.warnings else ', no address of it is held'}")


def _has_lab_label(record: Record[Resource]) -> bool:
    return any(name == LAB_LABEL for name, _ in record.value.metadata.labels)


def _release_addresses(world: LabWorld, store: Datastore, lab: Lab) -> None:
    """Do what the plugins should have done of every pod, and give up the node's claims, in whatever pools."""
    with world.open_ipam(store) as ipam:
        for pod in lab.pods:
            workload = _pod_identity(lab, pod)
            request = ReleaseRequest(handle=workload.handle)
            freed = ipam.release(request, endpoint_delete(workload), deadline=world.session.deadline())
            if freed.addresses:
                world.progress.info(f"{pod.name}: released {', '.join(map(str, freed.addresses))}")
    relinquish_node(store, lab.node_name, Emptiness.NOT_REQUIRED, pace=world.session.pace())


def _pod_identity(lab: Lab, pod: LabPod) -> WorkloadIdentity:
    """Who a pod is to the plugins, as ``conflist`` tells them."""
    return WorkloadIdentity(
        node=lab.node_name,
        network=lab.name,
        container_id=pod.name,
        interface=IFNAME,
        pod=pod.name,
        pod_namespace=POD_NAMESPACE,
    )
