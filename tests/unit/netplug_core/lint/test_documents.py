"""What a document is, and what is read of objects of Kubernetes."""

import pytest

from netplug_core.lint.documents import Document, DocumentSort, KubernetesObject, find_sort, read_kubernetes_object
from netplug_core.lint.rules import Finding, Rule, format_path

API = "projectnetplug.org/v3"


def document(**mapping: object) -> Document:
    return Document(source="a.yaml#1", mapping=mapping)


@pytest.mark.parametrize(
    "mapping, sort",
    [
        ({"plugins": []}, DocumentSort.CONFIGURATION),
        ({"type": "netplug", "ipam": {}}, DocumentSort.CONFIGURATION),
        ({"type": "bridge", "cniVersion": "1.0.0"}, DocumentSort.CONFIGURATION),
        ({"type": "netplug"}, None),
        ({}, None),
        ({"kind": "IPPool", "apiVersion": API}, DocumentSort.RESOURCE),
        ({"kind": "IPPool"}, DocumentSort.RESOURCE),
        ({"kind": 7, "apiVersion": API}, DocumentSort.RESOURCE),
        ({"kind": 7}, None),
        ({"kind": "IPPool", "apiVersion": "v1"}, None),
        ({"kind": "Installation"}, DocumentSort.INSTALLATION),
        ({"kind": "Installation", "apiVersion": "operator.projectnetplug.org/v1"}, DocumentSort.INSTALLATION),
        ({"kind": "Installation", "apiVersion": "operator.example.org/v1"}, None),
        ({"kind": "Node", "apiVersion": "v1"}, DocumentSort.NODE),
        ({"kind": "Node", "apiVersion": API}, DocumentSort.RESOURCE),
        ({"kind": "Namespace", "apiVersion": "v1"}, DocumentSort.NAMESPACE),
        ({"kind": "Pod", "apiVersion": "v1"}, DocumentSort.WORKLOAD),
        ({"kind": "CronJob", "apiVersion": "batch/v1"}, DocumentSort.WORKLOAD),
        ({"kind": "Service", "apiVersion": "v1"}, None),
    ],
)
def test_sorts(mapping: dict[str, object], sort: DocumentSort | None) -> None:
    assert find_sort(document(**mapping)) is sort


def test_the_annotations_of_pods_are_those_of_the_template() -> None:
    metadata = {"name": "web", "namespace": "shop", "annotations": {"a": "of the object"}}
    template = {"metadata": {"annotations": {"a": 1}}}
    found = read_kubernetes_object(
        document(kind="Deployment", metadata=metadata, spec={"replicas": 3, "template": template})
    )
    assert isinstance(found, KubernetesObject)
    assert (found.subject, found.own, found.of_pods) == ("Deployment shop/web", {"a": "of the object"}, {"a": 1})
    assert (format_path(found.template_path), found.replicas) == ("spec.template.metadata.annotations", 3)

    rollout = read_kubernetes_object(document(kind="Rollout", metadata={"name": "a"}, spec={"template": template}))
    assert isinstance(rollout, KubernetesObject)
    assert rollout.of_pods == {"a": 1}

    night = read_kubernetes_object(document(kind="CronJob", metadata={"generateName": "night-"}, spec={}))
    assert isinstance(night, KubernetesObject)
    assert (night.subject, night.of_pods) == ("CronJob night-*", {})
    assert format_path(night.template_path) == "spec.jobTemplate.spec.template.metadata.annotations"

    pod = read_kubernetes_object(document(kind="Pod", metadata=metadata))
    assert isinstance(pod, KubernetesObject)
    assert pod.of_pods is pod.own


def test_an_object_that_cannot_be_read() -> None:
    found = read_kubernetes_object(document(kind="Pod", metadata={"name": "web", "labels": {"a": 1}}))
    assert found == Finding(
        rule=Rule.MALFORMED_FIELD,
        source="a.yaml#1",
        subject="Pod(web)",
        field="metadata.labels['a']",
        value=1,
        accepted="a text is expected",
    )
    nothing = read_kubernetes_object(document(kind="Pod", metadata=[]))
    assert isinstance(nothing, Finding)
    assert (nothing.subject, nothing.field) == ("Pod()", "metadata")
