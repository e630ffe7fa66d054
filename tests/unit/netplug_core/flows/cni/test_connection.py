"""The test of what a configuration connects to: silent, or the first one that does not answer."""

import pytest

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.clock import Deadline
from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import Unavailable
from netplug_core.flows.cni.status import require_connection
from netplug_core.orchestrator.model import NodeFacts
from tests.harness.cni_node import DEFAULT_CONTAINER, NODE, CNINodeHarness

ACCESS = {"kubernetes": {"k8s_api_root": "http://127.0.0.1:1"}}


class _AwayOrchestrator(MemoryOrchestrator):
    """Does not answer; ``asked`` are the nodes that it was asked for."""

    asked: tuple[str, ...] = ()

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        self.asked = (*self.asked, name)
        raise Unavailable("the API server", "Connection refused")


def probe(harness: CNINodeHarness, **changes: object) -> None:
    _request, netconf = harness.make_call("STATUS", DEFAULT_CONTAINER, Plugin.MAIN, **changes)
    require_connection(harness.world, netconf)


def test_check_26_what_answers_and_is_ready_is_silent(harness: CNINodeHarness) -> None:
    probe(harness)
    harness.orchestrator = MemoryOrchestrator(clock=harness.clock)
    probe(harness, **ACCESS)
    assert harness.memory.calls.commits == 2, "the fixture's two pools"


def test_check_26_a_locked_datastore_is_named(harness: CNINodeHarness) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable, match="pod networking is locked"):
        probe(harness)


def test_an_api_server_beside_the_datastore_is_asked_for_the_node(harness: CNINodeHarness) -> None:
    """Where it is the datastore, it has answered already."""
    harness.orchestrator = away = _AwayOrchestrator(clock=harness.clock)
    for access in (ACCESS, {"kubernetes": {**ACCESS["kubernetes"], "node_name": "other"}}):
        with pytest.raises(Unavailable, match="the API server"):
            probe(harness, **access)
    assert away.asked == (NODE, "other")
    probe(harness, datastore_type="kubernetes", sqlite_path=None, **ACCESS)
