"""ADD's and DEL's share of a store on an API server: addresses assigned to pods and released."""

from __future__ import annotations

import random
from itertools import count

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family
from netplug_core.datastore.interface import Datastore
from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseRequest, Shortfall, Wanted
from netplug_core.resources.ippool import AllowedUse
from netplug_core.workload.endpoint import Birth, removed, settled
from netplug_core.workload.identity import Workload
from tests.integration.kube_cluster import make_pod, soon
from tests.integration.kube_server import ApiServer

__all__ = ["NAMESPACE", "NODE", "attach", "detach", "new_pod"]

NAMESPACE, NODE = "allocation", "allocating"
_NUMBERS = count()
_ONE = (Automatic(family=Family.IPV4),)


def attach(store: Datastore, pod: str, *wanted: Wanted) -> tuple[BlockIPAM, Workload]:
    """Assign addresses to a pod, as ADD does; one of IPv4 unless told."""
    workload = Workload(
        node=NODE, network="net", container_id=f"c{pod}"[:64], interface="eth0", pod=pod, pod_namespace=NAMESPACE
    )
    ipam = BlockIPAM(datastore=store, clock=SystemClock(), chance=random.random)
    request = AssignRequest(
        handle=workload.handle,
        node=workload.node,
        wanted=wanted or _ONE,
        owner=workload.owner,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )
    ipam.assign(request, settled(workload, Birth(uid="u", time_ns=0)), deadline=soon())
    return ipam, workload


def detach(ipam: BlockIPAM, workload: Workload) -> None:
    """Release what a pod holds, as DEL does."""
    ipam.release(ReleaseRequest(handle=workload.handle), removed(workload), deadline=soon())


def new_pod(server: ApiServer, name: str = "web") -> str:
    """The name of a new pod on the node."""
    made = f"{name}-{next(_NUMBERS)}"
    make_pod(server, NAMESPACE, made, node=NODE)
    return made
