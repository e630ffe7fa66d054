"""``diff``: its output and its exit status."""

import json

from netplug_core.resources.ippool import ippool_key
from tests.harness.ctl import ToolHarness

POOL = ("main", "10.0.0.0/16")
OTHER = ("other", "10.1.0.0/16")


def test_what_would_not_change_prints_nothing(harness: ToolHarness) -> None:
    file = harness.write_pools(POOL)
    harness.run_command("create", "-f", file)
    assert harness.run_command("diff", "-f", file) == 0
    assert (harness.out, harness.err) == ("", "")


def test_a_change_is_a_unified_diff_of_the_yaml_and_status_1(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(POOL))
    file = harness.write_pools(POOL, spec="disabled: true")
    assert harness.run_command("diff", "-f", file) == 1
    lines = harness.out.splitlines()
    assert lines[:2] == ["--- IPPool(main)", f"+++ {file}#1 IPPool(main)"]
    assert [line for line in lines[2:] if line[0] in "+-"] == ["+  disabled: true"]
    assert harness.err == ""
    harness.run_command("get", "pool", "main", "-o", "yaml")
    assert "disabled" not in harness.out


def test_a_new_resource_is_all_additions(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(POOL))
    assert harness.run_command("diff", "-f", harness.write_pools(POOL, OTHER)) == 1
    first, second, _, *lines = harness.out.splitlines()
    assert (first, second.split()[-1]) == ("--- IPPool(other) (not stored)", "IPPool(other)")
    assert {line[0] for line in lines} == {"+"}
    assert "+  cidr: 10.1.0.0/16" in lines


def test_a_damaged_resource_is_said_to_be_damaged(harness: ToolHarness) -> None:
    file = harness.write_pools(POOL)
    harness.run_command("create", "-f", file)
    harness.damage[ippool_key("main")] = b"7"
    assert harness.run_command("diff", "-f", file) == 1
    assert harness.out.startswith("--- IPPool(main) (damaged)\n")


def test_an_error_is_status_2_and_the_other_documents_are_compared(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(POOL))
    file = harness.write_pools(("overlapping", "10.0.0.0/17"), OTHER)
    assert harness.run_command("diff", "-f", file) == 2
    assert harness.err.startswith(f"netplugctl: {file}:4:14: IPPool(overlapping): error with field spec.cidr")
    assert "IPPool(other) (not stored)" in harness.out


def test_what_cannot_be_read_or_asked_is_status_2(harness: ToolHarness) -> None:
    assert harness.run_command("diff", "-f", "/nowhere.yaml") == 2
    assert harness.err.startswith("netplugctl: /nowhere.yaml: No such file")
    harness.is_unavailable = True
    assert harness.run_command("diff", "-f", harness.write_pools(POOL)) == 2
    assert "unable to open the file" in harness.err
    assert harness.run_command("diff") == 2
    assert "Give at least one file" in harness.err


def test_programs_get_a_row_for_each_document(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(POOL))
    file = harness.write_pools(POOL, OTHER)
    assert harness.run_command("diff", "-f", file, "-o", "json") == 1
    same, new = json.loads(harness.out)["changes"]
    assert (same["name"], same["change"], same["diff"]) == ("main", "none", "")
    assert (new["kind"], new["name"], new["change"]) == ("IPPool", "other", "created")
    assert new["diff"].startswith("--- IPPool(other) (not stored)\n")
    assert harness.run_command("diff", "-f", file, "-o", "csv") == 1
    assert harness.out.startswith(f"kind,namespace,name,change,source,diff\nIPPool,,main,none,{file}#1,\n")
