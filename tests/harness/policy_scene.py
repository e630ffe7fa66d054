"""Two workloads and a machine outside, on a node whose kernel enforces a policy state: which packets pass.

A packet that is denied is counted by the rule that drops it, so that no test waits for one that does not come.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

from attrs import define, field

from netplug_backends.linux.nftables import NftablesRuleset, Run, run_library
from netplug_core.addressing import Address, Family
from netplug_core.dataplane.filter import POLICY_TABLE, FilterRenderer
from netplug_core.dataplane.phases import TableTracker
from netplug_core.dataplane.ruleset import ChangeTable, Phase
from netplug_core.policy.model import (
    Action,
    ActivePolicy,
    EndpointId,
    LocalEndpoint,
    Match,
    PolicyId,
    PolicySettings,
    PolicyState,
    Rule,
)
from netplug_core.resources.nodeconfiguration import EndpointToHostAction
from tests.harness.nat_scene import ADDRESSES, NatScene
from tests.harness.node import NetnsNode
from tests.harness.policy_states import policy_id
from tests.harness.waiting import wait_until

__all__ = ["ALLOW_ALL", "PORT", "PolicyScene", "received", "workload"]

PORT: Final = 8080
ALLOW_ALL: Final = Rule(name="Rule x/all #0", action=Action.ALLOW, matches=(Match(),))
_OPEN: Final = policy_id("open")
_INTERFACES: Final = {"web": "netp5", "client": "netp6"}


def workload(
    name: str, *, ingress: tuple[PolicyId, ...] = (_OPEN,), egress: tuple[PolicyId, ...] = (_OPEN,), **more: object
) -> LocalEndpoint:
    """The endpoint ``web`` or ``client``; unless said otherwise, everything is allowed."""
    addresses = tuple(
        Address.parse(one.web if name == "web" else one.client) for one in (ADDRESSES[each] for each in Family)
    )
    given = {"addresses": addresses, **more}
    return LocalEndpoint(
        id=EndpointId("x", name),
        interface=_INTERFACES[name],
        ingress=ingress,
        egress=egress,
        **given,  # type: ignore[arg-type]
    )


@define
class PolicyScene:
    """The scene in one family, and who programs its kernel."""

    nat: NatScene
    runner: Run = run_library
    _renderer: FilterRenderer = field(factory=FilterRenderer)
    _numbers: Iterator[int] = field(factory=count)
    _tracker: TableTracker = field(factory=lambda: TableTracker(POLICY_TABLE))

    @property
    def node(self) -> NetnsNode:
        """The node."""
        return self.nat.node

    def enforce(self, state: PolicyState, *, restarted: bool = False) -> list[Phase]:
        """Program a state, perhaps as a new process does; return the phases."""
        if restarted:
            self._tracker, self._renderer = TableTracker(POLICY_TABLE), FilterRenderer()
        ruleset = NftablesRuleset(runners=(self.runner,))
        phases: list[Phase] = []
        with self.nat.inside():
            if restarted:
                self._tracker.observe(ruleset.read(POLICY_TABLE))
            for change in self._tracker.plan(self._renderer.render(state)):
                assert isinstance(change, ChangeTable)
                ruleset.apply(change)
                self._tracker.note(change)
                phases.append(change.phase)
        return phases

    def state(self, *endpoints: LocalEndpoint, policies: tuple[ActivePolicy, ...] = (), **more: object) -> PolicyState:
        """A state with the policy that allows everything, and the host as all generated configurations have it."""
        allowing = ActivePolicy(id=_OPEN, ingress=(ALLOW_ALL,), egress=(ALLOW_ALL,))
        settings = more.pop("settings", PolicySettings(endpoint_to_host=EndpointToHostAction.ACCEPT))
        ordered = tuple(sorted((*policies, allowing), key=lambda each: each.id))
        return PolicyState(settings=settings, policies=ordered, endpoints=endpoints, **more)  # type: ignore[arg-type]

    def passes(self, sender: str, to: str, receiver: str, *, port: int = PORT, source: str = "", at: str = "") -> bool:
        """Whether a packet of UDP comes from a namespace to an address, and its answer back."""
        with self.nat.socket_at(receiver, at or to, port) as server, self.nat.socket_at(sender, source) as client:
            return self._is_answered(client, server, (to, port))

    @contextmanager
    def connection(self, sender: str, source: str, receiver: str, to: str) -> Iterator[Callable[[], bool]]:
        """A connection between two namespaces; what is yielded sends over it, and says whether it is let through."""
        with self.nat.socket_at(receiver, to, PORT) as server, self.nat.socket_at(sender, source, PORT) as client:
            yield lambda: self._is_answered(client, server, (to, PORT))

    def _is_answered(self, client: socket.socket, server: socket.socket, to: tuple[str, int]) -> bool:
        for each in (server, client):
            each.settimeout(0)
        try:
            peer = self._send(client, to, server)
        except PermissionError:  # the node itself is not allowed to send it
            return False
        return peer is not None and self._send(server, peer, client) is not None

    def _send(self, sender: socket.socket, to: tuple[str, int], receiver: socket.socket) -> tuple[str, int] | None:
        """From where a packet comes to a receiver; None if the rules drop it.

        It is sent again and again: a neighbor that is not known yet, or that the state before kept silent, costs some.
        Such a neighbor also keeps packets back: what comes of a former sender, when it is known at last, is another
        packet. So each has a text of its own, and is dropped only if the rules drop more after it was sent once more.
        """
        text, before, drops = f"packet {next(self._numbers)}".encode(), self.dropped(), 0
        peers: list[tuple[str, int]] = []

        def is_decided() -> bool:
            nonlocal before, drops
            sender.sendto(text, to)
            peers.extend(peer for found, peer in received(receiver) if found == text)
            now = self.dropped()
            drops, before = drops + (now > before), now
            return bool(peers) or drops > 1

        wait_until(is_decided, "the packet has come or is dropped")
        return peers[0] if peers else None

    def dropped(self) -> int:
        """How many packets the rules have dropped."""
        listed = json.loads(self.node.run("nft", "-j", "list table inet netplug"))
        return sum(
            statement["counter"]["packets"]
            for each in listed["nftables"]
            for statement in each.get("rule", {}).get("expr", ())
            if "counter" in statement
        )


def received(waiting: socket.socket) -> Iterator[tuple[bytes, tuple[str, int]]]:
    """What has come to a socket by now, each with where it is from."""
    while True:
        try:
            text, peer = waiting.recvfrom(100)
        except BlockingIOError:
            return
        yield text, (str(peer[0]), int(peer[1]))
