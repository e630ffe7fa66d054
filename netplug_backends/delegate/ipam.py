"""Another IPAM plugin, executed for each call, beside the endpoints in the datastore.

On ADD the program is run before the endpoint is committed, on DEL after it is deleted. It keeps its addresses as it
likes, so its own locks have to keep its calls apart: the host's lock is not held while it runs, only that of the
attachment.

Source: CNI specification, "Section 4: Plugin Delegation".

The program leads a session of its own, so that its processes can be killed with it. What it writes is read while it
runs, and no more of it is kept than any answer needs.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import IO

from attrs import define, field, frozen

from netplug_core.addressing import Family
from netplug_core.clock import Deadline, Pace
from netplug_core.cni.delegation import (
    IPAMPluginFailed,
    IPAMPluginTimeout,
    PluginOutput,
    assignment_of,
    is_unknown_command,
    parse_answer,
    plugin_environment,
)
from netplug_core.cni.dispatch import CNICommand
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.flows.ipam.service import BlockIPAM, require_ready, settle_endpoint
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import Assignment, AssignRequest, Attachment, Released, ReleaseRequest
from netplug_core.ipam.model import Pairs
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.names import container_mac, handle_id
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["MAX_OUTPUT", "DelegatedIPAM", "DidNotEnd", "Output", "TooMuchOutput", "run_program"]


# --- a program until a deadline --------------------------------------------------------------------------------------

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


_CLEANUP_S = 10.0


@frozen
class DelegatedIPAM:
    """See :class:`~netplug_core.ipam.protocol.IPAM`. ``request`` is the call that the program is run for."""

    context: IPAMContext
    request: CNIRequest

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Run ADD, then commit the endpoint. If anything fails, DEL is run too: an ADD may fail after it assigned.

        What is wanted is not looked at: the program knows the configuration and CNI_ARGS.
        """
        self._find_program()  # without one there is nothing to take back
        with ExitStack() as undo:
            undo.callback(self._take_back, request.owner)
            assignment = assignment_of(self._plugin, self._run(CNICommand.ADD, deadline, request.owner))
            undo.callback(self._delete_endpoint, endpoint)
            settle_endpoint(self.context.datastore, endpoint, assignment, pace=self._pace(deadline))
            undo.pop_all()
        return assignment

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Delete the endpoint, then run DEL.

        DEL is run even if the datastore is away: only this call has the configuration for it. The error of the
        datastore is raised after it, so it says that the program did its part. Addresses of pools that the handle holds
        go with the endpoint: ``ipam.type`` may have been another one when the container was attached.
        """
        half = deadline.capped(deadline.remaining_s / 2)
        try:
            released = self._pools.release(request, endpoint, deadline=half)
        except NetplugError:
            self._delete(request.owner, deadline)
            raise
        self._delete(request.owner, deadline)
        return released

    def held(self, handle: str, *, deadline: Deadline) -> Released | None:  # noqa: ARG002  the program has no such call
        """Not known; CHECK of the program, which ``forward`` runs, compares it."""
        return None

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:  # noqa: ARG002  as in assign
        """Run STATUS, and look whether the datastore answers. A program without STATUS counts as ready.

        Which families the program would assign is not known.
        """
        try:
            self._run(CNICommand.STATUS, deadline)
        except NetplugError as error:
            if not is_unknown_command(error):
                raise
        require_ready(self.context.datastore, pace=self._pace(deadline))
        return ()

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment of the network on a node that has an endpoint, or that still holds addresses of pools.

        Where endpoints are objects of pods, they are not looked for: they go with their pods. An endpoint with the
        profiles of a pod does not name its network. Its MAC does, unless an annotation of the pod or the runtime chose
        that: then it is not found, because it may be that of another network.
        """
        of_pools = self._pools.attachments(node=node, network=network, deadline=deadline)
        found = {(one.container_id, one.interface): one for one in self._attached(node, network, deadline)}
        return tuple(sorted({**found, **{(one.container_id, one.interface): one for one in of_pools}}.values()))

    def forward(self, *, deadline: Deadline) -> None:
        """Run the command of the call; a program without GC got a DEL for each attachment."""
        try:
            self._run(self.request.command, deadline)
        except NetplugError as error:
            if self.request.command is not CNICommand.GC or not is_unknown_command(error):
                raise

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _plugin(self) -> str:
        return str(find_member(self.context.netconf, "ipam", "type"))

    @property
    def _pools(self) -> BlockIPAM:
        """The IPAM that the node may have had before."""
        context = self.context
        return BlockIPAM(datastore=context.datastore, clock=context.clock, chance=context.chance)

    def _run(self, command: CNICommand, deadline: Deadline, owner: Pairs = ()) -> CNIResult:
        """The answer of the program; ``owner`` says for which attachment it is run."""
        path, plugin, seconds = self._find_program(), self._plugin, deadline.remaining_s
        problem = ""
        try:
            output = run_program(
                path,
                environ=plugin_environment(self.request, command, plugin, owner),
                stdin=self.request.netconf_text.encode(),
                deadline=deadline,
                on_stderr=self.context.write_stderr or _copy_to_stderr,
            )
        except DidNotEnd:
            raise IPAMPluginTimeout(plugin=plugin, command=command, seconds=seconds) from None
        except TooMuchOutput:
            problem = f"it wrote more than {MAX_OUTPUT} bytes and was killed"
        except OSError as error:
            problem = f"{path} cannot be executed: {error.strerror or error}"
        else:
            answer = PluginOutput(status=output.status, stdout=output.stdout, stderr=output.stderr)
            return parse_answer(plugin, self.request, command, answer)
        raise IPAMPluginFailed(plugin=plugin, command=command, problem=problem)

    def _find_program(self) -> str:
        """The first file of the plugin's name in the folders of CNI_PATH.

        Raises:
            ConfigurationError: there is none.
        """
        for folder in self.request.path:
            path = os.path.join(folder, self._plugin)
            with suppress(OSError):
                if stat.S_ISREG(os.stat(path).st_mode):
                    return path
        accepted = f"the name of a program in CNI_PATH ({':'.join(self.request.path)}) is expected"
        raise ConfigurationError("network configuration.ipam.type", self._plugin, accepted)

    def _delete(self, owner: Pairs, deadline: Deadline) -> None:
        if owner:
            self._run(CNICommand.DEL, deadline, owner)

    def _take_back(self, owner: Pairs) -> None:
        """Run DEL after an ADD that failed. The caller gets its own error, whatever happens here."""
        with suppress(NetplugError):  # the runtime's DEL runs it again
            self._run(CNICommand.DEL, Deadline.after(self.context.clock, _CLEANUP_S), owner)

    def _delete_endpoint(self, endpoint: EndpointWrites) -> None:
        """Delete what a commit without an answer may have stored."""
        deadline = Deadline.after(self.context.clock, _CLEANUP_S)
        with suppress(NetplugError):  # the runtime's DEL deletes it
            settle_endpoint(self.context.datastore, endpoint, None, pace=self._pace(deadline))

    def _attached(self, node: str, network: str, deadline: Deadline) -> Iterator[Attachment]:
        for endpoint in self._endpoints(deadline):
            spec = endpoint.spec
            handle = handle_id(network, spec.container_id, spec.endpoint)
            if spec.node == node and (network in spec.profiles or spec.mac == container_mac(handle)):
                yield Attachment(
                    container_id=spec.container_id,
                    interface=spec.endpoint,
                    handle=handle,
                    namespace=endpoint.metadata.namespace if spec.pod else "",
                    pod=spec.pod,
                )

    def _endpoints(self, deadline: Deadline) -> Iterator[WorkloadEndpoint]:
        if self.context.datastore.description.endpoints is EndpointStorage.RECORDS:
            records = read_pages(self.context.datastore, WORKLOAD_ENDPOINT, deadline=deadline, malformed=[])
            yield from (record.value for record in records)

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.context.clock, deadline=deadline, chance=self.context.chance)


def _copy_to_stderr(text: bytes) -> None:
    """What a program writes there is for the log of the runtime, as what netplug writes there."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # it may be closed
            sys.stderr.write(text.decode(errors="backslashreplace"))
            sys.stderr.flush()
