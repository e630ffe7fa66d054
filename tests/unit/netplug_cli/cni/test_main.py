"""The executables as functions: what they print and answer, and which flow serves which command."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define

from netplug_cli.wiring.cni import main
from netplug_core import __version__
from netplug_core.cni.dispatch import CNICommand, Plugin
from netplug_core.flows.cni import add, check, delete, status
from netplug_core.flows.cni.call import FLOWS, find_flow
from tests.harness.waiting import EMERGENCY_STOP_S

CALL = {
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/not/a/namespace",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
}


@define
class InProcessRuntime:
    """Runs ``main`` in this process, as a runtime would start it."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    config: dict[str, object]

    def call(self, command: str, *flags: str, name: str = "netplug", **changes: object) -> tuple[int, str, str]:
        """Exit status, standard output and standard error; no command means no variable at all."""
        for variable in (*CALL, "CNI_COMMAND"):
            self.patch.delenv(variable, raising=False)
        if command:
            for variable, value in {**CALL, "CNI_COMMAND": command}.items():
                self.patch.setenv(variable, value)
        stdin = io.TextIOWrapper(io.BytesIO(json.dumps({**self.config, **changes}).encode()))
        self.patch.setattr(sys, "stdin", stdin)
        self.patch.setattr(sys, "argv", [f"/opt/cni/bin/{name}", *flags])
        status = main()
        captured = self.capture.readouterr()
        return status, captured.out, captured.err

    def refused(self, command: str, *, name: str = "netplug", **changes: object) -> dict[str, object]:
        """The error object of a call."""
        status, out, _err = self.call(command, name=name, **changes)
        assert status == 1
        document: dict[str, object] = json.loads(out)
        return document


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> InProcessRuntime:
    config: dict[str, object] = {
        "cniVersion": "1.1.0",
        "name": "net1",
        "type": "netplug",
        "nodename": "node-1",
        "datastore_type": "sqlite",
        "sqlite_path": str(tmp_path / "netplug.db"),
        "mtu_file": str(tmp_path / "mtu"),
        "ipam_lock_file": str(tmp_path / "ipam.lock"),
        "release_record_dir": str(tmp_path / "release-records"),
        "ipam": {"type": "netplug-ipam"},
    }
    return InProcessRuntime(monkeypatch, capfd, config)


@pytest.mark.parametrize(
    "command,flow,ipam_flow",
    [
        (CNICommand.ADD, add.add, add.assign_addresses),
        (CNICommand.DEL, delete.delete, delete.release_addresses),
        (CNICommand.CHECK, check.check, check.check_addresses),
        (CNICommand.STATUS, status.status, status.status_addresses),
        (CNICommand.GC, status.gc, status.collect),
    ],
)
def test_each_command_has_its_flow(
    command: CNICommand, flow: Callable[..., object], ipam_flow: Callable[..., object]
) -> None:
    assert find_flow(Plugin.MAIN, command) is flow
    assert find_flow(Plugin.IPAM, command) is ipam_flow
    assert set(FLOWS[Plugin.MAIN]) == set(FLOWS[Plugin.IPAM]) == set(CNICommand) - {CNICommand.VERSION}


@pytest.mark.parametrize("name", ["netplug", "netplug-ipam"])
def test_check_1_without_any_variable_it_says_what_it_is(runtime: InProcessRuntime, name: str) -> None:
    status, out, err = runtime.call("", name=name)
    assert (status, out) == (0, "")
    assert err.startswith(f"{name} {__version__}: a CNI plugin; ")


def test_check_2_the_version_flag_prints_one_line(runtime: InProcessRuntime) -> None:
    assert runtime.call("", "-v") == (0, f"{__version__}\n", "")


@pytest.mark.parametrize("name", ["netplug", "netplug-ipam"])
def test_check_26_the_test_flag_asks_the_datastore(runtime: InProcessRuntime, name: str) -> None:
    assert runtime.call("", "-t", name=name) == (0, "", "")
    status, out, _err = runtime.call("", "-t", name=name, datastore_type="foo")
    assert (status, json.loads(out)["code"]) == (1, 100)
    assert json.loads(out)["details"].startswith("datastore_type: 'foo' is not accepted")


def test_check_11_an_error_is_one_object_on_standard_output_and_the_last_line_of_the_log(
    runtime: InProcessRuntime,
) -> None:
    status, out, err = runtime.call("ADD", ipam={"type": "netplug-ipam", "assign_ipv4": "maybe"})
    assert status == 1
    refusal = "network configuration.ipam.assign_ipv4: 'maybe' is not accepted; "
    assert json.loads(out) == {
        "cniVersion": "1.1.0",
        "code": 7,
        "msg": f'{refusal}the string "true" or "false" is expected',
    }
    assert "[ERROR]" in err
    assert "cni-plugin: the final result was an error, code 7: network configuration.ipam.assign_ipv4" in err


def test_lines_of_netplug_ipam_say_so(runtime: InProcessRuntime) -> None:
    _status, _out, err = runtime.call("FOO", name="netplug-ipam")
    assert " ipam: the final result was an error, code 4: " in err


def test_the_configuration_says_where_lines_go(runtime: InProcessRuntime, tmp_path: Path) -> None:
    path = tmp_path / "log" / "cni.log"
    status, out, err = runtime.call("DEL", log_file_path=str(path), log_level="info")
    assert (status, out) == (0, "")
    assert path.read_text() == err
    assert 'cni-plugin: container detached addresses="" container="c1" interface="eth0"' in err
    assert runtime.call("DEL", log_level="error") == (0, "", "")


def test_netplug_ipam_serves_a_call_of_its_own(runtime: InProcessRuntime) -> None:
    assert runtime.refused("ADD", name="netplug-ipam", type="bridge")["code"] == 104
    assert runtime.call("DEL", name="netplug-ipam", type="bridge", log_level="ERROR") == (0, "", "")


def test_check_29_del_and_gc_put_up_with_what_add_refuses(runtime: InProcessRuntime) -> None:
    broken = {"mtu": -1, "policy": {"type": "foo"}, "log_level": "LOUD"}
    assert runtime.refused("ADD", name="netplug", **broken)["code"] == 7
    for command in ("DEL", "GC"):
        assert runtime.call(command, name="netplug", **broken)[:2] == (0, "")


def test_check_24_an_unknown_datastore_is_code_7(runtime: InProcessRuntime) -> None:
    for command in ("ADD", "STATUS", "DEL"):
        document = runtime.refused(command, datastore_type="foo")
        assert document["code"] == 7
        offered = "etcdv3, kubernetes, memory, sqlite"
        assert document["msg"] == f"datastore_type: 'foo' is not accepted; registered: {offered}"


def test_check_12_an_add_into_our_own_namespace_is_refused(
    runtime: InProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CALL, "CNI_NETNS", "/proc/self/ns/net")
    assert runtime.refused("ADD")["code"] == 8
    monkeypatch.setitem(CALL, "CNI_NETNS", "/not/a/namespace")
    assert runtime.refused("ADD")["msg"] == "CNI_NETNS '/not/a/namespace' is not a network namespace"


def test_a_token_is_never_shown(runtime: InProcessRuntime) -> None:
    policy = {"type": "s3cr3t", "k8s_auth_token": "s3cr3t"}
    status, out, err = runtime.call("ADD", policy=policy, log_level="DEBUG")
    assert status == 1
    assert "s3cr3t" not in out + err


EXECUTE = "import sys; sys.argv[:] = ['netplug']; from netplug_cli.wiring.cni import main; sys.exit(main())"


@pytest.mark.parametrize(
    "redirection,environ,status,out",
    [
        ("<&-", {"CNI_COMMAND": "STATUS", "CNI_PATH": "/"}, 1, "standard input cannot be read: it is closed"),
        ("<&-", {"CNI_COMMAND": "VERSION"}, 0, "supportedVersions"),
        ("2>&-", {"CNI_COMMAND": "FOO"}, 1, "unknown CNI_COMMAND: FOO"),
        ("2>&-", {}, 0, ""),
        ("2>/dev/full", {"CNI_COMMAND": "FOO"}, 1, "unknown CNI_COMMAND: FOO"),
    ],
)
def test_closed_descriptors_change_nothing(redirection: str, environ: dict[str, str], status: int, out: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, EXECUTE],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )
    assert done.returncode == status
    assert out in done.stdout
    assert "Traceback" not in done.stderr


def test_a_terminal_is_not_waited_for() -> None:
    script = f"import os, pty, sys\nleader, follower = pty.openpty()\nos.dup2(follower, 0)\nexec({EXECUTE!r})\n"
    environ = {"CNI_COMMAND": "STATUS", "CNI_PATH": "/"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["msg"].startswith("standard input: is empty;")


def test_a_command_loads_its_own_flow_only() -> None:
    script = (
        "import sys; sys.argv[:] = ['netplug']\n"
        "from netplug_cli.wiring.cni import main\n"
        "main()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('netplug_core.flows.')), file=sys.stderr)\n"
    )
    config = {"cniVersion": "1.1.0", "name": "n", "type": "netplug", "datastore_type": "memory", "ipam": {"type": "x"}}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"CNI_COMMAND": "STATUS", "CNI_PATH": "/"},
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=True,
        timeout=EMERGENCY_STOP_S,
    )
    loaded = done.stderr.splitlines()[-1].split()
    flows = [name for name in loaded if name.startswith("netplug_core.flows.cni.")]
    assert flows == [f"netplug_core.flows.cni.{name}" for name in ("call", "pods", "release_records", "status")]
