"""A stored Node beside the orchestrator's node that it names: its labels, and its end.

On datastores other than the orchestrator's own the labels are copied, so that pools can select nodes by them: by the
controllers, and by each node process where they do not. A Node keeps labels of its own. Two annotations tell them
apart: ``kube-labels`` has the labels that were copied last, ``labels`` those of its own that have the name of a copied
one, which hides them.

A Node goes with the node that it names. One that names none, such as that of a machine without kubelet, stays.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Final

from attrs import evolve

from netplug_core.decoding.codecs import STRING_MAP
from netplug_core.names import KUBERNETES_ORCHESTRATOR, RESOURCE_DOMAIN
from netplug_core.orchestrator.model import NodeFacts
from netplug_core.records import Malformed, Record
from netplug_core.resources.node import Node, OrchestratorReference, node_key

__all__ = [
    "COPIED_LABELS", "HIDDEN_LABELS", "find_gone_nodes", "follow_cluster_node", "name_cluster_node",
    "orchestrator_name",
]  # fmt: skip

COPIED_LABELS: Final = f"{RESOURCE_DOMAIN}/kube-labels"
"""The annotation with the labels that were copied, as a JSON object."""

HIDDEN_LABELS: Final = f"{RESOURCE_DOMAIN}/labels"
"""The annotation with the labels of the Node's own that copied ones hide, as a JSON object."""


def follow_cluster_node(node: Node, facts: NodeFacts) -> Node:
    """The Node with the labels of the orchestrator's node, and with labels of its own where those have no such name.

    A label that the orchestrator's node has lost goes; a label of the Node's own that it hid is back. The Node also
    names the orchestrator's node, so that programs find it.

    Raises:
        Malformed: one of the two annotations is not a JSON object of texts.
    """
    copied, cluster = _read_annotation(node, COPIED_LABELS), dict(facts.labels)
    own = {name: text for name, text in node.metadata.labels if copied.get(name) != text}
    own = {**_read_annotation(node, HIDDEN_LABELS), **own}
    hidden = {name: text for name, text in own.items() if name in cluster}
    annotations = dict(node.metadata.annotations)
    for annotation, labels in ((COPIED_LABELS, cluster), (HIDDEN_LABELS, hidden)):
        annotations.pop(annotation, None)
        if labels:
            annotations[annotation] = json.dumps(labels, separators=(",", ":"), sort_keys=True)
    metadata = evolve(
        node.metadata,
        labels=tuple(sorted({**own, **cluster}.items())),
        annotations=tuple(sorted(annotations.items())),
    )
    return name_cluster_node(evolve(node, metadata=metadata), facts.name)


def name_cluster_node(node: Node, name: str) -> Node:
    """The Node that names the orchestrator's node of that name, and keeps its labels."""
    return evolve(node, spec=evolve(node.spec, orchestrator_references=_references(node, name)))


def orchestrator_name(node: Node) -> str:
    """What the orchestrator calls the machine of a Node; empty if the Node does not say."""
    names = (
        each.node_name for each in node.spec.orchestrator_references if each.orchestrator == KUBERNETES_ORCHESTRATOR
    )
    return next(filter(None, names), "")


def find_gone_nodes(nodes: Iterable[Record[Node]], known: Container[str]) -> tuple[Record[Node], ...]:
    """The Nodes whose machine the orchestrator does not know any more. ``known`` are the names of all its nodes.

    Each has to be looked up once more before it is deleted: a list may be out of date, and a machine may come back.
    """
    found = ((record, orchestrator_name(record.value)) for record in nodes)
    return tuple(record for record, name in found if name and name not in known)


def _references(node: Node, name: str) -> tuple[OrchestratorReference, ...]:
    found = node.spec.orchestrator_references
    if any((each.orchestrator, each.node_name) == (KUBERNETES_ORCHESTRATOR, name) for each in found):
        return found
    others = tuple(each for each in found if each.orchestrator != KUBERNETES_ORCHESTRATOR)
    return (*others, OrchestratorReference(orchestrator=KUBERNETES_ORCHESTRATOR, node_name=name))


def _read_annotation(node: Node, name: str) -> Mapping[str, str]:
    text = dict(node.metadata.annotations).get(name)
    try:
        return STRING_MAP.decode(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        key = node_key(node.metadata.name)
        problem = f"annotation {name}: a JSON object of texts is expected"
        raise Malformed(str(key), problem, subject=key) from None
