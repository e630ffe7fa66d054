"""The Linux dataplane: the order in which an attachment is made and taken away.

Flows call it through :class:`~netplug_core.dataplane.interface.Dataplane`. Making one takes one stay in the
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

from netplug_backends.linux import lookups, netlink, sysctl
from netplug_backends.linux.channel import Channel, Outcome
from netplug_backends.linux.netlink import LinkFacts, Message, Rivals
from netplug_backends.linux.netns import Entered, NamespaceGone, entered, is_own
from netplug_core.addressing import Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.interface import (
    AttachmentPlan,
    Difference,
    EndPlan,
    KernelRefused,
    Link,
    LinkExists,
    Need,
    Presence,
    Route,
    RouteTaken,
    Sysctl,
    TimedOut,
)
from netplug_core.errors import DataplaneError, NamespaceMissing

__all__ = ["LinuxDataplane", "bounded"]

_REMOVAL_S = 20.0
_SETTLING_S = 1.0
_SETTLING_STEP_S = 0.05
_IPV6_METRIC = 1024


@frozen
class _Site:
    """One attachment at work: the plan, a channel at each end, and descriptors of both namespaces."""

    plan: AttachmentPlan
    inside: Channel
    outside: Channel
    namespaces: Entered


@frozen
class _Pair:
    """Both ends by index, and whether this call made them."""

    container: int
    host: int
    is_new: bool


@frozen(kw_only=True)
class LinuxDataplane:
    """Attaches workloads to this node by veth pairs; ``warn`` receives what a person should know, as sentences."""

    clock: Clock
    warn: Callable[[str], None]

    def find(self, link: Link) -> Presence:
        """Whether the interface is in the namespace."""
        try:
            with _inside(link.namespace), Channel.open() as inside:
                found = lookups.find_link(inside, link.name)
        except NamespaceGone:
            return Presence.NAMESPACE_GONE
        return Presence.ABSENT if found is None else Presence.PRESENT

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Make the plan true, or leave nothing of it."""
        try:
            self._attach(plan, deadline)
        except NamespaceGone as gone:
            raise NamespaceMissing(f"CNI_NETNS: {gone}") from None
        if Family.IPV6 in plan.families and sysctl.read("net/ipv6/conf/all/forwarding") == "0":
            self.warn(
                f"net.ipv6.conf.all.forwarding is 0 on this node: {plan.container.name!r} in {plan.link.namespace}"
                " reaches nothing over IPv6 but the node; set it to 1"
            )

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """What is not as planned, looked at again for up to a second."""
        from netplug_backends.linux.inspection import inspect
        from netplug_core.dataplane.delta import differences

        settled = deadline.capped(_SETTLING_S)
        while True:
            with _translated(f"looking at {plan.container.name!r} in {plan.link.namespace}"):
                found = differences(plan, inspect(plan))
            if not found or settled.has_passed:
                return found
            self.clock.sleep(_SETTLING_STEP_S)

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove the interface from the namespace, and everything that hangs on it."""
        bounded(
            lambda: _remove(link),
            deadline=deadline.capped(_REMOVAL_S),
            operation=f"removing {link.name!r} from the namespace {link.namespace}",
        )

    def namespace_is_own(self, path: str) -> bool:
        """Whether the path is the network namespace of the calling thread."""
        return is_own(path)

    def _attach(self, plan: AttachmentPlan, deadline: Deadline) -> None:
        with ExitStack() as channels, ExitStack() as undo:
            outside = channels.enter_context(Channel.open())
            with _inside(plan.link.namespace) as namespaces:
                inside = channels.enter_context(Channel.open())
                site = _Site(plan, inside, outside, namespaces)
                pair = _make_pair(site)
                if pair.is_new:
                    undo.callback(self._take_back, site)
                _check(deadline, plan)
                self._set(plan.container.sysctls, f"in {plan.link.namespace}")
            self._set(plan.host.sysctls, "on the host")
            _check(deadline, plan)
            _bring_up(outside, pair.host, plan.host)
            _bring_up(inside, pair.container, plan.container)
            _add_container_routes(inside, pair.container, plan.container)
            _check(deadline, plan)
            _add_host_routes(outside, pair.host, plan.host)
            undo.pop_all()

    def _take_back(self, site: _Site) -> None:
        """Remove the pair that this call made; what was raised stays the news, whatever happens here."""
        try:
            site.inside.ask(netlink.delete_link(site.plan.container.name)).accept(errno.ENODEV)
        except DataplaneError as error:
            self.warn(f"the attachment failed and could not be taken back: {error}")

    def _set(self, sysctls: tuple[Sysctl, ...], where: str) -> None:
        for setting in sysctls:
            try:
                sysctl.write(setting.path, setting.value)
            except OSError as error:
                refused = KernelRefused(f"setting {setting} {where}", os.strerror(error.errno or 0))
                if setting.need is Need.REQUIRED:
                    raise refused from error
                # A kernel without IPv6 has nothing that would have to be switched off.
                if sysctl.has_ipv6() or not setting.path.startswith("net/ipv6/"):
                    self.warn(str(refused))


def bounded(work: Callable[[], None], *, deadline: Deadline, operation: str) -> None:
    """Do something that some kernels never come back from, and wait for it until the deadline.

    Raises:
        TimedOut: it is still not done; it goes on in the background.
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
        raise TimedOut(operation)
    for failure in failures:
        raise failure


@contextmanager
def _translated(operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise KernelRefused(operation, os.strerror(error.errno or 0)) from error


@contextmanager
def _inside(path: str) -> Iterator[Entered]:
    with _translated(f"entering the namespace {path}"), entered(path) as namespaces:
        yield namespaces


def _check(deadline: Deadline, plan: AttachmentPlan) -> None:
    if deadline.has_passed:
        raise TimedOut(f"attaching {plan.container.name!r} in {plan.link.namespace}")


def _remove(link: Link) -> None:
    try:
        with _inside(link.namespace), Channel.open() as inside:
            inside.ask(netlink.delete_link(link.name)).accept(errno.ENODEV)
    except NamespaceGone:
        return


# --- the pair ------------------------------------------------------------------------------------------------------


def _make_pair(site: _Site) -> _Pair:
    """The pair of the plan: a new one, or the one that is there if it is like that."""
    created, found = _create(site)
    if created.error == errno.EEXIST:
        kept = _make_room(site)
        if kept is not None:
            return kept
        created, found = _create(site)
    created.accept()
    facts = netlink.link_facts(found.accept().reply)
    return _Pair(facts.index, facts.peer or 0, is_new=True)


def _create(site: _Site) -> tuple[Outcome, Outcome]:
    plan = site.plan
    created, found = site.inside.send(
        (
            netlink.create_pair(plan.link, plan.container, plan.host, host_namespace=site.namespaces.home),
            netlink.find_link(plan.container.name),
        )
    )
    return created, found


def _make_room(site: _Site) -> _Pair | None:
    """The pair that has the planned names already, if it is as planned; otherwise the names are free afterwards."""
    plan = site.plan
    mine = lookups.find_link(site.inside, plan.container.name)
    theirs = lookups.find_link(site.outside, plan.host.name)
    if mine is not None:
        if theirs is None or not lookups.are_peers(site.outside, site.namespaces, mine, theirs):
            raise LinkExists(mine.name, plan.link.namespace)
        if _is_planned(plan.link, plan.container, mine) and _is_planned(plan.link, plan.host, theirs):
            return _Pair(mine.index, theirs.index, is_new=False)
    if theirs is not None:
        site.outside.ask(netlink.delete_link(theirs.name)).accept(errno.ENODEV)
    return None


def _is_planned(link: Link, end: EndPlan, found: LinkFacts) -> bool:
    return (
        found.mac == end.mac
        and found.mtu == (link.mtu or found.mtu)
        and (found.tx_queues, found.rx_queues) == (link.queues, link.queues)
    )


# --- what hangs on it ----------------------------------------------------------------------------------------------


def _bring_up(channel: Channel, index: int, end: EndPlan) -> None:
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
    for outcome in channel.send(messages):
        outcome.accept(errno.EEXIST)


def _add_container_routes(inside: Channel, index: int, end: EndPlan) -> None:
    """The routes of the container, beside those that another interface of it may have to the same destinations."""
    added = _add_routes(inside, end, [netlink.add_route(index, end.name, r, _rivals(r)) for r in end.routes])
    for route, outcome in zip(end.routes, added, strict=True):
        if outcome.accept(errno.EEXIST).error and _rivals(route) is Rivals.REFUSED:
            _add_second_route(inside, index, end.name, route)


def _add_routes(channel: Channel, end: EndPlan, messages: list[Message]) -> tuple[Outcome, ...]:
    """Send routes, and read the interface back.

    Asking makes the kernel notice the carrier now: where both ends happen to have one index it may take a second,
    and the end that came up first sends nothing till then.
    """
    *added, found = channel.send([*messages, netlink.find_link(end.name)])
    mac = netlink.link_facts(found.accept().reply).mac
    if mac != end.mac:
        raise KernelRefused(f"giving {end.name!r} the MAC {end.mac}", f"another program changed it to {mac}")
    return tuple(added)


def _rivals(route: Route) -> Rivals:
    # The kernel would join IPv6 routes of one metric into one that uses both interfaces in turn.
    return Rivals.REFUSED if route.destination.family is Family.IPV6 else Rivals.JOINED


def _add_second_route(inside: Channel, index: int, name: str, route: Route) -> None:
    """Add a route whose destination and metric are taken, with a metric of this interface's own."""
    listed = inside.ask(netlink.list_routes(route.destination.family)).accept().replies
    there = {(facts.destination, facts.interface) for facts in map(netlink.route_facts, listed)}
    if (route.destination, index) not in there:
        second = evolve(route, metric=_IPV6_METRIC + index)
        inside.ask(netlink.add_route(index, name, second, Rivals.REFUSED)).accept()


def _add_host_routes(outside: Channel, index: int, end: EndPlan) -> None:
    messages = [netlink.add_route(index, end.name, route, Rivals.REFUSED) for route in end.routes]
    for outcome in _add_routes(outside, end, messages):
        outcome.accept(errno.EEXIST)
    owners = lookups.taken(outside, index, (route.destination for route in end.routes))
    for destination, owner in owners.items():
        raise RouteTaken(destination, end.name, owner)
