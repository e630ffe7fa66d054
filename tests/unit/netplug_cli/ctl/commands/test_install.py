"""``install host`` and ``uninstall host``: the check of the environment comes first, and can be skipped."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from attrs import evolve

from netplug_cli.ctl.main import run
from netplug_cli.ctl.session import Session
from netplug_cli.node_status import status_socket_of
from netplug_core.errors import ConfigurationError, Unavailable
from tests.harness.ctl import ToolHarness


def refuse() -> None:
    raise ConfigurationError("installing environment", "/venv", "make it root's")


def test_the_executables_are_installed_and_removed(harness: ToolHarness) -> None:
    assert harness.run_command("install", "host", "--bin-dir", "/opt/cni/bin") == 0
    assert (harness.out, harness.err) == ("installed /opt/cni/bin, built\n", "")
    assert harness.run_command("install", "host", "--bin-dir", "/opt/cni/bin", "--client", "static") == 0
    assert (harness.out, harness.err) == ("installed /opt/cni/bin, static\n", "")
    assert harness.run_command("uninstall", "host", "--bin-dir", "/opt/cni/bin") == 0
    removed = "removed /opt/cni/bin\nremoved the node process /opt/cni/bin, /etc/systemd/system\n"
    assert (harness.out, harness.err) == (f"{removed}removed the network\n", "")


def test_the_network_of_a_node_process_that_runs_is_left_and_that_is_said(harness: ToolHarness) -> None:
    socket_path = harness.folder / "node.sock"
    harness.environ["NETPLUG_NODE_SOCKET"] = str(socket_path)
    with closing(socket.socket(socket.AF_UNIX)) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(status_socket_of(str(socket_path)))
        listening.listen()
        answered = pool.submit(answer_with_nonsense, listening)
        assert harness.run_command("uninstall", "host", "--bin-dir", "/bin") == 1
        answered.result()
    assert "removed the network" not in harness.out
    assert harness.err.startswith("netplugctl: a node process still runs, ")
    assert harness.err.endswith("so its routes are left; stop it, and repeat this command\n")


def answer_with_nonsense(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 500 Odd\r\nContent-Length: 0\r\n\r\n")


def test_the_node_process_comes_with_an_option(harness: ToolHarness) -> None:
    harness.host_problems = ("portmap is not in /bin",)
    assert harness.run_command("install", "host", "--bin-dir", "/bin", "--node") == 0
    assert harness.out.splitlines() == [
        "installed /bin, built",
        "installed the node process /bin, /etc/systemd/system",
        "warning: portmap is not in /bin",
    ]
    assert harness.run_command("install", "host", "--bin-dir", "/bin", "--node", "--unit-dir", "/units") == 0
    assert "installed the node process /bin, /units\n" in harness.out


def test_an_environment_that_others_may_write_is_refused_unless_it_is_trusted(harness: ToolHarness) -> None:
    def make_session() -> Session:
        return evolve(harness.make_session(), require_trusted_environment=refuse)

    assert run(["install", "host", "--bin-dir", "/bin"], make_session) == 1
    assert harness.capsys.readouterr() == (
        "",
        "netplugctl: installing environment: '/venv' is not accepted; make it root's\n",
    )
    assert run(["install", "host", "--bin-dir", "/bin", "--trust-environment"], make_session) == 0
    assert harness.capsys.readouterr() == ("installed /bin, built\n", "")


def test_what_the_host_lacks_is_said_and_stops_nothing(harness: ToolHarness) -> None:
    harness.host_problems = ("portmap is not in /bin: …; run: …", "net.ipv4.ip_forward is 0 on this node: …; run: …")
    assert harness.run_command("install", "host", "--bin-dir", "/bin") == 0
    assert harness.out.splitlines() == [
        "installed /bin, built",
        *(f"warning: {text}" for text in harness.host_problems),
    ]


def test_a_plugin_without_which_no_pod_starts_fails_after_everything_is_installed(harness: ToolHarness) -> None:
    harness.host_problems = ("net.ipv4.ip_forward is 0 on this node: …; run: …",)
    harness.missing_plugins = ("loopback is not in /bin: …; run: …", "tuning is not in /bin: …; run: …")
    installed = [
        "installed /bin, built",
        "installed the node process /bin, /etc/systemd/system",
        "warning: net.ipv4.ip_forward is 0 on this node: …; run: …",
    ]
    assert harness.run_command("install", "host", "--bin-dir", "/bin", "--node") == 1
    assert harness.out.splitlines() == installed
    assert harness.err.splitlines() == [f"netplugctl: {text}" for text in harness.missing_plugins]
    assert harness.run_command("install", "host", "--bin-dir", "/bin", "--node", "--without-helpers") == 0
    assert harness.out.splitlines() == [*installed, *(f"warning: {text}" for text in harness.missing_plugins)]
    assert harness.err == ""


def test_a_file_that_cannot_be_removed_is_named(harness: ToolHarness) -> None:
    def uninstall(bin_dir: str, _report: object) -> None:
        raise Unavailable(bin_dir, "Is a directory")

    def make_session() -> Session:
        return evolve(harness.make_session(), uninstall_executables=uninstall)

    assert run(["uninstall", "host", "--bin-dir", "/bin"], make_session) == 1
    assert harness.capsys.readouterr().err == "netplugctl: /bin: Is a directory\n"
