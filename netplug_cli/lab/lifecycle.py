"""``up`` and ``down``: the order in which a lab is made, and in which it is removed.

The record comes before what it speaks of, so ``down`` can remove whatever a killed ``up`` left; ``up`` that fails
takes down what it made. ``netplug_cli.lab.commands`` calls them; nothing here prints.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import evolve, frozen

from netplug_cli.lab.conflist import parse_conflist, render_conflist
from netplug_cli.lab.external_cleanup import remove_from_external_servers
from netplug_cli.lab.folder import LockedFolder, LockMode, find_lab, is_present, lock_folder, lock_new_folder
from netplug_cli.lab.model import LAB_LABEL, NODE_ADDRESSES, NODE_NETNS, Lab, LabError, LabPlan, LabPod, new_lab
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.processes import kill_all
from netplug_cli.lab.runtime import ContainerRuntime, PluginFailed
from netplug_cli.lab.store_setup import count_held_addresses, make_pod_object, prepare_store, require_servers
from netplug_cli.lab.stores import ExternalServers, OwnServers
from netplug_cli.lab.world import LabWorld
from netplug_core.errors import NetplugError

__all__ = ["Removal", "RemovalExtent", "down", "up"]


class RemovalExtent(enum.Enum):
    """How much of a lab has been removed."""

    NOTHING = "there was nothing"
    LOCAL_ONLY = "what is on this machine, but not the record: something may be left on servers"
    FOLDER_KEPT = "everything, but in its folder is something of others"
    COMPLETE = "everything"


@frozen(kw_only=True)
class Removal:
    """What ``down`` did: how much it removed, and what it could not do as it should (in sentences)."""

    extent: RemovalExtent
    problems: tuple[str, ...] = ()


def up(world: LabWorld, folder: LabFolder, plan: LabPlan) -> Lab:
    """Make a lab; whatever an earlier one left in its folder goes first.

    Raises:
        NetplugError: it could not be made; what had been made is removed.
    """
    progress = world.progress
    lab = new_lab(plan, uid=world.session.new_uid())
    with _lab_errors(folder), progress.activity("servers"):
        require_servers(world, folder, lab)
    with _lab_errors(folder), lock_new_folder(folder, clock=world.session.clock, report=progress.info) as held:
        earlier = find_lab(folder)
        if earlier is not None:
            state = "complete" if earlier.is_complete else "half-made"
            progress.info(f"an earlier lab is there ({state}): it goes first")
            # Clients of etcd have threads that never leave the namespace in which they were first at work, and the new
            # lab has another one. So nobody asks servers that are about to end what is in them.
            inquiry = (
                _LeftoverCheck.INTERFACES
                if isinstance(earlier.store, OwnServers)
                else _LeftoverCheck.INTERFACES_AND_ADDRESSES
            )
            removal = _tear_down(world, held, earlier, inquiry)
            for problem in removal.problems:
                progress.warn(problem)
            if removal.extent is RemovalExtent.LOCAL_ONLY:
                raise LabError(
                    "the earlier lab has to go first; choose another folder with --dir to leave it for later"
                )
        held.clear()
        try:
            return _create(world, held, lab)
        except BaseException:
            progress.warn("the lab could not be made: removing what there is of it")
            for problem in _remove(world, held).problems:
                progress.warn(problem)
            raise


def down(world: LabWorld, folder: LabFolder) -> Removal:
    """Remove a lab, however much of it there is.

    Raises:
        NetplugError: something of it would not go; it may be tried again.
    """
    with (
        _lab_errors(folder),
        lock_folder(folder, LockMode.EXCLUSIVE, clock=world.session.clock, report=world.progress.info) as held,
    ):
        if held is None:
            return Removal(extent=RemovalExtent.NOTHING)
        return _remove(world, held)


@contextmanager
def _lab_errors(folder: LabFolder) -> Iterator[None]:
    """A full disk and the like, as an error for people."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{error.filename or folder.path}: {error.strerror or error}") from error


# --- making ------------------------------------------------------------------------------------------------------


def _create(world: LabWorld, locked: LockedFolder, lab: Lab) -> Lab:
    folder, progress = locked.folder, world.progress
    locked.write_lab(lab)
    locked.make_subfolders()
    progress.info(f"folder {folder.path}")
    with progress.activity(f"node {lab.node_name}"):
        world.namespaces.make(folder.netns(NODE_NETNS))
        world.namespaces.configure_node(folder.netns(NODE_NETNS), NODE_ADDRESSES)
    progress.info(f"node {lab.node_name}: {_join(NODE_ADDRESSES)}; IPv4 and IPv6 forwarding on, in its namespace only")
    with progress.activity("plugin executables"):
        world.install(folder.bin_dir, progress.info)
    with open(folder.conflist_file, "w", encoding="utf-8") as file:
        file.write(render_conflist(lab, folder))
    progress.info(f"configuration {folder.conflist_file}")
    for line in prepare_store(world, locked, lab):
        progress.info(line)
    runtime = _runtime(world, locked)
    for pod in lab.pods:
        with progress.activity(f"{pod.name}: ADD"):
            make_pod_object(world, folder, lab, pod)
            world.namespaces.make(folder.netns(pod.name))
            attached = runtime.add(pod)
        lab = lab.with_pod(attached)
        locked.write_lab(lab)
        progress.info(f"{pod.name} attached: {_join(attached.addresses)} over {attached.host_interface}")
    lab = evolve(lab, is_complete=True)
    locked.write_lab(lab)
    return lab


def _runtime(world: LabWorld, locked: LockedFolder) -> ContainerRuntime:
    where = locked.folder.conflist_file
    with open(where, encoding="utf-8") as file:
        conflist = parse_conflist(file.read(), where)
    return ContainerRuntime(namespaces=world.namespaces, conflist=conflist, locked=locked)


def _join(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


# --- removing ----------------------------------------------------------------------------------------------------


def _remove(world: LabWorld, locked: LockedFolder) -> Removal:
    lab = find_lab(locked.folder)
    removal = Removal(extent=RemovalExtent.COMPLETE)
    if lab is not None:
        removal = _tear_down(world, locked, lab, _LeftoverCheck.INTERFACES_AND_ADDRESSES)
    if removal.extent is RemovalExtent.LOCAL_ONLY:
        return removal
    left = locked.remove()
    if not is_present(locked.folder):
        return removal
    told = f"{locked.folder.path} stays, as others use it: {_join(left) or 'a file system is mounted there'}"
    return evolve(removal, extent=RemovalExtent.FOLDER_KEPT, problems=(*removal.problems, told))


class _LeftoverCheck(enum.Enum):
    """What is asked whether plugins took away what they should."""

    INTERFACES = enum.auto()
    INTERFACES_AND_ADDRESSES = enum.auto()


def _tear_down(world: LabWorld, locked: LockedFolder, lab: Lab, leftover_check: _LeftoverCheck) -> Removal:
    """Detach the pods, unpin every namespace, end every process, and take everything from somebody else's servers.

    Servers end last: as long as the node is there, so are they, and pods can be detached again. What plugins could
    not give back to other people's servers is given back without them, also when the node is gone.
    """
    problems: tuple[str, ...] = ()
    folder = locked.folder
    pinned = world.namespaces.find_below(folder.netns_dir)
    begun = tuple(pod for pod in lab.pods if pod.is_attached or os.path.exists(folder.netns(pod.name)))
    if folder.netns(NODE_NETNS) in pinned and begun:
        problems = tuple(_detach(world, locked, begun)) or tuple(_leftovers(world, folder, lab, leftover_check))
    for path in pinned:
        world.namespaces.remove(path)
    if pinned:
        world.progress.info(f"{len(pinned)} namespaces removed")
    ended = kill_all(folder)
    if ended:
        world.progress.info(f"ended: {_join(ended)}")
    try:
        for told in remove_from_external_servers(world, folder, lab):
            problems = (*problems, told)  # at once: what follows may fail
    except NetplugError as error:
        left = f"what the lab has on its servers may still be there, with the label {LAB_LABEL}={lab.uid}: {error}"
        stays = f"{folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten"
        return Removal(extent=RemovalExtent.LOCAL_ONLY, problems=(*problems, left, stays))
    return Removal(extent=RemovalExtent.COMPLETE, problems=problems)


def _detach(world: LabWorld, locked: LockedFolder, pods: tuple[LabPod, ...]) -> Iterator[str]:
    runtime = _runtime(world, locked)
    for pod in pods:
        try:
            with world.progress.activity(f"{pod.name}: DEL"):
                runtime.delete(pod)
        except PluginFailed as error:
            yield str(error)
        else:
            world.progress.info(f"{pod.name} detached")


def _leftovers(world: LabWorld, folder: LabFolder, lab: Lab, leftover_check: _LeftoverCheck) -> Iterator[str]:
    """What the plugins should have taken away and have not."""
    links = world.namespaces.interfaces(folder.netns(NODE_NETNS))
    if links:
        yield f"interfaces left on the node: {_join(links)}"
    if leftover_check is _LeftoverCheck.INTERFACES or isinstance(
        lab.store, ExternalServers
    ):  # to be withdrawn, which shows it
        if not links:
            world.progress.info("no interface is left on the node")
        return
    held = count_held_addresses(world, folder, lab)
    if held:
        yield f"addresses still held in the lab's pools: {held}"
    elif not links:
        world.progress.info("no address is held, no interface is left on the node")
