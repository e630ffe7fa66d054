"""ADD and DEL that a node process serves, by either client, beside ``ptp`` with ``host-local``, round by round.

One node process serves both clients: two of them on one node would make each other's commits fail. The datastore is an
etcd on the same machine, once as it is and once behind a relay that adds time to each answer, and then the API server
of a Kubernetes cluster with its own etcd. The CPU of the node process is counted apart from that of the client; that
of the servers is not. Many pods come and go at once too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from attrs import evolve, frozen

from benchmarks.measure import ProcessSample, ProcessSeries, format_report
from benchmarks.scene import (
    BURST,
    REFERENCE,
    WARMUP,
    MeasuredPlugin,
    call,
    lab,
    lab_plugin,
    make_api_pods,
    namespaces,
    reference_plugin,
    run_inside,
)
from netplug_backends.host.executables import Client, install
from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
from netplug_cli.lab.model import StoreKind

_VERBS = ("ADD", "DEL")
_CLIENTS = (Client.PYTHON, Client.STATIC)
_IN_FLIGHT = (8, 32, BURST)
_BURST_ROUNDS = 3
_DELAY_S = 0.005
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@frozen
class _Goals:
    """What a datastore's numbers are compared with: calls one after another, bursts by client, and memory in MB."""

    calls: Mapping[tuple[Client, str], str]
    bursts: Mapping[Client, str]
    memory_mb: int


_GOALS = {
    StoreKind.ETCD: _Goals(
        {
            (Client.PYTHON, "ADD"): "P3: wall <= 1.25, p99 <= 2.00; P4: CPU of both <= 1.05",
            (Client.STATIC, "ADD"): "P7: wall <= 0.40; CPU of both <= 0.40",
            (Client.PYTHON, "DEL"): "P8: wall <= 1.50",
        },
        {Client.PYTHON: "P5, P6, P8: <= 1.00", Client.STATIC: "P7: ADD <= 0.35"},
        60,
    ),
    StoreKind.KUBERNETES: _Goals(
        {(client, "ADD"): "wall <= 2.00" for client in _CLIENTS}, dict.fromkeys(_CLIENTS, "ADD <= 1.50"), 100
    ),
}


@frozen
class ServedPlugin:
    """A plugin whose calls a node process serves, which is a child of this one."""

    client: Client
    goals: _Goals
    plugin: MeasuredPlugin
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """The CPU time that the node process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def memory_mb(self) -> float:
        """The memory that the node process occupies."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: something that it takes is missing, or a plugin failed.
    """
    if run_inside("served", rounds):
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        reference = stack.enter_context(reference_plugin(Path(folder)))
        with _served_on(StoreKind.ETCD, Path(folder), rounds) as served:
            _print_rounds(reference, served, rounds)
            _print_bursts(reference, served)
            print(f"\nThe same, every answer of etcd {_DELAY_S * 1e3:g} ms later:")
            with _delayed(served) as delayed:
                _print_bursts(reference, delayed)
        print("\nOn Kubernetes, with the API server and its etcd on the same machine:\n")
        with _served_on(StoreKind.KUBERNETES, Path(folder), rounds) as served:
            _print_rounds(reference, served, rounds)
            _print_bursts(reference, served)


# --- what is measured ----------------------------------------------------------------------------------------------


@contextmanager
def _served_on(kind: StoreKind, folder: Path, rounds: int) -> Iterator[list[ServedPlugin]]:
    """The plugin of a lab with that datastore, with each client of one node process."""
    with lab(kind) as where:
        if kind is StoreKind.KUBERNETES:
            make_api_pods(where, rounds)
        plugin, path = lab_plugin(kind, where), str(folder / f"{kind.value}.sock")
        with node_process(plugin.node, path) as process:
            yield [
                ServedPlugin(client, _GOALS[kind], _with_client(plugin, client, folder / kind.value, path), process)
                for client in _CLIENTS
            ]


def _with_client(plugin: MeasuredPlugin, client: Client, folder: Path, path: str) -> MeasuredPlugin:
    """The lab's plugin with a client that asks the node process at a path."""
    home = str(folder / client.value)
    install(home, lambda _line: None, client)
    variables = {"NETPLUG_NODE_SOCKET": path}
    return evolve(plugin, name=f"{client.value} client", executable=f"{home}/netplug", variables=variables)


@contextmanager
def node_process(node: str, path: str, variables: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A node process in a node's namespace that listens at a path, perhaps with further variables."""
    command = [sys.executable, "-m", "netplug_cli.wiring.node", "--socket", path]
    with PinnedNamespaces().enter(node):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **(variables or {})})
    try:
        while not os.path.exists(path):
            if process.poll() is not None:
                raise SystemExit("the node process has ended")
            time.sleep(0.01)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _delayed(served: Sequence[ServedPlugin]) -> Iterator[list[ServedPlugin]]:
    """The same plugins, whose node process reaches etcd through a relay that delays it."""
    conf, node = json.loads(served[0].plugin.conf), served[0].plugin.node
    host, _, server_port = conf["etcd_endpoints"].removeprefix("http://").partition(":")
    with PinnedNamespaces().enter(node):
        relay = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.delay", host, server_port, str(_DELAY_S)], stdout=subprocess.PIPE
        )
    try:
        port = int(relay.stdout.readline()) if relay.stdout is not None else 0
        conf["etcd_endpoints"] = f"http://127.0.0.1:{port}"
        yield [evolve(each, plugin=evolve(each.plugin, conf=json.dumps(conf))) for each in served]
    finally:
        relay.terminate()
        relay.wait()


# --- one after another ---------------------------------------------------------------------------------------------


def _print_rounds(reference: MeasuredPlugin, served: Sequence[ServedPlugin], rounds: int) -> None:
    plugins = [reference, *(each.plugin for each in served)]
    found = {(each.name, verb): ProcessSeries(each.name, verb) for each in plugins for verb in _VERBS}
    spent = {(each.plugin.name, verb): 0.0 for each in served for verb in _VERBS}
    for number in range(WARMUP + rounds):
        for each in (None, *served):
            plugin = reference if each is None else each.plugin
            with namespaces([f"c{number}"]):
                for verb in _VERBS:
                    before = 0.0 if each is None else each.cpu_s()
                    sample = _require(plugin, verb, call(plugin, verb, f"c{number}"))
                    if number >= WARMUP:
                        found[plugin.name, verb].samples.append(sample)
                        if each is not None:
                            spent[plugin.name, verb] += each.cpu_s() - before
    print(f"{rounds} rounds after {WARMUP} to warm up, interleaved; reference: {REFERENCE}\n")
    print(format_report(list(found.values())))
    print(
        "\nin times of the reference: median of the wall-clock time, its 99th percentile, CPU of client and process\n"
    )
    for each in served:
        for verb in _VERBS:
            own, base = found[each.plugin.name, verb], found[REFERENCE, verb]
            share_ms = spent[each.plugin.name, verb] / rounds * 1e3
            wall, p99 = own.wall_ms() / base.wall_ms(), own.p99_ms() / base.p99_ms()
            cpu, share = (own.cpu_ms() + share_ms) / base.cpu_ms(), share_ms / base.cpu_ms()
            print(
                f"{own.name:14} {verb}  wall {wall:5.2f}  p99 {p99:5.2f}  CPU {cpu:5.2f} (node process {share:4.2f})"
                f"  {each.goals.calls.get((each.client, verb), '')}".rstrip()
            )


def _require(plugin: MeasuredPlugin, verb: str, sample: ProcessSample) -> ProcessSample:
    if sample.status:  # a benchmark of failures would be a lie
        raise SystemExit(f"{plugin.name}: {verb} failed: {sample.output}")
    return sample


# --- all at once ---------------------------------------------------------------------------------------------------


def _print_bursts(reference: MeasuredPlugin, served: Sequence[ServedPlugin]) -> None:
    """As many pods as a node may have, so many calls in flight; the median of a few rounds."""
    names = [f"c{number}" for number in range(BURST)]
    print(f"\n{BURST} pods, median of {_BURST_ROUNDS} rounds: seconds, and times of the reference\n")
    plugins = {plugin.name: plugin for plugin in (reference, *(each.plugin for each in served))}
    goals = {each.plugin.name: each.goals.bursts[each.client] for each in served}
    for in_flight in _IN_FLIGHT:
        seconds: dict[tuple[str, str], list[float]] = {(name, verb): [] for name in plugins for verb in _VERBS}
        failed = dict.fromkeys(plugins, 0)
        for _ in range(_BURST_ROUNDS):
            for name, plugin in plugins.items():
                with namespaces(names), ThreadPoolExecutor(in_flight) as pool:
                    for verb in _VERBS:
                        began = time.perf_counter()
                        samples = list(pool.map(partial(call, plugin, verb), names))
                        seconds[name, verb].append(time.perf_counter() - began)
                        failed[name] += sum(sample.status != 0 for sample in samples)
                        failed[name] += verb == "ADD" and len(_addresses(samples)) != BURST
        for (name, verb), taken in seconds.items():
            middle, base = sorted(taken)[len(taken) // 2], sorted(seconds[REFERENCE, verb])[_BURST_ROUNDS // 2]
            line = (
                f"{in_flight:3} in flight  {name:18} {verb} {middle:6.2f} s {middle / base:6.2f}  {failed[name]} failed"
            )
            print(f"{line}  {goals.get(name, '')}".rstrip(), flush=True)
    print(f"memory of the node process: {served[0].memory_mb():.0f} MB (P13: <= {served[0].goals.memory_mb})")


def _addresses(samples: Sequence[ProcessSample]) -> set[str]:
    """The addresses that were assigned; two pods must not have the same one."""
    results = [json.loads(sample.output) for sample in samples if sample.status == 0]
    return {ip["address"] for result in results for ip in result["ips"]}


if __name__ == "__main__":
    measure(int(sys.argv[1]))
