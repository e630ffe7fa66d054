"""Installations that are refused: each names the class of its problem, the field as spelled, and what is accepted."""

import pytest

from netplug_core.installation.check import check
from netplug_core.installation.document import read_installation
from netplug_core.installation.facts import ClusterFacts
from netplug_core.installation.problems import InvalidInstallation
from netplug_core.resources.installation import KubernetesProvider
from tests.harness.installations import manifest, network
from tests.harness.wrong_installations import V4, WRONG_DOCUMENTS, WRONG_SPECS, N


@pytest.mark.parametrize("document, problem_class, path, text", WRONG_DOCUMENTS)
def test_a_document_that_cannot_be_read(document: dict[str, object], problem_class: str, path: str, text: str) -> None:
    with pytest.raises(InvalidInstallation) as caught:
        read_installation(document, source="a.yaml#1")
    assert caught.value.problem_class.value == problem_class
    assert " and ".join(caught.value.paths) == path
    assert str(caught.value).startswith("a.yaml#1")
    assert text in str(caught.value)


@pytest.mark.parametrize("spec, problem_class, path, text", WRONG_SPECS)
def test_a_spec_that_breaks_one_rule(spec: dict[str, object], problem_class: str, path: str, text: str) -> None:
    (problem,) = check(read_installation(manifest(spec))).problems
    assert problem.problem_class.value == problem_class
    assert " and ".join(problem.paths) == path
    assert text in str(problem)
    assert str(problem).startswith(f"Installation(default): {problem_class}: {path}: ")


def test_check_26_a_provider_that_is_not_the_detected_one() -> None:
    document = read_installation(manifest({"kubernetesProvider": "GKE", "cni": {"type": "Netplug"}}))
    (problem,) = check(document, ClusterFacts(provider=KubernetesProvider.EKS)).problems
    assert str(problem) == (
        "Installation(default): Conflict: spec.kubernetesProvider: 'GKE' is not accepted; the cluster is EKS"
    )


@pytest.mark.parametrize("declared, detected", [("", "EKS"), ("EKS", ""), ("EKS", "EKS"), (None, "EKS")])
def test_a_provider_that_is_not_known_contradicts_none(declared: str | None, detected: str) -> None:
    document = read_installation(manifest({"kubernetesProvider": declared}))
    checked = check(document, ClusterFacts(provider=KubernetesProvider(detected)))
    assert checked.problems == ()
    assert checked.resolved is not None
    assert checked.resolved.provider is KubernetesProvider.EKS


def test_all_problems_are_found_at_once() -> None:
    spec = {**network(mtu=-1, bgp="Disabled", ipPools=[{"cidr": "x"}, {"cidr": V4, "encapsulation": "None"}])}
    problems = check(read_installation(manifest({**spec, "cni": {"type": "x"}}))).problems
    assert [problem.paths[0] for problem in problems] == ["spec.cni.type", f"{N}.mtu", f"{N}.ipPools[0].cidr"]
    problems = check(read_installation(manifest(spec))).problems
    assert [problem.paths[0] for problem in problems] == [
        f"{N}.mtu",
        f"{N}.ipPools[0].cidr",
        f"{N}.ipPools[1].encapsulation",
    ]


def test_the_corpus_is_large() -> None:
    assert len(WRONG_DOCUMENTS) + len(WRONG_SPECS) >= 60
