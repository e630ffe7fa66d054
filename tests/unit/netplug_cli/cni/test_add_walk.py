"""The way of an ADD through the code: how many modules of ours it enters, and how often it goes from room to room.

A module counts when one of its functions or methods is called; methods that attrs generates do not count. Values count
like everything else. Three things do not count: the flat modules of the core, such as ``addressing`` and ``records``,
which are the vocabulary of all others; what a backend does behind its interface; ``netplug_backends``, whose memory
backends stand here for those of a host. The composition root is replaced here, so its modules are added.
``pytest -rP`` shows the walk, with all modules.

A room is a folder. An ADD never enters a room that is at work further out, and never returns to one that it left.
Both laws are about steps. The vocabulary is none, nor are the resources, the stored records and the values below: they
answer from what their caller holds. The reader of ``decoding`` is a tool of the rooms that have tables. Functions that
one room hands to another to be called are listed below, and so are the two returns that are by design.
"""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from netplug_backends.host.log_file import LogFile
from netplug_cli.cni.main import serve
from netplug_core.flows.world import CNIWorld
from tests.harness.cni_node import CNINodeHarness, ContainerInterface
from tests.harness.walk import FLAT, Crossing, Walk, is_step, modules_of, recorded

MAX_MODULES, MAX_CROSSINGS = 30, 25
REPLACED = (
    "netplug_cli.wiring.cni",
    "netplug_cli.wiring.backends",
    "netplug_cli.cni.method_cache",
    "netplug_core.registry",
)
"""What opens the world of an executable."""

CALLBACKS = {
    "netplug_cli.cni.main._read_stdin": "the process hands its input to the invocation",
    "netplug_core.flows.ipam.service.BlockIPAM.assign.<locals>.decided": "the transaction calls the rule",
    "netplug_core.flows.ipam.service._CommitRecord.note_read": "the transaction tells what it read",
    "netplug_core.flows.ipam.service._CommitRecord.note_commit": "the transaction tells what it committed",
    "netplug_core.flows.cni.add._noting_former.<locals>.writes": "the flow looks at the endpoint that is replaced",
    "netplug_core.workload.endpoint_upsert.<locals>.writes": "the endpoint's part of the rule",
}
RETURNS = {
    "netplug_core.cni.dispatch.answer_at_once": "VERSION is answered by the executable before anything else is loaded",
    "netplug_core.cni.result.render_result": "the result is rendered at the end, for the version of the call",
    "netplug_core.ipam.allocation.decide.decide": "by design: ``queries`` says what to read before it is read",
    "netplug_core.dataplane.plan.plan": "the attachment is planned for the addresses, after the MTU was judged",
    "netplug_core.workload.find_former_container": "looks at the endpoint that the commit replaces",
    "netplug_core.workload.build_endpoint": "the endpoint has the addresses, so it comes after them",
    "netplug_core.dataplane.plan.find_mtu_problem": "before the assignment for what is asked for, then for what came",
}
CONTAINER = ContainerInterface()
ENVIRONMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": CONTAINER.id,
    "CNI_NETNS": CONTAINER.netns,
    "CNI_IFNAME": CONTAINER.ifname,
    "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1",
    "CNI_PATH": "/opt/cni/bin",
}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> CNINodeHarness:
    harness = CNINodeHarness()
    harness.add_pool("main", "10.0.0.0/24")
    harness.set_ready(is_ready=True)
    harness.dataplane.add_namespace(CONTAINER.netns)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["/opt/cni/bin/netplug"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(harness.config).encode())))
    return harness


def new_walk() -> Walk:
    return Walk(is_step=is_step, is_callback=CALLBACKS.__contains__)


def walk_an_add(node: CNINodeHarness, capfd: pytest.CaptureFixture[str]) -> Walk:
    @contextmanager
    def open_world(_netconf: object, _log: object, _request: object) -> Iterator[CNIWorld]:
        yield node.world

    walk = new_walk()
    with recorded(walk):
        status = serve(open_world, LogFile, is_own_namespace=lambda _path: False)
    assert status == 0, capfd.readouterr()
    return walk


def test_an_add_enters_few_modules(node: CNINodeHarness, capfd: pytest.CaptureFixture[str]) -> None:
    walk = walk_an_add(node, capfd)
    flat = {f"netplug_core.{name}" for name in FLAT}
    for name, function in walk.entered.items():
        sys.stdout.write(f"{'      ' if name in flat else 'counts'} {name}: {function}\n")
    assert all(find_spec(name) and name not in walk.entered for name in REPLACED)
    counted = {*modules_of(walk), *REPLACED}
    sys.stdout.write(f"{len(counted)} modules, {walk.crossings} times from room to room\n")
    assert len(counted) <= MAX_MODULES, sorted(counted)
    assert walk.crossings <= MAX_CROSSINGS


def test_an_add_returns_to_no_room(node: CNINodeHarness, capfd: pytest.CaptureFixture[str]) -> None:
    walk = walk_an_add(node, capfd)
    assert walk.cycles == []
    assert [crossing for crossing in walk.returns if crossing.function not in RETURNS] == []
    assert {crossing.function for crossing in walk.returns} == set(RETURNS), "a listed return is none any more"
    assert walk.callbacks == set(CALLBACKS), "a listed callback is none any more"


# --- the laws can fail ---------------------------------------------------------------------------------------------


def walked(*calls: str) -> Walk:
    """A walk of modules ``netplug.ROOM.module``: ``a`` calls a function in room ``a``, an empty text returns."""
    walk = Walk(is_step=lambda _name: True, is_callback="netplug.back.module.function".__eq__)
    for call in calls:
        if call:
            walk.enter(f"netplug.{call}.module", "function")
        else:
            walk.leave()
    return walk


def crossing(caller: str, room: str) -> Crossing:
    return Crossing(f"netplug.{caller}", f"netplug.{room}", f"netplug.{room}.module.function")


def test_a_room_that_is_entered_from_further_in_is_a_cycle() -> None:
    assert walked("a", "b", "a").cycles == [crossing("b", "a")]
    assert walked("a", "b", "b", "c").cycles == []


def test_a_room_that_is_entered_after_another_is_a_return() -> None:
    assert walked("a", "b", "", "c", "", "b").returns == [crossing("a", "b")]
    assert walked("a", "b", "", "c", "b").returns == [crossing("c", "b")]
    assert walked("a", "b", "", "b", "", "c").returns == []


def test_a_callback_may_enter_what_is_at_work_around_it() -> None:
    around = walked("a", "b", "back", "a")
    assert (around.cycles, around.returns, around.callbacks) == ([], [], {"netplug.back.module.function"})
    assert walked("a", "back", "b", "c", "b").cycles == [crossing("c", "b")]
