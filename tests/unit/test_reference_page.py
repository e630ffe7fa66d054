"""The man page and the reference of the tool are what its commands make."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from netplug_cli.ctl.completion import WORDS_FILE
from netplug_cli.ctl.main import FOLDER, netplugctl
from tools.reference import (
    MAN_PAGE,
    PAGE,
    find_commands,
    render_help_files,
    render_man_page,
    render_page,
    render_words,
)

ROOT = Path(__file__).parents[2]


def test_the_words_that_a_shell_completes_are_those_of_the_commands() -> None:
    assert Path(WORDS_FILE).read_text(encoding="utf-8") == render_words(), "python -m tools.reference writes them anew"


def test_the_page_and_the_man_page_are_generated() -> None:
    assert PAGE.read_text() == render_page(), "make man writes it anew"
    assert MAN_PAGE.read_text() == render_man_page(), "make man writes it anew"


def test_the_help_of_every_command_is_generated() -> None:
    written = {file.name: file.read_text() for file in Path(FOLDER).iterdir()}
    assert written == render_help_files(), "make man writes them anew"


def test_every_command_and_its_options_are_there() -> None:
    context = click.Context(netplugctl, info_name="netplugctl", **netplugctl.context_settings)
    found = {each.name: each for each in find_commands()}
    for name in netplugctl.list_commands(context):
        assert any(words.split()[:2] == ["netplugctl", name] for words in found), name
    assert "--watch" in " ".join(declared for declared, _ in found["netplugctl get"].options)
    assert "netplugctl datastore migrate lock" in found
    assert all(each.paragraphs for each in found.values())
    assert not any("--context" in declared for declared, _ in found["netplugctl get"].options)


def test_every_exit_status_of_a_command_is_in_the_man_page() -> None:
    text = render_man_page().replace("\\-", "-")
    _heading, _mark, rest = text.partition(".SH EXIT STATUS\n")
    statuses = dict(re.findall(r'\.TP\n\.B "(\d)"\n(.*)', rest.partition(".SH ")[0]))
    named = set[tuple[str, str]]()
    for each in find_commands():
        name = each.name.removeprefix("netplugctl ")
        helps = (*each.paragraphs, *(help_text for _declared, help_text in each.options))
        for sentence in " ".join(helps).split(". "):
            if "status" in sentence:
                named |= {(name, number) for number in re.findall(r"\b[23]\b", sentence)}
    assert named >= {("lint", "3"), ("pool drain", "3"), ("install render", "2"), ("diff", "2")}
    assert [(name, number) for name, number in named if name not in statuses[number]] == []


def test_lines_that_have_to_stay_stay() -> None:
    assert ".nf\nbash:  source <(netplugctl completion bash)\n" in render_man_page()
    assert "```text\nbash:  source <(netplugctl completion bash)\n" in render_page()


def test_the_man_page_is_read_without_a_complaint() -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff: apt-get install groff-base")
    command = ["groff", "-man", "-ww", "-Tascii", "-P-cbou", str(MAN_PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("netplugctl get", "NETPLUG_COMPLETION_SECONDS", "EXIT STATUS"):
        assert text in done.stdout


def test_the_wheel_installs_the_man_page() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert settings["shared-data"] == {str(MAN_PAGE.relative_to(ROOT)): "share/man/man1/netplugctl.1"}
