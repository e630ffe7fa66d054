"""``pool drain`` and ``pool resize``: what they print for people and programs, and how they exit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import count

import pytest
from attrs import define, evolve, field

from netplug_cli.ctl.commands.pool import EXIT_WAITING, DrainReport, holder_lines
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.errors import Unavailable
from netplug_core.flows.resources.drain import DrainProgress
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key
from netplug_core.ipam.reporting.drain_plan import DrainStep, DrainView, HeldAddress, marked
from netplug_core.records import Create, Delete, Get, Record, Revision
from netplug_core.resources.ippool import ippool_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import RunBefore
from tests.harness.ctl import ToolHarness
from tests.harness.resources import make_pool

IN_USE = Prefix.parse("10.65.0.0/26")
UNUSED = Prefix.parse("10.65.0.64/26")
TABLE = """NODE     NAMESPACE   ADDRESSES   HELD BY
node-a   shop        2           web-0, web-1
node-b   -           1           net.c
"""
WAITING = "IPPool(blue) waits for 3 addresses in use, in 1 block\n"
DISABLED = "IPPool(blue) disabled: no new address of 10.65.0.0/24 is assigned\n"
RELEASED = "IPPool(blue): unused blocks released: 1\n"
NOT_YET = (
    "netplugctl: IPPool(blue) is not deleted yet: it waits for 3 addresses in use, in 1 block; run the command again "
    "to go on; netplugctl pool drain blue --undo enables the pool again\n"
)


@define
class ChurnClock(ManualClock):
    """A clock during whose waits something happens."""

    on_sleep: Callable[[], object] = field(kw_only=True)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.on_sleep()


def attribute(pod: str) -> Attribute:
    return Attribute(handle=f"net.{pod}", owner=(("namespace", "shop"), ("node", "node-a"), ("pod", pod)))


@pytest.fixture
def blue(harness: ToolHarness) -> ToolHarness:
    """The pools blue, with three addresses in use and an unused block, and red, unused."""
    harness.run_command("create", "-f", harness.write_pools(("blue", "10.65.0.0/24"), ("red", "10.67.0.0/24")))
    block = Block.new(IN_USE, owner="host:node-a", now_ns=SECOND_NS)
    block = block.assign((Ordinal(4),), attribute("web-0")).assign((Ordinal(7),), attribute("web-1"))
    block = block.assign((Ordinal(9),), Attribute(handle="net.c", owner=(("node", "node-b"),)))
    unused = Block.new(UNUSED, owner="host:node-a", now_ns=SECOND_NS)
    affinities = (affinity_key("host:node-a", prefix) for prefix in (IN_USE, UNUSED))
    claims = (Create(key, Affinity(state=AffinityState.CONFIRMED)) for key in affinities)
    harness.store_records(*claims, Create(block.key, block), Create(unused.key, unused))
    return harness


def remove_block(harness: ToolHarness) -> None:
    """The workloads go."""
    deadline = Deadline.after(harness.clock, 5)
    affinity, block = affinity_key("host:node-a", IN_USE), Block.new(IN_USE, owner="", now_ns=1).key
    snapshot = harness.store.read([Get(affinity), Get(block)], deadline=deadline)
    found = (snapshot.find(affinity), snapshot.find(block))
    harness.store.commit([Delete(each.key, each.revision) for each in found if each], deadline=deadline)


def events(harness: ToolHarness) -> list[dict[str, object]]:
    return [json.loads(line) for line in harness.out.splitlines()]


# --- drain ------------------------------------------------------------------------------------------------------------


def test_a_drain_is_run_until_the_pool_is_gone(blue: ToolHarness) -> None:
    assert blue.run_command("pool", "drain", "blue", "--delete") == EXIT_WAITING
    assert (blue.out, blue.err) == (DISABLED + RELEASED + WAITING + TABLE, NOT_YET)
    assert blue.run_command("pool", "drain", "blue", "--delete") == EXIT_WAITING
    assert (blue.out, blue.err) == (WAITING + TABLE, NOT_YET)
    remove_block(blue)
    assert blue.run_command("pool", "drain", "blue", "--delete") == 0
    assert (blue.out, blue.err) == ("IPPool(blue) deleted\n", "")
    assert blue.run_command("pool", "drain", "blue", "--delete") == 1
    assert blue.err == "netplugctl: resource does not exist: IPPool(blue)\n"
    assert blue.run_command("pool", "drain", "blue", "--delete", "--skip-not-exists") == 0
    assert blue.err == "netplugctl: resource does not exist: IPPool(blue)\n"
    assert blue.run_command("pool", "drain", "blue", "--delete", "-s", "-o", "json") == 0
    assert events(blue) == [{"event": "deleted", "pool": "blue"}]


def test_a_pool_that_is_drained_stays_empty_and_disabled(blue: ToolHarness) -> None:
    empty = (
        "IPPool({0}) is empty, and disabled: netplugctl pool drain {0} --delete deletes it, "
        "netplugctl pool drain {0} --undo enables it again\n"
    )
    not_yet = NOT_YET.replace("is not deleted yet", "is not empty yet")
    assert blue.run_command("pool", "drain", "blue") == EXIT_WAITING
    assert (blue.out, blue.err) == (DISABLED + RELEASED + WAITING + TABLE, not_yet)
    remove_block(blue)
    for _time in range(2):
        assert blue.run_command("pool", "drain", "blue") == 0
        assert (blue.out, blue.err) == (empty.format("blue"), "")
    assert blue.run_command("pool", "drain", "blue", "-o", "json", "--wait") == 0
    assert events(blue) == [{"event": "empty", "pool": "blue"}]
    assert blue.run_command("get", "ippool", "blue", "-o", "yaml") == 0
    assert "disabled: true" in blue.out
    assert blue.run_command("pool", "drain", "blue", "--delete") == 0
    assert blue.out == "IPPool(blue) deleted\n"


def test_an_idle_pool_is_not_deleted_unless_asked_to(blue: ToolHarness) -> None:
    assert blue.run_command("pool", "drain", "red", "--dry-run") == 0
    assert blue.out == "1. disable IPPool(red): no new address of 10.67.0.0/24 is assigned\n"
    assert blue.run_command("pool", "drain", "red") == 0
    assert blue.out.startswith("IPPool(red) disabled: no new address of 10.67.0.0/24 is assigned\nIPPool(red) is empty")
    assert blue.run_command("pool", "drain", "red", "--undo") == 0
    assert blue.run_command("get", "ippool", "red") == 0


def test_a_dry_run_prints_the_plan_and_changes_nothing(blue: ToolHarness) -> None:
    commits = blue.store.calls.commits
    assert blue.run_command("pool", "drain", "blue", "--delete", "--dry-run") == 0
    steps = (
        "1. disable IPPool(blue): no new address of 10.65.0.0/24 is assigned\n"
        "2. release its unused blocks: 1\n"
        "3. wait for 3 addresses in use, in 1 block\n"
        "4. delete it\n"
    )
    assert (blue.out, blue.err, blue.store.calls.commits) == (steps + TABLE, "", commits)
    assert blue.run_command("pool", "drain", "red", "--delete", "--dry-run") == 0
    assert blue.out.splitlines()[1:] == ["2. delete it"]
    blue.run_command("pool", "drain", "blue", "--delete")
    blue.run_command("pool", "drain", "blue", "--delete", "--dry-run")
    assert blue.out.startswith(
        "1. done: disable IPPool(blue): no new address of 10.65.0.0/24 is assigned\n2. wait for 3"
    )


def test_the_events_are_a_line_of_json_each(blue: ToolHarness) -> None:
    assert blue.run_command("pool", "drain", "blue", "--delete", "--dry-run", "-o", "json") == 0
    (plan,) = events(blue)
    assert (plan["event"], plan["disabled"], plan["unusedBlocks"], plan["cidr"]) == ("plan", False, 1, "10.65.0.0/24")
    assert blue.run_command("pool", "drain", "blue", "--delete", "-o", "json") == EXIT_WAITING
    disabled, released, waiting = events(blue)
    assert disabled == {"event": "disabled", "pool": "blue", "cidr": "10.65.0.0/24"}
    assert released == {"event": "released", "pool": "blue", "blocks": 1}
    held = waiting.pop("held")
    assert waiting == {
        "event": "waiting", "pool": "blue", "addresses": 3, "blocks": 1, "cooling": 0, "cooldownEnds": None,
        "finalizers": [],
    }  # fmt: skip
    assert isinstance(held, list)
    assert held[0] == {
        "address": "10.65.0.4", "node": "node-a", "namespace": "shop", "name": "web-0", "handle": "net.web-0",
    }  # fmt: skip
    assert {key: plan[key] for key in ("addresses", "held")} == {"addresses": 3, "held": held}
    assert blue.err == ""


def test_a_drain_waits_until_the_timeout(blue: ToolHarness) -> None:
    before = blue.clock.monotonic()
    assert blue.run_command("pool", "drain", "blue", "--delete", "--wait", "--timeout", "1m") == EXIT_WAITING
    assert blue.clock.monotonic() - before == 60
    assert (blue.out, blue.err) == (DISABLED + RELEASED + WAITING + TABLE, NOT_YET)


def test_a_drain_that_waits_reports_what_has_changed(blue: ToolHarness) -> None:
    blue.clock = ChurnClock(on_sleep=lambda: remove_block(blue))
    assert blue.run_command("pool", "drain", "blue", "--delete", "--wait") == 0
    assert (blue.out, blue.err) == (DISABLED + RELEASED + WAITING + TABLE + "IPPool(blue) deleted\n", "")


@pytest.mark.parametrize("is_json", [False, True])
def test_a_datastore_that_is_away_is_reported_once(capsys: pytest.CaptureFixture[str], *, is_json: bool) -> None:
    made = DrainReport(pool="IPPool(blue)", name="blue", is_json=is_json, clock=ManualClock())
    away = DrainProgress(step=DrainStep.WAIT, view=None, problem=Unavailable("etcd", "no reply"))
    for progress in (away, away, waiting(held(1)), away):
        made.show(progress)
    captured = capsys.readouterr()
    if is_json:
        line = {"event": "retrying", "pool": "blue", "problem": "etcd: no reply"}
        assert [json.loads(each) for each in captured.out.splitlines()].count(line) == 2
    else:
        assert captured.err == 2 * "netplugctl: IPPool(blue): etcd: no reply; it is tried again\n"
    assert made.end() == EXIT_WAITING


def test_a_pool_that_no_other_can_replace_is_warned_about(blue: ToolHarness) -> None:
    blue.run_command("delete", "ippool", "red")
    warning = "IPPool(blue): no other enabled IPv4 pool serves Workload, Tunnel; new requests will be refused"
    blue.run_command("pool", "drain", "blue", "--delete", "--dry-run")
    assert blue.err == f"netplugctl: warning: {warning}\n"
    blue.run_command("pool", "drain", "blue", "--delete", "--dry-run", "-o", "json")
    assert events(blue)[0] == {"event": "warning", "pool": "blue", "message": warning}


def test_a_drain_is_undone(blue: ToolHarness) -> None:
    before = blue.run_command("get", "ippool", "blue", "-o", "yaml"), blue.out.split("resourceVersion")[0]
    blue.run_command("pool", "drain", "blue")
    assert blue.run_command("pool", "drain", "blue", "--undo") == 0
    assert (blue.out, blue.err) == ("IPPool(blue) is not drained any more\n", "")
    assert (blue.run_command("get", "ippool", "blue", "-o", "yaml"), blue.out.split("resourceVersion")[0]) == before
    assert blue.run_command("pool", "drain", "blue", "--undo") == 0
    assert blue.err == "netplugctl: IPPool(blue) is not being drained; nothing is changed\n"


def test_a_drain_that_another_user_undoes_is_an_error(blue: ToolHarness) -> None:
    other = another_user(blue)
    blue.clock = ChurnClock(on_sleep=lambda: other.run_command("pool", "drain", "blue", "--undo"))
    assert blue.run_command("pool", "drain", "blue", "--wait") == 1
    assert blue.err == "netplugctl: IPPool(blue) was enabled again meanwhile; it is not drained any more\n"


def test_a_locked_datastore_is_refused(blue: ToolHarness) -> None:
    blue.set_locked()
    assert blue.run_command("pool", "drain", "red") == 1
    assert "datastoreReady is false" in blue.err
    assert blue.out == ""


@pytest.mark.parametrize(
    "words, problem",
    [
        (("drain", "blue", "--timeout", "1m"), "--timeout is for --wait."),
        (("drain", "blue", "--wait", "--timeout", "soon"), "'soon' is not a duration"),
        (("drain", "blue", "--undo", "--wait"), "--undo is used alone."),
        (("drain", "blue", "--undo", "--delete"), "--undo is used alone."),
        (("drain",), "Missing argument 'NAME'"),
        (("resize", "blue", "--cidr", "10.1.0.0/16"), "Missing option '--successor'"),
        (("resize", "blue", "--successor", "green"), "Give --cidr, --block-size, or both."),
        (
            ("resize", "blue", "--successor", "green", "--cidr", "10.1.0.1/16"),
            "10.1.0.0/16 is the prefix that holds it; a CIDR such as 10.1.0.0/16 is expected",
        ),
        (("resize", "blue", "--successor", "green", "--cidr", "10.1.0.0/16", "--timeout", "1s"), "--timeout is for"),
    ],
)
def test_wrong_usage(blue: ToolHarness, words: tuple[str, ...], problem: str) -> None:
    assert blue.run_command("pool", *words) == 2
    assert problem in blue.err
    assert blue.out == ""


# --- resize -----------------------------------------------------------------------------------------------------------

RESIZE = ("pool", "resize", "blue", "--successor", "green", "--cidr", "10.66.0.0/23", "--block-size", "27")


def test_a_resize_creates_the_successor_and_drains_the_old_pool(blue: ToolHarness) -> None:
    assert blue.run_command(*RESIZE, "--dry-run") == 0
    assert blue.out.startswith("1. create IPPool(green): 10.66.0.0/23, blockSize 27\n2. disable IPPool(blue)")
    assert blue.run_command(*RESIZE) == EXIT_WAITING
    created = "IPPool(green) created: 10.66.0.0/23\n"
    assert (blue.out, blue.err) == (created + DISABLED + RELEASED + WAITING + TABLE, NOT_YET)
    assert blue.run_command(*RESIZE, "--dry-run") == 0
    assert blue.out.startswith("1. done: create IPPool(green): 10.66.0.0/23, blockSize 27\n2. done: disable")
    remove_block(blue)
    assert blue.run_command(*RESIZE) == 0
    assert blue.out == "IPPool(blue) deleted\n"
    assert blue.run_command(*RESIZE) == 0
    assert blue.err == "netplugctl: IPPool(blue) is gone already, and IPPool(green) has taken its place\n"


def test_the_events_of_a_resize(blue: ToolHarness) -> None:
    assert blue.run_command(*RESIZE, "--dry-run", "-o", "json") == 0
    successor = {"name": "green", "cidr": "10.66.0.0/23", "blockSize": 27, "created": False}
    assert events(blue)[0]["successor"] == successor
    blue.run_command(*RESIZE, "-o", "json")
    assert events(blue)[0] == {"event": "created", "pool": "blue", "successor": "green", "cidr": "10.66.0.0/23"}
    assert [event["event"] for event in events(blue)] == ["created", "disabled", "released", "waiting"]


def test_a_size_that_is_refused_changes_nothing(blue: ToolHarness) -> None:
    commits = blue.store.calls.commits
    assert blue.run_command("pool", "resize", "blue", "--successor", "green", "--block-size", "27") == 1
    assert blue.err.startswith("netplugctl: IPPool(blue): another block size needs another pool")
    assert (blue.out, blue.store.calls.commits) == ("", commits)


def test_warnings_about_the_successor_are_shown(blue: ToolHarness) -> None:
    size = ("--cidr", "10.70.0.0/16", "--block-size", "22")
    blue.run_command("pool", "resize", "blue", "--successor", "green", *size)
    assert "warning: IPPool(green): blockSize 22" in blue.err


def another_user(blue: ToolHarness) -> ToolHarness:
    return ToolHarness(blue.folder, blue.capsys, blue.clock, blue.store, numbers=count(100))


def test_another_run_may_create_the_successor_first(blue: ToolHarness) -> None:
    """The successor appears between the look and the creation."""
    other = another_user(blue)

    def create_first() -> None:
        assert other.run_command(*RESIZE) == EXIT_WAITING

    blue.faults[1] = RunBefore(create_first)
    assert blue.run_command(*RESIZE) == EXIT_WAITING
    assert (blue.out, blue.err) == (WAITING + TABLE, NOT_YET)


def test_another_pool_may_take_the_name_of_the_successor(blue: ToolHarness) -> None:
    other = another_user(blue)
    file = other.write_pools(("green", "10.99.0.0/24"))
    blue.faults[1] = RunBefore(lambda: other.run_command("create", "-f", file))
    assert blue.run_command(*RESIZE) == 1
    assert blue.err.startswith(
        "netplugctl: resource already exists: IPPool(green); it is not the successor of IPPool(blue)"
    )


# --- the report -------------------------------------------------------------------------------------------------------


def held(number: int, node: str = "n1") -> HeldAddress:
    address = Address.parse(f"10.0.0.{number}")
    return HeldAddress(address=address, node=node, namespace="shop", name=f"web-{number}", handle=f"h{number}")


def waiting(*addresses: HeldAddress, cooling: int = 0, finalizers: tuple[str, ...] = ()) -> DrainProgress:
    pool = marked(make_pool("10.0.0.0/24", "blue"))
    pool = evolve(pool, metadata=evolve(pool.metadata, finalizers=finalizers))
    view = DrainView(
        pool=Record(ippool_key("blue"), pool, Revision("1")),
        held=addresses,
        cooling=cooling,
        cooldown_ends_ns=90 * SECOND_NS if cooling else None,
        blocks_in_use=2,
        affinities=(),
        ownerless=(),
    )
    return DrainProgress(step=DrainStep.WAIT, view=view)


def report(*steps: DrainProgress) -> int:
    clock = ManualClock()
    made = DrainReport(pool="IPPool(blue)", name="blue", is_json=False, clock=clock)
    for step in steps:
        made.show(step)
        clock.sleep(90)
    return made.end()


def test_elsewhere_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    gone = DrainProgress(step=DrainStep.DELETE, view=None)
    assert report(waiting(held(1), held(2)), waiting(held(1)), waiting(held(1)), gone) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "IPPool(blue) waits for 2 addresses in use, in 2 blocks"
    assert out.splitlines()[-1] == "IPPool(blue) deleted"
    assert err == "netplugctl: IPPool(blue) waits for 1 address in use, in 2 blocks\n"


def test_on_a_terminal_the_line_is_updated_in_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert report(waiting(held(1), held(2)), waiting(held(1)), waiting(cooling=1)) == EXIT_WAITING
    err = capsys.readouterr().err
    updates, rest = err.split("\n", 1)
    assert updates.split("\r\x1b[K")[1:] == [
        "netplugctl: IPPool(blue) waits for 1 address in use, in 2 blocks, about 1m30s left",
        "netplugctl: IPPool(blue) waits for 1 address in cooldown until 1970-01-01T00:01:30Z",
    ]
    assert rest.startswith("netplugctl: IPPool(blue) is not deleted yet: it waits for 1 address in cooldown until")


def test_what_else_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    report(waiting(finalizers=("a.b/c", "d.e/f")))
    assert capsys.readouterr().out == "IPPool(blue) waits for the finalizers of its deletion: a.b/c, d.e/f\n"
    report(waiting(held(1), cooling=2))
    assert capsys.readouterr().out.startswith(
        "IPPool(blue) waits for 1 address in use, in 2 blocks and 2 addresses in cooldown until 1970-01-01T00:01:30Z\n"
    )


def test_an_ordered_store_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    view = waiting(held(1)).view
    report(DrainProgress(step=DrainStep.SETTLE, view=view))
    assert capsys.readouterr().err == "netplugctl: waiting 10 s, until every ADD that began before has ended\n"
    made = DrainReport(pool="IPPool(blue)", name="blue", is_json=True, clock=ManualClock())
    made.show(DrainProgress(step=DrainStep.SETTLE, view=view))
    assert json.loads(capsys.readouterr().out) == {"event": "settling", "pool": "blue", "seconds": 10.0}


def test_holders_are_grouped_and_cut() -> None:
    assert holder_lines(()) == []
    lines = holder_lines([*(held(number) for number in range(30)), held(31, "n0")])
    assert [line.split()[:3] for line in lines[1:]] == [["n0", "shop", "1"], ["n1", "shop", "30"]]
    assert lines[2].endswith("...")
