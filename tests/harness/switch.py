"""A switch between nodes of a test: a bridge in a namespace of its own, into which each node plugs one interface."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from tests.harness.node import NetnsNode
from tests.harness.waiting import wait_until

__all__ = ["NodePort", "open_switch", "plug_in"]

# A switch forwards frames, whatever filters the machine has for packets.
_SETUP = """
set -e
ip link add sw0 type bridge forward_delay 0
ip link set sw0 up
echo ready
exec cat
"""


@frozen
class NodePort:
    """Where a node is plugged in: its addresses on the switch."""

    ipv4: str
    ipv6: str

    def address(self, prefix: str) -> str:
        """The address of the prefix's family."""
        return self.ipv6 if ":" in prefix else self.ipv4


@contextmanager
def open_switch() -> Iterator[int]:
    """A switch, for as long as the context lasts: the process whose network namespace it is."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", _SETUP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", "the switch could not be set up"
        yield holder.pid
    finally:
        holder.kill()
        for stream in (holder.stdin, holder.stdout):
            if stream is not None:
                stream.close()
        holder.wait()


def plug_in(node: NetnsNode, switch: int, number: int) -> NodePort:
    """Give a node its interface ``lan0``, the other end of which is a port of the switch."""
    port = NodePort(f"10.240.0.{number}", f"fd24::{number}")
    script = f"""
ip link add lan0 netns {node.pid} type veth peer name port{number} netns {switch}
nsenter --target {switch} --net ip link set port{number} master sw0 up
"""
    subprocess.run(["sh", "-ec", script], check=True, timeout=60)
    node.run("ip", "link", "set", "lan0", "addrgenmode", "none", "up")
    for address in (f"{port.ipv4}/24", f"{port.ipv6}/64", f"fe80::{number}/64"):
        node.run("ip", "address", "add", address, "dev", "lan0", *(("nodad",) if ":" in address else ()))
    wait_until(node.has_local_routes, "the node's port has its addresses")
    return port
