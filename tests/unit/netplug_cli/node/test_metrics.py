"""What is counted, under which labels, and as which text."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from netplug_cli.node.calls import NodeProcessBusy
from netplug_cli.node.metrics import CallCount, NodeMetrics
from netplug_core.cni.wire import WireReply, WireRequest
from tests.harness.metrics import value_of
from tests.harness.node_server import REPLY, REQUEST, busy_reply


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics("1.2.3")


def reply_of(code: object) -> WireReply:
    return WireReply(exit_status=1, stdout=json.dumps({"code": code}).encode(), stderr=b"")


def test_the_release_and_the_process_are_among_them(metrics: NodeMetrics) -> None:
    text = metrics.render()
    assert value_of(text, 'netplug_node_build_info{version="1.2.3"}') == 1
    assert (value_of(text, "process_resident_memory_bytes") or 0) > 1e6
    assert b"_created" not in text


@pytest.mark.parametrize(
    "reply,code",
    [
        (REPLY, "0"),
        (reply_of(11), "11"),
        (reply_of("many"), "other"),
        (reply_of(None), "other"),
        (WireReply(exit_status=1, stdout=b"", stderr=b""), "other"),
        (WireReply(exit_status=1, stdout=b"{}", stderr=b""), "other"),
        (WireReply(exit_status=1, stdout=b"[]", stderr=b""), "other"),
    ],
)
def test_a_call_counts_under_its_outcome(metrics: NodeMetrics, reply: WireReply, code: str) -> None:
    answer = metrics.measured(lambda _request, _namespace: reply)
    assert answer(REQUEST, None) is reply
    text = metrics.render()
    assert value_of(text, f'netplug_node_calls_total{{code="{code}",command="ADD",program="netplug"}}') == 1
    assert value_of(text, 'netplug_node_call_duration_seconds_count{command="ADD",program="netplug"}') == 1


def test_a_call_that_breaks_off_counts_too(metrics: NodeMetrics) -> None:
    def answer(_request: WireRequest, _namespace: int | None) -> NoReturn:
        raise SystemExit

    with pytest.raises(SystemExit):
        metrics.measured(answer)(REQUEST, None)
    series = 'netplug_node_calls_total{code="broken-off",command="ADD",program="netplug"}'
    assert value_of(metrics.render(), series) == 1


def test_a_client_cannot_make_series_of_its_own(metrics: NodeMetrics) -> None:
    answer = metrics.measured(lambda _request, _namespace: REPLY)
    for command in ({}, {"CNI_COMMAND": "NONSENSE"}, {"CNI_COMMAND": "add"}):
        answer(WireRequest(program="netplug-ipam", environ=command, stdin=b""), None)
    assert value_of(
        metrics.render(), 'netplug_node_calls_total{code="0",command="other",program="netplug-ipam"}'
    ) == 3  # fmt: skip


def test_a_refused_call_counts_apart(metrics: NodeMetrics) -> None:
    error = NodeProcessBusy(waiting=1)
    assert metrics.counted(busy_reply)(REQUEST, error) == busy_reply(REQUEST, error)
    text = metrics.render()
    assert value_of(text, 'netplug_node_calls_refused_total{command="ADD",program="netplug"}') == 1
    assert b"netplug_node_calls_total{" not in text


def test_a_call_of_a_datastore_is_measured(metrics: NodeMetrics) -> None:
    metrics.note_datastore_call(("sqlite", "/a.db"), "read", "ok", 0.25)
    labels = '{datastore="sqlite",location="/a.db",operation="read",outcome="ok"}'
    assert value_of(metrics.render(), f"netplug_node_datastore_call_duration_seconds_sum{labels}") == 0.25


def test_a_value_is_read_when_the_metrics_are(metrics: NodeMetrics) -> None:
    values = [1.0, 2.0]
    metrics.add_value("netplug_node_some", "Some.", lambda: values.pop(0))
    metrics.add_values("netplug_node_more", "More.", ("a", "b"), lambda: {("x", "y"): 7})
    assert value_of(metrics.render(), "netplug_node_some") == 1
    text = metrics.render()
    assert value_of(text, "netplug_node_some") == 2
    assert value_of(text, 'netplug_node_more{a="x",b="y"}') == 7
    assert b"# HELP netplug_node_some Some.\n# TYPE netplug_node_some gauge\n" in text


def test_no_plugin_loads_the_library() -> None:
    code = (
        "import sys, netplug_cli.cni.main, netplug_cli.wiring.cni, netplug_core.flows.cni.add;"
        "print('prometheus_client' in sys.modules, 'netplug_cli.node' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"


def test_one_module_of_each_process_imports_the_library() -> None:
    root = Path(__file__).parents[4]
    packages = ("netplug_core", "netplug_backends", "netplug_cli")
    files = [file for package in packages for file in (root / package).rglob("*.py")]
    naming = [str(file.relative_to(root)) for file in files if "import prometheus_client" in file.read_text()]
    naming += [str(file.relative_to(root)) for file in files if "from prometheus_client" in file.read_text()]
    processes = ("controllers", "node", "operator")
    assert set(naming) == {f"netplug_cli/{process}/metrics.py" for process in processes}


def test_calls_are_counted_over_all_programs_and_commands(metrics: NodeMetrics) -> None:
    assert metrics.count_calls() == CallCount(served=0, failed=0, refused=0)
    replies = [REPLY, REPLY, reply_of(11)]
    answer = metrics.measured(lambda _request, _namespace: replies.pop())
    for program in ("netplug", "netplug", "netplug-ipam"):
        answer(WireRequest(program=program, environ={}, stdin=b""), None)
    metrics.counted(busy_reply)(REQUEST, NodeProcessBusy(waiting=1))
    assert metrics.count_calls() == CallCount(served=3, failed=1, refused=1)


def test_tasks_begin_at_zero_and_count_under_their_outcome(metrics: NodeMetrics) -> None:
    metrics.expect_tasks(["the work"])
    metrics.note_task("the work", False, 0.25)  # noqa: FBT003  as ``NotePass`` is called
    text, name = metrics.render(), "netplug_node_task_duration_seconds"
    assert value_of(text, f'{name}_sum{{outcome="ok",task="the work"}}') == 0.25
    assert value_of(text, f'{name}_count{{outcome="failed",task="the work"}}') == 0
