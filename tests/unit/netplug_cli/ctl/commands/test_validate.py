"""``validate``: files against rules, with no store in sight."""

import pytest

from tests.harness.ctl import ToolHarness

RESERVATION = "apiVersion: projectnetplug.org/v3\nkind: IPReservation\nmetadata: {name: r}\nspec: {}\n"


@pytest.fixture(autouse=True)
def _away(bench: ToolHarness) -> None:
    bench.is_unavailable = True


def test_what_is_right_is_said_to_be(bench: ToolHarness) -> None:
    """S-49 of the catalogue."""
    file = bench.write_pools(("a", "10.0.0.0/16"))
    assert bench.run_command("validate", "-f", file) == 0
    assert bench.out == "IPPool(a) valid\nSuccessfully validated 1 'IPPool' resource(s)\n"
    assert bench.run_command("--config", "/nowhere", "validate", "-f", file, "--context=x") == 0
    assert bench.run_command("validate", "-f", file, "-f", bench.write_file(RESERVATION, "r.yaml")) == 0
    assert bench.out.endswith("Successfully validated 2 resource(s)\n")
    assert bench.opened_settings == []


def test_what_is_wrong_is_said_too(bench: ToolHarness) -> None:
    """S-49 of the catalogue."""
    assert bench.run_command("validate", "-f", bench.write_pools(("a", "10.0.0.0/16"), spec="nodeSelector: '('")) == 1
    assert bench.err.startswith("netplugctl: failed to validate 'IPPool' resource: ")
    assert bench.run_command("validate", "-f", bench.write_pools(("a", "10.0.0.1/16"))) == 1
    assert bench.err.startswith("netplugctl: failed to execute command: ")
    assert bench.run_command("validate", "-f", bench.write_file("kind: [")) == 1
    assert bench.err.startswith("netplugctl: failed to execute command: ")
    assert bench.run_command("validate", "-f", bench.write_pools(("a", "10.0.0.0/16"), spec="natOutgoing: true")) == 0
    assert "warning: IPPool(a): natOutgoing" in bench.err


def test_a_file_with_nothing_in_it(bench: ToolHarness) -> None:
    """S-49 of the catalogue."""
    empty = bench.write_file("---\n")
    assert bench.run_command("validate", "-f", empty) == 1
    assert bench.err == "netplugctl: failed to execute command: no resources specified in file\n"
    assert bench.run_command("validate", "-f", empty, "--skip-empty") == 0
    assert (bench.out, bench.err) == ("No resources specified\n", "")
    assert bench.run_command("validate") == 2
