"""Where the node process listens, and what it refuses to listen at."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from netplug_cli.cni import client
from netplug_cli.loopback import CannotListen
from netplug_cli.node.listening import find_activated, listen
from netplug_core.cni.node_socket import DEFAULT_SOCKET, SOCKET_VARIABLE
from tests.harness.node_process import connect
from tests.harness.umask import UMASKS, under_umask


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "netplug" / "node.sock"


def test_it_listens_where_the_executables_look() -> None:
    sources = [Path(client.__file__), Path(client.__file__).parent / "static" / "netplug.c"]

    # They import and include nothing of ours to share the texts with.
    missing = [
        (source.name, text)
        for source in sources
        for text in (DEFAULT_SOCKET, SOCKET_VARIABLE)
        if source.read_text().count(f'"{text}"') != 1
    ]

    assert not missing


@pytest.mark.parametrize("umask", UMASKS)
def test_folder_socket_and_lock_have_explicit_modes(path: Path, umask: int) -> None:
    with under_umask(umask), closing(listen(str(path))):
        modes = {each: stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path, Path(f"{path}.lock"))}
        assert list(modes.values()) == [0o755, 0o600, 0o600]
        assert os.umask(umask) == umask


def test_clients_can_connect_and_its_end_removes_the_file(path: Path) -> None:
    listener = listen(str(path))
    connect(str(path)).close()
    listener.close()
    assert not path.exists()
    listener.close()


def test_a_second_one_is_refused(path: Path) -> None:
    with closing(listen(str(path))), pytest.raises(CannotListen, match=r"node\.sock: another process listens there"):
        listen(str(path))
    listen(str(path)).close()


def test_the_socket_of_a_process_that_has_ended_is_replaced(path: Path) -> None:
    code = f"import os; from netplug_cli.node.listening import listen; listen({str(path)!r}); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert path.is_socket()
    with closing(listen(str(path))):
        connect(str(path)).close()


def test_a_file_of_another_owner_stays_at_the_end(path: Path) -> None:
    listener = listen(str(path))
    path.unlink()
    with closing(socket.socket(socket.AF_UNIX)) as another:
        another.bind(str(path))
        listener.close()
        assert path.is_socket()


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda path: path.write_text(""), "something else than a socket is there"),
        (lambda path: path.mkdir(), "something else than a socket is there"),
        (lambda path: path.symlink_to("/nowhere"), "something else than a socket is there"),
        (lambda path: path.parent.chmod(0o777), "others may write in the folder"),
        (lambda path: path.parent.chmod(0o775), "others may write in the folder"),
        (
            lambda path: Path(f"{path}.lock").symlink_to("/nowhere"),
            "a regular file is expected, and it is a symbolic link",
        ),
    ],
)
def test_what_it_refuses(path: Path, make: Callable[[Path], object], text: str) -> None:
    path.parent.mkdir(parents=True)
    make(path)
    with pytest.raises(CannotListen, match=text):
        listen(str(path))


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match="AF_UNIX path too long"):
        listen(str(tmp_path / ("x" * 120)))


# --- a socket of systemd -------------------------------------------------------------------------------------------

ACTIVATED = """
import os, sys
from netplug_cli.loopback import CannotListen
from netplug_cli.node.listening import find_activated
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="netplug-node.socket")
try:
    listener = find_activated(os.environ)
except CannotListen as error:
    sys.exit(f"refused: {error}")
assert not [name for name in os.environ if name.startswith("LISTEN")]
connection, _ = listener.socket.accept()
connection.send(b"served" if not os.get_inheritable(3) else b"inheritable")
listener.close()
"""


def run_with(descriptor: int) -> "subprocess.Popen[str]":
    """A process that gets a descriptor as its number 3, as systemd passes it."""
    command = ["bash", "-c", f'exec "$@" 3<&{descriptor}', "bash", sys.executable, "-c", ACTIVATED]
    return subprocess.Popen(command, pass_fds=[descriptor], stderr=subprocess.PIPE, text=True)


def test_a_socket_of_systemd_is_used(tmp_path: Path) -> None:
    path = str(tmp_path / "node.sock")
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(path)
        listening.listen()
        with closing(connect(path)) as client, run_with(listening.fileno()) as child:
            assert client.recv(100) == b"served"
            assert child.communicate()[1] == ""
    assert os.path.exists(path)


@pytest.mark.parametrize("kind", ["udp", "not listening", "file"])
def test_another_thing_of_systemd_is_refused(tmp_path: Path, kind: str) -> None:
    if kind == "file":
        descriptor, text = os.open(tmp_path, os.O_RDONLY), "is no socket"
    else:
        family = socket.AF_INET if kind == "udp" else socket.AF_UNIX
        type_ = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
        descriptor, text = socket.socket(family, type_).detach(), "another socket than a listening Unix socket"
    with run_with(descriptor) as child:
        assert text in child.communicate()[1]
    os.close(descriptor)
    assert child.returncode == 1


def test_sockets_for_another_process_are_not_used() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
    assert find_activated(environ) is None
    assert environ == {}
    assert find_activated(environ) is None


def test_several_sockets_are_refused() -> None:
    with pytest.raises(CannotListen, match="systemd has passed 2 sockets, one is expected"):
        find_activated({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"})
