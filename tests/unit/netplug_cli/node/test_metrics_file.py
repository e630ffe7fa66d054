"""The metrics as a file: whole at any time, and gone when the process is."""

import os
from pathlib import Path

from netplug_cli.node.metrics import MetricsFile, NodeMetrics
from netplug_core.testing.clock import RealClock
from tests.harness.metrics import value_of
from tests.harness.node_server import Lines
from tests.harness.waiting import wait_until


def rounds_of(path: Path) -> float:
    """How often the metrics had been read when the file was written."""
    return (value_of(path.read_bytes(), "netplug_node_rounds") or 0) if path.exists() else 0


def counting_metrics() -> NodeMetrics:
    metrics, rounds = NodeMetrics("1.2.3"), list[int]()

    def count() -> float:
        rounds.append(1)
        return len(rounds)

    metrics.add_value("netplug_node_rounds", "How often it was read.", count)
    return metrics


def test_it_is_replaced_again_and_again_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "netplug.prom"
    file = MetricsFile(str(path), counting_metrics(), clock=RealClock(), log=Lines(), every_s=0.001)
    file.start()
    wait_until(lambda: rounds_of(path) > 3, "it is written again and again")
    file.stop()
    assert os.listdir(tmp_path) == []


def test_what_keeps_it_from_being_written_is_logged_once_and_so_is_its_end(tmp_path: Path) -> None:
    path, log = tmp_path / "folder" / "netplug.prom", Lines()
    metrics = counting_metrics()
    file = MetricsFile(str(path), metrics, clock=RealClock(), log=log, every_s=0.001)
    file.start()
    wait_until(lambda: (value_of(metrics.render(), "netplug_node_rounds") or 0) > 5, "it was tried some times")
    path.parent.mkdir()
    wait_until(lambda: len(log.texts) > 1, "it is written")
    file.stop()
    assert log.texts == [
        f"WARNING the metrics file cannot be written cause=No such file or directory path={path}",
        f"INFO the metrics file is written again path={path}",
    ]


def test_a_file_that_was_never_written_is_not_missed(tmp_path: Path) -> None:
    log = Lines()
    file = MetricsFile(
        str(tmp_path / "folder" / "netplug.prom"), counting_metrics(), clock=RealClock(), log=log, every_s=3600
    )
    file.start()
    wait_until(lambda: bool(log.texts), "it was tried")
    file.stop()
    assert len(log.texts) == 1
