"""Speaks BGP with other nodes and with routers: the controller ``bgp``.

It plans the sessions of the node of what the datastore says (``netplug_core.reconcile.peers``), and lets a daemon have
them. While a session comes up it asks the daemon every second how it does. That also wakes the daemon: BIRD 2.0.12
announces its first routes only when something does. What is planned outlives this process, so an end of it changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from netplug_cli.node.tasks import NODE_REGISTERED
from netplug_cli.node_status import PeerStatus
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.bgp import (
    BgpDaemon,
    BgpPlan,
    BgpSession,
    BgpStatus,
    BgpUse,
    ForeignBgpDaemon,
    SessionStatus,
)
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing
from netplug_core.reconcile.peers import (
    NoBgp,
    PeerFacts,
    Peering,
    SecretName,
    SessionHistory,
    find_hopeless,
    find_secrets,
    find_use,
    plan_peers,
)
from netplug_core.records import Kind
from netplug_core.resources.bgp import BGP_CONFIGURATION, BGP_FILTER, BGP_PEER
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE

__all__ = ["BGP_KINDS", "BGP_USE_CHANGED", "CHECK_EVERY_S", "POLL_EVERY_S", "SECRETS_EVERY_S", "NodeBgp"]

BGP_KINDS: tuple[Kind[object], ...] = (NODE, IPPOOL, BGP_CONFIGURATION, BGP_PEER, BGP_FILTER)
"""What sessions follow from."""

BGP_USE_CHANGED: Final = Source("bgp")
"""Whether BGP announces the node's routes, or makes others, has changed."""

POLL_EVERY_S = 1.0
"""The pause between two looks at the daemon while a session comes up."""

CHECK_EVERY_S = 10.0
"""The pause between two looks at the daemon otherwise."""

SECRETS_EVERY_S = 30.0
"""A password is read again after so long."""

_FAILURE = "BGP sessions are not as they should be; those that there are go on"

ReadPassword: TypeAlias = Callable[[SecretName, Deadline], str | None]
"""Reads the member of a Secret; None: there is none."""


@frozen
class _Look:
    """What was seen, and the plan that the daemon was given last; None: none by this process."""

    peering: Peering
    status: BgpStatus | None
    given: BgpPlan | None
    problems: tuple[Problem, ...]
    is_pending: bool


_Action: TypeAlias = BgpPlan | NoBgp


@frozen
class _Password:
    value: str | None
    read_at: float


@define(kw_only=True, eq=False)
class NodeBgp:
    """Lets the daemon of this node have the sessions that the datastore asks for.

    Nothing is done before everything was listed once. ``find_name`` is the name of the node; None: it is not registered
    yet. ``router_id`` is as :class:`~netplug_core.reconcile.peers.PeerFacts` has it. ``on_use_change`` is called when
    ``use`` has changed, which is None until it is known.
    """

    view: View
    find_name: Callable[[], str | None]
    daemon: BgpDaemon
    read_password: ReadPassword
    clock: Clock
    router_id: str = ""
    on_use_change: Callable[[], None] = lambda: None
    use: BgpUse | None = field(default=None, init=False)
    status: BgpStatus | None = field(default=None, init=False)
    learned: Mapping[Prefix, Address] = field(factory=dict, init=False)
    """What is announced of pools with IPIP, with the next hops; while the daemon restarts, what was before."""
    peering: Peering = field(default=Peering(outcome=None), init=False)
    problems: tuple[Problem, ...] = field(default=(), init=False)
    refused: Problem | None = field(default=None, init=False)
    """Why the daemon has not done what was planned, as that another one is in its way; None: it has."""
    _facts: PeerFacts | None = field(default=None, init=False)
    _given: BgpPlan | None = field(default=None, init=False)
    _history: SessionHistory = field(default=SessionHistory(), init=False)
    _hopeless: frozenset[str] = field(default=frozenset(), init=False)
    _passwords: dict[SecretName, _Password] = field(factory=dict, init=False)

    def controller(self) -> Controller[_Look | None, _Action]:
        """What plans and applies."""
        return Controller(
            name="bgp",
            observe=self._observe,
            plan=_plan_action,
            act=self._act,
            failure=_FAILURE,
            recovered="all BGP sessions are as they should be",
            inputs=frozenset((*BGP_KINDS, NODE_REGISTERED)),
            timing=Timing(backoff=Backoff(first_s=1.0, longest_s=60.0), jitter=0.0),
        )

    def find_pending(self) -> str | None:
        """Why routes of other nodes may be missing; None: nothing is waited for, or there is no BGP."""
        plan, status = self.peering.outcome, self.status
        if not isinstance(plan, BgpPlan):
            return None
        if status is None:
            return "the BGP daemon does not run"
        if status.is_recovering:
            return "the BGP daemon restarts, and waits for the routes of its peers"
        pending = self._history.pending(self.clock.monotonic(), self._hopeless)
        return f"BGP sessions come up: {', '.join(pending)}" if pending else None

    def find_peers(self) -> tuple[PeerStatus, ...]:
        """The sessions that are planned, and how they do."""
        plan, status = self.peering.outcome, self.status
        if not isinstance(plan, BgpPlan):
            return ()
        found = {one.name: one for one in (() if status is None else status.sessions)}
        return tuple(_peer_status(session, found.get(session.name)) for session in plan.sessions)

    def _observe(self, deadline: Deadline) -> _Look | None:
        name = self.find_name()
        if name is None or not self.view.has_listed(BGP_KINDS):
            return None
        facts = self._read_facts(name)
        facts, problems = self._with_passwords(facts, deadline)
        if facts != self._facts:
            self._facts, self.peering = facts, plan_peers(facts)
        use = find_use(self.peering, facts.configurations)
        if use is not None and use != self.use:
            self.use = use
            self.on_use_change()
        self.status = self.daemon.find_status(deadline=deadline)
        if self.status is not None and not self.status.is_recovering and self.learned != dict(self.status.tunnelled):
            self.learned = dict(self.status.tunnelled)
            self.on_use_change()
        plan, now = self.peering.outcome, self.clock.monotonic()
        problems = (*self.peering.problems, *problems)
        is_pending = False
        if isinstance(plan, BgpPlan):
            self._history = self._history.observe(plan, self.status, now)
            self._hopeless = find_hopeless(plan, facts.nodes)
            is_pending = bool(self._history.pending(now, self._hopeless))
            if self.status is not None and self._given == plan:
                problems = (*problems, *self._history.problems(plan, self.status, now))
                is_pending = is_pending or self.status.is_recovering
        self.problems = problems
        return _Look(self.peering, self.status, self._given, problems, is_pending)

    def _read_facts(self, name: str) -> PeerFacts:
        view = self.view
        return PeerFacts(
            node=name,
            nodes=tuple(one.value for one in view.list(NODE)),
            pools=tuple(one.value for one in view.list(IPPOOL)),
            configurations=tuple(one.value for one in view.list(BGP_CONFIGURATION)),
            peers=tuple(one.value for one in view.list(BGP_PEER)),
            filters=tuple(one.value for one in view.list(BGP_FILTER)),
            router_id=self.router_id,
        )

    def _with_passwords(self, facts: PeerFacts, deadline: Deadline) -> tuple[PeerFacts, tuple[Problem, ...]]:
        """The facts with the passwords of sessions. One that cannot be read now is what it was before."""
        wanted, now = find_secrets(facts), self.clock.monotonic()
        self._passwords = {name: known for name, known in self._passwords.items() if name in wanted}
        problems = []
        for name in sorted(wanted):
            known = self._passwords.get(name)
            if known is not None and known.value is not None and now < known.read_at + SECRETS_EVERY_S:
                continue
            try:
                self._passwords[name] = _Password(self.read_password(name, deadline), now)
            except NetplugError as error:
                message = f"the member {name[1]} of the Secret {name[0]} cannot be read"
                problems.append(Problem(message=message, cause=str(error)))
        passwords = {name: one.value for name, one in self._passwords.items() if one.value is not None}
        return evolve(facts, passwords=passwords), tuple(problems)

    def _act(self, action: _Action, deadline: Deadline) -> None:
        self._given = None  # unless it is known to have it
        if isinstance(action, NoBgp):
            self.daemon.stop(deadline=deadline)
            self.refused = None
            return
        try:
            self.daemon.apply(action, deadline=deadline)
        except ForeignBgpDaemon as error:
            self.refused = Problem(
                message="BGP is not started", cause=f"{error.found}; {error.advice}", event="OtherBGPDaemon"
            )
            raise
        except NetplugError as error:
            self.refused = Problem(message=_FAILURE, cause=str(error))
            raise
        self._given, self.refused = action, None


def _peer_status(session: BgpSession, found: SessionStatus | None) -> PeerStatus:
    host = f"[{session.address}]" if session.family is Family.IPV6 else str(session.address)
    return PeerStatus(
        peer=session.peer,
        address=f"{host}:{session.port}",
        as_number=session.peer_as,
        is_established=found is not None and found.is_established,
        since="" if found is None else found.since,
        state="" if found is None else f"{found.state} {found.error}".strip(),
    )


def _plan_action(look: _Look | None) -> Plan[_Action]:
    if look is None:  # the name of the node is no input: nothing wakes the controller when it is known
        return Plan(look_again_s=POLL_EVERY_S)
    outcome = look.peering.outcome
    match outcome:
        case None:
            return Plan(look_again_s=CHECK_EVERY_S, problems=look.problems)
        case NoBgp():
            actions: tuple[_Action, ...] = (outcome,) if look.status is not None else ()
            return Plan(actions=actions, problems=look.problems)
        case BgpPlan():
            is_given = look.status is not None and look.given == outcome
            look_again_s = POLL_EVERY_S if look.is_pending or not is_given else CHECK_EVERY_S
            return Plan(actions=() if is_given else (outcome,), look_again_s=look_again_s, problems=look.problems)
