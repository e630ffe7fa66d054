"""ADD's and DEL's share of a store on an API server: addresses assigned to pods and released."""

from __future__ import annotations

import random
from itertools import count

from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall, Wanted
from netplug_core.resources.ippool import AllowedUse
from netplug_core.workload import NewObjectMetadata, WorkloadIdentity, endpoint_delete, endpoint_upsert
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    make_pod,
)
from tests.harness.waiting import deadline_in

__all__ = ["NAMESPACE", "NODE", "attach", "detach", "new_pod"]

NAMESPACE, NODE = "allocation", "allocating"
_POD_NUMBERS = count()
_ONE_IPV4 = (Automatic(family=Family.IPV4),)


def attach(store: Datastore, pod: str, *wanted: Wanted) -> tuple[BlockIPAM, WorkloadIdentity]:
    """Assign addresses to a pod, as ADD does; by default one IPv4 address."""
    workload = WorkloadIdentity(
        node=NODE, network="net", container_id=f"c{pod}"[:64], interface="eth0", pod=pod, pod_namespace=NAMESPACE
    )
    ipam = BlockIPAM(datastore=store, clock=SystemClock(), chance=random.random)
    request = AssignRequest(
        handle=workload.handle,
        node=workload.node,
        wanted=wanted or _ONE_IPV4,
        owner=workload.allocation_attributes,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )
    ipam.assign(
        request, endpoint_upsert(workload, NewObjectMetadata(uid="u", creation_time_ns=0)), deadline=deadline_in()
    )
    return ipam, workload


def detach(ipam: BlockIPAM, workload: WorkloadIdentity) -> None:
    """Release what a pod holds, as DEL does."""
    ipam.release(ReleaseRequest(handle=workload.handle), endpoint_delete(workload), deadline=deadline_in())


def new_pod(server: ApiServer, name: str = "web") -> str:
    """The name of a new pod on the node."""
    pod_name = f"{name}-{next(_POD_NUMBERS)}"
    make_pod(server, NAMESPACE, pod_name, node=NODE)
    return pod_name
