"""What a pod says of itself."""

import pytest

from netplug_core.orchestrator.protocol import PodFacts, PodPhase


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.RUNNING, PodPhase.UNKNOWN])
def test_a_pod_goes_on_until_nothing_of_it_runs_again(phase: PodPhase) -> None:
    assert not PodFacts(namespace="n", name="p", uid="u", phase=phase).is_terminated


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_pod_is_over_when_nothing_of_it_runs_again(phase: PodPhase) -> None:
    assert PodFacts(namespace="n", name="p", uid="u", phase=phase).is_terminated


def test_an_annotation_that_is_empty_is_not_one_that_is_missing() -> None:
    pod = PodFacts(namespace="n", name="p", uid="u", annotations=(("a", ""),))
    assert pod.find_annotation("a") == ""
    assert pod.find_annotation("b") is None
