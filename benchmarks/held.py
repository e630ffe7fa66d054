"""ADD and DEL of pods that are held back until their policy is programmed, beside the same without holding back.

One node process on etcd enforces policy and serves both, by the static client, so what differs is the waiting. Calls
come one after another, in turns, and then for many pods at once.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

from attrs import evolve

from benchmarks.measure import ProcessSample, ProcessSeries, format_report
from benchmarks.scene import BURST, WARMUP, MeasuredPlugin, call, lab, lab_plugin, namespaces, run_inside
from benchmarks.served import node_process
from netplug_backends.host.executables import Client, install
from netplug_cli.lab.folder import find_lab
from netplug_cli.lab.model import LabFolder, StoreKind, store_environment

__all__ = ["measure"]

_VERBS = ("ADD", "DEL")
_GOAL = 1.3
_BURST_ROUNDS = 5
_TIMEOUT_S = 30
_TOO_LATE = "policy is not programmed in time"


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: something that it takes is missing, a call failed, or a pod was not held back long enough.
    """
    if run_inside("held", rounds):
        return
    with tempfile.TemporaryDirectory() as folder, lab(StoreKind.ETCD) as where:
        plugin, path = lab_plugin(StoreKind.ETCD, where), f"{folder}/node.sock"
        variables = _enforcing_variables(where, json.loads(plugin.conf)["nodename"], folder)
        install(f"{folder}/bin", lambda _line: None, Client.STATIC)
        plugin = evolve(plugin, executable=f"{folder}/bin/netplug", variables={"NETPLUG_NODE_SOCKET": path})
        plain, held = (_plugin(plugin, name, folder) for name in ("not held back", "held back"))
        with node_process(plugin.node, path, variables):
            _print_rounds((plain, held), rounds)
            _print_bursts((plain, held))


def _enforcing_variables(where: LabFolder, node: str, folder: str) -> Mapping[str, str]:
    found = find_lab(where)
    if found is None:
        raise SystemExit(f"{where.path} has no lab any more")
    return {
        **store_environment(found.store, where),
        "NODENAME": node,
        "NODENAME_FILE": f"{folder}/nodename",
        "MTU_FILE": f"{folder}/mtu",
        "ENDPOINT_STATUS_DIR": f"{folder}/endpoint-status",
        "NETPLUG_NETWORKING_BACKEND": "none",
        "NETPLUG_POLICY": "Enabled",
    }


def _plugin(plugin: MeasuredPlugin, name: str, folder: str) -> MeasuredPlugin:
    conf = {**json.loads(plugin.conf), "endpoint_status_dir": f"{folder}/endpoint-status"}
    if name == "held back":
        conf["policy_setup_timeout_seconds"] = _TIMEOUT_S
    return evolve(plugin, name=name, conf=json.dumps(conf))


def _call(plugin: MeasuredPlugin, verb: str, container: str) -> ProcessSample:
    """One call. What is measured has to have happened: it has succeeded, and a pod that was held back was not late."""
    sample = call(plugin, verb, container)
    if sample.status or _TOO_LATE in sample.output:
        raise SystemExit(f"{plugin.name}: {verb} failed: {sample.output}")
    return sample


def _print_rounds(plugins: Sequence[MeasuredPlugin], rounds: int) -> None:
    found = {(each.name, verb): ProcessSeries(each.name, verb) for verb in _VERBS for each in plugins}
    for number in range(WARMUP + rounds):
        for plugin in plugins:
            with namespaces([f"c{number}"]):
                for verb in _VERBS:
                    sample = _call(plugin, verb, f"c{number}")
                    if number >= WARMUP:
                        found[plugin.name, verb].samples.append(sample)
    print(f"{rounds} rounds after {WARMUP} to warm up, in turns\n")
    print(format_report(list(found.values())))
    plain, held = (sorted(each.wall_s for each in found[plugin.name, "ADD"].samples) for plugin in plugins)
    print(f"\nADD held back / not held back, median {median(held) / median(plain):.2f}", end="")
    print(f", fastest {held[0] / plain[0]:.2f}  N4: <= {_GOAL:g}", flush=True)


def _print_bursts(plugins: Sequence[MeasuredPlugin]) -> None:
    names = [f"c{number}" for number in range(BURST)]
    taken = {each.name: list[float]() for each in plugins}
    for _ in range(_BURST_ROUNDS):
        for plugin in plugins:
            with namespaces(names), ThreadPoolExecutor(BURST) as pool:
                began = time.perf_counter()
                list(pool.map(partial(_call, plugin, "ADD"), names))
                taken[plugin.name].append(time.perf_counter() - began)
                list(pool.map(partial(_call, plugin, "DEL"), names))
    plain, held = (sorted(taken[plugin.name]) for plugin in plugins)
    print(f"{BURST} at once, median of {_BURST_ROUNDS}: {median(held):.2f} s and {median(plain):.2f} s", end="")
    print(f", ratio {median(held) / median(plain):.2f}, fastest {held[0] / plain[0]:.2f}  N4: <= {_GOAL:g}")


if __name__ == "__main__":
    measure(int(sys.argv[1]))
