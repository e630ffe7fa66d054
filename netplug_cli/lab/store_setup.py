"""Prepares the datastore of a lab: its servers or the relays to them, its pools, and its objects in an API server.

``setup`` calls it. Servers of the lab's own are removed with its folder; ``external_cleanup`` removes what it stores on
external servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import assert_never

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import LAB_POOLS, POD_NAMESPACE, Lab, LabPod, LabPool
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.processes import LabProcess, require_etcd, start_servers, wait_until_ready
from netplug_cli.lab.relays import start_relays
from netplug_cli.lab.stores import ExternalServers, OwnServers, SqliteStore, is_kubernetes
from netplug_cli.lab.world import LabWorld
from netplug_core.flows.resources.read import find, read_utilization
from netplug_core.flows.resources.write import create
from netplug_core.names import API_VERSION, LAB_LABEL
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.manifest import manifest_from_mapping

__all__ = ["count_held_addresses", "make_pod_object", "prepare_store", "require_servers"]


def require_servers(world: LabWorld, folder: LabFolder, lab: Lab) -> None:
    """Return if the external servers of the lab answer, if it uses such.

    Raises:
        NetplugError: they do not answer; nothing has been stored there yet.
    """
    if not isinstance(lab.store, ExternalServers):
        return
    if is_kubernetes(lab.store):
        with world.open_lab_cluster(lab, folder) as cluster:
            cluster.require_ready()
        return
    with world.open_store(lab, folder) as store:
        find(store, [ippool_key(pool.name) for pool in LAB_POOLS], deadline=world.session.deadline())


def prepare_store(world: LabWorld, locked: LockedFolder, lab: Lab) -> Iterator[str]:
    """Make everything that the lab's pods need of their store, up to the pools; yield a line for each part.

    Raises:
        NetplugError: a server does not come up, or refuses something.
    """
    folder = locked.folder
    match lab.store:
        case SqliteStore():
            pass
        case OwnServers() as own:
            with world.progress.activity(" and ".join(["etcd", *(["kube-apiserver"] if own.apiserver else [])])):
                started = start_servers(world.namespaces, locked, own)
                _wait_for_servers(world, folder, lab, started)
            yield from (f"{server.name} runs on the node (process {server.pid})" for server in started)
        case ExternalServers(addresses=addresses):
            started = start_relays(world.namespaces, locked, lab.store)
            for server, (host, port) in zip(started, addresses, strict=True):
                yield f"{host} port {port} is relayed to from the node (process {server.pid})"
        case _:
            assert_never(lab.store)
    if is_kubernetes(lab.store):
        with world.progress.activity("definitions, node and namespace"):
            yield from _make_objects(world, folder, lab)
    yield from _create_pools(world, folder, lab)


def make_pod_object(world: LabWorld, folder: LabFolder, lab: Lab, pod: LabPod) -> None:
    """Make the object of a pod, where pods are objects of a cluster."""
    if is_kubernetes(lab.store):
        with world.open_lab_cluster(lab, folder) as cluster:
            cluster.make_pod(POD_NAMESPACE, pod.name, node=lab.node_name)


def count_held_addresses(world: LabWorld, folder: LabFolder, lab: Lab) -> int:
    """How many addresses of the lab's pools are still held."""
    with world.open_store(lab, folder) as store:
        usage = read_utilization(store, deadline=world.session.deadline())
    names = {pool.name for pool in LAB_POOLS}
    return sum(pool.in_use for pool in usage if pool.name in names)


def _wait_for_servers(world: LabWorld, folder: LabFolder, lab: Lab, started: tuple[LabProcess, ...]) -> None:
    clock = world.session.clock
    wait_until_ready(partial(require_etcd, world.namespaces, folder), started, clock)
    if not is_kubernetes(lab.store):
        return

    def require_ready() -> None:
        with world.open_lab_cluster(lab, folder) as cluster:
            cluster.require_ready()

    wait_until_ready(require_ready, started, clock)


def _make_objects(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    with world.open_lab_cluster(lab, folder) as cluster:
        count = cluster.install_definitions()
        if count:
            yield f"{count} definitions of custom objects installed"
        cluster.make_node(lab.node_name)
        cluster.make_namespace(POD_NAMESPACE)
    yield f"Node {lab.node_name} and Namespace {POD_NAMESPACE} made"


def _create_pools(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    """Create the pools as ``netplugctl create -f`` does; the file stays in the folder for the person to read."""
    documents = [_pool_document(pool, lab) for pool in LAB_POOLS]
    replace_file(folder.pools_file, "---\n".join(map(world.render_yaml, documents)), OPEN_FILE_MODE)
    session = world.session
    with world.open_store(lab, folder) as store:
        for document in documents:
            manifest = manifest_from_mapping(document, source=folder.pools_file)
            outcome = create(store, manifest, pace=session.pace(), new_uid=session.new_uid)
            yield f"{outcome.key} {outcome.effect.value}"


def _pool_document(pool: LabPool, lab: Lab) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "IPPool",
        "metadata": {"name": pool.name, "labels": {LAB_LABEL: lab.uid}},
        "spec": {"cidr": str(pool.prefix), "blockSize": pool.block_length},
    }
