"""The kind table: every user-facing kind and its names.

``codec`` looks up the kind of a document, ``netplugctl`` the word that a user typed. Nothing here says how a kind
is printed (``netplug_cli.ctl.tables``) or stored (a backend's layout).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

from attrs import frozen

from netplug_core.decoding.codecs import is_utf8
from netplug_core.errors import ConfigurationError, InvariantBroken, excerpt, find_similar
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind

if TYPE_CHECKING:
    from netplug_core.resources.bgp import BGPConfiguration, BGPFilter, BGPPeer
    from netplug_core.resources.clusterinformation import ClusterInformation
    from netplug_core.resources.hostendpoint import HostEndpoint
    from netplug_core.resources.ippool import IPAMConfiguration, IPPool, IPReservation
    from netplug_core.resources.kubecontrollersconfiguration import KubeControllersConfiguration
    from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, GlobalNetworkSet, NetworkPolicy, NetworkSet
    from netplug_core.resources.node import Node
    from netplug_core.resources.nodeconfiguration import NodeConfiguration
    from netplug_core.resources.profile import Profile
    from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "KINDS", "OF_NODE", "NetworkResource", "PolicyResource", "Resource", "ResourceKind", "ResourceScope",
    "UnknownKind", "find_kind", "get_kind", "key_of", "kind_of", "plural_of", "resource_of",
]  # fmt: skip

OF_NODE = "node."
"""What stands in front of the name of a node in the name of an object that is for that node alone."""

NetworkResource: TypeAlias = "HostEndpoint | BGPConfiguration | BGPPeer | BGPFilter | NodeConfiguration"
"""The kinds that describe the network of nodes."""

PolicyResource: TypeAlias = "NetworkPolicy | GlobalNetworkPolicy | NetworkSet | GlobalNetworkSet"
"""The kinds that say which packets pass, beside profiles and host endpoints."""

_AddressResource: TypeAlias = "IPPool | IPReservation | IPAMConfiguration | Node | Profile | WorkloadEndpoint"
_ClusterResource: TypeAlias = "ClusterInformation | KubeControllersConfiguration"
Resource: TypeAlias = "_AddressResource | _ClusterResource | NetworkResource | PolicyResource"


def plural_of(name: str) -> str:
    """The word for the objects of a kind in the layouts of datastores, in lower case."""
    word = name.lower()
    return f"{word.removesuffix('y')}ies" if word.endswith("y") else f"{word}s"


class ResourceScope(enum.Enum):
    """Whether names of a kind are unique in the cluster or in a namespace."""

    CLUSTER = "cluster"
    NAMESPACED = "namespaced"


_import = cache(import_module)  # for each record of a store


@frozen(kw_only=True)
class ResourceKind:
    """One row: the names of a kind, and where it is declared.

    ``name`` is the kind as documents spell it, and the name of the class of its values. That class is in the
    ``module`` of this room, and so is the stored kind under the name ``constant``. The module is loaded when one of
    the two is needed: who asks for pools loads no policies. ``short_names`` are words that a user may type for it
    besides its name and the plural. ``fixed_name`` is the only name that its objects can have; empty if any name is
    allowed. ``has_node_objects``: an object of one node may be there besides, called ``node.`` and the name of the
    node.
    """

    name: str
    module: str
    constant: str
    short_names: tuple[str, ...]
    scope: ResourceScope = ResourceScope.CLUSTER
    fixed_name: str = ""
    has_node_objects: bool = False

    @property
    def kind(self) -> Kind[Resource]:
        """The stored kind."""
        found: Kind[Resource] = vars(_import(f"{__package__}.{self.module}"))[self.constant]
        return found

    @property
    def value_type(self) -> type[Resource]:
        """The class of its values."""
        found: type[Resource] = vars(_import(f"{__package__}.{self.module}"))[self.name]
        return found

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
    ResourceKind(name="IPPool", module="ippool", constant="IPPOOL", short_names=("ipp", "ipps", "pool", "pools")),
    ResourceKind(
        name="IPReservation",
        module="ippool",
        constant="IPRESERVATION",
        short_names=("reservation", "reservations"),
    ),
    ResourceKind(
        name="IPAMConfiguration",
        module="ippool",
        constant="IPAM_CONFIGURATION",
        short_names=("ipamconfig", "ipamconfigs"),
        fixed_name="default",
    ),
    ResourceKind(name="Node", module="node", constant="NODE", short_names=("no", "nos")),
    ResourceKind(name="Profile", module="profile", constant="PROFILE", short_names=("pro", "pros")),
    ResourceKind(
        name="WorkloadEndpoint",
        module="workloadendpoint",
        constant="WORKLOAD_ENDPOINT",
        short_names=("wep", "weps"),
        scope=ResourceScope.NAMESPACED,
    ),
    ResourceKind(
        name="ClusterInformation",
        module="clusterinformation",
        constant="CLUSTER_INFORMATION",
        short_names=("clusterinfo", "clusterinfos"),
        fixed_name="default",
    ),
    ResourceKind(
        name="KubeControllersConfiguration",
        module="kubecontrollersconfiguration",
        constant="KUBE_CONTROLLERS_CONFIGURATION",
        short_names=("kubecontrollersconfig", "kubecontrollersconfigs", "kcconfig"),
        fixed_name="default",
    ),
    ResourceKind(name="HostEndpoint", module="hostendpoint", constant="HOST_ENDPOINT", short_names=("hep", "heps")),
    ResourceKind(
        name="BGPConfiguration",
        module="bgp",
        constant="BGP_CONFIGURATION",
        short_names=("bgpconfig", "bgpconfigs"),
        fixed_name="default",
        has_node_objects=True,
    ),
    ResourceKind(name="BGPPeer", module="bgp", constant="BGP_PEER", short_names=("bgpp", "bgpps", "bp", "bps")),
    ResourceKind(name="BGPFilter", module="bgp", constant="BGP_FILTER", short_names=("bgpf", "bgpfs")),
    ResourceKind(
        name="NetworkPolicy",
        module="networkpolicy",
        constant="NETWORK_POLICY",
        short_names=("np", "nps", "policy", "policies"),
        scope=ResourceScope.NAMESPACED,
    ),
    ResourceKind(
        name="GlobalNetworkPolicy",
        module="networkpolicy",
        constant="GLOBAL_NETWORK_POLICY",
        short_names=("gnp", "gnps"),
    ),
    ResourceKind(
        name="NetworkSet",
        module="networkpolicy",
        constant="NETWORK_SET",
        short_names=("netset", "netsets"),
        scope=ResourceScope.NAMESPACED,
    ),
    ResourceKind(
        name="GlobalNetworkSet",
        module="networkpolicy",
        constant="GLOBAL_NETWORK_SET",
        short_names=("gns", "globalnetsets"),
    ),
    ResourceKind(
        name="NodeConfiguration",
        module="nodeconfiguration",
        constant="NODE_CONFIGURATION",
        short_names=("nodeconfig", "nodeconfigs"),
        fixed_name="default",
        has_node_objects=True,
    ),
)
"""Every kind of this release."""

_BY_ALIAS = {word: row for row in KINDS for word in row.aliases}
_BY_NAME = {row.name: row for row in KINDS}


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
    return _BY_NAME[type(resource).__name__]


def resource_of(value: object) -> Resource:
    """A stored value that is a resource: no block, no affinity, no handle.

    Raises:
        InvariantBroken: it is something else.
    """
    if not _is_resource(value):
        raise InvariantBroken(f"a {type(value).__name__} stands where a resource has to be")
    return value


def _is_resource(value: object) -> TypeGuard[Resource]:
    return type(value).__name__ in _BY_NAME


def key_of(resource: Resource) -> Key[Resource]:
    """Where a value is stored."""
    return kind_of(resource).key(resource.metadata.name, resource.metadata.namespace)
