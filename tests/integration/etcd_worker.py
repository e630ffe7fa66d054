"""One process of ``test_etcd_chaos``: a node that assigns and releases addresses, and says when it held which.

``python -m tests.integration.etcd_worker <endpoints> <name> <node> <seconds>``. A line of JSON for each call: what,
for which handle, when it began and ended on the machine's monotonic clock, and the addresses it came to, or the error.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import closing

from netplug_backends.blocks.ipam import BlockIPAM
from netplug_backends.etcdv3.opening import open_etcd
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.errors import AllocationError, ContentionExhausted, Unavailable
from netplug_core.ipam.interface import NO_ENDPOINT
from netplug_core.ipam.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.netconf.model import DatastoreSettings
from netplug_core.resources.ippool import AllowedUse

__all__ = ["CALL_S"]

CALL_S = 8.0
"""The time for each assignment and each release."""

MOST_HELD = 6

CLOCK = SystemClock()


class Worker:
    """A node's part, under handles that nobody else uses."""

    def __init__(self, ipam: BlockIPAM, name: str, node: str) -> None:
        self._ipam = ipam
        self._name = name
        self._node = node
        self._made = 0
        self._held: list[str] = []

    def step(self) -> None:
        """Assign an address, or release one."""
        if self._held and (len(self._held) >= MOST_HELD or random.random() < 0.5):  # noqa: S311  # chance will do
            self._release(self._held.pop(random.randrange(len(self._held))))  # noqa: S311
            return
        self._made += 1
        handle = f"{self._name}.{self._made}"
        if self._assign(handle):
            self._held.append(handle)
        else:
            self._release(handle)  # as a runtime does: whatever the ADD came to, its DEL must leave nothing

    def _assign(self, handle: str) -> bool:
        wanted = (Automatic(family=Family.IPV4),)
        request = AssignRequest(
            handle=handle, node=self._node, wanted=wanted, use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE
        )
        began = CLOCK.monotonic()
        try:
            found = self._ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_S))
        except (AllocationError, Unavailable, ContentionExhausted) as error:
            self._tell("assign", handle, began, error=repr(error))
            return False
        self._tell("assign", handle, began, addresses=[str(each.address) for each in found.addresses])
        return True

    def _release(self, handle: str) -> None:
        while True:
            began = CLOCK.monotonic()
            try:
                self._ipam.release(ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_S))
            except (Unavailable, ContentionExhausted) as error:
                self._tell("release", handle, began, error=repr(error))
            else:
                self._tell("release", handle, began)
                return

    @staticmethod
    def _tell(call: str, handle: str, began: float, *, addresses: list[str] | None = None, error: str = "") -> None:
        line = {"call": call, "handle": handle, "began": began, "ended": CLOCK.monotonic()}
        sys.stdout.write(json.dumps({**line, "addresses": addresses or [], "error": error}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _program, endpoints, name, node, seconds = sys.argv
    settings = DatastoreSettings(etcd_endpoints=tuple(endpoints.split(",")))
    with closing(open_etcd(settings, clock=CLOCK)) as store:
        worker = Worker(BlockIPAM(datastore=store, clock=CLOCK, chance=random.random), name, node)
        end = Deadline.after(CLOCK, float(seconds))
        while not end.has_passed:
            worker.step()
