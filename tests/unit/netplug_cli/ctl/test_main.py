"""The entry point: exit statuses, one line for an error, and what is loaded before a command is named."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import open_database
from netplug_cli.ctl.main import netplugctl, run
from netplug_cli.wiring import ctl
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from tests.harness.ctl import ToolHarness
from tests.harness.waiting import EMERGENCY_STOP_S

ROOT_MODULE = "netplug_cli.wiring.ctl"
ENDED = "run_command(sys.argv[1:])"
ROOT = Path(__file__).parents[4]
HEAVY = {"pyroute2", "kubernetes", "grpc", "etcd3", "yaml", "rich", "sqlite3", "cattrs", "asyncio", "requests"}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_lists_every_command_and_loads_none() -> None:
    modules = loaded_by(
        "import sys; sys.argv[1:] = ['--help']\nfrom netplug_cli.wiring.ctl import run_command\n" + ENDED
    )
    assert not modules & (HEAVY | {"attr", "attrs"})
    assert not {name for name in modules if name.startswith("netplug_core")}
    assert {name for name in modules if name.startswith("netplug_cli")} == {
        "netplug_cli",
        "netplug_cli.ctl",
        "netplug_cli.ctl.global_options",
        "netplug_cli.formatting",
        "netplug_cli.ctl.main",
        "netplug_cli.wiring",
        "netplug_cli.wiring.ctl",
    }


@pytest.mark.parametrize("words", [["get"], ["ipam"], ["ipam", "check"], ["datastore", "migrate", "lock"]])
def test_the_help_of_a_command_loads_no_command(words: list[str]) -> None:
    modules = loaded_by(
        f"import sys; sys.argv[1:] = {[*words, '--help']}\nfrom {ROOT_MODULE} import run_command\n{ENDED}"
    )
    assert not modules & (HEAVY | {"attr", "attrs"})
    assert not {name for name in modules if name.startswith(("netplug_core", "netplug_cli.ctl.commands"))}


@pytest.mark.parametrize("words", [["get"], ["ipam"], ["ipam", "check"], ["datastore", "migrate", "lock"]])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_of_a_command_is_that_of_click(
    harness: ToolHarness, monkeypatch: pytest.MonkeyPatch, words: list[str], option: str
) -> None:
    """On a narrow terminal click breaks the lines, so nothing that is written before is shown."""
    monkeypatch.setenv("COLUMNS", "80")
    assert harness.run_command(*words, option) == 0
    shown = harness.out
    assert shown.startswith(f"Usage: netplugctl {' '.join(words)} [OPTIONS]")
    monkeypatch.setenv("COLUMNS", "60")
    assert harness.run_command(*words, option) == 0
    assert max(map(len, harness.out.splitlines())) < max(map(len, shown.splitlines()))
    assert "".join(harness.out.split()) == "".join(shown.split())


@pytest.mark.parametrize("words", [["bogus"], ["ipam", "bogus"], ["ipam.check"], ["../ipam"]])
def test_the_help_of_no_command(harness: ToolHarness, words: list[str]) -> None:
    assert harness.run_command(*words, "--help") == 2
    assert f"No such command '{words[-1]}'" in harness.err


def test_the_version_of_the_tool_loads_no_backend() -> None:
    modules = loaded_by(
        "import sys; sys.argv[1:] = ['version', '--client']\nfrom netplug_cli.wiring.ctl import run_command\n" + ENDED
    )
    assert not modules & HEAVY
    reads_files = {"netplug_backends", "netplug_backends.host", "netplug_backends.host.atomic_files"}  # no backend
    assert {name for name in modules if name.startswith("netplug_backends")} <= reads_files


def test_get_loads_only_the_kind_that_is_asked_for(tmp_path: Path) -> None:
    with closing(open_database(str(tmp_path / "netplug.db"), deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))):
        pass
    modules = loaded_by(
        "import os, sys; sys.argv[1:] = ['get', 'ippools']\n"
        f"os.environ |= {{'DATASTORE_TYPE': 'sqlite', 'SQLITE_PATH': {str(tmp_path / 'netplug.db')!r}}}\n"
        "from netplug_cli.wiring.ctl import run_command\n" + ENDED
    )
    ours = {name for name in modules if name.startswith("netplug_")}
    assert "netplug_core.resources.ippool" in ours
    assert not {f"netplug_core.resources.{kind}" for kind in ("bgp", "networkpolicy", "node", "installation")} & ours
    assert not {name for name in ours if name.startswith(("netplug_core.flows.ipam", "netplug_core.ipam.allocation"))}
    assert not modules & {"yaml", "rich", "grpc", "kubernetes", "hashlib", "difflib", "subprocess"}
    assert len(ours) <= 74


@pytest.mark.parametrize("words", ["get ip", "ipam sh", "get --wat", "get -o y", "delete "])
def test_one_tab_loads_no_command(words: str) -> None:
    asked = {
        "_NETPLUGCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": f"netplugctl {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    modules = loaded_by(
        f"import os, sys; sys.argv[1:] = []; os.environ |= {asked}\nfrom {ROOT_MODULE} import run_command\n{ENDED}"
    )
    assert not modules & (HEAVY | {"attr", "attrs"})
    assert not {name for name in modules if name.startswith("netplug_core")}
    assert not {name for name in modules if name.startswith("netplug_cli.ctl.commands")}


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_exit_0(harness: ToolHarness, option: str) -> None:
    assert harness.run_command(option) == 0
    assert harness.out.startswith("Usage: netplugctl [OPTIONS] COMMAND [ARGS]...")
    for command in (
        *("create", "apply", "get", "delete", "ipam", "replace", "version", "lab", "install", "uninstall"),
        *("label", "patch", "validate"),
    ):
        assert f"\n  {command} " in harness.out


@pytest.mark.parametrize(
    "argv, words",
    [(["bogus"], "No such command 'bogus'"), (["get", "--x"], "No such option"), (["get", "-m"], "No such option")],
)
def test_what_is_not_understood_is_exit_2_in_clicks_words(harness: ToolHarness, argv: list[str], words: str) -> None:
    assert harness.run_command(*argv) == 2
    assert words in harness.err


CONFIGURED = "kind: NetplugAPIConfig\napiVersion: projectnetplug.org/v3\nspec: {etcdUsername: file, kubeconfig: /kc}\n"


def test_the_global_options_may_stand_before_and_after_a_command(harness: ToolHarness) -> None:
    file = harness.write_file(CONFIGURED, "some.cfg")
    for argv in (
        ["-c", file, "--context", "x", "get", "pools"],
        ["get", "-c", file, "pools", "--context=x"],
        ["--config", "/nowhere", "get", "pools", "--config", file, "--context", "x"],
        ["ipam", "show", "--config", file, "--context", "x"],
    ):
        assert harness.run_command(*argv) == 0
        assert (harness.opened_settings[-1].etcd_username, harness.opened_settings[-1].kubernetes.context) == (
            "file",
            "x",
        )
        assert harness.err == "netplugctl: no IPPool found\n"


def test_a_context_beside_another_store_than_the_orchestrators_is_refused(harness: ToolHarness) -> None:
    """A named context means another cluster than the one that would be written to."""
    file = harness.write_file(
        "kind: NetplugAPIConfig\napiVersion: projectnetplug.org/v3\nspec: {datastoreType: sqlite}\n", "a"
    )
    assert harness.run_command("-c", file, "--context", "x", "get", "pools") == 1
    assert harness.err == "netplugctl: --context: 'x' is not accepted; leave it out: the datastore is sqlite\n"
    assert harness.opened_settings == []


def test_without_a_file_that_is_named_the_usual_one_counts_and_then_the_environment(harness: ToolHarness) -> None:
    harness.environ["ETCD_USERNAME"] = "environment"
    harness.run_command("get", "pools")
    harness.write_file(CONFIGURED, "netplugctl.cfg")
    harness.run_command("get", "pools")
    assert [settings.etcd_username for settings in harness.opened_settings] == ["environment", "file"]


def test_a_configuration_that_cannot_be_used_is_one_line_and_nothing_is_opened(harness: ToolHarness) -> None:
    """S-55 of the catalogue."""
    file = harness.write_file(CONFIGURED.replace("etcdUsername: file", "etcdPassword: 7"), "some.cfg")
    for command in (["get", "pools"], ["version"], ["ipam", "show"], ["delete", "pool", "a"]):
        assert harness.run_command("-c", file, *command) == 1
        assert harness.err == f"netplugctl: expected a text in quotes @ {file}:3:22 $.spec.etcdPassword, found '…'\n"
    assert harness.run_command("-c", "/nowhere/cfg", "get", "pools") == 1
    assert harness.err == "netplugctl: /nowhere/cfg: No such file or directory\n"
    assert harness.opened_settings == []


def test_the_log_level_sets_how_much_is_logged(harness: ToolHarness) -> None:
    assert harness.run_command("--log-level", "debug", "get", "pools") == 0
    assert harness.err.splitlines() == [
        "netplugctl: datastore memory: this process",
        "netplugctl: read ClusterInformation(default) in 0.0 ms",
        "netplugctl: read IPPool(*) in 0.0 ms",
        "netplugctl: no IPPool found",
    ]
    assert harness.run_command("get", "pools", "--log-level", "INFO") == 0
    assert harness.err.splitlines() == ["netplugctl: datastore memory: this process", "netplugctl: no IPPool found"]
    assert harness.run_command("ipam", "show", "--log-level", "loud") == 2


def test_no_command_has_an_option_that_a_global_one_takes_away() -> None:
    def leaves(command: click.Command) -> list[click.Command]:
        if isinstance(command, click.Group):
            return [leaf for member in command.commands.values() for leaf in leaves(member)]
        return [command]

    context = click.Context(netplugctl, **netplugctl.context_settings)
    for name in netplugctl.list_commands(context):
        found = netplugctl.get_command(context, name)
        assert found is not None
        for leaf in leaves(found):
            spelled = [word for parameter in leaf.params for word in parameter.opts if word.startswith("-")]
            assert len(spelled) == len(set(spelled)), leaf.name
            assert {"-c", "--config", "--context", "-l", "--allow-version-mismatch"} <= set(spelled)


def test_no_command_shows_the_help(harness: ToolHarness) -> None:
    assert harness.run_command() == 2
    assert "Commands:" in harness.err


def failing(error: BaseException) -> click.Command:
    @click.command("version")
    def command() -> None:
        raise error

    return command


def offer(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    monkeypatch.setattr(netplugctl, "get_command", lambda context, name: command)


@pytest.mark.parametrize(
    "error, status, line",
    [
        (Unavailable("the store", "away"), 1, "netplugctl: the store: away"),
        (KeyError("x"), 1, "netplugctl: internal error: KeyError: 'x'"),
        (KeyboardInterrupt(), 130, "netplugctl: interrupted"),
        (click.Abort(), 130, "netplugctl: interrupted"),
    ],
)
def test_every_error_is_one_line_and_has_an_exit_status(
    harness: ToolHarness, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, line: str
) -> None:
    offer(monkeypatch, failing(error))
    assert harness.run_command("version") == status
    assert harness.err.strip() == line


@pytest.mark.parametrize("where", ["run_command", "netplug_cli.ctl.main.run"])
def test_ctrl_c_ends_the_process_by_the_signal(where: str) -> None:
    """Also before a command runs: a shell ends its loop, and nobody sees a traceback."""
    interrupting = "def interrupt(*_): raise KeyboardInterrupt"
    owner, _, name = where.rpartition(".")
    code = (
        "import sys, netplug_cli.ctl.main\nfrom netplug_cli.wiring import ctl\n"
        f"{interrupting}\n{owner or 'ctl'}.{name} = interrupt\nsys.argv = ['netplugctl', 'version']\nctl.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_command_of_others_may_return_nothing_or_exit(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, click.Command("version", callback=lambda: None))
    assert harness.run_command("version") == 0
    offer(monkeypatch, click.Command("version", callback=lambda: click.get_current_context().exit(3)))
    assert harness.run_command("version") == 3


def test_a_reader_who_has_seen_enough_gets_no_complaint() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "from netplug_cli.wiring.ctl import main\nimport sys\nsys.argv = ['netplugctl', '--help']\nmain()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_command_has_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run_command(["bogus"]) == 2
    assert "bogus" in capsys.readouterr().err


def test_the_installed_script_acts_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("DATASTORE_TYPE", "sqlite")
    monkeypatch.setenv("SQLITE_PATH", str(tmp_path / "netplug.db"))
    open_database(str(tmp_path / "netplug.db"), deadline=Deadline.after(SystemClock(), 5)).close()
    assert run(["get", "clusterinformation"], ctl.make_session) == 0
    assert capsys.readouterr().out.startswith("NAME")


def test_the_version_is_printed_without_a_datastore(harness: ToolHarness) -> None:
    assert harness.run_command("--version") == 0
    assert harness.out == f"netplugctl v{__version__}\n"
    assert harness.opened_settings == []


@pytest.mark.parametrize(
    "argv, meant", [(["gett", "pools"], "Did you mean 'get'?"), (["ipam", "shwo"], "Did you mean 'show'?")]
)
def test_a_mistyped_command_gets_a_suggestion(harness: ToolHarness, argv: list[str], meant: str) -> None:
    assert harness.run_command(*argv) == 2
    assert harness.err.splitlines()[0].endswith(meant)


def test_a_mistyped_kind_gets_a_suggestion(harness: ToolHarness) -> None:
    assert harness.run_command("get", "ippols") == 1
    assert harness.err.endswith("; did you mean ippools?\n")
    assert harness.run_command("get", "google") == 1
    assert "did you mean" not in harness.err


@pytest.mark.parametrize("words", [[], ["ipam"], ["datastore", "migrate"]])
def test_a_group_without_a_command_shows_its_help(harness: ToolHarness, words: list[str]) -> None:
    assert harness.run_command(*words) == 2
    assert harness.err.startswith(f"Usage: {' '.join(['netplugctl', *words])} [OPTIONS] COMMAND [ARGS]...\n\n  ")
    assert harness.out == ""


END = """
import atexit, sys
from netplug_cli.ctl.main import end_process
atexit.register(lambda: print("registered"))
print("printed")
print("remark", file=sys.stderr)
end_process(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_process_ends_at_once_with_everything_printed(status: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", END, str(status)],
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "printed\nregistered\n", "remark\n")
