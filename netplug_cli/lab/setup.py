"""Makes a lab, part by part.

The record is written before the parts that it lists, so ``teardown`` can remove whatever a killed ``up`` has left. An
``up`` that fails removes what it has made. Nothing here prints.
"""

from __future__ import annotations

import enum

from attrs import evolve

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, replace_file
from netplug_cli.lab.folder import LockedFolder, find_lab, lock_new_folder
from netplug_cli.lab.model import (
    NODE_PORT,
    SWITCH_NETNS,
    Lab,
    LabError,
    LabFolder,
    LabNode,
    LabPlan,
    LabPod,
    OwnServers,
    Routing,
    as_lab_errors,
    new_lab,
)
from netplug_cli.lab.processes import start_node_process, wait_for_node_process
from netplug_cli.lab.report import wait_until_connected
from netplug_cli.lab.runtime import open_runtime, render_conflist
from netplug_cli.lab.store_setup import make_pod_object, prepare_store, require_servers
from netplug_cli.lab.teardown import LeftoverCheck, RemovalExtent, remove_lab, tear_down
from netplug_cli.lab.world import LabWorld

__all__ = ["EarlierLab", "LabRuns", "up"]


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
