"""A process that assigns and releases addresses until it is killed.

    python -m tests.harness.processes.allocating_worker sqlite FILE NODE FOLDER NAME
    python -m tests.harness.processes.allocating_worker v1|v3 KUBECONFIG NODE FOLDER NAME

It writes the file ``handle-<handle>`` before it assigns. While it holds an address there is a file ``held-<address>``.
If that file exists already, another process holds the address: then it writes ``twice-<address>`` and ends. On sqlite
it relinquishes its node's blocks now and then, as a node that is drained does.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Family
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from netplug_core.settings.model import KubernetesAccess

__all__ = ["open_kubernetes_store"]

CLOCK = SystemClock()
CALL_TIMEOUT_S = 120.0  # an emergency stop: sqlite's lock is not fair, and the machine may be busy
DRAIN_INTERVAL = 7
V4, V6 = Family.IPV4, Family.IPV6


def open_kubernetes_store(kubeconfig: str, mode: CrdMode) -> KubernetesDatastore:
    """A store on an API server."""
    source = AccessSource(KubernetesAccess(kubeconfig=kubeconfig), {})
    return KubernetesDatastore(ApiClient(source, clock=CLOCK, rate_limiter=RateLimiter(clock=CLOCK)), mode=mode)


def run_on_sqlite(path: str, node: str, folder: str, name: str) -> None:
    """Assign two IPv4 addresses and an IPv6 address, release them, and drain the node now and then; for ever."""
    store = SqliteDatastore(path, clock=CLOCK)

    def drain(number: int) -> None:
        if number % DRAIN_INTERVAL == DRAIN_INTERVAL - 1:
            pace = Pace(clock=CLOCK, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S), chance=random.random)
            relinquish_node(store, node, Emptiness.NOT_REQUIRED, pace=pace)

    run(store, node, Path(folder), f"net.{name}", (Automatic(family=V4, count=2), Automatic(family=V6)), drain)


def run_on_kubernetes(mode: CrdMode, kubeconfig: str, node: str, folder: str, name: str) -> None:
    """Assign an IPv4 address and release it; for ever."""
    run(open_kubernetes_store(kubeconfig, mode), node, Path(folder), f"net.{name}", (Automatic(family=V4),))


def run(
    store: Datastore,
    node: str,
    folder: Path,
    handle_prefix: str,
    wanted: tuple[Automatic, ...],
    after_release: Callable[[int], None] = lambda _number: None,
) -> None:
    """Assign, hold, release; for ever."""
    ipam = BlockIPAM(datastore=store, clock=CLOCK, chance=random.random)
    for number in count():
        handle = f"{handle_prefix}x{number}"
        request = AssignRequest(
            handle=handle, node=node, wanted=wanted, use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE
        )
        (folder / f"handle-{handle}").touch()
        assignment = ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S))
        held = [folder / f"held-{assigned.address}" for assigned in assignment.addresses]
        for path in held:
            try:
                with path.open("x") as file:
                    file.write(handle)
            except FileExistsError:
                (folder / f"twice-{path.name}").touch()
                sys.exit(f"{path} is held twice")
        for path in held:
            path.unlink()
        ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S))
        after_release(number)


if __name__ == "__main__":
    if sys.argv[1] == "sqlite":
        run_on_sqlite(*sys.argv[2:])
    else:
        run_on_kubernetes(CrdMode[sys.argv[1].upper()], *sys.argv[2:])
