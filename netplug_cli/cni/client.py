"""The executables as a small client: the node process does the job; where none answers, this process does it itself.

``netplug_core.cni.wire`` describes the protocol. Every pod pays for what is imported here: so it is ``sys``, ``posix``
and ``_socket``, and nothing else. Only the standalone program imports more. This process goes on in it if the request
was not taken, and resumes the call in it if the reply broke off after that. It also answers VERSION, a call with an
argument, and one without variables; the node process is not asked then.
"""

import sys

try:
    import _socket as socket
    import posix
    from posix import environ
except ImportError:  # a Python other than CPython
    import os as posix  # type: ignore[no-redef]
    import socket  # type: ignore[no-redef]
    from os import environb as environ  # type: ignore[assignment]

__all__ = ["REPLY_S", "TAKE_S", "main"]

TAKE_S = 10.0
"""For how long a request waits until the node process takes it."""

REPLY_S = 120.0
"""For how long a call waits for its reply in all."""

_DEFAULT_PATH = b"/run/netplug/node.sock"
_COMMANDS = (b"ADD", b"DEL", b"CHECK", b"GC", b"STATUS")
_MAGIC = b"netplug\x01"
_TAKEN = b"T"
_START_LENGTH = 13  # of a reply: T, exit status, and the lengths of both texts
_MAX_BODY_LENGTH = 4 * 2**20
_CHUNK = 2**16


def main() -> None:
    """Answer one call of a runtime, and end the process."""
    path, stdin, reply = environ.get(b"NETPLUG_NODE_SOCKET", _DEFAULT_PATH), None, b""
    if path and len(sys.argv) == 1 and environ.get(b"CNI_COMMAND") in _COMMANDS:
        stdin = _read_stdin()
        if stdin is not None:
            reply = _ask(path, stdin)
    status, end = _number(reply, 1), _START_LENGTH + _number(reply, 5)
    if len(reply) < _length_of(reply) or status > 255:  # noqa: PLR2004  # what a process can exit with
        _do_alone(stdin, is_resumed=reply != b"")
    else:
        _write(2, reply[end:])
        is_written = _write(1, reply[_START_LENGTH:end])
        posix._exit(status if is_written else 1)  # the end of the interpreter takes a fifth of the time


def _do_alone(stdin: bytes | None, *, is_resumed: bool) -> None:
    """Do the job in this process, and end it. Without ``stdin`` it has not been read."""
    import gc
    from importlib import import_module

    # A process of a tenth of a second leaves its memory to the kernel: collection would take a tenth of that time.
    gc.disable()
    # By name: this room does not depend on the composition root.
    status = import_module("netplug_cli.wiring.cni").main(stdin, is_resumed=is_resumed)
    posix._exit(status)  # as above


def _read_stdin() -> bytes | None:
    """All of standard input; empty from a terminal, as in the standalone program. None: it reports what is wrong."""
    try:
        if posix.isatty(0):
            return b""
        chunks = [posix.read(0, _CHUNK)]
        while chunks[-1]:
            chunks.append(posix.read(0, _CHUNK))
    except OSError:
        return None
    return b"".join(chunks)


def _write(descriptor: int, text: bytes) -> bool:
    """Whether all of a text could be written."""
    try:
        while text:
            text = text[posix.write(descriptor, text) :]
    except OSError:
        return False
    return True


# --- the protocol ------------------------------------------------------------------------------------------------


def _ask(path: bytes, stdin: bytes) -> bytes:
    """What the node process replied, as far as it came; empty if it did not take the request."""
    plugin = b"netplug-ipam" if sys.argv[0].rpartition("/")[2] == "netplug-ipam" else b"netplug"
    variables = [name + b"=" + value for name, value in environ.items() if name]
    body = b"\0".join((plugin, *variables, b"", stdin))
    if len(body) > _MAX_BODY_LENGTH:
        return b""
    header = _MAGIC + int(REPLY_S * 1000).to_bytes(4, "big") + len(body).to_bytes(4, "big")
    reply = bytearray()
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _exchange(connection, path, header + body, reply)
        finally:
            connection.close()
    except OSError:
        return bytes(reply)  # nothing more will come
    return bytes(reply)


def _exchange(connection: socket.socket, path: bytes, request: bytes, reply: bytearray) -> None:
    """Send a request, and add to the reply what comes until it is whole or breaks off.

    Raises:
        OSError: nothing more comes.
    """
    begin = posix.times()[4]
    connection.settimeout(TAKE_S)
    connection.connect(path)
    is_open = _send(connection, request)
    while len(reply) < _length_of(reply):
        try:
            end = begin + (REPLY_S if reply else TAKE_S)
            connection.settimeout(max(end - posix.times()[4], 0.0))
            chunk = connection.recv(min(_length_of(reply) - len(reply), _CHUNK))
        except OSError:
            if not is_open:
                raise
            # The server cannot send any more. What it sent before is still there and counts.
            connection.shutdown(socket.SHUT_RDWR)
            is_open = False
            continue
        if not chunk:
            return
        reply += chunk
        if not reply.startswith(_TAKEN):
            reply.clear()
            return


def _send(connection: socket.socket, request: bytes) -> bool:
    """Send a request with the network namespace, if it can be opened; false if it could not be sent whole."""
    rights = []
    try:
        # Without O_NONBLOCK, a path that is a pipe would never be opened.
        flags = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY
        rights.append(posix.open(environ.get(b"CNI_NETNS", b""), flags))
    except OSError:
        rights.clear()  # the other side reports what is wrong with it
    try:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, one.to_bytes(4, sys.byteorder)) for one in rights]
        sent = connection.sendmsg([request], ancillary)
        connection.sendall(request[sent:])
    except OSError:
        connection.shutdown(socket.SHUT_RDWR)
        return False
    finally:
        for descriptor in rights:
            posix.close(descriptor)
    return True


def _length_of(reply: bytes | bytearray) -> int:
    """The length of the whole reply, as far as its beginning says it."""
    if len(reply) < _START_LENGTH:
        return _START_LENGTH
    return _START_LENGTH + _number(reply, 5) + _number(reply, 9)


def _number(reply: bytes | bytearray, at: int) -> int:
    return int.from_bytes(reply[at : at + 4], "big")
