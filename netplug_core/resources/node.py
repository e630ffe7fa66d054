"""The kind Node: a machine by the name it registered."""

from __future__ import annotations

from attrs import frozen

from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import Metadata

__all__ = ["NODE", "Node", "NodeSpec", "OrchestratorReference", "node_key"]


@frozen(kw_only=True)
class OrchestratorReference:
    """What one orchestrator (``k8s``) calls the machine."""

    orchestrator: str
    node_name: str = ""
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeSpec:
    """What is known of a node so far: the names its orchestrators have for it, and what later releases add."""

    orchestrator_references: tuple[OrchestratorReference, ...] = ()
    unknown_json: str = ""


@frozen(kw_only=True)
class Node:
    """A node as it is stored; pools select it by ``metadata.labels``."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    unknown_json: str = ""


NODE: Kind[Node] = Kind("Node", ("name",))


def node_key(name: str) -> Key[Node]:
    """The key of the node with that name."""
    return NODE.key(name)
