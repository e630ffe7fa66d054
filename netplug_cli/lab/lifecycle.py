"""``up`` and ``down``: the order in which a lab is made, and in which it is removed.

The record comes before what it speaks of, so ``down`` can remove whatever a killed ``up`` left; ``up`` that fails
takes down what it made. ``netplug_cli.ctl.commands.lab`` calls them; nothing here prints.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import evolve, frozen

from netplug_cli.lab.backing import addresses_held, make_pod_object, prepare, require_servers
from netplug_cli.lab.conflist import read_conflist, render_conflist
from netplug_cli.lab.folder import Claimed, Hold, claimed, claimed_new, find_lab, is_there
from netplug_cli.lab.means import Means
from netplug_cli.lab.model import LABEL, NODE, NODE_ADDRESSES, Lab, LabError, Plan, Pod, planned
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.processes import end_all
from netplug_cli.lab.runtime import PluginFailed, Runtime
from netplug_cli.lab.stores import OwnServers, RunningServers
from netplug_cli.lab.withdrawal import withdraw
from netplug_core.errors import NetplugError

__all__ = ["Extent", "Removal", "down", "up"]


class Extent(enum.Enum):
    """How much of a lab has been removed."""

    NOTHING = "there was nothing"
    HERE = "what is on this machine, but not the record: something may be left on servers"
    CONTENT = "everything, but in its folder is something of others"
    EVERYTHING = "everything"


@frozen(kw_only=True)
class Removal:
    """What ``down`` did: how much it removed, and what it could not do as it should (in sentences)."""

    extent: Extent
    problems: tuple[str, ...] = ()


def up(means: Means, folder: Folder, plan: Plan) -> Lab:
    """Make a lab; whatever an earlier one left in its folder goes first.

    Raises:
        NetplugError: it could not be made; what had been made is removed.
    """
    progress = means.progress
    lab = planned(plan, uid=means.session.new_uid())
    with _plain_errors(folder), progress.working("servers"):
        require_servers(means, folder, lab)
    with _plain_errors(folder), claimed_new(folder, clock=means.session.clock, say=progress.say) as held:
        earlier = find_lab(folder)
        if earlier is not None:
            state = "complete" if earlier.is_complete else "half-made"
            progress.say(f"an earlier lab is there ({state}): it goes first")
            # Clients of etcd have threads that never leave the namespace in which they were first at work, and the new
            # lab has another one. So nobody asks servers that are about to end what is in them.
            inquiry = _Inquiry.LINKS if isinstance(earlier.store, OwnServers) else _Inquiry.EVERYTHING
            removal = _dismantle(means, held, earlier, inquiry)
            for problem in removal.problems:
                progress.warn(problem)
            if removal.extent is Extent.HERE:
                raise LabError(
                    "the earlier lab has to go first; choose another folder with --dir to leave it for later"
                )
        held.clear()
        try:
            return _make(means, held, lab)
        except BaseException:
            progress.warn("the lab could not be made: removing what there is of it")
            for problem in _remove(means, held).problems:
                progress.warn(problem)
            raise


def down(means: Means, folder: Folder) -> Removal:
    """Remove a lab, however much of it there is.

    Raises:
        NetplugError: something of it would not go; it may be tried again.
    """
    with _plain_errors(folder), claimed(folder, Hold.ALONE, clock=means.session.clock, say=means.progress.say) as held:
        if held is None:
            return Removal(extent=Extent.NOTHING)
        return _remove(means, held)


@contextmanager
def _plain_errors(folder: Folder) -> Iterator[None]:
    """A full disk and the like, as an error for people."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{error.filename or folder.path}: {error.strerror or error}") from error


# --- making ------------------------------------------------------------------------------------------------------


def _make(means: Means, held: Claimed, lab: Lab) -> Lab:
    folder, progress = held.folder, means.progress
    held.write_lab(lab)
    held.make_parts()
    progress.say(f"folder {folder.path}")
    with progress.working(f"node {lab.node_name}"):
        means.namespaces.make(folder.netns(NODE))
        means.namespaces.configure_node(folder.netns(NODE), NODE_ADDRESSES)
    progress.say(f"node {lab.node_name}: {_joined(NODE_ADDRESSES)}; IPv4 and IPv6 forwarding on, in its namespace only")
    with progress.working("plugin executables"):
        means.install(folder.bin_dir, progress.say)
    with open(folder.conflist_file, "w", encoding="utf-8") as file:
        file.write(render_conflist(lab, folder))
    progress.say(f"configuration {folder.conflist_file}")
    for line in prepare(means, held, lab):
        progress.say(line)
    runtime = _runtime(means, held)
    for pod in lab.pods:
        with progress.working(f"{pod.name}: ADD"):
            make_pod_object(means, folder, lab, pod)
            means.namespaces.make(folder.netns(pod.name))
            attached = runtime.add(pod)
        lab = lab.with_pod(attached)
        held.write_lab(lab)
        progress.say(f"{pod.name} attached: {_joined(attached.addresses)} over {attached.host_interface}")
    lab = evolve(lab, is_complete=True)
    held.write_lab(lab)
    return lab


def _runtime(means: Means, held: Claimed) -> Runtime:
    where = held.folder.conflist_file
    with open(where, encoding="utf-8") as file:
        conflist = read_conflist(file.read(), where)
    return Runtime(namespaces=means.namespaces, conflist=conflist, held=held)


def _joined(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


# --- removing ----------------------------------------------------------------------------------------------------


def _remove(means: Means, held: Claimed) -> Removal:
    lab = find_lab(held.folder)
    removal = Removal(extent=Extent.EVERYTHING)
    if lab is not None:
        removal = _dismantle(means, held, lab, _Inquiry.EVERYTHING)
    if removal.extent is Extent.HERE:
        return removal
    left = held.remove()
    if not is_there(held.folder):
        return removal
    told = f"{held.folder.path} stays, as others use it: {_joined(left) or 'a file system is mounted there'}"
    return evolve(removal, extent=Extent.CONTENT, problems=(*removal.problems, told))


class _Inquiry(enum.Enum):
    """What is asked whether plugins took away what they should."""

    LINKS = enum.auto()
    EVERYTHING = enum.auto()


def _dismantle(means: Means, held: Claimed, lab: Lab, inquiry: _Inquiry) -> Removal:
    """Detach the pods, unpin every namespace, end every process, and take everything from somebody else's servers.

    Servers end last: as long as the node is there, so are they, and pods can be detached again. What plugins could
    not give back to other people's servers is given back without them, also when the node is gone.
    """
    problems: tuple[str, ...] = ()
    folder = held.folder
    pinned = means.namespaces.find_below(folder.netns_dir)
    begun = tuple(pod for pod in lab.pods if pod.is_attached or os.path.exists(folder.netns(pod.name)))
    if folder.netns(NODE) in pinned and begun:
        problems = tuple(_detach(means, held, begun)) or tuple(_leftovers(means, folder, lab, inquiry))
    for path in pinned:
        means.namespaces.remove(path)
    if pinned:
        means.progress.say(f"{len(pinned)} namespaces removed")
    ended = end_all(folder)
    if ended:
        means.progress.say(f"ended: {_joined(ended)}")
    try:
        for told in withdraw(means, folder, lab):
            problems = (*problems, told)  # at once: what follows may fail
    except NetplugError as error:
        left = f"what the lab has on its servers may still be there, with the label {LABEL}={lab.uid}: {error}"
        stays = f"{folder.path} stays, so that lab down can go on when the servers answer; rm -r makes it forgotten"
        return Removal(extent=Extent.HERE, problems=(*problems, left, stays))
    return Removal(extent=Extent.EVERYTHING, problems=problems)


def _detach(means: Means, held: Claimed, pods: tuple[Pod, ...]) -> Iterator[str]:
    runtime = _runtime(means, held)
    for pod in pods:
        try:
            with means.progress.working(f"{pod.name}: DEL"):
                runtime.delete(pod)
        except PluginFailed as error:
            yield str(error)
        else:
            means.progress.say(f"{pod.name} detached")


def _leftovers(means: Means, folder: Folder, lab: Lab, inquiry: _Inquiry) -> Iterator[str]:
    """What the plugins should have taken away and have not."""
    links = means.namespaces.interfaces(folder.netns(NODE))
    if links:
        yield f"interfaces left on the node: {_joined(links)}"
    if inquiry is _Inquiry.LINKS or isinstance(lab.store, RunningServers):  # to be withdrawn, which shows it
        if not links:
            means.progress.say("no interface is left on the node")
        return
    held = addresses_held(means, folder, lab)
    if held:
        yield f"addresses still held in the lab's pools: {held}"
    elif not links:
        means.progress.say("no address is held, no interface is left on the node")
