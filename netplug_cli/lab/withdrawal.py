"""What a lab gives back to somebody else's servers: addresses, claims on blocks, pools, and objects of a cluster.

``lifecycle`` calls it when the lab's interfaces are gone. All of it is asked of the servers themselves, so it may be
done again after it has failed, also by a command that finds nothing of the lab but its record.
"""

from __future__ import annotations

from collections.abc import Iterator

from netplug_cli.ctl.session import Session
from netplug_cli.lab.means import Means
from netplug_cli.lab.model import IFNAME, LABEL, POD_NAMESPACE, Lab, Pod
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.stores import RunningServers, has_cluster
from netplug_core.datastore.interface import Datastore
from netplug_core.flows import resources
from netplug_core.flows.affinities import relinquish_node
from netplug_core.ipam.relinquish import Emptiness
from netplug_core.ipam.request import ReleaseRequest
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, get_kind
from netplug_core.workload.endpoint import removed
from netplug_core.workload.identity import Workload

__all__ = ["withdraw"]


def withdraw(means: Means, folder: Folder, lab: Lab) -> Iterator[str]:
    """Remove what the lab has on servers that outlive it; what of its pools others still hold, in sentences.

    Raises:
        NetplugError: some may still be there; doing it again goes on where this ended.
    """
    if not isinstance(lab.store, RunningServers):
        return
    if not has_cluster(lab.store):
        yield from _withdraw_records(means, folder, lab)
        return
    with means.cluster_of(lab, folder) as cluster:
        has_records = cluster.has_definitions()  # without them there is nothing to be asked
        try:
            if has_records:
                yield from _withdraw_records(means, folder, lab)
        finally:
            count = cluster.remove_all()  # which nothing of the records needs
            if count:
                means.progress.say(f"{count} objects removed; the definitions stay, others may use them")


def _withdraw_records(means: Means, folder: Folder, lab: Lab) -> Iterator[str]:
    session = means.session_of(lab, folder)
    with session.store() as store:
        pools = tuple(resources.list_all(store, get_kind("IPPool"), deadline=session.deadline()))
        mine = [record for record in pools if (LABEL, lab.uid) in record.value.metadata.labels]
        was_attached = any(pod.is_attached for pod in lab.pods)
        # Names prove nothing: another lab that is up there calls its pools and its pods the same.
        if not mine and was_attached and any(map(_is_a_labs, pools)):
            yield "another lab is up there: what pods of this one may still hold is not given back"
        elif mine or was_attached:
            _give_back(means, session, store, lab)
        for record in mine:
            outcome = resources.delete(store, record.key, pace=session.pace())
            yield from outcome.warnings
            means.progress.say(f"{record.key} deleted{'' if outcome.warnings else ', no address of it is held'}")


def _is_a_labs(record: Record[Resource]) -> bool:
    return any(name == LABEL for name, _ in record.value.metadata.labels)


def _give_back(means: Means, session: Session, store: Datastore, lab: Lab) -> None:
    """Do what the plugins should have done of every pod, and give up the node's claims, in whatever pools."""
    with means.open_ipam(store) as ipam:
        for pod in lab.pods:
            workload = _workload(lab, pod)
            request = ReleaseRequest(handle=workload.handle)
            freed = ipam.release(request, removed(workload), deadline=session.deadline())
            if freed.addresses:
                means.progress.say(f"{pod.name}: released {', '.join(map(str, freed.addresses))}")
    relinquish_node(store, lab.node_name, Emptiness.NOT_REQUIRED, pace=session.pace())


def _workload(lab: Lab, pod: Pod) -> Workload:
    """Who a pod is to the plugins, as ``conflist`` tells them."""
    return Workload(
        node=lab.node_name,
        network=lab.name,
        container_id=pod.name,
        interface=IFNAME,
        pod=pod.name,
        pod_namespace=POD_NAMESPACE,
    )
