"""The operator writes the status of the components that exist, and reports what it cannot write."""

from __future__ import annotations

from netplug_core.decoding.tables import find_text
from netplug_core.errors import Unavailable
from netplug_core.installation.components import ComponentKind
from netplug_core.operator.report import COMPONENT_REFS
from tests.harness.node_server import Lines
from tests.harness.operator_cluster import MemoryCluster, MemoryPools, make_loop, settle

API, VIEWER = COMPONENT_REFS[ComponentKind.FLOW_LOG_API], COMPONENT_REFS[ComponentKind.FLOW_LOG_VIEWER]


def reasons(cluster: MemoryCluster) -> list[str]:
    """Why the viewer is degraded or not, and why it is not ready."""
    listed = cluster.objects[VIEWER]["status"]["conditions"]  # type: ignore[index]
    by_type = {find_text(one, "type"): find_text(one, "reason") for one in listed}
    return [by_type["Degraded"], by_type["Ready"]]


def test_the_status_follows_what_exists() -> None:
    cluster = MemoryCluster()
    loop = make_loop(cluster, MemoryPools(cluster))
    settle(loop)
    cluster.create(VIEWER)
    settle(loop)
    assert reasons(cluster) == ["ResourceNotFound", "NotImplemented"]
    cluster.create(API)
    settle(loop)
    assert reasons(cluster) == ["Unknown", "NotImplemented"]
    written = list(cluster.writes)
    settle(loop)
    assert cluster.writes == written
    cluster.remove(API)
    settle(loop)
    assert reasons(cluster) == ["ResourceNotFound", "NotImplemented"]


def test_a_status_that_cannot_be_written_is_tried_again_and_holds_nothing_up() -> None:
    cluster, log = MemoryCluster(), Lines()
    cluster.install({})
    cluster.create(API)
    cluster.refused[f"apply {API} status"] = Unavailable("kubernetes API", "it is away")
    loop = make_loop(cluster, MemoryPools(cluster), log=log)
    assert settle(loop) == 2.0
    assert log.texts[-1] == ("ERROR the status of the components cannot be written cause=kubernetes API: it is away")
    assert cluster.conditions()["Progressing"][0] == "True"
    cluster.refused.clear()
    settle(loop)
    assert "status" in cluster.objects[API]


def test_an_operator_that_does_not_lead_writes_no_status() -> None:
    cluster = MemoryCluster()
    cluster.create(API)
    make_loop(cluster, MemoryPools(cluster), is_leading=False).look()
    assert cluster.writes == []
