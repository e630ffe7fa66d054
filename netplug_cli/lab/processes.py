"""The processes of a lab that outlive the command that started them: servers and relays.

Each process writes its id into a file of the lab's folder before it executes its program, and holds the folder's lock
until then. So a command that has the lock finds every process, also of a command that was killed.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from attrs import frozen

from netplug_backends.host.atomic_files import MAX_BYTES, read_file, read_part
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import LabError
from netplug_cli.lab.paths import LabFolder

__all__ = ["LabProcess", "kill_all", "list_ended", "start_process"]

_SUFFIX = ".pid"
_EXIT_TIMEOUT_MS = 10_000
_POLLS, _POLL_MS = 50, 10
_SHELL = "/bin/sh"
# $0 is the file for the id. Standard input is the lock; the last redirection releases it.
_EXEC_SCRIPT = 'umask 022 && cd / && echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@" </dev/null'
_STDIN, _STDOUT, _STDERR = range(3)


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

    They get no chance to save anything: their data is removed with the lab.

    Raises:
        LabError: one does not end.
    """
    ended = []
    for name, path in _pid_files(folder):
        descriptor = _open_process(folder, path)
        if descriptor is not None:
            try:
                _kill(name, descriptor)
            finally:
                os.close(descriptor)
            ended.append(name)
        os.unlink(path)
    return tuple(ended)


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
