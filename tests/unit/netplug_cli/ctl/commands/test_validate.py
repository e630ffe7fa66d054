"""``validate``: files against rules, with no store in sight."""

import re
from pathlib import Path

import pytest

from tests.harness.ctl import ToolHarness

RESERVATION = "apiVersion: projectnetplug.org/v3\nkind: IPReservation\nmetadata: {name: r}\nspec: {}\n"


@pytest.fixture(autouse=True)
def _away(harness: ToolHarness) -> None:
    harness.is_unavailable = True


def test_what_is_right_is_said_to_be(harness: ToolHarness) -> None:
    """S-49 of the catalogue."""
    file = harness.write_pools(("a", "10.0.0.0/16"))
    assert harness.run_command("validate", "-f", file) == 0
    assert harness.out == "IPPool(a) valid\nSuccessfully validated 1 'IPPool' resource(s)\n"
    assert harness.run_command("--config", "/nowhere", "validate", "-f", file, "--context=x") == 0
    assert harness.run_command("validate", "-f", file, "-f", harness.write_file(RESERVATION, "r.yaml")) == 0
    assert harness.out.endswith("Successfully validated 2 resource(s)\n")
    assert harness.opened_settings == []


def test_what_is_wrong_is_said_too(harness: ToolHarness) -> None:
    """S-49 of the catalogue."""
    assert (
        harness.run_command("validate", "-f", harness.write_pools(("a", "10.0.0.0/16"), spec="nodeSelector: '('")) == 1
    )
    assert harness.err.startswith("netplugctl: failed to validate 'IPPool' resource: ")
    assert harness.run_command("validate", "-f", harness.write_pools(("a", "10.0.0.1/16"))) == 1
    assert harness.err.startswith("netplugctl: expected a CIDR @ ")
    assert harness.run_command("validate", "-f", harness.write_file("kind: [")) == 1
    assert ": neither YAML nor JSON, line 1, " in harness.err
    assert harness.run_command("validate", "-f", harness.write_pools(("a", "10.0.0.0/16"), spec="blockSize: 22")) == 0
    assert "warning: IPPool(a): blockSize 22" in harness.err


def test_a_file_with_nothing_in_it(harness: ToolHarness) -> None:
    """S-49 of the catalogue."""
    empty = harness.write_file("---\n")
    assert harness.run_command("validate", "-f", empty) == 1
    assert harness.err == (
        f"netplugctl: {empty}: no resources specified in file; it is empty, or has only comments: "
        "a resource has apiVersion, kind, metadata and spec\n"
    )
    assert harness.run_command("validate", "-f", empty, "--skip-empty") == 0
    assert (harness.out, harness.err) == ("No resources specified\n", "")
    assert harness.run_command("validate") == 2


def test_the_pools_of_all_files_are_checked_against_each_other(harness: ToolHarness) -> None:
    written = Path(harness.write_pools(("a", "10.0.0.0/16"), ("b", "10.0.1.0/24")))
    first = str(written.rename(written.with_name("first.yaml")))
    second = harness.write_pools(("c", "10.0.1.128/25"), ("d", "10.1.0.0/16"))
    assert harness.run_command("validate", "-f", first, "-f", second) == 1
    assert harness.out.splitlines() == [
        "IPPool(a) valid", "IPPool(d) valid", "Partial success: validated 2 out of 4 'IPPool' resources",
    ]  # fmt: skip
    overlaps = [
        line.partition("pool.yaml:")[2] or line.partition("first.yaml:")[2] for line in harness.err.splitlines()
    ]
    assert [re.findall(r"(\w)\) CIDR overlaps with IPPool\((\w)", line) for line in overlaps] == [
        [("b", "a")],
        [("c", "a"), ("c", "b")],
    ]
