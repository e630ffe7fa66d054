"""``pool drain`` and ``pool resize`` on every store: nothing is taken from a pod, and a killed run is continued."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_core.addressing import Family
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, ReleaseRequest
from netplug_core.ipam.outcome import NoPoolServes
from netplug_core.ipam.protocol import NO_ENDPOINT
from netplug_core.resources.ippool import AllowedUse
from tests.harness.tool_stores import SERVERS, make_tool_user
from tests.harness.tool_user import ToolUser, document

_ROOT = Path(__file__).resolve().parents[2]
EXIT_WAITING = 3


@pytest.fixture(params=["sqlite", *SERVERS])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> ToolUser:
    """A user whose configuration leads to a store with one pool, for every node."""
    user = make_tool_user(request, tmp_path, request.param)
    pool = document("IPPool", "blue", "cidr: 10.68.0.0/24, blockSize: 28", "labels: {tier: gold}")
    made = user.run_command("create", "-f", "-", stdin=pool)
    assert made.status == 0, made
    return user


@contextmanager
def open_ipam(user: ToolUser) -> Iterator[BlockIPAM]:
    with user.store() as store:
        yield BlockIPAM(datastore=store, clock=user.session.clock, chance=random.random)


def add(user: ToolUser, pod: str) -> str:
    """Assign an address as an ADD does."""
    owner = (("namespace", "shop"), ("node", "node-a"), ("pod", pod))
    wanted = (Automatic(family=Family.IPV4),)
    request = AssignRequest(handle=f"net.{pod}", node="node-a", wanted=wanted, owner=owner, use=AllowedUse.WORKLOAD)
    with open_ipam(user) as ipam:
        return str(ipam.assign(request, NO_ENDPOINT, deadline=user.deadline).addresses[0].address)


def delete(user: ToolUser, pod: str) -> None:
    with open_ipam(user) as ipam:
        ipam.release(ReleaseRequest(handle=f"net.{pod}"), NO_ENDPOINT, deadline=user.deadline)


def drain(user: ToolUser, *argv: str) -> list[dict[str, object]]:
    """Drain the pool; the events."""
    result = user.run_command("pool", "drain", "blue", "--delete", "-o", "json", *argv)
    events: list[dict[str, object]] = [json.loads(line) for line in result.out.splitlines()]
    assert result.status == (0 if events[-1]["event"] == "deleted" else EXIT_WAITING), result
    return events


def test_a_pool_empties_and_goes(user: ToolUser) -> None:
    address = add(user, "web-0")
    waiting = drain(user)[-1]
    assert (waiting["event"], waiting["addresses"]) == ("waiting", 1)
    assert waiting["held"] == [
        {"address": address, "node": "node-a", "namespace": "shop", "name": "web-0", "handle": "net.web-0"}
    ]
    with pytest.raises(NoPoolServes):
        add(user, "web-1")
    assert "is in use" in user.run_command("ipam", "show", "--ip", address).out
    assert user.run_command("pool", "drain", "blue", "--undo").out == "IPPool(blue) is not drained any more\n"
    add(user, "web-1")
    assert drain(user)[-1]["addresses"] == 2
    delete(user, "web-0")
    delete(user, "web-1")
    assert drain(user)[-1] == {"event": "deleted", "pool": "blue"}
    assert user.run_command("ipam", "check").status == 0
    assert user.run_command("ipam", "show").out.splitlines()[1:] == []


def test_the_successor_serves_while_the_old_pool_empties(user: ToolUser) -> None:
    address = add(user, "web-0")
    resize = ("pool", "resize", "blue", "--successor", "green", "--cidr", "10.69.0.0/23", "--block-size", "27")
    assert user.run_command(*resize).status == EXIT_WAITING
    green = user.get_object("ippool", "green")
    assert isinstance(green["metadata"], dict)
    assert isinstance(green["spec"], dict)
    assert (green["metadata"]["labels"], green["spec"]["blockSize"]) == ({"tier": "gold"}, 27)
    assert add(user, "web-1").startswith("10.69.")
    assert "is in use" in user.run_command("ipam", "show", "--ip", address).out
    assert user.run_command(*resize).status == EXIT_WAITING
    delete(user, "web-0")
    done = user.run_command(*resize)
    assert (done.status, done.out.splitlines()[-1]) == (0, "IPPool(blue) deleted")
    assert user.run_command(*resize).status == 0
    assert user.run_command("ipam", "check").status == 0


@pytest.mark.night
def test_a_drain_that_is_killed_while_it_waits_is_continued(user: ToolUser) -> None:
    add(user, "web-0")
    command = [sys.executable, "-m", "netplug_cli.wiring.ctl", "-c", user.write_configuration()]
    command += ["pool", "drain", "blue", "--delete", "--wait", "-o", "json"]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdout is not None
        next(line for line in ran.stdout if json.loads(line)["event"] == "waiting")
        ran.send_signal(signal.SIGKILL)
    assert [event["event"] for event in drain(user)][-1] == "waiting"
    delete(user, "web-0")
    assert drain(user, "--wait", "--timeout", "1m")[-1]["event"] == "deleted"
