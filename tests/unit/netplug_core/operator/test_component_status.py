"""NetplugStatus: what is said of each component, while the Installation says the same of all together."""

from __future__ import annotations

from typing import Any, cast

import pytest
from attrs import evolve

from netplug_cli.operator.world import INSTALLATION
from netplug_core.errors import Unavailable
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.operator.plan import Plan
from netplug_core.operator.report import Reason, Report
from netplug_core.operator.state import IGNORE, ApplyObject, ChangePool, ObjectRef
from netplug_core.operator.status import Component, component_ref, component_reports, plan_after_failure
from tests.harness.installations import make_pool, network
from tests.harness.operator_scene import Scene

POOL = {"cidr": "10.244.0.0/16", "encapsulation": "None", "natOutgoing": "Disabled"}
SPEC = network(ipPools=[POOL])
NETPLUG, POOLS = component_ref(Component.NETPLUG), component_ref(Component.POOLS)
DAEMONSET = "apply DaemonSet netplug-system/netplug-node"


@pytest.fixture
def scene() -> Scene:
    """A cluster with an Installation that is ready."""
    return Scene.ready(SPEC)


def status(scene: Scene, ref: ObjectRef) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition of a component."""
    found = cast("dict[str, Any]", scene.cluster.objects[ref])["status"]["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in found}


AVAILABLE = {
    "Available": ("True", "AllObjectsAvailable"),
    "Progressing": ("False", "AllObjectsAvailable"),
    "Degraded": ("False", "AllObjectsAvailable"),
}


def test_components_that_are_available(scene: Scene) -> None:
    assert status(scene, NETPLUG) == status(scene, POOLS) == AVAILABLE
    conditions = cast("dict[str, Any]", scene.cluster.objects[NETPLUG])["status"]["conditions"]
    assert {one["observedGeneration"] for one in conditions} == {1}


def test_nodes_that_come_up_are_not_about_pools(scene: Scene) -> None:
    scene.cluster.roll_out(available=1)
    scene.settle()
    assert status(scene, NETPLUG)["Progressing"] == ("True", "ResourceNotReady")
    assert status(scene, NETPLUG)["Available"] == ("False", "ResourceNotReady")
    assert status(scene, NETPLUG)["Degraded"] == ("False", "ResourceNotReady")
    assert status(scene, POOLS) == AVAILABLE


def test_a_pool_that_cannot_be_is_not_about_the_nodes() -> None:
    pool = make_pool("10.244.0.0/16")
    made = Scene(evolve(pool, spec=evolve(pool.spec, block_length=28)))
    made.cluster.install(SPEC)
    made.settle()
    made.cluster.roll_out()
    made.settle()
    assert status(made, POOLS)["Degraded"] == ("True", "ResourceValidationError")
    assert status(made, NETPLUG) == AVAILABLE
    assert made.condition("Degraded")[:2] == ("True", "ResourceValidationError")


def test_a_mistake_in_the_installation_is_about_both(scene: Scene) -> None:
    scene.cluster.install(network(mtu=70000))
    scene.settle()
    for ref in (NETPLUG, POOLS):
        assert status(scene, ref)["Degraded"] == ("True", "InvalidConfigurationError")


def test_what_fails_is_about_its_component(scene: Scene) -> None:
    scene.cluster.refused[DAEMONSET] = Unavailable("kubernetes API", "no")
    scene.cluster.install({**SPEC, "registry": "example.org/"})
    scene.settle()
    assert status(scene, NETPLUG)["Degraded"] == ("True", "ResourceUpdateError")
    assert status(scene, POOLS) == AVAILABLE


@pytest.mark.parametrize("degraded", [Component.NETPLUG, Component.POOLS])
def test_a_failed_action_degrades_its_component_alone(degraded: Component) -> None:
    step = PoolStep(action=PoolAction.CREATE, pool=make_pool("10.0.0.0/16"), reason="new")
    wanted = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    action = ChangePool(step) if degraded is Component.POOLS else ApplyObject(wanted)
    failed = plan_after_failure(Plan(actions=(action,)), action, Unavailable("kubernetes API", "no"))
    found = {component for component, report in component_reports(failed).items() if report.degraded}
    assert found == {degraded}
    assert failed.report.degraded is not None
    assert failed.report.degraded[0] == Reason.UPDATE_ERROR


def test_what_is_to_be_done_is_pending_in_its_component() -> None:
    step = PoolStep(action=PoolAction.CREATE, pool=make_pool("10.0.0.0/16"), reason="new")
    reports = component_reports(Plan(actions=(ChangePool(step),), pools=Report(), nodes=Report()))
    assert reports[Component.NETPLUG].is_ready
    assert reports[Component.POOLS].progressing == ("ResourceNotReady", "changes that are being made: 1")


def test_they_go_with_the_installation_but_not_what_others_have_made(scene: Scene) -> None:
    metadata = cast("dict[str, Any]", scene.cluster.objects[POOLS])["metadata"]
    metadata["annotations"][IGNORE] = "true"
    scene.cluster.remove(INSTALLATION)
    scene.settle()
    assert INSTALLATION not in scene.cluster.objects
    assert NETPLUG not in scene.cluster.objects
    assert POOLS in scene.cluster.objects


def test_one_that_is_deleted_comes_back(scene: Scene) -> None:
    scene.cluster.remove(NETPLUG)
    scene.settle()
    assert status(scene, NETPLUG) == AVAILABLE


def test_without_the_definition_of_the_kind_all_else_works() -> None:
    made = Scene()
    refusal = Unavailable("kubernetes API", "the server could not find the requested resource")
    made.cluster.refused = {f"apply {ref}": refusal for ref in (NETPLUG, POOLS)}
    made.cluster.install(SPEC)
    made.settle()
    made.cluster.roll_out()
    made.settle()
    assert NETPLUG not in made.cluster.objects
    assert made.condition("Ready")[0] == "True"
