"""ADD and DEL of netplug on every datastore beside ``ptp`` with ``host-local``, interleaved round by round.

Run as root; everything happens in network and mount namespaces of its own, which end with the process. Each datastore
is that of a lab (``netplugctl lab up``), with servers in its node's namespace. For each datastore, another row measures
a process that only imports the libraries of the configuration: the part of the time that Python itself needs. At the
end many pods are attached at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from attrs import frozen

from benchmarks.measure import ProcessSample, ProcessSeries, format_report, run
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.lab import open_cluster
from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
from netplug_cli.lab.folder import find_lab
from netplug_cli.lab.model import NODE_NETNS, POD_NAMESPACE
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.stores import StoreKind, store_environment
from netplug_core.settings.apiconfig import datastore_settings_from_environment

_INSIDE = "NETPLUG_BENCHMARK_INSIDE"
_DEBIAN_PLUGINS = "/usr/lib/cni"
_SERVERS = Path(__file__).parents[1] / ".cache" / "demo"
_COMMON = "attrs, cattrs, pluggy, json"
_LIBRARIES = {
    StoreKind.SQLITE: f"{_COMMON}, sqlite3",
    StoreKind.ETCD: f"{_COMMON}, grpc, google.protobuf.message",
    StoreKind.KUBERNETES: f"{_COMMON}, ssl, http.client",
}
_REFERENCE = "ptp + host-local"
_WARMUP = 3
_BURST = 110
_GOAL = 2.0


@frozen
class MeasuredPlugin:
    """A plugin with its configuration, and the namespace of the node that it works on."""

    name: str
    executable: str
    conf: str
    node: str


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: something that it takes is missing, or a plugin failed.
    """
    if os.geteuid() != 0:
        raise SystemExit("attach needs root: it makes network namespaces")
    if not Path(_DEBIAN_PLUGINS, "ptp").exists():
        raise SystemExit("ptp is missing: apt-get install containernetworking-plugins")
    for program in ("etcd", "kube-apiserver"):
        if not os.access(_SERVERS / program, os.X_OK):
            raise SystemExit(f"{_SERVERS / program} is missing: tools/demo servers puts it there")
    if _INSIDE not in os.environ:
        command = ["unshare", "--net", "--mount", sys.executable, "-m", "benchmarks.attach", str(rounds)]
        if subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode:
            raise SystemExit("attach did not come to its end")
        return
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        labs = {kind: stack.enter_context(_lab(kind)) for kind in StoreKind}
        reference = stack.enter_context(_reference_plugin(Path(folder)))
        contenders = [reference, *(_lab_plugin(kind, where) for kind, where in labs.items())]
        stack.enter_context(_api_pods(labs[StoreKind.KUBERNETES], rounds))
        _print_rounds(contenders, rounds)
        _print_burst(contenders)


# --- what is measured ----------------------------------------------------------------------------------------------


@contextmanager
def _lab(kind: StoreKind) -> Iterator[LabFolder]:
    """A lab with that datastore; its own pod stays where it is."""
    tool = [sys.executable, "-m", "netplug_cli.wiring.ctl", "lab"]
    servers = () if kind is StoreKind.SQLITE else ("--servers", str(_SERVERS))
    named = ("--name", kind.value)
    up = [*tool, "up", *named, "--pods", "1", "--datastore", kind.value, *servers]
    try:
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        yield LabFolder(f"/run/netplug-{kind.value}")
    finally:
        subprocess.run([*tool, "down", *named], check=False, stdout=subprocess.DEVNULL)


def _lab_plugin(kind: StoreKind, folder: LabFolder) -> MeasuredPlugin:
    """The lab's own configuration, for one family and without a log, as the reference has it."""
    conflist = json.loads(Path(folder.conflist_file).read_text())
    conf = {**conflist["plugins"][0], "cniVersion": conflist["cniVersion"], "name": "bench", "log_level": "ERROR"}
    del conf["log_file_path"]
    conf["ipam"] = {"type": "netplug-ipam"}
    return MeasuredPlugin(
        f"netplug, {kind.value}", f"{folder.bin_dir}/netplug", json.dumps(conf), folder.netns(NODE_NETNS)
    )


@contextmanager
def _reference_plugin(folder: Path) -> Iterator[MeasuredPlugin]:
    """The well-known plugins, on a node of their own."""
    conf = {
        "cniVersion": "1.0.0",
        "name": "reference",
        "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.96.0.0/20", "dataDir": str(folder / "host-local")},
    }
    node, namespaces = str(folder / "node"), PinnedNamespaces()
    namespaces.make(node)
    try:
        namespaces.configure_node(node, ())
        yield MeasuredPlugin(_REFERENCE, f"{_DEBIAN_PLUGINS}/ptp", json.dumps(conf), node)
    finally:
        namespaces.remove(node)


@contextmanager
def _api_pods(folder: LabFolder, rounds: int) -> Iterator[None]:
    """The pods that the API server has to know before a plugin may attach them."""
    lab = find_lab(folder)
    if lab is None:
        raise SystemExit(f"{folder.path} has no lab any more")
    settings = datastore_settings_from_environment(store_environment(lab.store, folder))
    with (
        PinnedNamespaces().enter(folder.netns(NODE_NETNS)),
        open_cluster(settings, lab.uid, clock=SystemClock()) as cluster,
    ):
        for number in range(max(_WARMUP + rounds, _BURST)):
            cluster.make_pod(POD_NAMESPACE, f"c{number}", node=lab.node_name)
    yield


# --- one after another ---------------------------------------------------------------------------------------------


def _print_rounds(contenders: Sequence[MeasuredPlugin], rounds: int) -> None:
    found = {(each.name, verb): ProcessSeries(each.name, verb) for each in contenders for verb in ("ADD", "DEL")}
    imports = {kind: ProcessSeries(f"imports, {kind.value}", "ADD") for kind in StoreKind}
    for number in range(_WARMUP + rounds):
        for each in contenders:
            with _namespaces([f"c{number}"]):
                for verb in ("ADD", "DEL"):
                    sample = _call(each, verb, f"c{number}")
                    if sample.status:  # a benchmark of failures would be a lie
                        raise SystemExit(f"{each.name}: {verb} failed: {sample.output}")
                    if number >= _WARMUP:
                        found[each.name, verb].samples.append(sample)
        for kind, series in imports.items():
            sample = run([sys.executable, "-IS", "-c", _with_libraries(kind)], b"", {})
            if number >= _WARMUP:
                series.samples.append(sample)
    print(f"{rounds} rounds after {_WARMUP} to warm up, interleaved; reference: {_REFERENCE}\n")
    print(format_report([*found.values(), *imports.values()]))
    print(f"\nADD's CPU in times of the imports alone (goal: at most {_GOAL}), and of the reference's:\n")
    reference_ms = found[_REFERENCE, "ADD"].cpu_ms()
    for kind, series in imports.items():
        spent_ms, imports_ms = found[f"netplug, {kind.value}", "ADD"].cpu_ms(), series.cpu_ms()
        print(
            f"{kind.value:12} {spent_ms / imports_ms:6.2f} {spent_ms / reference_ms:7.1f}   "
            f"imports are {imports_ms / spent_ms:.0%} of it: {_LIBRARIES[kind]}"
        )


def _with_libraries(kind: StoreKind) -> str:
    folders = [path for path in sys.path if path.endswith("site-packages")]
    return f"import sys; sys.path.extend({folders!r}); import {_LIBRARIES[kind]}"


# --- all at once ---------------------------------------------------------------------------------------------------


def _print_burst(contenders: Sequence[MeasuredPlugin]) -> None:
    """As many pods as a node may have, each with a process of its own, all started together."""
    names = [f"c{number}" for number in range(_BURST)]
    print(
        f"\n{_BURST} pods at once, once; seconds until the last is done, in times of the reference, and who failed:\n"
    )
    reference: dict[str, float] = {}
    for each in contenders:
        with _namespaces(names), ThreadPoolExecutor(_BURST) as pool:
            for verb in ("ADD", "DEL"):
                began = time.perf_counter()
                samples = list(pool.map(partial(_call, each, verb), names))
                seconds = time.perf_counter() - began
                ratio = seconds / reference.setdefault(verb, seconds)
                failed = sum(1 for sample in samples if sample.status)
                print(f"{each.name:22} {verb:4} {seconds:8.2f} {ratio:8.1f}  {failed} failed", flush=True)


# --- one call ------------------------------------------------------------------------------------------------------


def _call(contender: MeasuredPlugin, verb: str, container: str) -> ProcessSample:
    """One command, run in the node's namespace as a runtime runs it."""
    environ = {
        "NETPLUG_NODE_SOCKET": "",
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": f"/run/netns/{container}",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE={POD_NAMESPACE};K8S_POD_NAME={container}",
        "CNI_PATH": f"{Path(contender.executable).parent}:{_DEBIAN_PLUGINS}",
        "PATH": os.environ["PATH"],
    }
    with PinnedNamespaces().enter(contender.node):
        return run([contender.executable], contender.conf.encode(), environ)


@contextmanager
def _namespaces(names: Sequence[str]) -> Iterator[None]:
    """Pods' namespaces."""
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=True)


if __name__ == "__main__":
    measure(int(sys.argv[1]))
