"""What ``netplugctl`` costs: its help and ``get`` beside bare imports, and long work on 250,000 addresses in etcd.

Every command is a process of its own, as a person starts it. The goals stand beside what was measured. Those of the
long work are times and memory of the well-known tool on the machine where the goals were set, so on another machine
only the memory can be compared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from attrs import frozen

from benchmarks.measure import run
from netplug_backends.host.machine import SystemClock
from netplug_cli.ctl.main import FOLDER
from netplug_cli.wiring.backends import open_datastore
from netplug_core.addressing import Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.ipam.model import (
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
    host_owner,
)
from netplug_core.records import Create, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.settings.model import DatastoreSettings

_TOOL = (sys.executable, "-I", "-c", "from netplug_cli.wiring.ctl import main; main()")
_LIBRARIES = {
    "sqlite": "attrs, cattrs, pluggy, json, click, sqlite3",
    "etcdv3": "attrs, cattrs, pluggy, json, click, grpc, google.protobuf.message",
}
_HELP_GOAL, _GET_GOAL, _AT_ONCE_GOAL = 1.3, 1.4, 1.5
_POOL = Prefix.parse("10.0.0.0/12")
_BLOCKS, _BLOCK_SIZE = 3_906, 64
_BATCH = 100
_CLOCK = SystemClock()


@frozen
class _LongWork:
    """A command on the full datastore, and its goals; None for none."""

    argv: tuple[str, ...]
    wall_goal_s: float | None
    memory_goal_mb: int | None
    first_goal_s: float | None = None


_LONG = (
    _LongWork(("ipam", "check"), 8.3, 400),
    _LongWork(("ipam", "show"), 2.6, None),
    _LongWork(("ipam", "show", "--ip", "10.0.0.1"), None, None),
    _LongWork(("get", "workloadendpoints", "-A"), None, 200, 1.0),
)


def measure(rounds: int) -> None:
    """Measure short commands in a quarter of so many rounds, then the long ones once.

    Raises:
        SystemExit: a server is missing, or a command failed.
    """
    count = max(3, rounds // 4)
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": f"{folder}/netplug.db", "COLUMNS": "80"}
        _create_pool(environ, folder)
        _measure_short(environ, count)
        with _etcd() as endpoint:
            environ = os.environ | {"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": endpoint}
            _create_pool(environ, folder)
            _measure_get("etcdv3", environ, count)
            _measure_long(endpoint, environ)


# --- short commands -------------------------------------------------------------------------------------------------


def _measure_short(environ: dict[str, str], count: int) -> None:
    click_ms = _cpu_ms((sys.executable, "-I", "-c", "import click"), environ, count)
    print(f"CPU in ms, medians of {count} processes; times of a process that imports click (goal {_HELP_GOAL})\n")
    print(f"{'import click':32} {click_ms:7.1f}  1.00")
    top_ms = _cpu_ms((*_TOOL, "--help"), environ, count)
    helps = {
        name: _cpu_ms((*_TOOL, *name.split("."), "--help"), environ, max(3, count // 3))
        for name in sorted(file.stem for file in Path(FOLDER).iterdir())
    }
    worst = max(helps, key=lambda name: helps[name])
    for title, each_ms in (
        ("netplugctl --help", top_ms),
        (f"--help of {len(helps)} commands, median", median(helps.values())),
        (f"the slowest, of {worst.replace('.', ' ')}", helps[worst]),
    ):
        print(f"{title:32} {each_ms:7.1f} {each_ms / click_ms:5.2f}")
    print()
    tab = environ | {"_NETPLUGCTL_COMPLETE": "bash_complete", "COMP_WORDS": "netplugctl get ip", "COMP_CWORD": "2"}
    for title, argv, asked in (("version --client", ("version", "--client"), environ), ("one TAB after get", (), tab)):
        each_ms = _cpu_ms((*_TOOL, *argv), asked, count)
        print(f"{title}: {each_ms:.1f} ms, {each_ms / top_ms:.2f} times --help (goal {_AT_ONCE_GOAL})")
    _measure_get("sqlite", environ, count)


def _measure_get(store: str, environ: dict[str, str], count: int) -> None:
    imports = _cpu_ms((sys.executable, "-I", "-c", f"import {_LIBRARIES[store]}"), environ, count)
    got = _cpu_ms((*_TOOL, "get", "ippools"), environ, count)
    ratio = f"{got / imports:.2f} times its libraries (goal {_GET_GOAL})"
    print(f"get ippools, {store}: {got:.1f} ms, {ratio}: {imports:.1f} ms for {_LIBRARIES[store]}")


def _cpu_ms(command: Sequence[str], environ: dict[str, str], count: int) -> float:
    samples = [run(command, b"", environ) for _round in range(count)]
    for sample in samples:
        if sample.status:
            raise SystemExit(f"{' '.join(command)}: {sample.output}")
    return median(sample.cpu_s for sample in samples) * 1e3


def _create_pool(environ: dict[str, str], folder: str) -> None:
    file = Path(folder) / "pool.yaml"
    file.write_text(
        f"apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {{name: main}}\nspec: {{cidr: {_POOL}}}\n"
    )
    done = run((*_TOOL, "create", "-f", str(file)), b"", environ)
    if done.status:
        raise SystemExit(done.output)


# --- long commands --------------------------------------------------------------------------------------------------


def _measure_long(endpoint: str, environ: dict[str, str]) -> None:
    settings = DatastoreSettings(type="etcdv3", etcd_endpoints=(endpoint,))
    with open_datastore(settings) as store:
        began_s = time.monotonic()
        count = _fill(store)
    took_s = time.monotonic() - began_s
    print(f"\n{count} addresses in {_BLOCKS} full blocks, a handle and an endpoint each; filled in {took_s:.0f} s\n")
    print(f"{'':28} {'first s':>8} {'wall s':>7} {'goal':>5} {'CPU s':>6} {'MB':>5} {'goal':>5}")
    for work in _LONG:
        first_s, wall_s, cpu_s, mb = _run_long(work, environ)
        print(
            f"{' '.join(work.argv):28} {first_s:8.2f} {wall_s:7.1f} {work.wall_goal_s or '':>5} {cpu_s:6.1f} "
            f"{mb:5.0f} {work.memory_goal_mb or '':>5}"
        )


def _run_long(work: _LongWork, environ: dict[str, str]) -> tuple[float, float, float, float]:
    """Seconds until the first line and until the end, CPU seconds, and the highest memory in MB."""
    began_s = time.monotonic()
    read_end, write_end = os.pipe()
    process = subprocess.Popen((*_TOOL, *work.argv), stdout=write_end, env=environ)
    os.close(write_end)
    os.read(read_end, 1)
    first_s = time.monotonic() - began_s
    while os.read(read_end, 1 << 16):
        pass
    os.close(read_end)
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(work.argv)} ended with {process.returncode}")
    return first_s, time.monotonic() - began_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _fill(store: Datastore) -> int:
    """Fill whole blocks, as a cluster of many full nodes has them; return the number of addresses."""
    writes = list[Write]()
    for number in range(_BLOCKS):
        writes.extend(_block(number))
        while len(writes) >= _BATCH:
            store.commit(writes[:_BATCH], deadline=_deadline())
            del writes[:_BATCH]
    store.commit(writes, deadline=_deadline())
    return _BLOCKS * _BLOCK_SIZE


def _block(number: int) -> Iterable[Write]:
    prefix, node = _POOL.subprefix(number, 26), f"node-{number:04}"
    block = Block.new(prefix, owner=host_owner(node), now_ns=_CLOCK.now_ns())
    for ordinal in block.free:
        pod = f"web-{number:05}-{ordinal:03}"
        handle = f"k8s-pod-network.{number:05}{ordinal:03}6d4cf56db66d4cf56db66d4cf56db66d4cf56db6"
        owner = (("namespace", "production"), ("node", node), ("pod", pod))
        block = block.assign((ordinal,), Attribute(handle=handle, owner=owner))
        yield Create(handle_key(handle), Handle(blocks=((prefix, 1),)))
        spec = WorkloadEndpointSpec(
            orchestrator="k8s", node=node, pod=pod, endpoint="eth0", addresses=(prefix.nth(ordinal),)
        )
        endpoint = WorkloadEndpoint(metadata=Metadata(name=pod, namespace="production"), spec=spec)
        yield Create(WORKLOAD_ENDPOINT.key("production", pod), endpoint)
    yield Create(affinity_key(block.owner, prefix), Affinity(state=AffinityState.CONFIRMED))
    yield Create(block_key(prefix), block)


def _deadline() -> Deadline:
    return Deadline.after(_CLOCK, 60.0)


@contextmanager
def _etcd() -> Iterator[str]:
    from tests.harness.servers.etcd import start_etcd

    with start_etcd() as etcd:
        yield etcd.endpoints[0]
