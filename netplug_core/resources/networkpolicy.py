"""The kinds NetworkPolicy and GlobalNetworkPolicy, and the sets of addresses that their rules select.

A policy says for which endpoints it is, in which directions, and what happens to their packets (``policyrule``). The
NetworkPolicy of Kubernetes is another kind, which netplug only reads (``netplug_core.orchestrator.networkpolicy``).

A set is selected as an endpoint is: a NetworkSet is in its namespace, a GlobalNetworkSet in none.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator
from typing import Final, TypeAlias

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import BOOLEAN, NONEMPTY_TEXT, PREFIX, TEXT, Codec, Refused
from netplug_core.decoding.tables import Keeps, ListOf, collect_unknown, find_unknown, items_of, json_object, member
from netplug_core.records import Kind
from netplug_core.resources.fields import ENVELOPE, FieldError, Metadata
from netplug_core.resources.policyrule import (
    MAX_RULES,
    RULE_SELECTOR,
    PolicyRule,
    enforced_rules,
    validate_endpoint_selector,
    validate_rules,
)

__all__ = [
    "COPIED_POLICY_PREFIX", "DEFAULT_TIER", "GLOBAL_NETWORK_POLICY", "GLOBAL_NETWORK_SET", "MAX_NETS", "NETWORK_POLICY",
    "NETWORK_SET", "Direction", "GlobalNetworkPolicy", "GlobalNetworkPolicySpec", "GlobalNetworkSet", "NetworkPolicy",
    "NetworkPolicySpec", "NetworkSet", "NetworkSetSpec", "Policy", "SetOfNetworks", "validate_network_set",
    "validate_policy",
]  # fmt: skip


# --- values of members ------------------------------------------------------------------------------------------------


class Direction(enum.Enum):
    """Which packets of an endpoint: those to it, or those from it."""

    INGRESS = "Ingress"
    EGRESS = "Egress"

    @property
    def member(self) -> str:
        """The member of a policy or a profile that holds its rules for them."""
        return self.value.lower()


DEFAULT_TIER: Final = "default"
"""The one tier of this release."""


def _read_tier(value: object) -> str:
    if value != DEFAULT_TIER:
        raise Refused(DEFAULT_TIER, reason="there is one tier")
    return DEFAULT_TIER


_TIER: Final = Codec(_read_tier, decode_stored=NONEMPTY_TEXT.decode, schema={"type": "string", "enum": [DEFAULT_TIER]})


def _only_false(reason: str) -> Codec[bool]:
    """True or false, of which users may write false."""

    def decode(value: object) -> bool:
        found = BOOLEAN.decode(value)
        if found:
            raise Refused("false", reason=reason)
        return found

    return Codec(decode, decode_stored=BOOLEAN.decode, schema={"type": "boolean", "enum": [False]})


def _read_order(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused("a number")
    return float(value)


def _write_order(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_ORDER: Final = Codec(_read_order, _write_order, schema={"type": "number"})


# --- the values -------------------------------------------------------------------------------------------------------


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class NetworkPolicySpec:
    """For which endpoints of its namespace a policy is, and its rules. An endpoint is tried in the order of ``order``.

    ``order`` None is the last. ``tier`` is another one than ``default`` only in a stored policy of a newer release.
    """

    # fmt: off
    tier: str = field(default=DEFAULT_TIER, metadata=member("tier", _TIER, "the tier; there is only default"))
    order: float | None = field(default=None, metadata=member("order", _ORDER,
        "policies with a lower number are tried first; without one, last"))
    selector: str = field(default="", metadata=member("selector", RULE_SELECTOR,
        "the endpoints that the policy is for, by their labels; all of them unless given"))
    service_account_selector: str = field(default="", metadata=member("serviceAccountSelector", RULE_SELECTOR,
        "the endpoints that the policy is for, by the labels of their pod's service account; all of them unless given"))
    types: tuple[Direction, ...] = field(default=(), metadata=member("types", ListOf(Direction),
        "Ingress for packets to the endpoints, Egress for packets from them; if not given, those that have rules, and "
        "Ingress if there are none", limits={"maxItems": 2}))
    ingress: tuple[PolicyRule, ...] = field(default=(), metadata=member("ingress", ListOf(PolicyRule),
        "rules for packets to the endpoints, in order; the first Allow or Deny decides, and without one Deny",
        limits={"maxItems": MAX_RULES}))
    egress: tuple[PolicyRule, ...] = field(default=(), metadata=member("egress", ListOf(PolicyRule),
        "rules for packets from the endpoints, in order; the first Allow or Deny decides, and without one Deny",
        limits={"maxItems": MAX_RULES}))
    # fmt: on
    unknown_json: str = ""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that the policy is for; both if those that are stored cannot be read."""
        if self.types:
            return tuple(direction for direction in Direction if direction in self.types)
        unreadable = find_unknown(self)
        if "types" in unreadable:
            return tuple(Direction)
        if not (self.egress or "egress" in unreadable):
            return (Direction.INGRESS,)
        return tuple(Direction) if self.ingress or "ingress" in unreadable else (Direction.EGRESS,)

    @property
    def is_enforced(self) -> bool:
        """Whether the policy counts at all: a global one does not, if it is for another hook alone."""
        return True

    @property
    def is_undecided(self) -> bool:
        """Whether it cannot be read which endpoints the policy is for, or which policies are tried before it."""
        return bool(find_unknown(self) & _DECISIVE)

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths in the spec of what this release does not know of a stored policy, or cannot read."""
        return self._not_supported

    @property
    def _not_supported(self) -> tuple[str, ...]:
        own = tuple(path for path in collect_unknown(self) if not path.startswith(("ingress[", "egress[")))
        tier = () if self.tier == DEFAULT_TIER else ("tier",)
        of_rules = (
            f"{name}[{position}].{path}"
            for name, rules in (("ingress", self.ingress), ("egress", self.egress))
            for position, rule in enumerate(rules)
            for path in rule.not_supported
        )
        return (*tier, *own, *of_rules)

    def rules(self, direction: Direction) -> tuple[tuple[int, PolicyRule], ...]:
        """The rules of a direction that count, each with its position; they never allow more than what is stored."""
        rules = self.ingress if direction is Direction.INGRESS else self.egress
        return enforced_rules(rules, is_readable=direction.member not in find_unknown(self))


_DECISIVE: Final = frozenset({"selector", "namespaceSelector", "serviceAccountSelector", "order"})
_OTHER_HOOKS: Final = frozenset({"doNotTrack", "preDNAT"})


_UNTRACKED: Final = "policies that count before connections are tracked are not supported"
_BEFORE_DNAT: Final = "policies that count before destinations are translated are not supported"
_ON_FORWARD: Final = "policies for packets that hosts forward are not supported"


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class GlobalNetworkPolicySpec(NetworkPolicySpec):
    """The same for endpoints of all namespaces and of hosts.

    The last three members are true only in a stored policy of a newer release. With ``is_on_forward`` it is also for
    packets that hosts forward, which this release does not judge; with the other two for nothing that it judges.
    """

    # fmt: off
    namespace_selector: str = field(default="", metadata=member("namespaceSelector", RULE_SELECTOR,
        "the endpoints that the policy is for, by the labels of their namespace; all of them unless given, also those "
        "of hosts"))
    is_untracked: bool = field(default=False, metadata=member("doNotTrack", _only_false(_UNTRACKED),
        "not supported; only false"))
    is_before_dnat: bool = field(default=False, metadata=member("preDNAT", _only_false(_BEFORE_DNAT),
        "not supported; only false"))
    is_on_forward: bool = field(default=False, metadata=member("applyOnForward", _only_false(_ON_FORWARD),
        "not supported; only false"))
    # fmt: on

    @property
    def hooks(self) -> tuple[str, ...]:
        """The members that say that the policy is for packets which this release does not judge."""
        given = (
            ("doNotTrack", self.is_untracked), ("preDNAT", self.is_before_dnat), ("applyOnForward", self.is_on_forward),
        )  # fmt: skip
        return tuple(name for name, is_set in given if is_set)

    @property
    def is_enforced(self) -> bool:
        """Whether the policy counts at all: not if it is for another hook alone."""
        return not ((find_unknown(self) | set(self.hooks)) & _OTHER_HOOKS)

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths in the spec of what this release does not know of a stored policy, or cannot read."""
        return (*self.hooks, *self._not_supported)


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class NetworkPolicy:
    """A policy for endpoints of its namespace, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NetworkPolicySpec = field(default=NetworkPolicySpec(), metadata=member("spec", NetworkPolicySpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class GlobalNetworkPolicy:
    """A policy for endpoints of all namespaces and of hosts, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: GlobalNetworkPolicySpec = field(default=GlobalNetworkPolicySpec(), metadata=member("spec",
        GlobalNetworkPolicySpec, is_always_written=True))
    # fmt: on
    unknown_json: str = ""


COPIED_POLICY_PREFIX: Final = "knp.default."
"""What the names of those policies begin with that are copies of policies of Kubernetes."""

Policy: TypeAlias = NetworkPolicy | GlobalNetworkPolicy

NETWORK_POLICY: Kind[NetworkPolicy] = Kind("NetworkPolicy", ("namespace", "name"))
GLOBAL_NETWORK_POLICY: Kind[GlobalNetworkPolicy] = Kind("GlobalNetworkPolicy", ("name",))


# --- rules ------------------------------------------------------------------------------------------------------------


def validate_policy(policy: Policy) -> Iterator[FieldError]:
    """What is wrong with a policy by itself."""
    spec = policy.spec
    for position, direction in enumerate(spec.types):
        if direction in spec.types[:position]:
            yield FieldError(f"spec.types[{position}]", direction.value, "is given twice")
    yield from validate_endpoint_selector("spec.selector", spec.selector)
    yield from validate_endpoint_selector("spec.serviceAccountSelector", spec.service_account_selector)
    if isinstance(spec, GlobalNetworkPolicySpec):
        yield from validate_endpoint_selector("spec.namespaceSelector", spec.namespace_selector)
    yield from validate_rules("spec.ingress", spec.ingress)
    yield from validate_rules("spec.egress", spec.egress)


# --- NetworkSet ------------------------------------------------------------------------------------------------------

MAX_NETS: Final = 10_000


def _read_stored_entry(value: object) -> Prefix | str:
    """An entry of a set, host bits cleared. One that cannot be read is kept as JSON text."""
    try:
        return Prefix.enclosing(TEXT.decode(value))
    except ValueError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _write_entry(entry: object) -> object:
    return json.loads(entry) if isinstance(entry, str) else str(entry)


_NET: Final[Codec[Prefix | str]] = Codec(PREFIX.decode, _write_entry, _read_stored_entry, {"type": "string"})


def _split_entries(values: dict[str, object], _: object) -> dict[str, object]:
    nets, unparsed = items_of(values, "nets", Prefix), items_of(values, "nets", str)
    return {**values, "nets": nets, "unparsed": unparsed}


@json_object(finish=_split_entries)
@frozen(kw_only=True)
class NetworkSetSpec:
    """The addresses of a set, of both families.

    ``unparsed`` holds the stored entries that cannot be read, each as canonical JSON text. They are no members, and are
    written back unchanged.
    """

    # fmt: off
    nets: tuple[Prefix, ...] = field(default=(), metadata=member("nets", ListOf(_NET),
        "prefixes and addresses, of both families", limits={"maxItems": MAX_NETS}, written="entries"))
    # fmt: on
    unparsed: tuple[str, ...] = ()
    unknown_json: str = ""

    @property
    def entries(self) -> tuple[Prefix | str, ...]:
        """Every entry of the list: the prefixes, and the texts that cannot be read."""
        return (*self.nets, *self.unparsed)

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths in the spec of what this release does not know of a stored set, or cannot read."""
        return (*sorted(find_unknown(self)), *(("nets",) if self.unparsed else ()))


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class NetworkSet:
    """A set of a namespace, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NetworkSetSpec = field(default=NetworkSetSpec(), metadata=member("spec", NetworkSetSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


@json_object(ignored=ENVELOPE)
@frozen(kw_only=True)
class GlobalNetworkSet:
    """A set of no namespace, as it is stored."""

    # fmt: off
    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NetworkSetSpec = field(default=NetworkSetSpec(), metadata=member("spec", NetworkSetSpec,
        is_always_written=True))
    # fmt: on
    unknown_json: str = ""


SetOfNetworks: TypeAlias = NetworkSet | GlobalNetworkSet

NETWORK_SET: Kind[NetworkSet] = Kind("NetworkSet", ("namespace", "name"))
GLOBAL_NETWORK_SET: Kind[GlobalNetworkSet] = Kind("GlobalNetworkSet", ("name",))


def validate_network_set(found: SetOfNetworks) -> Iterator[FieldError]:
    """What is wrong with a set by itself."""
    if len(found.spec.nets) > MAX_NETS:
        yield FieldError("spec.nets", len(found.spec.nets), f"must be at most {MAX_NETS} prefixes")
