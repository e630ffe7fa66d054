"""``up`` and ``down``: the order in which a lab is made, and in which it is removed.

The record comes before what it speaks of, so ``down`` can remove whatever a killed ``up`` left; ``up`` that fails
takes down what it made. ``netplug_cli.ctl.commands.lab`` calls them; nothing here prints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from attrs import evolve, frozen

from netplug_cli.ctl.documents import read_documents, render_yaml
from netplug_cli.ctl.session import Session
from netplug_cli.lab.conflist import read_conflist, render_conflist
from netplug_cli.lab.folder import Claimed, Folder, Hold, claimed, claimed_new
from netplug_cli.lab.model import NODE, NODE_ADDRESSES, POOLS, Lab, LabError, Pod, Pool, planned
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.runtime import PluginFailed, Runtime
from netplug_core.flows import overview, resources
from netplug_core.resources.codec import API_VERSION
from netplug_core.resources.manifest import manifest_from_mapping

__all__ = ["Means", "Progress", "Removal", "down", "up"]


class Progress(Protocol):
    """Where ``up`` and ``down`` say how far they are."""

    def say(self, text: str) -> None:
        """Something is done."""
        ...

    def warn(self, text: str) -> None:
        """Something is not as it should be."""
        ...

    def working(self, text: str) -> AbstractContextManager[object]:
        """Something is being done until the block ends."""
        ...


@frozen(kw_only=True)
class Means:
    """What a lab is made with: the kernel, the installer of the executables, and ``netplugctl``'s own session."""

    namespaces: Namespaces
    install: Callable[[str, Callable[[str], None]], None]
    session: Session
    progress: Progress

    def session_of(self, folder: Folder) -> Session:
        """The session whose store is the lab's."""
        return evolve(self.session, environ=folder.store_environment())


@frozen(kw_only=True)
class Removal:
    """What ``down`` did: whether there was anything, and what it could not do as it should (in sentences)."""

    was_there: bool
    problems: tuple[str, ...] = ()


def up(means: Means, folder: Folder, *, name: str, pod_count: int) -> Lab:
    """Make a lab; whatever an earlier one left in its folder goes first.

    Raises:
        NetplugError: it could not be made; what had been made is removed.
    """
    progress = means.progress
    with _plain_errors(folder), claimed_new(folder, clock=means.session.clock, say=progress.say) as held:
        earlier = folder.find_lab()
        if earlier is not None:
            state = "complete" if earlier.is_complete else "half-made"
            progress.say(f"an earlier lab is there ({state}): it goes first")
            for problem in _dismantle(means, held, earlier):
                progress.warn(problem)
        held.clear()
        try:
            return _make(means, held, planned(name, pod_count))
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
            return Removal(was_there=False)
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
    _write(folder.conflist_file, render_conflist(lab, folder))
    progress.say(f"configuration {folder.conflist_file}")
    for line in _create_pools(means, folder):
        progress.say(line)
    runtime = _runtime(means, held)
    for pod in lab.pods:
        with progress.working(f"{pod.name}: ADD"):
            means.namespaces.make(folder.netns(pod.name))
            attached = runtime.add(pod)
        lab = lab.with_pod(attached)
        held.write_lab(lab)
        progress.say(f"{pod.name} attached: {_joined(attached.addresses)} over {attached.host_interface}")
    lab = evolve(lab, is_complete=True)
    held.write_lab(lab)
    return lab


def _create_pools(means: Means, folder: Folder) -> Iterator[str]:
    """As ``netplugctl create -f`` does, from a file that is left for the person to see."""
    _write(folder.pools_file, "---\n".join(render_yaml(_pool_document(pool)) for pool in POOLS))
    session = means.session_of(folder)
    with session.store() as store:
        for document in read_documents([folder.pools_file]):
            manifest = manifest_from_mapping(document.mapping, source=document.source)
            outcome = resources.create(store, manifest, pace=session.pace(), new_uid=session.new_uid)
            yield f"{outcome.key} {outcome.effect.value}"


def _pool_document(pool: Pool) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "IPPool",
        "metadata": {"name": pool.name},
        "spec": {"cidr": str(pool.prefix), "blockSize": pool.block_length},
    }


def _runtime(means: Means, held: Claimed) -> Runtime:
    where = held.folder.conflist_file
    with open(where, encoding="utf-8") as file:
        conflist = read_conflist(file.read(), where)
    return Runtime(namespaces=means.namespaces, conflist=conflist, held=held)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _joined(values: tuple[object, ...]) -> str:
    return ", ".join(map(str, values))


# --- removing ----------------------------------------------------------------------------------------------------


def _remove(means: Means, held: Claimed) -> Removal:
    lab = held.folder.find_lab()
    problems = () if lab is None else _dismantle(means, held, lab)
    left = held.remove()
    if left:
        problems += (f"left in {held.folder.path}, which is not the lab's: {_joined(left)}",)
    return Removal(was_there=True, problems=problems)


def _dismantle(means: Means, held: Claimed, lab: Lab) -> tuple[str, ...]:
    """Detach the pods, then unpin every namespace; what went wrong on the way, in sentences."""
    problems: tuple[str, ...] = ()
    folder = held.folder
    pinned = means.namespaces.find_below(folder.netns_dir)
    begun = tuple(pod for pod in lab.pods if pod.is_attached or os.path.exists(folder.netns(pod.name)))
    if folder.netns(NODE) in pinned and begun:
        problems = tuple(_detach(means, held, begun)) or tuple(_leftovers(means, folder))
    for path in pinned:
        means.namespaces.remove(path)
    if pinned:
        means.progress.say(f"{len(pinned)} namespaces removed")
    return problems


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


def _leftovers(means: Means, folder: Folder) -> Iterator[str]:
    """What the plugins should have taken away and have not."""
    links = means.namespaces.interfaces(folder.netns(NODE))
    if links:
        yield f"interfaces left on the node: {_joined(links)}"
    session = means.session_of(folder)
    with session.store() as store:
        usage = overview.read_utilization(store, deadline=session.deadline())
    held = sum(pool.in_use for pool in usage)
    if held:
        yield f"addresses still held in the lab's pools: {held}"
    elif not links:
        means.progress.say("no address is held, no interface is left on the node")
