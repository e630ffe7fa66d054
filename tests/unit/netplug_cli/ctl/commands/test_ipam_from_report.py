"""``ipam release --from-report``: what it prints, what it refuses, and how it exits."""

import json
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Create, Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.faults import LostRequest
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.65.0.0/26")
LEFT = handle_key("leaked-handle")


def leak(harness: ToolHarness) -> ToolHarness:
    """A cluster with one address that has a handle and no endpoint, and one handle that holds nothing."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    block = Block.new(PREFIX, owner="host:a", now_ns=1).assign((Ordinal(2),), Attribute(handle="net.a"))
    harness.store_records(
        Create(block.key, block),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(LEFT, Handle(blocks=((PREFIX, 1),))),
        Create(affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
    )
    return harness


def write_report(harness: ToolHarness, name: str = "report.json") -> str:
    path = str(harness.folder / name)
    harness.run_command("ipam", "check", "-o", path)
    return path


def release(harness: ToolHarness, *files: str, options: tuple[str, ...] = ()) -> int:
    return harness.run_command("ipam", "release", *(f"--from-report={file}" for file in files), *options)


@pytest.fixture
def leaking(harness: ToolHarness) -> ToolHarness:
    return leak(harness)


@pytest.fixture
def locked(leaking: ToolHarness) -> ToolHarness:
    leaking.set_locked()
    return leaking


def test_the_lock_is_required_and_force_goes_on_without(leaking: ToolHarness) -> None:
    report = write_report(leaking)
    assert release(leaking, report) == 1
    assert (leaking.out, leaking.err) == (
        "",
        "netplugctl: data store is not locked. Either lock the data store, or re-run with --force\n",
    )
    assert release(leaking, report, options=("--force",)) == 0
    assert leaking.out == "Released 1 IPs successfully\nReleased 1 handles; 0 skipped; 0 errors.\n"
    leaking.store_records(Create(LEFT, Handle(blocks=((PREFIX, 1),))))
    assert release(leaking, report, options=("--force",)) == 0
    assert leaking.out == "Released 0 handles; 1 skipped; 0 errors.\n"
    assert leaking.err == "netplugctl: addresses that are not assigned any more as the reports say: 1\n"


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_locked_datastore_of_every_mode(harness: ToolHarness, mode: MemoryMode) -> None:
    harness.store = MemoryDatastore(mode, clock=harness.clock)
    leak(harness).set_locked()
    first, second = write_report(harness, "1.json"), write_report(harness, "2.json")
    began = harness.clock.monotonic()
    assert release(harness, first, second) == 0
    assert harness.out == "Released 1 IPs successfully\nReleased 1 handles; 0 skipped; 0 errors.\n"
    is_ordered = mode is not MemoryMode.ATOMIC
    assert (harness.clock.monotonic() - began >= 90) is is_ordered
    waiting = "netplugctl: waiting 90 s, until every ADD that is running has stored its endpoint\n"
    assert harness.err == (waiting if is_ordered else "")
    assert harness.run_command("ipam", "check", "-o", "-") == 0


def test_a_dry_run_changes_nothing_and_does_not_wait(harness: ToolHarness) -> None:
    harness.store = MemoryDatastore(MemoryMode.KUBE_LIKE, clock=harness.clock)
    leak(harness).set_locked()
    report = write_report(harness)
    for _time in range(2):
        assert release(harness, report, options=("--dry-run",)) == 0
        assert harness.out == (
            "would release 10.65.0.2 of handle net.a: no workload endpoint has it\n"
            "would release handle leaked-handle, if it is unchanged\n"
            "Would release 1 IPs and at most 1 handles\n"
        )
        assert harness.err == ""


def test_an_address_that_is_used_by_now_stays(locked: ToolHarness) -> None:
    report = write_report(locked)
    spec = WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0", addresses=(Address.parse("10.65.0.2"),))
    endpoint = WorkloadEndpoint(metadata=Metadata(name="web", namespace="shop"), spec=spec)
    locked.store_records(Create(Key(WORKLOAD_ENDPOINT, ("shop", "web")), endpoint))
    assert release(locked, report, options=("--force",)) == 1
    assert locked.out == "Released 1 handles; 0 skipped; 0 errors.\n"
    assert locked.err == "netplugctl: 10.65.0.2 is not released: WorkloadEndpoint(shop/web)\n"


def test_a_damaged_report_and_one_that_is_not_there(locked: ToolHarness) -> None:
    report = write_report(locked)
    whole = Path(report).read_text()
    cut = locked.write_file(whole[:200], "cut.json")
    assert release(locked, report, cut) == 1
    assert locked.err.startswith(f"netplugctl: {cut}: no report of ipam check, or a damaged one: not JSON: ")
    assert locked.err.count("\n") == 1
    changed = json.loads(whole)
    changed["allocations"]["10.65.0.2"][0]["sequenceNumber"] = "1"
    other = locked.write_file(json.dumps(changed), "other.json")
    assert release(locked, other) == 1
    assert locked.err == (
        "netplugctl: expected a whole number of at least 0 @ "
        f"{other} $.allocations['10.65.0.2'][0].sequenceNumber, found '1'\n"
    )
    assert release(locked, str(locked.folder / "none.json")) == 1
    assert locked.err == f"netplugctl: {locked.folder}/none.json: No such file or directory\n"
    assert release(locked, report) == 0


def test_an_error_of_a_handle_is_counted(locked: ToolHarness) -> None:
    report = write_report(locked)
    locked.damage = {LEFT: b"{"}
    assert release(locked, report) == 1
    assert locked.out == "Released 1 IPs successfully\nReleased 0 handles; 0 skipped; 1 errors.\n"
    assert locked.err.startswith("netplugctl: handle leaked-handle is not released: the stored record ")


def test_what_is_released_before_an_outage_is_said(locked: ToolHarness) -> None:
    report = write_report(locked)
    locked.faults = {2: LostRequest()}
    assert release(locked, report) == 1
    assert locked.out == "Released 1 IPs successfully\nReleased 0 handles; 0 skipped; 0 errors.\n"
    assert "the request was lost" in locked.err
    locked.faults = {}
    assert release(locked, report) == 0
    assert locked.out == "Released 1 handles; 0 skipped; 0 errors.\n"


def test_one_way_at_a_time(locked: ToolHarness) -> None:
    assert release(locked, "r.json", options=("--ip=10.65.0.2",)) == 2
    assert "Give --ip ADDRESS, --handle HANDLE or --from-report FILE." in locked.err
    assert locked.run_command("ipam", "release", "--ip=10.65.0.2", "--dry-run") == 2
    assert "--dry-run is for --from-report." in locked.err
