"""Calls that die on a node, and what is left on it: what the tests of killed calls share."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import zip_longest
from typing import TypeVar

from attrs import frozen

from tests.harness.killer import killer_command
from tests.harness.node import CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.plugin_datastores import PluginDatastore
from tests.harness.servers.port_forward import OutageMode
from tests.harness.waiting import wait_until

__all__ = [
    "STORE_WRITES", "KillScene", "all_numbers", "numbers_without_repeated_settings", "open_kill_scene", "outage",
    "release_records", "run_in_parallel",
]  # fmt: skip

T = TypeVar("T")
AT_ONCE = 3
STORE_WRITES = {
    "SqliteDatastore.commit",
    "SqliteDatastore._commit_transaction",
    "EtcdClient.write",
    "ApiConnection.send",
    "ApiClient.send",
}
"""The effects that a call has again if it loses a race for a record."""


@frozen
class KillScene:
    """A node on which calls die, a container that lives through it all, and what the node was like with it alone."""

    node: NetnsNode
    runtime: CNIRuntime
    plugin_datastore: PluginDatastore
    bystander: PodNamespace
    addresses: tuple[str, ...]
    before: list[str]
    conf: NetConfDict

    def run(self, command: str, pod: PodNamespace, *, kill_at: int) -> tuple[int, list[str]]:
        """Run a call that dies after an effect (0: it does not); its exit status and the effects it had."""
        path = self.node.file(f"{pod.name}.effects")
        valid = [{"containerID": self.bystander.name, "ifname": "eth0"}] if command == "GC" else None
        done = self.node.run_unchecked(
            *killer_command(self.runtime.executable("netplug"), stop_at=kill_at, effects_file=path),
            stdin=json.dumps({**self.conf, "cni.dev/valid-attachments": valid}),
            env={**self.runtime.make_environ(command, pod), **self.variables(pod.name)},
        )
        with open(path, encoding="utf-8") as file:
            return done.returncode, file.read().split()

    def run_to_end(self, command: str, pod: PodNamespace) -> list[str]:
        """The effects of a call that nothing befalls."""
        status, effects = self.run(command, pod, kill_at=0)
        assert status == 0
        return effects

    def kill(
        self, command: str, effects: list[str], victims: dict[int, PodNamespace], *, at_once: int = AT_ONCE
    ) -> tuple[PodNamespace, ...]:
        """Let each victim's call die after the effect of that number; the victims."""

        def die(numbered: tuple[int, PodNamespace]) -> None:
            number, pod = numbered
            status, had = self.run(command, pod, kill_at=number)
            assert status == -signal.SIGKILL
            had = with_given_up_locks(had, effects)
            assert had == effects[:number] or has_lost_a_race(had, effects[:number]), (number, had, effects)

        run_in_parallel(die, victims.items(), at_once)
        return tuple(victims.values())

    def variables(self, container: str) -> dict[str, str]:
        """What a call for a container says beside the usual."""
        return {"CNI_CONTAINERID": container, "CNI_ARGS": self.plugin_datastore.make_cni_args(container)}

    def add(self, pod: PodNamespace, *, container: str = "") -> PluginReply:
        """An ADD that nothing befalls, for the pod's own container unless another is named."""
        return self.runtime.add(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def resume(self, pod: PodNamespace) -> PluginReply:
        """An ADD that continues one that was killed."""
        environ = self.runtime.make_environ("ADD", pod, **self.variables(pod.name))
        executable = self.runtime.executable("netplug")
        done = self.node.run_unchecked(executable, "--resume", stdin=json.dumps(self.conf), env=environ)
        assert done.returncode == 0, done
        return PluginReply(done.returncode, done.stdout, done.stderr)

    def delete(self, pod: PodNamespace, *, container: str = "") -> None:
        """Its DEL."""
        self.runtime.delete(self.conf, pod, plugin="netplug", **self.variables(container or pod.name))

    def collect(self) -> None:
        """GC with the bystander as the only valid attachment."""
        self.runtime.collect(self.conf, self.bystander.name)

    def pod(self) -> PodNamespace:
        """A new pod."""
        (pod,) = self.pods(1)
        return pod

    def pods(self, count: int) -> tuple[PodNamespace, ...]:
        """So many new pods, of which the store's side knows."""
        made = self.node.make_pods(count)
        self.plugin_datastore.register_pods(made)
        return made

    def victims(self, numbers: list[int]) -> dict[int, PodNamespace]:
        """A new pod for each number."""
        return dict(zip(numbers, self.pods(len(numbers)), strict=True))

    def has_interface_left(self, pod: PodNamespace) -> bool:
        """Whether an interface of ours is in a pod."""
        return set(self.node.links(pod)) != {"lo"}

    def assert_clean(self) -> None:
        """Nothing is left of anybody but the survivor, and the survivor noticed nothing."""
        assert self.plugin_datastore.store.held() == {f"net1.{self.bystander.name}": self.addresses}
        assert self.plugin_datastore.store.handles() == {f"net1.{self.bystander.name}"}
        assert self.plugin_datastore.attached_containers() == [self.bystander.name]
        assert self.node.leftovers() == self.before
        assert all(self.node.can_ping(address, inside=self.bystander.name) for address in ("192.0.2.2", "2001:db8::2"))


def run_in_parallel(call: Callable[[T], object], items: Iterable[T], at_once: int = AT_ONCE) -> None:
    """Call for every item, a few at a time; the first failure is raised."""
    with ThreadPoolExecutor(at_once) as runtime:
        list(runtime.map(call, items))


def open_kill_scene(
    node: NetnsNode, runtime: CNIRuntime, plugin_datastore: PluginDatastore, *, is_dual_stack: bool
) -> KillScene:
    """A node with one container of both families on it, whose other calls are for IPv4 or for both."""
    survivor = node.make_pod()
    plugin_datastore.register_pods([survivor])
    both = runtime.make_netconf(
        cniVersion="1.1.0", ipam={"type": "netplug-ipam", "assign_ipv6": "true"}, **plugin_datastore.netconf_keys
    )
    addresses = runtime.add(both, survivor, CNI_ARGS=plugin_datastore.make_cni_args(survivor.name)).addresses
    wait_until(node.has_local_routes, "the survivor's host interface has its link-local address")
    conf = both if is_dual_stack else runtime.make_netconf(cniVersion="1.1.0", **plugin_datastore.netconf_keys)
    return KillScene(node, runtime, plugin_datastore, survivor, addresses, node.leftovers(), conf)


def with_given_up_locks(had: list[str], expected: list[str]) -> list[str]:
    """The effects of a call, a lock in place of each warning that it was not to be had.

    The victims share the host's lock, which a call on a busy machine may wait for in vain and go on without.
    """
    warning = ("_write_to_stderr", "FileLocks.try_lock")
    pairs = zip_longest(had, expected[: len(had)], fillvalue="")
    return [wanted if (name, wanted) == warning else name for name, wanted in pairs]


def has_lost_a_race(had: list[str], expected: list[str]) -> bool:
    """Whether a call wrote again because another changed the block in between: it died some effects earlier.

    The other may be a victim that is dead already, whose last request the server was still at.
    """
    steps, expected_steps = ([name for name in some if name not in STORE_WRITES] for some in (had, expected))
    return len(had) == len(expected) and len(steps) < len(expected_steps) and steps == expected_steps[: len(steps)]


def all_numbers(effects: list[str]) -> list[int]:
    """The numbers of all effects, from 1."""
    return list(range(1, len(effects) + 1))


def numbers_without_repeated_settings(effects: list[str]) -> list[int]:
    """The numbers of all effects, but of one setting of the kernel after another only the last."""
    following = [*effects[1:], ""]
    return [n for n in all_numbers(effects) if not effects[n - 1] == following[n - 1] == "write_sysctl"]


@contextmanager
def outage(scene: KillScene) -> Iterator[None]:
    """The datastore is away: its server refuses connections, or its file cannot be opened."""
    if scene.plugin_datastore.outage is not None:
        with scene.plugin_datastore.outage(OutageMode.REFUSED):
            yield
        return
    away = scene.node.file("away")
    os.rename(scene.node.database, away)
    os.mkdir(scene.node.database)
    try:
        yield
    finally:
        os.rmdir(scene.node.database)
        os.rename(away, scene.node.database)


def release_records(scene: KillScene) -> list[str]:
    """The names of the release records on the node, and of what a writer that died left."""
    folder = os.path.join(str(scene.conf["release_record_dir"]), "stores")
    return [name for _path, _folders, names in os.walk(folder) for name in names]
