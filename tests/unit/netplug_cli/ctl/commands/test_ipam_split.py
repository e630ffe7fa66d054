"""``ipam split``: what it prints, what it refuses, and how it exits."""

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.testing.faults import LostRequest
from tests.harness.ctl import ToolHarness

SPEC = "blockSize: 27, ipipMode: Always, nodeSelector: \"foo == 'bar'\""
NOT_LOCKED = (
    "netplugctl: datastore is not locked. Lock it with netplugctl datastore migrate lock in order split the IP pools\n"
)


@pytest.fixture(params=MemoryMode)
def pooled(request: pytest.FixtureRequest, harness: ToolHarness) -> ToolHarness:
    harness.store = MemoryDatastore(request.param, clock=harness.clock)
    harness.run_command("create", "-f", harness.write_pools(("ippool-name1", "10.0.1.0/24"), spec=SPEC))
    return harness


@pytest.fixture
def locked(pooled: ToolHarness) -> ToolHarness:
    pooled.set_locked()
    return pooled


def test_the_case_of_the_tool(pooled: ToolHarness) -> None:
    assert pooled.run_command("ipam", "split", "4", "--cidr=10.0.1.0/24") == 1
    assert (pooled.out, pooled.err) == ("", NOT_LOCKED)
    pooled.set_locked()
    for count, cidr, text in (
        ("4", "10.0.2.0/24", "unable to find IP pool"),
        ("3", "10.0.1.0/24", "not a valid power of 2"),
        ("512", "10.0.1.0/24", "is not large enough to be split into"),
    ):
        assert pooled.run_command("ipam", "split", count, f"--cidr={cidr}") == 1
        assert text in pooled.err
        assert pooled.out == ""
    assert pooled.run_command("ipam", "split", "4", "--cidr=10.0.1.0/24") == 0
    assert pooled.out.splitlines() == [
        "IPPool(ippool-name1) disabled",
        "IPPool(split-ippool-name1-0) created: 10.0.1.0/26",
        "IPPool(split-ippool-name1-1) created: 10.0.1.64/26",
        "IPPool(split-ippool-name1-2) created: 10.0.1.128/26",
        "IPPool(split-ippool-name1-3) created: 10.0.1.192/26",
        "IPPool(ippool-name1) deleted; its blocks are as they were",
        "Successfully split IPPool(ippool-name1) into 4 pools",
    ]
    assert "that name the pool ippool-name1 have to name its parts" in pooled.err
    assert pooled.run_command("get", "pools", "-o", "wide") == 0
    rows = [line.split() for line in pooled.out.splitlines()[1:]]
    assert [row[:2] for row in rows] == [[f"split-ippool-name1-{n}", f"10.0.1.{64 * n}/26"] for n in range(4)]
    assert all("Always" in row and "'bar'" in row for row in rows)


def test_a_split_that_was_interrupted_and_one_that_is_done(locked: ToolHarness) -> None:
    locked.faults = {4: LostRequest()}
    assert locked.run_command("ipam", "split", "2", "--name", "ippool-name1") == 1
    assert "deleted" not in locked.out
    locked.faults = {}
    assert locked.run_command("ipam", "split", "2", "--name", "ippool-name1", "--dry-run") == 0
    assert locked.out == (
        "IPPool(split-ippool-name1-0) is created already: 10.0.1.0/25\n"
        "IPPool(split-ippool-name1-1) is created already: 10.0.1.128/25\n"
        "IPPool(ippool-name1) would be deleted; its blocks would stay as they are\n"
    )
    assert locked.run_command("ipam", "split", "2", "--name", "ippool-name1") == 0
    assert locked.out == (
        "IPPool(ippool-name1) deleted; its blocks are as they were\n"
        "Successfully split IPPool(ippool-name1) into 2 pools\n"
    )
    for _time in range(2):
        assert locked.run_command("ipam", "split", "2", "--cidr", "10.0.1.0/24") == 0
        assert (locked.out, locked.err) == ("IPPool(ippool-name1) is split into 2 pools already\n", "")


def test_a_dry_run_changes_nothing(locked: ToolHarness) -> None:
    locked.run_command("get", "pools", "-o", "yaml")
    before = locked.out
    assert locked.run_command("ipam", "split", "2", "--name", "ippool-name1", "--dry-run") == 0
    assert locked.out.startswith("IPPool(split-ippool-name1-0) would be created: 10.0.1.0/25\n")
    locked.run_command("get", "pools", "-o", "yaml")
    assert locked.out == before


@pytest.mark.parametrize("options", [(), ("--name", "a", "--cidr", "10.0.1.0/24")])
def test_the_pool_is_named_in_one_way(locked: ToolHarness, options: tuple[str, ...]) -> None:
    assert locked.run_command("ipam", "split", "4", *options) == 2
    assert "Give --cidr CIDR or --name NAME." in locked.err


def test_what_is_no_number_or_no_cidr(locked: ToolHarness) -> None:
    assert locked.run_command("ipam", "split", "four", "--name", "a") == 2
    assert "'four' is not a valid integer" in locked.err
    assert locked.run_command("ipam", "split", "4", "--cidr", "10.0.1.7/24") == 2
    assert "a CIDR such as 10.1.0.0/16 is expected" in locked.err
