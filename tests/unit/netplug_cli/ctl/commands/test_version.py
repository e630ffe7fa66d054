"""The versions of the tool and of the cluster."""

from functools import partial
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core import __version__
from netplug_core.records import Create
from netplug_core.resources.clusterinformation import (
    CLUSTER_INFORMATION_KEY,
    ClusterInformation,
    ClusterInformationSpec,
)
from netplug_core.resources.fields import Metadata
from tests.harness.ctl import ToolHarness
from tests.harness.scripted_clock import ScriptedClock, Step

CLIENT = f"Client Version: v{__version__}\n"


def test_an_unset_version_is_unknown(harness: ToolHarness) -> None:
    assert harness.run_command("version") == 0
    assert harness.out == CLIENT + "Cluster Version: unknown\nCluster Type: memory\n"


def test_a_type_that_is_not_recorded_is_that_of_the_datastore(harness: ToolHarness) -> None:
    cluster(harness, "v1.2.3")
    assert harness.run_command("version") == 0
    assert harness.out == CLIENT + "Cluster Version: v1.2.3\nCluster Type: memory\n"


def test_what_the_cluster_says(harness: ToolHarness) -> None:
    spec = ClusterInformationSpec(version="v1.2.3", cluster_type="k8s,kdd")
    value = ClusterInformation(metadata=Metadata(name="default"), spec=spec)
    harness.store_records(Create(CLUSTER_INFORMATION_KEY, value))
    assert harness.run_command("version") == 0
    assert harness.out == CLIENT + "Cluster Version: v1.2.3\nCluster Type: k8s,kdd\n"


def test_a_store_that_is_away_is_said_after_the_client_part(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command("version") == 1
    assert harness.out == CLIENT
    assert harness.err == "netplugctl: /nowhere: unable to open the file\n"


def test_the_client_part_needs_no_store(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command("version", "--client") == 0
    assert harness.out == CLIENT


def cluster(harness: ToolHarness, version: str) -> None:
    spec = ClusterInformationSpec(version=version)
    harness.store_records(
        Create(CLUSTER_INFORMATION_KEY, ClusterInformation(metadata=Metadata(name="default"), spec=spec))
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["get", "pools"],
        ["delete", "pool", "a"],
        ["label", "pool", "a", "b=c"],
        ["patch", "pool", "a", "-p", "{}"],
        ["ipam", "show"],
        ["ipam", "configure", "--strictaffinity", "true"],
        ["create", "-f", "{file}"],
        ["apply", "-f", "{file}"],
        ["replace", "-f", "{file}"],
    ],
)
def test_an_older_tool_is_refused(harness: ToolHarness, argv: list[str]) -> None:
    """S-50 of the catalogue."""
    file = harness.write_pools(("a", "10.0.0.0/16"))
    cluster(harness, "v3.34.0")
    commits = harness.store.calls.commits
    words = [word.format(file=file) if word == "{file}" else word for word in argv]
    assert harness.run_command(*words) == 1
    assert harness.err.startswith(
        f"netplugctl: version mismatch. This is {__version__}, and the cluster runs v3.34.0: "
    )
    assert harness.err.count("\n") == 1
    assert harness.store.calls.commits == commits
    for place in ([*words, "--allow-version-mismatch"], ["--allow-version-mismatch", *words]):
        harness.run_command(*place)
        assert "version mismatch" not in harness.err


def test_a_variable_stands_for_the_option(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(harness, "v3.34.0")
    for text, refusal in (("true", ""), ("1", ""), ("false", "version mismatch"), ("", "version mismatch")):
        monkeypatch.setenv("NETPLUG_ALLOW_VERSION_MISMATCH", text)
        harness.run_command("get", "pools")
        assert (refusal in harness.err, "version mismatch" in harness.err) == (True, bool(refusal)), text
    monkeypatch.setenv("NETPLUG_ALLOW_VERSION_MISMATCH", "perhaps")
    assert harness.run_command("get", "pools") == 2
    assert "perhaps" in harness.err


def test_what_asks_no_store_is_not_held_back(harness: ToolHarness) -> None:
    """S-50 of the catalogue."""
    cluster(harness, "v9.0.0")
    assert harness.run_command("version") == 0
    assert "Cluster Version: v9.0.0\n" in harness.out
    assert harness.run_command("validate", "-f", harness.write_pools(("a", "10.0.0.0/16"))) == 0


@pytest.fixture
def polling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> ToolHarness:
    """A person who polls; each wait runs a step."""
    clock = ScriptedClock()
    return ToolHarness(tmp_path, capsys, clock, MemoryDatastore(clock=clock))


def poll(harness: ToolHarness, *steps: Step, options: tuple[str, ...] = ()) -> int:
    assert isinstance(harness.clock, ScriptedClock)
    harness.clock.steps = list(steps)
    return harness.run_command("version", "--poll", "10s", *options)


def nothing() -> None:
    """A wait in which nothing changes."""


def cluster_lines(version: str, cluster_type: str = "memory") -> str:
    return f"Cluster Version: {version}\nCluster Type: {cluster_type}\n"


def test_a_poll_prints_changes_until_ctrl_c(polling: ToolHarness) -> None:
    began = polling.clock.monotonic()
    assert poll(polling, nothing, partial(cluster, polling, "v1.2.3"), nothing, nothing) == 0
    assert (polling.out, polling.err) == (CLIENT + cluster_lines("unknown") + cluster_lines("v1.2.3"), "")
    assert polling.clock.monotonic() - began == 50


def test_a_poll_goes_on_while_the_datastore_is_away(polling: ToolHarness) -> None:
    """One line when it stops to answer, and the versions when it answers again."""

    def set_unavailable(*, is_unavailable: bool) -> None:
        polling.is_unavailable = is_unavailable

    away, back = partial(set_unavailable, is_unavailable=True), partial(set_unavailable, is_unavailable=False)
    assert poll(polling, away, nothing, back, nothing, away, nothing) == 0
    assert polling.out == CLIENT + cluster_lines("unknown") * 2
    assert polling.err == "netplugctl: /nowhere: unable to open the file; asking again every 10 s\n" * 2


def test_a_poll_may_begin_before_the_datastore_answers(polling: ToolHarness) -> None:
    polling.is_unavailable = True

    def come_back() -> None:
        polling.is_unavailable = False

    assert poll(polling, nothing, come_back) == 0
    assert polling.out == CLIENT + cluster_lines("unknown")
    assert polling.err == "netplugctl: /nowhere: unable to open the file; asking again every 10 s\n"


def test_a_poll_goes_on_over_a_damaged_record(polling: ToolHarness) -> None:
    cluster(polling, "v1.2.3")
    polling.damage[CLUSTER_INFORMATION_KEY] = b"[]"
    assert poll(polling, polling.damage.clear) == 0
    assert polling.out == CLIENT + cluster_lines("v1.2.3")
    assert "ClusterInformation(default) is malformed" in polling.err


def test_a_poll_that_cannot_begin_fails(polling: ToolHarness) -> None:
    polling.environ["DATASTORE_TYPE"] = "memory"
    assert poll(polling, nothing, nothing) == 1
    assert polling.out == CLIENT
    assert "it ends with this command" in polling.err
    assert isinstance(polling.clock, ScriptedClock)
    assert len(polling.clock.steps) == 2, "it did not wait"


def test_a_configuration_that_becomes_unusable_is_an_outage(polling: ToolHarness) -> None:
    def break_it() -> None:
        Path(polling.folder / "netplugctl.cfg").write_text("{")

    def repair_it() -> None:
        Path(polling.folder / "netplugctl.cfg").unlink()

    assert poll(polling, break_it, nothing, repair_it) == 0
    assert polling.out == CLIENT + cluster_lines("unknown") * 2
    assert polling.err.count("netplugctl.cfg") == 1


@pytest.mark.parametrize("argv", [["--poll", "0s"], ["--poll", "often"], ["--poll", "5s", "--client"]])
def test_a_poll_that_makes_no_sense(harness: ToolHarness, argv: list[str]) -> None:
    assert harness.run_command("version", *argv) == 2
    assert harness.out == ""
    assert "--poll" in harness.err
