"""Relays connections from a lab's node to servers outside: the node has the address of each server, and a process."""

from __future__ import annotations

import socket
import sys
from contextlib import closing

from netplug_cli.lab import tcp_relay
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import NODE_NETNS, LabError
from netplug_cli.lab.namespaces import SOCKET_FAMILIES, Namespaces
from netplug_cli.lab.processes import LabProcess, start_process
from netplug_cli.lab.stores import ExternalServers
from netplug_core.addressing import Address

__all__ = ["parse_server_address", "start_relays"]

_BACKLOG = 128


def start_relays(namespaces: Namespaces, locked: LockedFolder, store: ExternalServers) -> tuple[LabProcess, ...]:
    """Make servers reachable inside the node under their own addresses, so that certificates and configurations fit."""
    return tuple(
        _start_relay(namespaces, locked, f"relay-{number}", server)
        for number, server in enumerate(store.addresses, start=1)
    )


def _start_relay(namespaces: Namespaces, locked: LockedFolder, name: str, server: tuple[str, int]) -> LabProcess:
    host, port = server
    address, node = parse_server_address(host), locked.folder.netns(NODE_NETNS)
    if not _is_loopback(address):
        namespaces.configure_node(node, (address,))
    with namespaces.enter(node):
        listener = socket.socket(SOCKET_FAMILIES[address.family], socket.SOCK_STREAM)
    with closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
        # -I: the folder of the program must not be on the import path.
        command = [
            sys.executable,
            "-IS",
            tcp_relay.__file__,
            str(listener.fileno()),
            host,
            str(port),
            f"{locked.folder.path}/",
        ]
        return start_process(locked, name, command)


def parse_server_address(host: str) -> Address:
    """The address of a server inside the node.

    Raises:
        LabError: it is given by name.
    """
    if host == "localhost":
        return Address.parse("127.0.0.1")
    try:
        return Address.parse(host)
    except ValueError as error:
        raise LabError(f"{host} has to be an IP address: the node of a lab has nobody to ask for names") from error


def _is_loopback(address: Address) -> bool:
    text = str(address)
    return text == "::1" or text.startswith("127.")
