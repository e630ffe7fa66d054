"""What ``lint --fix`` writes: nothing over a change that it has not read."""

from pathlib import Path

import pytest

from netplug_cli.ctl.commands.lint import FileRepair, write_repair
from netplug_cli.ctl.editor import replace_value
from netplug_cli.ctl.errors import InputError


def test_a_file_that_was_changed_meanwhile_stays(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text("changed\n")
    with pytest.raises(InputError, match=r"the file was changed meanwhile, and nothing was written; run it again"):
        write_repair(FileRepair(file=str(file), before="read\n", after="repaired\n"))
    assert file.read_text() == "changed\n"


@pytest.mark.parametrize(
    "text, value, edited",
    [
        ("a: {b: 1.2.3.4}  # c\n", "4.3.2.1", "a: {b: 4.3.2.1}  # c\n"),
        ("a: {b: '1'}\n", "it's", 'a: {b: "it\'s"}\n'),
        ("a: {b: '1'}\n", "2", "a: {b: '2'}\n"),
        ("a:\n  b: |\n    one\n    two\n  c: 1\n", "x", "a:\n  b: x\n  c: 1\n"),
        ("a:\n  b:\n  - one\n  # last\n", '["one"]', 'a:\n  b: "[\\"one\\"]"\n'),
        ("a: {b: [1, 2], c: 1}\n", "true", 'a: {b: "true", c: 1}\n'),
        ("a: {b: 1450}\n", "1450", 'a: {b: "1450"}\n'),
        ("a: {b: true}\n", "true", 'a: {b: "true"}\n'),
        ('{"a": {"b": "1450"}}', 1450, '{"a": {"b": 1450}}'),
    ],
)
def test_one_value_is_replaced(text: str, value: str | int, edited: str) -> None:
    assert replace_value(text, 1, ("a", "b"), value, name="x") == edited


@pytest.mark.parametrize("text", ["a: &x {b: 1}\nc: *x\n", "x: &x {b: 1}\na: {<<: *x}\n", "- 1\n"])
def test_a_value_in_two_places_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="the value cannot be replaced here; change it by hand"):
        replace_value(text, 1, ("a", "b"), 2, name="x")


@pytest.mark.parametrize("written, read", [("010", "8"), ("1:20", "80"), ("yes", "true"), ("0x1F", "31")])
def test_a_number_does_not_become_a_text_that_was_not_written(written: str, read: str) -> None:
    with pytest.raises(InputError, match="the value cannot be replaced here; change it by hand"):
        replace_value(f"a: {{b: {written}}}\n", 1, ("a", "b"), read, name="x")
