"""What the controllers run with: stored settings, variables that win, and what is refused."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.errors import ConfigurationError
from netplug_core.log import Level
from netplug_core.reconcile.kubecontrollers import (
    CONTROLLER_VARIABLES,
    CopySource,
    LabelCopier,
    default_configuration,
    duration_s,
    find_label_copier,
    find_running_controllers,
    log_level,
    period_s,
    with_status,
)
from netplug_core.resources.fields import LogSeverity, Switch
from netplug_core.resources.kubecontrollersconfiguration import (
    Controllers,
    ControllerSettings,
    HostEndpointSettings,
    KubeControllersConfiguration,
    KubeControllersSpec,
    LoadBalancerController,
    NodeController,
)

ALONE, COPIED = CopySource.DATASTORE, CopySource.KUBERNETES
DEFAULT = default_configuration(ALONE).spec


def test_without_settings_everything_runs_with_its_defaults() -> None:
    found = find_running_controllers(DEFAULT, {"PATH": "/bin", "LOG_LEVEL": " "}, ALONE)
    assert (found.environment, found.ignored) == ((), ())
    assert found.spec == KubeControllersSpec(
        log_severity=LogSeverity.INFO,
        health_checks=Switch.ENABLED,
        metrics_port=9094,
        compaction_period="10m",
        controllers=Controllers(
            node=NodeController(reconciler_period="5m", sync_labels=Switch.ENABLED),
        ),
    )
    assert found.node == found.spec.controllers.node
    assert found.host_endpoints == HostEndpointSettings()


def test_stored_settings_count_and_a_controller_without_a_block_is_off() -> None:
    node = NodeController(
        reconciler_period="1m",
        sync_labels=Switch.DISABLED,
        leak_grace_period="0",
        host_endpoint=HostEndpointSettings(auto_create=Switch.ENABLED),
    )
    stored = KubeControllersSpec(
        log_severity=LogSeverity.DEBUG,
        health_checks=Switch.DISABLED,
        metrics_port=0,
        compaction_period="0",
        controllers=Controllers(node=node, load_balancer=LoadBalancerController()),
    )
    found = find_running_controllers(stored, {}, ALONE)
    assert found.spec == evolve(stored, controllers=Controllers(node=node))
    assert found.ignored == ("loadbalancer",)
    assert found.host_endpoints == node.host_endpoint
    off = find_running_controllers(KubeControllersSpec(), {}, ALONE)
    assert off.spec.controllers == Controllers()
    assert (off.node, off.host_endpoints) == (None, HostEndpointSettings())


def test_variables_win_and_are_named() -> None:
    environ = {
        "ENABLED_CONTROLLERS": "node, Profile,loadbalancer,",
        "RECONCILER_PERIOD": "30s",
        "COMPACTION_PERIOD": "0",
        "HEALTH_ENABLED": "FALSE",
        "SYNC_NODE_LABELS": "false",
        "AUTO_HOST_ENDPOINTS": "enabled",
        "LOG_LEVEL": "warning",
    }
    found = find_running_controllers(KubeControllersSpec(), environ, ALONE)
    assert found.spec == KubeControllersSpec(
        log_severity=LogSeverity.WARNING,
        health_checks=Switch.DISABLED,
        compaction_period="0",
        controllers=Controllers(
            node=NodeController(
                reconciler_period="30s",
                sync_labels=Switch.DISABLED,
                host_endpoint=HostEndpointSettings(auto_create=Switch.ENABLED),
            )
        ),
    )
    assert (found.ignored, found.idle) == (("loadbalancer",), ("namespace",))
    assert dict(found.environment) == {**environ, "ENABLED_CONTROLLERS": "node, Profile,loadbalancer,"}
    assert set(dict(found.environment)) == set(CONTROLLER_VARIABLES)


@pytest.mark.parametrize("source", [CopySource.DATASTORE, CopySource.NONE])
def test_controllers_with_nothing_to_copy_are_named_and_not_shown_as_running(source: CopySource) -> None:
    stored = KubeControllersSpec(controllers=Controllers(policy=ControllerSettings(reconciler_period="7s")))
    environ = {"ENABLED_CONTROLLERS": "policy,serviceaccount,workloadendpoint"}
    found = find_running_controllers(stored, environ, source)
    assert found.spec.controllers == Controllers()
    assert (found.ignored, found.copies) == ((), {})
    assert found.idle == ("policy", "serviceaccount", "workloadendpoint")
    assert find_running_controllers(stored, {}, source).idle == ("policy",)


def test_controllers_that_copy_run_with_their_own_periods_or_that_of_the_environment() -> None:
    stored = KubeControllersSpec(
        controllers=Controllers(policy=ControllerSettings(reconciler_period="7s"), namespace=ControllerSettings())
    )
    found = find_running_controllers(stored, {}, COPIED)
    assert {name: each.reconciler_period for name, each in found.copies.items()} == {"policy": "7s", "namespace": "5m"}
    assert (found.idle, found.node, found.source) == ((), None, COPIED)
    faster = find_running_controllers(stored, {"RECONCILER_PERIOD": "1s"}, COPIED)
    assert {each.reconciler_period for each in faster.copies.values()} == {"1s"}
    assert [period_s(each) for each in (ControllerSettings(reconciler_period="7s"), ControllerSettings(), None)] == [
        7.0,
        300.0,
        300.0,
    ]
    assert period_s(NodeController(reconciler_period="0")) is None


def configuration(
    stored: Switch | None, running: Switch | None, *, has_run: bool = True
) -> KubeControllersConfiguration:
    """With settings of label sync as they are stored, and as controllers run with them."""
    wanted = default_configuration(COPIED)
    spec = evolve(wanted.spec, controllers=Controllers(node=NodeController(sync_labels=stored)))
    status = evolve(
        wanted.status, running=KubeControllersSpec(controllers=Controllers(node=NodeController(sync_labels=running)))
    )
    return evolve(wanted, spec=spec, status=status if has_run else wanted.status)


@pytest.mark.parametrize(
    "stored, expected",
    [
        (None, LabelCopier.NODE_PROCESSES),
        (configuration(None, None, has_run=False), LabelCopier.NODE_PROCESSES),
        (configuration(Switch.DISABLED, None, has_run=False), LabelCopier.NONE),
        (configuration(None, Switch.ENABLED), LabelCopier.CONTROLLERS),
        (configuration(Switch.ENABLED, Switch.DISABLED), LabelCopier.NONE),
        (configuration(None, None), LabelCopier.NODE_PROCESSES),
    ],
)
def test_labels_of_nodes_are_copied_by_one_of_them(
    stored: KubeControllersConfiguration | None, expected: LabelCopier
) -> None:
    assert find_label_copier(stored) is expected


def test_without_the_controllers_of_nodes_node_processes_copy() -> None:
    off = evolve(configuration(None, None), spec=KubeControllersSpec())
    off = evolve(off, status=evolve(off.status, running=KubeControllersSpec()))
    assert find_label_copier(off) is LabelCopier.NODE_PROCESSES


@pytest.mark.parametrize(
    "source, value, expected, runs",
    [
        (COPIED, "true", Switch.ENABLED, True),
        (COPIED, "false", Switch.DISABLED, False),
        (CopySource.NONE, "true", None, False),
        (CopySource.NONE, "false", Switch.DISABLED, False),
        (ALONE, "true", Switch.ENABLED, False),
    ],
)
def test_labels_are_copied_from_a_kubernetes_beside_the_datastore(
    source: CopySource, value: str, expected: Switch | None, *, runs: bool
) -> None:
    found = find_running_controllers(DEFAULT, {"SYNC_NODE_LABELS": value}, source)
    assert found.node is not None
    assert found.node.sync_labels is expected
    assert (found.label_sync is not None) is runs
    assert find_running_controllers(KubeControllersSpec(), {}, source).label_sync is None


def test_by_default_everything_is_copied_from_a_kubernetes_beside_the_datastore() -> None:
    found = find_running_controllers(default_configuration(COPIED).spec, {}, COPIED)
    assert list(found.copies) == ["policy", "namespace", "serviceaccount", "workloadendpoint"]


@pytest.mark.parametrize(
    "name, value, accepted",
    [
        ("ENABLED_CONTROLLERS", "nodes", "names of node, policy, "),
        ("RECONCILER_PERIOD", "5", "a duration such as 90s or 5m is, or 0"),
        ("COMPACTION_PERIOD", "-1s", "a duration such as 90s or 5m is, or 0"),
        ("HEALTH_ENABLED", "maybe", "true or false is"),
        ("SYNC_NODE_LABELS", "1", "true or false is"),
        ("AUTO_HOST_ENDPOINTS", "true", "enabled or disabled is"),
        ("LOG_LEVEL", "loud", "one of None, Debug, Info, Warning, Error, Fatal is"),
    ],
)
def test_a_value_that_is_not_accepted_is_named(name: str, value: str, accepted: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_running_controllers(KubeControllersSpec(), {name: value}, ALONE)
    assert (refused.value.where, refused.value.value) == (name, value)
    assert refused.value.accepted.startswith(accepted)


def test_the_status_says_what_is_in_force() -> None:
    stored = default_configuration(ALONE)
    running = find_running_controllers(stored.spec, {"LOG_LEVEL": "debug"}, ALONE)
    shown = with_status(stored, running)
    assert (shown.spec, shown.status.running) == (stored.spec, running.spec)
    assert shown.status.environment == (("LOG_LEVEL", "debug"),)
    assert with_status(shown, running) == shown


def test_a_duration_of_nothing_is_none() -> None:
    assert [duration_s(text) for text in ("0", "0s", "1m30s")] == [None, None, 90.0]


@pytest.mark.parametrize(
    "severity, level",
    [
        (None, Level.INFO), (LogSeverity.DEBUG, Level.DEBUG), (LogSeverity.WARNING, Level.WARNING),
        (LogSeverity.FATAL, Level.ERROR), (LogSeverity.NONE, Level.ERROR),
    ],
)  # fmt: skip
def test_the_level_of_the_log(severity: LogSeverity | None, level: Level) -> None:
    assert log_level(KubeControllersSpec(log_severity=severity)) is level
