"""``simulate``: from a command line to an answer, the same in every run, and without any datastore."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from netplug_core.testing.clock import ManualClock
from tests.harness.ctl import ToolHarness

SMALL = ("simulate", "--pool", "10.0.0.0/24", "--nodes", "3", "--pods-per-node", "20", "--steps", "4")


class Terminal(io.StringIO):
    """A text stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def scenario_of(harness: ToolHarness, *argv: str) -> dict[str, object]:
    assert harness.run_command(*argv, "-o", "json") == 0
    found = json.loads(harness.out)["scenario"]
    assert isinstance(found, dict)
    return found


def test_an_answer_needs_no_datastore(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command(*SMALL) == 0
    lines = harness.out.splitlines()
    assert lines[0] == (
        "3 nodes x 20 pods = 60 pods, 0.5 more every second, placement spread; 4m of simulated time, seed 1."
    )
    assert lines[2] == "It holds: every pod got its addresses, 60 have them at the end."
    assert not any(line.endswith(" ") for line in lines)
    assert harness.err == "netplugctl: simulated 4m in 0.0 s\n"
    assert harness.store.calls.reads == harness.store.calls.commits == 0


def test_the_same_command_line_has_the_same_answer(harness: ToolHarness) -> None:
    argv = (*SMALL, "--churn", "20", "--placement", "random", "-o", "json")
    harness.run_command(*argv)
    first = harness.out
    harness.run_command(*argv)
    assert harness.out == first
    harness.run_command(*argv, "--seed", "2")
    assert harness.out != first


def test_the_question_of_a_platform_engineer(harness: ToolHarness) -> None:
    """Nine nodes and eight blocks: borrowing begins with the first pod of the ninth."""
    harness.run_command("simulate", "--pool", "10.0.0.0/26/29", "--nodes", "9", "--pods-per-node", "4", "--steps", "2")
    assert "Borrowing began at 13s; most was borrowed at 1m, 4 addresses (11.1% of those held)" in harness.out


def test_csv_has_a_line_for_each_step(harness: ToolHarness) -> None:
    assert harness.run_command(*SMALL, "-o", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(harness.out)))
    assert [row["pods"] for row in rows] == ["30", "60", "60", "60"]
    assert [row["10-0-0-0-24.inUse"] for row in rows] == ["30", "60", "60", "60"]


def test_files_bring_pools_reservations_rules_and_labelled_nodes(harness: ToolHarness) -> None:
    path = harness.write_file(
        """\
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: rack-a}
spec: {cidr: 10.1.0.0/27, blockSize: 29, nodeSelector: "rack == 'a'"}
---
apiVersion: projectnetplug.org/v3
kind: IPReservation
metadata: {name: some}
spec: {reservedCIDRs: [10.1.0.0/29]}
---
apiVersion: projectnetplug.org/v3
kind: IPAMConfiguration
metadata: {name: default}
spec: {strictAffinity: true, maxBlocksPerHost: 2}
---
apiVersion: projectnetplug.org/v3
kind: Node
metadata: {name: one, labels: {rack: a}}
"""
    )
    assert (
        harness.run_command("simulate", "-f", path, "--nodes", "1:rack=b", "--pods-per-node", "20", "-o", "json") == 0
    )
    found = json.loads(harness.out)
    assert found["scenario"]["nodes"] == 2
    assert set(found["refusals"]) == {"block-limit-reached", "no-pool-selected"}
    assert [(pool["name"], pool["inUse"], pool["reserved"], pool["blocks"]) for pool in found["pools"]] == [
        ("rack-a", 16, 8, 2)
    ]


def test_standard_input_is_a_file_too(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(harness.write_pools(("piped", "10.0.0.0/24"))).read_text(encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    harness.run_command("simulate", "-f", "-", "--nodes", "1", "--pods-per-node", "1", "--steps", "1")
    assert "\npiped " in harness.out


def test_options_reach_the_scenario(harness: ToolHarness) -> None:
    found = scenario_of(
        harness, *SMALL[:5], "--pool", "fd00::/64", "--pods-per-node", "5", "--max-pods-per-node", "9", "--churn", "5%",
        "--lifetime", "1h", "--placement", "pack", "--resident", "--step", "30s", "--duration", "100s", "--seed", "-7",
        "--pods-per-second", "2.5", "--namespace-labels", "team=a",
    )  # fmt: skip
    assert found == {
        "nodes": 3,
        "podsPerNode": 5,
        "mostPodsPerNode": 9,
        "podsPerSecond": 2.5,
        "churn": 0.05,
        "lifetimeSeconds": 3600,
        "placement": "pack",
        "process": "resident",
        "families": [4, 6],
        "steps": 4,
        "stepSeconds": 30,
        "seed": -7,
    }


def test_what_is_not_given_is_usual(harness: ToolHarness) -> None:
    """An hour by the minute, the cluster full after half of it, and a node runs what a kubelet runs."""
    found = scenario_of(harness, *SMALL[:-2])
    assert (found["steps"], found["stepSeconds"], found["podsPerSecond"]) == (60, 60, 60 / 1800)
    assert found["mostPodsPerNode"] == 110
    assert scenario_of(harness, *SMALL, "--pods-per-node", "200")["mostPodsPerNode"] == 200


def test_namespace_labels_select_pools(harness: ToolHarness) -> None:
    spec = "namespaceSelector: \"team == 'a'\", allowedUses: [Workload]"
    path = harness.write_pools(("teams", "10.0.0.0/24"), spec=spec)
    argv = ("simulate", "-f", path, "--nodes", "1", "--pods-per-node", "2", "--steps", "1")
    harness.run_command(*argv)
    assert "no-pool-selected" in harness.out
    harness.run_command(*argv, "--namespace-labels", "team=a")
    assert "It holds" in harness.out


class SlowMachine(ManualClock):
    """A clock by which each look takes a second."""

    def monotonic(self) -> float:
        self.sleep(1)
        return super().monotonic()


def test_on_a_terminal_a_line_shows_how_far_it_is(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, harness.clock = Terminal(), SlowMachine()
    monkeypatch.setattr("sys.stderr", terminal)
    assert harness.run_command(*SMALL) == 0
    shown = terminal.getvalue().split("\r\x1b[K")
    assert re.fullmatch(r"simulating: 0 of 4 steps, \d+ calls", shown[1])  # the first pods come in the first step
    assert re.fullmatch(r"simulating: 3 of 4 steps, \d+ calls, about \S+ left", shown[-3])
    assert shown[-1].startswith("netplugctl: simulated 4m in ")
    assert "It holds" in harness.out


def test_a_plot_is_drawn_beside_any_output(harness: ToolHarness) -> None:
    path = harness.folder / "plot.svg"
    assert harness.run_command(*SMALL, "-o", "csv", "--plot", str(path)) == 0
    assert harness.out.startswith("seconds,")
    assert path.read_text(encoding="utf-8").startswith("<svg ")


def test_a_plot_that_cannot_be_written_is_one_error_and_the_answer_is_there(harness: ToolHarness) -> None:
    assert harness.run_command(*SMALL, "--plot", "/nowhere/plot.svg") == 1
    assert "It holds" in harness.out
    assert harness.err == "netplugctl: /nowhere/plot.svg: No such file or directory\n"


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--pool", "10.0.0.0/24", "--nodes", "1"], "Missing option '--pods-per-node'"),
        (["--pool", "10.0.0.0/24", "--pods-per-node", "1"], "Give some nodes: --nodes COUNT, or Nodes in a file."),
        (["--nodes", "1", "--pods-per-node", "1"], "Give a pool for workloads: --pool CIDR, or an enabled IPPool"),
        (["--pods-per-node", "0"], "Invalid value for '--pods-per-node': 0 is not in the range x>=1."),
        (["--pool", "x"], "Invalid value for '--pool': 'x' is not an IP address; expected CIDR[/BLOCKSIZE]"),
        (["--nodes", "x"], "Invalid value for '--nodes': 'x': expected COUNT[:LABEL=VALUE,...]"),
        (["--churn", "x"], "Invalid value for '--churn': 'x' is not a percentage; expected 0 to 100"),
        (["--lifetime", "0"], "Invalid value for '--lifetime': '0' is not a duration"),
        (["--step", "1"], "Invalid value for '--step': '1' is not a duration"),
        (["--steps", "0"], "Invalid value for '--steps': 0 is not in the range"),
        (["--pods-per-second", "0"], "Invalid value for '--pods-per-second': 0.0 is not in the range x>0."),
        (["--placement", "x"], "Invalid value for '--placement': 'x' is not one of 'spread', 'random', 'pack'."),
        (["-o", "wide"], "Invalid value for '-o' / '--output': 'wide' is not one of 'table', 'json', 'yaml', 'csv'."),
        ([*SMALL[1:], "--duration", "1h"], "Give --steps or --duration, not both."),
        ([*SMALL[1:-2], "--duration", "9d", "--step", "1s"], "That is 777600 steps; at most 100000"),
        ([*SMALL[1:], "--max-pods-per-node", "19"], "--max-pods-per-node 19 is less than --pods-per-node 20."),
        (
            [*SMALL[1:], "--nodes", "999999"],
            "That is too much: 1000002 nodes that can run 110 pods each. At most 1000000",
        ),
    ],
)
def test_a_command_line_that_is_wrong_is_exit_2_and_says_what_would_do(
    harness: ToolHarness, argv: list[str], words: str
) -> None:
    assert harness.run_command("simulate", *argv) == 2
    assert words in " ".join(harness.err.replace("│", " ").split())
    assert harness.out == ""


def test_a_file_that_is_refused_is_exit_1_and_one_line(harness: ToolHarness) -> None:
    path = harness.write_pools(("main", "10.0.0.0/30"))
    assert harness.run_command("simulate", "-f", path, "--nodes", "1", "--pods-per-node", "1") == 1
    assert harness.err.startswith(
        f"netplugctl: failed to simulate: {path}:4:14: IPPool(main): error with field spec.cidr = '10.0.0.0/30'"
    )
    assert harness.err.count("\n") == 1


def test_pools_that_overlap_are_exit_1_and_one_line(harness: ToolHarness) -> None:
    assert harness.run_command(*SMALL, "--pool", "10.0.0.128/25") == 1
    assert harness.err.startswith("netplugctl: IPPool(10-0-0-0-24): error") or "CIDR overlaps with" in harness.err
    assert harness.err.count("\n") == 1
