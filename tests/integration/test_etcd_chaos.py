"""Writers on shared blocks while whoever leads the cluster is killed, paused and restarted and the wire loses replies.

At the end the history is judged: no address had two owners at one time, nothing is held that nobody says he holds, and
every call ended within its deadline. Twenty seconds; a minute and twice the writers in the nightly profile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import cycle
from threading import Event, Thread

import pytest
from attrs import frozen

from netplug_backends.blocks.ipam import TAKE_BACK_S
from netplug_backends.etcdv3.opening import open_etcd
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.interface import Datastore
from netplug_core.netconf.model import DatastoreSettings
from netplug_core.records import Create
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolSpec
from netplug_core.resources.metadata import Metadata
from netplug_core.testing.allocator.stored import Stored, look
from tests.integration.etcd_proxy import Proxy, Wire, opened_proxy
from tests.integration.etcd_server import Etcd, opened_etcd
from tests.integration.etcd_worker import CALL_S

pytestmark = pytest.mark.etcd

CLOCK = SystemClock()
IS_NIGHTLY = os.environ.get("NETPLUG_HYPOTHESIS_PROFILE") == "nightly"
WRITERS, SECONDS = (8, 60.0) if IS_NIGHTLY else (4, 20.0)
# A store call that is under way when the time is over may last its own five seconds, and the machine is shared.
GRACE_S = 5.0


@frozen(kw_only=True)
class Call:
    """One line of a writer."""

    call: str
    handle: str
    began: float
    ended: float
    addresses: Sequence[str]
    error: str


@frozen
class Holding:
    """An address that a handle certainly had: from the end of its assignment to the beginning of its release."""

    address: str
    handle: str
    since: float
    until: float


def test_nothing_is_lost_and_nothing_is_given_twice() -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(opened_etcd(size=3))
        proxies = [stack.enter_context(opened_proxy(member.port)) for member in cluster.members]
        settings = DatastoreSettings(etcd_endpoints=cluster.endpoints)
        store = stack.enter_context(closing(open_etcd(settings, clock=CLOCK)))
        add_pool(store)
        calls = written(stack, cluster, proxies)
        cluster.wait_until_ready()
        left = look(store, Deadline.after(CLOCK, 30.0))
    holdings = list(held(calls))
    assert len(holdings) > 20, "there was something to judge"
    assert overlaps(holdings) == []
    assert leaks(left, holdings) == []
    assert [call for call in calls if call.ended - call.began > allowed_s(call)] == []


def allowed_s(call: Call) -> float:
    """How long a call may take; an assignment that failed takes back what it may have written, in time of its own."""
    return CALL_S + GRACE_S + (TAKE_BACK_S if call.error else 0.0)


def add_pool(store: Datastore) -> None:
    """A pool of 16 blocks of 8 addresses, for writers who hold a third of it."""
    spec = IPPoolSpec(prefix=Prefix.parse("10.9.0.0/25"), block_length=29)
    pool = IPPool(metadata=Metadata(name="shared"), spec=spec)
    store.commit([Create(IPPOOL.key("shared"), pool)], deadline=Deadline.after(CLOCK, 10.0))


def written(stack: ExitStack, cluster: Etcd, proxies: Sequence[Proxy]) -> list[Call]:
    """What the writers did, two to a node so that they share blocks, while everything around them failed."""
    endpoints = ",".join(proxy.url for proxy in proxies)
    python = (sys.executable, "-m", "tests.integration.etcd_worker", endpoints)
    writers = [
        subprocess.Popen(
            [*python, f"w{number}", f"node-{number // 2}", str(SECONDS)], stdout=subprocess.PIPE, text=True
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        stack.callback(writer.kill)
    is_over = Event()
    trouble = Thread(target=make_trouble, args=(cluster, proxies, is_over))
    trouble.start()
    time.sleep(SECONDS)
    is_over.set()
    trouble.join()
    lines = [line for writer in writers for line in writer.communicate(timeout=120)[0].splitlines()]
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    return [Call(**json.loads(line)) for line in lines]


def make_trouble(cluster: Etcd, proxies: Sequence[Proxy], is_over: Event) -> None:
    """One trouble after the other, with time to recover between them; at the end all is well again.

    Whoever leads is killed and paused, again and again; replies are lost on the way to any member.
    """
    for trouble in cycle((_kill, _lose_replies, _pause)):
        if is_over.wait(1.0):
            return
        trouble(cluster, proxies, is_over)


def _kill(cluster: Etcd, proxies: Sequence[Proxy], is_over: Event) -> None:
    leader = cluster.leader()
    leader.kill()
    is_over.wait(1.5)
    leader.start()
    leader.wait_until_accepting()


def _pause(cluster: Etcd, proxies: Sequence[Proxy], is_over: Event) -> None:
    leader = cluster.leader()
    leader.signal(signal.SIGSTOP)
    is_over.wait(2.5)
    leader.signal(signal.SIGCONT)


def _lose_replies(cluster: Etcd, proxies: Sequence[Proxy], is_over: Event) -> None:
    proxy = random.choice(proxies)  # noqa: S311  # chance will do
    proxy.wire = Wire.LOSES_REPLIES
    is_over.wait(1.0)
    proxy.wire = Wire.PASSES


def held(calls: Sequence[Call]) -> Iterator[Holding]:
    """What was certainly held; without an end what nobody began to release."""
    released = {call.handle: call.began for call in reversed(calls) if call.call == "release"}
    for call in calls:
        for address in call.addresses:
            yield Holding(address, call.handle, call.ended, released.get(call.handle, float("inf")))


def overlaps(holdings: Sequence[Holding]) -> list[tuple[Holding, Holding]]:
    """Pairs that had one address at one time."""
    found: list[tuple[Holding, Holding]] = []
    last: dict[str, Holding] = {}
    for holding in sorted(holdings, key=lambda each: each.since):
        before = last.get(holding.address)
        if before is not None and before.until > holding.since:
            found.append((before, holding))
        if before is None or holding.until > before.until:
            last[holding.address] = holding
    return found


def leaks(left: Stored, holdings: Sequence[Holding]) -> list[str]:
    """Where the books and what the writers say at the end differ."""
    said = {(holding.address, holding.handle) for holding in holdings if holding.until == float("inf")}
    booked = {(str(address), str(allocation.attribute.handle)) for address, allocation in left.held.items()}
    strangers = set(left.handles) - {handle for _, handle in said}
    return [*map(str, said ^ booked), *strangers]
