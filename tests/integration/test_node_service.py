"""The node process as a service of systemd: the installed program gets its socket from a parent, and notifies it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import frozen

from netplug_backends.host.services import PROGRAM, install_node
from tests.harness.node import CNIRuntime, NetnsNode
from tests.harness.node_process import NodeProcessRuntime
from tests.harness.service_managers import Notified, open_notified
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

# What systemd does: it listens, passes the socket as descriptor 3, and starts the program again when it has ended.
SYSTEMD = """
import ctypes, os, socket, sys
path, notify, started, *program = sys.argv[1:]
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
while True:
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(1, 9)  # it ends with this process
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=notify, WATCHDOG_USEC="4000000")
        os.execv(program[0], program)
    with open(started, "a") as file:
        file.write(f"{child}\\n")
    os.waitpid(child, 0)
"""


@frozen
class Service:
    """A service, its runtime, and what it notifies its manager of."""

    runtime: NodeProcessRuntime
    notified: Notified
    started: Path

    @property
    def pids(self) -> list[int]:
        """The process of each start."""
        return [int(line) for line in self.started.read_text().split()] if self.started.exists() else []


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The installed program."""
    folder = tmp_path_factory.mktemp("service")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "pycache_prefix", str(folder / "bytecode"))
        install_node(str(folder / "bin"), str(folder / "units"), lambda _line: None)
    return str(folder / "bin" / PROGRAM)


@pytest.fixture
def service(runtime: CNIRuntime, program: str, tmp_path: Path) -> Iterator[Service]:
    """A service that has been started; it is ready."""
    node: NetnsNode = runtime.node
    path, started = node.file("node.sock"), Path(node.file("started"))
    with open_notified(str(tmp_path / "notify")) as notified:
        node.start_process(sys.executable, "-c", SYSTEMD, path, notified.address, str(started), program)
        assert notified.receive() == ["READY=1"]
        yield Service(NodeProcessRuntime(node, runtime.bin_dir, path), notified, started)


def test_it_serves_on_the_socket_of_its_manager_and_feeds_the_watchdog(service: Service) -> None:
    pod, conf = service.runtime.node.make_pod(), service.runtime.make_netconf()
    service.runtime.add(conf, pod)
    wait_until(
        lambda: (
            service.notified.receive()
            == ["WATCHDOG=1", "STATUS=1 calls served, 0 of them failed; now 0 are served and 0 wait"]
        ),
        "the status has the call",
    )
    service.runtime.delete(conf, pod)


def test_a_call_that_comes_during_a_restart_waits_and_is_served(service: Service) -> None:
    pod, conf = service.runtime.node.make_pod(), service.runtime.make_netconf()
    (first,) = service.pids
    os.kill(first, signal.SIGTERM)
    # A call that comes earlier may be given back: its client serves it alone then.
    assert service.notified.receive_until("STOPPING=1")[1].startswith("STATUS=ends the calls that have begun: ")
    with ThreadPoolExecutor(1) as pool:
        added = pool.submit(service.runtime.add, conf, pod)
        assert service.notified.receive_until("READY=1") == ["READY=1"]
        assert service.runtime.node.can_ping(added.result().addresses[0])
    wait_until(lambda: len(service.pids) == 2, "the second start is noted")
    service.runtime.delete(conf, pod)
