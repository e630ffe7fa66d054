"""A node process that only answers for its status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netplug_cli.http_server import Page, PageServer
from netplug_cli.node.listening import listen
from netplug_cli.node_status import (
    STATUS_PATH,
    AddressStatus,
    CallFigures,
    NodeStatus,
    RegistrationStatus,
    encode_status,
    status_socket_of,
)
from netplug_core.clock import SECOND_NS
from tests.harness.node_server import Lines

__all__ = ["NODE_STATUS", "REGISTRATION", "node_process_with_status"]

NODE_STATUS = NodeStatus(
    version="3.33.0",
    pid=1742,
    started_ns=1_767_225_600 * SECOND_NS,  # that of the clock of a harness
    socket="/run/netplug/node.sock",
    workers=16,
    queue_limit=256,
    calls=CallFigures(served=110, failed=2, refused=1, served_now=3, waiting=4),
    release_records=5,
)

REGISTRATION = RegistrationStatus(
    node="worker-1",
    pod_mtu=1450,
    addresses=(
        AddressStatus(
            family="IPv4",
            address="10.240.0.11/24",
            origin="detected",
            trace=(
                "docker0: names with docker are of containers or networks of this machine",
                "lo: the loopback interface",
                "eth0 10.240.0.11/24: kept, as it is registered",
            ),
        ),
        AddressStatus(family="IPv6", trace=("IPv6: not asked for",)),
    ),
)


@contextmanager
def node_process_with_status(path: Path, status: NodeStatus) -> Iterator[str]:
    """A node process of this status; the path of its socket for calls."""
    listener = listen(status_socket_of(str(path)))
    page = Page(body=json.dumps(encode_status(status)).encode())
    server = PageServer(listener.socket, {STATUS_PATH: lambda: page}, Lines())
    server.start()
    yield str(path)
    server.stop()
    listener.close()
