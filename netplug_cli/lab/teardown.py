"""Takes a lab down, also one whose servers are elsewhere or away."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator

from attrs import evolve, frozen

from netplug_cli.lab.folder import LockedFolder, LockMode, find_lab, is_present, lock_folder
from netplug_cli.lab.model import (
    IFNAME,
    NODE_PORT,
    POD_NAMESPACE,
    ExternalServers,
    Lab,
    LabFolder,
    LabPod,
    as_lab_errors,
    is_kubernetes,
)
from netplug_cli.lab.processes import kill_all
from netplug_cli.lab.runtime import PluginFailed, open_runtime
from netplug_cli.lab.store_setup import count_held_addresses
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
    "LeftoverCheck", "Removal", "RemovalExtent", "down", "removal_table", "remove_from_external_servers",
    "remove_lab", "tear_down",
]  # fmt: skip


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


def _join(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))
