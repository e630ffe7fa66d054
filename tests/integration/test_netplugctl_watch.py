"""``get --watch`` and ``version --poll`` as processes of their own, on every store: changes, an outage, their ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from attrs import define

from netplug_core.flows.resources.cluster import ensure_initialized
from tests.harness.servers.etcd import start_etcd
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document, environment_without
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

STORES = ("sqlite", *SERVERS)
POOL = document("IPPool", "main", "cidr: 10.68.0.0/16")
OTHER = document("IPPool", "other", "cidr: 10.69.0.0/16")


@pytest.fixture(params=STORES)
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    return make_tool_user(request, tmp_path, request.param)


@define
class WatchProcess:
    """A running command that goes on until Ctrl-C; its outputs go to files."""

    process: subprocess.Popen[str]
    out: Path
    err: Path

    def wait_for(self, text: str) -> None:
        """Wait until standard output has a text."""
        wait_until(lambda: text in self.out.read_text(), f"{text!r} is printed; {self.err.read_text()}")

    def interrupt(self) -> int:
        """Press Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(EMERGENCY_STOP_S)


def command_line(user: ToolUser, *argv: str) -> list[str]:
    program = [sys.executable, "-m", "netplug_cli.wiring.ctl"]
    # A shell lets what it starts in the background, such as these tests, ignore Ctrl-C.
    return ["env", "--default-signal=INT", *program, "-c", user.write_configuration(), *argv]


def watching(user: ToolUser, *argv: str) -> AbstractContextManager[WatchProcess]:
    """A person who watches; ended at the end."""
    return running(user, "get", *argv, "--watch")


@contextmanager
def running(user: ToolUser, *argv: str) -> Iterator[WatchProcess]:
    """A command that goes on; ended at the end."""
    out, err = user.folder / "watch.out", user.folder / "watch.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            command_line(user, *argv),
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=environment_without("ETCD_", "K8S_", "KUBECONFIG", "DATASTORE_", "SQLITE_", "NETPLUG_"),
        )
    try:
        yield WatchProcess(process, out, err)
    finally:
        process.kill()
        process.wait()


def apply(user: ToolUser, text: str) -> None:
    result = user.run_command("apply", "-f", "-", stdin=text)
    assert result.status == 0, result


def test_a_table_goes_on_and_ctrl_c_ends_it(user: ToolUser) -> None:
    apply(user, POOL)
    with watching(user, "pools") as watch:
        watch.wait_for("ADDED      main")
        apply(user, OTHER)
        watch.wait_for("other")
        apply(user, document("IPPool", "main", "cidr: 10.68.0.0/16, disabled: true"))
        watch.wait_for("MODIFIED")
        assert user.run_command("delete", "pool", "other").status == 0
        watch.wait_for("DELETED")
        assert watch.interrupt() == 0
        rows = [line.split()[:3] for line in watch.out.read_text().splitlines()]
        # A deleted pool is disabled first.
        assert rows[:4] == [
            ["EVENT", "NAME", "CIDR"],
            ["ADDED", "main", "10.68.0.0/16"],
            ["ADDED", "other", "10.69.0.0/16"],
            ["MODIFIED", "main", "10.68.0.0/16"],
        ]
        assert rows[-1] == ["DELETED", "other", "10.69.0.0/16"]
        assert watch.err.read_text() == ""


def test_json_is_an_object_a_line_with_what_get_shows(user: ToolUser) -> None:
    with watching(user, "pool", "main", "-o", "json") as watch:
        wait_until(lambda: "waiting for it" in watch.err.read_text(), "the pool is waited for")
        apply(user, POOL)
        watch.wait_for("\n")
        assert watch.interrupt() == 0
        event = json.loads(watch.out.read_text().splitlines()[0])
        shown = json.loads(user.run_command("get", "pool", "main", "-o", "json").out)
        assert (event["type"], event["object"]["spec"]) == ("ADDED", shown["spec"])


def test_every_output_is_printed_as_soon_as_something_changes(user: ToolUser) -> None:
    """A program that reads them waits for each event."""
    apply(user, POOL)
    for number, (output, first, later) in enumerate(
        (
            ("name", "ippool/main\n", "ippool/{}\n"),
            ("custom-columns=NAME", "main\n", "{}\n"),
            ("jsonpath={.metadata.name}.", "main.", "{}."),
            ("yaml", "name: main\n", "name: {}\n"),
        )
    ):
        with watching(user, "pools", "-o", output) as watch:
            watch.wait_for(first)
            apply(user, document("IPPool", f"pool-{number}", f"cidr: 10.{70 + number}.0.0/16"))
            watch.wait_for(later.format(f"pool-{number}"))
            assert watch.interrupt() == 0


def test_every_kind_can_be_watched(user: ToolUser) -> None:
    for kind in ("reservations", "ipamconfigs", "nodes", "profiles", "weps", "clusterinfos"):
        with watching(user, kind) as watch:
            watch.wait_for("EVENT")
            assert watch.interrupt() == 0


def test_a_reader_who_has_seen_enough_ends_it_without_a_word(user: ToolUser) -> None:
    apply(user, POOL)
    reading, writing = os.pipe()
    with subprocess.Popen(
        command_line(user, "get", "pools", "--watch"), stdout=writing, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writing)
        assert os.read(reading, 5) == b"EVENT"
        os.close(reading)
        apply(user, OTHER)
        assert process.wait(EMERGENCY_STOP_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.etcd
def test_a_watch_goes_on_after_an_outage(tmp_path: Path) -> None:
    with start_etcd() as etcd:
        user = ToolUser(tmp_path, {"etcdEndpoints": ",".join(etcd.endpoints)})
        apply(user, POOL)
        with watching(user, "pools") as watch:
            watch.wait_for("main")
            (member,) = etcd.members
            member.kill()
            wait_until(lambda: "the watch goes on" in watch.err.read_text(), "the outage is reported")
            member.start()
            etcd.wait_until_ready()
            apply(user, OTHER)
            watch.wait_for("other")
            assert watch.interrupt() == 0
            assert "Traceback" not in watch.err.read_text()


def test_a_poll_prints_the_version_that_the_cluster_gets(user: ToolUser) -> None:
    with running(user, "version", "--poll", "1s") as poll:
        poll.wait_for("Cluster Version: unknown")
        with user.store() as store:
            ensure_initialized(store, pace=user.pace, new_uid=lambda: str(uuid4()), recorded=("v0.1.0",))
        poll.wait_for("Cluster Version: v0.1.0")
        assert poll.interrupt() == 0
        assert poll.err.read_text() == ""
        versions = [line for line in poll.out.read_text().splitlines() if line.startswith("Cluster Version")]
        assert versions == ["Cluster Version: unknown", "Cluster Version: v0.1.0"]


@pytest.mark.etcd
def test_a_poll_goes_on_through_an_outage(tmp_path: Path) -> None:
    with start_etcd() as etcd:
        user = ToolUser(tmp_path, {"etcdEndpoints": ",".join(etcd.endpoints)})
        with running(user, "version", "--poll", "1s") as poll:
            poll.wait_for("Cluster Type")
            (member,) = etcd.members
            member.kill()
            wait_until(lambda: "asking again every 1 s" in poll.err.read_text(), "the outage is reported")
            member.start()
            etcd.wait_until_ready()
            wait_until(lambda: poll.out.read_text().count("Cluster Type") == 2, "it answers again")
            assert poll.interrupt() == 0
            assert "Traceback" not in poll.err.read_text()
