"""``netplug-controllers`` for 5,000 nodes and 250,000 pods, on a real API server, with and without an etcd beside it.

Two processes run, of which one acts. Measured are the time until everything is known, the memory beside the JSON of
what is kept, the CPU while nothing changes, the time until a change is where it belongs, and a change of the leader.
``NETPLUG_BENCH_NODES`` and ``NETPLUG_BENCH_PODS_PER_NODE`` make the cluster smaller.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

from attrs import field, frozen

from netplug_backends.etcdv3.client import EtcdClient
from netplug_backends.etcdv3.datastore import client_from_settings
from netplug_backends.etcdv3.layout import LAYOUT
from netplug_backends.etcdv3.operations import KeyRange, RangeRead
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Deadline
from netplug_core.resources.node import NODE
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT
from netplug_core.settings.model import DatastoreSettings
from tests.harness.cluster_filler import NAMESPACE, ClusterFiller
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH, open_controllers
from tests.harness.operator_process import OperatorProcess, text_at
from tests.harness.servers.etcd import EtcdCluster, start_etcd
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused, start_api_server
from tests.harness.servers.kube_objects import install_definitions, make_namespace

_NODES, _PODS_PER_NODE = 5_000, 50
_SYNC_S, _CHANGE_S, _POLL_S = 3600.0, 600.0, 0.05
_MEMORY_GOAL, _CPU_GOAL, _CHANGE_GOAL_S = 3.5, 0.02, 1.0
_STEADY_S = 620.0  # two periods of the collector
_CHANGES = 5
_LARGE = ("--quota-backend-bytes", "8000000000")
_TICKS = os.sysconf("SC_CLK_TCK")
_CLOCK = SystemClock()

T = TypeVar("T")


def measure(rounds: int) -> None:
    """Measure once on each datastore; steady CPU over about ten minutes, or 15 s for each round if that is shorter.

    Raises:
        SystemExit: a server is missing, or a process does not do what it should.
    """
    nodes = int(os.environ.get("NETPLUG_BENCH_NODES", _NODES))
    pods = int(os.environ.get("NETPLUG_BENCH_PODS_PER_NODE", _PODS_PER_NODE))
    steady_s = min(_STEADY_S, 15.5 * rounds)
    for name in os.environ.get("NETPLUG_BENCH_DATASTORES", "etcdv3 kubernetes").split():
        with _filled(name, nodes, pods) as scene:
            scene.measure(steady_s)


@frozen(kw_only=True)
class _Usage:
    """CPU seconds and resident memory of a process."""

    cpu_s: float
    resident_bytes: int
    peak_bytes: int

    @classmethod
    def of(cls, process: OperatorProcess) -> _Usage:
        folder = Path(f"/proc/{process.child.pid}")
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return cls(
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
            resident_bytes=int(status["VmRSS"].split()[0]) * 1024,
            peak_bytes=int(status["VmHWM"].split()[0]) * 1024,
        )


@frozen(kw_only=True)
class _Scene:
    """A filled cluster; ``kept_bytes`` is the JSON of what the controllers keep."""

    filler: ClusterFiller
    folder: Path
    kept_bytes: int
    environ: dict[str, str] = field(factory=dict)

    def measure(self, steady_s: float) -> None:
        """Run the processes and print."""
        filler = self.filler
        print(f"\n{'etcdv3' if filler.etcd else 'kubernetes'}: {filler.nodes} nodes, {filler.pods} pods\n", flush=True)
        with open_controllers(self.folder, self.environ, filler.server) as processes:
            began_s = time.monotonic()
            first = processes.start()
            empty = _wait(first, lambda: _Usage.of(first) if first.ask("/livez")[0] == 200 else None, _SYNC_S)
            _wait(first, lambda: first.ask("/readyz")[0] == 200, _SYNC_S)
            ready = _Usage.of(first)
            print(
                f"first sync            {time.monotonic() - began_s:8.1f} s, of them {ready.cpu_s:.1f} s of CPU",
                flush=True,
            )
            _wait(first, lambda: self._is_settled(first), _SYNC_S)
            settled = _Usage.of(first)
            print(f"first tick of the collector after {time.monotonic() - began_s:.0f} s, {settled.cpu_s:.1f} s of CPU")
            grown = settled.resident_bytes - empty.resident_bytes
            ratio = grown / self.kept_bytes
            print(
                f"memory                {settled.resident_bytes / 1e6:8.0f} MB, "
                f"at most {settled.peak_bytes / 1e6:.0f}; "
                f"{empty.resident_bytes / 1e6:.0f} empty; grown by {ratio:.2f} times the JSON of what is kept "
                f"({self.kept_bytes / 1e6:.0f} MB, goal {_MEMORY_GOAL})",
                flush=True,
            )
            changes = [self._change_s(first, number) for number in range(_CHANGES)]
            print(f"one change            {median(changes):8.2f} s, at most {max(changes):.2f} (goal {_CHANGE_GOAL_S})")
            before, began_s = _Usage.of(first), time.monotonic()
            time.sleep(steady_s)
            used = (_Usage.of(first).cpu_s - before.cpu_s) / (time.monotonic() - began_s)
            print(
                f"steady CPU            {used:8.2%} of a core over {steady_s:.0f} s (goal {_CPU_GOAL:.0%})", flush=True
            )
            second = processes.start()
            _wait(second, lambda: second.ask("/readyz")[0] == 200, _SYNC_S)
            began_s = time.monotonic()
            first.stop()
            _wait(second, lambda: self._leader().startswith("controllers-1_"), _CHANGE_S)
            leading_s = time.monotonic() - began_s
            self._change_s(second, _CHANGES)
            total_s = time.monotonic() - began_s
            print(f"another leader        {leading_s:8.2f} s, and a change by it after {total_s:.2f} s", flush=True)
            second.kill()

    def _is_settled(self, process: OperatorProcess) -> bool:
        line = "netplug_controllers_collection_ticks_total "
        found = next((each for each in process.ask("/metrics")[1].splitlines() if each.startswith(line)), "0")
        return float(found.split()[-1]) >= 1

    def _leader(self) -> str:
        try:
            return text_at(self.filler.server.get(CONTROLLERS_LEASE_PATH), "spec", "holderIdentity")
        except RequestRefused:
            return ""

    def _change_s(self, process: OperatorProcess, number: int) -> float:
        """Seconds from a label of a pod, or of a node, until what follows from it has it."""
        filler, server, label = self.filler, self.filler.server, f"v{number}"
        node = filler.nodes // 2 + number
        if filler.etcd is None:
            path, found = f"/api/v1/nodes/{filler.node_name(node)}", self._host_endpoint_label
        else:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{filler.pod_name(node, 0)}"
            found = self._endpoint_label
        change = {"metadata": {"labels": {"changed": label}}}
        began_s = time.monotonic()
        server.request("PATCH", path, change, content_type="application/merge-patch+json")
        _wait(process, lambda: found(node) == label, _CHANGE_S)
        return time.monotonic() - began_s

    def _host_endpoint_label(self, node: int) -> str:
        path = f"/apis/{CrdMode.V1.value}/hostendpoints/{self.filler.node_name(node)}-auto-hep"
        try:
            return text_at(self.filler.server.get(path), "metadata", "labels", "changed")
        except RequestRefused:
            return ""

    def _endpoint_label(self, node: int) -> str:
        if self.filler.etcd is None:
            return ""
        key = LAYOUT.key(WORKLOAD_ENDPOINT.key(NAMESPACE, self.filler.endpoint_name(node, 0)))
        with closing(_client(self.filler.etcd)) as client:
            read = client.read([RangeRead(key_range=KeyRange(key))], deadline=Deadline.after(_CLOCK, 60.0))
        value = read.results[0].key_values[0].value.decode()
        return value.partition('"changed":"')[2].partition('"')[0]


@contextmanager
def _filled(datastore: str, nodes: int, pods: int) -> Iterator[_Scene]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="netplug-bench-")))
        server = stack.enter_context(start_api_server(folder))
        etcd = (
            stack.enter_context(start_etcd(extra=("--quota-backend-bytes", "8000000000")))
            if datastore == "etcdv3"
            else None
        )
        make_namespace(server, "kube-system")
        install_definitions(server, CrdMode.V1)
        filler = ClusterFiller(server=server, etcd=etcd, nodes=nodes, pods_per_node=pods)
        began_s = time.monotonic()
        filler.fill()
        print(f"filled in {time.monotonic() - began_s:.0f} s", flush=True)
        environ = {"KUBECONFIG": server.write_kubeconfig(), "DATASTORE_TYPE": datastore}
        if etcd is None:
            environ["AUTO_HOST_ENDPOINTS"] = "enabled"
        else:
            environ["ETCD_ENDPOINTS"] = ",".join(etcd.endpoints)
        yield _Scene(filler=filler, folder=folder, environ=environ, kept_bytes=_kept_bytes(server, etcd))


def _kept_bytes(server: ApiServer, etcd: EtcdCluster | None) -> int:
    """The bytes of the pods and nodes, and of the records that are followed, as they are stored."""
    kubernetes = f"http://127.0.0.1:{server.etcd_port}"
    prefixes = [
        (kubernetes, b"/registry/minions/", b"/registry/minions0"),
        (kubernetes, b"/registry/pods/", b"/registry/pods0"),
    ]
    if etcd is not None:
        ranges = (LAYOUT.list_range(kind) for kind in (WORKLOAD_ENDPOINT, NODE))
        prefixes += ((etcd.endpoints[0], each.start, each.end) for each in ranges)
    return sum(_stored_bytes(*each) for each in prefixes)


def _stored_bytes(endpoint: str, start: bytes, end: bytes) -> int:
    settings = DatastoreSettings(type="etcdv3", etcd_endpoints=(endpoint,))
    total = 0
    with closing(client_from_settings(settings, clock=_CLOCK)) as client:
        while True:
            reading = RangeRead(key_range=KeyRange(start, end), limit=5000)
            found = client.read([reading], deadline=Deadline.after(_CLOCK, 120.0)).results[0]
            total += sum(len(entry.value) for entry in found.key_values)
            if not found.has_more:
                return total
            start = found.key_values[-1].key + b"\0"


def _client(etcd: EtcdCluster) -> EtcdClient:
    return client_from_settings(DatastoreSettings(type="etcdv3", etcd_endpoints=etcd.endpoints), clock=_CLOCK)


def _wait(process: OperatorProcess, ask: Callable[[], T | None], seconds: float) -> T:
    """What is there as soon as it is there."""
    end_s = time.monotonic() + seconds
    while True:
        found = ask()
        if found:
            return found
        if process.child.poll() is not None or time.monotonic() > end_s:
            raise SystemExit(f"the controllers do not do it: {process.lines[-2000:]}")
        time.sleep(_POLL_S)
