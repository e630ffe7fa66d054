"""An address for a node whose blocks are full, in a cluster of 1,024 claimed blocks, beside one from a block with room.

Each request is made by a process of its own that imports what it needs, opens the store and asks the block IPAM:
``python -m benchmarks.full_cluster STORE CASE`` prints its reads as JSON. The cases are one family each: in the IPv6
pool every other block has one free address, in the IPv4 pool one block of all, and after that none. Servers are those
of the tests, on loopback.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from statistics import median

from attrs import frozen

from benchmarks.measure import ProcessSample, run
from netplug_backends.host.machine import SystemClock
from netplug_core.addressing import Family, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import AllocationError
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest, Shortfall
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key, block_key, host_owner
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import Create, Write
from netplug_core.resources.ippool import AllowedUse, IPPool
from netplug_core.simulation.simulator import CountingDatastore

_BLOCKS = 1024
_WITH_ROOM = 700
_FULL, _NEARLY_FULL = Prefix.parse("10.0.0.0/16"), Prefix.parse("fd00::/112")
_FULL_NODE, _NODE_WITH_ROOM = "node-0000", f"node-{_WITH_ROOM:04}"
_BATCH = 20
_GOAL = 5.0
_CLOCK = SystemClock()


@frozen
class _Case:
    """A request: the node that makes it, the family, and what it is called in the table."""

    name: str
    node: str
    family: Family

    def request(self) -> AssignRequest:
        """One address, or a refusal."""
        return AssignRequest(
            handle="k8s-pod-network.measured",
            node=self.node,
            wanted=(Automatic(family=self.family),),
            use=AllowedUse.WORKLOAD,
            shortfall=Shortfall.REFUSE,
        )


_CASES = {
    "room": _Case("own block with room", _NODE_WITH_ROOM, Family.IPV4),
    "near": _Case("full node, every other block has room", _FULL_NODE, Family.IPV6),
    "last": _Case("full node, one block has room", _FULL_NODE, Family.IPV4),
    "none": _Case("full node, no block has room", _FULL_NODE, Family.IPV4),
}


def measure(rounds: int) -> None:
    """Measure each case in a tenth of so many rounds, and print.

    Raises:
        SystemExit: a server is missing, or a request did not do what its case says.
    """
    print(f"{_BLOCKS} claimed blocks of 64 in each family; medians of {max(1, rounds // 10)} processes")
    print(f"x: times of the first row (goal {_GOAL:.0f}); call CPU: the assignment alone, without imports\n")
    print(f"{'store':11} {'':39} {'reads':>6} {'CPU ms':>7} {'x':>5} {'call CPU ms':>12} {'MB':>5}")
    for name, servers in {"sqlite": _sqlite, "etcdv3": _etcd, "kubernetes": _kubernetes}.items():
        with servers() as address:
            _measure_store(f"{name} {address}", max(1, rounds // 10))


def _measure_store(store: str, rounds: int) -> None:
    with _open(store) as filled:
        _fill(filled)
        ipam = BlockIPAM(datastore=filled, clock=_CLOCK, chance=lambda: 0.5)
        first = 0.0
        for name, case in _CASES.items():
            if name == "none":  # another pod gets the last address
                request = AssignRequest(
                    handle="k8s-pod-network.last", node=case.node, wanted=case.request().wanted,
                    use=AllowedUse.WORKLOAD, shortfall=Shortfall.REFUSE,
                )  # fmt: skip
                ipam.assign(request, NO_ENDPOINT, deadline=_deadline())
            samples = []
            for _round in range(rounds):
                samples.append(_run_case(store, name))
                ipam.release(ReleaseRequest(handle="k8s-pod-network.measured"), NO_ENDPOINT, deadline=_deadline())
            found = [json.loads(sample.output) for sample in samples]
            cpu_ms = median(sample.cpu_s for sample in samples) * 1e3
            first = first or cpu_ms
            print(
                f"{store.partition(' ')[0]:11} {case.name:39} {found[0]['reads']:6} {cpu_ms:7.0f} "
                f"{cpu_ms / first:5.2f} "
                f"{median(each['call_cpu_ms'] for each in found):12.1f} {max(each['mb'] for each in found):5.0f}"
            )


def _run_case(store: str, name: str) -> ProcessSample:
    sample = run([sys.executable, "-m", "benchmarks.full_cluster", store, name], b"", os.environ)
    if sample.status:
        raise SystemExit(f"{name}: {sample.output}")
    return sample


# --- a full cluster ------------------------------------------------------------------------------------------------


def _fill(store: Datastore) -> None:
    """Fill both pools: each node has a block of each, and a pod for every address but for a few that are free."""
    for pool, with_room in ((_FULL, {_WITH_ROOM}), (_NEARLY_FULL, set(range(1, _BLOCKS, 2)))):
        made = IPPool.for_prefix(pool, name=f"ipv{pool.family.value}")
        store.commit((Create(made.key, made),), deadline=_deadline())
        writes = [write for number in range(_BLOCKS) for write in _block(pool, number, has_room=number in with_room)]
        for begin in range(0, len(writes), _BATCH):
            store.commit(writes[begin : begin + _BATCH], deadline=_deadline())


def _block(pool: Prefix, number: int, *, has_room: bool) -> Iterable[Write]:
    prefix, owner = pool.subprefix(number, pool.family.default_block_length), host_owner(f"node-{number:04}")
    block = Block.new(prefix, owner=owner, now_ns=_CLOCK.now_ns())
    for ordinal in block.free[has_room:]:
        handle = f"k8s-pod-network.{number:05}{ordinal:03}6d4cf56db66d4cf56db66d4cf56db66d4cf56db6"
        pairs = {"namespace": "production", "node": f"node-{number:04}", "pod": f"web-{number:05}-{ordinal:03}"}
        block = block.assign((ordinal,), Attribute(handle=handle, owner=tuple(pairs.items())))
    yield Create(affinity_key(owner, prefix), Affinity(state=AffinityState.CONFIRMED))
    yield Create(block_key(prefix), block)


def _deadline() -> Deadline:
    return Deadline.after(_CLOCK, 60.0)


# --- servers -------------------------------------------------------------------------------------------------------


@contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"{folder}/netplug.db"


@contextmanager
def _etcd() -> Iterator[str]:
    from tests.harness.servers.etcd import start_etcd

    with start_etcd() as cluster:
        yield ",".join(cluster.endpoints)


@contextmanager
def _kubernetes() -> Iterator[str]:
    from netplug_backends.kubernetes.names import CrdMode
    from tests.harness.servers.kube_apiserver import start_api_server
    from tests.harness.servers.kube_objects import install_definitions

    with tempfile.TemporaryDirectory() as folder, start_api_server(Path(folder)) as server:
        install_definitions(server, CrdMode.V1)
        yield server.write_kubeconfig()


@contextmanager
def _open(store: str) -> Iterator[Datastore]:
    """The store of that kind and address; only what it needs is imported."""
    kind, _, address = store.partition(" ")
    with ExitStack() as stack:
        if kind == "sqlite":
            from netplug_backends.sqlite.datastore import SqliteDatastore

            yield stack.enter_context(closing(SqliteDatastore(address, clock=_CLOCK)))
        elif kind == "etcdv3":
            from netplug_backends.etcdv3.datastore import EtcdDatastore, client_from_settings
            from netplug_core.settings.model import DatastoreSettings

            settings = DatastoreSettings(etcd_endpoints=tuple(address.split(",")))
            yield stack.enter_context(closing(EtcdDatastore(client_from_settings(settings, clock=_CLOCK))))
        else:
            from netplug_backends.kubernetes.client.access import AccessSource
            from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
            from netplug_backends.kubernetes.datastore import KubernetesDatastore
            from netplug_core.settings.model import KubernetesAccess

            access = AccessSource(KubernetesAccess(kubeconfig=address), {})
            limiter = RateLimiter(clock=_CLOCK, qps=10_000, burst=10_000)
            client = ApiClient(access, clock=_CLOCK, rate_limiter=limiter)
            yield stack.enter_context(closing(KubernetesDatastore(client)))


# --- the measured process ------------------------------------------------------------------------------------------


def _request(store: str, name: str) -> dict[str, float]:
    """Make the request of a case."""
    with _open(store) as opened:
        counting = CountingDatastore(opened)
        ipam = BlockIPAM(datastore=counting, clock=_CLOCK, chance=lambda: time.time() % 1)
        began, is_given = time.process_time(), False
        with suppress(AllocationError):
            is_given = bool(ipam.assign(_CASES[name].request(), NO_ENDPOINT, deadline=_deadline()).addresses)
        call_cpu_ms = (time.process_time() - began) * 1e3
    if is_given is (name == "none"):
        raise SystemExit(f"{name}: an address was {'given' if is_given else 'refused'}")
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"reads": counting.calls.reads, "call_cpu_ms": call_cpu_ms, "mb": mb}


if __name__ == "__main__":
    print(json.dumps(_request(*sys.argv[1:])))
