"""``install validate``: Installations against rules, with no cluster in sight."""

import io

import pytest

from tests.harness.ctl import ToolHarness

HEAD = "apiVersion: operator.projectnetplug.org/v1\nkind: Installation\nmetadata: {name: %s}\nspec: %s\n"
QUIET = "{netplugNetwork: {bgp: Disabled, ipPools: []}}"
OTHER = "kind: Namespace\nmetadata: {name: a}\n"


def document(spec: str = QUIET, name: str = "default") -> str:
    return HEAD % (name, spec)


@pytest.fixture(autouse=True)
def _away(harness: ToolHarness) -> None:
    harness.is_unavailable = True


def validate(harness: ToolHarness, *documents: str, options: tuple[str, ...] = ()) -> int:
    file = harness.write_file("---\n".join(documents), "a.yaml")
    status = harness.run_command("install", "validate", "-f", file, *options)
    harness.out, harness.err = (text.replace(file, "a.yaml") for text in (harness.out, harness.err))
    return status


def test_a_valid_one(harness: ToolHarness) -> None:
    assert validate(harness, document()) == 0
    assert (harness.out, harness.err) == ("a.yaml#1 Installation(default): valid\n", "")
    assert harness.opened_settings == []


def test_warnings_count_if_asked_for(harness: ToolHarness) -> None:
    held = document("{netplugNetwork: {bgp: Disabled, ipPools: [], linuxPolicySetupTimeoutSeconds: 5}}")
    assert validate(harness, held) == 0
    assert harness.err == (
        "netplugctl: warning: a.yaml#1 Installation(default): spec.netplugNetwork.linuxPolicySetupTimeoutSeconds: "
        "nothing in this release writes status files, so every pod starts 5 s later\n"
    )
    assert validate(harness, held, options=("--strict",)) == 3
    assert validate(harness, document(), options=("--strict",)) == 0


def test_every_problem_of_every_document_is_a_line(harness: ToolHarness) -> None:
    two = document("{netplugNetwork: {mtu: -1, bgp: Disabled, ipPools: [{cidr: x}]}}")
    assert validate(harness, document("{bgp: Enabled}"), OTHER, two) == 2
    assert harness.out == ""
    lines = [line.removeprefix("netplugctl: ") for line in harness.err.splitlines()]
    assert [line.partition(" is not")[0] for line in lines] == [
        "a.yaml#2: skipped; it is no Installation",
        "a.yaml#1 Installation(default): Unsupported: spec.bgp: 'bgp'",
        "a.yaml#3 Installation(default): OutOfRange: spec.netplugNetwork.mtu: -1",
        "a.yaml#3 Installation(default): Format: spec.netplugNetwork.ipPools[0].cidr: 'x'",
    ]


def test_an_overlay_is_checked_with_the_other_one(harness: ToolHarness) -> None:
    overlay = document("{netplugNetwork: {mtu: 9000}}", "overlay")
    assert validate(harness, document(), overlay) == 0
    assert harness.out == (
        "a.yaml#1 Installation(default): valid\n"
        "a.yaml#1 Installation(default) with a.yaml#2 Installation(overlay): valid\n"
    )
    assert validate(harness, document(), document("{netplugNetwork: {mtu: -1}}", "overlay")) == 2
    assert "default) with a.yaml#2 Installation(overlay): OutOfRange: spec.netplugNetwork.mtu: -1" in harness.err
    assert validate(harness, overlay) == 2
    assert harness.err.endswith("Installation(overlay): one Installation(default) is needed beside it\n")
    assert validate(harness, document(), document("{cni: {type: x}}", "overlay")) == 2
    assert "a.yaml#2 Installation(overlay): Unsupported: spec.cni.type" in harness.err
    assert validate(harness, document("{cni: {type: x}}"), overlay) == 2
    assert harness.err.count("\n") == 1


def test_files_that_cannot_be_used(harness: ToolHarness) -> None:
    assert validate(harness, OTHER) == 2
    assert harness.err.endswith("netplugctl: there is no Installation in a.yaml\n")
    assert validate(harness, "kind: [") == 2
    assert "a.yaml" in harness.err
    assert harness.run_command("install", "validate") == 2
    assert "Give at least one file" in harness.err


def test_standard_input(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(document()))
    assert harness.run_command("install", "validate", "-f", "-") == 0
    assert harness.out == "standard input#1 Installation(default): valid\n"
