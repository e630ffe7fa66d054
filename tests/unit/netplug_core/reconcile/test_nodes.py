"""A Node beside the orchestrator's node: labels of both, and what is remembered of them."""

import pytest
from attrs import evolve

from netplug_core.orchestrator.model import NodeFacts
from netplug_core.reconcile.nodes import (
    COPIED_LABELS,
    HIDDEN_LABELS,
    find_gone_nodes,
    follow_cluster_node,
    orchestrator_name,
)
from netplug_core.records import Malformed, Record, Revision
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference, node_key

NAMED = OrchestratorReference(orchestrator="k8s", node_name="node-1")


def node(**labels: str) -> Node:
    return Node(metadata=Metadata(name="node-1", labels=tuple(sorted(labels.items()))))


def facts(**labels: str) -> NodeFacts:
    return NodeFacts(name="node-1", uid="u", labels=tuple(sorted(labels.items())))


def annotated(**annotations: str) -> Node:
    names = {"copied": COPIED_LABELS, "hidden": HIDDEN_LABELS}
    pairs = tuple(sorted((names[name], text) for name, text in annotations.items()))
    return evolve(node(), metadata=evolve(node().metadata, annotations=pairs))


def with_label(before: Node, name: str, text: str) -> Node:
    labels = {**dict(before.metadata.labels), name: text}
    return evolve(before, metadata=evolve(before.metadata, labels=tuple(sorted(labels.items()))))


def labels_of(found: Node) -> dict[str, str]:
    return dict(found.metadata.labels)


def test_labels_are_copied_beside_those_of_its_own() -> None:
    found = follow_cluster_node(node(rack="7"), facts(zone="a"))
    assert labels_of(found) == {"rack": "7", "zone": "a"}
    assert found.metadata.annotations == (("projectnetplug.org/kube-labels", '{"zone":"a"}'),)
    assert found.spec.orchestrator_references == (NAMED,)
    assert follow_cluster_node(found, facts(zone="a")) == found


def test_a_label_that_changes_or_goes_at_the_orchestrator_does_so_here() -> None:
    first = follow_cluster_node(node(rack="7"), facts(zone="a", disk="ssd"))
    second = follow_cluster_node(first, facts(zone="b"))
    assert labels_of(second) == {"rack": "7", "zone": "b"}
    third = follow_cluster_node(second, facts())
    assert labels_of(third) == {"rack": "7"}
    assert third.metadata.annotations == ()


@pytest.mark.parametrize("text", ["a", "own"])
def test_a_label_of_its_own_is_back_when_the_orchestrator_has_it_no_more(text: str) -> None:
    """Whether it has another text or the same."""
    hidden = follow_cluster_node(node(zone=text), facts(zone="a"))
    assert labels_of(hidden) == {"zone": "a"}
    assert dict(hidden.metadata.annotations)["projectnetplug.org/labels"] == f'{{"zone":"{text}"}}'
    assert labels_of(follow_cluster_node(hidden, facts())) == {"zone": text}


def test_a_copied_label_that_is_changed_here_is_an_own_one_below_the_orchestrators() -> None:
    copied = follow_cluster_node(node(), facts(zone="a"))
    again = follow_cluster_node(with_label(copied, "zone", "mine"), facts(zone="a"))
    assert labels_of(again) == {"zone": "a"}
    assert labels_of(follow_cluster_node(again, facts())) == {"zone": "mine"}


def test_other_annotations_and_orchestrators_stay() -> None:
    other = OrchestratorReference(orchestrator="mesos", node_name="m1")
    wrong = OrchestratorReference(orchestrator="k8s", node_name="former")
    before = Node(
        metadata=Metadata(name="node-1", annotations=(("a", "b"),)),
        spec=NodeSpec(orchestrator_references=(other, wrong), unknown_json='{"bgp":{}}'),
    )
    found = follow_cluster_node(before, facts())
    assert found.metadata.annotations == (("a", "b"),)
    assert found.spec == NodeSpec(orchestrator_references=(other, NAMED), unknown_json='{"bgp":{}}')
    kept = evolve(found, spec=evolve(found.spec, orchestrator_references=(NAMED, other)))
    assert follow_cluster_node(kept, facts()) == kept


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "null", "[" * 100_000])
@pytest.mark.parametrize("annotation", ["copied", "hidden"])
def test_an_annotation_that_cannot_be_read_is_an_error_and_not_guessed(annotation: str, text: str) -> None:
    with pytest.raises(Malformed, match="a JSON object of texts is expected") as refused:
        follow_cluster_node(annotated(**{annotation: text}), facts(zone="a"))
    assert refused.value.subject == node_key("node-1")


def test_a_node_goes_with_the_machine_that_it_names() -> None:
    def record(name: str, *references: OrchestratorReference) -> Record[Node]:
        spec = NodeSpec(orchestrator_references=references)
        return Record(node_key(name), Node(metadata=Metadata(name=name), spec=spec), Revision("1"))

    other = OrchestratorReference(orchestrator="mesos", node_name="m1")
    known, gone, alone = (
        record("a", NAMED),
        record("b", other, evolve(NAMED, node_name="machine-9")),
        record("c", other),
    )
    unnamed = record("d", evolve(NAMED, node_name=""))
    assert find_gone_nodes((known, gone, alone, unnamed), {"node-1"}) == (gone,)
    assert [orchestrator_name(each.value) for each in (known, gone, alone, unnamed)] == ["node-1", "machine-9", "", ""]
