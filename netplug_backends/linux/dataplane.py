"""The Linux dataplane: the order of the steps that make and remove an attachment.

Flows call it through :class:`~netplug_core.dataplane.protocol.Dataplane`. Making an attachment enters the container's
namespace once and sends six batches of netlink messages (seven for an
interface with a routing table of its own); it lists nothing unless a name or a route exists already. It
changes no setting of the whole machine and does not import pyroute2.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from attrs import field, frozen

from netplug_backends.linux import attachment, netlink
from netplug_backends.linux.netlink import NetlinkSocket
from netplug_backends.linux.netns import NamespaceDescriptors, NamespaceGone, entered_namespace, is_own_namespace
from netplug_core.addressing import Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.plan import (
    compare_with_plan,
    find_node_problems,
    find_obstacles,
    refused_setting,
    require_families,
)
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    DataplaneTimeout,
    Difference,
    Forwarding,
    InterfacePlan,
    InterfacePresence,
    KernelError,
    Link,
    NodeProblem,
    Sysctl,
    SysctlRequirement,
)
from netplug_core.errors import DataplaneError, NamespaceNotFound

__all__ = ["LinuxDataplane", "run_with_deadline"]

_REMOVAL_TIMEOUT_S = 20.0
_VERIFY_TIMEOUT_S = 1.0
_VERIFY_POLL_S = 0.05


@frozen(kw_only=True)
class LinuxDataplane:
    """Attaches workloads to this node by veth pairs; ``warn`` receives warnings for people, as sentences.

    ``namespaces`` are descriptors of namespaces by path. They are entered in place of the path, and stay open.
    """

    clock: Clock
    warn: Callable[[str], None]
    namespaces: Mapping[str, int] = field(factory=dict)

    def find(self, link: Link) -> InterfacePresence:
        """Which interface of the name is in the namespace."""
        try:
            with self._entered(link.namespace), NetlinkSocket.open() as container_socket:
                found = attachment.find_link(container_socket, link.name)
            if found is None:
                return InterfacePresence.ABSENT
            return InterfacePresence.OWN if self._has_pair(link) else InterfacePresence.FOREIGN
        except NamespaceGone:
            return InterfacePresence.NAMESPACE_GONE

    def has_host_end(self, link: Link) -> bool:
        """Whether the host has this attachment's end."""
        with NetlinkSocket.open() as host_socket:
            return attachment.has_host_end(host_socket, link)

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Create what the plan says; after an error, what this call created is removed."""
        try:
            self._attach(plan, deadline)
        except NamespaceGone as gone:
            raise NamespaceNotFound(f"CNI_NETNS: {gone}") from None
        for problem in self.find_node_problems(plan.families):
            self.warn(str(problem))
        own_filter = f"net/ipv4/conf/{plan.host.name}/rp_filter"
        is_unfiltered = [setting.value == "0" for setting in plan.host.sysctls if setting.path == own_filter]
        if any(is_unfiltered) and attachment.find_sysctl("net/ipv4/conf/all/rp_filter") != "0":
            self.warn(
                "net.ipv4.conf.all.rp_filter is not 0 on this node: the kernel drops what"
                f" {plan.container.name!r} in {plan.link.namespace} sends from other addresses"
            )

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """The differences from the plan, after up to a second in which they may disappear."""
        from netplug_backends.linux.inspection import inspect  # loads pyroute2, which an ADD must not pay for

        settled = deadline.capped(_VERIFY_TIMEOUT_S)
        while True:
            with _translated(f"looking at {plan.container.name!r} in {plan.link.namespace}"):
                differences = compare_with_plan(plan, inspect(plan, self.namespaces))
            if not differences or settled.has_passed:
                return differences
            self.clock.sleep(_VERIFY_POLL_S)

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove this attachment's host end, and with it its peer, addresses and routes."""
        run_with_deadline(
            lambda: self._remove(link),
            deadline=deadline.capped(_REMOVAL_TIMEOUT_S),
            operation=f"removing the host interface {link.host_name!r} of {link.name!r}",
        )

    def is_own_namespace(self, path: str) -> bool:
        """Whether the path is the calling thread's own network namespace."""
        return is_own_namespace(path, self.namespaces)

    def find_node_problems(self, families: tuple[Family, ...]) -> tuple[NodeProblem, ...]:
        """What settings of this machine keep workloads of these families from, or open to them."""
        return find_node_problems(families, attachment.find_sysctl)

    def find_obstacles(self, families: tuple[Family, ...], forwarding: Forwarding) -> tuple[str, ...]:
        """Why this machine's kernel and its settings let no workload be attached."""
        return find_obstacles(families, forwarding, attachment.HostSettings())

    def _attach(self, plan: AttachmentPlan, deadline: Deadline) -> None:
        require_families(plan.families, attachment.find_sysctl)
        with ExitStack() as sockets, ExitStack() as undo:
            host_socket = sockets.enter_context(NetlinkSocket.open())
            index = attachment.choose_index()
            with self._entered(plan.link.namespace) as namespaces:
                container_socket = sockets.enter_context(NetlinkSocket.open())
                # Before the pair exists, as the answer may be lost. A pair that was there has another index.
                undo.callback(self._remove_new_pair, host_socket, index, plan.host.name)
                pair = attachment.make_pair(
                    attachment.AttachContext(plan, container_socket, host_socket, namespaces, index)
                )
                _check_deadline(deadline, plan)
                self._change_sysctls(plan.container.sysctls, f"in {plan.link.namespace}")
            self._change_sysctls(
                plan.host.sysctls, "on the host", partial(self._change_by_netlink, host_socket, pair.host, plan.host)
            )
            _check_deadline(deadline, plan)
            attachment.bring_up(host_socket, pair.host, plan.host)
            attachment.bring_up(container_socket, pair.container, plan.container)
            if plan.container.source_rules and pair.host == index:
                undo.callback(self._remove_new_rules, container_socket, pair.container)
            attachment.add_container_routes(container_socket, pair.container, plan.container)
            _check_deadline(deadline, plan)
            attachment.add_host_routes(host_socket, pair.host, plan.host)
            undo.pop_all()

    def _has_pair(self, link: Link) -> bool:
        with ExitStack() as stack:
            host_socket = stack.enter_context(NetlinkSocket.open())
            namespaces = stack.enter_context(self._entered(link.namespace))
            container_socket = stack.enter_context(NetlinkSocket.open())
            return attachment.has_pair(host_socket, container_socket, namespaces, link)

    def _remove(self, link: Link) -> None:
        with NetlinkSocket.open() as host_socket:
            named = attachment.find_host_end_by_name(host_socket, link)
            index = None if named is None else named.index
            if index is None or link.has_own_table:
                index = self._remove_from_inside(host_socket, link) or index
            if index is not None:
                attachment.remove_link(host_socket, index, link.host_name)

    def _remove_from_inside(self, host_socket: NetlinkSocket, link: Link) -> int | None:
        """The index of the host end, found as the peer; what outlives the pair in the namespace is removed."""
        try:
            with self._entered(link.namespace) as namespaces, NetlinkSocket.open() as container_socket:
                pair = attachment.find_pair(host_socket, container_socket, namespaces, link)
                if pair is None:
                    return None
                if link.has_own_table:
                    attachment.remove_source_rules(container_socket, pair.container)
                return pair.host
        except NamespaceGone:
            return None
        except KernelError as error:
            self.warn(f"{link.name!r} could not be removed from inside its namespace: {error}")
            return None

    def _remove_new_pair(self, host_socket: NetlinkSocket, index: int, name: str) -> None:
        with self._failures_as_warnings():
            attachment.remove_link(host_socket, index, name)

    def _remove_new_rules(self, container_socket: NetlinkSocket, index: int) -> None:
        with self._failures_as_warnings():
            attachment.remove_source_rules(container_socket, index)

    @contextmanager
    def _entered(self, path: str) -> Iterator[NamespaceDescriptors]:
        with _translated(f"entering the namespace {path}"), entered_namespace(path, self.namespaces) as namespaces:
            yield namespaces

    @contextmanager
    def _failures_as_warnings(self) -> Iterator[None]:
        """What this call made is removed; a failure is a warning, so that the original error is raised."""
        try:
            yield
        except DataplaneError as error:
            self.warn(f"the attachment failed and could not be taken back: {error}")

    def _change_sysctls(
        self, settings: tuple[Sysctl, ...], where: str, change_otherwise: Callable[[Sysctl], bool] | None = None
    ) -> None:
        """Give settings their values. ``change_otherwise`` may change one that cannot be written, and says whether."""
        for setting in settings:
            try:
                attachment.change_sysctl(setting.path, setting.value)
            except OSError as error:
                if change_otherwise is None or not change_otherwise(setting):
                    self._refuse(setting, where, error)

    def _refuse(self, setting: Sysctl, where: str, error: OSError) -> None:
        """Raise, or warn, because a setting cannot be written: /proc/sys may be read-only."""
        value = attachment.find_sysctl(setting.path)
        refused = refused_setting(str(setting), where, value, os.strerror(error.errno or 0))
        if setting.requirement is SysctlRequirement.OPTIONAL or value in setting.also_accepted:
            # A kernel without IPv6 has no IPv6 settings, and needs none.
            if attachment.has_ipv6() or not setting.path.startswith("net/ipv6/"):
                self.warn(str(refused))
            return
        raise refused from error

    def _change_by_netlink(self, host_socket: NetlinkSocket, index: int, end: InterfacePlan, setting: Sysctl) -> bool:
        """Change a setting of IPv4 of the interface by netlink, and return whether it has its value then."""
        name = setting.path.removeprefix(f"{attachment.IPV4_OF_INTERFACES}{end.name}/")
        if name == setting.path:
            return False
        message = netlink.change_ipv4_settings(index, end.name, {name: int(setting.value)})
        host_socket.send_one(message).require_success()
        return attachment.find_sysctl(setting.path) == setting.value


def run_with_deadline(work: Callable[[], None], *, deadline: Deadline, operation: str) -> None:
    """Run something in a thread and wait for it until the deadline. On some kernels a removal never returns.

    Raises:
        DataplaneTimeout: it has not finished; it continues in the background.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # the waiting thread raises it
            failures.append(error)

    worker = threading.Thread(target=run, name="netplug removal", daemon=True)
    worker.start()
    worker.join(deadline.remaining_s)
    if worker.is_alive():
        raise DataplaneTimeout(operation)
    for failure in failures:
        raise failure


@contextmanager
def _translated(operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KernelError(operation, os.strerror(error.errno or 0)) from error


def _check_deadline(deadline: Deadline, plan: AttachmentPlan) -> None:
    if deadline.has_passed:
        raise DataplaneTimeout(f"attaching {plan.container.name!r} in {plan.link.namespace}")
