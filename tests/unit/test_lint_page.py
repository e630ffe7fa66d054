"""The page of ``lint`` has the table of rules, and the examples are what the tool prints."""

import json
import re
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.lint.rules import Group, Rule
from netplug_core.testing.clock import ManualClock
from tests.harness.ctl import ToolHarness
from tools.lint import PAGE, render_page

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_generated() -> None:
    assert render_page(TEXT) == TEXT, "python -m tools.lint writes it anew"


def test_a_page_without_a_place_for_tables_is_refused() -> None:
    with pytest.raises(ValueError, match="has no place for the tables"):
        render_page("# lint\n")


def test_a_number_and_a_name_stand_once_in_the_table() -> None:
    numbers = [rule.number for rule in Rule]
    assert numbers == sorted(set(numbers))
    assert len({rule.word for rule in Rule}) == len(Rule)
    assert {rule.group for rule in Rule} == set(Group)


def test_the_examples_are_what_the_tool_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clock = ManualClock()
    harness = ToolHarness(tmp_path, capsys, clock, MemoryDatastore(clock=clock))
    for name, text in re.findall(r"`(\S+)`:\n\n```(?:yaml|json)\n(.*?)```", TEXT, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    examples = re.findall(r"```text\n\$ netplugctl (.*?)\n(.*?)```", TEXT, re.DOTALL)
    assert len(examples) == 3
    for command, shown in examples:
        harness.run_command(*command.split())
        assert harness.out + harness.err == shown
    assert json.loads((tmp_path / "net.d" / "10-netplug.conflist").read_text())["plugins"][0]["mtu"] == 1450
