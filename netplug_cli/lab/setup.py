"""Makes a lab, part by part, and takes it down, also one whose servers are elsewhere or away.

The record is written before the parts that it lists, so ``teardown`` can remove whatever a killed ``up`` has left. An
``up`` that fails removes what it has made. Nothing here prints.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator

from attrs import evolve, frozen

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.lab.folder import LockedFolder, LockMode, find_lab, is_present, lock_folder, lock_new_folder
from netplug_cli.lab.model import (
    IFNAME,
    NODE_PORT,
    POD_NAMESPACE,
    SWITCH_NETNS,
    ExternalServers,
    Lab,
    LabError,
    LabFolder,
    LabNode,
    LabPlan,
    LabPod,
    OwnServers,
    Routing,
    as_lab_errors,
    is_kubernetes,
    new_lab,
)
from netplug_cli.lab.processes import kill_all, start_node_process, wait_for_node_process
from netplug_cli.lab.report import wait_until_connected
from netplug_cli.lab.runtime import PluginFailed, open_runtime, render_conflist
from netplug_cli.lab.store_setup import count_held_addresses, make_pod_object, prepare_store, require_servers
from netplug_cli.lab.world import LabWorld, Table
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import NetplugError
from netplug_core.flows.ipam.affinities import relinquish_node
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.read import list_all
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import ReleaseRequest
from netplug_core.names import LAB_LABEL
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, get_kind
from netplug_core.workload import WorkloadIdentity, endpoint_delete

__all__ = [
    "EarlierLab", "LabRuns", "LeftoverCheck", "Removal", "RemovalExtent", "down", "removal_table",
    "remove_from_external_servers", "remove_lab", "tear_down", "up",
]  # fmt: skip


# --- taking it down --------------------------------------------------------------------------------------------------

_TUNNELS = ".netplug"  # what the names of tunnel devices end in


# --- external cleanup ------------------------------------------------------------------------------------------------


def remove_from_external_servers(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    """Remove everything of the lab from external servers; yield warnings about addresses that others still hold.

    Raises:
        NetplugError: some may be left; a repetition continues.
    """
    if not isinstance(lab.store, ExternalServers):
        return
    if not is_kubernetes(lab.store):
        yield from _remove_records(world, folder, lab)
        return
    with world.open_lab_cluster(lab, folder) as cluster:
        has_records = cluster.has_definitions()  # without them, the server has no kind to list
        try:
            if has_records:
                yield from _remove_records(world, folder, lab)
        finally:
            count = cluster.remove_all()  # the records do not depend on these objects
            if count:
                world.progress.info(f"{count} objects removed; the definitions stay, others may use them")


def _remove_records(world: LabWorld, folder: LabFolder, lab: Lab) -> Iterator[str]:
    session = world.session
    with world.open_store(lab, folder) as store:
        pools = tuple(list_all(store, get_kind("IPPool"), deadline=session.deadline()))
        own = [record for record in pools if (LAB_LABEL, lab.uid) in record.value.metadata.labels]
        was_attached = any(pod.is_attached for pod in lab.pods)
        # Another lab on the same servers has pools and pods of the same names, so only the label with the uid counts.
        if not own and was_attached and any(map(_has_lab_label, pools)):
            yield "another lab is up there: what pods of this one may still hold is not given back"
        elif own or was_attached:
            _release_addresses(world, store, lab)
        for record in own:
            outcome = delete(store, record.key, pace=session.pace())
            yield from outcome.warnings
            world.progress.info(f"{record.key} deleted{'' if outcome.warnings else ', no address of it is held'}")


def _has_lab_label(record: Record[Resource]) -> bool:
    return any(name == LAB_LABEL for name, _ in record.value.metadata.labels)


def _release_addresses(world: LabWorld, store: Datastore, lab: Lab) -> None:
    """Release the addresses of every pod, which the plugins may have failed to do, and relinquish the node's blocks."""
    with world.open_ipam(store) as ipam:
        for pod in lab.pods:
            workload = _pod_identity(lab, pod)
            request = ReleaseRequest(handle=workload.handle)
            released = ipam.release(request, endpoint_delete(workload), deadline=world.session.deadline())
            if released.addresses:
                world.progress.info(f"{pod.name}: released {', '.join(map(str, released.addresses))}")
    for node in lab.nodes:
        relinquish_node(store, node.name, Emptiness.NOT_REQUIRED, pace=world.session.pace())


def _pod_identity(lab: Lab, pod: LabPod) -> WorkloadIdentity:
    """The workload that a pod is to the plugins, from the input that ``conflist`` makes."""
    return WorkloadIdentity(
        node=lab.node_of(pod).name,
        network=lab.name,
        container_id=pod.name,
        interface=IFNAME,
        pod=pod.name,
        pod_namespace=POD_NAMESPACE,
    )


# --- teardown --------------------------------------------------------------------------------------------------------


class RemovalExtent(enum.Enum):
    """How much of a lab has been removed."""

    NOTHING = "there was nothing"
    LOCAL_ONLY = "everything on this machine but the record: something may be left on servers"
    FOLDER_KEPT = "everything but the folder, which holds foreign files"
    COMPLETE = "everything"


@frozen(kw_only=True)
class Removal:
    """The result of ``down``: how much was removed, and the problems, a sentence each."""

    extent: RemovalExtent
    problems: tuple[str, ...] = ()


def removal_table(folder: LabFolder, removal: Removal) -> Table:
    """What became of a lab that was taken down, for programs: a row for each problem."""
    rows = tuple((problem,) for problem in removal.problems)
    return Table(
        members=("problem",),
        rows=rows,
        name="problems",
        facts={"folder": folder.path, "removed": removal.extent.value},
    )


class LeftoverCheck(enum.Enum):
    """What is checked after the plugins have detached the pods."""

    INTERFACES = enum.auto()
    INTERFACES_AND_ADDRESSES = enum.auto()


def down(world: LabWorld, folder: LabFolder) -> Removal:
    """Remove the lab of a folder, if there is one.

    Raises:
        NetplugError: some of it could not be removed; the command can be repeated.
    """
    with (
        as_lab_errors(folder.path),
        lock_folder(folder, LockMode.EXCLUSIVE, clock=world.session.clock, report=world.progress.info) as locked,
    ):
        if locked is None:
            return Removal(extent=RemovalExtent.NOTHING)
        return remove_lab(world, locked)


def remove_lab(world: LabWorld, locked: LockedFolder) -> Removal:
    """Remove the lab that a locked folder holds, and the folder."""
    lab = find_lab(locked.folder)
    removal = Removal(extent=RemovalExtent.COMPLETE)
    if lab is not None:
        removal = tear_down(world, locked, lab, LeftoverCheck.INTERFACES_AND_ADDRESSES)
    if removal.extent is RemovalExtent.LOCAL_ONLY:
        return removal
    foreign = locked.remove()
    if not is_present(locked.folder):
        return removal
    problem = f"{locked.folder.path} stays, as others use it: {_join(foreign) or 'a file system is mounted there'}"
    return evolve(removal, extent=RemovalExtent.FOLDER_KEPT, problems=(*removal.problems, problem))


def tear_down(world: LabWorld, locked: LockedFolder, lab: Lab, leftover_check: LeftoverCheck) -> Removal:
    """Detach the pods, remove every namespace, kill every process, and remove everything from external servers.

    Servers of the lab's own are killed after the pods are detached, since the plugins need them. What the plugins could
    not release on external servers is released without them, also if the node is gone.
    """
    problems: tuple[str, ...] = ()
    folder = locked.folder
    pinned = world.namespaces.find_below(folder.netns_dir)
    attached = tuple(
        pod
        for pod in lab.pods
        if (pod.is_attached or os.path.exists(folder.netns(pod.name))) and folder.netns(pod.node) in pinned
    )
    if attached:
        problems = tuple(_detach(world, locked, attached)) or tuple(_leftovers(world, folder, lab, leftover_check))
    for path in pinned:
        world.namespaces.remove(path)
    if pinned:
        world.progress.info(f"{len(pinned)} namespaces removed")
    ended = kill_all(folder)
    if ended:
        world.progress.info(f"ended: {_join(ended)}")
    try:
        for problem in remove_from_external_servers(world, folder, lab):
            problems = (*problems, problem)  # kept if a later step fails
    except NetplugError as error:
        left = f"what the lab has on its servers may still be there, with the label {LAB_LABEL}={lab.uid}: {error}"
        stays = f"{folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten"
        return Removal(extent=RemovalExtent.LOCAL_ONLY, problems=(*problems, left, stays))
    return Removal(extent=RemovalExtent.COMPLETE, problems=problems)


def _detach(world: LabWorld, locked: LockedFolder, pods: tuple[LabPod, ...]) -> Iterator[str]:
    for pod in pods:
        try:
            with world.progress.activity(f"{pod.name}: DEL"):
                open_runtime(world.namespaces, locked, pod.node).delete(pod)
        except PluginFailed as error:
            yield str(error)
        else:
            world.progress.info(f"{pod.name} detached")


def _leftovers(world: LabWorld, folder: LabFolder, lab: Lab, leftover_check: LeftoverCheck) -> Iterator[str]:
    """What the plugins should have removed and have not, a sentence each."""
    links, nodes = _pod_interfaces(world, folder, lab), "the node" if lab.network is None else "any node"
    if links:
        yield f"interfaces left on {nodes}: {_join(links)}"
    # On external servers, the removal of the pools reports addresses that are still held.
    if leftover_check is LeftoverCheck.INTERFACES or isinstance(lab.store, ExternalServers):
        if not links:
            world.progress.info(f"no interface is left on {nodes}")
        return
    try:
        held = count_held_addresses(world, folder, lab)
    except NetplugError as error:  # its server has ended: the plugins left release records, and it all goes
        yield str(error)
        return
    if held:
        yield f"addresses still held in the lab's pools: {held}"
    elif not links:
        world.progress.info(f"no address is held, no interface is left on {nodes}")


def _pod_interfaces(world: LabWorld, folder: LabFolder, lab: Lab) -> tuple[str, ...]:
    """The interfaces of the nodes without those that connect nodes."""
    pinned = world.namespaces.find_below(folder.netns_dir)
    paths = (folder.netns(node.netns) for node in lab.nodes)
    names = (name for path in paths if path in pinned for name in world.namespaces.interfaces(path))
    return tuple(name for name in names if name != NODE_PORT and not name.endswith(_TUNNELS))


class EarlierLab(enum.Enum):
    """What becomes of a lab that is up in the folder of a new one."""

    KEPT = "kept: no other lab is made there"
    REPLACED = "removed first"


class LabRuns(LabError):
    """A lab is up in the folder; its pods would be lost."""


def up(world: LabWorld, folder: LabFolder, plan: LabPlan, earlier_lab: EarlierLab = EarlierLab.REPLACED) -> Lab:
    """Make a lab; an earlier one, or what an interrupted ``up`` has left of it, is removed first.

    Raises:
        LabRuns: an earlier lab is complete and to be kept; nothing is changed.
        NetplugError: it could not be made; its parts are removed again.
    """
    progress = world.progress
    lab = new_lab(plan, uid=world.session.new_uid())
    with as_lab_errors(folder.path), progress.activity("servers"):
        require_servers(world, folder, lab)
    with as_lab_errors(folder.path), lock_new_folder(folder, clock=world.session.clock, report=progress.info) as locked:
        earlier = find_lab(folder)
        if earlier is not None and earlier.is_complete and earlier_lab is EarlierLab.KEPT:
            raise LabRuns(
                f"the lab {earlier.name} is up in {folder.path}, with {len(earlier.pods)} pods: --replace removes it "
                "first, --name with another name makes a second lab"
            )
        if earlier is not None:
            state = "complete" if earlier.is_complete else "half-made"
            progress.info(f"an earlier lab is there ({state}): it goes first")
            # Threads of an etcd client stay in the namespace in which they were started, and the new lab has another
            # one. So servers that are about to end are not asked for addresses.
            check = (
                LeftoverCheck.INTERFACES
                if isinstance(earlier.store, OwnServers)
                else LeftoverCheck.INTERFACES_AND_ADDRESSES
            )
            removal = tear_down(world, locked, earlier, check)
            for problem in removal.problems:
                progress.warn(problem)
            if removal.extent is RemovalExtent.LOCAL_ONLY:
                raise LabError(
                    "the earlier lab has to go first; choose another folder with --dir to leave it for later"
                )
        locked.clear()
        try:
            return _create(world, locked, lab)
        except BaseException:
            progress.warn("the lab could not be made: removing what there is of it")
            for problem in remove_lab(world, locked).problems:
                progress.warn(problem)
            raise


def _create(world: LabWorld, locked: LockedFolder, lab: Lab) -> Lab:
    folder, progress = locked.folder, world.progress
    locked.write_lab(lab)
    locked.make_subfolders(lab)
    progress.info(f"folder {folder.path}")
    if lab.network is None:
        _make_only_node(world, folder, lab.nodes[0])
    else:
        _make_nodes(world, folder, lab)
    with progress.activity("plugin executables"):
        world.install(folder.bin_dir, progress.info)
    for node in lab.nodes:
        path = folder.node_files(node.netns).conflist_file
        replace_file(path, render_conflist(lab, node, folder), OPEN_FILE_MODE)
        progress.info(f"configuration {path}")
    for line in prepare_store(world, locked, lab):
        progress.info(line)
    if world.node_command:
        _start_node_processes(world, locked, lab)
    for pod in lab.pods:
        lab = _attach(world, locked, lab, pod)
    if world.node_command and lab.network is not None and lab.network.routing is not Routing.NONE:
        _wait_for_routes(world, folder, lab)
    lab = evolve(lab, is_complete=True)
    locked.write_lab(lab)
    return lab


def _wait_for_routes(world: LabWorld, folder: LabFolder, lab: Lab) -> None:
    """Wait until the nodes know each other's blocks. A lab in which some pod is not reached is kept, to look at."""
    with world.progress.activity("routes between the nodes"):
        taken_s = wait_until_connected(world, folder, lab)
    if taken_s is None:
        advice = f"netplugctl lab status --dir {folder.path} says more"
        world.progress.warn(f"not every pod reaches the others, or a node process is not ready: {advice}")
    else:
        world.progress.info(f"every pod reaches every pod and node, {taken_s:.1f} s after the last was attached")


def _make_only_node(world: LabWorld, folder: LabFolder, node: LabNode) -> None:
    path = folder.netns(node.netns)
    with world.progress.activity(f"node {node.name}"):
        world.namespaces.make(path)
        world.namespaces.configure_node(path, node.addresses)
    forwarding = "IPv4 and IPv6 forwarding on, in its namespace only"
    world.progress.info(f"node {node.name}: {_join(node.addresses)}; {forwarding}")


def _make_nodes(world: LabWorld, folder: LabFolder, lab: Lab) -> None:
    switch = folder.netns(SWITCH_NETNS)
    with world.progress.activity("switch"):
        world.namespaces.make(switch)
        world.namespaces.make_switch(switch)
    world.progress.info("a switch between the nodes, in a namespace of its own")
    for node in lab.nodes:
        path = folder.netns(node.netns)
        with world.progress.activity(f"node {node.name}"):
            world.namespaces.make(path)
            world.namespaces.configure_node(path, ())
            world.namespaces.plug_in(path, NODE_PORT, switch, node.netns, node.switch_addresses)
        world.progress.info(f"node {node.name}: {_join(node.addresses)} at {NODE_PORT}, which leads to the switch")


def _start_node_processes(world: LabWorld, locked: LockedFolder, lab: Lab) -> None:
    """Start the processes of all nodes at once, and wait for all of them."""
    with world.progress.activity("node processes"):
        started = [
            (start_node_process(world.namespaces, locked, lab, node, world.node_command), node) for node in lab.nodes
        ]
        for process, node in started:
            wait_for_node_process(process, lab, locked.folder.node_files(node.netns), world.session.clock)
            where = "the node" if lab.network is None else node.name
            world.progress.info(f"{process.name} runs on {where} (process {process.pid})")


def _attach(world: LabWorld, locked: LockedFolder, lab: Lab, pod: LabPod) -> Lab:
    """The lab with the pod attached, also in its record."""
    folder, clock = locked.folder, world.session.clock
    with world.progress.activity(f"{pod.name}: ADD"):
        make_pod_object(world, folder, lab, pod)
        world.namespaces.make(folder.netns(pod.name))
        began = clock.monotonic()
        attached = open_runtime(world.namespaces, locked, pod.node).add(pod)
        taken_ms = (clock.monotonic() - began) * 1e3
    lab = lab.with_pod(attached)
    locked.write_lab(lab)
    where = "" if lab.network is None else f" to {lab.node_of(pod).name}"
    how = f"{_join(attached.addresses)} over {attached.host_interface}"
    world.progress.info(f"{pod.name} attached{where} in {taken_ms:.0f} ms: {how}")
    return lab


def _join(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))
