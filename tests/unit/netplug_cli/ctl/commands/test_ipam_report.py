"""``ipam check -o``: the file, what is printed beside it, and how the command exits."""

import json
import os
import stat
from pathlib import Path

import pytest

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, Handle, affinity_key, handle_key
from netplug_core.records import Create
from tests.harness.ctl import ToolHarness

PREFIX = Prefix.parse("10.65.0.0/26")
CHECKED = "Checked 1 blocks with 1 addresses in use, 1 handles, 1 affinities.\nCheck complete; found no problems.\n"
ONE_LEAK = "Found 1 addresses that are not in use (0 are, 0 cool down, and of 0 it is not known).\n"


@pytest.fixture
def leaking(harness: ToolHarness) -> ToolHarness:
    """One address that has a handle and no endpoint."""
    harness.run_command("create", "-f", harness.write_pools(("main", "10.65.0.0/16")))
    block = Block.new(PREFIX, owner="host:a", now_ns=1).assign((Ordinal(2),), Attribute(handle="net.a"))
    harness.store_records(
        Create(block.key, block),
        Create(handle_key("net.a"), Handle(blocks=((PREFIX, 1),))),
        Create(affinity_key("host:a", PREFIX), Affinity(state=AffinityState.CONFIRMED)),
    )
    return harness


def leave_handle(harness: ToolHarness) -> None:
    harness.store_records(Create(handle_key("leaked-handle"), Handle(blocks=((PREFIX, 1),))))


def test_the_file_is_its_owners_and_the_lines_say_what_is_in_it(leaking: ToolHarness, tmp_path: Path) -> None:
    leave_handle(leaking)
    file = tmp_path / "report.json"
    before = os.umask(0)
    try:
        assert leaking.run_command("ipam", "check", "-o", str(file)) == 1
    finally:
        os.umask(before)
    assert leaking.out.splitlines()[-2:] == [
        ONE_LEAK.rstrip(),
        "Found 1 handles with no matching IPs (and 1 handles with matches).",
    ]
    assert leaking.err == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    report = json.loads(file.read_text())
    assert [entry["inUse"] for entry in report["allocations"]["10.65.0.2"]] == [False]
    assert [handle["id"] for handle in report["leakedHandles"]] == ["leaked-handle"]
    assert report["version"].startswith("v")


def test_leaks_are_found_only_if_a_report_is_asked_for(leaking: ToolHarness, tmp_path: Path) -> None:
    assert leaking.run_command("ipam", "check") == 0
    assert leaking.out == CHECKED
    assert leaking.run_command("ipam", "check", "-o", str(tmp_path / "r")) == 1
    assert leaking.out.startswith(CHECKED)
    assert leaking.run_command("ipam", "release", "--ip", "10.65.0.2") == 0
    assert leaking.run_command("ipam", "check", "-o", str(tmp_path / "s")) == 0


def test_on_standard_output_there_is_nothing_but_the_report(leaking: ToolHarness) -> None:
    assert leaking.run_command("ipam", "check", "-o", "-") == 1
    assert list(json.loads(leaking.out)["allocations"]) == ["10.65.0.2"]
    assert leaking.err == f"{CHECKED}{ONE_LEAK}Found 0 handles with no matching IPs (and 1 handles with matches).\n"


def test_a_file_that_exists_is_replaced_only_on_request(leaking: ToolHarness) -> None:
    file = leaking.write_file("mine", "report.json")
    assert leaking.run_command("ipam", "check", "-o", file) == 1
    assert (leaking.out, leaking.err) == (
        "",
        f"netplugctl: {file}: there is such a file; name another one, or use --overwrite\n",
    )
    assert Path(file).read_text() == "mine"
    assert leaking.run_command("ipam", "check", "-o", file, "--overwrite") == 1
    assert "10.65.0.2" in Path(file).read_text()


@pytest.mark.parametrize("name", ["text", "wide", "table"])
def test_the_name_of_a_format_is_no_file(leaking: ToolHarness, name: str) -> None:
    assert leaking.run_command("ipam", "check", "-o", name) == 1
    assert leaking.err == (
        f"netplugctl: -o {name}: -o takes a file here: json, yaml, csv print what is found, and ./{name} is a file of "
        "that name\n"
    )


def test_overwrite_needs_a_file(leaking: ToolHarness) -> None:
    assert leaking.run_command("ipam", "check", "--overwrite") == 2
    assert "--overwrite is for -o FILE." in leaking.err


def test_fix_comes_before_the_report(leaking: ToolHarness, tmp_path: Path) -> None:
    """A handle that holds nothing is repaired, which deletes it, so it is in no report."""
    leave_handle(leaking)
    assert leaking.run_command("ipam", "check", "--fix", "-o", str(tmp_path / "r.json")) == 1
    assert "Found 0 handles with no matching IPs (and 1 handles with matches).\n" in leaking.out
    assert json.loads((tmp_path / "r.json").read_text())["leakedHandles"] == []


def test_a_record_that_cannot_be_read_leaves_no_file(leaking: ToolHarness, tmp_path: Path) -> None:
    leaking.damage = {handle_key("net.a"): b"{"}
    assert leaking.run_command("ipam", "check", "-o", str(tmp_path / "r.json")) == 1
    assert "IPAMHandle(net.a) is malformed" in leaking.err
    assert os.listdir(tmp_path) == ["pool.yaml"]


@pytest.mark.parametrize("mode", MemoryMode)
def test_a_handle_has_a_uid_where_the_store_has_objects(leaking: ToolHarness, mode: MemoryMode) -> None:
    leaking.store = MemoryDatastore(mode, clock=leaking.clock)
    leave_handle(leaking)
    assert leaking.run_command("ipam", "check", "-o", "-") == 1
    ((handle),) = json.loads(leaking.out)["leakedHandles"]
    assert bool(handle["uid"]) is (mode is MemoryMode.KUBE_LIKE)
    assert handle["revision"].startswith(handle["uid"])
