"""The packet filter with 10,000 prefixes and with 10,000 floating addresses, beside one of each, in a namespace.

What is measured is what the node process does: it plans the table, and libnftables makes the change in the process. In
the same rounds the program ``nft`` loads the two sets alone. The memory is that of a process of its own for each row:
before the first table, and after it.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from netplug_backends.linux.netns import in_new_namespace
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.dataplane.ruleset import ReplaceTable, find_change
from netplug_core.reconcile.nat import NET_TABLE, NatFacts, plan_table
from netplug_core.resources.fields import Metadata, Switch
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from netplug_core.resources.nodeconfiguration import NodeConfigurationSpec
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec

_MANY = 10_000
_INTERNAL, _EXTERNAL, _POOLS = 10 << 24, 100 << 24, 20 << 24
_LOAD_GOAL, _FLOATING_GOAL = 8.0, 1.5


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: there is no right to make a namespace.
    """
    try:
        in_new_namespace(lambda: _measure(rounds))
    except OSError as error:
        raise SystemExit(f"a network namespace cannot be made: {error}") from error
    idle, one, many = (_memory_mb(count) for count in (0, 1, _MANY))
    print(f"\nmemory of a process: {idle:.1f} MB, with a table of one prefix {one - idle:+.1f} MB,", end=" ")
    print(f"of {_MANY} prefixes {many - idle:+.1f} MB")


def _measure(rounds: int) -> None:
    rows: dict[str, dict[int, list[float]]] = {}
    ruleset = NftablesRuleset()
    for _ in range(rounds):
        for count in (1, _MANY):
            for name, seconds in _round(ruleset, count).items():
                rows.setdefault(name, {}).setdefault(count, []).append(seconds)
    goals = {"prefix: load the table": _LOAD_GOAL, "floating address: add it": _FLOATING_GOAL}
    print(f"{rounds} rounds; medians in ms\n\n{'':38} {'of 1':>8} {f'of {_MANY}':>10} {'ratio':>7}")
    for name, samples in rows.items():
        one, many = (median(samples[count]) * 1e3 for count in (1, _MANY))
        goal = f"  R9: <= {goals[name]:g}" if name in goals else ""
        print(f"{name:38} {one:8.1f} {many:10.1f} {many / one:7.1f}{goal}")


def _round(ruleset: NftablesRuleset, count: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for what, one, more in (
        ("prefix", _facts(pools=count), _facts(pools=count + 1)),
        ("floating address", _facts(floating=count), _facts(floating=count + 1)),
    ):
        table, changed = plan_table(one).table, plan_table(more).table
        found[f"{what}: plan the table"] = _time(partial(plan_table, one))
        found[f"{what}: load the table"] = _time(partial(ruleset.apply, ReplaceTable(table)))
        found[f"{what}: read it"] = _time(partial(ruleset.read, NET_TABLE))
        found[f"{what}: read it unchanged"] = _time(partial(ruleset.read, NET_TABLE))
        observed = ruleset.read(NET_TABLE)
        found[f"{what}: find one that is new"] = _time(partial(find_change, changed, observed))
        change = find_change(changed, observed)
        if change is not None:
            found[f"{what}: add it"] = _time(partial(ruleset.apply, change))
    found["prefix: load it by nft -f -"] = _time(partial(_load_by_program, _as_text(count)))
    return found


def _as_text(count: int) -> str:
    """The two sets of prefixes in the language of nft."""
    prefixes = ", ".join(str(pool.spec.prefix) for pool in _facts(pools=count).pools)
    sets = (f"set {name} {{ type ipv4_addr; flags interval; elements = {{ {prefixes} }} }}" for name in "ab")
    return f"table inet other\ndelete table inet other\ntable inet other {{\n{chr(10).join(sets)}\n}}\n"


def _load_by_program(text: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def _facts(*, pools: int = 0, floating: int = 0) -> NatFacts:
    settings = NodeConfigurationSpec(floating_ips=Switch.ENABLED)
    return NatFacts(
        pools=tuple(_pool(number) for number in range(pools)),
        settings=settings if floating else NodeConfigurationSpec(),
        endpoints=tuple(_endpoint(number) for number in range(floating)),
    )


def _pool(number: int) -> IPPool:
    prefix = Prefix.at(Address(Family.IPV4, _POOLS + (number << 8)), 25)
    return IPPool(metadata=Metadata(name=f"pool-{number}"), spec=IPPoolSpec(prefix=prefix, has_outgoing_nat=True))


def _endpoint(number: int) -> WorkloadEndpoint:
    internal, external = (Address(Family.IPV4, base + number) for base in (_INTERNAL, _EXTERNAL))
    spec = WorkloadEndpointSpec(
        orchestrator="k8s",
        node="node-1",
        endpoint="eth0",
        addresses=(internal,),
        ip_nats=(IPNAT(internal=internal, external=external),),
    )
    return WorkloadEndpoint(metadata=Metadata(name=f"pod-{number}", namespace="default"), spec=spec)


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory_mb(count: int) -> float:
    """The memory of a process that has loaded a table with so many prefixes and read it; 0: that has loaded none."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_load, (count,))


def _load(count: int) -> float:
    if count:
        in_new_namespace(lambda: _load_and_read(count))
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024


def _load_and_read(count: int) -> None:
    ruleset = NftablesRuleset()
    ruleset.apply(ReplaceTable(plan_table(_facts(pools=count)).table))
    ruleset.read(NET_TABLE)
