"""Real etcd for tests: one member or three on loopback, perhaps with TLS, that can be killed, paused and restarted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from tempfile import TemporaryDirectory

from attrs import define, evolve, field, frozen

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import client_from_settings
from netplug_backends.etcdv3.operations import DeleteKey, KeyRange, KeyValue, RangeRead, Txn
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Clock, Deadline
from netplug_core.settings.model import DatastoreSettings
from tests.harness.servers.binaries import find_etcd_binary
from tests.harness.servers.ports import reserve_ports

__all__ = [
    "EtcdCluster",
    "EtcdMember",
    "ServerTLS",
    "delete_all_entries",
    "make_client",
    "read_all_entries",
    "start_etcd",
]

_READY_S = 120.0  # an emergency stop
# In memory where there is such a folder: a member that is killed loses nothing, and a slow disk is not what is tested.
_DATA_ROOT = "/dev/shm" if os.path.isdir("/dev/shm") else None


@frozen(kw_only=True)
class ServerTLS:
    """Files of a server: its certificate and key, and the roots it trusts clients by (empty: it asks for none)."""

    cert_file: str
    key_file: str
    client_ca_file: str = ""


@define
class EtcdMember:
    """One member: its process and where clients reach it."""

    name: str
    arguments: list[str]
    port: int
    log_path: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it may not be ready yet."""
        with open(self.log_path, "ab") as log:
            environ = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=log, env=environ)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End the process at once, if there is one, paused or not."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_accepting(self) -> bool:
        """Whether the port for clients accepts connections."""
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_until_accepting(self) -> None:
        """Return once clients can connect, which is once the member belongs to a cluster with a leader."""
        ends = time.monotonic() + _READY_S
        while not self.is_accepting():
            assert self.process is not None
            assert self.process.poll() is None, f"etcd ended: {self.log()}"
            assert time.monotonic() < ends, f"etcd is not ready: {self.log()}"
            time.sleep(0.05)

    @property
    def is_leader(self) -> bool:
        """Whether its metrics show that it leads the cluster; false if it serves no metrics."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=2.0) as reply:
                return b"\netcd_server_is_leader 1\n" in reply.read()
        except OSError:
            return False

    def log(self) -> str:
        """The end of the log of the process."""
        with open(self.log_path, errors="replace") as file:
            return file.read()[-4000:]


@define
class EtcdCluster:
    """A cluster."""

    scheme: str
    host: str
    members: list[EtcdMember] = field(factory=list)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The URL of each member."""
        return tuple(f"{self.scheme}://{self.host}:{member.port}" for member in self.members)

    def leader(self) -> EtcdMember:
        """The member that leads, as soon as one does; of a cluster without TLS."""
        ends = time.monotonic() + _READY_S
        while time.monotonic() < ends:
            for member in self.members:
                if member.is_leader:
                    return member
            time.sleep(0.05)
        raise AssertionError("no member leads the cluster")

    def restart_ended(self) -> None:
        """Start the members that ended by themselves.

        etcd before 3.5.7 may panic when a client gives up a transaction that only reads (etcd issues 14110, 14891).
        """
        for member in self.members:
            if member.process is not None and member.process.poll() is not None:
                member.start()

    def wait_until_ready(self) -> None:
        """Return once every member takes clients."""
        for member in self.members:
            member.wait_until_accepting()


@contextmanager
def start_etcd(
    *, size: int = 1, tls: ServerTLS | None = None, host: str = "127.0.0.1", extra: tuple[str, ...] = ()
) -> Iterator[EtcdCluster]:
    """A fresh cluster of that many members, which serves; it is gone with the context."""
    binary = find_etcd_binary()
    cluster = EtcdCluster("https" if tls else "http", host)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="netplug-etcd-", dir=_DATA_ROOT))
        ports = reserve_ports(2 * size)
        peers = {f"m{number}": f"http://127.0.0.1:{ports[size + number]}" for number in range(size)}
        for number, (name, peer) in enumerate(peers.items()):
            url = f"{cluster.scheme}://127.0.0.1:{ports[number]}"
            arguments = [
                binary,
                *("--name", name, "--data-dir", f"{folder}/{name}"),
                *("--listen-client-urls", url, "--advertise-client-urls", url),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", ",".join(f"{each}={where}" for each, where in peers.items())),
                *("--log-level", "error", "--heartbeat-interval", "100", "--election-timeout", "1000"),
                *_tls_arguments(tls),
                *extra,
            ]
            member = EtcdMember(name, arguments, ports[number], f"{folder}/{name}.log")
            stack.callback(member.kill)
            member.start()
            cluster.members.append(member)
        cluster.wait_until_ready()
        yield cluster


def _tls_arguments(tls: ServerTLS | None) -> list[str]:
    if tls is None:
        return []
    arguments = ["--cert-file", tls.cert_file, "--key-file", tls.key_file]
    if tls.client_ca_file:
        arguments += ["--client-cert-auth", "--trusted-ca-file", tls.client_ca_file]
    return arguments


_EVERYTHING = RangeRead(key_range=KeyRange(b"/netplug/", b"/netplug0"))
_NOTHING_SET = DatastoreSettings()


def make_client(etcd: EtcdCluster, *, clock: Clock, settings: DatastoreSettings = _NOTHING_SET) -> EtcdClient:
    """A client of the cluster, its other settings as given."""
    return client_from_settings(evolve(settings, etcd_endpoints=etcd.endpoints), clock=clock)


def read_all_entries(etcd: EtcdCluster) -> tuple[KeyValue, ...]:
    """Everything that netplug keeps there, in key order."""
    clock = SystemClock()
    with closing(make_client(etcd, clock=clock)) as client:
        return client.read([_EVERYTHING], deadline=Deadline.after(clock, 10.0)).results[0].key_values


def delete_all_entries(etcd: EtcdCluster) -> None:
    """Remove everything that netplug keeps there."""
    clock = SystemClock()
    keys = [DeleteKey(entry.key) for entry in read_all_entries(etcd)]
    with closing(make_client(etcd, clock=clock)) as client:
        for begin in range(0, len(keys), 100):
            client.write(Txn(success=tuple(keys[begin : begin + 100])), deadline=Deadline.after(clock, 10.0))
