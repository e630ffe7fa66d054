"""Plugins to measure, each on a node of its own in network namespaces: labs of netplug, and the well-known plugins.

Run as root; everything happens in network and mount namespaces that end with the process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from benchmarks.measure import ProcessSample, run
from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.lab import open_cluster
from netplug_backends.linux.pinned_namespaces import PinnedNamespaces
from netplug_cli.lab.folder import find_lab
from netplug_cli.lab.model import NODE_NETNS, POD_NAMESPACE, LabFolder, StoreKind, store_environment
from netplug_core.settings.apiconfig import datastore_settings_from_environment

__all__ = [
    "BURST", "REFERENCE", "SERVERS", "WARMUP", "MeasuredPlugin", "call", "lab", "lab_plugin", "make_api_pods",
    "namespaces", "reference_plugin", "run_inside",
]  # fmt: skip

REFERENCE = "ptp + host-local"
SERVERS = Path(__file__).parents[1] / ".cache" / "demo"
WARMUP = 3
BURST = 110
"""As many pods as a node may have."""

_INSIDE = "NETPLUG_BENCHMARK_INSIDE"
_DEBIAN_PLUGINS = "/usr/lib/cni"


@frozen
class MeasuredPlugin:
    """A plugin with its configuration, the namespace of the node that it works on, and further variables."""

    name: str
    executable: str
    conf: str
    node: str
    variables: Mapping[str, str] = field(factory=lambda: {"NETPLUG_NODE_SOCKET": ""})


def run_inside(name: str, rounds: int) -> bool:
    """Run a benchmark again in namespaces of its own; false if this process is in them already.

    Raises:
        SystemExit: something that it takes is missing, or it failed.
    """
    if os.geteuid() != 0:
        raise SystemExit(f"{name} needs root: it makes network namespaces")
    if not Path(_DEBIAN_PLUGINS, "ptp").exists():
        raise SystemExit("ptp is missing: apt-get install containernetworking-plugins")
    for program in ("etcd", "kube-apiserver"):
        if not os.access(SERVERS / program, os.X_OK):
            raise SystemExit(f"{SERVERS / program} is missing: tools/demo servers puts it there")
    if _INSIDE in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        return False
    command = ["unshare", "--net", "--mount", sys.executable, "-m", f"benchmarks.{name}", str(rounds)]
    if subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode:
        raise SystemExit(f"{name} did not come to its end")
    return True


@contextmanager
def lab(kind: StoreKind) -> Iterator[LabFolder]:
    """A lab with that datastore; its own pod stays where it is."""
    tool = [sys.executable, "-m", "netplug_cli.wiring.ctl", "lab"]
    servers = () if kind is StoreKind.SQLITE else ("--servers", str(SERVERS))
    named = ("--name", kind.value)
    up = [*tool, "up", *named, "--pods", "1", "--datastore", kind.value, *servers]
    try:
        subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
        yield LabFolder(f"/run/netplug-{kind.value}")
    finally:
        subprocess.run([*tool, "down", *named], check=False, stdout=subprocess.DEVNULL)


def lab_plugin(kind: StoreKind, folder: LabFolder) -> MeasuredPlugin:
    """The lab's own configuration, for one family and without a log, as the reference has it."""
    conflist = json.loads(Path(folder.node_files().conflist_file).read_text())
    conf = {**conflist["plugins"][0], "cniVersion": conflist["cniVersion"], "name": "bench", "log_level": "ERROR"}
    del conf["log_file_path"]
    conf["ipam"] = {"type": "netplug-ipam"}
    return MeasuredPlugin(
        f"netplug, {kind.value}", f"{folder.bin_dir}/netplug", json.dumps(conf), folder.netns(NODE_NETNS)
    )


def make_api_pods(folder: LabFolder, rounds: int) -> None:
    """The pods that the API server of a lab has to know before a plugin may attach them; they go with the lab."""
    found = find_lab(folder)
    if found is None:
        raise SystemExit(f"{folder.path} has no lab any more")
    settings = datastore_settings_from_environment(store_environment(found.store, folder))
    with (
        PinnedNamespaces().enter(folder.netns(NODE_NETNS)),
        open_cluster(settings, found.uid, clock=SystemClock()) as cluster,
    ):
        for number in range(max(WARMUP + rounds, BURST)):
            cluster.make_pod(POD_NAMESPACE, f"c{number}", node=found.nodes[0].name)


@contextmanager
def reference_plugin(folder: Path) -> Iterator[MeasuredPlugin]:
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
        yield MeasuredPlugin(REFERENCE, f"{_DEBIAN_PLUGINS}/ptp", json.dumps(conf), node)
    finally:
        namespaces.remove(node)


def call(contender: MeasuredPlugin, verb: str, container: str) -> ProcessSample:
    """One command, run in the node's namespace as a runtime runs it."""
    environ = {
        **contender.variables,
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
def namespaces(names: Sequence[str]) -> Iterator[None]:
    """Pods' namespaces."""
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=True)
