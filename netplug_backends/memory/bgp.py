"""BGP daemons in memory: the strict fake of who speaks BGP for a node.

Tests and simulations use it in place of BIRD. Nodes of one :class:`MemoryBgpNetwork` reach each other by their
addresses. A session is established as soon as both ends have it; what a node announces is in the kernel of the other
one at once. It refuses what BIRD refuses, keeps routes while a daemon restarts, and starts beside no other daemon.
Routes are not passed on to third nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from attrs import define, field

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import (
    BgpPlan,
    BgpRefused,
    BgpSession,
    BgpStatus,
    FilterRule,
    ForeignBgpDaemon,
    RouteFilter,
    SessionStatus,
)
from netplug_core.errors import Unavailable
from netplug_core.resources.bgp import FilterAction, MatchOperator, PeerType

__all__ = ["MemoryBgp", "MemoryBgpNetwork"]

_SYMBOL: Final = re.compile("[A-Za-z0-9_]{1,64}")
_UNPRINTABLE: Final = re.compile(r'["\\\x00-\x1f\x7f]')


@define(eq=False)
class MemoryBgpNetwork:
    """Nodes whose daemons reach each other."""

    nodes: list[MemoryBgp] = field(factory=list, init=False)

    def add(self, *addresses: Address) -> MemoryBgp:
        """A node with these addresses."""
        node = MemoryBgp(network=self, addresses=addresses)
        self.nodes.append(node)
        return node

    def find_end(self, node: MemoryBgp, session: BgpSession) -> tuple[MemoryBgp, BgpSession] | None:
        """The other end of a session of a node, whether it runs or not; None if no node has it."""
        for other in self.nodes:
            if session.address not in other.addresses or other.plan is None:
                continue
            for one in other.plan.sessions:
                if one.address in node.addresses and _is_same(node, session, other, one):
                    return other, one
        return None


def _is_same(node: MemoryBgp, session: BgpSession, other: MemoryBgp, other_session: BgpSession) -> bool:
    """Whether two sessions are the ends of one: ports, ASes and passwords fit, and one of them connects."""
    if node.plan is None or other.plan is None or session.family is not other_session.family:
        return False
    connects = (not session.is_passive and session.port == other.plan.listen_port) or (
        not other_session.is_passive and other_session.port == node.plan.listen_port
    )
    fits = (session.local_as, session.peer_as) == (other_session.peer_as, other_session.local_as)
    return connects and fits and session.password == other_session.password


@define(eq=False)
class MemoryBgp:
    """The daemon of a node; see :class:`~netplug_core.dataplane.bgp.BgpDaemon`.

    ``plan`` is that of the running daemon, or of the one that has ended and left its routes; ``announced`` is the table
    of what the node announces. ``problem``, if a test sets it, is why nothing answers.
    """

    network: MemoryBgpNetwork
    addresses: tuple[Address, ...]
    plan: BgpPlan | None = field(default=None, init=False)
    is_running: bool = field(default=False, init=False)
    announced: set[Prefix] = field(factory=set, init=False)
    ports_of_others: set[int] = field(factory=set, init=False)
    routes_of_others: set[Prefix] = field(factory=set, init=False)
    problem: str = field(default="", init=False)
    configurations: int = field(default=0, init=False)
    _since: dict[str, str] = field(factory=dict, init=False)
    _kept: frozenset[Prefix] = field(default=frozenset(), init=False)
    _numbers: Iterator[int] = field(factory=lambda: count(1), init=False)

    # --- the interface ------------------------------------------------------------------------------------------------

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        """What the daemon says; None: it does not run."""
        self._require_answer(deadline)
        if not self.is_running or self.plan is None:
            return None
        sessions = tuple(sorted(map(self._status, self.plan.sessions), key=lambda one: one.name))
        return BgpStatus(version="memory", configured_at=str(self.configurations), sessions=sessions)

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        """Let the daemon do what the plan says."""
        self._require_answer(deadline)
        _require_accepted(plan)
        if not self.is_running and self.plan is None:
            self._require_no_other(plan)
        if self.is_running and self.plan == plan:
            return False
        old = () if self.plan is None or not self.is_running else self.plan.sessions
        self._since = {one.name: self._since[one.name] for one in plan.sessions if one in old}
        self._since |= {one.name: str(next(self._numbers)) for one in plan.sessions if one not in old}
        self.plan, self.is_running = plan, True
        self.configurations += 1
        return True

    def pause(self, *, deadline: Deadline) -> None:
        """End the daemon so that its routes stay."""
        self._require_answer(deadline)
        self.kill()

    def stop(self, *, deadline: Deadline) -> None:
        """Withdraw everything, and end the daemon."""
        self._require_answer(deadline)
        self.plan, self.is_running, self._kept = None, False, frozenset()

    # --- what a test sees and does ------------------------------------------------------------------------------------

    def learned(self) -> frozenset[Prefix]:
        """The routes in the main table that a daemon has made."""
        return (frozenset(self._learned()) if self.is_running else self._kept) | frozenset(self.routes_of_others)

    def kill(self) -> None:
        """The daemon ends at once; what it has learned stays, and what it announced is kept by its peers."""
        if self.is_running:
            self._kept, self.is_running = frozenset(self._learned()), False

    # --- inside -------------------------------------------------------------------------------------------------------

    def _require_answer(self, deadline: Deadline) -> None:
        if self.problem or deadline.has_passed:
            raise Unavailable("the BGP daemon", self.problem or "the deadline has passed")

    def _require_no_other(self, plan: BgpPlan) -> None:
        if plan.listen_port in self.ports_of_others:
            advice = "stop it, or let BGPConfiguration have another listenPort, or bindMode NodeIP"
            raise ForeignBgpDaemon(f"another program listens on port {plan.listen_port}", advice)
        if self.routes_of_others:
            found = f"the main table has {len(self.routes_of_others)} routes of the protocol bird"
            raise ForeignBgpDaemon(found, "stop that daemon, and remove its routes")

    def _status(self, session: BgpSession) -> SessionStatus:
        end = self.network.find_end(self, session)
        is_established = end is not None and end[0].is_running
        return SessionStatus(
            name=session.name,
            is_established=is_established,
            state="Established" if is_established else "Active",
            since=self._since[session.name],
        )

    def _learned(self) -> Iterator[Prefix]:
        """What the peers announce to this node, as far as it goes into the kernel."""
        if self.plan is None:
            return
        for session in self.plan.sessions:
            end = self.network.find_end(self, session)
            if end is None or session.is_closed:
                continue
            other, other_session = end
            for prefix in other.exports(other_session):
                is_written = any(one.covers(prefix) for one in self.plan.node_written)
                if not is_written and prefix not in self.announced and self._imports(session, prefix):
                    yield prefix

    def exports(self, session: BgpSession) -> Iterator[Prefix]:
        """What this node announces in a session."""
        if self.plan is None or session.is_closed:
            return
        filters = _filters_of(self.plan, session)
        for prefix in sorted(self.announced):
            is_silent = any(one.covers(prefix) for one in self.plan.unexported)
            if prefix.family is session.family and not is_silent:
                rules = (rule for one in filters for rule in one.exported)
                if _verdict(rules, prefix, session) is not FilterAction.REJECT:
                    yield prefix

    def _imports(self, session: BgpSession, prefix: Prefix) -> bool:
        filters = () if self.plan is None else _filters_of(self.plan, session)
        rules = (rule for one in filters for rule in one.imported)
        return _verdict(rules, prefix, session) is not FilterAction.REJECT


# --- what is refused --------------------------------------------------------------------------------------------------


def _require_accepted(plan: BgpPlan) -> None:
    names = [*(one.name for one in plan.sessions), *(one.name for one in plan.filters)]
    for name in names:
        if not _SYMBOL.fullmatch(name):
            raise BgpRefused(f"{name!r} is no name of letters, digits and '_'")
        if names.count(name) > 1:
            raise BgpRefused(f"{name} is defined twice")
    defined = {one.name for one in plan.filters}
    for session in plan.sessions:
        if plan.find_address(session.family) is None:
            raise BgpRefused(f"{session.name}: the node has no address of {session.family}")
        if not session.is_closed and not set(session.filters) <= defined:
            raise BgpRefused(f"{session.name}: a filter of it is not defined")
        if _UNPRINTABLE.search(session.password):
            raise BgpRefused("a password has a quote, a backslash or a control character")


# --- filters ----------------------------------------------------------------------------------------------------------


def _filters_of(plan: BgpPlan, session: BgpSession) -> tuple[RouteFilter, ...]:
    return tuple(one for name in session.filters for one in plan.filters if one.name == name)


def _verdict(rules: Iterable[FilterRule], prefix: Prefix, session: BgpSession) -> FilterAction | None:
    """What the first rule says that matches a route of a node's own; it has no communities and no path."""
    return next((rule.action for rule in rules if _matches(rule, prefix, session)), None)


def _matches(rule: FilterRule, prefix: Prefix, session: BgpSession) -> bool:
    asks_for_more = rule.is_from_peers or rule.interface or rule.community or rule.as_path_prefix
    is_of_other_peers = rule.peer_type is not None and (rule.peer_type is PeerType.INTERNAL) is not session.is_internal
    if asks_for_more or rule.priority is not None or is_of_other_peers:
        return False
    shortest, longest = rule.lengths or (0, prefix.family.width)
    has_length = shortest <= prefix.length <= longest
    is_within = rule.prefix is None or (rule.prefix.covers(prefix) and has_length)
    return {
        MatchOperator.EQUAL: prefix == rule.prefix and has_length,
        MatchOperator.NOT_EQUAL: prefix != rule.prefix and has_length,
        MatchOperator.IN: is_within,
        MatchOperator.NOT_IN: not is_within,
    }[rule.operator]
