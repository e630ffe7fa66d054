"""Writers on shared blocks while members are killed and paused, one and all, and the wire loses replies.

At the end the history is judged: no address had two owners at one time, nothing is held that nobody says he holds, some
outcomes were unknown, and no call of the allocator failed unless no member answered at all. The nightly profile has
twice the writers, and checks that every call ended by its own deadline, which only a quiet machine can keep.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
from attrs import define, field, frozen

from netplug_backends.etcdv3.datastore import datastore_from_settings
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import CALL_TIMEOUT_S as STORE_CALL_S
from netplug_core.datastore.protocol import Datastore
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPOOL, IPPool, IPPoolSpec
from netplug_core.settings.model import DatastoreSettings
from tests.harness.allocator.state import StoredState, read_state
from tests.harness.local_stores import IS_DEEP
from tests.harness.servers.etcd import EtcdCluster, EtcdMember, start_etcd
from tests.harness.servers.tcp_proxy import ProxyMode, TCPProxy, open_proxy
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in

pytestmark = [pytest.mark.etcd, pytest.mark.night]

CLOCK = SystemClock()
WRITERS, ROUNDS = (8, 3) if IS_DEEP else (4, 1)
MIN_HOLDINGS = 20
# No member answers for longer than a call of the store may take, so that one without a deadline is found out.
SILENCE_S = STORE_CALL_S + 3.0
DEADLINE_MARGIN_S = 1.5
# Until connections and a leader are there again.
RECOVERY_S = 3.0
# A store call that is under way when the time is over may last its own five seconds.
GRACE_S = STORE_CALL_S + DEADLINE_MARGIN_S
# Leaders are elected twice as fast as usual: two elections in a row end within a call.
ELECTIONS = ("--heartbeat-interval", "50", "--election-timeout", "500")


@frozen(kw_only=True)
class WorkerCall:
    """One line of a writer: ``assign`` and ``release``, and the ``read`` and ``commit`` of the store below them."""

    call: str
    handle: str
    began: float
    ended: float
    allowed_s: float
    addresses: Sequence[str]
    error: str


@frozen
class HeldInterval:
    """An address that a handle certainly had: from the end of its assignment to the beginning of its release."""

    address: str
    handle: str
    since: float
    until: float


@define
class FaultInjector:
    """One trouble after the other, with a little time between them; at the end all is well again."""

    cluster: EtcdCluster
    proxies: Sequence[TCPProxy]
    _outages: list[tuple[float, float]] = field(factory=list)

    def run(self, is_enough: Callable[[], bool]) -> None:
        """Make each trouble, round after round, until there is enough to judge."""
        faults = (self._kill_leader, self._pause_all, self._lose_replies, self._pause_leader)
        for number in count(1):
            for fault in faults:
                time.sleep(0.7)
                fault()
            if number >= ROUNDS and is_enough():
                return

    def overlaps_outage(self, call: WorkerCall) -> bool:
        """Whether no member answered, or a leader was yet to be found, while a call was under way."""
        return any(call.began < ended + RECOVERY_S and began < call.ended for began, ended in self._outages)

    def allowed_s(self, call: WorkerCall) -> float:
        """How long a call of the allocator may take: it also takes back what came to nothing, once it can."""
        return call.allowed_s + GRACE_S + (SILENCE_S + RECOVERY_S if self.overlaps_outage(call) else 0.0)

    def _kill_leader(self) -> None:
        """For longer than a client looks for a member where it knows no other."""
        leader = self.cluster.leader()
        leader.kill()
        time.sleep(3.5)
        leader.start()
        leader.wait_until_accepting()

    def _lose_replies(self) -> None:
        for _ in range(3):
            for wire, seconds in ((ProxyMode.DROP_REPLIES, 0.4), (ProxyMode.FORWARD, 0.4)):
                for proxy in self.proxies:
                    proxy.mode = wire
                time.sleep(seconds)

    def _pause_all(self) -> None:
        began = time.monotonic()
        self._pause(self.cluster.members, SILENCE_S)
        self._outages.append((began, time.monotonic()))

    def _pause_leader(self) -> None:
        self._pause([self.cluster.leader()], 2.5)

    def _pause(self, members: Sequence[EtcdMember], seconds: float) -> None:
        for member in members:
            member.signal(signal.SIGSTOP)
        time.sleep(seconds)
        for member in members:
            member.signal(signal.SIGCONT)


def test_nothing_is_lost_and_nothing_is_given_twice(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(start_etcd(size=3, extra=ELECTIONS))
        proxies = [stack.enter_context(open_proxy(member.port)) for member in cluster.members]
        settings = DatastoreSettings(etcd_endpoints=cluster.endpoints)
        store = stack.enter_context(closing(datastore_from_settings(settings, clock=CLOCK)))
        add_pool(store)
        injector = FaultInjector(cluster, proxies)
        calls = run_workers(stack, injector, tmp_path)
        cluster.restart_ended()
        cluster.wait_until_ready()
        left = read_state(store, deadline_in())
    of_allocator = allocator_calls(calls)
    holdings = list(held_intervals(of_allocator))
    assert overlaps(holdings) == []
    assert leaks(left, holdings) == []
    assert [call for call in of_allocator if call.error and not injector.overlaps_outage(call)] == []
    if IS_DEEP:
        of_store = [call for call in calls if call.call in ("read", "commit")]
        assert [call for call in of_store if call.ended - call.began > call.allowed_s + DEADLINE_MARGIN_S] == []
        assert [call for call in of_allocator if call.ended - call.began > injector.allowed_s(call)] == []


def is_enough_to_judge(calls: Sequence[WorkerCall]) -> bool:
    """Whether addresses were held, and replies of commits were lost."""
    holdings = list(held_intervals(allocator_calls(calls)))
    return len(holdings) > MIN_HOLDINGS and any(call.error.startswith("OutcomeUnknown") for call in calls)


def allocator_calls(calls: Sequence[WorkerCall]) -> list[WorkerCall]:
    return [call for call in calls if call.call in ("assign", "release")]


def add_pool(store: Datastore) -> None:
    """A pool of 16 blocks of 8 addresses, for writers who hold a third of it."""
    spec = IPPoolSpec(prefix=Prefix.parse("10.9.0.0/25"), block_length=29)
    pool = IPPool(metadata=Metadata(name="shared"), spec=spec)
    store.commit([Create(IPPOOL.key("shared"), pool)], deadline=Deadline.after(CLOCK, 10.0))


def run_workers(stack: ExitStack, injector: FaultInjector, folder: Path) -> list[WorkerCall]:
    """What the writers did, two to a node so that they share blocks, while everything around them failed."""
    endpoints = ",".join(proxy.url for proxy in injector.proxies)
    python = (sys.executable, "-m", "tests.harness.processes.etcd_worker", endpoints)
    stop_file = folder / "stop"
    # Into files: a pipe that nobody reads would become full and stop its writer.
    histories = [folder / f"history-{number}" for number in range(WRITERS)]
    writers = []
    for number, history in enumerate(histories):
        with history.open("w") as file:
            writers.append(subprocess.Popen([*python, str(number), f"node-{number // 2}", str(stop_file)], stdout=file))
    for writer in writers:
        stack.callback(writer.wait)
        stack.callback(writer.kill)
    injector.run(lambda: is_enough_to_judge(read_calls(histories)))
    stop_file.touch()
    assert [writer.wait(timeout=EMERGENCY_STOP_S) for writer in writers] == [0] * WRITERS
    return read_calls(histories)


def read_calls(histories: Sequence[Path]) -> list[WorkerCall]:
    """The calls that were written so far, without a line that is not finished."""
    lines = [line for history in histories for line in history.read_text().splitlines(keepends=True)]
    return [WorkerCall(**json.loads(line)) for line in lines if line.endswith("\n")]


def held_intervals(calls: Sequence[WorkerCall]) -> Iterator[HeldInterval]:
    """What was certainly held; without an end what nobody began to release."""
    released = {call.handle: call.began for call in reversed(calls) if call.call == "release"}
    for call in calls:
        for address in call.addresses:
            yield HeldInterval(address, call.handle, call.ended, released.get(call.handle, float("inf")))


def overlaps(holdings: Sequence[HeldInterval]) -> list[tuple[HeldInterval, HeldInterval]]:
    """Pairs that had one address at one time."""
    found: list[tuple[HeldInterval, HeldInterval]] = []
    last: dict[str, HeldInterval] = {}
    for holding in sorted(holdings, key=lambda each: each.since):
        before = last.get(holding.address)
        if before is not None and before.until > holding.since:
            found.append((before, holding))
        if before is None or holding.until > before.until:
            last[holding.address] = holding
    return found


def leaks(left: StoredState, holdings: Sequence[HeldInterval]) -> list[str]:
    """Where the books and what the writers say at the end differ."""
    said = {(holding.address, holding.handle) for holding in holdings if holding.until == float("inf")}
    booked = {(str(address), str(allocation.attribute.handle)) for address, allocation in left.held.items()}
    strangers = set(left.handles) - {handle for _, handle in said}
    return [*map(str, said ^ booked), *strangers]
