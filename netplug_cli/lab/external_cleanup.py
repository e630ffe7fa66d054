"""Removes what a lab has stored on servers that it did not start: addresses, affinities, pools and cluster objects.

``teardown`` calls it when the lab's interfaces are removed. It finds everything by asking the servers, so it can be
repeated after a failure, also by a command that has only the lab's record.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_cli.lab.model import IFNAME, POD_NAMESPACE, Lab, LabPod
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.stores import ExternalServers, is_kubernetes
from netplug_cli.lab.world import LabWorld
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.read import list_all
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.names import LAB_LABEL
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, get_kind
from netplug_core.workload.endpoint import endpoint_delete
from netplug_core.workload.identity import WorkloadIdentity

__all__ = ["remove_from_external_servers"]


def remove_from_external_servers(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    """Remove everything of the lab from external servers; yield warnings about addresses that others still hold.

    Raises:
        NetplugError: some may be left; a repetition continues.
    """
    if not isinstance(lab.store, ExternalServers):
        return
    if not is_kubernetes(lab.store):
        yield from _remove_records(world, folder, lab)
        return
    with world.open_lab_cluster(lab, folder) as cluster:
        has_records = cluster.has_definitions()  # without them, the server has no kind to list
        try:
            if has_records:
                yield from _remove_records(world, folder, lab)
        finally:
            count = cluster.remove_all()  # the records do not depend on these objects
            if count:
                world.progress.info(f"{count} objects removed; the definitions stay, others may use them")


def _remove_records(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    session = world.session
    with world.open_store(lab, folder) as store:
        pools = tuple(list_all(store, get_kind("IPPool"), deadline=session.deadline()))
        own = [record for record in pools if (LAB_LABEL, lab.uid) in record.value.metadata.labels]
        was_attached = any(pod.is_attached for pod in lab.pods)
        # Another lab on the same servers has pools and pods of the same names, so only the label with the uid counts.
        if not own and was_attached and any(map(_has_lab_label, pools)):
            yield "another lab is up there: what pods of this one may still hold is not given back"
        elif own or was_attached:
            _release_addresses(world, store, lab)
        for record in own:
            outcome = delete(store, record.key, pace=session.pace())
            yield from outcome.warnings
            world.progress.info(f"{record.key} deleted{'' if outcome.warnings else ', no address of it is held'}")


def _has_lab_label(record: Record[Resource]) -> bool:
    return any(name == LAB_LABEL for name, _ in record.value.metadata.labels)


def _release_addresses(world: LabWorld, store: Datastore, lab: Lab) -> None:
    """Release the addresses of every pod, which the plugins may have failed to do, and relinquish the node's blocks."""
    with world.open_ipam(store) as ipam:
        for pod in lab.pods:
            workload = _pod_identity(lab, pod)
            request = ReleaseRequest(handle=workload.handle)
            released = ipam.release(request, endpoint_delete(workload), deadline=world.session.deadline())
            if released.addresses:
                world.progress.info(f"{pod.name}: released {', '.join(map(str, released.addresses))}")
    relinquish_node(store, lab.node_name, Emptiness.NOT_REQUIRED, pace=world.session.pace())


def _pod_identity(lab: Lab, pod: LabPod) -> WorkloadIdentity:
    """The workload that a pod is to the plugins, from the input that ``conflist`` makes."""
    return WorkloadIdentity(
        node=lab.node_name,
        network=lab.name,
        container_id=pod.name,
        interface=IFNAME,
        pod=pod.name,
        pod_namespace=POD_NAMESPACE,
    )
