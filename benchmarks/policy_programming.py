"""What the kernel gets when one pod comes to a node of 110, beside one ``nft -f -`` that adds the same, in a namespace.

N2 is the way of one pod from an event to the kernel's answer: the state is rendered, the transactions are found and
made. N3: 110 pods at once beside one, and in how many transactions. N5: how much is written after a restart without a
change, after a change of members, and after an edit of a policy that all pods have. N8: everything after another
program's ``flush ruleset``, beside a full load by ``nft -f -``, and the table that lets nothing pass beside it.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from attrs import define, evolve, field

from benchmarks.measure import Cost, cost_of, cost_ratio, median_cost
from netplug_backends.linux.netns import in_new_namespace
from netplug_backends.linux.nftables import KeptNftables
from netplug_core.addressing import Address, Family
from netplug_core.dataplane.filter import POLICY_TABLE, FilterRenderer, guard_table
from netplug_core.dataplane.phases import TableTracker
from netplug_core.dataplane.ruleset import ChangeTable, DeleteTable, Phase, TableChange, render_change
from netplug_core.policy.model import (
    TCP,
    Action,
    ActivePolicy,
    ActiveProfile,
    EndpointId,
    LocalEndpoint,
    Match,
    MemberSet,
    PeerMatch,
    PolicyId,
    PolicyKind,
    PolicyState,
    Rule,
    SetId,
    SetType,
    set_id,
)
from netplug_core.resources.fields import PortRange

__all__ = ["measure", "node_state"]

_PODS, _POLICIES, _SETS, _MEMBERS = 110, 20, 100, 100
_ONE_GOAL, _BURST_GOAL, _FLUSH_GOAL, _GUARD_GOAL = 0.6, 60.0, 5.0, 1.0
_SLOW_ROUNDS = 10
_PROFILE = "kns.x"
_V4, _V6 = 10 << 24, 0xFD << 120


def measure(rounds: int) -> None:
    """Measure that many rounds and print; for N2 both medians, and the fastest rounds, which a busy machine spares.

    Raises:
        SystemExit: there is no right to make a namespace.
    """
    try:
        in_new_namespace(lambda: _measure(rounds))
    except OSError as error:
        raise SystemExit(f"a network namespace cannot be made: {error}") from error


def _measure(rounds: int) -> None:
    with KeptNftables.open() as ruleset:
        node = _Node(ruleset, node_state(_PODS))
        node.bring(node.state)
        own, theirs = _measure_one(node, rounds)
        one = median_cost(own).wall_s
        fastest = min(each.wall_s for each in own) / min(each.wall_s for each in theirs)
        print(f"{rounds} rounds; medians\n")
        print(f"one pod more, event to answer {median_cost(own)}; nft -f - {median_cost(theirs)}")
        ratio = cost_ratio(median_cost(own), median_cost(theirs))
        print(f"  / nft -f - with the same    {ratio}, fastest rounds {fastest:.2f}   N2: <= {_ONE_GOAL:g}")
        slow = min(rounds, _SLOW_ROUNDS)
        burst, phases = _measure_burst(node, slow)
        print(f"{_PODS} pods at once            {burst * 1e3:9.1f} ms")
        print(f"  / one pod                   {burst / one:9.1f}     N3: <= {_BURST_GOAL:g}, transactions {phases}")
        _print_writes(node)
        flushed, guard, load = _measure_flush(node, slow)
        print(f"all back after a flush        {flushed * 1e3:9.1f} ms")
        print(f"  / a full load               {flushed / load:9.2f}     N8: <= {_FLUSH_GOAL:g}")
        print(f"  the guard / a full load     {guard / load:9.2f}     N8: <= {_GUARD_GOAL:g}")


# --- a node -----------------------------------------------------------------------------------------------------------


@define(eq=False)
class _Node:
    """Who renders states and brings them into the kernel, as the node process does."""

    ruleset: KeptNftables
    state: PolicyState
    _renderer: FilterRenderer = field(factory=FilterRenderer, init=False)
    _tracker: TableTracker = field(factory=lambda: TableTracker(POLICY_TABLE), init=False)

    def bring(self, state: PolicyState) -> list[TableChange]:
        """Program a state; return the transactions."""
        made: list[TableChange] = []
        for change in self._tracker.plan(self._renderer.render(state)):
            self.ruleset.apply(change)
            self._tracker.note(change)
            made.append(change)
        return made

    def note(self, state: PolicyState) -> None:
        """Another program has brought a state into the kernel."""
        for change in self._tracker.plan(self._renderer.render(state)):
            self._tracker.note(change)

    def restart(self) -> None:
        """Know nothing but what the kernel lists."""
        self._renderer, self._tracker = FilterRenderer(), TableTracker(POLICY_TABLE)
        self.look()

    def look(self) -> None:
        """Read the table."""
        self._tracker.observe(self.ruleset.read(POLICY_TABLE))


def node_state(pods: int, *, edited: int = 0, members: int = _MEMBERS) -> PolicyState:
    """What is enforced on a node with so many pods; ``edited`` is another port in the first policy."""
    policies = tuple(sorted((_policy(number, edited) for number in range(_POLICIES)), key=lambda each: each.id))
    sets = tuple(sorted((_member_set(number, members) for number in range(_SETS)), key=lambda each: each.id))
    endpoints = tuple(_pod(number, tuple(each.id for each in policies)) for number in range(pods))
    profile = ActiveProfile(
        name=_PROFILE, egress=(Rule(name=f"Profile {_PROFILE} #0", action=Action.ALLOW, matches=(Match(),)),)
    )
    return PolicyState(policies=policies, profiles=(profile,), sets=sets, endpoints=endpoints)


def _policy(number: int, edited: int) -> ActivePolicy:
    """Its rules let some sets in, by one port each; ``edited`` is another port of the first policy."""
    port = 8000 + (edited if number == 0 else 0)
    rules = tuple(
        Rule(
            name=f"NetworkPolicy x/p-{number} #{place}",
            action=Action.ALLOW,
            matches=(
                Match(
                    protocol=TCP,
                    source=PeerMatch(sets=(_set(each),)),
                    destination=PeerMatch(ports=(PortRange(port, port),)),
                ),
            ),
        )
        for place, each in enumerate(range(number, _SETS, _POLICIES))
    )
    return ActivePolicy(id=PolicyId(PolicyKind.NETWORK_POLICY, "x", f"p-{number}"), ingress=rules)


def _set(number: int) -> SetId:
    return set_id(f"app == '{number}'")


def _member_set(number: int, members: int) -> MemberSet:
    held = (Address(family, base + (number << 16) + each) for each in range(members // 2) for family, base in _BASES)
    return MemberSet(id=_set(number), type=SetType.ADDRESSES, members=frozenset(held))


_BASES = ((Family.IPV4, _V4), (Family.IPV6, _V6))


def _pod(number: int, policies: Sequence[PolicyId]) -> LocalEndpoint:
    return LocalEndpoint(
        id=EndpointId("x", f"pod-{number}"),
        interface=f"netp{number:011x}",
        addresses=tuple(Address(family, base + 0xFF0000 + number) for family, base in _BASES),
        ingress=tuple(policies[number % _POLICIES :][:2]),
        profiles=(_PROFILE,),
    )


# --- what is measured -------------------------------------------------------------------------------------------------


def _measure_one(node: _Node, rounds: int) -> tuple[list[Cost], list[Cost]]:
    """One pod more by the node, and the same by the program; both are taken away again."""
    few, more = node.state, evolve(node.state, endpoints=node_state(_PODS + 1).endpoints)
    own: list[Cost] = []
    theirs: list[Cost] = []
    for _ in range(rounds):
        made: list[TableChange] = []
        own.append(cost_of(partial(_bring, node, more, made)))
        node.bring(few)
        theirs.append(cost_of(partial(_load, _as_text(made))))
        node.note(more)
        node.bring(few)
    return own, theirs


def _bring(node: _Node, state: PolicyState, made: list[TableChange]) -> None:
    made += node.bring(state)


def _measure_burst(node: _Node, rounds: int) -> tuple[float, list[str]]:
    none, all_pods = evolve(node.state, endpoints=()), node.state
    found: list[float] = []
    made: list[TableChange] = []
    for _ in range(rounds):
        node.bring(none)
        began = time.perf_counter()
        made = node.bring(all_pods)
        found.append(time.perf_counter() - began)
    return median(found), _phases(made)


def _phases(made: Sequence[TableChange]) -> list[str]:
    return [each.phase.value for each in made if isinstance(each, ChangeTable)]


def _print_writes(node: _Node) -> None:
    """How much is written, which does not depend on the machine."""
    node.restart()
    print(f"restart without a change      {len(node.bring(node_state(_PODS))):9d} transactions  N5: 0")
    (members,) = _changes(node.bring(node_state(_PODS, members=_MEMBERS + 2)))
    is_alone = not (members.new_chains or members.filled_chains or members.new_sets)
    print(f"members of {len(members.added)} sets{'':15} members alone: {is_alone}     N5")
    node.bring(node_state(_PODS))
    chains = [chain for each in _changes(node.bring(node_state(_PODS, edited=1))) for chain in _chains(each)]
    print(f"an edit of a policy           {len(chains):9d} chains        N5: <= 2")
    node.bring(node_state(_PODS))


def _changes(made: Sequence[TableChange]) -> list[ChangeTable]:
    return [each for each in made if isinstance(each, ChangeTable) and each.phase is not Phase.DELETE]


def _chains(change: ChangeTable) -> list[str]:
    return [each.name for each in (*change.new_chains, *change.filled_chains)]


def _measure_flush(node: _Node, rounds: int) -> tuple[float, float, float]:
    """What the node process does once it knows of it: it looks, and makes everything again; or the guard alone."""
    state = node_state(_PODS)
    back: list[float] = []
    guards: list[float] = []
    loads: list[float] = []
    for _ in range(rounds):
        subprocess.run(["nft", "flush", "ruleset"], check=True)
        began = time.perf_counter()
        node.look()
        made = node.bring(state)
        back.append(time.perf_counter() - began)
        node.ruleset.apply(DeleteTable(POLICY_TABLE))
        loads.append(_time(partial(_load, _as_text(made))))
        node.ruleset.apply(DeleteTable(POLICY_TABLE))
        guard = TableTracker(POLICY_TABLE).plan(guard_table())
        guards.append(_time(partial(_apply_all, node, guard)))
        node.look()
        node.bring(state)
    return median(back), median(guards), median(loads)


def _apply_all(node: _Node, changes: Sequence[TableChange]) -> None:
    for each in changes:
        node.ruleset.apply(each)


def _as_text(changes: Sequence[TableChange]) -> str:
    """The commands of some transactions as one, in JSON: what a program would be given."""
    return json.dumps({"nftables": [command for each in changes for command in render_change(each)]})


def _load(text: str) -> None:
    subprocess.run(["nft", "-j", "-f", "-"], input=text, text=True, check=True)


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
