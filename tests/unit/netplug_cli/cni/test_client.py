"""What the thin client loads: Python's own cost, which every pod pays, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from netplug_core.cni.wire import WireReply, encode_reply
from tests.harness.scripted_server import opened_server, sending
from tests.harness.waiting import EMERGENCY_STOP_S

ROOT = Path(__file__).parents[4]
REPLY = b"T" + encode_reply(WireReply(exit_status=5, stdout=b"", stderr=b"line\n"))

# A call, and in place of its end the names of everything that is loaded.
CALL_AND_LIST = f"""
import posix, sys
sys.path.append({str(ROOT)!r})
from netplug_cli.cni.client import main
posix._exit = lambda status: sys.stdout.write(" ".join([str(status), *sys.modules]))
main()
"""

# The modules of CPython cannot be imported; those that were built on them are loaded already.
WITHOUT_CPYTHON = f"""
import os, socket, sys
sys.modules["posix"] = sys.modules["_socket"] = None
sys.path.append({str(ROOT)!r})
from netplug_cli.cni import client
assert (client.posix, client.socket) == (os, socket)
client.main()
"""


def call(script: str, path: str) -> subprocess.CompletedProcess[str]:
    """Run a script that makes a call, in an interpreter that starts like an installed one."""
    return subprocess.run(
        [sys.executable, "-IS", "-c", script],
        env={"CNI_COMMAND": "ADD", "NETPLUG_NODE_SOCKET": path},
        input="{}",
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "node.sock")


def test_p1_a_call_loads_three_modules(socket_path: str) -> None:
    with opened_server(socket_path, sending(REPLY)):
        done = call(CALL_AND_LIST, socket_path)
    status, *modules = done.stdout.split()
    assert (status, done.stderr) == ("5", "line\n")
    assert {name for name in modules if name.startswith("netplug")} == {
        "netplug_cli", "netplug_cli.cni", "netplug_cli.cni.client",
    }  # fmt: skip
    assert {"re", "json", "os", "socket", "logging", "typing", "enum", "__future__"}.isdisjoint(modules)
    assert len(modules) <= 30


def test_another_python_does_with_the_modules_that_every_python_has(socket_path: str) -> None:
    with opened_server(socket_path, sending(REPLY)) as server:
        done = call(WITHOUT_CPYTHON, socket_path)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "line\n")
    assert server.requests[0].data.endswith(b"\0\0{}")


def test_it_goes_on_in_the_standalone_program(socket_path: str) -> None:
    """The configuration that it has read is handed over; here it lacks a name."""
    libraries = [path for path in sys.path if path]
    script = f"import sys; sys.path.extend({libraries!r}); from netplug_cli.cni.client import main; main()"
    done = call(script, socket_path)
    assert done.returncode == 1
    assert '"code": 4' in done.stdout
    assert "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing" in done.stdout
