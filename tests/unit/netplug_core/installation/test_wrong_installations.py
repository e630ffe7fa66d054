"""Installations that are refused: each names the class of its problem, the field as spelled, and what is accepted."""

from typing import cast

import pytest

from netplug_core.installation.components import spec_schema
from netplug_core.installation.document import InvalidInstallation, read_installation
from netplug_core.installation.rules import check
from netplug_core.installation.settings import ClusterFacts
from netplug_core.resources.installation import KubernetesProvider, Sysctl
from tests.harness.installations import manifest, network
from tests.harness.wrong_installations import V4, WRONG_DOCUMENTS, WRONG_SPECS, N, pool

SPEC_FIELDS = cast("dict[str, object]", spec_schema()["properties"])


def the_problem(document: dict[str, object]) -> InvalidInstallation:
    """The one problem of a document, whether it is no Installation or a member of it cannot be read."""
    try:
        found = read_installation(document, source="a.yaml#1")
    except InvalidInstallation as error:
        return error
    (problem,) = check(found).problems
    return problem


@pytest.mark.parametrize("document, problem_class, path, text", WRONG_DOCUMENTS)
def test_a_document_that_cannot_be_read(document: dict[str, object], problem_class: str, path: str, text: str) -> None:
    problem = the_problem(document)
    assert problem.problem_class.value == problem_class
    assert " and ".join(problem.paths) == path
    assert str(problem).startswith("a.yaml#1")
    assert text in str(problem)


@pytest.mark.parametrize("spec, problem_class, path, text", WRONG_SPECS)
def test_a_spec_that_breaks_one_rule(spec: dict[str, object], problem_class: str, path: str, text: str) -> None:
    (problem,) = check(read_installation(manifest(spec))).problems
    assert problem.problem_class.value == problem_class
    assert " and ".join(problem.paths) == path
    assert text in str(problem)
    assert str(problem).startswith(f"Installation(default): {problem_class}: {path}: ")


def test_a_field_in_the_wrong_place_is_named_with_its_place() -> None:
    (problem,) = check(read_installation(manifest({"ipPools": [{"cidr": V4}]}))).problems
    assert problem.paths == ("spec.ipPools",)
    assert problem.accepted.startswith("it belongs in netplugNetwork; spec has cni, ")


def test_every_problem_is_found_at_once() -> None:
    spec = network(
        bgp=True,
        hostPorts="enabled",
        mtu="1450",
        readinessGates=["http://a/", "b", "http://c/", "d", "e"],
        sysctl=[{"key": "net.ipv4.tcp_keepalive_time"}, {"key": ""}],
        ipPools=[{"cidr": V4, "natOutgoing": True}, {"cidr": 7}, {"cidr": "10.0.0.0/33"}],
    )
    spec |= {"calicoNetwork": {}, "variant": "Calico", "registri": "a/"}
    spec |= {"nodeResources": {"requests": "1", "limits": {"cpu": "x", "y.z": []}}}
    problems = check(read_installation(manifest(spec))).problems
    assert [(" and ".join(problem.paths), problem.accepted) for problem in problems] == [
        ("spec.calicoNetwork", "it is called netplugNetwork here"),
        ("spec.variant", "netplug does not have this field of the operator.tigera.io resource; leave it out"),
        ("spec.registri", f"there is no such field; did you mean registry? spec has {', '.join(sorted(SPEC_FIELDS))}"),
        (f"{N}.ipPools[0].natOutgoing", "expected one of Enabled, Disabled"),
        (f"{N}.ipPools[1].cidr", "expected a text"),
        (f"{N}.bgp", "expected one of Enabled, Disabled"),
        (f"{N}.mtu", "expected a whole number"),
        (f"{N}.hostPorts", "expected one of Enabled, Disabled"),
        (f"{N}.sysctl[0].value", "expected a name"),
        (f"{N}.sysctl[1].key", "expected a name"),
        *((f"{N}.readinessGates[{number}]", "expected an http or https URL with a host") for number in (1, 3, 4)),
        ("spec.nodeResources.requests", "expected an object"),
        ("spec.nodeResources.limits[cpu]", "expected a quantity such as 100m, 1 or 96Mi"),
        ("spec.nodeResources.limits[y.z]", "expected a quantity such as 100m, 1 or 96Mi"),
        (f"{N}.ipPools[2].cidr", "a CIDR such as 10.0.0.0/16 is expected"),
    ]  # fmt: skip


def test_a_document_of_nothing_but_mistakes_is_not_read_to_its_end() -> None:
    problems = check(read_installation(manifest({f"field{number}": number for number in range(1000)}))).problems
    assert len(problems) == 100


@pytest.mark.parametrize(
    "amounts",
    [{"cpu": 1, "memory": 536870912}, {"cpu": 0.5}, {"cpu": "1"}, {"cpu": "1e3"}, {"memory": "1.5Gi"}, {"cpu": ".5"}],
)
def test_a_quantity_is_a_text_or_a_number(amounts: dict[str, object]) -> None:
    checked = check(read_installation(manifest({"nodeResources": {"limits": amounts}})))
    assert checked.problems == ()
    assert checked.document.installation.spec.node_resources is not None
    assert dict(checked.document.installation.spec.node_resources.limits) == {n: str(v) for n, v in amounts.items()}


def test_a_sysctl_is_a_text_or_a_number() -> None:
    sysctl = {"key": "net.ipv4.tcp_keepalive_probes", "value": 15}
    checked = check(read_installation(manifest(network(sysctl=[sysctl]))))
    assert checked.problems == ()
    assert checked.document.installation.spec.network.sysctls == (
        Sysctl(key="net.ipv4.tcp_keepalive_probes", value="15"),
    )


@pytest.mark.parametrize("registry", ["registry.example", "registry.example/", "localhost:5000/team", "[::1]:5000/"])
def test_a_registry_needs_no_slash(registry: str) -> None:
    checked = check(read_installation(manifest({"registry": registry})))
    assert checked.problems == ()
    assert checked.resolved is not None
    assert checked.resolved.registry == registry.rstrip("/") + "/"


def test_a_problem_of_a_prefix_shows_its_text() -> None:
    (problem,) = check(read_installation(manifest(pool("10.43.0.0/27")))).problems
    assert "'10.43.0.0/27' is not accepted" in str(problem)


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
