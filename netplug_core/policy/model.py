"""What a node enforces on packets, as values: the result of the calculation, and what the dataplane renders.

``resolve`` makes a :class:`PolicyState` from all objects at once, ``index`` makes :class:`PolicyDelta` values from
changes, and ``evaluate`` judges a :class:`Packet` by a state. ``dataplane.filter`` renders states and deltas. Nothing
here knows tables, chains or rules of a kernel. Both families stand in every value.

Names of selectors, namespaces and labels are resolved: a rule compares addresses, ports and protocols, with literals
or with sets of members (:class:`MemberSet`). What cannot be resolved is already left out, so that it denies.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NewType, TypeAlias, TypeVar

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import InvariantBroken
from netplug_core.resources.fields import PortRange
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.nodeconfiguration import DenyAction, EndpointToHostAction

__all__ = [
    "ALL_INTERFACES", "DEFAULT_INBOUND_FAILSAFES", "DEFAULT_OUTBOUND_FAILSAFES", "ICMP", "ICMP_V6", "PORT_PROTOCOLS",
    "SCTP", "TCP", "UDP", "Action", "ActiveHostEndpoint", "ActivePolicy", "ActiveProfile", "ConnectionState",
    "Decision", "DenyAction", "Direction", "EndpointId", "Failsafe", "ICMPMatch", "LocalEndpoint", "Match", "Member",
    "MemberChange", "MemberSet", "Packet", "PeerMatch", "PolicyDelta", "PolicyId", "PolicyKind", "PolicyProblem",
    "PolicySettings", "PolicyState", "PortMember", "Reason", "Rule", "SetId", "SetType", "TraceStep", "Verdict",
    "set_id",
]  # fmt: skip

ICMP: Final = 1
TCP: Final = 6
UDP: Final = 17
ICMP_V6: Final = 58
SCTP: Final = 132

PORT_PROTOCOLS: Final = {"TCP": TCP, "UDP": UDP, "SCTP": SCTP}
"""The numbers of the protocols that have ports, by their names."""

ALL_INTERFACES: Final = "*"
"""The interface of a host endpoint that stands for every interface but those of workloads and the loopback one."""

_ID_DIGITS: Final = 16


# --- sets -------------------------------------------------------------------------------------------------------------


SetId = NewType("SetId", str)
"""16 hexadecimal digits of a hash of what a set means. One id always has one meaning and one type."""


def set_id(meaning: str) -> SetId:
    """The id of the set with a meaning, such as the canonical text of a selector."""
    return SetId(hashlib.sha256(meaning.encode(errors="surrogatepass")).hexdigest()[:_ID_DIGITS])


class SetType(enum.Enum):
    """What the members of a set are.

    ``ADDRESSES``: an :class:`Address` each. ``PREFIXES``: a :class:`Prefix` each, none of which overlaps another (an
    address is a /32 or a /128). ``PORTS``: a :class:`PortMember` each.
    """

    ADDRESSES = "addresses"
    PREFIXES = "prefixes"
    PORTS = "ports"


@frozen(order=True)
class PortMember:
    """A port with a name, at one address: what a rule matches by the name. ``protocol`` is a number."""

    address: Address
    protocol: int
    port: int


Member: TypeAlias = Address | Prefix | PortMember
"""A member of a set; those of both families are in one set."""


@frozen(kw_only=True)
class MemberSet:
    """A set that a rule of an active policy or profile uses. It may be empty: then it contains no packet.

    Rules keep their set while its members change. If its meaning changes, the rules use a set with another id.
    """

    id: SetId
    type: SetType
    members: frozenset[Member] = frozenset()


@frozen(kw_only=True)
class MemberChange:
    """Members that a set has got and lost. ``added`` and ``removed`` have none in common."""

    id: SetId
    added: frozenset[Member] = frozenset()
    removed: frozenset[Member] = frozenset()


# --- rules ------------------------------------------------------------------------------------------------------------


class Action(enum.Enum):
    """What a rule does with a packet that it matches; after ``LOG`` the next rule is looked at."""

    ALLOW = "Allow"
    DENY = "Deny"
    LOG = "Log"


@frozen(kw_only=True)
class ICMPMatch:
    """The type of an ICMP message, and its code unless that is None."""

    type: int
    code: int | None = None


@frozen(kw_only=True)
class PeerMatch:
    """What one end of a packet has to be. All members have to hold; an empty one restricts nothing.

    ``sets``: the address is in each of them. ``not_sets``: it is in none. ``prefixes``: it is in one of them;
    ``not_prefixes``: in none. Prefixes are sorted, and none overlaps another. ``ports``: the port is in one of these
    ranges; ``not_ports``: in none. ``port_set``: address, protocol and port are a member of it; ``not_port_sets``: of
    none of them. ``sets`` and ``not_sets`` are of the types ADDRESSES and PREFIXES, port sets of the type PORTS.
    """

    sets: tuple[SetId, ...] = ()
    not_sets: tuple[SetId, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    not_prefixes: tuple[Prefix, ...] = ()
    ports: tuple[PortRange, ...] = ()
    not_ports: tuple[PortRange, ...] = ()
    port_set: SetId | None = None
    not_port_sets: tuple[SetId, ...] = ()

    @property
    def set_ids(self) -> tuple[SetId, ...]:
        """All sets that it looks into."""
        own = () if self.port_set is None else (self.port_set,)
        return (*self.sets, *self.not_sets, *own, *self.not_port_sets)


@frozen(kw_only=True)
class Match:
    """A conjunction of conditions on a packet. A condition that is None or empty restricts nothing.

    ``family`` None: packets of both families. It is given where a prefix or an ICMP type is, so all prefixes of one
    match are of its family. Ports are given only with a ``protocol`` that has some, ICMP types only with ICMP (1, and
    IPv4) or ICMPv6 (58, and IPv6).
    """

    family: Family | None = None
    protocol: int | None = None
    not_protocol: int | None = None
    icmp: ICMPMatch | None = None
    not_icmp: ICMPMatch | None = None
    source: PeerMatch = PeerMatch()
    destination: PeerMatch = PeerMatch()

    @property
    def set_ids(self) -> tuple[SetId, ...]:
        """All sets that it looks into."""
        return (*self.source.set_ids, *self.destination.set_ids)


@frozen(kw_only=True)
class Rule:
    """What happens to a packet that one of the matches holds for; with no match the rule holds for no packet.

    A rule of a user may need several matches: one for each family with prefixes, and one for each named port. Matches
    of a ``LOG`` rule exclude each other, so that a packet is logged once. ``name`` is for traces, logs and comments:
    ``kind namespace/name #index`` (without the namespace if the kind has none). ``index`` counts as the user wrote the
    rules of the direction, from 0: a rule that could not be converted leaves a gap.
    """

    name: str
    action: Action
    matches: tuple[Match, ...]

    @property
    def set_ids(self) -> frozenset[SetId]:
        """All sets that it looks into."""
        return frozenset(each for match in self.matches for each in match.set_ids)


# --- policies and profiles --------------------------------------------------------------------------------------------


class PolicyKind(enum.Enum):
    """The kind of a policy, as it is shown."""

    NETWORK_POLICY = "NetworkPolicy"
    GLOBAL_NETWORK_POLICY = "GlobalNetworkPolicy"
    KUBERNETES_NETWORK_POLICY = "KubernetesNetworkPolicy"


@frozen(order=True)
class PolicyId:
    """The identity of a policy; ``namespace`` is empty if the kind has none."""

    kind: PolicyKind = field(order=lambda kind: kind.value)
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.value} {self.name}"


@frozen(kw_only=True)
class ActivePolicy:
    """A policy that applies to an endpoint of this node. Its rules are tried in order.

    The first rule of the direction that matches with ``ALLOW`` or ``DENY`` decides; if none does, the endpoint's next
    policy is tried.
    """

    id: PolicyId
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] = ()

    @property
    def set_ids(self) -> frozenset[SetId]:
        """All sets that its rules look into."""
        return frozenset(each for rule in (*self.ingress, *self.egress) for each in rule.set_ids)


@frozen(kw_only=True)
class ActiveProfile:
    """A profile that an endpoint of this node names.

    A profile that does not exist is here too (``is_missing``), with rules that deny everything.
    """

    name: str
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] = ()
    is_missing: bool = False

    @property
    def set_ids(self) -> frozenset[SetId]:
        """All sets that its rules look into."""
        return frozenset(each for rule in (*self.ingress, *self.egress) for each in rule.set_ids)


# --- endpoints --------------------------------------------------------------------------------------------------------


@frozen(order=True)
class EndpointId:
    """The identity of a workload endpoint: namespace and name of its resource."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@frozen(kw_only=True)
class LocalEndpoint:
    """A workload endpoint of this node that has an interface. No two of a state have the same interface.

    It may send from ``addresses`` and ``source_prefixes`` only, and only packets to these may be forwarded to it.
    ``ingress`` and ``egress`` are the policies that apply in a direction, in the order in which they are tried; if
    they are tried and none decides, the packet is denied. If there are none, ``profiles`` (names) are tried in order,
    in the same way. ``is_ingress_policed`` and ``is_egress_policed`` say which of the two it is.
    ``container_id`` is the container that it was resolved for; the status file says it.
    """

    id: EndpointId
    container_id: str = ""
    interface: str
    mac: str = ""
    addresses: tuple[Address, ...] = ()
    source_prefixes: tuple[Prefix, ...] = ()
    ingress: tuple[PolicyId, ...] = ()
    egress: tuple[PolicyId, ...] = ()
    profiles: tuple[str, ...] = ()

    @property
    def is_ingress_policed(self) -> bool:
        """Whether policies, not profiles, decide about packets to it."""
        return bool(self.ingress)

    @property
    def is_egress_policed(self) -> bool:
        """Whether policies, not profiles, decide about packets from it."""
        return bool(self.egress)


@frozen(kw_only=True)
class ActiveHostEndpoint:
    """The host endpoint that governs an interface of this node, or ``*`` all that have none of their own.

    No two of a state have the same ``interface``. ``ingress`` applies to packets for the host's own processes,
    ``egress`` to packets of these; forwarded packets are not judged. Policies and profiles decide as for workloads,
    after the failsafe ports of the settings. With neither, only failsafe ports are open.
    """

    name: str
    interface: str
    ingress: tuple[PolicyId, ...] = ()
    egress: tuple[PolicyId, ...] = ()
    profiles: tuple[str, ...] = ()


# --- settings ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Failsafe:
    """A port that host endpoints always leave open. ``protocol`` is a number.

    ``net`` is where the other end has to be; None: anywhere, in both families.
    """

    protocol: int
    port: int
    net: Prefix | None = None


DEFAULT_INBOUND_FAILSAFES: Final = (
    *(Failsafe(protocol=TCP, port=port) for port in (22, 179, 2379, 2380, 6443, 6666, 6667)),
    Failsafe(protocol=UDP, port=68),
)
"""The failsafe ports of the host unless the configuration says otherwise."""

DEFAULT_OUTBOUND_FAILSAFES: Final = (
    *(Failsafe(protocol=TCP, port=port) for port in (179, 2379, 2380, 6443, 6666, 6667)),
    *(Failsafe(protocol=UDP, port=port) for port in (53, 67)),
)
"""The failsafe ports to which the host may always connect, unless the configuration says otherwise."""


@frozen(kw_only=True)
class PolicySettings:
    """The settings of the node that have an effect on packets, with every default filled in.

    ``interface_prefix`` is what the names of workloads' interfaces begin with; several have commas between.
    ``is_invalid_evaluated``: packets that connection tracking calls invalid are judged as new ones; else they are
    dropped. ``allows_vxlan`` and ``allows_ipip``: whether workloads may send VXLAN packets (UDP, ``vxlan_port``) and
    IPIP packets (protocol 4). ``allows_source_prefixes``: whether the source prefixes of endpoints count; those that do
    not are not in the state. ``log_rate`` is empty for no limit.
    """

    interface_prefix: str = "netp"
    endpoint_to_host: EndpointToHostAction = EndpointToHostAction.DROP
    inbound_failsafes: tuple[Failsafe, ...] = DEFAULT_INBOUND_FAILSAFES
    outbound_failsafes: tuple[Failsafe, ...] = DEFAULT_OUTBOUND_FAILSAFES
    deny_action: DenyAction = DenyAction.DROP
    is_invalid_evaluated: bool = False
    vxlan_port: int = 4789
    allows_vxlan: bool = False
    allows_ipip: bool = False
    allows_source_prefixes: bool = False
    log_prefix: str = "netplug-packet"
    log_rate: str = ""
    log_burst: int = 5


# --- state and delta --------------------------------------------------------------------------------------------------


@frozen(order=True)
class PolicyProblem:
    """Something that is left out, and what of it: ``subject`` names the object, as in ``NetworkPolicy x/a #0``."""

    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@frozen(kw_only=True)
class PolicyState:
    """All that a node enforces. Every tuple is sorted by identity, so equal states are equal values.

    Whatever an endpoint or a rule names is in the state: policies, profiles and sets. Nothing else is.
    """

    settings: PolicySettings = PolicySettings()
    policies: tuple[ActivePolicy, ...] = ()
    profiles: tuple[ActiveProfile, ...] = ()
    sets: tuple[MemberSet, ...] = ()
    endpoints: tuple[LocalEndpoint, ...] = ()
    host_endpoints: tuple[ActiveHostEndpoint, ...] = ()
    problems: tuple[PolicyProblem, ...] = ()


@frozen(kw_only=True)
class PolicyDelta:
    """What has changed from one state to a later one; every tuple is sorted by identity.

    ``settings`` and ``problems`` are the new ones, None if they have not changed. ``policies``, ``profiles``,
    ``endpoints`` and ``host_endpoints`` have the new and the changed ones, whole. ``sets`` has the new ones with all
    members, ``member_changes`` the changes of those that existed. An identity is in at most one of them. Nothing that
    the later state names is removed.
    """

    settings: PolicySettings | None = None
    policies: tuple[ActivePolicy, ...] = ()
    removed_policies: tuple[PolicyId, ...] = ()
    profiles: tuple[ActiveProfile, ...] = ()
    removed_profiles: tuple[str, ...] = ()
    sets: tuple[MemberSet, ...] = ()
    member_changes: tuple[MemberChange, ...] = ()
    removed_sets: tuple[SetId, ...] = ()
    endpoints: tuple[LocalEndpoint, ...] = ()
    removed_endpoints: tuple[EndpointId, ...] = ()
    host_endpoints: tuple[ActiveHostEndpoint, ...] = ()
    removed_host_endpoints: tuple[str, ...] = ()
    problems: tuple[PolicyProblem, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return self == PolicyDelta()

    def apply_to(self, state: PolicyState) -> PolicyState:
        """The state after the change.

        Raises:
            InvariantBroken: the change is not one of this state: what it removes or changes is not there.
        """
        return PolicyState(
            settings=state.settings if self.settings is None else self.settings,
            policies=_merged(
                {each.id: each for each in state.policies},
                self.removed_policies,
                {each.id: each for each in self.policies},
            ),
            profiles=_merged(_by_name(state.profiles), self.removed_profiles, _by_name(self.profiles)),
            sets=_changed_sets(state.sets, self),
            endpoints=_merged(
                {each.id: each for each in state.endpoints},
                self.removed_endpoints,
                {each.id: each for each in self.endpoints},
            ),
            host_endpoints=_merged(
                _by_name(state.host_endpoints), self.removed_host_endpoints, _by_name(self.host_endpoints)
            ),
            problems=state.problems if self.problems is None else self.problems,
        )


K = TypeVar("K", PolicyId, EndpointId, str)
V = TypeVar("V")
N = TypeVar("N", ActiveProfile, ActiveHostEndpoint)


def _by_name(values: Iterable[N]) -> dict[str, N]:
    return {each.name: each for each in values}


def _merged(before: dict[K, V], removed: Iterable[K], changed: Mapping[K, V]) -> tuple[V, ...]:
    """The values after a change, sorted by identity."""
    for each in removed:
        if before.pop(each, None) is None:
            raise InvariantBroken(f"{each} is removed from a policy state that does not have it")
    before.update(changed)
    return tuple(before[each] for each in sorted(before))


def _changed_sets(before: Iterable[MemberSet], delta: PolicyDelta) -> tuple[MemberSet, ...]:
    sets: dict[str, MemberSet] = {each.id: each for each in before}
    changed: dict[str, MemberSet] = {each.id: each for each in delta.sets}
    for change in delta.member_changes:
        former = sets.get(change.id)
        if former is None or not change.removed <= former.members or change.added & former.members:
            raise InvariantBroken(f"a change of the set {change.id} is not one of its members")
        changed[change.id] = evolve(former, members=(former.members - change.removed) | change.added)
    return _merged(sets, delta.removed_sets, changed)


# --- packets and verdicts ---------------------------------------------------------------------------------------------


class ConnectionState(enum.Enum):
    """What connection tracking says of a packet."""

    NEW = "new"
    ESTABLISHED = "established"
    RELATED = "related"
    INVALID = "invalid"
    UNTRACKED = "untracked"


@frozen(kw_only=True)
class Packet:
    """A packet as the filter hooks see it: after destination NAT, and before source NAT.

    ``input_interface`` is empty for a packet that a process of the node sends, ``output_interface`` for one that such a
    process receives. Ports count with TCP, UDP and SCTP only, type and code with ICMP and ICMPv6 only.
    """

    source: Address
    destination: Address
    protocol: int = TCP
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    input_interface: str = ""
    output_interface: str = ""
    connection: ConnectionState = ConnectionState.NEW


class Decision(enum.Enum):
    """What becomes of a packet. ``DENY`` is done as the settings say (:class:`DenyAction`), ``DROP`` without answer."""

    ALLOW = "allow"
    DENY = "deny"
    DROP = "drop"


class Reason(enum.Enum):
    """Why a step decides, or does not."""

    RULE = "the rule matches"
    LOG_RULE = "the rule matches and logs"
    NO_RULE = "policies apply, and none of their rules matches"
    NO_PROFILE_RULE = "no policy applies, and no rule of a profile matches"
    MISSING_PROFILE = "no policy applies, and the profile does not exist"
    SPOOFED_SOURCE = "the endpoint may not send from this address"
    UNKNOWN_INTERFACE = "no endpoint is known on the interface"
    OTHER_DESTINATION = "the address is not one of the endpoint on the interface"
    CONNECTION_ALLOWED = "the connection is established, or related to one"
    CONNECTION_INVALID = "connection tracking calls the packet invalid"
    NEIGHBOUR_DISCOVERY = "neighbour discovery and multicast listener messages are not judged"
    WRAPPED = "workloads may not send tunnel packets"
    FAILSAFE = "it is a failsafe port"
    SELF = "an endpoint always reaches itself"
    ENDPOINT_TO_HOST = "the setting for packets of workloads to their host decides"
    FROM_HOST = "the node always reaches its own workloads"
    LOOPBACK = "packets of the loopback interface are not judged"
    NOT_JUDGED = "no endpoint of this node is at either end"


@frozen(kw_only=True)
class TraceStep:
    """One step of an evaluation. ``decision`` is None where the evaluation goes on.

    ``endpoint`` names the endpoint, or the interface where none is known; ``rule`` is the name of a rule. Both may be
    empty. ``decision`` ALLOW of a step ends its direction only: what another endpoint has to say comes after it.
    """

    reason: Reason
    decision: Decision | None = None
    direction: Direction | None = None
    endpoint: str = ""
    rule: str = ""


@frozen(kw_only=True)
class Verdict:
    """What becomes of a packet, and every step that led there; the last step has the reason."""

    decision: Decision
    trace: tuple[TraceStep, ...]
