"""The control socket of BIRD: commands, the codes of its answers, and what it says of itself and its sessions.

An answer is lines of a code of four digits, ``-`` or a blank, and a text; a line that begins with a blank belongs to
the one before it, and the last one has a blank behind its code. Codes from 8000 on are errors. Source: the file
``doc/reply_codes`` of BIRD 2. Each call opens the socket anew: BIRD may have been replaced meanwhile.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import BgpRefused, BgpStatus, SessionStatus
from netplug_core.errors import Unavailable, quote

__all__ = ["BirdSocket", "Reply", "read_next_hops", "read_reply", "read_sessions"]

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
