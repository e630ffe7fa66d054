"""The kind Node: a machine by the name it registered."""

from __future__ import annotations

from attrs import field, frozen

from netplug_core.decoding.codecs import TEXT
from netplug_core.decoding.tables import ListOf, json_object, member
from netplug_core.records import Key, Kind
from netplug_core.resources.metadata import ENVELOPE, Metadata

__all__ = ["NODE", "Node", "NodeSpec", "OrchestratorReference", "node_key"]


@frozen(kw_only=True)
class OrchestratorReference:
    """What one orchestrator (``k8s``) calls the machine."""

    node_name: str = field(default="", metadata=member("nodeName", TEXT, is_always_written=True))
    orchestrator: str = field(metadata=member("orchestrator", TEXT))
    unknown_json: str = ""


@frozen(kw_only=True)
class NodeSpec:
    """What is known of a node so far: the names its orchestrators have for it, and what later releases add."""

    orchestrator_references: tuple[OrchestratorReference, ...] = field(
        default=(), metadata=member("orchRefs", ListOf(OrchestratorReference))
    )
    unknown_json: str = ""


@json_object(ignored=ENVELOPE, ignored_from_users=("status",))
@frozen(kw_only=True)
class Node:
    """A node as it is stored; pools select it by ``metadata.labels``."""

    metadata: Metadata = field(metadata=member("metadata", Metadata))
    spec: NodeSpec = field(default=NodeSpec(), metadata=member("spec", NodeSpec, is_always_written=True))
    unknown_json: str = ""


NODE: Kind[Node] = Kind("Node", ("name",))


def node_key(name: str) -> Key[Node]:
    """The key of the node with that name."""
    return NODE.key(name)
