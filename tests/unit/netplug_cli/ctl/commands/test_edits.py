"""``label`` and ``patch``: what they print, and how they exit."""

import json

import pytest
import yaml

from tests.harness.ctl import ToolHarness

POOL = (("a", "10.0.0.0/16"),)


@pytest.fixture(autouse=True)
def _pool(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(*POOL))


def shown(harness: ToolHarness) -> dict[str, dict[str, object]]:
    harness.run_command("get", "pool", "a", "-o", "json")
    found: dict[str, dict[str, object]] = json.loads(harness.out)
    return found


def test_a_label_from_its_setting_to_its_removal(harness: ToolHarness) -> None:
    """S-46 of the catalogue."""
    assert harness.run_command("label", "pools", "a", "app=web.1") == 0
    assert harness.out == "Successfully set label app on IPPool a\n"
    assert shown(harness)["metadata"]["labels"] == {"app": "web.1"}
    assert (
        harness.run_command("label", "pools", "a", "app=web=1", "--overwrite") == 1
    )  # the text is what follows the first one
    assert "metadata.labels[app] = 'web=1' (a label's text is at most 63 letters" in harness.err
    assert harness.run_command("label", "pool", "a", "app=order") == 1
    assert harness.err.startswith("netplugctl: key app is already present on IPPool(a)")
    assert harness.run_command("label", "pool", "a", "app=", "--overwrite") == 0
    assert harness.out == "Successfully updated label app on IPPool a\n"
    assert harness.run_command("label", "pool", "a", "app", "--remove") == 0
    assert harness.out == "Successfully removed label app from IPPool a\n"
    assert harness.run_command("label", "pool", "a", "app", "--remove") == 1
    assert harness.err == "netplugctl: cannot remove label app from IPPool(a): it has none of that name\n"


def test_several_labels_are_changed_at_once(harness: ToolHarness) -> None:
    assert harness.run_command("label", "pool", "a", "app=web", "tier=gold") == 0
    assert harness.out == "Successfully set label app on IPPool a\nSuccessfully set label tier on IPPool a\n"
    assert harness.run_command("label", "ippool/a", "app-", "rack=r1", "none-") == 0
    assert harness.out == (
        "Successfully removed label app from IPPool a\nSuccessfully set label rack on IPPool a\n"
        "label none is not on IPPool a\n"
    )
    assert shown(harness)["metadata"]["labels"] == {"rack": "r1", "tier": "gold"}
    assert harness.run_command("label", "pool", "a", "new=1", "rack=r2") == 1
    assert shown(harness)["metadata"]["labels"] == {"rack": "r1", "tier": "gold"}, "all of them or none"


def test_several_resources_are_labelled_by_name_by_selector_or_all(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(("b", "10.1.0.0/16"), ("c", "10.2.0.0/16")))
    assert harness.run_command("label", "pools", "a", "b", "zone=x", "-o", "name") == 0
    assert harness.out == "ippool/a\nippool/b\n"
    assert harness.run_command("label", "pools", "-l", "zone=x", "tier=gold", "--dry-run=server") == 0
    assert harness.out == (
        "would set label tier on IPPool a; nothing was written\nwould set label tier on IPPool b; nothing was written\n"
    )
    assert harness.run_command("label", "pools", "--all", "zone-") == 0
    assert harness.out.splitlines()[-1] == "label zone is not on IPPool c"
    assert harness.run_command("label", "pool/a", "pool/none", "pool/b", "app=web", "-o", "name") == 1
    assert (harness.out, harness.err.count("\n")) == ("ippool/a\nippool/b\n", 1)


def test_annotations_are_set_and_removed(harness: ToolHarness) -> None:
    assert harness.run_command("annotate", "pool", "a", "note=a text, of any kind", "x=1") == 0
    assert harness.out == "Successfully set annotation note on IPPool a\nSuccessfully set annotation x on IPPool a\n"
    assert harness.run_command("annotate", "pool", "a", "x-", "note=other", "--overwrite") == 0
    assert shown(harness)["metadata"]["annotations"] == {"note": "other"}
    assert harness.run_command("annotate", "pool", "a") == 2
    assert harness.err.startswith(
        "netplugctl: Give ANNOTATION=TEXT to set an annotation, and ANNOTATION- to remove one"
    )


def test_kind_and_name_may_be_one_word(harness: ToolHarness) -> None:
    """As ``get -o name`` prints them."""
    assert harness.run_command("label", "ippool/a", "example.org/app=a/b", "--overwrite") == 1  # no text of a label
    assert harness.run_command("label", "ippool/a", "example.org/app=web") == 0
    assert harness.out == "Successfully set label example.org/app on IPPool a\n"
    assert harness.run_command("label", "pools/a", "example.org/app", "--remove") == 0
    assert harness.run_command("patch", "pool/a", "-p", '{"spec": {"disabled": true}}') == 0
    assert harness.out == "IPPool(a) updated\nSuccessfully patched 1 'IPPool' resource(s)\n"
    assert harness.run_command("label", "wep/none", "a=b", "-n", "other") == 1
    assert harness.err == "netplugctl: resource does not exist: WorkloadEndpoint(other/none)\n"


def test_one_resource_is_patched_at_a_time(harness: ToolHarness) -> None:
    assert harness.run_command("patch", "pool/a", "node/b", "-p", "{}") == 2
    assert "netplugctl: patch takes one resource, as KIND NAME or KIND/NAME; found IPPool(a), Node(b)." in harness.err
    assert harness.run_command("patch", "pool", "-p", "{}") == 2
    assert "netplugctl: patch takes one resource, as KIND NAME or KIND/NAME; found none." in harness.err


def test_labels_of_what_is_not_there_or_not_a_persons(harness: ToolHarness) -> None:
    assert harness.run_command("label", "pool", "none", "a=b") == 1
    assert harness.err == "netplugctl: resource does not exist: IPPool(none)\n"
    assert harness.run_command("label", "clusterinfo", "default", "a=b") == 1
    assert "operation Update is not supported on ClusterInformation(default)" in harness.err
    assert harness.run_command("label", "wep", "none", "a=b", "-n", "other") == 1
    assert harness.err == "netplugctl: resource does not exist: WorkloadEndpoint(other/none)\n"
    assert harness.run_command("label", "sheep", "dolly", "a=b") == 1
    assert "failed to label resources: resource type 'sheep' is not supported" in harness.err


@pytest.mark.parametrize(
    "argv",
    [
        ["label", "pool", "a"],
        ["label", "pool", "a", "app"],
        ["label", "pool", "a", "=x"],
        ["label", "pool", "a", "app=x", "--remove"],
        ["label", "pool", "", "app=x"],
        ["label", "app=x"],
        ["label", "pool/a"],
        ["label", "pool", "app=x"],
        ["label", "pool/", "app=x"],
        ["label", "pool", "a", "app=x", "app-"],
        ["label", "pool", "a", "app=x", "other"],
        ["label", "pool", "a", "-l", "x", "app=x"],
        ["patch", "-p", "{}"],
        ["patch", "pool", "-p", "{}"],
        ["patch", "pool/a", "pool/b", "-p", "{}"],
        ["patch", "pool", "a"],
        ["patch", "pool", "a", "-p", "{"],
        ["patch", "pool", "a", "-p", "[]"],
        ["patch", "pool", "a", "-p", "{}", "-t", "json"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(harness: ToolHarness, argv: list[str]) -> None:
    assert harness.run_command(*argv) == 2
    assert harness.err.startswith("netplugctl: ")
    assert "\nnetplugctl: see 'netplugctl " in harness.err


@pytest.mark.parametrize("more", [[], ["-t", "strategic"], ["--type", "merge"]])
def test_a_patch_changes_what_it_names(harness: ToolHarness, more: list[str]) -> None:
    """S-47 of the catalogue."""
    harness.run_command("label", "pool", "a", "app=web")
    before = shown(harness)
    assert harness.run_command("patch", "pool", "a", "-p", '{"spec": {"natOutgoing": true}}', *more) == 0
    assert harness.out == "IPPool(a) updated\nSuccessfully patched 1 'IPPool' resource(s)\n"
    after = shown(harness)
    assert after["spec"] == {**before["spec"], "natOutgoing": True}
    assert after["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize("patch", ["spec: {natOutgoing: true}", "spec:\n  natOutgoing: true\n"])
def test_a_patch_may_be_yaml(harness: ToolHarness, patch: str) -> None:
    assert harness.run_command("patch", "pool", "a", "-p", patch, "-o", "name") == 0
    assert harness.out == "ippool/a\n"
    assert shown(harness)["spec"]["natOutgoing"] is True


def test_a_patch_that_changes_nothing_or_cannot_be(harness: ToolHarness) -> None:
    assert harness.run_command("patch", "pool", "a", "-p", "{}") == 0
    assert harness.out.startswith("IPPool(a) unchanged\n")
    assert harness.run_command("patch", "pool", "a", "-p", '{"spec": {"colour": "red"}}') == 1
    assert harness.err.startswith("netplugctl: failed to patch 'IPPool' resource: field in document is not recognized")
    assert harness.run_command("patch", "pool", "a", "-p", '{"spec": {"cidr": "10.1.0.0/16"}}') == 1
    assert "IPPool CIDR cannot be modified" in harness.err


@pytest.mark.parametrize("patch", ["{", "[]", "[" * 100_000, "a: 1\n---\nb: 2"])
def test_a_patch_that_is_no_object_is_a_usage_error(harness: ToolHarness, patch: str) -> None:
    assert harness.run_command("patch", "pool", "a", "-p", patch) == 2
    assert "JSON" in harness.err


def test_what_is_exported_is_free_of_where_it_was(harness: ToolHarness) -> None:
    """S-45 of the catalogue."""
    harness.run_command("label", "pool", "a", "app=web")
    assert harness.run_command("get", "pool", "a", "-o", "yaml", "--export") == 0
    text = harness.out
    assert yaml.safe_load(text)["metadata"] == {"name": "a", "labels": {"app": "web"}}
    harness.run_command("delete", "pool", "a")
    assert harness.run_command("create", "-f", harness.write_file(text, "again.yaml")) == 0
    harness.run_command("get", "pools", "-o", "json", "--export")
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(json.loads(harness.out)["items"][0]["metadata"])
