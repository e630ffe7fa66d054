"""The order in which the parts of the node process begin and end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager

from attrs import frozen

from netplug_cli.node.calls import AnswerCall, CallQueue, RefuseCall
from netplug_cli.node.listening import Listener
from netplug_cli.node.operations import NodeParts
from netplug_cli.node.server import Server
from netplug_cli.node.workers import Workers
from netplug_cli.runtime.controllers import Runtime
from netplug_core.log import Level, Log

__all__ = ["STOP_S", "NodeProcess"]

STOP_S = 30.0
"""The longest that calls which have begun may take when the process is asked to end."""


@frozen(kw_only=True)
class NodeProcess:
    """Everything that serves calls. ``answer`` serves one, ``refuse`` answers one for which there is no room.

    ``workers`` calls are served at once, and at most ``queue`` further ones wait. ``tasks`` are done besides.
    ``observe`` is entered when all of them have begun, and left when they have ended; what it gives is called between
    the two, when no further call is accepted.
    """

    answer: AnswerCall
    refuse: RefuseCall
    tasks: Runtime
    observe: Callable[[NodeParts], AbstractContextManager[Callable[[], None]]]
    log: Log
    workers: int
    queue: int

    def run(self, listener: Listener, wakeup: socket.socket) -> int:
        """Serve until ``wakeup`` is readable, and end what has begun; return the exit status.

        Calls that have not begun are given back: their connections are closed. The status is 1 if a call that has
        begun did not end in time.
        """
        queue = CallQueue(self.queue)
        workers = Workers(self.workers, queue, self.answer, self.log)
        server = Server(listening=listener.socket, queue=queue, refuse=self.refuse, log=self.log)
        workers.start()
        self.tasks.start()
        with self.observe(NodeParts(server=server, queue=queue, workers=workers, tasks=self.tasks)) as note_end:
            self.log(Level.INFO, "the node process serves", socket=listener.path, workers=self.workers)
            try:
                server.run(wakeup)
            finally:
                listener.close()
                note_end()
                unfinished = workers.stop(STOP_S)
                self.tasks.stop()
        if unfinished:
            self.log(Level.ERROR, f"calls have not ended within {STOP_S:g} s", calls=unfinished)
            return 1
        self.log(Level.INFO, "the node process has ended")
        return 0
