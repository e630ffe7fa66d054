"""The NetworkPolicy of Kubernetes (networking.k8s.io/v1), as a value that is only read.

The API server has checked what is in it. A server of a newer release may know more than we do, so nothing is refused:
what is unknown or cannot be read is kept as such, and who converts a policy leaves out what has some of it. A peer, a
port or a rule is whole only if its ``is_readable`` says so; one that is left out allows nothing, and never becomes the
empty list that means everybody.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.codecs import NONEMPTY_TEXT, TEXT, TEXT_MAP, Codec
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    Keeps,
    ListOf,
    collect_unknown,
    document_error,
    find_unknown,
    json_object,
    member,
)
from netplug_core.records import Kind
from netplug_core.resources.fields import PORT, Labels, PortRange
from netplug_core.resources.hostendpoint import PortProtocol
from netplug_core.resources.networkpolicy import Direction
from netplug_core.resources.policyrule import PORT_MATCH, PortMatch

__all__ = [
    "KUBERNETES_NETWORK_POLICY", "IPBlock", "KubernetesNetworkPolicy", "KubernetesNetworkPolicySpec", "LabelOperator",
    "LabelRequirement", "LabelSelector", "PeerEntry", "PortEntry", "RuleEntry", "read_network_policy",
]  # fmt: skip


# --- selectors --------------------------------------------------------------------------------------------------------


class LabelOperator(enum.Enum):
    """How a label is compared with some texts. ``NOT_IN`` also matches what has no such label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@frozen(kw_only=True)
class LabelRequirement:
    """One comparison of a label."""

    key: str = field(metadata=member("key", NONEMPTY_TEXT))
    operator: LabelOperator = field(metadata=member("operator", LabelOperator))
    values: tuple[str, ...] = field(default=(), metadata=member("values", ListOf(TEXT)))
    unknown_json: str = ""


@frozen(kw_only=True)
class LabelSelector:
    """What has all of these labels, and meets all of these requirements; an empty one selects everything."""

    labels: Labels = field(default=(), metadata=member("matchLabels", TEXT_MAP))
    requirements: tuple[LabelRequirement, ...] = field(
        default=(), metadata=member("matchExpressions", ListOf(LabelRequirement))
    )
    unknown_json: str = ""


# --- the rules --------------------------------------------------------------------------------------------------------


_CIDR: Final = Codec(lambda value: Prefix.enclosing(TEXT.decode(value)), str)
"""A prefix. Kubernetes accepts host bits, which mean nothing."""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class IPBlock:
    """Addresses of a prefix, without those of some others. ``prefix`` is None if it cannot be read."""

    prefix: Prefix | None = field(default=None, metadata=member("cidr", _CIDR, is_required=True))
    excepted: tuple[Prefix, ...] = field(default=(), metadata=member("except", ListOf(_CIDR)))
    unknown_json: str = ""


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class PeerEntry:
    """Who the other end is: pods, pods of some namespaces, or addresses."""

    pod_selector: LabelSelector | None = field(default=None, metadata=member("podSelector", LabelSelector))
    namespace_selector: LabelSelector | None = field(default=None, metadata=member("namespaceSelector", LabelSelector))
    ip_block: IPBlock | None = field(default=None, metadata=member("ipBlock", IPBlock))
    unknown_json: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether everything in it is known, and it is either pods or addresses."""
        if collect_unknown(self) or (self.ip_block is not None and self.ip_block.prefix is None):
            return False
        is_pods = self.pod_selector is not None or self.namespace_selector is not None
        return is_pods is not (self.ip_block is not None)


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class PortEntry:
    """A protocol, and its port by number or name, or its ports up to ``end``; without a port, all ports of it."""

    protocol: PortProtocol = field(default=PortProtocol.TCP, metadata=member("protocol", PortProtocol))
    port: PortMatch | None = field(default=None, metadata=member("port", PORT_MATCH))
    end: int | None = field(default=None, metadata=member("endPort", PORT))
    unknown_json: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether everything in it is known, and its last port is not below its first."""
        if collect_unknown(self):
            return False
        return self.end is None or (isinstance(self.port, PortRange) and self.port.first <= self.end)


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class RuleEntry:
    """What is allowed: packets of any of the peers, to any of the ports. An empty list means every peer, every port.

    The peers of a rule for ingress are in ``sources``, those of one for egress in ``destinations``.
    """

    sources: tuple[PeerEntry, ...] = field(default=(), metadata=member("from", ListOf(PeerEntry)))
    destinations: tuple[PeerEntry, ...] = field(default=(), metadata=member("to", ListOf(PeerEntry)))
    ports: tuple[PortEntry, ...] = field(default=(), metadata=member("ports", ListOf(PortEntry)))
    unknown_json: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether its own members are known. If not, the whole rule allows nothing."""
        return not find_unknown(self)


# --- the policy -------------------------------------------------------------------------------------------------------


@json_object(keeps=Keeps.UNREADABLE)
@frozen(kw_only=True)
class KubernetesNetworkPolicySpec:
    """The pods of its namespace that the policy is for, and what it allows them."""

    pods: LabelSelector = field(default=LabelSelector(), metadata=member("podSelector", LabelSelector))
    types: tuple[Direction, ...] = field(default=(), metadata=member("policyTypes", ListOf(Direction)))
    ingress: tuple[RuleEntry, ...] = field(default=(), metadata=member("ingress", ListOf(RuleEntry)))
    egress: tuple[RuleEntry, ...] = field(default=(), metadata=member("egress", ListOf(RuleEntry)))
    unknown_json: str = ""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in which the pods are isolated: those that are listed; both if the list cannot be read.

        Without a list ingress, and egress too if there are rules for it.
        """
        if self.types:
            return tuple(direction for direction in Direction if direction in self.types)
        is_egress = bool(self.egress) or bool(find_unknown(self) & {"policyTypes", Direction.EGRESS.member})
        return tuple(Direction) if is_egress else (Direction.INGRESS,)

    @property
    def is_enforced(self) -> bool:
        """Whether the policy counts at all: not if its pods cannot be read."""
        return not collect_unknown(self.pods) and "podSelector" not in find_unknown(self)

    def rules(self, direction: Direction) -> tuple[RuleEntry, ...]:
        """The rules of a direction, also those that cannot be read."""
        return self.ingress if direction is Direction.INGRESS else self.egress

    @property
    def not_supported(self) -> tuple[str, ...]:
        """The paths in the spec of what this release does not know or cannot read."""
        return collect_unknown(self)


@json_object(is_partial=True)
@frozen(kw_only=True)
class KubernetesNetworkPolicy:
    """One policy of Kubernetes, as far as it matters here."""

    namespace: str = field(metadata=member(("metadata", "namespace"), NONEMPTY_TEXT))
    name: str = field(metadata=member(("metadata", "name"), NONEMPTY_TEXT))
    uid: str = field(default="", metadata=member(("metadata", "uid"), TEXT))
    spec: KubernetesNetworkPolicySpec = field(
        default=KubernetesNetworkPolicySpec(), metadata=member("spec", KubernetesNetworkPolicySpec)
    )


KUBERNETES_NETWORK_POLICY: Kind[KubernetesNetworkPolicy] = Kind("KubernetesNetworkPolicy", ("namespace", "name"))
"""The policies of a datastore that shows those of Kubernetes. They are read only."""

_DECODER: Final = Decoder(document_error, DocumentOrigin.DATASTORE)


def read_network_policy(found: Mapping[str, object], *, source: str) -> KubernetesNetworkPolicy:
    """The policy that an object of the API server stands for; ``source`` names the object in an error.

    Raises:
        ConfigurationError: it has no name or no namespace, or its spec is no object.
    """
    return _DECODER.decode(found, KubernetesNetworkPolicy, source)
