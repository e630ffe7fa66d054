"""The page for people who know kubectl or calicoctl: every line of its table is run."""

import io
import re
import shlex
from pathlib import Path

import pytest
from attrs import evolve, frozen

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_cli.ctl.main import run
from netplug_cli.ctl.session import Session
from tests.harness.ctl import ToolHarness
from tests.harness.scripted_clock import ScriptedClock
from tests.unit.netplug_cli.ctl.commands.test_watching import WatchHarness
from tests.unit.netplug_cli.ctl.test_outputs import CHANGED, NEW, POOLS, tool

__all__ = ["tool"]  # the fixture: two pools and two nodes with pods

PAGE = Path(__file__).parents[4] / "docs" / "habits.md"
CELL = re.compile(r"(?<!\\)\|")


@frozen
class Habit:
    """A line of the table: what a person types, and what becomes of it."""

    line: str
    how: str

    @property
    def refusal(self) -> str:
        """What the error says; empty for what is not refused."""
        return self.how.partition("refused: `")[2].rstrip("`")


def habits() -> list[Habit]:
    rows = [CELL.split(line)[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    return [Habit(line.strip("`").removeprefix("netplugctl "), how) for _to, _kubectl, _calicoctl, line, how in cells]


HABITS = habits()


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.line)
def test_a_habit_works_or_is_refused_with_what_to_do(
    tool: ToolHarness, habit: Habit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tool.folder)
    (tool.folder / "pools").mkdir()
    for name, text in (("pools.yaml", POOLS), ("new.yaml", NEW), ("pools/changed.yaml", CHANGED)):
        (tool.folder / name).write_text(text)
    line, _, file = habit.line.partition(" < ")
    monkeypatch.setattr("sys.stdin", io.StringIO((tool.folder / file).read_text() if file else ""))
    status = run(shlex.split(line), lambda: make_session(tool, line))
    tool.out, tool.err = tool.capsys.readouterr()
    if not habit.refusal:
        assert status == (1 if line == "ipam check" else 0), tool.err  # the pods of the test have left an address
        is_silent = line.startswith("diff") or any(option in line for option in ("ignore-not-found", "--watch-only"))
        assert tool.out or is_silent
        return
    assert status in (1, 2)
    assert habit.refusal in tool.err


def make_session(tool: ToolHarness, line: str) -> Session:
    """A run over the store of the tool; of a watch over a store that nobody changes, until it is interrupted."""
    if "watch" not in line and not line.endswith(" -w"):
        return evolve(tool.make_session(), environ={"DATASTORE_TYPE": "sqlite"})
    clock = ScriptedClock()
    watched = WatchHarness(tool.folder, tool.capsys, clock, MemoryDatastore(clock=clock))
    watched.put("main", "10.65.0.0/26")
    return watched.make_session()


def test_there_are_sixty_and_each_says_how_it_differs() -> None:
    assert len(HABITS) >= 60
    assert {habit.how.partition(":")[0] for habit in HABITS} == {"the same", "differs", "refused"}
