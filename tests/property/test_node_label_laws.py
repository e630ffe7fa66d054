"""Laws of the labels of a Node that follows the orchestrator's node.

After each look, a label is the orchestrator's if that has one of the name, else the Node's own. Once the orchestrator
has none, the Node has exactly its own. Looking twice changes nothing more.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.orchestrator.model import NodeFacts
from netplug_core.reconcile.nodes import follow_cluster_node
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node

NAMES = st.sampled_from("abc")
LABELS = st.dictionaries(NAMES, st.sampled_from("xy"))
# Each step: a label that a person sets (or none), and then the orchestrator's labels at the next look.
STEPS = st.lists(st.tuples(st.none() | st.tuples(NAMES, st.sampled_from("xyz")), LABELS), max_size=8)


def facts(labels: dict[str, str]) -> NodeFacts:
    return NodeFacts(name="n", uid="u", labels=tuple(sorted(labels.items())))


@given(own=LABELS, steps=STEPS)
def test_a_node_has_its_own_labels_below_the_orchestrators(
    own: dict[str, str], steps: list[tuple[tuple[str, str] | None, dict[str, str]]]
) -> None:
    node = Node(metadata=Metadata(name="n", labels=tuple(sorted(own.items()))))
    seen: dict[str, str] = {}
    for change, cluster in steps:
        if change is not None:
            name, text = change
            labels = {**dict(node.metadata.labels), name: text}
            node = evolve(node, metadata=evolve(node.metadata, labels=tuple(sorted(labels.items()))))
            if seen.get(name) != text:  # the text that was copied is no change
                own = {**own, name: text}
        node = follow_cluster_node(node, facts(cluster))
        assert dict(node.metadata.labels) == {**own, **cluster}
        assert follow_cluster_node(node, facts(cluster)) == node
        seen = cluster
    node = follow_cluster_node(node, facts({}))
    assert dict(node.metadata.labels) == own
    assert node.metadata.annotations == ()
