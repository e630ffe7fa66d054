"""``datastore migrate``: locking, and moving all records from one store into another."""

from __future__ import annotations

import json

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.ctl.commands.datastore import _progress
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.transaction import read_pages
from netplug_core.encoding.export import EXPORTED_KINDS
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Create, Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import ippool_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.65.0.0/26")
SUMMARY = "2 IPPool, 1 BlockAffinity, 1 IPAMHandle, 1 IPAMBlock, 1 WorkloadEndpoint"


def stored(harness: ToolHarness, store: MemoryDatastore) -> dict[Key[object], object]:
    deadline = Deadline.after(harness.clock, 5)
    return {
        record.key: record.value for kind in EXPORTED_KINDS for record in read_pages(store, kind, deadline=deadline)
    }


@pytest.fixture
def used(harness: ToolHarness) -> ToolHarness:
    """Two pools, a block with an address, what leads to it, and an endpoint."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/24"), ("six", "fd00::/64")))
    block = Block.new(PREFIX, owner="host:a", now_ns=1).assign((Ordinal(0),), Attribute(handle="net.a"))
    endpoint = WorkloadEndpoint(
        metadata=Metadata(name="w", namespace="default"),
        spec=WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0"),
    )
    harness.store_records(
        Create(affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(block.key, block),
        Create(WORKLOAD_ENDPOINT.key("default", "w"), endpoint),
    )
    return harness


def export_file(harness: ToolHarness) -> str:
    """Lock the store and write its export into a file."""
    assert harness.run_command("datastore", "migrate", "lock") == 0
    assert harness.run_command("datastore", "migrate", "export") == 0
    return harness.write_file(harness.out, "export.json")


def use_empty_store(harness: ToolHarness, mode: MemoryMode = MemoryMode.ATOMIC) -> MemoryDatastore:
    """Another store in place of the first, which is returned."""
    before, harness.store = harness.store, MemoryDatastore(mode, clock=harness.clock)
    return before


def is_locked(harness: ToolHarness) -> bool:
    harness.run_command("get", "clusterinfo", "default", "-o", "json")
    return json.loads(harness.out)["spec"]["datastoreReady"] is False


# --- lock -------------------------------------------------------------------------------------------------------------


def test_a_lock_is_set_and_taken_away_and_both_may_be_repeated(used: ToolHarness) -> None:
    for command, text in (("lock", "Datastore locked.\n"), ("unlock", "Datastore unlocked.\n")):
        for _time in range(2):
            assert used.run_command("datastore", "migrate", command) == 0
            assert used.out == text
        assert is_locked(used) is (command == "lock")


def test_a_dry_run_of_a_lock_changes_nothing(harness: ToolHarness) -> None:
    assert harness.run_command("datastore", "migrate", "lock", "--dry-run") == 0
    assert harness.out == "The datastore would be locked.\n"
    harness.run_command("datastore", "migrate", "unlock")
    harness.run_command("datastore", "migrate", "unlock", "--dry-run")
    assert harness.out == "The datastore is not locked.\n"
    harness.run_command("datastore", "migrate", "lock")
    harness.run_command("datastore", "migrate", "lock", "--dry-run")
    assert harness.out == "The datastore is locked already.\n"
    harness.run_command("datastore", "migrate", "unlock", "--dry-run")
    assert harness.out == "The datastore would be unlocked.\n"
    assert is_locked(harness)


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_export_needs_a_lock(used: ToolHarness) -> None:
    assert used.run_command("datastore", "migrate", "export") == 1
    assert used.err == "netplugctl: the datastore is not locked: run datastore migrate lock first\n"
    assert used.out == ""


def test_an_export_is_one_document_a_line_with_an_end(used: ToolHarness) -> None:
    used.run_command("datastore", "migrate", "lock")
    assert used.run_command("datastore", "migrate", "export") == 0
    header, *records, end = map(json.loads, used.out.splitlines())
    assert (header["kind"], end) == ("DatastoreExport", {"kind": "DatastoreExportEnd", "records": len(records)})
    assert header["clusterInformation"]["spec"]["datastoreReady"] is False
    assert (records[0]["kind"], records[0]["path"]) == ("IPPool", ["main"])
    assert used.err == f"netplugctl: exported {SUMMARY}\n"
    used.run_command("datastore", "migrate", "export", "--dry-run")
    assert used.out == f"would export {SUMMARY}\n"


def test_an_export_of_an_ordered_store_waits_for_running_adds(used: ToolHarness) -> None:
    use_empty_store(used, MemoryMode.ORDERED)
    used.run_command("datastore", "migrate", "lock")
    began = used.clock.monotonic()
    assert used.run_command("datastore", "migrate", "export", "--dry-run") == 0
    assert used.out == "would export no records\n"
    assert "waiting 90 s" in used.err
    assert used.clock.monotonic() - began >= 90


def test_a_damaged_record_is_named_and_nothing_is_printed(used: ToolHarness) -> None:
    used.run_command("datastore", "migrate", "lock")
    used.damage = {ippool_key("main"): b"{"}
    assert used.run_command("datastore", "migrate", "export") == 1
    assert used.out == ""
    assert "the stored record IPPool(main) is malformed" in used.err


# --- import -----------------------------------------------------------------------------------------------------------


def test_every_record_is_moved_and_the_target_stays_locked(used: ToolHarness) -> None:
    file = export_file(used)
    source = use_empty_store(used)
    assert used.run_command("datastore", "migrate", "import", "-f", file, "--dry-run") == 0
    assert used.out == f"would import {SUMMARY}\n"
    assert stored(used, used.store) == {}
    assert used.run_command("datastore", "migrate", "import", "-f", file) == 0
    assert used.out == f"imported {SUMMARY}; the datastore is locked: datastore migrate unlock\n"
    assert stored(used, used.store) == stored(used, source)
    assert is_locked(used)
    assert used.run_command("datastore", "migrate", "import", "-f", file) == 0
    assert used.out == "every record of the export is stored already\n"
    assert used.run_command("datastore", "migrate", "unlock") == 0
    assert not is_locked(used)


def test_a_store_with_records_is_refused_before_any_write(used: ToolHarness) -> None:
    file = export_file(used)
    use_empty_store(used)
    pools = [(f"p{number}", f"10.{number}.0.0/24") for number in range(7)]
    used.run_command("create", "-f", used.write_pools(*pools))
    before = stored(used, used.store)
    assert used.run_command("datastore", "migrate", "import", "-f", file) == 1
    assert "the datastore is not empty (IPPool(p0), IPPool(p1), " in used.err
    assert "and 2 more): an import needs one without records; nothing was done" in used.err
    assert stored(used, used.store) == before
    assert not is_locked(used)


def test_an_export_of_a_newer_release_is_refused(used: ToolHarness) -> None:
    file = export_file(used)
    text = (used.folder / "export.json").read_text()
    header, rest = text.split("\n", 1)
    newer = json.dumps(json.loads(header) | {"release": "v999.0.0"})
    assert used.run_command("datastore", "migrate", "import", "-f", used.write_file(f"{newer}\n{rest}")) == 1
    assert used.err.startswith("netplugctl: version mismatch.")
    assert file


def test_a_file_that_is_missing_or_was_cut_is_one_error(used: ToolHarness) -> None:
    file = export_file(used)
    use_empty_store(used)
    assert used.run_command("datastore", "migrate", "import", "-f", "/nowhere.json") == 1
    assert used.err == "netplugctl: /nowhere.json: No such file or directory\n"
    cut = "\n".join((used.folder / "export.json").read_text().splitlines()[:-1])
    assert used.run_command("datastore", "migrate", "import", "-f", used.write_file(cut)) == 1
    assert "it has no end, so it was cut; export again; nothing was done" in used.err
    assert stored(used, used.store) == {}
    assert file


def test_progress_is_printed_every_so_many_records(capsys: pytest.CaptureFixture[str]) -> None:
    report = _progress(2500)
    for done in (16, 1008, 1024, 2500):
        report(done)
    assert capsys.readouterr().err.splitlines() == [
        "netplugctl: 1008 of 2500 records are stored",
        "netplugctl: 2500 of 2500 records are stored",
    ]
