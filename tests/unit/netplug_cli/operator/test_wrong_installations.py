"""Installations that break a rule: Degraded with class, field and what is accepted, and nothing is changed for them."""

from __future__ import annotations

import pytest
from attrs import frozen

from tests.harness.installations import manifest
from tests.harness.operator_cluster import (
    DEFINITION_KINDS,
    DrivenOperator,
    MemoryCluster,
    MemoryPools,
    make_loop,
    settle,
)
from tests.harness.wrong_installations import WRONG_DOCUMENTS, WRONG_SPECS

SPECS = [
    (document["spec"], *expected)
    for document, *expected in WRONG_DOCUMENTS
    if {**document, "spec": None} == {**manifest(), "spec": None}  # for any other the operator has nothing to do
]


@frozen
class Installed:
    """A cluster in which netplug is installed by a loop."""

    cluster: MemoryCluster
    loop: DrivenOperator
    before: dict[str, object]


def others(cluster: MemoryCluster) -> dict[str, object]:
    """Everything but the Installation."""
    return {ref: found for ref, found in cluster.picture().items() if not ref.startswith("Installation")}


@pytest.fixture(scope="module")
def installed() -> Installed:
    cluster = MemoryCluster()
    cluster.install({})
    loop = make_loop(cluster, MemoryPools(cluster))
    settle(loop)
    return Installed(cluster, loop, others(cluster))


@pytest.mark.parametrize("spec, problem_class, path, text", [*SPECS, *WRONG_SPECS])
def test_a_wrong_change_is_degraded_and_changes_nothing(
    installed: Installed, spec: object, problem_class: str, path: str, text: str
) -> None:
    installed.cluster.install(spec)
    settle(installed.loop)
    status, reason, message = installed.cluster.conditions()["Degraded"]
    assert (status, reason) == ("True", "InvalidConfigurationError")
    assert f"{problem_class}: {path}: " in message
    assert text in message
    assert installed.cluster.conditions()["Ready"][0] == "False"
    assert others(installed.cluster) == installed.before


def test_a_new_installation_that_is_wrong_installs_nothing() -> None:
    cluster = MemoryCluster()
    cluster.install({"registry": "registry example"})
    settle(make_loop(cluster, MemoryPools(cluster)))
    assert cluster.conditions()["Degraded"][2] == (
        "Installation(default): Format: spec.registry: 'registry example' is not accepted; "
        "a registry such as registry.example.com:5000/ is expected, or UseDefault"
    )
    assert {ref.kind for ref in cluster.objects} <= {"Installation", "NetplugStatus", *DEFINITION_KINDS}
