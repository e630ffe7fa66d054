"""Damaged records at the terminal: what is refused, what goes, and what says so."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import Block, Handle, block_key, handle_key
from netplug_core.records import Create
from netplug_core.resources.ippool import ippool_key
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.0.0.0/26")


@pytest.fixture
def damaged(harness: ToolHarness) -> ToolHarness:
    """A pool and a block of it, both damaged; one handle counts an address of the block."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.0.0.0/16")))
    block = Block.new(PREFIX, owner="host:a", now_ns=1)
    harness.store_records(Create(block.key, block), Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))))
    harness.damage = {ippool_key("main"): b'{"kind": "IPPool"}', block_key(PREFIX): b"no JSON"}
    return harness


def test_a_damaged_pool_is_deleted_with_force(damaged: ToolHarness) -> None:
    assert damaged.run_command("delete", "pool", "main") == 1
    assert damaged.err == (
        "netplugctl: failed to delete 'IPPool' resource: IPPool(main) cannot be read, and may hold addresses in use: "
        "blocks that cannot be read: 1; replace it by a pool with the same cidr and blockSize (replace -f FILE), or "
        "delete it with --force\n"
    )
    assert damaged.run_command("delete", "pool", "main", "--force") == 0
    assert damaged.out == "IPPool(main) deleted\nSuccessfully deleted 1 'IPPool' resource(s)\n"
    assert damaged.err.startswith("netplugctl: warning: IPPool(main): it was damaged: ")
    assert damaged.run_command("get", "pools") == 0


def test_a_damaged_block_is_deleted_with_force(damaged: ToolHarness) -> None:
    assert damaged.run_command("ipam", "delete-block", "10.0.0.0/26") == 1
    assert damaged.err == (
        "netplugctl: IPAMBlock(ipv4/10.0.0.0/26) cannot be read, and may hold addresses in use: handles that count "
        "addresses in it: 1 (net.a); stop their workloads first, or delete it with --force and then start them anew\n"
    )
    assert damaged.run_command("ipam", "delete-block", "10.0.0.0/26", "--force") == 0
    assert damaged.out == "IPAMBlock(ipv4/10.0.0.0/26) deleted\n"
    assert damaged.err.startswith("netplugctl: warning: IPAMBlock(ipv4/10.0.0.0/26): it was damaged: ")
    assert damaged.run_command("ipam", "delete-block", "10.0.0.0/26") == 1
    assert damaged.err == "netplugctl: resource does not exist: IPAMBlock(ipv4/10.0.0.0/26)\n"


def test_what_is_no_cidr_is_a_usage_error(damaged: ToolHarness) -> None:
    assert damaged.run_command("ipam", "delete-block", "10.0.0.1/26") == 2
    assert "invalid CIDR of a block: '10.0.0.1/26'" in damaged.err


def test_a_damaged_pool_is_replaced_from_a_file(damaged: ToolHarness) -> None:
    """The damaged block is named first: nobody knows whether the new pool fits it."""
    assert damaged.run_command("replace", "-f", damaged.write_pools(("main", "10.0.0.0/16"))) == 1
    assert "IPAMBlock(ipv4/10.0.0.0/26) is malformed" in damaged.err
    damaged.run_command("ipam", "delete-block", "10.0.0.0/26", "--force")
    assert damaged.run_command("replace", "-f", damaged.write_pools(("main", "10.0.0.0/16"))) == 0
    assert damaged.out.startswith("IPPool(main) repaired\n")
