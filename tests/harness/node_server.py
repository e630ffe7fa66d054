"""Parts of the node process in this process: a listening socket, clients of it, and a server in a thread."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from attrs import define, field

from netplug_cli.node.calls import CallQueue, NodeProcessBusy, PendingCall
from netplug_cli.node.server import Server
from netplug_core.cni.wire import WireReply, WireRequest
from netplug_core.log import Level, LogSettings
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["REPLY", "REQUEST", "Lines", "busy_reply", "pending_call", "served"]

REQUEST = WireRequest(program="netplug", environ={"CNI_COMMAND": "ADD"}, stdin=b"{}")
REPLY = WireReply(exit_status=0, stdout=b"{}\n", stderr=b"")


@define
class Lines:
    """A log that keeps its lines."""

    texts: list[str] = field(factory=list)

    settings: LogSettings = field(factory=LogSettings)

    def configure(self, settings: LogSettings) -> None:
        """Keep what is asked for; every line is kept all the same."""
        self.settings = settings

    def __call__(self, level: Level, message: str, /, **fields: object) -> None:
        self.texts.append(" ".join([level.value, message, *(f"{name}={fields[name]}" for name in sorted(fields))]))


def busy_reply(_request: WireRequest, error: NodeProcessBusy) -> WireReply:
    """What a server answers for which there is no room."""
    return WireReply(exit_status=1, stdout=str(error).encode(), stderr=b"")


def pending_call(
    *, came_at: float = 0.0, gives_up_at: float = float("inf"), namespace: int | None = None
) -> tuple[PendingCall, socket.socket]:
    """A call, and the client's end of its connection."""
    client, connection = socket.socketpair()
    client.settimeout(EMERGENCY_STOP_S)
    call = PendingCall(
        connection=connection, request=REQUEST, came_at=came_at, gives_up_at=gives_up_at, namespace=namespace
    )
    return call, client


@contextmanager
def served(
    path: str, queue: CallQueue, log: Lines, *, kind: type[socket.socket] = socket.socket, **settings: float
) -> Iterator[str]:
    """A server that listens at a path and fills a queue, for as long as the context lasts."""
    with kind(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        listening.settimeout(0)
        stop, wakeup = socket.socketpair()
        with stop, wakeup:
            server = Server(listening=listening, queue=queue, refuse=busy_reply, log=log, **settings)  # type: ignore[arg-type]
            thread = Thread(target=server.run, args=(wakeup,))
            thread.start()
            try:
                yield path
            finally:
                stop.send(b"\0")
                thread.join(EMERGENCY_STOP_S)
                assert not thread.is_alive()
