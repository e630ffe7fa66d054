"""``cluster status`` and ``controllers status``: what they print for people and programs, and how they exit."""

from __future__ import annotations

import json
import re

import pytest

from netplug_cli.ctl.commands.cluster import _controllers_report
from netplug_cli.ctl.tables import ReportFormat
from netplug_core.clock import Deadline
from netplug_core.flows.resources.overview import ControllersOverview, ControllerState
from netplug_core.reconcile.kubecontrollers import (
    CopySource,
    default_configuration,
    find_running_controllers,
    with_status,
)
from netplug_core.reconcile.lease import LeaseRecord
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.kubecontrollersconfiguration import KUBE_CONTROLLERS_CONFIGURATION_KEY
from netplug_core.resources.node import Node, NodeStatus, node_key
from tests.harness.ctl import ToolHarness
from tests.harness.resources import make_pool


@pytest.fixture
def running(harness: ToolHarness) -> ToolHarness:
    """A cluster with a pool, a node that is not ready, and controllers that have a variable."""
    stored = default_configuration(CopySource.DATASTORE)
    found = find_running_controllers(stored.spec, {"RECONCILER_PERIOD": "1m"}, CopySource.DATASTORE)
    node = Node(metadata=Metadata(name="worker-1"), status=NodeStatus(is_ready=False, release="v3.33.0"))
    writes = [
        Create(KUBE_CONTROLLERS_CONFIGURATION_KEY, with_status(stored, found)),
        Create(ippool_key("blue"), make_pool("10.65.0.0/24", "blue")),
        Create(node_key("worker-1"), node),
    ]
    harness.store.commit(writes, deadline=Deadline.after(harness.clock, 5.0))
    return harness


def test_controllers_that_have_not_run(harness: ToolHarness) -> None:
    assert harness.run_command("controllers", "status") == 1
    assert harness.out == "No controllers have run yet.\n"


def test_controllers_that_run(running: ToolHarness) -> None:
    assert running.run_command("controllers", "status") == 0
    assert running.out.splitlines()[1:4] == [
        "Variable: RECONCILER_PERIOD=1m",
        "CONTROLLER         STATE   COMPARES EVERY",
        "node               on      1m",
    ]
    assert "policy             off     -" in running.out
    assert running.run_command("controllers", "status", "-o", "json") == 0
    found = json.loads(running.out)
    assert found["controllers"][0] == {"name": "node", "state": "on", "reconcilerPeriod": "1m"}
    assert (found["hasRun"], found["environment"]) == (True, {"RECONCILER_PERIOD": "1m"})


@pytest.mark.parametrize(
    "lease, is_acting, lines",
    [
        (None, None, ("Acting:   not known: the datastore does not show the lease of the controllers", "node  on")),
        (LeaseRecord(holder="a_1", renewed="now"), True, ("Acting:   a_1, renewed now", "node  running")),
        (
            LeaseRecord(holder="a_1", renewed="t"),
            False,
            ("Acting:   none; the last one was a_1, renewed t", "node  stopped"),
        ),
        (LeaseRecord(), False, ("Acting:   none; the last one was -, renewed never", "node  stopped")),
    ],
)
def test_who_acts_is_shown_where_the_datastore_says_it(
    lease: LeaseRecord | None,
    is_acting: bool | None,  # noqa: FBT001 - a case
    lines: tuple[str, str],
) -> None:
    states = (ControllerState(name="node", is_running=True),)
    found = ControllersOverview(has_run=True, controllers=states, lease=lease, is_acting=is_acting)
    shown = _controllers_report(found).render(ReportFormat.TEXT).splitlines()
    assert (shown[0], re.sub(" {2,}", "  ", shown[-1]).removesuffix("  -")) == lines


def test_a_cluster_on_one_screen(running: ToolHarness) -> None:
    assert running.run_command("cluster", "status") == 1
    lines = running.out.splitlines()
    assert lines[0] == "Release:     unknown"
    assert "Nodes:       1, of them 1 not ready" in lines
    assert "They run:    v3.33.0: 1" in lines
    assert "Controllers: node" in lines
    assert any(line.startswith("blue ") for line in lines)
    assert lines[-1] == "! nodes that are not ready: worker-1"
    assert running.run_command("cluster", "status", "-o", "json") == 1
    found = json.loads(running.out)
    assert found["notReady"] == ["worker-1"]
    assert found["releases"] == {"v3.33.0": ["worker-1"]}
    assert found["pools"][0]["pool"] == "blue"


def test_a_cluster_without_pools(harness: ToolHarness) -> None:
    assert harness.run_command("cluster", "status") == 1
    assert "POOL" not in harness.out
    assert harness.out.endswith("! no controllers have run yet: leaked addresses stay\n")
