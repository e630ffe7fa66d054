"""The Linux dataplane: the order in which an attachment is made and taken away.

Flows call it through :class:`~netplug_core.dataplane.protocol.Dataplane`. Making one takes one stay in the
container's namespace and six batches of netlink messages, and lists nothing unless the kernel finds a name or a
route taken. It sets nothing that concerns the whole machine, and it never imports pyroute2.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from attrs import evolve, frozen

from netplug_backends.linux import links, netlink, sysctls
from netplug_backends.linux.netlink import KernelLink, NetlinkMessage, RouteInsertion
from netplug_backends.linux.netlink_socket import NetlinkOutcome, NetlinkSocket
from netplug_backends.linux.netns import NamespaceDescriptors, NamespaceGone, entered_namespace, is_own_namespace
from netplug_core.addressing import Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.protocol import (
    AttachmentPlan,
    DataplaneTimeout,
    Difference,
    InterfacePlan,
    InterfacePresence,
    KernelError,
    Link,
    LinkExists,
    PlannedRoute,
    RouteConflict,
    Sysctl,
    SysctlRequirement,
)
from netplug_core.errors import DataplaneError, NamespaceNotFound

__all__ = ["LinuxDataplane", "run_with_deadline"]

_REMOVAL_TIMEOUT_S = 20.0
_VERIFY_TIMEOUT_S = 1.0
_VERIFY_POLL_S = 0.05
_IPV6_METRIC = 1024


@frozen
class _AttachContext:
    """One attachment at work: the plan, a channel at each end, and descriptors of both namespaces."""

    plan: AttachmentPlan
    container_socket: NetlinkSocket
    host_socket: NetlinkSocket
    namespaces: NamespaceDescriptors


@frozen
class _VethPair:
    """Both ends by index, and whether this call made them."""

    container: int
    host: int
    is_new: bool


@frozen(kw_only=True)
class LinuxDataplane:
    """Attaches workloads to this node by veth pairs; ``warn`` receives what a person should know, as sentences."""

    clock: Clock
    warn: Callable[[str], None]

    def find(self, link: Link) -> InterfacePresence:
        """Whether the interface is in the namespace."""
        try:
            with _entered(link.namespace), NetlinkSocket.open() as inside:
                found = links.find_link(inside, link.name)
        except NamespaceGone:
            return InterfacePresence.NAMESPACE_GONE
        return InterfacePresence.ABSENT if found is None else InterfacePresence.PRESENT

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Make the plan true, or leave nothing of it."""
        try:
            self._attach(plan, deadline)
        except NamespaceGone as gone:
            raise NamespaceNotFound(f"CNI_NETNS: {gone}") from None
        if Family.IPV6 in plan.families and sysctls.find_sysctl("net/ipv6/conf/all/forwarding") == "0":
            self.warn(
                f"net.ipv6.conf.all.forwarding is 0 on this node: {plan.container.name!r} in {plan.link.namespace}"
                " reaches nothing over IPv6 but the node; set it to 1"
            )

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """What is not as planned, looked at again for up to a second."""
        from netplug_backends.linux.inspection import inspect
        from netplug_core.dataplane.delta import compare_with_plan

        settled = deadline.capped(_VERIFY_TIMEOUT_S)
        while True:
            with _translated(f"looking at {plan.container.name!r} in {plan.link.namespace}"):
                found = compare_with_plan(plan, inspect(plan))
            if not found or settled.has_passed:
                return found
            self.clock.sleep(_VERIFY_POLL_S)

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove the interface from the namespace, and everything that hangs on it."""
        run_with_deadline(
            lambda: _remove(link),
            deadline=deadline.capped(_REMOVAL_TIMEOUT_S),
            operation=f"removing {link.name!r} from the namespace {link.namespace}",
        )

    def is_own_namespace(self, path: str) -> bool:
        """Whether the path is the network namespace of the calling thread."""
        return is_own_namespace(path)

    def _attach(self, plan: AttachmentPlan, deadline: Deadline) -> None:
        with ExitStack() as channels, ExitStack() as undo:
            outside = channels.enter_context(NetlinkSocket.open())
            with _entered(plan.link.namespace) as namespaces:
                inside = channels.enter_context(NetlinkSocket.open())
                site = _AttachContext(plan, inside, outside, namespaces)
                pair = _make_pair(site)
                if pair.is_new:
                    undo.callback(self._remove_new_pair, site)
                _check_deadline(deadline, plan)
                self._write_sysctls(plan.container.sysctls, f"in {plan.link.namespace}")
            self._write_sysctls(plan.host.sysctls, "on the host")
            _check_deadline(deadline, plan)
            _bring_up(outside, pair.host, plan.host)
            _bring_up(inside, pair.container, plan.container)
            _add_container_routes(inside, pair.container, plan.container)
            _check_deadline(deadline, plan)
            _add_host_routes(outside, pair.host, plan.host)
            undo.pop_all()

    def _remove_new_pair(self, context: _AttachContext) -> None:
        """Remove the pair that this call made; what was raised stays the news, whatever happens here."""
        try:
            context.container_socket.send_one(netlink.delete_link(context.plan.container.name)).require_success(
                errno.ENODEV
            )
        except DataplaneError as error:
            self.warn(f"the attachment failed and could not be taken back: {error}")

    def _write_sysctls(self, settings: tuple[Sysctl, ...], where: str) -> None:
        for setting in settings:
            try:
                sysctls.write_sysctl(setting.path, setting.value)
            except OSError as error:
                refused = KernelError(f"setting {setting} {where}", os.strerror(error.errno or 0))
                if setting.requirement is SysctlRequirement.REQUIRED:
                    raise refused from error
                # A kernel without IPv6 has nothing that would have to be switched off.
                if sysctls.has_ipv6() or not setting.path.startswith("net/ipv6/"):
                    self.warn(str(refused))


def run_with_deadline(work: Callable[[], None], *, deadline: Deadline, operation: str) -> None:
    """Do something that some kernels never come back from, and wait for it until the deadline.

    Raises:
        DataplaneTimeout: it is still not done; it goes on in the background.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  it is raised again in the thread that waits
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


@contextmanager
def _entered(path: str) -> Iterator[NamespaceDescriptors]:
    with _translated(f"entering the namespace {path}"), entered_namespace(path) as namespaces:
        yield namespaces


def _check_deadline(deadline: Deadline, plan: AttachmentPlan) -> None:
    if deadline.has_passed:
        raise DataplaneTimeout(f"attaching {plan.container.name!r} in {plan.link.namespace}")


def _remove(link: Link) -> None:
    try:
        with _entered(link.namespace), NetlinkSocket.open() as inside:
            inside.send_one(netlink.delete_link(link.name)).require_success(errno.ENODEV)
    except NamespaceGone:
        return


# --- the pair ------------------------------------------------------------------------------------------------------


def _make_pair(context: _AttachContext) -> _VethPair:
    """The pair of the plan: a new one, or the one that is there if it is like that."""
    created, found = _create_pair(context)
    if created.error == errno.EEXIST:
        kept = _reuse_or_remove_pair(context)
        if kept is not None:
            return kept
        created, found = _create_pair(context)
    created.require_success()
    facts = netlink.decode_link(found.require_success().reply)
    return _VethPair(facts.index, facts.peer or 0, is_new=True)


def _create_pair(context: _AttachContext) -> tuple[NetlinkOutcome, NetlinkOutcome]:
    plan = context.plan
    created, found = context.container_socket.send(
        (
            netlink.create_veth_pair(plan.link, plan.container, plan.host, host_namespace=context.namespaces.original),
            netlink.query_link(plan.container.name),
        )
    )
    return created, found


def _reuse_or_remove_pair(context: _AttachContext) -> _VethPair | None:
    """The pair that has the planned names already, if it is as planned; otherwise the names are free afterwards."""
    plan = context.plan
    mine = links.find_link(context.container_socket, plan.container.name)
    theirs = links.find_link(context.host_socket, plan.host.name)
    if mine is not None:
        if theirs is None or not links.are_peers(context.host_socket, context.namespaces, mine, theirs):
            raise LinkExists(mine.name, plan.link.namespace)
        if _is_planned(plan.link, plan.container, mine) and _is_planned(plan.link, plan.host, theirs):
            return _VethPair(mine.index, theirs.index, is_new=False)
    if theirs is not None:
        context.host_socket.send_one(netlink.delete_link(theirs.name)).require_success(errno.ENODEV)
    return None


def _is_planned(link: Link, end: InterfacePlan, found: KernelLink) -> bool:
    return (
        found.mac == end.mac
        and found.mtu == (link.mtu or found.mtu)
        and (found.tx_queues, found.rx_queues) == (link.queues, link.queues)
    )


# --- what hangs on it ----------------------------------------------------------------------------------------------


def _bring_up(socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """Up, with neighbours and addresses.

    The host end gets its link-local address here as well: the kernel would only make it once it has noticed the
    carrier, and not from the MAC if the machine is set up for private addresses.
    """
    messages = [
        netlink.set_up(index, end.name),
        *(netlink.add_neighbour(index, end.name, neighbour) for neighbour in end.neighbours),
        *(netlink.add_address(index, end.name, held) for held in end.addresses),
    ]
    # Adding a neighbour replaces one, and bringing up what is up is nothing: only an address can exist.
    for outcome in socket.send(messages):
        outcome.require_success(errno.EEXIST)


def _add_container_routes(container_socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    """The routes of the container, beside those that another interface of it may have to the same destinations."""
    added = _add_routes(
        container_socket, end, [netlink.add_route(index, end.name, r, _route_insertion(r)) for r in end.routes]
    )
    for route, outcome in zip(end.routes, added, strict=True):
        if outcome.require_success(errno.EEXIST).error and _route_insertion(route) is RouteInsertion.EXCLUSIVE:
            _add_second_route(container_socket, index, end.name, route)


def _add_routes(
    socket: NetlinkSocket, end: InterfacePlan, messages: list[NetlinkMessage]
) -> tuple[NetlinkOutcome, ...]:
    """Send routes, and read the interface back.

    Asking makes the kernel notice the carrier now: where both ends happen to have one index it may take a second,
    and the end that came up first sends nothing till then.
    """
    *added, found = socket.send([*messages, netlink.query_link(end.name)])
    mac = netlink.decode_link(found.require_success().reply).mac
    if mac != end.mac:
        raise KernelError(f"giving {end.name!r} the MAC {end.mac}", f"another program changed it to {mac}")
    return tuple(added)


def _route_insertion(route: PlannedRoute) -> RouteInsertion:
    # The kernel would join IPv6 routes of one metric into one that uses both interfaces in turn.
    return RouteInsertion.EXCLUSIVE if route.destination.family is Family.IPV6 else RouteInsertion.APPEND


def _add_second_route(container_socket: NetlinkSocket, index: int, name: str, route: PlannedRoute) -> None:
    """Add a route whose destination and metric are taken, with a metric of this interface's own."""
    listed = container_socket.send_one(netlink.query_routes(route.destination.family)).require_success().replies
    there = {(facts.destination, facts.interface) for facts in map(netlink.decode_route, listed)}
    if (route.destination, index) not in there:
        second = evolve(route, metric=_IPV6_METRIC + index)
        container_socket.send_one(netlink.add_route(index, name, second, RouteInsertion.EXCLUSIVE)).require_success()


def _add_host_routes(host_socket: NetlinkSocket, index: int, end: InterfacePlan) -> None:
    messages = [netlink.add_route(index, end.name, route, RouteInsertion.EXCLUSIVE) for route in end.routes]
    for outcome in _add_routes(host_socket, end, messages):
        outcome.require_success(errno.EEXIST)
    owners = links.find_competing_routes(host_socket, index, (route.destination for route in end.routes))
    for destination, owner in owners.items():
        raise RouteConflict(destination, end.name, owner)
