"""A process that assigns one address, as an ADD does, and says before each commit that it is about to send it.

``python -m tests.harness.processes.etcd_adder <endpoint>``. It prints a line and waits for one before it goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing

from attrs import evolve

from netplug_backends.etcdv3.datastore import EtcdDatastore, client_from_settings
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Revision, Write
from netplug_core.settings.model import DatastoreSettings
from tests.harness.ipam import make_request
from tests.harness.local_stores import open_standalone_ipam
from tests.harness.stores import StoreWrapper

__all__ = ["REQUEST"]

CLOCK = SystemClock()
CALL_TIMEOUT_S = 300.0  # the process is killed before

REQUEST = evolve(
    make_request("net1.c1"),
    owner=(("container", "c1"), ("interface", "eth0"), ("namespace", "shop"), ("network", "net1"), ("pod", "web-0")),
)
"""One address for the first interface of a pod's container."""


class AnnouncingStore(StoreWrapper):
    """A store that announces its commits."""

    def commit(self, writes: Sequence[Write], *, deadline: Deadline) -> tuple[Revision, ...]:
        """Apply conditional writes, when the line has come."""
        sys.stdout.write("commit\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return self.inner.commit(writes, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S))


if __name__ == "__main__":
    client = client_from_settings(DatastoreSettings(etcd_endpoints=(sys.argv[1],)), clock=CLOCK)
    with closing(EtcdDatastore(client)) as store:
        ipam = open_standalone_ipam(AnnouncingStore(store), CLOCK)
        ipam.assign(REQUEST, NO_ENDPOINT, deadline=Deadline.after(CLOCK, CALL_TIMEOUT_S))
