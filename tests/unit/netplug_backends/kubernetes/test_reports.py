"""What ``install status`` takes of the Events that node processes write about their Nodes."""

from __future__ import annotations

from netplug_backends.kubernetes.installing.cluster import read_event, read_reports
from netplug_core.clock import SECOND_NS, format_time
from netplug_core.cni.plugins import REPORT_AGAIN_S, REPORT_COUNTS_S
from netplug_core.installation.cluster import NodeReport, ObjectEvent

NOW_NS = 1_795_000_000 * SECOND_NS


def event(reason: str, *, age_s: float, node: str = "a") -> dict[str, object]:
    return {
        "involvedObject": {"kind": "Node", "name": node},
        "reason": reason,
        "message": "text",
        "lastTimestamp": format_time(NOW_NS - round(age_s * SECOND_NS)),
    }


def test_the_newest_is_the_last() -> None:
    found = read_reports([event("PluginsFound", age_s=5), event("PluginsMissing", age_s=60)], now_ns=NOW_NS)
    assert found == (
        NodeReport(node="a", reason="PluginsMissing", message="text"),
        NodeReport(node="a", reason="PluginsFound", message="text"),
    )


def test_a_report_that_was_not_written_again_counts_no_more() -> None:
    """A process that is started again when nothing is missing does not know what the one before it has reported."""
    assert REPORT_COUNTS_S > 2 * REPORT_AGAIN_S
    old, late = event("PluginsMissing", age_s=REPORT_COUNTS_S + 1), event("PluginsMissing", age_s=2 * REPORT_AGAIN_S)
    assert read_reports([old], now_ns=NOW_NS) == ()
    assert [report.reason for report in read_reports([old, late], now_ns=NOW_NS)] == ["PluginsMissing"]
    assert read_reports([{"reason": "PluginsMissing"}], now_ns=NOW_NS) == ()


def test_an_event_of_either_api_is_read() -> None:
    old = {
        "type": "Warning",
        "reason": "PluginsMissing",
        "message": "portmap is missing",
        "source": {"component": "netplug-node"},
        "count": 3,
        "lastTimestamp": "2026-11-28T10:00:00Z",
    }
    assert read_event(old) == ObjectEvent(
        last_seen="2026-11-28T10:00:00Z",
        is_warning=True,
        reason="PluginsMissing",
        message="portmap is missing",
        component="netplug-node",
        count=3,
    )
    new: dict[str, object] = {
        "type": "Normal",
        "reason": "Pulled",
        "message": "an image",
        "reportingComponent": "kubelet",
        "lastTimestamp": None,
        "eventTime": "2026-11-28T10:00:00.000000Z",
    }
    assert read_event(new) == ObjectEvent(
        last_seen="2026-11-28T10:00:00.000000Z",
        is_warning=False,
        reason="Pulled",
        message="an image",
        component="kubelet",
    )
    series: dict[str, object] = {"series": {"count": 7, "lastObservedTime": "2026-11-28T11:00:00.000000Z"}}
    assert (read_event(new | series).count, read_event(new | series).last_seen[11:16]) == (7, "11:00")
    assert read_event({}).count == 1
