"""The entry point: exit statuses, one line for an error, and what is loaded before a command is named."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from netplug_cli.ctl import main
from netplug_cli.ctl.main import netplugctl, run
from netplug_core.errors import Unavailable
from tests.unit.netplug_cli.ctl.bench import Bench

ROOT = Path(__file__).parents[4]
HEAVY = {"pyroute2", "kubernetes", "grpc", "etcd3", "yaml", "rich", "sqlite3", "cattrs", "asyncio", "requests"}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_lists_every_command_and_loads_none() -> None:
    modules = loaded_by("from netplug_cli.ctl.main import run\nrun(['--help'])")
    assert not modules & (HEAVY | {"attr", "attrs"})
    assert not {name for name in modules if name.startswith("netplug_core")}
    assert {name for name in modules if name.startswith("netplug_cli")} == {
        "netplug_cli",
        "netplug_cli.ctl",
        "netplug_cli.ctl.main",
    }


def test_the_version_of_the_tool_loads_no_backend() -> None:
    modules = loaded_by("from netplug_cli.ctl.main import run\nrun(['version', '--client'])")
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith("netplug_backends")}


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_exit_0(bench: Bench, option: str) -> None:
    assert bench.type(option) == 0
    assert bench.out.startswith("Usage: netplugctl [OPTIONS] COMMAND [ARGS]...")
    for command in ("create", "apply", "get", "delete", "ipam", "replace", "version", "lab", "install", "uninstall"):
        assert f"\n  {command} " in bench.out


@pytest.mark.parametrize(
    "argv, words",
    [(["bogus"], "No such command 'bogus'"), (["get", "--x"], "No such option"), (["get", "-m"], "No such option")],
)
def test_what_is_not_understood_is_exit_2_in_clicks_words(bench: Bench, argv: list[str], words: str) -> None:
    assert bench.type(*argv) == 2
    assert words in bench.err


def test_no_command_shows_the_help(bench: Bench) -> None:
    assert bench.type() == 2
    assert "Commands:" in bench.err


def failing(error: BaseException) -> click.Command:
    @click.command("version")
    def command() -> None:
        raise error

    return command


def offer(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    monkeypatch.setattr(netplugctl, "get_command", lambda context, name: command)


@pytest.mark.parametrize(
    "error, line",
    [
        (Unavailable("the store", "away"), "netplugctl: the store: away"),
        (KeyError("x"), "netplugctl: internal error: KeyError: 'x'"),
        (KeyboardInterrupt(), "netplugctl: interrupted"),
        (click.Abort(), "netplugctl: interrupted"),
    ],
)
def test_every_error_is_one_line_and_exit_1(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str
) -> None:
    offer(monkeypatch, failing(error))
    assert bench.type("version") == 1
    assert bench.err.strip() == line


def test_a_command_of_others_may_return_nothing_or_exit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, click.Command("version", callback=lambda: None))
    assert bench.type("version") == 0
    offer(monkeypatch, click.Command("version", callback=lambda: click.get_current_context().exit(3)))
    assert bench.type("version") == 3


def test_a_reader_who_has_seen_enough_gets_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "from netplug_cli.ctl.main import main\nimport sys\nsys.argv = ['netplugctl', '--help']\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_main_exits_with_the_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["netplugctl", "bogus"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == 2
    assert "bogus" in capsys.readouterr().err


def test_without_a_session_this_machine_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATASTORE_TYPE", "memory")
    assert run(["get", "clusterinformation"]) == 0
    assert capsys.readouterr().out.startswith("NAME")
