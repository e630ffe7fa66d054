"""A flood of packets between the two workloads of a scene, to a port that is denied and to one that is allowed.

A table beside ours counts what comes before anything is judged, and what has passed at the end; all packets are judged,
since none is answered. So nothing else than our table makes the two differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.harness.node import NetnsNode
from tests.harness.policy_scene import PolicyScene
from tests.harness.processes import packet_flood
from tests.harness.waiting import wait_until

__all__ = ["ALLOWED", "DENIED", "Count", "count", "count_packets", "flooded"]

DENIED, ALLOWED = 9001, 9002
"""The ports, of UDP."""

_COUNTERS: Final = f"""
table inet count {{
  counter denied_in {{ }}
  counter allowed_in {{ }}
  counter denied_out {{ }}
  counter allowed_out {{ }}
  chain before {{
    type filter hook prerouting priority -310;
    udp sport 9000 udp dport {DENIED} counter name denied_in
    udp sport 9000 udp dport {ALLOWED} counter name allowed_in
  }}
  chain after {{
    type filter hook postrouting priority 310;
    udp sport 9000 udp dport {DENIED} counter name denied_out
    udp sport 9000 udp dport {ALLOWED} counter name allowed_out
  }}
}}
"""


@frozen
class Count:
    """The packets of a flood: what has come to the node, and what of it has passed."""

    denied_in: int
    allowed_in: int
    denied_out: int
    allowed_out: int

    def since(self, begun: Count) -> Count:
        """What has come, and passed, since an earlier count."""
        return Count(
            self.denied_in - begun.denied_in, self.allowed_in - begun.allowed_in,
            self.denied_out - begun.denied_out, self.allowed_out - begun.allowed_out,
        )  # fmt: skip


def count_packets(node: NetnsNode) -> None:
    """Make the table that counts."""
    node.run("nft", "-f", "-", stdin=_COUNTERS)


def count(scene: PolicyScene) -> Count:
    """What is counted by now."""
    listed = json.loads(scene.node.run("nft", "-j", "list counters table inet count"))["nftables"]
    return Count(**{each["counter"]["name"]: each["counter"]["packets"] for each in listed if "counter" in each})


@contextmanager
def flooded(scene: PolicyScene) -> Iterator[None]:
    """Send from the client to the web, for as long as the context lasts, and until all packets are counted."""
    at = scene.nat.addresses
    command = (sys.executable, str(Path(packet_flood.__file__)), at.client, at.web, str(DENIED), str(ALLOWED))
    process = scene.node.start_process(*command, inside=scene.nat.client.name)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    begun = count(scene)
    wait_until(lambda: count(scene).denied_in > begun.denied_in, "packets come")
    yield
    process.kill()
    process.wait()
