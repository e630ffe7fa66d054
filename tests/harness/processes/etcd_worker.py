"""One process of ``test_etcd_chaos``: a node that assigns and releases addresses, and prints when it held which.

``python -m tests.harness.processes.etcd_worker <endpoints> <number> <node> <stop file>``. It ends when the stop file
exists. It prints a line of JSON for each call of the allocator and of the store below it: the call, its handle, when it
began and ended on the machine's monotonic clock, how long it was allowed to take, and the addresses or the error.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TypeVar

from netplug_backends.etcdv3.client import EtcdClient, StaticMembers
from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.etcdv3.tls import Credentials
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family
from netplug_core.clock import Deadline
from netplug_core.errors import AllocationError, ContentionExhausted, NetplugError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Query, Revision, Snapshot, Write
from netplug_core.resources.ippool import AllowedUse
from netplug_core.settings.model import DatastoreSettings, parse_endpoints
from tests.harness.stores import StoreWrapper

__all__ = ["CALL_TIMEOUT_S"]

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""The time for each assignment and each release."""

MAX_HELD = 6

CLOCK = SystemClock()


class TimedStore(StoreWrapper):
    """A store that prints of every call how long it took and how it ended."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        """Answer all queries from one moment."""
        return _timed("read", deadline, lambda: self.inner.read(queries, deadline=deadline))

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes."""
        return _timed("commit", deadline, lambda: self.inner.commit(writes, deadline=deadline))


def _timed(call: str, deadline: Deadline, function: Callable[[], T]) -> T:
    began, allowed_s = CLOCK.monotonic(), deadline.remaining_s
    try:
        result = function()
    except NetplugError as error:
        _print_call(call, "", began, allowed_s=allowed_s, error=repr(error))
        raise
    _print_call(call, "", began, allowed_s=allowed_s)
    return result


class Worker:
    """The work of one node, with handles of its own."""

    def __init__(self, ipam: BlockIPAM, name: str, node: str) -> None:
        self._ipam = ipam
        self._name = name
        self._node = node
        self._assigned_count = 0
        self._held: list[str] = []

    def step(self) -> None:
        """Assign an address, or release one."""
        if self._held and (len(self._held) >= MAX_HELD or random.random() < 0.5):  # noqa: S311  # chance will do
            self._release(self._held.pop(random.randrange(len(self._held))))  # noqa: S311
            return
        self._assigned_count += 1
        handle = f"{self._name}.{self._assigned_count}"
        if self._assign(handle):
            self._held.append(handle)
        else:
            self._release(handle)  # as a runtime does: a DEL leaves nothing, however its ADD ended

    def _assign(self, handle: str) -> bool:
        wanted = (Automatic(family=Family.IPV4),)
        request = AssignRequest(
            handle=handle, node=self._node, wanted=wanted, use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE
        )
        began = CLOCK.monotonic()
        try:
            found = self._ipam.assign(request, NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S))
        except (AllocationError, Unavailable, ContentionExhausted) as error:
            _print_call("assign", handle, began, error=repr(error))
            return False
        _print_call("assign", handle, began, addresses=[str(each.address) for each in found.addresses])
        return True

    def _release(self, handle: str) -> None:
        while True:
            began = CLOCK.monotonic()
            try:
                self._ipam.release(
                    ReleaseRequest(handle=handle), NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S)
                )
            except (Unavailable, ContentionExhausted) as error:
                _print_call("release", handle, began, error=repr(error))
            else:
                _print_call("release", handle, began)
                return


def _print_call(
    call: str,
    handle: str,
    began: float,
    *,
    allowed_s: float = CALL_TIMEOUT_S,
    addresses: Sequence[str] = (),
    error: str = "",
) -> None:
    line = {"call": call, "handle": handle, "began": began, "ended": CLOCK.monotonic(), "allowed_s": allowed_s}
    sys.stdout.write(json.dumps({**line, "addresses": addresses, "error": error}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _program, urls, number, node, stop_file = sys.argv
    # Not random, so that each member has a worker.
    client = EtcdClient(
        StaticMembers(parse_endpoints(urls.split(","))),
        Credentials(DatastoreSettings()),
        clock=CLOCK,
        random_below=lambda below: int(number) % below,
    )
    with closing(EtcdDatastore(client)) as store:
        ipam = BlockIPAM(datastore=TimedStore(store), clock=CLOCK, chance=random.random)
        worker = Worker(ipam, f"w{number}", node)
        while not os.path.exists(stop_file):
            worker.step()
