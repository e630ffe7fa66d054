"""The processes of a lab that outlive a command: its servers, the relays to servers, and its node processes.

A node has the address of each server that is not in its namespace, and a process that relays connections to it.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress

from attrs import frozen

from netplug_backends.host.atomic_files import MAX_BYTES, PRIVATE_FILE_MODE, read_file, read_part, replace_file
from netplug_cli.lab import tcp_relay
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import (
    API_PORT,
    API_URL,
    ETCD_PORT,
    ETCD_URL,
    NODE_ADDRESSES,
    NODE_NETNS,
    NODE_PORT,
    SOCKET_FAMILIES,
    ExternalServers,
    Lab,
    LabError,
    LabFolder,
    LabNode,
    Namespaces,
    NodeFiles,
    OwnServers,
    Routing,
    store_environment,
)
from netplug_core.addressing import Address
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import NetplugError

__all__ = [
    "LabProcess", "find_bird", "kill_all", "list_ended", "parse_server_address", "require_etcd",
    "start_node_process", "start_process", "start_relays", "start_server_relays", "start_servers",
    "wait_for_node_process", "wait_until_ready",
]  # fmt: skip


# --- processes -------------------------------------------------------------------------------------------------------


_SUFFIX = ".pid"
_EXIT_TIMEOUT_MS = 10_000
_POLLS, _POLL_MS = 50, 10
_SHELL = "/bin/sh"
# $0 is the file for the id. Standard input is the lock; the last redirection releases it.
_EXEC_SCRIPT = 'umask 022 && cd / && echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@" </dev/null'
_STDIN, _STDOUT, _STDERR = range(3)
_BIRD = "bird"
_ENOUGH_MISSES = 2


@frozen
class LabProcess:
    """A process that this command has started."""

    name: str
    pid: int
    log_file: str

    def require_alive(self) -> None:
        """Raise LabError with the last line of its log if it has ended."""
        with suppress(ChildProcessError):  # an earlier call has seen its end
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                return
        raise LabError(f"{self.name} ended as soon as it was started: {_last_line(self.log_file)}")


def start_process(
    locked: LockedFolder, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None
) -> LabProcess:
    """Start a process in the calling thread's namespaces; one of its arguments has to lie in the lab's folder.

    It has the variables of this process, or those that are given.

    When this returns, the process has written its id or has ended. It inherits descriptors that are inheritable. It has
    a session of its own, so an interrupt from the keyboard reaches only the command, which removes the lab in order.
    """
    folder = locked.folder
    log = folder.process_log(name)
    pid_file = os.path.join(folder.processes_dir, name + _SUFFIX)
    pid = os.posix_spawn(
        _SHELL,
        [_SHELL, "-c", _EXEC_SCRIPT, pid_file, *command],
        os.environ if environ is None else environ,
        file_actions=(
            (os.POSIX_SPAWN_DUP2, locked.descriptor, _STDIN),
            (os.POSIX_SPAWN_OPEN, _STDOUT, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, _STDOUT, _STDERR),
        ),
        setsid=True,
    )
    _wait_for_pid_file(pid_file, pid)
    return LabProcess(name, pid, log)


def list_ended(folder: LabFolder) -> tuple[str, ...]:
    """The names of the lab's processes that have ended."""
    return tuple(name for name, path in _pid_files(folder) if not _is_running(folder, path))


def kill_all(folder: LabFolder) -> tuple[str, ...]:
    """Kill every running process of the lab and wait for its end; return their names.

    They get no chance to save anything: their data is removed with the lab. The BGP daemons that node processes have
    started are among them.

    Raises:
        LabError: one does not end.
    """
    ended: list[str] = []
    for name, path in _pid_files(folder):
        descriptor = _open_process(folder, path)
        if descriptor is not None:
            try:
                _kill(name, descriptor)
            finally:
                os.close(descriptor)
            ended.append(name)
        os.unlink(path)
    ended.extend(_kill_birds(folder))
    return tuple(ended)


def find_bird() -> str | None:
    """The program of the BGP daemon, as a node process finds it; None if this machine has none."""
    return shutil.which(_BIRD, path=_PATH)


def _wait_for_pid_file(pid_file: str, pid: int) -> None:
    """Wait until the process has written its id or has ended, so that this command can kill it."""
    descriptor = os.pidfd_open(pid)
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        while not (os.path.exists(pid_file) or ended.poll(_POLL_MS)):
            continue
    finally:
        os.close(descriptor)


def _kill_birds(folder: LabFolder) -> Iterator[str]:
    """Kill the BGP daemons of the lab. No node process runs any more that could start another one.

    A daemon goes into the background by a fork, and a list of processes is older than what is read of each of them. So
    nothing is left only when nothing was found twice.
    """
    misses = 0
    while misses < _ENOUGH_MISSES:
        misses += 1
        for number in filter(str.isdecimal, os.listdir("/proc")):
            if not _find_bird_node(folder, number):
                continue
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(int(number))
                try:
                    node = _find_bird_node(folder, number)  # the number may be that of another process by now
                    if node:
                        _kill(_BIRD, descriptor)
                        misses = 0
                        yield f"{_BIRD} of {node}"
                finally:
                    os.close(descriptor)


def _find_bird_node(folder: LabFolder, number: str) -> str:
    """The namespace of the node that a process is the BGP daemon of; empty if it is none of the lab's."""
    try:
        program, *arguments = os.fsdecode(read_file(f"/proc/{number}/cmdline")).split("\0")
        # In another mount namespace, as in a container, the same path is another folder.
        is_here = os.path.samestat(os.stat(f"/proc/{number}/ns/mnt"), os.stat("/proc/self/ns/mnt"))
    except OSError:  # it has ended, or belongs to another user
        return ""
    inside = f"{folder.processes_dir}/"
    if not is_here or os.path.basename(program) != _BIRD:
        return ""
    return next((each.removeprefix(inside).split("/")[0] for each in arguments if each.startswith(inside)), "")


def _kill(name: str, descriptor: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(_EXIT_TIMEOUT_MS):
        raise LabError(f"{name} does not end")


def _pid_files(folder: LabFolder) -> list[tuple[str, str]]:
    with suppress(FileNotFoundError):
        found = sorted(name for name in os.listdir(folder.processes_dir) if name.endswith(_SUFFIX))
        return [(name.removesuffix(_SUFFIX), os.path.join(folder.processes_dir, name)) for name in found]
    return []


def _is_running(folder: LabFolder, pid_file: str) -> bool:
    descriptor = _open_process(folder, pid_file)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def _open_process(folder: LabFolder, pid_file: str) -> int | None:
    """A descriptor of the process whose id is in a file; None if it has ended."""
    number = int(read_file(pid_file))
    try:
        descriptor = os.pidfd_open(number)
    except ProcessLookupError:
        return None
    # Process ids are reused, at the latest after a restart of the machine. So the arguments must name the folder.
    if f"{folder.path}/".encode() in _command_line(number, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _command_line(number: int, descriptor: int) -> bytes:
    """The arguments of a process; empty if it has ended."""
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    for _ in range(_POLLS):
        with suppress(FileNotFoundError):
            line = read_file(f"/proc/{number}/cmdline")
            if line:
                return line
        # A process has no arguments while it executes another program. Kernel threads never have any.
        if ended.poll(_POLL_MS):
            break
    return b""


def _last_line(path: str) -> str:
    lines = read_part(path, MAX_BYTES, is_end=True).content.decode(errors="replace").splitlines()
    return lines[-1] if lines else "without a word"


# --- servers ---------------------------------------------------------------------------------------------------------


_PEER_URL = "http://127.0.0.1:2380"
_TIMEOUT_S, _POLL_S = 180.0, 0.05
_ACCOUNT = "lab"
_BACKENDS = {Routing.VXLAN: "vxlan", Routing.BGP: "", Routing.NONE: "none"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def start_servers(
    namespaces: Namespaces, locked: LockedFolder, store: OwnServers, netns: str
) -> tuple[LabProcess, ...]:
    """Start the servers that a store needs, in the namespace of that name; they may not be ready yet."""
    folder = locked.folder
    with namespaces.enter(folder.netns(netns)):
        etcd = start_process(locked, "etcd", [store.etcd, *_etcd_arguments(folder)])
        if not store.apiserver:
            return (etcd,)
        _write_accounts(folder)
        return (etcd, start_process(locked, "kube-apiserver", [store.apiserver, *_apiserver_arguments(folder)]))


def start_node_process(
    namespaces: Namespaces, locked: LockedFolder, lab: Lab, node: LabNode, command: Sequence[str]
) -> LabProcess:
    """Start the process of a node. It may not listen yet.

    It gets none of this process's variables, which may name a datastore that is not the lab's.
    """
    files = locked.folder.node_files(node.netns)
    environ = _node_environment(lab, node, locked.folder)
    with namespaces.enter(locked.folder.netns(node.netns)):
        return start_process(locked, files.process_name, [*command, "--socket", files.node_socket], environ)


def wait_for_node_process(process: LabProcess, lab: Lab, files: NodeFiles, clock: Clock) -> None:
    """Return when a node process listens; it may still load its libraries. One of several nodes is registered then.

    Raises:
        LabError: it has ended, or it takes too long.
    """

    def require_listening() -> None:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(files.node_socket)
        if lab.network is not None:
            os.stat(files.mtu_file)  # it is written last

    wait_until_ready(require_listening, (process,), clock)


def _node_environment(lab: Lab, node: LabNode, folder: LabFolder) -> Mapping[str, str]:
    files = folder.node_files(node.netns)
    own = {"PATH": _PATH, "ENDPOINT_STATUS_DIR": files.endpoint_status_dir}
    if lab.network is None:
        return own
    return {
        **own,
        **store_environment(lab.store, folder),
        "NODENAME": node.name,
        "NODENAME_FILE": files.nodename_file,
        "MTU_FILE": files.mtu_file,
        "IP_AUTODETECTION_METHOD": f"interface={NODE_PORT}",
        "IP6_AUTODETECTION_METHOD": f"interface={NODE_PORT}",
        "IP6": "autodetect",
        "NETPLUG_BGP_DIR": files.bgp_dir,
        "NETPLUG_NETWORKING_BACKEND": _BACKENDS[lab.network.routing],
    }


def wait_until_ready(require_ready: Callable[[], object], started: Sequence[LabProcess], clock: Clock) -> None:
    """Return when ``require_ready`` no longer raises.

    Raises:
        LabError: a server has ended, or it takes too long.
    """
    deadline = Deadline.after(clock, _TIMEOUT_S)
    while True:
        for server in started:
            server.require_alive()
        try:
            require_ready()
        except (NetplugError, OSError) as error:
            if deadline.has_passed:
                raise LabError(f"{started[-1].name} is not ready after {_TIMEOUT_S:g} s: {error}") from error
            clock.sleep(_POLL_S)
        else:
            return


def require_etcd(namespaces: Namespaces, folder: LabFolder, netns: str) -> None:
    """Raise OSError unless the etcd of the namespace accepts clients, which it does when it has a leader."""
    with namespaces.enter(folder.netns(netns)):
        socket.create_connection(("127.0.0.1", ETCD_PORT), timeout=_POLL_S).close()


def _etcd_arguments(folder: LabFolder) -> Iterator[str]:
    yield f"--data-dir={folder.server_dir('etcd')}"
    yield f"--listen-client-urls={ETCD_URL}"
    yield f"--advertise-client-urls={ETCD_URL}"
    yield f"--listen-peer-urls={_PEER_URL}"
    yield f"--initial-advertise-peer-urls={_PEER_URL}"
    yield f"--initial-cluster=default={_PEER_URL}"
    yield "--log-level=warn"


def _apiserver_arguments(folder: LabFolder) -> Iterator[str]:
    key = os.path.join(folder.server_dir("kube-apiserver"), "apiserver.key")
    yield f"--etcd-servers={ETCD_URL}"
    yield "--bind-address=127.0.0.1"
    yield f"--secure-port={API_PORT}"
    # Without it, the server looks for a default route, which a lab's node does not have.
    yield f"--advertise-address={NODE_ADDRESSES[0]}"
    yield f"--cert-dir={folder.server_dir('kube-apiserver')}"
    yield "--service-account-issuer=https://kubernetes.default.svc"
    yield f"--service-account-key-file={key}"
    yield f"--service-account-signing-key-file={key}"
    yield f"--token-auth-file={folder.tokens_file}"
    yield "--authorization-mode=RBAC"
    yield "--service-cluster-ip-range=10.98.2.0/24"
    yield "--endpoint-reconciler-type=none"


def _write_accounts(folder: LabFolder) -> None:
    """Write a token with all rights, and the kubeconfig with it, for users who can read the lab's files."""
    token = secrets.token_hex(16)
    authority = os.path.join(folder.server_dir("kube-apiserver"), "apiserver.crt")
    parts: dict[str, object] = {
        "clusters": [{"name": _ACCOUNT, "cluster": {"server": API_URL, "certificate-authority": authority}}],
        "users": [{"name": _ACCOUNT, "user": {"token": token}}],
        "contexts": [{"name": _ACCOUNT, "context": {"cluster": _ACCOUNT, "user": _ACCOUNT}}],
    }
    config = {"apiVersion": "v1", "kind": "Config", "current-context": _ACCOUNT, **parts}
    replace_file(folder.tokens_file, f"{token},{_ACCOUNT},{_ACCOUNT},system:masters\n", PRIVATE_FILE_MODE)
    replace_file(folder.kubeconfig_file, json.dumps(config, indent=2) + "\n", PRIVATE_FILE_MODE)


# --- relays ----------------------------------------------------------------------------------------------------------


_BACKLOG = 128


def start_relays(namespaces: Namespaces, locked: LockedFolder, store: ExternalServers) -> tuple[LabProcess, ...]:
    """Make servers reachable inside the node under their own addresses, so that certificates and configurations fit."""
    started = []
    for number, server in enumerate(store.addresses, start=1):
        with _open_listener(namespaces, locked.folder.netns(NODE_NETNS), server) as listener:
            started.append(_start_relay(locked, f"relay-{number}", listener, server))
    return tuple(started)


def start_server_relays(namespaces: Namespaces, locked: LockedFolder, lab: Lab) -> tuple[LabProcess, ...]:
    """Make the server of the lab's own that plugins speak to reachable in every node, where it is not there already."""
    folder = locked.folder
    if lab.network is None or not isinstance(lab.store, OwnServers):
        return ()
    server = "127.0.0.1", API_PORT if lab.store.apiserver else ETCD_PORT
    started = []
    for node in lab.nodes:
        with (
            _open_listener(namespaces, folder.netns(node.netns), server) as listener,
            namespaces.enter(folder.netns(lab.server_netns)),
        ):
            started.append(_start_relay(locked, f"relay-{node.netns}", listener, server))
    return tuple(started)


@contextmanager
def _open_listener(namespaces: Namespaces, node: str, server: tuple[str, int]) -> Iterator[socket.socket]:
    """A socket in the namespace of a node that listens where a server does."""
    host, port = server
    address = parse_server_address(host)
    if not _is_loopback(address):
        namespaces.configure_node(node, (address,))
    with namespaces.enter(node):
        listener = socket.socket(SOCKET_FAMILIES[address.family], socket.SOCK_STREAM)
    with closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
        yield listener


def _start_relay(locked: LockedFolder, name: str, listener: socket.socket, server: tuple[str, int]) -> LabProcess:
    """Start a relay in the calling thread's namespace, from which it reaches the server."""
    host, port = server
    # -I: the folder of the program must not be on the import path.
    program = [sys.executable, "-IS", tcp_relay.__file__]
    return start_process(locked, name, [*program, str(listener.fileno()), host, str(port), f"{locked.folder.path}/"])


def parse_server_address(host: str) -> Address:
    """The address of a server inside the node.

    Raises:
        LabError: it is given by name.
    """
    if host == "localhost":
        return Address.parse("127.0.0.1")
    try:
        return Address.parse(host)
    except ValueError as error:
        raise LabError(f"{host} has to be an IP address: the node of a lab has nobody to ask for names") from error


def _is_loopback(address: Address) -> bool:
    text = str(address)
    return text == "::1" or text.startswith("127.")
