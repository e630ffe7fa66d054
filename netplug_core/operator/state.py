"""The cluster as the operator reads it, what it may do, and what it wants: marks, actions, provider and API group.

Values and rules about them; ``plan`` compares what is with what is wanted. Pure.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Final, TypeAlias, assert_never

from attrs import field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.members import contains
from netplug_core.decoding.tables import find_member, find_object, find_text
from netplug_core.errors import ConfigurationError
from netplug_core.installation.controllers import CONTROLLERS_NAME, LEASE_NAMESPACE, controllers_of
from netplug_core.installation.daemonset import CONFIG_MAP, NODE_ACCOUNT, SYSTEM_NAMESPACE, RenderedInstallation
from netplug_core.installation.document import CNIType
from netplug_core.installation.pools import PoolStep
from netplug_core.installation.settings import ClusterFacts, find_prefix
from netplug_core.installation.static import STATIC_NAMESPACE
from netplug_core.names import API_VERSION, MANAGED_BY
from netplug_core.resources.installation import OPERATOR_GROUP, KubernetesProvider

__all__ = [
    "APPLIED_HASH", "AWS_NODE", "CONFIG_MAP_REF", "CONTROLLERS_LEASE_REF", "CONTROLLERS_REF", "DAEMONSET_REF",
    "FINALIZER", "IGNORE", "KUBEADM_CONFIG", "NAMESPACE_REF", "STATIC_BUDGET_REF", "STATIC_CONTROLLERS_REF",
    "STATIC_DAEMONSET_REF", "Action", "ApplyObject", "ChangePool", "ClusterMode", "ClusterState",
    "CompleteInstallation", "DeleteObject", "Json", "LockDatastore", "ModeEvidence", "ModeRefused", "ObjectRef",
    "OperatorSettings", "SetFinalizer", "Shipped", "decide_mode", "describe", "detect_provider", "installed_refs",
    "is_being_deleted", "is_ignored", "is_ours", "marked", "may_delete", "needs_apply", "platform_prefixes",
    "recorded_cni", "recorded_mode", "recorded_provider", "ref_of", "service_prefixes", "wanted_definitions",
    "wanted_objects",
]  # fmt: skip


# --- objects and marks ------------------------------------------------------------------------------------------------


Json: TypeAlias = Mapping[str, object]
"""A JSON object."""

APPLIED_HASH: Final = f"hash.{OPERATOR_GROUP}/applied"
"""The annotation that changes with what is applied, so that a setting that is left out is removed too."""

IGNORE: Final = f"unsupported.{OPERATOR_GROUP}/ignore"
"""The annotation of an object that the operator neither changes nor deletes as long as its text is ``true``."""


@frozen(order=True)
class ObjectRef:
    """The name of an object; an object of the whole cluster has no namespace."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def plural(self) -> str:
        """The name under which the API has the objects of the kind."""
        kind = self.kind.lower()
        if kind.endswith("y"):
            return f"{kind[:-1]}ies"
        return f"{kind}{'es' if kind.endswith('s') else 's'}"

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def ref_of(found: Json) -> ObjectRef:
    """The name of an object."""
    names = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))
    return ObjectRef(*(find_text(found, *path) for path in names))


def marked(wanted: Json) -> Json:
    """An object as it is applied: with the operator's label, and with the hash of all that is applied."""
    label, text = MANAGED_BY
    digest = sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    metadata = {
        **find_object(wanted, "metadata"),
        "labels": {**find_object(wanted, "metadata", "labels"), label: text},
        "annotations": {**find_object(wanted, "metadata", "annotations"), APPLIED_HASH: digest},
    }
    return {**wanted, "metadata": metadata}


def needs_apply(found: Json | None, wanted: Json) -> bool:
    """Whether an object has to be applied: it is missing, or not as it is wanted, and not to be ignored."""
    if found is None:
        return True
    return not is_ignored(found) and not contains(found, wanted)


def is_ours(found: Json) -> bool:
    """Whether an object has the operator's label."""
    label, text = MANAGED_BY
    return find_text(found, "metadata", "labels", label) == text


def may_delete(found: Json) -> bool:
    """Whether the operator may delete an object: it has the operator's label, and is not to be ignored."""
    return is_ours(found) and not is_ignored(found)


def is_being_deleted(found: Json | None) -> bool:
    """Whether an object is being deleted."""
    return bool(find_text(found, "metadata", "deletionTimestamp"))


def is_ignored(found: Json) -> bool:
    """Whether the operator neither changes nor deletes an object."""
    return find_text(found, "metadata", "annotations", IGNORE) == "true"


# --- actions ----------------------------------------------------------------------------------------------------------


@frozen
class ApplyObject:
    """Apply our fields of an object on the server, which keeps those of others."""

    wanted: Json = field(hash=False)


@frozen
class DeleteObject:
    """Delete the object with that uid; one that was created since then stays."""

    ref: ObjectRef
    uid: str


@frozen
class ChangePool:
    """Create, update or delete a pool, with everything that this has to do with blocks."""

    step: PoolStep


@frozen
class CompleteInstallation:
    """Store the Installation with the settings that it lacked, unless it has changed since it was read."""

    installation: Json = field(hash=False)


@frozen
class SetFinalizer:
    """Put the operator's finalizer on the Installation with that uid, or take it off."""

    name: str
    uid: str
    is_held: bool


@frozen
class LockDatastore:
    """Lock the datastore, because blocks are lost, or unlock it when they are restored."""

    is_locked: bool


Action: TypeAlias = ApplyObject | DeleteObject | ChangePool | CompleteInstallation | SetFinalizer | LockDatastore


def describe(action: Action) -> str:
    """An action in some words, for the log."""
    match action:
        case ApplyObject(wanted):
            return f"apply {ref_of(wanted)}"
        case DeleteObject(ref, _):
            return f"delete {ref}"
        case ChangePool(step):
            return f"{step.action.value} IPPool {step.pool.metadata.name}: {step.reason}"
        case CompleteInstallation(installation):
            return f"complete {ref_of(installation)} with the settings of the static manifest"
        case SetFinalizer(name, _, is_held):
            return f"{'hold' if is_held else 'release'} Installation {name}"
        case LockDatastore(is_locked):
            return "lock the datastore: blocks are lost" if is_locked else "unlock the datastore: blocks are restored"
        case _:
            assert_never(action)


# --- the platform -----------------------------------------------------------------------------------------------------


AWS_NODE: Final = ObjectRef("apps/v1", "DaemonSet", "aws-node", "kube-system")
"""What shows that the cluster has the CNI plugin of Amazon."""

KUBEADM_CONFIG: Final = ObjectRef("v1", "ConfigMap", "kubeadm-config", "kube-system")


def platform_prefixes(config: Json | None) -> tuple[Prefix, ...]:
    """The prefixes that nodes take the addresses of their pods from; none if they are not known."""
    return _prefixes_at(config, "podSubnet: ")


def service_prefixes(config: Json | None) -> tuple[Prefix, ...]:
    """The prefixes of the addresses of services; none if they are not known."""
    return _prefixes_at(config, "serviceSubnet: ")


def _prefixes_at(config: Json | None, member: str) -> tuple[Prefix, ...]:
    """The prefixes of the first such member in the configuration of kubeadm; none if there is none.

    The document is YAML in a text; its line is found without reading the rest, which is of other releases.
    """
    data = find_member(config or {}, "data")
    texts = data.values() if isinstance(data, dict) else ()
    lines = (line.strip() for text in texts if isinstance(text, str) for line in text.splitlines())
    found = next((line.removeprefix(member) for line in lines if line.startswith(member)), "")
    prefixes = (find_prefix(part.strip().strip("\"'")) for part in found.split(","))
    return tuple(prefix for prefix in prefixes if prefix is not None)


# --- the provider -----------------------------------------------------------------------------------------------------


_OF_GROUPS: Final = {"config.openshift.io": KubernetesProvider.OPENSHIFT}
_OF_LABELS: Final = {
    "eks.amazonaws.com/": KubernetesProvider.EKS,
    "cloud.google.com/gke-": KubernetesProvider.GKE,
    "kubernetes.azure.com/cluster": KubernetesProvider.AKS,
    "com.docker.ucp": KubernetesProvider.DOCKER_ENTERPRISE,
    "run.tanzu.vmware.com/": KubernetesProvider.TKG,
}
"""How labels of the product's nodes begin."""

_OF_VERSIONS: Final = {
    "-eks-": KubernetesProvider.EKS,
    "-gke.": KubernetesProvider.GKE,
    "+rke2r": KubernetesProvider.RKE2,
}
"""What the version of the product's kubelet has in it, such as ``v1.31.2-eks-7f9249a``."""

_OF_NODE_IDS: Final = {"kind://": KubernetesProvider.KIND}
"""How the ``providerID`` of the product's nodes begins."""


def detect_provider(groups: Collection[str], node: Json | None) -> KubernetesProvider:
    """The provider by the API groups that are served, and by one of the nodes; any other if neither shows one."""
    by_group = (provider for group, provider in _OF_GROUPS.items() if group in groups)
    return next(by_group, None) or _provider_of(node or {})


def _provider_of(node: Json) -> KubernetesProvider:
    found = find_member(node, "metadata", "labels")
    labels = tuple(found) if isinstance(found, dict) else ()
    kubelet, identity = find_text(node, "status", "nodeInfo", "kubeletVersion"), find_text(node, "spec", "providerID")
    for begin, provider in _OF_LABELS.items():
        if any(str(label).startswith(begin) for label in labels):
            return provider
    for part, provider in _OF_VERSIONS.items():
        if part in kubelet:
            return provider
    return next((one for begin, one in _OF_NODE_IDS.items() if identity.startswith(begin)), KubernetesProvider.OTHER)


# --- the API group ----------------------------------------------------------------------------------------------------


class ClusterMode(enum.Enum):
    """The group: ``crd.projectnetplug.org/v1``, or ``projectnetplug.org/v3``; the value is what a status records.

    The store of Kubernetes has the groups themselves, under the same names, in its ``CrdMode``.
    """

    V1 = "v1"
    V3 = "v3"

    @property
    def api_group(self) -> str:
        """The group as the settings of the plugin name it; that of v1 is the empty text."""
        return API_VERSION if self is ClusterMode.V3 else ""


@frozen(kw_only=True)
class ModeEvidence:
    """What is known: what the administrator asks for, the groups that are served, and what the status has recorded."""

    asked: ClusterMode | None = None
    served: frozenset[ClusterMode] = frozenset()
    recorded: ClusterMode | None = None

    @property
    def present(self) -> ClusterMode | None:
        """The mode of the definitions that are there. With both it is v1: v3 is then a server in front of it."""
        return next((mode for mode in ClusterMode if mode in self.served), None)


class ModeRefused(ConfigurationError):
    """The mode would have to change; ``value`` is the mode that was found or asked for."""

    def __str__(self) -> str:
        return f"{self.where}: {self.value} is not accepted; {self.accepted}"


def decide_mode(evidence: ModeEvidence) -> ClusterMode:
    """The mode of a cluster. On a new one it is v1, unless v3 is asked for.

    Raises:
        ModeRefused: the cluster has another one.
    """
    recorded, present, asked = evidence.recorded, evidence.present, evidence.asked
    if recorded is not None and present is not None and present is not recorded:
        accepted = (
            f"this installation was made with {recorded.value}, and its data is there; "
            "restore those definitions, and delete the others"
        )
        raise ModeRefused("definitions of the cluster", present.value, accepted)
    known = recorded or present
    if asked is not None and known is not None and asked is not known:
        accepted = f"the cluster has {known.value}, with its data, and is never switched; unset the variable"
        raise ModeRefused("NETPLUG_API_GROUP", asked.value, accepted)
    return known or asked or ClusterMode.V1


# --- the cluster ------------------------------------------------------------------------------------------------------


FINALIZER = f"{OPERATOR_GROUP}/operator-cleanup"
"""Keeps an Installation until everything that it installed is gone."""


_NEW_CLUSTER = ClusterFacts()


@frozen(kw_only=True)
class Shipped:
    """Objects that come with the release and depend on no setting.

    ``node_accounts``, ``plugin_accounts`` and ``controllers_accounts`` have the accounts with their rights,
    ``definitions`` the CRDs of each mode with the names under which their objects are listed, ``protection`` what
    refuses to delete these.
    """

    node_accounts: tuple[Json, ...] = field(hash=False)
    plugin_accounts: tuple[Json, ...] = field(hash=False)
    controllers_accounts: tuple[Json, ...] = field(hash=False)
    definitions: Mapping[ClusterMode, Mapping[str, Json]] = field(hash=False)
    operator_definitions: tuple[Json, ...] = field(hash=False)
    protection: tuple[Json, ...] = field(hash=False)

    @property
    def accounts(self) -> tuple[Json, ...]:
        """All of them."""
        return (*self.plugin_accounts, *self.node_accounts, *self.controllers_accounts)

    def all_definitions(self, mode: ClusterMode) -> tuple[Json, ...]:
        """What is applied for a mode: the protection, the operator's own kinds, and those of the mode."""
        return (*self.protection, *self.operator_definitions, *self.definitions[mode].values())


@frozen(kw_only=True)
class OperatorSettings:
    """``version`` is the release that is installed; ``asked_mode`` is what a new cluster shall have, if it is said."""

    version: str
    manages_definitions: bool = True
    asked_mode: ClusterMode | None = None


@frozen(kw_only=True)
class ClusterState:
    """One reading of the cluster.

    ``objects`` are those with the names of the operator's, and the DaemonSet of a static manifest; ``installation``
    and ``overlay`` are None if they do not exist. ``served_resources`` are the names under which the objects of the
    cluster's mode can be listed; the pools of ``facts`` are known if ``ippools`` is one of them. ``pods`` are those of
    the DaemonSet, if it is missing or not every node has its pod, and ``controller_pods`` those of the Deployment, if
    some are not available. As long as the DaemonSet of a static manifest is
    there, or nodes are moved from it, ``nodes`` are all of the cluster, and ``static_pods`` the pods of the manifest.
    ``loss`` says that workloads have addresses and blocks are lost, ``is_locked_for_loss`` that the operator has locked
    the datastore for it.
    While the Installation is being deleted, only the modes, the objects without the definitions, the pods, and the
    nodes that are being moved are read.
    """

    installation: Json | None = field(default=None, hash=False)
    overlay: Json | None = field(default=None, hash=False)
    objects: Mapping[ObjectRef, Json] = field(factory=dict, hash=False)
    served_modes: frozenset[ClusterMode] = frozenset()
    served_resources: frozenset[str] = frozenset()
    facts: ClusterFacts = _NEW_CLUSTER
    pods: tuple[Json, ...] = field(default=(), hash=False)
    controller_pods: tuple[Json, ...] = field(default=(), hash=False)
    nodes: tuple[Json, ...] = field(default=(), hash=False)
    static_pods: tuple[Json, ...] = field(default=(), hash=False)
    loss: str = ""
    is_locked_for_loss: bool = False

    def evidence(self, asked: ClusterMode | None) -> ModeEvidence:
        """What is known of the mode."""
        return ModeEvidence(asked=asked, served=self.served_modes, recorded=recorded_mode(self.installation))


def recorded_mode(installation: Json | None) -> ClusterMode | None:
    """The mode in the status of an Installation; None if there is none yet."""
    text = find_text(installation, "status", "crdMode")
    return next((mode for mode in ClusterMode if mode.value == text), None)


def recorded_provider(installation: Json | None) -> KubernetesProvider | None:
    """The provider that was detected when defaults were chosen first; None if they have not been chosen yet.

    A release that detected none has chosen them as for any other provider.
    """
    text = find_text(installation, "status", "detectedProvider")
    if not text and not find_text(installation, "status", "computed", "cni", "type"):
        return None
    return next((provider for provider in KubernetesProvider if provider.value == text), KubernetesProvider.OTHER)


def recorded_cni(installation: Json | None) -> CNIType | None:
    """The CNI plugin in the computed settings of an Installation; None if there is none yet."""
    text = find_text(installation, "status", "computed", "cni", "type")
    return next((cni for cni in CNIType if cni.value == text), None)


# --- what is wanted ---------------------------------------------------------------------------------------------------


NAMESPACE_REF: Final = ObjectRef("v1", "Namespace", SYSTEM_NAMESPACE)
CONFIG_MAP_REF: Final = ObjectRef("v1", "ConfigMap", CONFIG_MAP, SYSTEM_NAMESPACE)
LEASE: Final = ObjectRef("coordination.k8s.io/v1", "Lease", "netplug-operator", LEASE_NAMESPACE)
"""Which operator acts: one for the whole cluster, in a namespace that every cluster has."""

CONTROLLERS_LEASE_REF: Final = ObjectRef(LEASE.api_version, LEASE.kind, CONTROLLERS_NAME, LEASE_NAMESPACE)
"""Which process of the controllers acts. They make it themselves, with an Installation or without."""

DAEMONSET_REF: Final = ObjectRef("apps/v1", "DaemonSet", NODE_ACCOUNT, SYSTEM_NAMESPACE)
CONTROLLERS_REF: Final = ObjectRef("apps/v1", "Deployment", CONTROLLERS_NAME, SYSTEM_NAMESPACE)
STATIC_CONTROLLERS_REF: Final = ObjectRef("apps/v1", "Deployment", CONTROLLERS_NAME, STATIC_NAMESPACE)
STATIC_BUDGET_REF: Final = ObjectRef("policy/v1", "PodDisruptionBudget", CONTROLLERS_NAME, STATIC_NAMESPACE)
STATIC_DAEMONSET_REF: Final = ObjectRef("apps/v1", "DaemonSet", NODE_ACCOUNT, STATIC_NAMESPACE)
"""The DaemonSet of a static manifest. Its plugin has its rights by the cluster role that an Installation has too."""


def wanted_objects(rendered: RenderedInstallation, shipped: Shipped) -> tuple[Json, ...]:
    """Everything that is installed. Without a conflist there is neither ConfigMap, DaemonSet nor Deployment."""
    pods = (rendered.daemonset, controllers_of(rendered))
    objects = (rendered.namespace, *shipped.accounts, rendered.config_map, *pods)
    return tuple(marked(one) for one in objects if one is not None)


def wanted_definitions(mode: ClusterMode, shipped: Shipped) -> tuple[Json, ...]:
    """The definitions of a mode, and before them those of the operator's own kinds, and what protects all of them."""
    return tuple(map(marked, shipped.all_definitions(mode)))


def installed_refs(shipped: Shipped) -> tuple[ObjectRef, ...]:
    """The names of everything that an Installation may have installed, definitions apart."""
    return (NAMESPACE_REF, *map(ref_of, shipped.accounts), CONFIG_MAP_REF, DAEMONSET_REF, CONTROLLERS_REF)
