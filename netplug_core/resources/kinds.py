"""The kind table: every user-facing kind and its names.

``codec`` looks up the kind of a document, ``netplugctl`` the word that a user typed. Nothing here says how a kind
is printed (``netplug_cli.ctl.tables``) or stored (a backend's layout).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import frozen

from netplug_core.decoding.codecs import is_utf8
from netplug_core.errors import ConfigurationError, excerpt, find_similar
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind
from netplug_core.resources.bgp import (
    BGP_CONFIGURATION,
    BGP_FILTER,
    BGP_PEER,
    BGPConfiguration,
    BGPFilter,
    BGPPeer,
)
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION, ClusterInformation
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION, IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL, IPPool
from netplug_core.resources.ipreservation import IPRESERVATION, IPReservation
from netplug_core.resources.kubecontrollersconfiguration import (
    KUBE_CONTROLLERS_CONFIGURATION,
    KubeControllersConfiguration,
)
from netplug_core.resources.networkpolicy import (
    GLOBAL_NETWORK_POLICY,
    NETWORK_POLICY,
    GlobalNetworkPolicy,
    NetworkPolicy,
)
from netplug_core.resources.networkset import GLOBAL_NETWORK_SET, NETWORK_SET, GlobalNetworkSet, NetworkSet
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration
from netplug_core.resources.profile import PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "KINDS", "OF_NODE", "NetworkResource", "PolicyResource", "Resource", "ResourceKind", "ResourceScope",
    "UnknownKind", "find_kind", "get_kind", "key_of", "kind_of", "plural_of",
]  # fmt: skip

OF_NODE = "node."
"""What stands in front of the name of a node in the name of an object that is for that node alone."""

NetworkResource: TypeAlias = HostEndpoint | BGPConfiguration | BGPPeer | BGPFilter | NodeConfiguration
"""The kinds that describe the network of nodes."""

PolicyResource: TypeAlias = NetworkPolicy | GlobalNetworkPolicy | NetworkSet | GlobalNetworkSet
"""The kinds that say which packets pass, beside profiles and host endpoints."""

Resource: TypeAlias = (
    IPPool
    | IPReservation
    | IPAMConfiguration
    | Node
    | Profile
    | WorkloadEndpoint
    | ClusterInformation
    | KubeControllersConfiguration
    | NetworkResource
    | PolicyResource
)


def plural_of(name: str) -> str:
    """The word for the objects of a kind in the layouts of datastores, in lower case."""
    word = name.lower()
    return f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"


class ResourceScope(enum.Enum):
    """Whether names of a kind are unique in the cluster or in a namespace."""

    CLUSTER = "cluster"
    NAMESPACED = "namespaced"


@frozen(kw_only=True)
class ResourceKind:
    """One row: the stored kind, the class of its values, and its names.

    ``short_names`` are words that a user may type for it besides its name and the plural. ``fixed_name`` is the only
    name that its objects can have; empty if any name is allowed. ``has_node_objects``: an object of one node may be
    there besides, called ``node.`` and the name of the node.
    """

    kind: Kind[Resource]
    value_type: type[Resource]
    short_names: tuple[str, ...]
    scope: ResourceScope = ResourceScope.CLUSTER
    fixed_name: str = ""
    has_node_objects: bool = False

    @property
    def name(self) -> str:
        """The kind as documents spell it."""
        return self.kind.name

    @property
    def plural(self) -> str:
        """The word for its objects in the layouts of datastores, in lower case."""
        return plural_of(self.name)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The words that a user may type for it, in lower case."""
        return (self.name.lower(), self.plural, *self.short_names)

    def key(self, name: str, namespace: str = "") -> Key[Resource]:
        """The key of the object with that name; the namespace of a kind that has none is ignored.

        Raises:
            ConfigurationError: the name or the namespace is not UTF-8, as an argument of a command may be.
        """
        for where, text in (("name", name), ("namespace", namespace)):
            if not is_utf8(text):
                raise ConfigurationError(f"{self.name}.{where}", text, "a text in UTF-8 is expected")
        if self.scope is ResourceScope.CLUSTER:
            return self.kind.key(name)
        return self.kind.key(namespace, name)


class UnknownKind(ConfigurationError):
    """A word that names no kind of this release."""

    def __str__(self) -> str:
        at = f" @ {excerpt(self.where)}" if self.where else ""
        return f"resource type '{excerpt(self.value)}' is not supported{at}; {self._advice}"

    @property
    def _advice(self) -> str:
        """What the word stands for elsewhere, or which kind was probably meant; otherwise all kinds."""
        word = str(self.value).lower()
        if not word:
            return f"give the document a kind, and apiVersion: {API_VERSION}; there are {self.accepted}"
        if word in _ELSEWHERE or word.removesuffix("s") in _ELSEWHERE:
            return _ELSEWHERE.get(word) or _ELSEWHERE[word.removesuffix("s")]
        similar = find_similar(word, _BY_ALIAS)
        if not similar:
            return f"there are {self.accepted}"
        return f"did you mean {_BY_ALIAS[similar].name if self.where else similar}?"


_KUBERNETES = "it is an object of Kubernetes, which kubectl shows and changes"
_NO_TIERS = (
    "this release has one tier, default, and no staged policies: there are NetworkPolicy and GlobalNetworkPolicy"
)
_BLOCKS = "blocks, affinities and handles are no resources here: netplugctl ipam show --show-blocks shows them"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "pod": f"{_KUBERNETES}; the interfaces of pods are the kind WorkloadEndpoint",
    "felixconfiguration": "what it sets is in the kind NodeConfiguration here",
    "felixconfig": "what it sets is in the kind NodeConfiguration here",
    "caliconodestatus": "netplugctl node status shows the state of a node",
    "installation": "netplugctl install validate, render and apply take an Installation",
    **dict.fromkeys(("namespace", "service", "deployment", "daemonset", "configmap", "event", "secret"), _KUBERNETES),
    **dict.fromkeys(("ns", "po", "svc", "deploy", "ds", "cm", "ev"), _KUBERNETES),
    **dict.fromkeys(("ipamblock", "blockaffinity", "blockaffinitie", "ipamhandle"), _BLOCKS),
    **dict.fromkeys(("tier", "stagednetworkpolicy", "stagednetworkpolicie", "stagedglobalnetworkpolicy",
        "stagedglobalnetworkpolicie", "stagedkubernetesnetworkpolicy", "stagedkubernetesnetworkpolicie"), _NO_TIERS),
}  # fmt: skip
"""Words that people know from Kubernetes and Calico, in the singular or without the last letter, and what is here."""


KINDS: tuple[ResourceKind, ...] = (
    ResourceKind(kind=IPPOOL, value_type=IPPool, short_names=("ipp", "ipps", "pool", "pools")),
    ResourceKind(kind=IPRESERVATION, value_type=IPReservation, short_names=("reservation", "reservations")),
    ResourceKind(
        kind=IPAM_CONFIGURATION,
        value_type=IPAMConfiguration,
        short_names=("ipamconfig", "ipamconfigs"),
        fixed_name="default",
    ),
    ResourceKind(kind=NODE, value_type=Node, short_names=("no", "nos")),
    ResourceKind(kind=PROFILE, value_type=Profile, short_names=("pro", "pros")),
    ResourceKind(
        kind=WORKLOAD_ENDPOINT, value_type=WorkloadEndpoint, short_names=("wep", "weps"), scope=ResourceScope.NAMESPACED
    ),
    ResourceKind(
        kind=CLUSTER_INFORMATION,
        value_type=ClusterInformation,
        short_names=("clusterinfo", "clusterinfos"),
        fixed_name="default",
    ),
    ResourceKind(
        kind=KUBE_CONTROLLERS_CONFIGURATION,
        value_type=KubeControllersConfiguration,
        short_names=("kubecontrollersconfig", "kubecontrollersconfigs", "kcconfig"),
        fixed_name="default",
    ),
    ResourceKind(kind=HOST_ENDPOINT, value_type=HostEndpoint, short_names=("hep", "heps")),
    ResourceKind(
        kind=BGP_CONFIGURATION,
        value_type=BGPConfiguration,
        short_names=("bgpconfig", "bgpconfigs"),
        fixed_name="default",
        has_node_objects=True,
    ),
    ResourceKind(kind=BGP_PEER, value_type=BGPPeer, short_names=("bgpp", "bgpps", "bp", "bps")),
    ResourceKind(kind=BGP_FILTER, value_type=BGPFilter, short_names=("bgpf", "bgpfs")),
    ResourceKind(
        kind=NETWORK_POLICY,
        value_type=NetworkPolicy,
        short_names=("np", "nps", "policy", "policies"),
        scope=ResourceScope.NAMESPACED,
    ),
    ResourceKind(kind=GLOBAL_NETWORK_POLICY, value_type=GlobalNetworkPolicy, short_names=("gnp", "gnps")),
    ResourceKind(
        kind=NETWORK_SET,
        value_type=NetworkSet,
        short_names=("netset", "netsets"),
        scope=ResourceScope.NAMESPACED,
    ),
    ResourceKind(kind=GLOBAL_NETWORK_SET, value_type=GlobalNetworkSet, short_names=("gns", "globalnetsets")),
    ResourceKind(
        kind=NODE_CONFIGURATION,
        value_type=NodeConfiguration,
        short_names=("nodeconfig", "nodeconfigs"),
        fixed_name="default",
        has_node_objects=True,
    ),
)
"""Every kind of this release."""

_BY_ALIAS = {word: row for row in KINDS for word in row.aliases}
_BY_TYPE = {row.value_type: row for row in KINDS}


def find_kind(alias: str) -> ResourceKind | None:
    """The kind that a word names, in any case, singular or plural; None if there is none."""
    return _BY_ALIAS.get(alias.lower())


def get_kind(alias: object, *, where: str = "") -> ResourceKind:
    """The kind that a word names.

    Raises:
        UnknownKind: none is called so; the error lists the kinds, and ``where`` is the place of the word.
    """
    row = find_kind(alias) if isinstance(alias, str) else None
    if row is None:
        raise UnknownKind(where, "" if alias is None else alias, ", ".join(row.name for row in KINDS))
    return row


def kind_of(resource: Resource) -> ResourceKind:
    """The kind of a value."""
    return _BY_TYPE[type(resource)]


def key_of(resource: Resource) -> Key[Resource]:
    """Where a value is stored."""
    return kind_of(resource).key(resource.metadata.name, resource.metadata.namespace)
