"""ADD and DEL of netplug on every datastore beside ``ptp`` with ``host-local``, interleaved round by round.

Each datastore is that of a lab (``netplugctl lab up``), with servers in its node's namespace. For each datastore,
another row measures a process that only imports the libraries of the configuration: the part of the time that Python
itself needs. At the end many pods are attached at once. No node process serves here; ``served`` measures that.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.measure import ProcessSeries, format_report, run
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
from netplug_cli.lab.model import StoreKind

_COMMON = "attrs, cattrs, pluggy, json"
_LIBRARIES = {
    StoreKind.SQLITE: f"{_COMMON}, sqlite3",
    StoreKind.ETCD: f"{_COMMON}, grpc, google.protobuf.message",
    StoreKind.KUBERNETES: f"{_COMMON}, ssl, http.client",
}
_GOAL = 2.0


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: something that it takes is missing, or a plugin failed.
    """
    if run_inside("attach", rounds):
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        labs = {kind: stack.enter_context(lab(kind)) for kind in StoreKind}
        reference = stack.enter_context(reference_plugin(Path(folder)))
        contenders = [reference, *(lab_plugin(kind, where) for kind, where in labs.items())]
        make_api_pods(labs[StoreKind.KUBERNETES], rounds)
        _print_rounds(contenders, rounds)
        _print_burst(contenders)


# --- what is measured ----------------------------------------------------------------------------------------------


# --- one after another ---------------------------------------------------------------------------------------------


def _print_rounds(contenders: Sequence[MeasuredPlugin], rounds: int) -> None:
    found = {(each.name, verb): ProcessSeries(each.name, verb) for each in contenders for verb in ("ADD", "DEL")}
    imports = {kind: ProcessSeries(f"imports, {kind.value}", "ADD") for kind in StoreKind}
    for number in range(WARMUP + rounds):
        for each in contenders:
            with namespaces([f"c{number}"]):
                for verb in ("ADD", "DEL"):
                    sample = call(each, verb, f"c{number}")
                    if sample.status:  # a benchmark of failures would be a lie
                        raise SystemExit(f"{each.name}: {verb} failed: {sample.output}")
                    if number >= WARMUP:
                        found[each.name, verb].samples.append(sample)
        for kind, series in imports.items():
            sample = run([sys.executable, "-IS", "-c", _with_libraries(kind)], b"", {})
            if number >= WARMUP:
                series.samples.append(sample)
    print(f"{rounds} rounds after {WARMUP} to warm up, interleaved; reference: {REFERENCE}\n")
    print(format_report([*found.values(), *imports.values()]))
    print(f"\nADD's CPU in times of the imports alone (goal: at most {_GOAL}), and of the reference's:\n")
    reference_ms = found[REFERENCE, "ADD"].cpu_ms()
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
    names = [f"c{number}" for number in range(BURST)]
    print(f"\n{BURST} pods at once, once; seconds until the last is done, in times of the reference, and who failed:\n")
    reference: dict[str, float] = {}
    for each in contenders:
        with namespaces(names), ThreadPoolExecutor(BURST) as pool:
            for verb in ("ADD", "DEL"):
                began = time.perf_counter()
                samples = list(pool.map(partial(call, each, verb), names))
                seconds = time.perf_counter() - began
                ratio = seconds / reference.setdefault(verb, seconds)
                failed = sum(1 for sample in samples if sample.status)
                print(f"{each.name:22} {verb:4} {seconds:8.2f} {ratio:8.1f}  {failed} failed", flush=True)


if __name__ == "__main__":
    measure(int(sys.argv[1]))
