"""``ipam check``: what it prints, and how it exits."""

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.ctl.tables import attempt_line
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.flows.ipam.check import RepairAttempt, RepairResult
from netplug_core.ipam.model import (
    Affinity,
    AffinityState,
    Attribute,
    Block,
    Handle,
    affinity_key,
    block_key,
    handle_key,
)
from netplug_core.ipam.reporting.check import DeleteDamaged
from netplug_core.records import Create, Get, Revision, Update
from netplug_core.resources.kinds import key_of
from tests.harness.ctl import ToolHarness
from tests.harness.resources import ENDPOINT, make_pool

PREFIX = Prefix.parse("10.0.0.0/26")
CHECKED = "Checked 1 blocks with 1 addresses in use, 2 handles, 0 affinities.\n"


@pytest.fixture
def broken(harness: ToolHarness) -> ToolHarness:
    """One pod, whose block has lost its affinity, and a handle that leads nowhere."""
    block = Block.new(PREFIX, owner="host:a", now_ns=1)
    block = block.assign((Ordinal(0),), Attribute(handle="net.a", owner=(("node", "a"),)))
    pool = make_pool("10.0.0.0/24")
    harness.store_records(
        Create(pool.key, pool),
        Create(block.key, block),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(handle_key("net.z"), Handle(blocks=((PREFIX, 1),))),
    )
    return harness


@pytest.mark.parametrize("options", [(), ("--fix", "--dry-run")])
def test_a_check_says_what_fix_would_do_and_changes_nothing(broken: ToolHarness, options: tuple[str, ...]) -> None:
    for _time in range(2):
        assert broken.run_command("ipam", "check", *options) == 1
        assert broken.out == (
            f"{CHECKED}"
            "--fix would repair handle net.z: its counts differ from its blocks\n"
            "--fix would restore the affinity of host:a for block 10.0.0.0/26: it is missing or damaged\n"
            "Check complete; found 2 problems; --fix can repair 2 of them.\n"
        )
        assert broken.err == ""


def test_fix_repairs_and_then_nothing_is_found(broken: ToolHarness) -> None:
    assert broken.run_command("ipam", "check", "--fix") == 0
    assert broken.out == (
        f"{CHECKED}"
        "Check complete; found 2 problems; --fix can repair 2 of them.\n"
        "repaired: repair handle net.z: its counts differ from its blocks\n"
        "repaired: restore the affinity of host:a for block 10.0.0.0/26: it is missing or damaged\n"
    )
    assert broken.run_command("ipam", "check") == 0
    assert broken.out == (
        "Checked 1 blocks with 1 addresses in use, 1 handles, 1 affinities.\nCheck complete; found no problems.\n"
    )
    assert broken.run_command("ipam", "check", "--fix") == 0


def test_a_handle_that_counts_too_much_is_listed_and_is_no_problem(broken: ToolHarness) -> None:
    assert broken.run_command("ipam", "check", "--fix") == 0
    query = Get(handle_key("net.a"))
    held = broken.store.read((query,), deadline=Deadline.after(broken.clock, 1)).find(query)
    assert held is not None
    too_much = Update(held.key, Handle(blocks=((PREFIX, 4),)), held.revision)
    broken.store.commit((too_much,), deadline=Deadline.after(broken.clock, 1))
    assert broken.run_command("ipam", "check") == 0
    assert broken.out == (
        "Checked 1 blocks with 1 addresses in use, 1 handles, 1 affinities.\n"
        "1 handles count more than they hold, which is no problem: their next ADD or DEL corrects them, or --fix.\n"
        "Check complete; found no problems.\n"
    )
    assert broken.run_command("ipam", "check", "--fix") == 0
    assert "repaired: repair handle net.a: its counts differ from its blocks\n" in broken.out
    assert broken.run_command("ipam", "check") == 0
    assert "count more" not in broken.out


def test_an_address_in_no_pool_is_a_problem(broken: ToolHarness) -> None:
    assert broken.run_command("ipam", "check", "--fix") == 0
    assert broken.run_command("delete", "ippool", "p") == 0
    assert broken.run_command("ipam", "check", "--fix") == 1
    assert (
        "not repairable: block 10.0.0.0/26: 10.0.0.0 is held, and in no pool; create a pool with block size 26 "
        "around the block, or let its workloads end\n"
        "Check complete; found 1 problems; --fix can repair 0 of them.\n"
    ) in broken.out


def test_a_store_that_writes_one_record_at_a_time_is_given_time(broken: ToolHarness) -> None:
    ordered = MemoryDatastore(MemoryMode.ORDERED, clock=broken.clock)
    affinity = affinity_key("host:a", PREFIX)
    broken.store = ordered
    broken.store_records(Create(affinity, Affinity(state=AffinityState.PENDING)))
    began = broken.clock.monotonic()
    assert broken.run_command("ipam", "check", "--fix") == 0
    assert broken.err == "netplugctl: waiting 90 s, so that no running ADD is taken for damage\n"
    assert broken.clock.monotonic() - began == 90
    assert "repaired: relinquish the affinity of host:a for block 10.0.0.0/26: there is no such block\n" in broken.out


def test_what_cannot_be_repaired_is_named_and_the_status_is_1(broken: ToolHarness) -> None:
    broken.damage = {block_key(PREFIX): b"no JSON"}
    assert broken.run_command("ipam", "check", "--fix") == 1
    reason = "not while a block is damaged, which it may lead to"
    assert broken.out == (
        "Checked 0 blocks with 0 addresses in use, 2 handles, 0 affinities.\n"
        "not repairable: the stored record IPAMBlock(ipv4/10.0.0.0/26) is malformed: "
        "Expecting value: line 1 column 1 (char 0)\n"
        f"not repairable: repair handle net.a: its counts differ from its blocks: {reason}\n"
        f"not repairable: repair handle net.z: its counts differ from its blocks: {reason}\n"
        "Check complete; found 3 problems; --fix can repair 0 of them.\n"
    )


def test_a_dry_run_without_fix_is_a_usage_error(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "check", "--dry-run") == 2
    assert "--dry-run is for --fix." in harness.err


@pytest.mark.parametrize(
    "result, cause, line",
    [
        (RepairResult.CHANGED, "", "left alone: {} (its records have changed since they were checked; check again)"),
        (RepairResult.FAILED, "it is rotten", "failed: {} (it is rotten)"),
    ],
)
def test_a_repair_that_was_not_made_says_why(result: RepairResult, cause: str, line: str) -> None:
    repair = DeleteDamaged(key=handle_key("net.a"), revision=Revision("1"))
    assert attempt_line(RepairAttempt(repair=repair, result=result, cause=cause)) == line.format(repair)


def test_restore_makes_blocks_handles_and_affinities_from_endpoints(harness: ToolHarness) -> None:
    spec = evolve(ENDPOINT.spec, addresses=(Address.parse("10.0.0.5"),), container_id="c1")
    endpoint = evolve(ENDPOINT, spec=spec)
    harness.store_records(Create(key_of(endpoint), endpoint))
    assert harness.run_command("ipam", "check", "--restore", "--network", "net") == 0
    assert harness.out == (
        "repaired: restore block 10.0.0.0/26 of host:a: 1 addresses of workloads\n"
        "Checked 1 blocks with 1 addresses in use, 0 handles, 0 affinities.\n"
        "Check complete; found 2 problems; --fix can repair 2 of them.\n"
        "repaired: restore handle net.c1 from its blocks: it is missing or damaged\n"
        "repaired: restore the affinity of host:a for block 10.0.0.0/26: it is missing or damaged\n"
    )
    assert harness.run_command("ipam", "check", "--restore", "--network", "net") == 0
    assert "found no problems" in harness.out


def test_an_address_of_two_workloads_is_not_restored(harness: ToolHarness) -> None:
    """The first of them gets it."""
    for name in ("v", "w"):
        spec = evolve(ENDPOINT.spec, addresses=(Address.parse("10.0.0.5"),), container_id=name)
        endpoint = evolve(ENDPOINT, metadata=evolve(ENDPOINT.metadata, name=name), spec=spec)
        harness.store_records(Create(key_of(endpoint), endpoint))
    harness.run_command("ipam", "check", "--restore")
    assert "restore handle k8s-pod-network.v from its blocks" in harness.out


def test_restore_shows_what_it_does_and_is_not_tried(harness: ToolHarness) -> None:
    assert harness.run_command("ipam", "check", "--restore", "--dry-run") != 0
    assert "--dry-run is for --fix" in harness.err
