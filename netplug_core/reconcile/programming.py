"""What may be said of the policy of a node, and what is done with what the kernel refuses.

Pure rules: the controller ``policy`` of the node process calculates what the node enforces and programs it. A state is
applied once the kernel has acknowledged all of it. Of an endpoint in it, policy is programmed if the endpoint is known
as its container has it, and its interface is there and up: only then does the status file say so.

Where the kernel refuses a state again and again, some part of it is at fault, which closed stand-ins take the place of,
so that the rest is programmed. :func:`isolate` finds the parts with as few attempts as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeVar, assert_never

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address
from netplug_core.dataplane.filter import closed_endpoint, closed_policy, find_guarded
from netplug_core.dataplane.ruleset import NamedSet
from netplug_core.errors import narrow
from netplug_core.names import KUBERNETES_ORCHESTRATOR
from netplug_core.policy.model import (
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    LocalEndpoint,
    PolicyKind,
    PolicyProblem,
    PolicyState,
)
from netplug_core.resources.fields import Metadata
from netplug_core.resources.profile import (
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
    network_spec,
)
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec

__all__ = [
    "KeptEndpoints", "Part", "ProblemCounts", "ProgrammingFacts", "close_parts", "count_problems", "find_changed_parts",
    "find_lost_addresses", "find_network_profiles", "find_programmed", "isolate", "keep_closed", "name_of",
]  # fmt: skip

Part: TypeAlias = LocalEndpoint | ActiveHostEndpoint | ActivePolicy | ActiveProfile
"""A part of a state that can be closed alone. One that has changed is another part."""

_KINDS_WITH_RULES = frozenset((*(each.value for each in PolicyKind), "Profile"))

_MAX_SHARED = 50_000

T = TypeVar("T")
P = TypeVar("P", LocalEndpoint, ActiveHostEndpoint, ActivePolicy, ActiveProfile)


def name_of(part: Part) -> str:
    """The object that a part was made of, for people."""
    match part:
        case LocalEndpoint():
            return f"WorkloadEndpoint {part.id}"
        case ActiveHostEndpoint():
            return f"HostEndpoint {part.name}"
        case ActivePolicy():
            return str(part.id)
        case ActiveProfile():
            return f"Profile {part.name}"
        case _:
            assert_never(part)


@frozen(kw_only=True)
class ProblemCounts:
    """How many rules and settings of policies could not be converted, and how many addresses several workloads have."""

    unconvertible: int = 0
    shared_addresses: int = 0


def count_problems(problems: Iterable[PolicyProblem]) -> ProblemCounts:
    """The problems of a state, by sort. The subject of one is an address, or an object with its kind."""
    sorts = [each.subject.partition(" ") for each in problems]
    unconvertible = sum(kind in _KINDS_WITH_RULES for kind, _, _ in sorts)
    return ProblemCounts(unconvertible=unconvertible, shared_addresses=sum(not space for _, space, _ in sorts))


def find_network_profiles(state: PolicyState, workloads: Iterable[WorkloadEndpoint]) -> tuple[Profile, ...]:
    """The profiles of networks that workloads of the node name and that do not exist: they are to be created.

    Profiles of namespaces and service accounts are the orchestrator's.
    """
    others = (NAMESPACE_PROFILE_PREFIX, SERVICE_ACCOUNT_PROFILE_PREFIX)
    missing = [each.name for each in state.profiles if each.is_missing and not each.name.startswith(others)]
    if not missing:
        return ()
    orchestrated = {
        name for each in workloads if each.spec.orchestrator == KUBERNETES_ORCHESTRATOR for name in each.spec.profiles
    }
    return tuple(
        Profile(metadata=Metadata(name=name), spec=network_spec(name, is_orchestrated=name in orchestrated))
        for name in missing
    )


@define(eq=False)
class KeptEndpoints:
    """What a node keeps of endpoints: of those of other nodes, what policies see; equal texts and labels once.

    In a large cluster these are most of what the objects of policy take. ``find_node`` is the name of the node; None:
    it is not known yet, and all is kept.
    """

    find_node: Callable[[], str | None]
    _shared: dict[object, object] = field(factory=dict, init=False)

    def keep(self, value: object) -> object:
        """What is kept of an object; of one of another kind, all."""
        if not isinstance(value, WorkloadEndpoint):
            return value
        if len(self._shared) > _MAX_SHARED:
            self._shared.clear()
        metadata, spec, node = value.metadata, value.spec, self.find_node()
        labels = tuple(map(self._share, metadata.labels))
        profiles = self._share(tuple(map(self._share, spec.profiles)))
        if node is None or spec.node == node:
            return evolve(
                value, metadata=evolve(metadata, labels=self._share(labels)), spec=evolve(spec, profiles=profiles)
            )
        return WorkloadEndpoint(
            metadata=Metadata(
                name=metadata.name, namespace=self._share(metadata.namespace), labels=self._share(labels)
            ),
            spec=WorkloadEndpointSpec(
                orchestrator=self._share(spec.orchestrator),
                node=self._share(spec.node),
                endpoint=self._share(spec.endpoint),
                addresses=spec.addresses,
                profiles=profiles,
                ports=self._share(spec.ports),
            ),
        )

    def _share(self, value: T) -> T:
        """The first value that was equal to this one."""
        return narrow(self._shared.setdefault(value, value), type(value))


# --- closed parts -----------------------------------------------------------------------------------------------------


def close_parts(state: PolicyState, closed: AbstractSet[Part]) -> PolicyState:
    """A state in which some parts let nothing pass; those that are not in the state have no effect."""
    if not closed:
        return state
    return evolve(
        state,
        policies=_closed(state.policies, closed, closed_policy),
        profiles=_closed(state.profiles, closed, lambda each: ActiveProfile(name=each.name)),
        endpoints=_closed(state.endpoints, closed, closed_endpoint),
        host_endpoints=_closed(state.host_endpoints, closed, _closed_host),
    )


def _closed(parts: Iterable[P], closed: AbstractSet[Part], close: Callable[[P], P]) -> tuple[P, ...]:
    return tuple(close(each) if each in closed else each for each in parts)


def _closed_host(host: ActiveHostEndpoint) -> ActiveHostEndpoint:
    """Only the failsafe ports are open."""
    return ActiveHostEndpoint(name=host.name, interface=host.interface)


def keep_closed(state: PolicyState, closed: frozenset[Part]) -> frozenset[Part]:
    """The closed parts that the state still has so."""
    return closed.intersection(_parts(state)) if closed else closed


def find_changed_parts(state: PolicyState, applied: PolicyState) -> tuple[Part, ...]:
    """The parts of a state that the one which was applied last does not have so."""
    before = frozenset(_parts(applied))
    return tuple(each for each in _parts(state) if each not in before)


def _parts(state: PolicyState) -> Iterator[Part]:
    yield from state.policies
    yield from state.profiles
    yield from state.host_endpoints
    yield from state.endpoints


def isolate(
    candidates: tuple[Part, ...], closed: frozenset[Part], does_accept: Callable[[frozenset[Part]], bool]
) -> frozenset[Part] | None:
    """Which parts have to be closed, of the candidates and those that are closed already; None: closing does not help.

    ``does_accept`` tries to program the state with these parts closed. Its last call is that of the answer.
    """
    every = closed.union(candidates)
    if not does_accept(every):
        return None
    left = every
    is_last_accepted = True
    groups = [candidates] if candidates else []
    while groups:
        group = groups.pop()
        is_last_accepted = does_accept(left.difference(group))
        if is_last_accepted:
            left = left.difference(group)
        elif len(group) > 1:
            middle = len(group) // 2
            groups += (group[middle:], group[:middle])
    return left if is_last_accepted or does_accept(left) else None


# --- what was programmed ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class ProgrammingFacts:
    """What is known beside the state that the kernel has acknowledged.

    ``up`` are the interfaces that are there and up, ``attached`` those that this process has attached, with the
    container of each, and ``closed`` the parts of the state that are closed in the kernel.
    """

    up: AbstractSet[str] = frozenset()
    attached: Mapping[str, str] = field(factory=dict)
    closed: AbstractSet[Part] = frozenset()


def find_programmed(applied: PolicyState, facts: ProgrammingFacts) -> Iterator[LocalEndpoint]:
    """The endpoints of a state that the kernel has acknowledged, for which policy is programmed.

    That is so for one whose container and addresses are known, and of which nothing is closed. Where this process has
    attached the interface for another container, the endpoint is that of before.
    """
    closed_policies = {each.id for each in facts.closed if isinstance(each, ActivePolicy)}
    closed_profiles = {each.name for each in facts.closed if isinstance(each, ActiveProfile)}
    for each in applied.endpoints:
        container = each.container_id
        is_whole = (
            each not in facts.closed
            and closed_policies.isdisjoint((*each.ingress, *each.egress))
            and closed_profiles.isdisjoint(each.profiles)
        )
        is_own = facts.attached.get(each.interface, container) == container
        if container and each.addresses and is_whole and is_own and each.interface in facts.up:
            yield each


def find_lost_addresses(
    former: Iterable[NamedSet], wanted: Iterable[NamedSet], before: PolicyState, after: PolicyState
) -> frozenset[Address]:
    """The addresses that an interface or a container loses: connections of these are forgotten.

    ``former`` and ``wanted`` are the sets of the table before and after a change.
    """
    lost = find_guarded(former) - find_guarded(wanted)
    containers = {each.id: each.container_id for each in after.endpoints}
    replaced = (each for each in before.endpoints if each.container_id and containers.get(each.id) != each.container_id)
    return frozenset((*(address for _, address in lost), *(one for each in replaced for one in each.addresses)))
