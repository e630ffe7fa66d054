"""The values that an orchestrator returns."""

import pytest
from attrs import evolve

from netplug_core.orchestrator.model import PodFacts, PodName, PodPhase

WEB = PodFacts(namespace="default", name="web", uid="u")


@pytest.mark.parametrize("phase", PodPhase)
def test_a_pod_is_terminated_once_it_has_succeeded_or_failed(phase: PodPhase) -> None:
    pod = PodFacts(namespace="n", name="p", uid="u", phase=phase)
    assert pod.is_terminated == (phase in {PodPhase.SUCCEEDED, PodPhase.FAILED})


def test_an_empty_annotation_is_not_a_missing_one() -> None:
    pod = PodFacts(namespace="n", name="p", uid="u", annotations=(("a", ""),))
    assert pod.find_annotation("a") == ""
    assert pod.find_annotation("b") is None


def test_a_pod_name_has_a_namespace_and_sorts_by_both() -> None:
    assert WEB.pod_name == PodName("default", "web")
    assert str(WEB.pod_name) == "default/web"
    assert sorted([PodName("b", "a"), PodName("a", "z"), PodName("b", "A")]) == [
        PodName("a", "z"),
        PodName("b", "A"),
        PodName("b", "a"),
    ]


def test_a_runtime_knows_a_static_pod_by_the_uid_that_its_mirror_names() -> None:
    assert WEB.runtime_uid == "u"
    mirror = evolve(WEB, annotations=(("kubernetes.io/config.mirror", "4f2a"),))
    assert mirror.runtime_uid == "4f2a"
