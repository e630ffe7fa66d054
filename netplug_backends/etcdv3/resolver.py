"""Checks that a host name has an address before gRPC resolves it.

gRPC resolves names in the few threads that do all its work. Three names that wait for a silent name server would block
every call to every member.
"""

from __future__ import annotations

import socket
from threading import Thread

from netplug_core.clock import Deadline

__all__ = ["require_resolvable"]


def require_resolvable(host: str, port: int, deadline: Deadline) -> None:
    """Return if the host has an address. The system's resolver has no timeout, so a thread may be abandoned.

    Raises:
        OSError: it has none, or no name server answered by the deadline.
    """
    answer: list[OSError | None] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            answer.append(error)
        except UnicodeError as error:  # a label of the name is too long
            answer.append(OSError(str(error)))
        else:
            answer.append(None)

    thread = Thread(target=resolve, name=f"resolve {host}", daemon=True)
    thread.start()
    thread.join(deadline.remaining_s)
    problem = answer[0] if answer else TimeoutError("no name server answered by the deadline")
    if problem is not None:
        raise problem
