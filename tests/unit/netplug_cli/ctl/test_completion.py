"""Completion, in this process and in real shells: commands, options, kinds, names and files, and silence on failure."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.sqlite.datastore import open_database
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import Attribute, Block
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import KINDS, key_of
from netplug_core.resources.node import Node, node_key
from tests.harness.ctl import ToolHarness
from tests.harness.resources import ENDPOINT
from tests.harness.waiting import EMERGENCY_STOP_S

ROOT = Path(__file__).parents[4]
LIMIT = {"NETPLUG_COMPLETION_SECONDS": str(EMERGENCY_STOP_S)}  # the machine may be busy


@pytest.fixture
def completing(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> ToolHarness:
    monkeypatch.setenv("_NETPLUGCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv(*next(iter(LIMIT.items())))
    return harness


def complete(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What is offered for the last of the words after ``netplugctl``, which may be empty."""
    monkeypatch.setenv("COMP_WORDS", " ".join(("netplugctl", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    harness.run_command()
    assert harness.err == ""
    return [line.split(",", 1)[-1] for line in harness.out.split()]


def store_pools(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as plain:
        plain.delenv("_NETPLUGCTL_COMPLETE")
        assert (
            harness.run_command("create", "-f", harness.write_pools(("main", "10.0.0.0/16"), ("six", "fd00::/48"))) == 0
        )


def test_commands_are_offered_and_none_is_loaded(completing: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(completing, monkeypatch, "de") == ["delete", "describe"]
    assert {"get", "apply", "completion"} <= set(complete(completing, monkeypatch, ""))
    assert complete(completing, monkeypatch, "ipam", "sh") == ["show"]
    assert complete(completing, monkeypatch, "--ver") == ["--version"]
    assert completing.opened_settings == []


def test_options_and_their_words_are_offered(completing: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(completing, monkeypatch, "get", "--watch-") == ["--watch-only"]
    assert complete(completing, monkeypatch, "get", "-o", "y") == ["yaml"]
    assert complete(completing, monkeypatch, "completion", "") == ["bash", "zsh", "fish"]


def test_kinds_are_offered_by_their_plurals_or_as_they_are_typed(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert complete(completing, monkeypatch, "get", "") == [row.plural for row in KINDS]
    assert complete(completing, monkeypatch, "get", "Poo") == ["pool", "pools"]
    assert complete(completing, monkeypatch, "label", "we") == ["wep", "weps"]
    assert complete(completing, monkeypatch, "label", "nodec") == [
        "nodeconfiguration",
        "nodeconfigurations",
        "nodeconfig",
        "nodeconfigs",
    ]


def test_names_come_from_the_datastore(completing: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    store_pools(completing, monkeypatch)
    assert complete(completing, monkeypatch, "get", "pool", "") == ["main", "six"]
    assert complete(completing, monkeypatch, "delete", "pools", "m") == ["main"]
    assert complete(completing, monkeypatch, "get", "pool", "main", "") == ["six"]
    assert complete(completing, monkeypatch, "edit", "pool", "s") == ["six"]
    assert complete(completing, monkeypatch, "get", "pool", "-l", "debug", "") == ["main", "six"]


def test_kind_and_name_in_one_word_are_offered_where_they_are_begun(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_pools(completing, monkeypatch)
    for words, offered in (
        (("get", "pool/"), ["pool/main", "pool/six"]),
        (("delete", "ippool/s"), ["ippool/six"]),
        (("get", "pool/main", ""), ["pool/six"]),
        (("get", "ippool/main", "pool/"), ["pool/six"]),
        (("get", "pool/main", "no"), []),
        (("get", "pool/main", "nodes/"), []),
        (("get", "pool", "pool/"), []),
        (("get", "bogus/"), []),
        (("label", "pool/"), ["pool/main", "pool/six"]),
        (("label", "pool/main", ""), ["pool/six"]),
        (("label", "pool", ""), ["main", "six"]),
        (("label", "pool", "main", ""), ["six"]),
        (("edit", "pool/main", ""), []),
        (("patch", "pool", "main", ""), []),
    ):
        assert complete(completing, monkeypatch, *words) == offered, words


def test_names_are_those_of_the_namespace(completing: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    completing.store_records(Create(key_of(ENDPOINT), ENDPOINT))
    assert complete(completing, monkeypatch, "get", "wep", "") == ["w"]
    assert complete(completing, monkeypatch, "get", "-n", "shop", "wep", "") == []
    assert complete(completing, monkeypatch, "get", "-A", "wep", "") == ["w"]


@pytest.mark.parametrize("words", [("get", "bogus", ""), ("get", "pool", ""), ("-c", "/nowhere", "get", "pool", "")])
def test_what_fails_offers_nothing_and_prints_nothing(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> None:
    completing.is_unavailable = True
    assert complete(completing, monkeypatch, *words) == []


@pytest.mark.parametrize("limit", ["soon", "-1", "nan", "inf"])
def test_a_limit_that_is_no_duration_is_ignored(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("NETPLUG_COMPLETION_SECONDS", limit)
    completing.is_unavailable = True
    assert complete(completing, monkeypatch, "get", "pool", "") == []


def test_an_error_of_ours_prints_nothing_either(completing: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_CWORD", "no number")
    assert completing.run_command() == 1
    assert (completing.out, completing.err) == ("", "")
    monkeypatch.setenv("_NETPLUGCTL_COMPLETE", "tcsh_complete")
    assert completing.run_command() == 1


def test_an_answer_that_takes_too_long_ends_the_process(tmp_path: Path) -> None:
    code = (
        "import time\nfrom netplug_cli.ctl.completion import answer_shell\n"
        f"answer_shell(lambda: time.sleep({EMERGENCY_STOP_S}))\nprint('late')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"NETPLUG_COMPLETION_SECONDS": "0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


# --- real shells ---------------------------------------------------------------------------------------------------

BASH = """
source <(netplugctl completion bash)
complete -p netplugctl
ask() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _netplugctl_completion netplugctl
    echo "${COMPREPLY[@]}"
}
ask netplugctl get poo
ask netplugctl get nodes ""
ask netplugctl get nodes node-b ""
ask netplugctl get node/node-b no
ask netplugctl dif
ask netplugctl get --watc
SQLITE_PATH=/nowhere/netplug.db ask netplugctl get nodes ""
"""

ZSH = """
compdef() { : }
_describe() { print -r -- ${completions_with_descriptions%%:*} }
compadd() { print -r -- $completions }
source <(netplugctl completion zsh)
ask() { words=("$@") CURRENT=$#; _netplugctl_completion || print }
"""

FISH = """
netplugctl completion fish | source
function ask
    complete -C (string join " " $argv) | string split -f 1 \\t | string join " "
end
"""

QUESTIONS = """
ask netplugctl get poo
ask netplugctl get nodes ""
ask netplugctl get node/node-b node/
ask netplugctl dif
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database in which there are two nodes."""
    path = str(tmp_path / "netplug.db")
    with closing(open_database(path, deadline=Deadline.after(SystemClock(), EMERGENCY_STOP_S))):
        pass
    documents = "".join(
        f"---\napiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {{name: {name}}}\n"
        for name in ("node-a", "node-b")
    )
    (tmp_path / "nodes.yaml").write_text(documents)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(folder / "netplug.db"), "HOME": str(folder)}
    return os.environ | settings | LIMIT | {"PATH": path}


def run_shell(folder: Path, *command: str) -> list[str]:
    """What a shell prints; nothing on standard error."""
    env = environment(folder)
    subprocess.run(["netplugctl", "create", "-f", "nodes.yaml"], cwd=folder, env=env, check=True, capture_output=True)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes(folder: Path) -> None:
    assert run_shell(folder, "bash", "--norc", "-c", BASH) == [
        "complete -o nosort -F _netplugctl_completion netplugctl",
        "pool pools",
        "node-a node-b",
        "node-a",
        "node/node-a",
        "diff",
        "--watch --watch-only",
        "",
    ]


@pytest.mark.parametrize("shell, prelude", [("zsh", ZSH), ("fish", FISH)])
def test_another_shell_completes(folder: Path, shell: str, prelude: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}: apt-get install {shell}")
    options = {"zsh": ["-f"], "fish": ["--no-config"]}[shell]
    assert run_shell(folder, shell, *options, "-c", prelude + QUESTIONS) == [
        "pool pools",
        "node-a node-b",
        "node/node-a",
        "diff",
    ]


def test_a_shell_that_is_not_known_is_wrong_usage(harness: ToolHarness) -> None:
    assert harness.run_command("completion", "tcsh") == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in harness.err


@pytest.mark.parametrize(
    "shell, begins", [("bash", "_netplugctl_completion() {"), ("zsh", "#compdef netplugctl"), ("fish", "function _net")]
)
def test_the_script_of_each_shell_is_printed(harness: ToolHarness, shell: str, begins: str) -> None:
    assert harness.run_command("completion", shell) == 0
    assert harness.out.startswith(begins)
    assert harness.opened_settings == []


def test_names_of_pools_nodes_and_what_blocks_hold_are_offered(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_pools(completing, monkeypatch)
    held = Block.new(Prefix.parse("10.65.0.0/30"), owner="host:node-a", now_ns=1)
    held = held.assign((Ordinal(1), Ordinal(2)), Attribute(handle="h"))
    node = Node(metadata=Metadata(name="node-a"))
    completing.store_records(Create(held.key, held), Create(node_key("node-a"), node))
    for words, offered in (
        (("pool", "drain", ""), ["main", "six"]),
        (("pool", "resize", "s"), ["six"]),
        (("ipam", "show", "main", ""), ["six"]),
        (("ipam", "map", "m"), ["main"]),
        (("ipam", "split", "2", "--name", "m"), ["main"]),
        (("ipam", "explain", "--node", "n"), ["node-a"]),
        (("ipam", "explain", "--pool", ""), ["main", "six"]),
        (("ipam", "explain", "10.65.0"), ["10.65.0.1", "10.65.0.2"]),
        (("ipam", "show", "--ip", "10.65.0.2"), ["10.65.0.2"]),
        (("ipam", "release", "--ip", "10.9"), []),
        (("ipam", "delete-block", "10."), ["10.65.0.0/30"]),
    ):
        assert complete(completing, monkeypatch, *words) == offered, words


def test_nothing_is_offered_where_the_datastore_does_not_answer(
    completing: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    completing.is_unavailable = True
    assert complete(completing, monkeypatch, "pool", "drain", "") == []
    assert complete(completing, monkeypatch, "ipam", "show", "--ip", "") == []
