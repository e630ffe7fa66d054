"""Whether the name of a host leads anywhere: asked of the machine before gRPC looks, and loaded where there is a name.

gRPC asks in the few threads that it does everything with: three names that wait for a silent name server would keep it
from every member, and from every deadline.
"""

from __future__ import annotations

import socket
from threading import Thread

from netplug_core.clock import Deadline

__all__ = ["require_resolvable"]


def require_resolvable(host: str, port: int, deadline: Deadline) -> None:
    """Return if the host has an address. The machine's resolver knows of no deadline, so it is left behind.

    Raises:
        OSError: it has none, or nobody said so by the deadline.
    """
    answer: list[OSError | None] = []

    def ask() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answer.append(error)
        except UnicodeError as error:  # a part of the name is longer than any may be
            answer.append(OSError(str(error)))
        else:
            answer.append(None)

    thread = Thread(target=ask, name=f"resolve {host}", daemon=True)
    thread.start()
    thread.join(deadline.remaining_s)
    problem = answer[0] if answer else TimeoutError("no name server answered by the deadline")
    if problem is not None:
        raise problem
