"""A process of the kill test: assigns and releases addresses on a real API server until somebody ends it.

    python -m tests.harness.processes.kube_worker KUBECONFIG MODE NODE FOLDER NAME

While it holds an address there is a file of that name in the folder. A file that is there already is another's
address: it says so and ends.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import count

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient
from netplug_backends.kubernetes.client.ratelimit import RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from netplug_core.settings.model import KubernetesAccess

__all__ = ["open_ipam"]


def open_ipam(kubeconfig: str, mode: CrdMode) -> tuple[BlockIPAM, KubernetesDatastore]:
    """An allocator on the server, its objects in one group."""
    clock = SystemClock()
    source = AccessSource(KubernetesAccess(kubeconfig=kubeconfig), {})
    store = KubernetesDatastore(ApiClient(source, clock=clock, rate_limiter=RateLimiter(clock=clock)), mode=mode)
    return BlockIPAM(datastore=store, clock=clock, chance=random.random), store


def main(kubeconfig: str, mode: str, node: str, folder: str, name: str) -> None:
    """Assign, hold, release; for ever."""
    ipam, _ = open_ipam(kubeconfig, CrdMode[mode])
    for number in count():
        handle = f"net.{name}x{number}"
        request = AssignRequest(
            handle=handle,
            node=node,
            wanted=(Automatic(family=Family.IPV4),),
            use=AllowedUse.WORKLOAD,
            shortfall=Shortfall.REFUSE,
        )
        with open(os.path.join(folder, f"handle-{handle}"), "x"):
            pass
        given = ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(ipam.clock, 30))
        path = os.path.join(folder, f"held-{given.addresses[0].address}")
        try:
            with open(path, "x") as file:
                file.write(handle)
        except FileExistsError:
            with open(os.path.join(folder, f"twice-{os.path.basename(path)}"), "x"):
                sys.exit(f"{path} is held twice")
        os.remove(path)
        ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(ipam.clock, 30))


if __name__ == "__main__":
    main(*sys.argv[1:])
