"""What the operator knows of a cluster when it plans, and what it was started with."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.selection import CNIType
from netplug_core.operator.crd_mode import ClusterMode, ModeEvidence
from netplug_core.operator.objects import Json, ObjectRef, find_text
from netplug_core.resources.installation import OPERATOR_GROUP, KubernetesProvider

__all__ = [
    "FINALIZER", "ClusterState", "OperatorSettings", "Shipped", "recorded_cni", "recorded_mode", "recorded_provider",
]  # fmt: skip

FINALIZER = f"{OPERATOR_GROUP}/operator-cleanup"
"""Keeps an Installation until everything that it installed is gone."""


_NEW_CLUSTER = ClusterFacts()


@frozen(kw_only=True)
class Shipped:
    """Objects that come with the release and depend on no setting.

    ``node_accounts`` and ``plugin_accounts`` have the accounts with their rights, ``definitions`` the CRDs of each mode
    with the names under which their objects are listed, ``protection`` what refuses to delete these.
    """

    node_accounts: tuple[Json, ...] = field(hash=False)
    plugin_accounts: tuple[Json, ...] = field(hash=False)
    definitions: Mapping[ClusterMode, Mapping[str, Json]] = field(hash=False)
    operator_definitions: tuple[Json, ...] = field(hash=False)
    protection: tuple[Json, ...] = field(hash=False)

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
    the DaemonSet, if it is missing or not every node has its pod. As long as the DaemonSet of a static manifest is
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
