"""The rules of Prometheus and the Grafana dashboard that are shipped; ``make manifests`` writes them.

docs/monitoring.md explains each alert. ``tests/unit/tools/test_monitoring.py`` compares every metric and label that is
named here with what the processes publish, and the alerts with the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

__all__ = ["ALERTS", "PANELS", "POOL_USAGE", "Alert", "Panel", "Unit", "monitoring_files"]

Json = Mapping[str, object]

_FOLDER: Final = "monitoring"
_UP_NODE = "netplug_node_build_info"
_UP_OPERATOR = "netplug_operator_build_info"
_UP_CONTROLLERS = "netplug_controllers_build_info"
_ADDS = 'netplug_node_calls_total{command="ADD"}'
_FAILED_ADDS = 'netplug_node_calls_total{command="ADD",code!="0"}'

POOL_USAGE: Final = "netplug:pool_addresses_in_use:ratio"
"""The recorded series of how full each pool is, from 0 to 1."""

_LOCAL = "sqlite|memory"  # datastores of one host: pools of one name on two hosts are two pools
_IN_USE, _SIZE = "netplug_node_pool_block_addresses_in_use", "netplug_node_pool_addresses"
_SHARED_BY, _LOCAL_BY = "by (datastore, pool)", "by (instance, datastore, pool)"
_USAGE_EXPRESSION = (
    f'sum {_SHARED_BY} ({_IN_USE}{{datastore!~"{_LOCAL}"}}) / max {_SHARED_BY} ({_SIZE}{{datastore!~"{_LOCAL}"}})'
    f' or sum {_LOCAL_BY} ({_IN_USE}{{datastore=~"{_LOCAL}"}}) / max {_LOCAL_BY} ({_SIZE}{{datastore=~"{_LOCAL}"}})'
)


# --- alerts ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Alert:
    """What Prometheus asks again and again, for how long it has to hold, and what the message says."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str


def _critical(name: str, expression: str, lasts: str, summary: str) -> Alert:
    return Alert(name=name, expression=expression, lasts=lasts, severity="critical", summary=summary)


def _warning(name: str, expression: str, lasts: str, summary: str) -> Alert:
    return Alert(name=name, expression=expression, lasts=lasts, severity="warning", summary=summary)


def _share(part: str, whole: str, by: str = "") -> str:
    return f"sum{by}(rate({part}[10m])) / sum{by}(rate({whole}[10m]))"


def _quantile(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({metric}_bucket[10m])))"


_NODE_ALERTS: Final = (
    _critical(
        "NetplugPodsDoNotStart",
        f"{_share(_FAILED_ADDS, _ADDS)} > 0.5",
        "5m",
        "{{ $value | humanizePercentage }} of the pods that start in the cluster get no network.",
    ),
    _warning(
        "NetplugPodsDoNotStartOnNode",
        f"{_share(_FAILED_ADDS, _ADDS, ' by (instance) ')} > 0.2",
        "10m",
        "{{ $value | humanizePercentage }} of the pods that start on {{ $labels.instance }} get no network.",
    ),
    _warning(
        "NetplugPodsStartSlowly",
        f"{_quantile('netplug_node_call_duration_seconds', 'instance, command')} > 10",
        "15m",
        "One of a hundred {{ $labels.command }} calls on {{ $labels.instance }} takes {{ $value | humanizeDuration }}.",
    ),
    _warning(
        "NetplugCallsRefused",
        "sum by (instance) (increase(netplug_node_calls_refused_total[10m])) > 0",
        "5m",
        "More calls wait on {{ $labels.instance }} than may; others are refused and come again.",
    ),
    _critical(
        "NetplugNodeGone",
        f"max by (instance) (max_over_time({_UP_NODE}[1h])) unless on (instance) {_UP_NODE}",
        "5m",
        "No metrics of the node process come from {{ $labels.instance }} any more.",
    ),
    _warning(
        "NetplugNodeRestarts",
        f"changes(process_start_time_seconds[1h]) > 3 and on (instance, job) {_UP_NODE}",
        "5m",
        "The node process on {{ $labels.instance }} was started {{ $value }} times in an hour.",
    ),
    _critical(
        "NetplugPluginMissing",
        "netplug_node_missing_plugins > 0",
        "2m",
        "{{ $labels.instance }} lacks {{ $value }} plugins that each of its pods needs.",
    ),
    _warning(
        "NetplugReleasesDiffer",
        f"count(count by (version) ({_UP_NODE})) > 1",
        "6h",
        "Nodes have run {{ $value }} releases of netplug for six hours.",
    ),
    _warning(
        "NetplugForeignSources",
        "sum by (instance) (rate(netplug_policy_source_guard_drops_total[10m])) > 1",
        "10m",
        "Pods on {{ $labels.instance }} send {{ $value | humanize }} packets a second from addresses of others.",
    ),
)

_ADDRESS_ALERTS: Final = (
    _critical(
        "NetplugPoolsExhausted",
        'sum by (instance) (increase(netplug_node_calls_total{command="ADD",code="105"}[10m])) > 0',
        "2m",
        "Pods on {{ $labels.instance }} get no address: every pool that may serve them is used up.",
    ),
    _warning(
        "NetplugPoolNearlyFull",
        f"{POOL_USAGE} > 0.9",
        "15m",
        "The pool {{ $labels.pool }} is {{ $value | humanizePercentage }} full.",
    ),
    _warning(
        "NetplugBlockLimitReached",
        'sum by (instance) (increase(netplug_node_calls_total{command="ADD",code="106"}[10m])) > 0',
        "5m",
        "{{ $labels.instance }} owns as many blocks as it may, and they are full.",
    ),
    _warning(
        "NetplugRecordsPassedOver",
        "sum by (datastore, kind) (netplug_node_records_passed_over) > 0",
        "5m",
        "Stored records of the kind {{ $labels.kind }} cannot be read and are left out.",
    ),
    _warning(
        "NetplugReleaseRecordsWait",
        "netplug_node_release_records > 0",
        "30m",
        "{{ $value }} addresses of pods that ended on {{ $labels.instance }} are not released yet.",
    ),
    _warning(
        "NetplugReleaseRecordsDamaged",
        "netplug_node_damaged_release_records > 0",
        "5m",
        "{{ $value }} release records on {{ $labels.instance }} cannot be read.",
    ),
)

_STORE_ALERTS: Final = (
    _critical(
        "NetplugDatastoreDown",
        "netplug_node_datastore_up == 0",
        "5m",
        "{{ $labels.datastore }} at {{ $labels.location }} does not answer {{ $labels.instance }}.",
    ),
    _warning(
        "NetplugDatastoreSlow",
        f"{_quantile('netplug_node_datastore_call_duration_seconds', 'datastore, operation')} > 1",
        "10m",
        "One of a hundred round trips ({{ $labels.operation }}) to {{ $labels.datastore }} takes "
        "{{ $value | humanizeDuration }}.",
    ),
    _warning(
        "NetplugCacheOld",
        "netplug_node_cache_age_seconds > 120",
        "5m",
        "{{ $labels.instance }} has heard nothing of {{ $labels.location }} for {{ $value | humanizeDuration }}.",
    ),
    _warning(
        "NetplugCertificateExpires",
        'netplug_node_credential_left_seconds{credential="certificate"} < 7 * 86400',
        "1h",
        "A client certificate for {{ $labels.location }} expires in {{ $value | humanizeDuration }}.",
    ),
    _critical(
        "NetplugCredentialExpired",
        "netplug_node_credential_left_seconds < 120",
        "2m",
        "The {{ $labels.credential }} for {{ $labels.location }} on {{ $labels.instance }} has expired, or does now.",
    ),
    _warning(
        "NetplugTaskFails",
        "netplug_node_task_failures_in_a_row >= 5",
        "5m",
        "The task {{ $labels.task }} on {{ $labels.instance }} has failed {{ $value }} times in a row.",
    ),
    _warning(
        "NetplugTaskHasProblems",
        "netplug_node_task_problems > 0",
        "15m",
        "The task {{ $labels.task }} on {{ $labels.instance }} cannot do part of its work.",
    ),
    _critical(
        "NetplugTaskStuck",
        "netplug_node_task_stuck == 1",
        "2m",
        "The task {{ $labels.task }} on {{ $labels.instance }} hangs.",
    ),
)

_OPERATOR_ALERTS: Final = (
    _critical(
        "NetplugOperatorDegraded",
        'max(netplug_operator_condition{type="Degraded"}) == 1',
        "10m",
        "The operator cannot make the cluster what the Installation says.",
    ),
    _warning(
        "NetplugOperatorGone",
        f"max(max_over_time({_UP_OPERATOR}[1h])) unless max({_UP_OPERATOR})",
        "10m",
        "No metrics of an operator come any more.",
    ),
    _warning(
        "NetplugOperatorDoesNotAct",
        "max(netplug_operator_leader) == 0",
        "5m",
        "An operator runs, but none has the Lease.",
    ),
    _warning(
        "NetplugOperatorWritesFail",
        'sum by (kind) (increase(netplug_operator_writes_total{outcome="failed"}[15m])) > 3',
        "15m",
        "Writes of {{ $labels.kind }} by the operator fail again and again.",
    ),
)

_CONTROLLERS_ALERTS: Final = (
    _warning(
        "NetplugControllersGone",
        f"max(max_over_time({_UP_CONTROLLERS}[1h])) unless max({_UP_CONTROLLERS})",
        "10m",
        "No metrics of the controllers come any more.",
    ),
    _warning(
        "NetplugControllersDoNotAct",
        "max(netplug_controllers_leader) == 0",
        "5m",
        "Controllers run, but none has the Lease.",
    ),
    _warning(
        "NetplugControllerFails",
        "netplug_controllers_failures_in_a_row >= 5",
        "10m",
        "The controller {{ $labels.controller }} has failed {{ $value }} times in a row.",
    ),
    _warning(
        "NetplugAddressesLeak",
        "sum(increase(netplug_controllers_collection_freed_addresses_total[1h])) > 50",
        "5m",
        "{{ $value }} addresses were freed in an hour whose pods had ended without giving them back.",
    ),
)

_GROUPS: Final = (
    ("netplug-node", _NODE_ALERTS),
    ("netplug-addresses", _ADDRESS_ALERTS),
    ("netplug-datastores-and-tasks", _STORE_ALERTS),
    ("netplug-operator", _OPERATOR_ALERTS),
    ("netplug-controllers", _CONTROLLERS_ALERTS),
)

ALERTS: Final = tuple(alert for _group, alerts in _GROUPS for alert in alerts)
"""Every alert, in the order of the page."""


def _rules() -> Json:
    recorded = {"name": "netplug-recorded", "rules": [{"record": POOL_USAGE, "expr": _USAGE_EXPRESSION}]}
    return {"groups": [recorded, *({"name": name, "rules": [*map(_rule, alerts)]} for name, alerts in _GROUPS)]}


def _rule(alert: Alert) -> Json:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "page": f"docs/monitoring.md#{alert.name.lower()}"},
    }


def _rule_object() -> Json:
    """The same rules as the object that the Prometheus Operator reads."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "netplug", "labels": {"app.kubernetes.io/name": "netplug"}},
        "spec": _rules(),
    }


# --- dashboard -------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Unit:
    """How Grafana writes the values of a panel."""

    name: str = "short"
    maximum: float | None = None


@frozen(kw_only=True)
class Panel:
    """One picture: its title, what it asks, and how each line is named."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: Unit = Unit()
    is_number: bool = False


_SECONDS, _SHARE = Unit(name="s"), Unit(name="percentunit", maximum=1)
_OF_NODES = '{instance=~"$instance"}'


def _median_and_worst(metric: str, by: str, name: str) -> tuple[tuple[str, str], ...]:
    rates = f"sum by ({by}, le) (rate({metric}_bucket{_OF_NODES}[$__rate_interval]))"
    return (
        (f"histogram_quantile(0.5, {rates})", f"{name}, half of them"),
        (f"histogram_quantile(0.99, {rates})", f"{name}, 99 of 100"),
    )


PANELS: Final = (
    Panel(
        title="Nodes that report",
        text="Node processes whose metrics are here.",
        queries=((f"count({_UP_NODE})", "nodes"),),
        is_number=True,
    ),
    Panel(
        title="Pods that got no network",
        text="The share of failed ADD calls in ten minutes.",
        queries=((_share(_FAILED_ADDS, _ADDS), "failed"),),
        unit=_SHARE,
        is_number=True,
    ),
    Panel(
        title="The fullest pool",
        text="The share of its addresses that are not free.",
        queries=((f"max({POOL_USAGE})", "in use"),),
        unit=_SHARE,
        is_number=True,
    ),
    Panel(
        title="Datastores that do not answer",
        text="Counted on each node that uses one.",
        queries=(("sum(netplug_node_datastore_up == bool 0)", "away"),),
        is_number=True,
    ),
    Panel(
        title="Calls a second",
        text="By command and code; 0 is success, the other codes are those of the errors.",
        queries=(
            (
                f"sum by (command, code) (rate(netplug_node_calls_total{_OF_NODES}[$__rate_interval]))",
                "{{command}} {{code}}",
            ),
        ),
        unit=Unit(name="reqps"),
    ),
    Panel(
        title="How long a call takes",
        text="Without its wait for a worker.",
        queries=_median_and_worst("netplug_node_call_duration_seconds", "command", "{{command}}"),
        unit=_SECONDS,
    ),
    Panel(
        title="Calls that wait",
        text="Beside the number that may; then calls are refused.",
        queries=(
            (f"sum by (instance) (netplug_node_calls_waiting{_OF_NODES})", "{{instance}}"),
            (f"max(netplug_node_queue_limit{_OF_NODES})", "limit"),
            (f"sum(rate(netplug_node_calls_refused_total{_OF_NODES}[$__rate_interval]))", "refused a second"),
        ),
    ),
    Panel(
        title="How full the pools are",
        text="Assigned, cooling down or reserved for hosts, of all addresses of the pool.",
        queries=((POOL_USAGE, "{{pool}}"),),
        unit=_SHARE,
    ),
    Panel(
        title="How long a datastore takes",
        text="Reads and commits.",
        queries=_median_and_worst("netplug_node_datastore_call_duration_seconds", "operation", "{{operation}}"),
        unit=_SECONDS,
    ),
    Panel(
        title="How old is what nodes have kept",
        text="Up to 30 s without changes.",
        queries=((f"netplug_node_cache_age_seconds{_OF_NODES}", "{{instance}} {{location}}"),),
        unit=_SECONDS,
    ),
    Panel(
        title="Tasks that fail or have problems",
        text="Failures in a row, and problems that a task has found.",
        queries=(
            (f"netplug_node_task_failures_in_a_row{_OF_NODES} > 0", "{{instance}} {{task}} fails"),
            (f"netplug_node_task_problems{_OF_NODES} > 0", "{{instance}} {{task}} has problems"),
        ),
    ),
    Panel(
        title="Release records that wait",
        text="Addresses of ended pods that are released when the datastore answers.",
        queries=(
            (f"sum by (instance) (netplug_node_release_records{_OF_NODES})", "{{instance}}"),
            (f"sum by (instance) (netplug_node_damaged_release_records{_OF_NODES}) > 0", "{{instance}} damaged"),
        ),
    ),
    Panel(
        title="Credentials",
        text="How long certificates and tokens are valid.",
        queries=(
            (
                f"min by (credential, location) (netplug_node_credential_left_seconds{_OF_NODES})",
                "{{credential}} {{location}}",
            ),
        ),
        unit=_SECONDS,
    ),
    Panel(
        title="Memory of the node process",
        text="Resident.",
        queries=((f"process_resident_memory_bytes and on (instance, job) {_UP_NODE}{_OF_NODES}", "{{instance}}"),),
        unit=Unit(name="bytes"),
    ),
    Panel(
        title="The operator",
        text="Its conditions, of the process that acts.",
        queries=(("max by (type) (netplug_operator_condition)", "{{type}}"),),
        unit=Unit(maximum=1),
    ),
    Panel(
        title="Writes of the operator",
        text="By what came of them.",
        queries=(("sum by (outcome) (rate(netplug_operator_writes_total[$__rate_interval]))", "{{outcome}}"),),
        unit=Unit(name="wps"),
    ),
)
"""Every panel of the dashboard, row by row."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _NUMBER_SIZE, _GRAPH_SIZE = 24, (6, 4), (12, 8)


def _dashboard() -> Json:
    return {
        "uid": "netplug",
        "title": "netplug",
        "description": "Generated by `make manifests`; docs/monitoring.md explains it.",
        "tags": ["netplug", "kubernetes", "network"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [*_variables()]},
        "panels": [*_placed(PANELS)],
    }


def _variables() -> Iterator[Json]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    yield {
        "name": "instance",
        "label": "Nodes",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({_UP_NODE}, instance)", "refId": "instance"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Sequence[Panel]) -> Iterator[Json]:
    """The panels from left to right and down, each with its place."""
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        width, height = _NUMBER_SIZE if panel.is_number else _GRAPH_SIZE
        if x + width > _COLUMNS:
            x, y = 0, y + row_height
        yield _render_panel(panel, number, {"x": x, "y": y, "w": width, "h": height})
        x, row_height = x + width, height


def _render_panel(panel: Panel, number: int, place: Json) -> Json:
    defaults: dict[str, object] = {"unit": panel.unit.name, "min": 0}
    if panel.unit.maximum is not None:
        defaults["max"] = panel.unit.maximum
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for at, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


# --- files -----------------------------------------------------------------------------------------------------------


def monitoring_files() -> Iterator[tuple[str, Json]]:
    """The path of each file below the folder of manifests, and the object that it has."""
    yield f"{_FOLDER}/prometheus-rules.yaml", _rules()
    yield f"{_FOLDER}/prometheusrule.yaml", _rule_object()
    yield f"{_FOLDER}/grafana-dashboard.json", _dashboard()
