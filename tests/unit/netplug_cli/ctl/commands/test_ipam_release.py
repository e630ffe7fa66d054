"""``ipam release``: what it frees, what it refuses, and how it exits."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.ipam.model import Attribute, Block, Handle, block_key, handle_key
from netplug_core.records import Create, Get, Key, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.faults import RunBefore
from tests.harness.ctl import ToolHarness

CIDR = Prefix.parse("10.65.0.0/26")


@pytest.fixture
def used(harness: ToolHarness) -> ToolHarness:
    """Three addresses of one handle; an endpoint has the last one."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    block = Block.new(CIDR, owner="host:node-a", now_ns=1).assign(
        tuple(map(Ordinal, range(3))), Attribute(handle="net.a")
    )
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="node-a", endpoint="eth0", addresses=(Address.parse("10.65.0.2"),)
    )
    endpoint = WorkloadEndpoint(metadata=Metadata(name="web", namespace="shop"), spec=spec)
    harness.store_records(
        Create(block.key, block),
        Create(handle_key("net.a"), Handle(blocks=((CIDR, 3),))),
        Create(Key(WORKLOAD_ENDPOINT, ("shop", "web")), endpoint),
    )
    return harness


def test_one_address(used: ToolHarness) -> None:
    assert used.run_command("ipam", "release", "--ip=10.65.0.0") == 0
    assert (used.out, used.err) == ("Successfully released IP address 10.65.0.0\n", "")
    assert used.run_command("ipam", "show", "--ip", "10.65.0.0") == 0
    assert used.out == "10.65.0.0 is not assigned\n"
    assert used.run_command("ipam", "release", "--ip=10.65.0.0") == 1
    assert (used.out, used.err) == ("", "netplugctl: 10.65.0.0 is not assigned\n")


def test_a_handle_but_for_what_an_endpoint_has(used: ToolHarness) -> None:
    assert used.run_command("ipam", "release", "--handle", "net.a") == 1
    assert used.out.splitlines() == [f"Successfully released IP address 10.65.0.{number}" for number in range(2)]
    assert used.err == (
        "netplugctl: 10.65.0.2 is not released: WorkloadEndpoint(shop/web) has it; delete the workload, or its "
        "endpoint if the workload is gone; or use --force\n"
    )
    assert used.run_command("ipam", "release", "--handle", "net.a", "--force") == 0
    assert used.out == "Successfully released IP address 10.65.0.2\n"
    assert used.run_command("ipam", "release", "--handle", "net.a") == 1
    assert used.err == "netplugctl: no address is held by the handle net.a\n"


def test_a_damaged_block_may_hold_more_of_a_handle(used: ToolHarness) -> None:
    other = Block.new(Prefix.parse("10.65.1.0/26"), owner="host:node-a", now_ns=1)
    used.store_records(Create(other.key, other))
    used.damage = {other.key: b"{}"}
    assert used.run_command("ipam", "release", "--handle", "net.b") == 1
    assert used.err.startswith("netplugctl: the stored record IPAMBlock(ipv4/10.65.1.0/26) is malformed")
    assert used.err.endswith("netplugctl: no address is held by the handle net.b\n")


def test_an_address_in_its_cooldown(used: ToolHarness) -> None:
    used.run_command("ipam", "configure", "--ip-cooldown-seconds", "60")
    assert used.run_command("ipam", "release", "--ip", "10.65.0.0") == 0
    assert used.run_command("ipam", "release", "--ip", "10.65.0.0") == 1
    assert used.err == "netplugctl: 10.65.0.0 is released already, and cooling down\n"


def test_an_address_that_is_anothers_meanwhile(used: ToolHarness) -> None:
    """Between the look and the commit, the address is released, and another workload gets it."""

    def take_over() -> None:
        deadline = Deadline.after(used.clock, 5)
        key = block_key(CIDR)
        found = used.store.read([Get(key)], deadline=deadline).find(key)
        assert found is not None
        freed = found.value.release(frozenset({Ordinal(0)}), cooling_from_ns=None)
        taken = freed.assign((Ordinal(0),), Attribute(handle="net.b"))
        used.store.commit([Update(key, taken, found.revision)], deadline=deadline)

    used.faults = {1: RunBefore(take_over)}
    assert used.run_command("ipam", "release", "--ip", "10.65.0.0") == 1
    assert used.err == "netplugctl: 10.65.0.0 is not released: held by another workload meanwhile\n"


def test_on_an_ordered_store_it_says_that_it_waits(used: ToolHarness) -> None:
    used.store = MemoryDatastore(MemoryMode.KUBE_LIKE, clock=used.clock)
    assert used.run_command("ipam", "release", "--ip", "10.65.0.0") == 1
    assert used.err == "netplugctl: 10.65.0.0 is not assigned\n"
    block = Block.new(CIDR, owner="host:node-a", now_ns=1).assign((Ordinal(0),), Attribute())
    used.store_records(Create(block.key, block))
    began_s = used.clock.monotonic()
    assert used.run_command("ipam", "release", "--ip", "10.65.0.0") == 0
    waits = "netplugctl: waiting 90 s, until every ADD that is running has stored its endpoint\n"
    assert (used.err, used.clock.monotonic() - began_s) == (waits, 90)


@pytest.mark.parametrize("argv", [[], ["--ip", "10.0.0.1", "--handle", "a"], ["--ip", "10.240.0.300"]])
def test_wrong_usage(harness: ToolHarness, argv: list[str]) -> None:
    assert harness.run_command("ipam", "release", *argv) == 2
    assert harness.opened_settings == []
