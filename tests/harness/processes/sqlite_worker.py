"""A process of the kill test: assigns and releases addresses in one sqlite file until somebody ends it.

    python -m tests.harness.processes.sqlite_worker FILE NODE FOLDER NAME

While it holds an address there is a file of that name in the folder. A file that is there already is another's
address: it says so and ends. Now and then it gives up its node's blocks, as a node that drains does.
"""

from __future__ import annotations

import os
import random
import sys
from itertools import count

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_core.addressing import Family
from netplug_core.clock import Deadline, Pace
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.relinquish import Emptiness
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse

__all__ = ["main"]

DRAIN_EVERY = 7


def main(path: str, node: str, folder: str, name: str) -> None:
    """Assign, hold, release; for ever."""
    clock = SystemClock()
    store = SqliteDatastore(path, clock=clock)
    ipam = BlockIPAM(datastore=store, clock=clock, chance=random.random)
    for number in count():
        handle = f"net.{name}x{number}"
        wanted = (Automatic(family=Family.IPV4, count=2), Automatic(family=Family.IPV6))
        request = AssignRequest(handle=handle, node=node, wanted=wanted, use=AllowedUse.WORKLOAD)
        with open(os.path.join(folder, f"handle-{handle}"), "x", encoding="utf-8"):
            pass
        given = ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(clock, 30))
        held = [os.path.join(folder, f"held-{assigned.address}") for assigned in given.addresses]
        for one in held:
            try:
                with open(one, "x", encoding="utf-8") as file:
                    file.write(handle)
            except FileExistsError:
                with open(os.path.join(folder, f"twice-{os.path.basename(one)}"), "x", encoding="utf-8"):
                    sys.exit(f"{one} is held twice")
        for one in held:
            os.remove(one)
        ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(clock, 30))
        if number % DRAIN_EVERY == DRAIN_EVERY - 1:
            pace = Pace(clock=clock, deadline=Deadline.after(clock, 30), chance=random.random)
            relinquish_node(store, node, Emptiness.NOT_REQUIRED, pace=pace)


if __name__ == "__main__":
    main(*sys.argv[1:])
