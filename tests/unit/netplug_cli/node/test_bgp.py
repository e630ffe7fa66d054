"""The controller of BGP, on a store and a daemon in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from netplug_backends.memory.bgp import MemoryBgp, MemoryBgpNetwork
from netplug_cli.node.bgp import CHECK_EVERY_S, POLL_EVERY_S, SECRETS_EVERY_S
from netplug_cli.node_status import PeerStatus
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, BgpSession, BgpStatus, BgpUse, ForeignBgpDaemon
from netplug_core.dataplane.routing import ADVERTISED_TABLE, Route
from netplug_core.errors import Unavailable
from netplug_core.reconcile.controller import Outcome, Problem
from netplug_core.reconcile.peers import PATIENCE_S, PeerFacts, plan_peers
from netplug_core.resources.bgp import BGP_FILTER, BGP_PEER, ClusterRoutingMode
from netplug_core.resources.ippool import Encapsulation
from netplug_core.resources.node import NodeStatus
from tests.harness.network import NetworkHarness
from tests.harness.routes import make_node, make_pool

A = make_node("a", "192.0.2.1/24")
B = make_node("b", "192.0.2.2/24")
PLAIN = make_pool("10.0.0.0/16")
VXLAN = make_pool("10.0.0.0/16", vxlan=Encapsulation.ALWAYS)
ROUTER = {"peerIP": "192.0.2.9", "asNumber": 65001}
PASSWORD = {"secretKeyRef": {"name": "bgp", "key": "password"}}


@define
class ScriptedDaemon(MemoryBgp):
    """A daemon that refuses what a test says, or recovers."""

    refusal: str = field(default="", init=False)
    foreign: str = field(default="", init=False)
    is_recovering: bool = field(default=False, init=False)
    tunnelled: tuple[tuple[Prefix, Address], ...] = field(default=(), init=False)

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        status = super().find_status(deadline=deadline)
        return None if status is None else evolve(status, is_recovering=self.is_recovering, tunnelled=self.tunnelled)

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        if self.refusal:
            raise BgpRefused(self.refusal)
        if self.foreign:
            raise ForeignBgpDaemon(self.foreign, "stop it")
        return super().apply(plan, deadline=deadline)


@define
class Scene:
    """Node ``a``, whose daemon reaches that of ``b``."""

    network: MemoryBgpNetwork = field(factory=MemoryBgpNetwork)
    daemon: ScriptedDaemon = field(init=False)
    other: MemoryBgp = field(init=False)
    node: NetworkHarness = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.daemon = ScriptedDaemon(network=self.network, addresses=(Address.parse("192.0.2.1"),))
        self.network.nodes.append(self.daemon)
        self.other = self.network.add(Address.parse("192.0.2.2"))
        self.node = NetworkHarness(daemon=self.daemon)
        self.node.kernel.add_interface("eth0", "192.0.2.1/24")
        for one in (A, B):
            self.node.put_node(one)

    def start_other(self) -> None:
        """Let ``b`` have its session of the mesh."""
        plan = plan_peers(PeerFacts(node="b", nodes=(A, B), pools=(PLAIN,))).outcome
        assert isinstance(plan, BgpPlan)
        self.other.apply(plan, deadline=self.node.deadline())

    def announced(self) -> set[str]:
        """What is in the table of what the node announces."""
        return {str(one.destination) for one in self.node.kernel.read().routes if one.table == ADVERTISED_TABLE}

    def is_running(self) -> bool:
        """Whether the daemon runs."""
        return self.daemon.is_running

    def look(self) -> Outcome:
        """One pass of the controller."""
        return self.node.bgp.controller().reconcile(self.node.clock, lambda: True)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_pool_without_vxlan_starts_the_daemon_and_announces_own_blocks(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_block("10.0.0.0/26", "a")
    scene.node.pass_time(100)
    assert scene.is_running()
    assert scene.node.bgp.use == BgpUse(is_enabled=True)
    assert scene.announced() == {"10.0.0.0/26"}


def test_only_vxlan_starts_no_daemon(scene: Scene) -> None:
    scene.node.put_pool(VXLAN)
    scene.node.put_block("10.0.0.0/26", "a")
    scene.node.pass_time(100)
    assert not scene.is_running()
    assert scene.node.bgp.use == BgpUse()
    assert scene.announced() == set()
    assert scene.node.bgp.find_pending() is None
    assert scene.node.bgp.find_peers() == ()
    assert scene.node.log.texts == []


def test_the_daemon_ends_with_what_needs_it(scene: Scene) -> None:
    scene.node.put_pool(VXLAN)
    scene.node.put_block("10.0.0.0/26", "a")
    scene.node.put_resource("BGPPeer", "router", **ROUTER)
    scene.node.pass_time(100)
    assert scene.is_running()
    assert scene.announced() == {"10.0.0.0/26"}
    scene.node.delete(BGP_PEER.key("router"))
    scene.node.pass_time(100)
    assert not scene.is_running()
    assert scene.announced() == set()


def test_in_mode_node_the_node_process_makes_the_routes(scene: Scene) -> None:
    scene.node.put_configuration(clusterRoutingMode="Node")
    scene.node.put_resource("BGPPeer", "router", **ROUTER)
    scene.node.put_pool(PLAIN)
    scene.node.put_block("10.0.0.64/26", "b")
    scene.node.pass_time(100)
    assert scene.node.bgp.use == BgpUse(is_enabled=True, mode=ClusterRoutingMode.NODE)
    assert {str(one.destination) for one in scene.node.kernel.read().routes} == {"10.0.0.64/26"}


def test_nothing_is_done_before_everything_is_known(scene: Scene) -> None:
    scene.node.name = None
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(100)
    assert not scene.is_running()
    assert scene.node.bgp.use is None
    assert scene.node.kernel.messages == 0
    scene.node.name = "a"  # which no change of the datastore tells
    scene.node.pass_time(5)
    assert scene.is_running()


def test_a_node_without_an_address_waits_for_one(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_node(make_node("a"))
    scene.node.pass_time(100)
    assert not scene.is_running()
    assert "no BGP on the node a" in scene.node.log.texts[-1]
    scene.node.put_node(A)
    scene.node.pass_time(100)
    assert scene.is_running()


def test_the_daemon_is_asked_every_second_while_a_session_comes_up(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.feed_once()
    assert scene.look().look_again_s == POLL_EVERY_S
    assert scene.node.bgp.find_pending() == "the BGP daemon does not run"
    assert scene.look().look_again_s == POLL_EVERY_S
    assert scene.node.bgp.find_pending() == "BGP sessions come up: Mesh4_192_0_2_2"
    waiting = PeerStatus(
        peer="b", address="192.0.2.2:179", as_number=64512, is_established=False, since="1", state="Active"
    )
    assert scene.node.bgp.find_peers() == (waiting,)
    scene.start_other()
    outcome = scene.look()
    assert (outcome.look_again_s, outcome.problems) == (CHECK_EVERY_S, ())
    assert scene.node.bgp.find_pending() is None
    assert scene.node.bgp.find_peers() == (evolve(waiting, is_established=True, state="Established"),)


def test_a_session_that_does_not_come_up_is_named_and_waited_for_no_longer(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.feed_once()
    scene.look()
    scene.node.clock.sleep(PATIENCE_S - 1)
    assert scene.look().problems == ()
    scene.node.clock.sleep(1)
    outcome = scene.look()
    assert outcome.look_again_s == CHECK_EVERY_S
    message = "the BGP session with b (192.0.2.2) is not established"
    assert outcome.problems == (Problem(message=message, cause="the peer does not answer"),)
    assert scene.node.bgp.find_pending() is None


def test_a_node_that_is_not_ready_is_not_waited_for(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_node(evolve(B, status=NodeStatus(is_ready=False)))
    scene.node.feed_once()
    scene.look()
    assert scene.look().look_again_s == CHECK_EVERY_S
    assert scene.node.bgp.find_pending() is None
    scene.node.put_node(B)
    scene.node.feed_once()
    scene.look()
    assert scene.node.bgp.find_pending() == "BGP sessions come up: Mesh4_192_0_2_2"


def test_another_daemon_on_the_host_is_a_conflict_until_it_is_gone(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.daemon.foreign = "another BIRD runs here"
    scene.node.pass_time(1)
    assert scene.node.bgp.refused == Problem(
        message="BGP is not started",
        cause="another BIRD runs here; stop it",
        event="OtherBGPDaemon",
    )
    scene.daemon.foreign = ""
    scene.node.pass_time(100)
    assert scene.is_running()
    assert scene.node.bgp.refused is None


def test_a_daemon_that_recovers_is_waited_for(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.feed_once()
    scene.start_other()
    scene.daemon.is_recovering = True
    scene.look()
    assert scene.look().look_again_s == POLL_EVERY_S
    assert scene.node.bgp.find_pending() == "the BGP daemon restarts, and waits for the routes of its peers"
    scene.daemon.is_recovering = False
    assert scene.look().look_again_s == CHECK_EVERY_S


def test_what_is_learned_of_a_pool_with_ipip_becomes_a_route_and_stays_while_the_daemon_recovers(scene: Scene) -> None:
    scene.node.put_pool(make_pool("10.9.0.0/16", ipip=Encapsulation.CROSS_SUBNET))
    scene.node.pass_time(60)
    prefix = Prefix.parse("10.9.0.7/32")
    scene.daemon.tunnelled = ((prefix, Address.parse("192.0.2.2")),)
    scene.node.pass_time(60)
    expected = Route(
        destination=prefix, device="eth0", gateway=Address.parse("192.0.2.2"), source=Address.parse("192.0.2.1")
    )
    assert expected in scene.node.kernel.read().routes
    scene.daemon.is_recovering, scene.daemon.tunnelled = True, ()
    scene.node.pass_time(60)
    assert expected in scene.node.kernel.read().routes
    scene.daemon.is_recovering = False
    scene.node.pass_time(60)
    assert expected not in scene.node.kernel.read().routes


def test_a_session_that_breaks_is_named_at_once(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(5)
    scene.start_other()
    scene.node.pass_time(5)
    scene.other.kill()
    scene.node.pass_time(15)
    assert "the BGP session with b (192.0.2.2) is not established" in scene.node.log.texts[-1]


def test_a_daemon_that_ends_is_started_again(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(5)
    scene.daemon.kill()
    scene.node.pass_time(CHECK_EVERY_S + 2)
    assert scene.is_running()
    configurations = scene.daemon.configurations
    scene.node.pass_time(100)
    assert scene.daemon.configurations == configurations


def test_a_new_block_configures_nothing_anew(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(100)
    configurations = scene.daemon.configurations
    scene.node.put_block("10.0.0.0/26", "a")
    scene.node.pass_time(100)
    assert scene.announced() == {"10.0.0.0/26"}
    assert scene.daemon.configurations == configurations


@pytest.mark.parametrize(
    "break_it, repair, text",
    [
        (
            lambda daemon: setattr(daemon, "refusal", "bird.conf:3:1 syntax error"),
            lambda daemon: setattr(daemon, "refusal", ""),
            "the BGP daemon refuses its configuration: bird.conf:3:1 syntax error",
        ),
        (
            lambda daemon: setattr(daemon, "problem", "it hangs"),
            lambda daemon: setattr(daemon, "problem", ""),
            "the BGP daemon: it hangs",
        ),
        (
            lambda daemon: daemon.ports_of_others.add(179),
            lambda daemon: daemon.ports_of_others.clear(),
            "another program listens on port 179; stop it",
        ),
    ],
)
def test_what_the_daemon_does_not_do_is_said_and_tried_again(
    scene: Scene, break_it: Callable[[ScriptedDaemon], None], repair: Callable[[ScriptedDaemon], None], text: str
) -> None:
    break_it(scene.daemon)
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(5)
    assert not scene.is_running()
    assert scene.node.bgp.find_pending() in {None, "the BGP daemon does not run"}
    (line,) = scene.node.log.texts
    assert "BGP sessions are not as they should be; those that there are go on" in line
    assert text in line
    repair(scene.daemon)
    scene.node.pass_time(100)
    assert scene.is_running()


def test_rt31_what_the_daemon_says_of_a_configuration_is_known_until_it_takes_one(scene: Scene) -> None:
    scene.daemon.refusal = "bird.conf:3:1 syntax error"
    scene.node.put_pool(PLAIN)
    scene.node.pass_time(5)
    message = "BGP sessions are not as they should be; those that there are go on"
    cause = "the BGP daemon refuses its configuration: bird.conf:3:1 syntax error"
    assert scene.node.bgp.refused == Problem(message=message, cause=cause)
    scene.daemon.refusal = ""
    scene.node.pass_time(100)
    assert scene.node.bgp.refused is None


def test_a_filter_that_is_deleted_while_a_peer_names_it_closes_the_session(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_resource("BGPFilter", "edge", exportV4=[{"action": "Accept"}])
    scene.node.put_resource("BGPPeer", "router", **ROUTER, filters=["edge"])
    scene.node.pass_time(5)
    assert [one.is_closed for one in sessions(scene) if one.peer == "router"] == [False]
    scene.node.delete(BGP_FILTER.key("edge"))
    scene.node.pass_time(5)
    assert [one.is_closed for one in sessions(scene) if one.peer == "router"] == [True]
    assert "there is no BGPFilter edge that can be used" in scene.node.log.texts[-1]


def sessions(scene: Scene) -> tuple[BgpSession, ...]:
    """What the daemon was given."""
    assert scene.daemon.plan is not None
    return scene.daemon.plan.sessions


def passwords(scene: Scene) -> list[str]:
    """The passwords of the sessions with the router."""
    return [one.password for one in sessions(scene) if one.peer == "router"]


def test_a_password_is_read_again_now_and_then(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_resource("BGPPeer", "router", **ROUTER, password=PASSWORD)
    scene.node.pass_time(5)
    assert passwords(scene) == []
    assert "the member password of the Secret bgp cannot be read" in scene.node.log.texts[-1]
    scene.node.passwords["bgp", "password"] = "one"
    scene.node.pass_time(CHECK_EVERY_S)
    assert passwords(scene) == ["one"]
    scene.node.passwords["bgp", "password"] = "two"
    scene.node.pass_time(SECRETS_EVERY_S + CHECK_EVERY_S)
    assert passwords(scene) == ["two"]
    assert not any("one" in text.split() or "two" in text.split() for text in scene.node.log.texts)


def test_a_password_that_cannot_be_read_for_a_while_stays_what_it_was(scene: Scene) -> None:
    scene.node.put_pool(PLAIN)
    scene.node.put_resource("BGPPeer", "router", **ROUTER, password=PASSWORD)
    scene.node.passwords["bgp", "password"] = "one"
    scene.node.pass_time(5)
    assert passwords(scene) == ["one"]
    scene.node.password_error = Unavailable("Kubernetes", "the server is away")
    scene.node.pass_time(SECRETS_EVERY_S + CHECK_EVERY_S)
    assert passwords(scene) == ["one"]
    assert any("Kubernetes: the server is away" in text for text in scene.node.log.texts)
