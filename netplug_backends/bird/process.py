"""The process of BIRD: its start, its files, what it says on its control socket, and the ways in which it ends.

BIRD runs in a session of its own, or as a service of systemd, and outlives the process that started it, so that
forwarding goes on while that one is replaced. Everything of it is in one folder: configuration, socket, log, and the
marker. Where the marker is, routes of the protocol ``bird`` in the kernel are ours: BIRD is started with ``-R``, and
keeps them until its peers have announced theirs again. Without ``-R`` it deletes all of them; so where there is no
marker, there must not be any, and no other program may listen where BIRD would.

An answer is lines of a code of four digits, ``-`` or a blank, and a text; a line that begins with a blank belongs to
the one before it, and the last one has a blank behind its code. Codes from 8000 on are errors. Source: the file
``doc/reply_codes`` of BIRD 2. Each call opens the socket anew: BIRD may have been replaced meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from attrs import define, field, frozen

from netplug_backends.bird.render import render
from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    find_file,
    make_folder,
    remove_file,
    replace_file,
)
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, BgpStatus, ForeignBgpDaemon, SessionStatus
from netplug_core.errors import ConfigurationError, Unavailable, quote
from netplug_core.log import Level, Log
from netplug_core.resources.bgp import BindMode

__all__ = [
    "CONFIGURATION", "MARKER", "SOCKET", "BirdDaemon", "BirdSocket", "Reply", "find_bird_problem", "read_next_hops",
    "read_reply", "read_sessions",
]  # fmt: skip


# --- the control socket ----------------------------------------------------------------------------------------------

_MAX_REPLY: Final = 1 << 26  # thousands of sessions
_CHUNK: Final = 1 << 16
_CALL_S: Final = 5.0
_LAST_LINE: Final = re.compile(rb"(?:^|\n)[0-9]{4} [^\n]*\n\Z")
_LINE: Final = re.compile(r"(?P<code>[0-9]{4})[- ](?P<text>.*)")
_SESSION: Final = re.compile(
    r"(?P<name>\w+)\s+BGP\s+\S+\s+\w+\s+(?P<since>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?\s*(?P<info>.*)"
)

_RECOVERING: Final = 24
_STATUS: Final = 1011
_PROTOCOLS: Final = 1002
_ROUTES: Final = 1007
_ATTRIBUTES: Final = 1012
_SHOW_TUNNELLED: Final = "show route table tunnelled4 primary all"
_NEXT_HOP: Final = "BGP.next_hop: "
_CONFIGURED: Final = frozenset({3, 4})  # at once, or as soon as sessions have ended
_CHECKED: Final = frozenset({20})
_NO_TIME_S: Final = 0.001  # 0 would mean not to wait at all, which is another error
_ESTABLISHED: Final = "Established"
_WRONG_AS: Final = "Bad peer AS"
_CONFIGURED_AT: Final = "Last reconfiguration on "


@frozen
class Reply:
    """An answer: each line with its code, in order."""

    lines: tuple[tuple[int, str], ...]

    @property
    def code(self) -> int:
        """That of the last line."""
        return self.lines[-1][0]

    @property
    def text(self) -> str:
        """The text of the last line."""
        return self.lines[-1][1]

    def texts(self, code: int) -> tuple[str, ...]:
        """The lines of a code."""
        return tuple(text for found, text in self.lines if found == code)


def read_reply(text: str) -> Reply:
    """The answer that a text is.

    Raises:
        ValueError: it is none.
    """
    lines: list[tuple[int, str]] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is not None:
            lines.append((int(found["code"]), found["text"].strip()))
        elif lines and line.startswith(" "):
            lines.append((lines[-1][0], line.strip()))
        else:
            raise ValueError(f"{quote(line)} is no line of an answer of BIRD")
    if not lines:
        raise ValueError("an answer of BIRD is empty")
    return Reply(tuple(lines))


@frozen
class BirdSocket:
    """The socket at a path."""

    path: str

    def is_listening(self, *, deadline: Deadline) -> bool:
        """Whether BIRD answers there; if no program listens, it does not run.

        Raises:
            Unavailable: a program listens, and does not answer.
        """
        capped = deadline.capped(_CALL_S)
        try:
            with self._connected(capped) as connection:
                self._receive(connection, capped)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except (OSError, ValueError) as error:
            raise self._unavailable(error) from error
        return True

    def ask(self, *commands: str, deadline: Deadline) -> tuple[Reply, ...]:
        """The answers to commands, one after the other on one connection. The first one is the greeting.

        Raises:
            Unavailable: there is no answer, or not in time, or it is not BIRD's.
        """
        capped = deadline.capped(_CALL_S)
        try:
            with self._connected(capped) as connection:
                replies = [self._receive(connection, capped)]
                for command in commands:
                    connection.sendall(f"{command}\n".encode())
                    replies.append(self._receive(connection, capped))
        except (OSError, ValueError) as error:
            raise self._unavailable(error) from error
        return tuple(replies)

    def end(self, command: str, *, deadline: Deadline) -> None:
        """Let BIRD end by a command, and wait until it has: the kernel closes its connections then.

        Raises:
            Unavailable: it does not answer, or does not end.
        """
        try:
            with self._connected(deadline) as connection:
                self._receive(connection, deadline)
                connection.sendall(f"{command}\n".encode())
                while self._receive_part(connection, deadline):
                    continue  # what it answers
        except ConnectionResetError:
            return
        except (OSError, ValueError) as error:
            raise self._unavailable(error) from error

    def check(self, file: str, *, deadline: Deadline) -> None:
        """Let BIRD read a configuration, and change nothing.

        Raises:
            BgpRefused: it does not accept it.
            Unavailable: it does not answer.
        """
        self._configure(f'configure check "{file}"', _CHECKED, deadline)

    def configure(self, file: str, *, deadline: Deadline) -> None:
        """Let BIRD go on with another configuration; errors as for ``check``."""
        self._configure(f'configure "{file}"', _CONFIGURED, deadline)

    def _configure(self, command: str, accepted: frozenset[int], deadline: Deadline) -> None:
        reply = self.ask(command, deadline=deadline)[-1]
        if reply.code not in accepted:
            raise BgpRefused(reply.text)

    def read_status(self, *, deadline: Deadline) -> BgpStatus:
        """What BIRD says of itself and its sessions.

        Raises:
            Unavailable: it does not answer.
        """
        commands = "show status", "show protocols", _SHOW_TUNNELLED
        greeting, status, protocols, tunnelled = self.ask(*commands, deadline=deadline)
        texts = status.texts(_STATUS)
        configured = (text.removeprefix(_CONFIGURED_AT) for text in texts if text.startswith(_CONFIGURED_AT))
        return BgpStatus(
            version=greeting.text.removesuffix(" ready."),
            configured_at=next(configured, ""),
            is_recovering=bool(status.texts(_RECOVERING)),
            sessions=read_sessions(protocols),
            tunnelled=read_next_hops(tunnelled),
        )

    def _connected(self, deadline: Deadline) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(deadline.remaining_s, _NO_TIME_S))
            connection.connect(self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _receive(self, connection: socket.socket, deadline: Deadline) -> Reply:
        received = b""
        while not _LAST_LINE.search(received[-_CHUNK:]):
            part = self._receive_part(connection, deadline)
            if not part or len(received) > _MAX_REPLY:
                raise ConnectionAbortedError("it ended the connection")
            received += part
        return read_reply(received.decode(errors="replace"))

    def _receive_part(self, connection: socket.socket, deadline: Deadline) -> bytes:
        connection.settimeout(max(deadline.remaining_s, _NO_TIME_S))
        return connection.recv(_CHUNK)

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"bird at {self.path}", str(error) or type(error).__name__)


def read_sessions(protocols: Reply) -> tuple[SessionStatus, ...]:
    """The sessions of BGP among the protocols that BIRD lists, by their names."""
    return tuple(sorted(_iterate_sessions(protocols), key=lambda one: one.name))


def _iterate_sessions(protocols: Reply) -> Iterator[SessionStatus]:
    for text in protocols.texts(_PROTOCOLS):
        found = _SESSION.fullmatch(text)
        if found is not None:
            state, _, error = found["info"].partition(" ")
            yield SessionStatus(
                name=found["name"],
                is_established=state == _ESTABLISHED,
                state=state,
                since=found["since"],
                error=error.strip(),
                has_wrong_as=_WRONG_AS in error,
            )


def read_next_hops(reply: Reply) -> tuple[tuple[Prefix, Address], ...]:
    """The routes of a table, each with its next hop of BGP; none where there is no such table, which is an error."""
    found, prefix = list[tuple[Prefix, Address]](), None
    for code, text in reply.lines:
        first = text.partition(" ")[0]
        if code == _ROUTES and "/" in first:
            prefix = Prefix.parse(first)
        elif code == _ATTRIBUTES and text.startswith(_NEXT_HOP) and prefix is not None:
            found.append((prefix, Address.parse(text.removeprefix(_NEXT_HOP).partition(" ")[0])))
    return tuple(sorted(found))


CONFIGURATION: Final = "bird.conf"
SOCKET: Final = "bird.ctl"
MARKER: Final = "marker"
"""Files in the folder of a BIRD."""

_LOG: Final = "bird.log"
_PID: Final = "bird.pid"

_OPTIONS: Final = "bird.env"  # of BIRD, for its unit

_EXECUTABLE: Final = "bird"
_MANAGER: Final = "systemctl"
_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
_RESTART: Final = "-R"
_MAX_SOCKET_PATH: Final = 107  # bytes; sun_path of the kernel, with a last NUL
_MAX_BYTES: Final = 1 << 26
_POLL_S: Final = 0.01
_START_S: Final = 10.0
_END_S: Final = 10.0

_FAMILIES: Final = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_ANY: Final = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104  # BIRD listens there unless bindMode says else
_ADVICE: Final = "stop it, or let BGPConfiguration have another listenPort, or bindMode NodeIP"
_TURN_OFF: Final = "systemctl disable --now bird"
_BIRD_ADVICE: Final = f"stop it; that of Debian's package, which starts by itself: {_TURN_OFF}"
_ROUTES_ADVICE: Final = "stop that BIRD, and remove its routes with: ip route flush proto bird"
_INSTALLED_BY: Final = "apt-get install bird2"
_NEEDED_WHERE: Final = "the node speaks BGP through it where a pool has no VXLAN, or a BGPPeer names the node"
_WANTED_BY: Final = ("multi-user.target", "network-online.target")


@define(kw_only=True)
class BirdDaemon:
    """See :class:`~netplug_core.dataplane.bgp.BgpDaemon`.

    ``count_routes`` says how many routes of the protocol ``bird`` the kernel's main table has, and ``remove_routes``
    removes them, and says how many there were. ``executable`` is the program; empty: that of ``PATH``. ``unit`` is the
    service of systemd that runs it in this folder; empty: there is none, and it is started here.
    """

    folder: str
    clock: Clock
    log: Log
    count_routes: Callable[[], int]
    remove_routes: Callable[[], int]
    executable: str = ""
    unit: str = ""
    _socket: BirdSocket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._socket = BirdSocket(self._path(SOCKET))

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        """What BIRD says; None: it does not run."""
        if not self._socket.is_listening(deadline=deadline):
            return None
        return self._socket.read_status(deadline=deadline)

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        """Let BIRD do what the plan says; an equal configuration is not read again."""
        content = render(plan, log_file=self._path(_LOG)).encode()
        if not self._socket.is_listening(deadline=deadline):
            self._start(plan, content, deadline)
            return True
        if find_file(self._path(CONFIGURATION), _MAX_BYTES) == content:
            return False
        self._write_configuration(content, lambda file: self._configure(file, deadline))
        self._write_marker()
        return True

    def _configure(self, file: str, deadline: Deadline) -> None:
        """Before the file is in its place: what is there is what BIRD has."""
        self._socket.check(file, deadline=deadline)
        self._socket.configure(file, deadline=deadline)

    def pause(self, *, deadline: Deadline) -> None:
        """End BIRD so that its routes stay, here and at the peers."""
        self._end("graceful restart", deadline)

    def stop(self, *, deadline: Deadline) -> None:
        """Withdraw everything, and end BIRD."""
        status = self.find_status(deadline=deadline)
        if status is not None:
            names = [one.name for one in status.sessions] + ["gateways4", "gateways6"]
            self._socket.ask(*(f'disable "{name}"' for name in names), deadline=deadline)
            # BIRD itself leaves routes in the kernel when it ends.
            self._wait(lambda: self.count_routes() == 0, deadline.capped(_END_S), "its routes stay in the kernel")
            self._end("down", deadline)
        elif find_file(self._path(MARKER)) is not None:
            count = self.remove_routes()
            self.log(Level.INFO, "routes of a BGP daemon that runs no more are removed", count=count)
        for name in (CONFIGURATION, _LOG, f"{_LOG}.1", _PID, _OPTIONS, SOCKET, MARKER):
            remove_file(self._path(name))

    # --- start and end ------------------------------------------------------------------------------------------------

    def _start(self, plan: BgpPlan, content: bytes, deadline: Deadline) -> None:
        program = self._program()
        if len(os.fsencode(self._socket.path)) > _MAX_SOCKET_PATH:
            accepted = f"a path of at most {_MAX_SOCKET_PATH} bytes is expected"
            raise ConfigurationError("the socket of bird", self._socket.path, accepted)
        is_first = find_file(self._path(MARKER)) is None
        if is_first:
            self._require_no_other(plan)
        make_folder(self.folder, PRIVATE_FOLDER_MODE)
        self._write_configuration(content, lambda file: self._parse(program, file, deadline))
        self._write_marker()
        options = () if is_first else (_RESTART,)
        failure = self._start_unit(options, deadline) if self.unit else self._start_here(program, options, deadline)
        if failure:
            if is_first:
                remove_file(self._path(MARKER))
            raise Unavailable(_EXECUTABLE, failure)
        # It listens before it goes into the background, so what connects now is answered.
        if not self._socket.is_listening(deadline=deadline.capped(_START_S)):
            raise Unavailable(_EXECUTABLE, "it does not answer after its start")
        self.log(Level.INFO, "the BGP daemon is started", is_restart=not is_first)

    def _start_here(self, program: str, options: Sequence[str], deadline: Deadline) -> str:
        """Run it in the background; return what it says if it fails."""
        files = ("-c", self._path(CONFIGURATION), "-s", self._socket.path, "-P", self._path(_PID))
        return self._run([program, *files, *options], deadline)

    def _start_unit(self, options: Sequence[str], deadline: Deadline) -> str:
        """Let systemd run it, now and whenever it has failed; return what systemd says if it cannot."""
        self._write_options(options)
        failure = self._run([_MANAGER, "start", self.unit], deadline)
        if not failure:
            self._write_options((_RESTART,))
        return failure

    def _write_options(self, options: Sequence[str]) -> None:
        replace_file(self._path(_OPTIONS), f"BIRD_OPTIONS={' '.join(options)}\n", OPEN_FILE_MODE)

    def _parse(self, program: str, file: str, deadline: Deadline) -> None:
        refusal = self._run([program, "-p", "-c", file], deadline)
        if refusal:
            raise BgpRefused(refusal)

    def _end(self, command: str, deadline: Deadline) -> None:
        if self._socket.is_listening(deadline=deadline):
            self._socket.end(command, deadline=deadline.capped(_END_S))

    def _wait(self, is_so: Callable[[], bool], deadline: Deadline, problem: str) -> None:
        while not is_so():
            if deadline.has_passed:
                raise Unavailable(_EXECUTABLE, problem)
            self.clock.sleep(_POLL_S)

    def _run(self, command: Sequence[str], deadline: Deadline) -> str:
        """Run the program; return what it says if it fails. BIRD goes into the background by itself."""
        try:
            ended = subprocess.run(
                command,
                check=False,
                capture_output=True,
                cwd="/",
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                timeout=max(_POLL_S, deadline.capped(_START_S).remaining_s),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(_EXECUTABLE, str(error)) from error
        if ended.returncode == 0:
            return ""
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {ended.returncode}"

    def _program(self) -> str:
        found = self.executable or _find_program()
        if found is None:
            raise ConfigurationError("the BGP daemon", _EXECUTABLE, "the program is not on this host: install bird2")
        return found

    # --- others -------------------------------------------------------------------------------------------------------

    def _require_no_other(self, plan: BgpPlan) -> None:
        """No other daemon speaks BGP here: BIRD would delete the routes of another one, and could not listen."""
        for family in Family:
            own = plan.find_address(family)
            listener = None if own is None else self._find_listener(own, plan)
            if listener is not None:
                raise ForeignBgpDaemon(f"another program listens on {listener}", _ADVICE)
        other = _find_other_bird()
        if other is not None:
            raise ForeignBgpDaemon(f"another BIRD runs here, process {other}", _BIRD_ADVICE)
        count = self.count_routes()
        if count:
            raise ForeignBgpDaemon(f"the main table has {count} routes of the protocol bird", _ROUTES_ADVICE)

    def _find_listener(self, own: Address, plan: BgpPlan) -> str | None:
        """Where another program listens that BIRD would listen on too; None: there is none."""
        host = str(own) if plan.bind_mode is BindMode.NODE_IP else _ANY[own.family]
        with socket.socket(_FAMILIES[own.family], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if own.family is Family.IPV6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((host, plan.listen_port))
                probe.listen(1)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return f"port {plan.listen_port} of {host}"
                raise Unavailable(_EXECUTABLE, f"port {plan.listen_port} of {host}: {error.strerror}") from error
        return None

    # --- files --------------------------------------------------------------------------------------------------------

    def _write_configuration(self, content: bytes, check: Callable[[str], None]) -> None:
        """Put a configuration into its place once BIRD has taken it; the errors are those of ``check``."""
        try:
            replace_file(self._path(CONFIGURATION), content, PRIVATE_FILE_MODE, check)
        except BgpRefused as refusal:
            # BIRD names the new file, whose name changes each time, in front of the line.
            raise BgpRefused(re.sub(r"\S*/\.netplug-\w+\.new", CONFIGURATION, refusal.text)) from None

    def _write_marker(self) -> None:
        path = self._path(MARKER)
        if find_file(path) is None:
            replace_file(path, "routes of the protocol bird are netplug's\n", OPEN_FILE_MODE)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def find_bird_problem(unit_dir: str) -> str:
    """Why BIRD could not be started on this host, with what to do; empty if nothing is in its way.

    ``unit_dir`` has the units of systemd.
    """
    if _find_program() is None:
        return f"BIRD is not on this host, and {_NEEDED_WHERE}; run: {_INSTALLED_BY} && {_TURN_OFF}"
    if any(os.path.lexists(f"{unit_dir}/{folder}.wants/bird.service") for folder in _WANTED_BY):
        return f"Debian's BIRD starts by itself on this host, and netplug starts none beside it; run: {_TURN_OFF}"
    return ""


def _find_program() -> str | None:
    return shutil.which(_EXECUTABLE) or shutil.which(_EXECUTABLE, path=_FOLDERS)


def _find_other_bird() -> int | None:
    """A process called ``bird`` in the network namespace of this thread, if one can be seen."""
    own = os.stat("/proc/thread-self/ns/net")
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            comm = find_file(f"/proc/{name}/comm")
            if comm == b"bird\n" and os.path.samestat(os.stat(f"/proc/{name}/ns/net"), own):
                return int(name)
        except OSError:  # it has ended, or is hidden
            continue
    return None
