"""Runs a program until it ends or the deadline comes. Nothing here knows what the program is for.

The program leads a session of its own, so that its processes can be killed with it. What it writes is read while it
runs, and no more of it is kept than any answer needs.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

from attrs import define, field, frozen

from netplug_core.clock import Deadline

__all__ = ["MAX_OUTPUT", "DidNotEnd", "Output", "TooMuchOutput", "run_program"]

MAX_OUTPUT = 1 << 20
"""The longest standard output that is accepted, in bytes."""

_MAX_ERRORS = 1 << 16  # of standard error, what is read further is dropped
_CHUNK = 1 << 16
_LAST_CHUNKS = 32  # a pipe holds at most 1 MiB
_BUSY_ATTEMPTS, _BUSY_S = 6, 1.0
_KILLED_S = 5.0  # a process that the kernel does not let go is left behind


class DidNotEnd(Exception):
    """The deadline came before the program ended; it is killed."""


class TooMuchOutput(Exception):
    """The program wrote more than ``MAX_OUTPUT``; it is killed."""


@frozen(kw_only=True)
class Output:
    """What a program wrote. ``status`` is negative if a signal ended it."""

    status: int
    stdout: bytes
    stderr: bytes


def run_program(
    path: str,
    *,
    environ: Mapping[str, str],
    stdin: bytes,
    deadline: Deadline,
    on_stderr: Callable[[bytes], None],
) -> Output:
    """Run a program without arguments. ``on_stderr`` gets what it writes to standard error, as it comes.

    It counts as ended when its first process has; what others of its processes write later is not waited for.

    Raises:
        OSError: it cannot be executed.
        DidNotEnd, TooMuchOutput: it was killed, and its process group with it.
    """
    process = _start(path, environ, deadline)
    pipes = _Pipes.of(process, stdin, on_stderr)
    try:
        pipes.serve(process, deadline)
    except BaseException:
        with suppress(ProcessLookupError):  # it has not been waited for, so its number is still its own
            os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        pipes.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S)
    return Output(status=process.returncode, stdout=bytes(pipes.stdout), stderr=bytes(pipes.stderr))


def _start(path: str, environ: Mapping[str, str], deadline: Deadline) -> subprocess.Popen[bytes]:
    """Execute the program; one that is being written, as an installer does, is waited for."""
    attempt = 1
    while True:
        try:
            return subprocess.Popen(
                [path],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or attempt == _BUSY_ATTEMPTS or deadline.has_passed:
                raise
        attempt += 1
        deadline.clock.sleep(min(_BUSY_S, deadline.remaining_s))


@define(kw_only=True)
class _Pipes:
    """The three pipes of a program, and what came through them."""

    to_stdin: IO[bytes]
    from_stdout: IO[bytes]
    from_stderr: IO[bytes]
    unsent: memoryview
    on_stderr: Callable[[bytes], None]
    stdout: bytearray = field(factory=bytearray)
    stderr: bytearray = field(factory=bytearray)

    @classmethod
    def of(cls, process: subprocess.Popen[bytes], stdin: bytes, on_stderr: Callable[[bytes], None]) -> _Pipes:
        """The pipes of a process that was started with three."""
        streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
        return cls(
            to_stdin=streams[0],
            from_stdout=streams[1],
            from_stderr=streams[2],
            unsent=memoryview(stdin),
            on_stderr=on_stderr,
        )

    def serve(self, process: subprocess.Popen[bytes], deadline: Deadline) -> None:
        """Write and read until the program has ended, then read what is left.

        Raises:
            DidNotEnd, TooMuchOutput: it shall not go on.
        """
        ended = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for stream, event, serve in self._streams():
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, event, serve)
                selector.register(ended, selectors.EVENT_READ)
                while not self._serve_once(selector, deadline):
                    if deadline.has_passed:
                        raise DidNotEnd
        finally:
            os.close(ended)
        for _ in range(_LAST_CHUNKS):
            if not any([self._read_stdout(), self._read_stderr()]):
                break

    def close(self) -> None:
        """Close all of them."""
        for stream, _event, _serve in self._streams():
            stream.close()

    def _streams(self) -> tuple[tuple[IO[bytes], int, Callable[[], bool]], ...]:
        return (
            (self.to_stdin, selectors.EVENT_WRITE, self._write),
            (self.from_stdout, selectors.EVENT_READ, self._read_stdout),
            (self.from_stderr, selectors.EVENT_READ, self._read_stderr),
        )

    def _serve_once(self, selector: selectors.BaseSelector, deadline: Deadline) -> bool:
        """Serve what is ready, or wait for something; return whether the program has ended."""
        has_ended = False
        events = selector.select(deadline.remaining_s)
        if not events:
            raise DidNotEnd
        for key, _events in events:
            if key.data is None:
                has_ended = True
            elif not key.data():
                # Before it is closed: a program that another thread is just starting has a copy of the pipe, and for
                # as long the kernel would report it, which ends the wait with nothing that is ready.
                selector.unregister(key.fileobj)
                if key.fileobj is self.to_stdin:
                    self.to_stdin.close()
        return has_ended

    # Each returns whether there may be more.

    def _write(self) -> bool:
        try:
            written = os.write(self.to_stdin.fileno(), self.unsent[:_CHUNK])
        except BrokenPipeError:  # it does not read all of it, and need not
            written = len(self.unsent)
        self.unsent = self.unsent[written:]
        return bool(self.unsent)

    def _read_stdout(self) -> bool:
        chunk = _read(self.from_stdout)
        self.stdout += chunk
        if len(self.stdout) > MAX_OUTPUT:
            raise TooMuchOutput
        return bool(chunk)

    def _read_stderr(self) -> bool:
        chunk = _read(self.from_stderr)
        kept = chunk[: _MAX_ERRORS - len(self.stderr)]
        if kept:
            self.stderr += kept
            self.on_stderr(kept)
        return bool(chunk)


def _read(stream: IO[bytes]) -> bytes:
    """What can be read at once; nothing if nothing is there, or all is closed."""
    try:
        return os.read(stream.fileno(), _CHUNK)
    except BlockingIOError:
        return b""
