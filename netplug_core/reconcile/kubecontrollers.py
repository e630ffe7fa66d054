"""What the controllers run with: the stored configuration, and variables of the environment, which win."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from attrs import evolve, field, frozen

from netplug_core.errors import ConfigurationError
from netplug_core.log import Level
from netplug_core.resources.fields import LogSeverity, Metadata, Switch, parse_duration_s
from netplug_core.resources.kubecontrollersconfiguration import (
    Controllers,
    ControllerSettings,
    HostEndpointSettings,
    KubeControllersConfiguration,
    KubeControllersSpec,
    LoadBalancerController,
    NodeController,
)

__all__ = [
    "CONTROLLER_VARIABLES", "CopySource", "LabelCopier", "RunningControllers", "default_configuration", "duration_s",
    "find_label_copier", "find_running_controllers", "log_level", "period_s", "with_status",
]  # fmt: skip

CONTROLLER_VARIABLES: Final = (
    "ENABLED_CONTROLLERS", "RECONCILER_PERIOD", "COMPACTION_PERIOD", "HEALTH_ENABLED", "SYNC_NODE_LABELS",
    "AUTO_HOST_ENDPOINTS", "LOG_LEVEL",
)  # fmt: skip
"""The variables that stand above the stored configuration."""

_PERIOD, _COMPACTION_PERIOD = "5m", "10m"
_TRUTHS: Final = {"true": Switch.ENABLED, "false": Switch.DISABLED}
_BLOCKS: Final = {
    "node": "node",
    "policy": "policy",
    "workloadendpoint": "workload_endpoint",
    "serviceaccount": "service_account",
    "namespace": "namespace",
    "profile": "namespace",  # its name in earlier releases
    "loadbalancer": "load_balancer",
}
"""The attributes of ``Controllers`` by the names in ``ENABLED_CONTROLLERS``."""

T = TypeVar("T")


class CopySource(enum.Enum):
    """Where what is copied comes from: from Kubernetes; from nowhere, as it is the datastore; or it is not known."""

    KUBERNETES = "Kubernetes"
    DATASTORE = "datastore"
    NONE = "none"


@frozen(kw_only=True)
class RunningControllers:
    """The settings in force, every one of them set, and the variables of the environment that count among them.

    But ``sync_labels`` is only set if it is known which Kubernetes to copy from, or if labels are not to be copied.

    ``ignored`` names controllers that are asked for and that this release does not have; ``idle`` those that are asked
    for and have nothing to copy here, because of ``source``.
    """

    spec: KubeControllersSpec
    environment: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    source: CopySource

    @property
    def copies(self) -> Mapping[str, ControllerSettings]:
        """The settings of the controllers that copy, by the names of those that run."""
        return dict(_copying(self.spec.controllers))

    @property
    def node(self) -> NodeController | None:
        """The settings of the controllers of nodes; None: they do not run."""
        return self.spec.controllers.node

    @property
    def label_sync(self) -> NodeController | None:
        """The settings of the controller that copies labels of nodes; None: it does not run."""
        is_on = self.node is not None and self.node.sync_labels is Switch.ENABLED
        return self.node if is_on and self.source is CopySource.KUBERNETES else None

    @property
    def host_endpoints(self) -> HostEndpointSettings:
        """Which host endpoints nodes have by themselves."""
        return HostEndpointSettings() if self.node is None else self.node.host_endpoint


def default_configuration(source: CopySource) -> KubeControllersConfiguration:
    """The configuration of a cluster whose administrator has stored none: the controllers that have work run."""
    copying = ControllerSettings() if source is CopySource.KUBERNETES else None
    controllers = Controllers(
        node=NodeController(),
        policy=copying,
        workload_endpoint=copying,
        service_account=copying,
        namespace=copying,
    )
    spec = KubeControllersSpec(controllers=controllers)
    return KubeControllersConfiguration(metadata=Metadata(name="default"), spec=spec)


class LabelCopier(enum.Enum):
    """Who copies the labels of Kubernetes' nodes to the Nodes of another datastore."""

    NODE_PROCESSES = "node processes"
    CONTROLLERS = "controllers"
    NONE = "none"


def find_label_copier(stored: KubeControllersConfiguration | None) -> LabelCopier:
    """Who copies labels of nodes, by the stored configuration; None: there is none, or it cannot be read.

    Controllers say in its status what they run with. Where none have ever run, each node process copies its own.
    """
    if stored is None:
        return LabelCopier.NODE_PROCESSES
    running = stored.status.running
    node = (stored.spec if running is None else running).controllers.node
    sync = None if node is None else node.sync_labels
    if sync is Switch.DISABLED:
        return LabelCopier.NONE
    is_theirs = running is not None and sync is Switch.ENABLED
    return LabelCopier.CONTROLLERS if is_theirs else LabelCopier.NODE_PROCESSES


def duration_s(text: str) -> float | None:
    """The seconds of a duration; None if it is 0, which switches off what it is for.

    Raises:
        ValueError: it is none.
    """
    return None if re.fullmatch(r"0(ns|us|ms|s|m|h)?", text) else parse_duration_s(text)


def log_level(spec: KubeControllersSpec) -> Level:
    """The level below which no lines are written; what is worse than an error is one."""
    severity = spec.log_severity or LogSeverity.INFO
    return next((level for level in Level if level.value == severity.value.upper()), Level.ERROR)


def period_s(settings: ControllerSettings | NodeController | None) -> float | None:
    """How often a controller compares everything; None: never, only what has changed."""
    return duration_s((settings.reconciler_period if settings else "") or _PERIOD)


def find_running_controllers(
    spec: KubeControllersSpec, environ: Mapping[str, str], source: CopySource
) -> RunningControllers:
    """What is in force with a stored configuration and an environment. An empty variable is none.

    Raises:
        ConfigurationError: a variable has a value that is not accepted.
    """
    used = _Variables(environ)
    controllers = used.read("ENABLED_CONTROLLERS", spec.controllers, lambda text: _chosen(text, spec.controllers))
    period = used.read("RECONCILER_PERIOD", "", _duration)
    running = KubeControllersSpec(
        log_severity=used.read("LOG_LEVEL", spec.log_severity or LogSeverity.INFO, _severity),
        health_checks=used.read("HEALTH_ENABLED", spec.health_checks or Switch.ENABLED, _truth),
        metrics_port=spec.metrics_port,
        compaction_period=used.read("COMPACTION_PERIOD", spec.compaction_period or _COMPACTION_PERIOD, _duration),
        controllers=_running(controllers, period, used, source),
    )
    return RunningControllers(
        spec=running,
        environment=used.taken(),
        ignored=() if controllers.load_balancer is None else ("loadbalancer",),
        idle=() if source is CopySource.KUBERNETES else tuple(name for name, _ in _copying(controllers)),
        source=source,
    )


def with_status(stored: KubeControllersConfiguration, running: RunningControllers) -> KubeControllersConfiguration:
    """The stored configuration with what is in force as its status; the same value if it has it."""
    status = evolve(stored.status, running=running.spec, environment=running.environment)
    return evolve(stored, status=status)


# --- the environment --------------------------------------------------------------------------------------------------


@frozen
class _Variables:
    """Reads variables, and remembers which of them were set."""

    environ: Mapping[str, str]
    found: dict[str, str] = field(factory=dict)

    def read(self, name: str, otherwise: T, parse: Callable[[str], T]) -> T:
        """The value of a variable; ``otherwise`` if it is not set."""
        text = self.environ.get(name, "").strip()
        if not text:
            return otherwise
        try:
            value = parse(text)
        except ValueError as error:
            raise ConfigurationError(name, text, str(error)) from error
        self.found[name] = text
        return value

    def taken(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.found.items()))


def _chosen(text: str, stored: Controllers) -> Controllers:
    """The controllers that a list names, with their stored settings; the others do not run."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not set(names) <= set(_BLOCKS):
        raise ValueError(f"names of {', '.join(_BLOCKS)}, with commas between, are")
    chosen = {_BLOCKS[name] for name in names}

    def settings(attribute: str, block: ControllerSettings | None) -> ControllerSettings | None:
        return (block or ControllerSettings()) if attribute in chosen else None

    return Controllers(
        node=(stored.node or NodeController()) if "node" in chosen else None,
        load_balancer=(stored.load_balancer or LoadBalancerController()) if "load_balancer" in chosen else None,
        policy=settings("policy", stored.policy),
        workload_endpoint=settings("workload_endpoint", stored.workload_endpoint),
        service_account=settings("service_account", stored.service_account),
        namespace=settings("namespace", stored.namespace),
    )


def _running_node(
    stored: NodeController | None, period: str, used: _Variables, source: CopySource
) -> NodeController | None:
    """The settings of the controllers of nodes. Their variables are judged also if they do not run."""
    found = stored or NodeController()
    sync = used.read("SYNC_NODE_LABELS", found.sync_labels or Switch.ENABLED, _truth)
    create = used.read("AUTO_HOST_ENDPOINTS", found.host_endpoint.auto_create, _switch)
    running = evolve(
        found,
        reconciler_period=period or found.reconciler_period or _PERIOD,
        sync_labels=None if source is CopySource.NONE and sync is Switch.ENABLED else sync,
        host_endpoint=evolve(found.host_endpoint, auto_create=create),
    )
    return None if stored is None else running


def _running(controllers: Controllers, period: str, used: _Variables, source: CopySource) -> Controllers:
    """The controllers that do something here, with every setting set."""

    def copying(stored: ControllerSettings | None) -> ControllerSettings | None:
        if stored is None or source is not CopySource.KUBERNETES:
            return None
        return evolve(stored, reconciler_period=period or stored.reconciler_period or _PERIOD)

    return Controllers(
        node=_running_node(controllers.node, period, used, source),
        policy=copying(controllers.policy),
        workload_endpoint=copying(controllers.workload_endpoint),
        service_account=copying(controllers.service_account),
        namespace=copying(controllers.namespace),
    )


def _copying(controllers: Controllers) -> Iterator[tuple[str, ControllerSettings]]:
    """The controllers that copy and are asked for, by the names of the settings."""
    asked = {
        "policy": controllers.policy,
        "namespace": controllers.namespace,
        "serviceaccount": controllers.service_account,
        "workloadendpoint": controllers.workload_endpoint,
    }
    return ((name, block) for name, block in asked.items() if block is not None)


def _duration(text: str) -> str:
    try:
        duration_s(text)
    except ValueError:
        raise ValueError("a duration such as 90s or 5m is, or 0") from None
    return text


def _truth(text: str) -> Switch:
    if text.lower() not in _TRUTHS:
        raise ValueError("true or false is")
    return _TRUTHS[text.lower()]


def _switch(text: str) -> Switch:
    found = next((each for each in Switch if each.value.lower() == text.lower()), None)
    if found is None:
        raise ValueError("enabled or disabled is")
    return found


def _severity(text: str) -> LogSeverity:
    found = next((each for each in LogSeverity if each.value.lower() == text.lower()), None)
    if found is None:
        raise ValueError(f"one of {', '.join(each.value for each in LogSeverity)} is")
    return found
