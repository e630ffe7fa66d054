"""Releases from a report, splits and a collector's tick on every store: several at once, and one that is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_core.addressing import Family
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic
from netplug_core.ipam.model import BLOCK
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.records import List
from netplug_core.resources.ippool import AllowedUse
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 120
LEAKS = 20


@pytest.fixture(params=["sqlite", *SERVERS])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """A user whose configuration leads to a locked store with a pool, and addresses that are not in use."""
    user = make_tool_user(request, tmp_path, request.param)
    made = user.run_command("create", "-f", "-", stdin=document("IPPool", "blue", "cidr: 10.68.0.0/24, blockSize: 28"))
    assert made.status == 0, made
    assign(user, *(f"net.{number}" for number in range(LEAKS)))
    assert user.run_command("datastore", "migrate", "lock").status == 0
    return user


def assign(user: ToolUser, *handles: str, **owner: str) -> None:
    """Assign an address to each handle, and store no endpoint."""
    with user.store() as store:
        ipam = BlockIPAM(datastore=store, clock=user.session.clock, chance=random.random)
        for handle in handles:
            request = AssignRequest(
                handle=handle,
                node="node-a",
                wanted=(Automatic(family=Family.IPV4),),
                owner=tuple(sorted({"node": "node-a", **owner}.items())),
                use=AllowedUse.WORKLOAD,
            )
            ipam.assign(request, NO_ENDPOINT, deadline=user.deadline)


def start(user: ToolUser, *argv: str) -> subprocess.Popen[str]:
    """The tool as a process of its own."""
    command = [sys.executable, "-m", "netplug_cli.wiring.ctl", "-c", user.write_configuration(), *argv]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(started: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = started.communicate(timeout=_TIMEOUT_S)
    assert "Traceback" not in err
    return started.returncode, out


def blocks(user: ToolUser) -> dict[str, str]:
    """The revision of each block."""
    with user.store() as store:
        listed = store.read((List(BLOCK),), deadline=user.deadline).list(List(BLOCK))
    return {record.key.name: record.revision for record in listed}


def test_a_report_and_two_releases_from_it_at_once(user: ToolUser, tmp_path: Path) -> None:
    report = str(tmp_path / "leaks.json")
    assert user.run_command("ipam", "check", "-o", report).status == 1
    found = json.loads(Path(report).read_text())["allocations"]
    assert len(found) == LEAKS
    assert not any(entry["inUse"] for entries in found.values() for entry in entries)
    is_ordered = "kubeconfig" in user.spec
    if is_ordered:  # processes of their own would wait for 90 seconds there
        results = [user.run_command("ipam", "release", f"--from-report={report}") for _time in range(2)]
        outs = [(result.status, result.out) for result in results]
    else:
        started = [start(user, "ipam", "release", f"--from-report={report}") for _time in range(2)]
        outs = [finish(each) for each in started]
    assert [status for status, _out in outs] == [0, 0]
    released = [int(line.split()[1]) for _status, out in outs for line in out.splitlines() if " IPs " in line]
    assert sum(released) == LEAKS
    again = user.run_command("ipam", "check", "-o", str(tmp_path / "again.json"))
    assert again.status == 0, again
    assert json.loads((tmp_path / "again.json").read_text())["allocations"] == {}


def test_a_split_that_is_killed_is_continued_by_two_at_once(user: ToolUser) -> None:
    before = blocks(user)
    assert before
    with start(user, "ipam", "split", "16", "--name", "blue") as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "IPPool(blue) disabled\n"
        killed.send_signal(signal.SIGKILL)
    started = [start(user, "ipam", "split", "16", "--cidr", "10.68.0.0/24") for _time in range(2)]
    assert [status for status, _out in map(finish, started)] == [0, 0]
    assert (
        user.run_command("ipam", "split", "16", "--name", "blue").out == "IPPool(blue) is split into 16 pools already\n"
    )
    names = [line.split()[0] for line in user.run_command("get", "pools").out.splitlines()[1:]]
    assert sorted(names) == sorted(f"split-blue-{number}" for number in range(16))
    assert blocks(user) == before
    assert user.run_command("datastore", "migrate", "unlock").status == 0
    assert user.run_command("ipam", "check").status == 0


def test_a_tick_frees_the_pod_of_a_node_that_is_gone(user: ToolUser) -> None:
    """Only where the datastore shows pods and nodes; elsewhere it is not known."""
    assert user.run_command("datastore", "migrate", "unlock").status == 0
    assign(user, "net.gone", namespace="shop", pod="gone")
    seen = user.run_command("ipam", "collect", "-o", "json")
    assert seen.status == 0, seen
    assert user.run_command("ipam", "collect", "--apply").status == 0
    found, after = (json.loads(out) for out in (seen.out, user.run_command("ipam", "collect", "-o", "json").out))
    shows_pods = "kubeconfig" in user.spec
    assert [(each["handle"], each["reason"]) for each in found["freed"]] == (
        [("net.gone", "its pod does not exist")] if shows_pods else []
    )
    assert (len(found["undetermined"]), len(after["undetermined"])) == (
        (LEAKS, LEAKS) if shows_pods else (LEAKS + 1, LEAKS + 1)
    )
    assert after["freed"] == []
