"""The processes of a lab that outlive the command that started them: servers, and the ways to servers.

Each writes its id into a file of the lab's folder before it becomes the program, and holds the folder's lock until
then. So whoever has the lock finds every process that was ever started, however the command that started it ended.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress

from attrs import frozen

from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import LabError
from netplug_cli.lab.paths import LabFolder

__all__ = ["LabProcess", "kill_all", "list_ended", "start_process"]

_SUFFIX = ".pid"
_EXIT_TIMEOUT_MS = 10_000
_POLLS, _POLL_MS = 50, 10
_SHELL = "/bin/sh"
# $0 is where the id goes. Standard input is the lock, which ends with the last word.
_EXEC_SCRIPT = 'cd / && echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@" </dev/null'
_STDIN, _STDOUT, _STDERR = range(3)


@frozen
class LabProcess:
    """A process that this command has started."""

    name: str
    pid: int
    log_file: str

    def require_alive(self) -> None:
        """Raises LabError, with the last line of what it said, when it has ended."""
        with suppress(ChildProcessError):  # it was asked before, and had ended
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                return
        raise LabError(f"{self.name} ended as soon as it was started: {_last_line(self.log_file)}")


def start_process(locked: LockedFolder, name: str, command: Sequence[str]) -> LabProcess:
    """Start a process in the calling thread's namespaces; one of its arguments has to lie in the lab's folder.

    When this returns it can be found, or has ended. It inherits the descriptors that are inheritable, and no keyboard:
    an interrupt is for the command, which takes down in order.
    """
    folder = locked.folder
    log = folder.process_log(name)
    place = os.path.join(folder.processes_dir, name + _SUFFIX)
    pid = os.posix_spawn(
        _SHELL,
        [_SHELL, "-c", _EXEC_SCRIPT, place, *command],
        os.environ,
        file_actions=(
            (os.POSIX_SPAWN_DUP2, locked.descriptor, _STDIN),
            (os.POSIX_SPAWN_OPEN, _STDOUT, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, _STDOUT, _STDERR),
        ),
        setsid=True,
    )
    _wait_for_pid_file(place, pid)
    return LabProcess(name, pid, log)


def list_ended(folder: LabFolder) -> tuple[str, ...]:
    """The names of the lab's processes that are not there any more."""
    return tuple(name for name, path in _pid_files(folder) if not _is_running(folder, path))


def kill_all(folder: LabFolder) -> tuple[str, ...]:
    """End every process of the lab that is running, and wait until it has; their names.

    Nothing that they keep is wanted, so they are not asked.

    Raises:
        LabError: one would not end.
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
    """Others wait for the lock; this process has it, and may want to end what it has only just started."""
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
    """The process that a file names, as a descriptor that no other process can get; None when it has ended."""
    with open(pid_file, encoding="ascii") as file:
        number = int(file.read())
    try:
        descriptor = os.pidfd_open(number)
    except ProcessLookupError:
        return None
    # Numbers are used again, after a restart of the machine at the latest.
    if f"{folder.path}/".encode() in _command_line(number, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _command_line(number: int, descriptor: int) -> bytes:
    """A process's arguments; none of one that has ended."""
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    for _ in range(_POLLS):
        with suppress(FileNotFoundError), open(f"/proc/{number}/cmdline", "rb") as file:
            line = file.read()
            if line:
                return line
        # While a process becomes another program it has no arguments; the kernel's own never have any.
        if ended.poll(_POLL_MS):
            break
    return b""


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return lines[-1] if lines else "without a word"
