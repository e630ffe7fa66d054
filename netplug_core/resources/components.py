"""The kinds APIServer, FlowLogAPI and FlowLogViewer: components that a cluster may have beside the network of pods.

Each has one object, named ``default``. Nothing in this release serves any of them, which the operator says in their
status. None is a setting that a document leaves out. They are no kinds of the datastore, so they are not in ``kinds``.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

from attrs import frozen

from netplug_core.resources.installation import Switch
from netplug_core.resources.metadata import Metadata

__all__ = [
    "COMPONENT_NAME", "MAX_TOLERATIONS", "APIServerSpec", "Component", "ComponentDeployment", "ComponentKind",
    "ComponentSpec", "FlowLogAPISpec", "FlowLogViewerSpec", "TaintEffect", "Toleration", "TolerationOperator",
]  # fmt: skip

COMPONENT_NAME: Final = "default"
MAX_TOLERATIONS: Final = 32


class ComponentKind(enum.Enum):
    """A kind, by its name in documents."""

    API_SERVER = "APIServer"
    FLOW_LOG_API = "FlowLogAPI"
    FLOW_LOG_VIEWER = "FlowLogViewer"


class TolerationOperator(enum.Enum):
    """How a toleration compares its key."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.Enum):
    """What a taint of a node does to pods."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@frozen(kw_only=True)
class Toleration:
    """Taints of nodes that a pod may run in spite of, as Kubernetes has them. Without an effect: every effect."""

    key: str = ""
    operator: TolerationOperator | None = None
    value: str = ""
    effect: TaintEffect | None = None
    toleration_s: int | None = None


@frozen(kw_only=True)
class ComponentDeployment:
    """On which nodes the pods of a component may run."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@frozen(kw_only=True)
class APIServerSpec:
    """``spec`` of the server that offers ``projectnetplug.org/v3`` in front of the v1 definitions."""

    deployment: ComponentDeployment = ComponentDeployment()


@frozen(kw_only=True)
class FlowLogAPISpec:
    """``spec`` of the server that collects flow logs from the nodes."""

    deployment: ComponentDeployment = ComponentDeployment()
    metrics_port: int | None = None


@frozen(kw_only=True)
class FlowLogViewerSpec:
    """``spec`` of the viewer of flow logs. With ``notifications`` it asks a server of the project for news."""

    deployment: ComponentDeployment = ComponentDeployment()
    notifications: Switch | None = None


ComponentSpec: TypeAlias = APIServerSpec | FlowLogAPISpec | FlowLogViewerSpec


@frozen(kw_only=True)
class Component:
    """A component as it was written."""

    kind: ComponentKind
    metadata: Metadata
    spec: ComponentSpec
