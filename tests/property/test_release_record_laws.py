"""Release records: whatever else lies in their folder, those of a reachable datastore are done.

Laws (R1): any subset of damaged records leaves the rest serving, in the form of this release or an earlier one, and is
one line of log; no record of another store is read, changed or lost; nothing is done that no record asks for.
"""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from netplug_core.cni.dispatch import Plugin
from netplug_core.errors import Unavailable
from netplug_core.flows.cni.release_records import locations_of, replay, take_over
from netplug_core.flows.world import ReplayTime
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from tests.harness.cni_node import CNINodeHarness, ContainerInterface
from tests.harness.stores import HookedStore

FOLDER = NetConf().release_record_dir
DAMAGE = st.one_of(
    st.sampled_from(["", "{", "{}", "[]", "null", '{"datastore": 1}']),
    st.text(max_size=30),
    st.builds(lambda number: OSError(number, "it cannot be read"), st.sampled_from([5, 13, 22])),
)
STATES = st.lists(st.tuples(st.booleans(), st.none() | DAMAGE), max_size=6)  # of an earlier release; its damage


def refuse() -> None:
    raise Unavailable("the store", "connection refused")


def containers(count: int, prefix: str) -> list[ContainerInterface]:
    return [ContainerInterface(id=f"{prefix}{n}", netns=f"/run/netns/{prefix}{n}") for n in range(count)]


def with_records(states: list[tuple[bool, str | OSError | None]]) -> CNINodeHarness:
    """A node with a record for each state, and a container that lives."""
    harness = CNINodeHarness(replay_time=ReplayTime.BY_TASK)
    harness.add_pool("main", "10.0.0.0/24")
    made = containers(len(states), "c")
    for container in (*made, *containers(1, "alive")):
        harness.add(container)
    harness.store = HookedStore(harness.memory, before_read=refuse, before_commit=refuse)
    for number, (container, (is_former, damage)) in enumerate(zip(made, states, strict=True)):
        before = set(harness.release_records())
        harness.run("DEL", container)
        (name,) = set(harness.release_records()) - before
        path = f"{FOLDER}/{name}"
        if is_former:
            text = harness.host.texts.pop(path)
            path = f"{FOLDER}/{number:020}-{name.rpartition('/')[2]}"
            harness.host.texts[path] = text
        if damage is not None:
            harness.host.texts[path] = damage
    harness.store = harness.memory
    return harness


@given(states=STATES, foreign=st.lists(DAMAGE, max_size=5))
def test_r1_damaged_and_foreign_records_leave_the_rest_serving(
    states: list[tuple[bool, str | OSError | None]], foreign: list[str | OSError]
) -> None:
    harness = with_records(states)
    others = {f"{FOLDER}/stores/etcdv3-{n % 2}/{n:026}.json": text for n, text in enumerate(foreign)}
    harness.host.texts |= others
    harness.log.lines.clear()
    _request, netconf = harness.make_call("DEL", containers(1, "x")[0], Plugin.MAIN)
    take_over(harness.record_files, harness.log)
    for _ in range(2):
        assert replay(harness.world, netconf, seconds=5)
    left = {f"net1.c{n}" for n, (_is_former, damage) in enumerate(states) if damage is not None}
    assert set(harness.handles()) == {"net1.alive0", *left}
    assert {path: text for path, text in harness.host.texts.items() if path in others} == others
    assert harness.record_files.names(locations_of(netconf)[0]) == ()
    moved = sum(message == "a release record cannot be moved" for message in harness.log.of(Level.WARNING))
    assert moved == sum(is_former and isinstance(damage, OSError) for is_former, damage in states)
    assert len(harness.log.of(Level.WARNING)) - moved <= 1


@given(states=STATES)
def test_r1_each_call_of_the_attachment_itself_goes_on(states: list[tuple[bool, str | OSError | None]]) -> None:
    """An ADD begins with nothing, whatever its own record looks like, and no later replay takes it away."""
    harness = with_records(states)
    for container in containers(len(states), "c"):
        harness.add(container)
    held = harness.allocations()
    assert len(held) == len(states) + 1
    _request, netconf = harness.make_call("DEL", containers(1, "x")[0], Plugin.MAIN)
    readable = [path for path, text in harness.host.texts.items() if path.endswith(".json") and is_record(text)]
    assert readable == []
    take_over(harness.record_files, harness.log)
    replay(harness.world, netconf, seconds=5)
    assert harness.allocations() == held


def is_record(text: str | OSError) -> bool:
    try:
        return isinstance(text, str) and "workload" in json.loads(text)
    except (ValueError, TypeError):
        return False
