"""Prepares the datastore of a lab: its servers or the relays to them, its pools, and its objects in an API server.

``setup`` calls it, with the options of the command line. Servers of the lab's own are removed with its folder;
``teardown`` removes what the lab stores on external servers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import assert_never

from attrs import evolve, frozen

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import (
    POD_NAMESPACE,
    ExternalServers,
    Lab,
    LabError,
    LabFolder,
    LabPod,
    LabPool,
    LabStore,
    OwnServers,
    Routing,
    SqliteStore,
    StoreKind,
    is_kubernetes,
)
from netplug_cli.lab.processes import (
    LabProcess,
    parse_server_address,
    require_etcd,
    start_relays,
    start_server_relays,
    start_servers,
    wait_until_ready,
)
from netplug_cli.lab.world import LabWorld
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.flows.resources.read import find
from netplug_core.flows.resources.write import create
from netplug_core.ipam.model import Allocation
from netplug_core.names import API_VERSION, LAB_LABEL
from netplug_core.resources.codec import manifest_from_mapping
from netplug_core.resources.ippool import ippool_key
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "ServerLookup", "StoreOptions", "count_held_addresses", "make_pod_object", "prepare_store", "require_servers",
    "resolve_store",
]  # fmt: skip


# --- store options ---------------------------------------------------------------------------------------------------


ServerLookup = Callable[[DatastoreSettings], tuple[tuple[str, int], ...]]
"""Returns host and port of each server that settings name."""

_ADVICE = {
    StoreKind.ETCD: "--server URL names one that runs, and ETCD_CA_CERT_FILE, ETCD_CERT_FILE and ETCD_KEY_FILE the "
    "files that it takes; with --servers DIR the lab starts one",
    StoreKind.KUBERNETES: "KUBECONFIG names the file that leads to one; with --servers DIR the lab starts one",
}


@frozen(kw_only=True)
class StoreOptions:
    """The options: a datastore, a folder with the programs of servers (or empty), and the URLs of running servers."""

    kind: StoreKind
    programs_dir: str = ""
    urls: tuple[str, ...] = ()


def resolve_store(options: StoreOptions, settings: DatastoreSettings, lookup: ServerLookup) -> LabStore:
    """The store that the options select; a running server is taken from them or from the settings of ``netplugctl``.

    Raises:
        NetplugError: the options contradict each other, a program is missing, or a setting cannot be used.
    """
    if options.kind is StoreKind.SQLITE:
        if options.programs_dir or options.urls:
            raise LabError("a lab on sqlite has no server: choose one with --datastore etcdv3 or kubernetes")
        return SqliteStore()
    if options.programs_dir and options.urls:
        raise LabError("--server names servers that run, --servers those that the lab starts: give one of the two")
    if options.programs_dir:
        return _own_servers(options)
    if options.kind is StoreKind.ETCD:
        etcd_settings = evolve(
            settings, type=options.kind.value, etcd_endpoints=options.urls or settings.etcd_endpoints
        )
        return _running_etcd(etcd_settings, lookup)
    if options.urls:
        raise LabError(f"--server is for etcd: {_ADVICE[options.kind]}")
    return _running_cluster(evolve(settings, type=options.kind.value), lookup)


def _own_servers(options: StoreOptions) -> OwnServers:
    etcd = _program_path(options.programs_dir, "etcd")
    if options.kind is StoreKind.ETCD:
        return OwnServers(etcd=etcd)
    return OwnServers(etcd=etcd, apiserver=_program_path(options.programs_dir, "kube-apiserver"))


def _program_path(folder: str, name: str) -> str:
    path = os.path.join(os.path.realpath(folder), name)
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise LabError(f"{path} is missing, or no program: --servers names the folder where the servers' programs are")
    return path


def _running_etcd(settings: DatastoreSettings, lookup: ServerLookup) -> ExternalServers:
    """A running etcd. The plugin's configuration has no key for a user, and SRV records need a name service."""
    unusable: dict[str, object] = {
        "SRV records": settings.etcd_discovery_srv,
        "a user and a password": settings.etcd_username or settings.etcd_password,
        "texts in place of files": settings.etcd_key or settings.etcd_cert or settings.etcd_ca_cert,
    }
    _reject_unusable(StoreKind.ETCD, unusable)
    files = {
        "ETCD_CA_CERT_FILE": settings.etcd_ca_cert_file,
        "ETCD_CERT_FILE": settings.etcd_cert_file,
        "ETCD_KEY_FILE": settings.etcd_key_file,
    }
    named = {"ETCD_ENDPOINTS": ",".join(settings.etcd_endpoints)}
    return ExternalServers(
        kind=StoreKind.ETCD,
        environment=(*named.items(), *_absolute_paths(files)),
        addresses=_server_addresses(settings, lookup),
    )


def _running_cluster(settings: DatastoreSettings, lookup: ServerLookup) -> ExternalServers:
    """A running API server. Tokens and inline texts are refused: they would be written into the lab's configuration."""
    access = settings.kubernetes
    unusable: dict[str, object] = {
        "a text in place of a file": access.kubeconfig_inline,
        "an API root or a token": access.api_root or access.token,
        "another context": access.context,
        "several kubeconfigs": os.pathsep in access.kubeconfig,
    }
    _reject_unusable(StoreKind.KUBERNETES, unusable)
    if not access.kubeconfig:
        raise LabError(f"which API server? {_ADVICE[StoreKind.KUBERNETES]}")
    group = {"NETPLUG_API_GROUP": settings.api_group} if settings.api_group else {}
    variables = (*_absolute_paths({"KUBECONFIG": access.kubeconfig}), *group.items())
    return ExternalServers(
        kind=StoreKind.KUBERNETES, environment=variables, addresses=_server_addresses(settings, lookup)
    )


def _reject_unusable(kind: StoreKind, values: dict[str, object]) -> None:
    for what, value in values.items():
        if value:
            raise LabError(f"the plugins of a lab cannot be given {what}: {_ADVICE[kind]}")


def _server_addresses(settings: DatastoreSettings, lookup: ServerLookup) -> tuple[tuple[str, int], ...]:
    found = lookup(settings)
    for host, _ in found:
        parse_server_address(host)
    return found


def _absolute_paths(files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Absolute paths, because plugins and later commands run in other folders."""
    return ((name, os.path.abspath(path)) for name, path in files.items() if path)


# --- store setup -----------------------------------------------------------------------------------------------------


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
        find(store, [ippool_key(pool.name) for pool in lab.pools], deadline=world.session.deadline())


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
                started = start_servers(world.namespaces, locked, own, lab.server_netns)
                _wait_for_servers(world, folder, lab, started)
            where = "on the node" if lab.network is None else "beside the switch"
            yield from (f"{server.name} runs {where} (process {server.pid})" for server in started)
            relays = start_server_relays(world.namespaces, locked, lab)
            if relays:
                numbers = ", ".join(str(relay.pid) for relay in relays)
                yield f"{started[-1].name} is relayed to from each node (processes {numbers})"
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
            cluster.make_pod(POD_NAMESPACE, pod.name, node=lab.node_of(pod).name)


def count_held_addresses(world: LabWorld, folder: LabFolder, lab: Lab) -> int:
    """How many addresses of the lab's pools its pods still hold."""
    with world.open_store(lab, folder) as store:
        usage = read_utilization(store, deadline=world.session.deadline())
    names = {pool.name for pool in lab.pools}
    blocks = (block for pool in usage if pool.name in names for block in pool.blocks)
    return sum(held.attribute.released_ns is None and _is_of_pod(held) for one in blocks for held in one.block.held())


def _is_of_pod(held: Allocation) -> bool:
    """Whether a pod holds an address, and not the tunnel of a node."""
    return bool(held.attribute.owner_value("pod"))


def _wait_for_servers(world: LabWorld, folder: LabFolder, lab: Lab, started: tuple[LabProcess, ...]) -> None:
    clock = world.session.clock
    wait_until_ready(partial(require_etcd, world.namespaces, folder, lab.server_netns), started, clock)
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
        for node in lab.nodes:
            cluster.make_node(node.name)
        cluster.make_namespace(POD_NAMESPACE)
    names = ", ".join(node.name for node in lab.nodes)
    yield f"Node {names} and Namespace {POD_NAMESPACE} made"


def _create_pools(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    """Create the pools as ``netplugctl create -f`` does; the file stays in the folder for the person to read."""
    documents = [_pool_document(pool, lab) for pool in lab.pools]
    replace_file(folder.pools_file, "---\n".join(map(world.render_yaml, documents)), OPEN_FILE_MODE)
    session = world.session
    with world.open_store(lab, folder) as store:
        for document in documents:
            manifest = manifest_from_mapping(document, source=folder.pools_file)
            outcome = create(store, manifest, pace=session.pace(), new_uid=session.new_uid)
            yield f"{outcome.key} {outcome.effect.value}"


def _pool_document(pool: LabPool, lab: Lab) -> dict[str, object]:
    mode = {}
    if lab.network is not None:
        mode = {"vxlanMode": "Always" if lab.network.routing is Routing.VXLAN else "Never"}
    return {
        "apiVersion": API_VERSION,
        "kind": "IPPool",
        "metadata": {"name": pool.name, "labels": {LAB_LABEL: lab.uid}},
        "spec": {"cidr": str(pool.prefix), "blockSize": pool.block_length, **mode},
    }
