"""The way from a lab's node to servers outside it: the node has each server's address, and a process behind it."""

from __future__ import annotations

import socket
import sys
from contextlib import closing

from netplug_cli.lab import relay
from netplug_cli.lab.folder import Claimed
from netplug_cli.lab.model import NODE, LabError
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.processes import Started, start
from netplug_cli.lab.stores import RunningServers
from netplug_core.addressing import Address, Family

__all__ = ["node_address", "open_relays"]

_AF = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_BACKLOG = 128


def open_relays(namespaces: Namespaces, held: Claimed, store: RunningServers) -> tuple[Started, ...]:
    """Make servers answer inside the node at their own addresses, so that certificates and configurations fit."""
    return tuple(
        _open(namespaces, held, f"relay-{number}", place) for number, place in enumerate(store.places, start=1)
    )


def _open(namespaces: Namespaces, held: Claimed, name: str, place: tuple[str, int]) -> Started:
    host, port = place
    address, node = node_address(host), held.folder.netns(NODE)
    if not _is_loopback(address):
        namespaces.configure_node(node, (address,))
    with namespaces.enter(node):
        listener = socket.socket(_AF[address.family], socket.SOCK_STREAM)
    with closing(listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
        # -I: the program lies beside modules whose names are not meant for everybody.
        command = [
            sys.executable,
            "-IS",
            relay.__file__,
            str(listener.fileno()),
            host,
            str(port),
            f"{held.folder.path}/",
        ]
        return start(held, name, command)


def node_address(host: str) -> Address:
    """Where a server's host is inside the node.

    Raises:
        LabError: it is a name.
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
