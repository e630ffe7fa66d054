"""``label`` and ``patch``: what they print, and how they exit."""

import json

import pytest
import yaml

from tests.unit.netplug_cli.ctl.bench import Bench

POOL = (("a", "10.0.0.0/16"),)


@pytest.fixture(autouse=True)
def _pool(bench: Bench) -> None:
    bench.type("create", "-f", bench.pools(*POOL))


def shown(bench: Bench) -> dict[str, dict[str, object]]:
    bench.type("get", "pool", "a", "-o", "json")
    found: dict[str, dict[str, object]] = json.loads(bench.out)
    return found


def test_a_label_from_its_setting_to_its_removal(bench: Bench) -> None:
    """S-46 of the catalogue."""
    assert bench.type("label", "pools", "a", "app=web.1") == 0
    assert bench.out == "Successfully set label app on IPPool a\n"
    assert shown(bench)["metadata"]["labels"] == {"app": "web.1"}
    assert bench.type("label", "pools", "a", "app=web=1", "--overwrite") == 1  # the text is what follows the first one
    assert "metadata.labels[app] = 'web=1' (a label's text is at most 63 letters" in bench.err
    assert bench.type("label", "pool", "a", "app=order") == 1
    assert bench.err.startswith("netplugctl: key app is already present on IPPool(a)")
    assert bench.type("label", "pool", "a", "app=", "--overwrite") == 0
    assert bench.out == "Successfully updated label app on IPPool a\n"
    assert bench.type("label", "pool", "a", "app", "--remove") == 0
    assert bench.out == "Successfully removed label app from IPPool a\n"
    assert bench.type("label", "pool", "a", "app", "--remove") == 1
    assert bench.err == "netplugctl: cannot remove label app from IPPool(a): it has no label\n"


def test_labels_of_what_is_not_there_or_not_a_persons(bench: Bench) -> None:
    assert bench.type("label", "pool", "none", "a=b") == 1
    assert bench.err == "netplugctl: resource does not exist: IPPool(none)\n"
    assert bench.type("label", "clusterinfo", "default", "a=b") == 1
    assert "operation Update is not supported on ClusterInformation(default)" in bench.err
    assert bench.type("label", "wep", "none", "a=b", "-n", "other") == 1
    assert bench.err == "netplugctl: resource does not exist: WorkloadEndpoint(other/none)\n"
    assert bench.type("label", "sheep", "dolly", "a=b") == 1
    assert "failed to label resources: resource type 'sheep' is not supported" in bench.err


@pytest.mark.parametrize(
    "argv",
    [
        ["label", "pool", "a"],
        ["label", "pool", "a", "app"],
        ["label", "pool", "a", "=x"],
        ["label", "pool", "a", "app=x", "--remove"],
        ["label", "pool", "", "app=x"],
        ["patch", "pool", "a"],
        ["patch", "pool", "a", "-p", "{"],
        ["patch", "pool", "a", "-p", "[]"],
        ["patch", "pool", "a", "-p", "{}", "-t", "json"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(bench: Bench, argv: list[str]) -> None:
    assert bench.type(*argv) == 2
    assert "\nError: " in bench.err


@pytest.mark.parametrize("more", [[], ["-t", "strategic"], ["--type", "merge"]])
def test_a_patch_changes_what_it_names(bench: Bench, more: list[str]) -> None:
    """S-47 of the catalogue."""
    bench.type("label", "pool", "a", "app=web")
    before = shown(bench)
    assert bench.type("patch", "pool", "a", "-p", '{"spec": {"natOutgoing": true}}', *more) == 0
    assert bench.out == "IPPool(a) updated\nSuccessfully patched 1 'IPPool' resource(s)\n"
    after = shown(bench)
    assert after["spec"] == {**before["spec"], "natOutgoing": True}
    assert after["metadata"]["labels"] == {"app": "web"}


def test_a_patch_that_changes_nothing_or_cannot_be(bench: Bench) -> None:
    assert bench.type("patch", "pool", "a", "-p", "{}") == 0
    assert bench.out.startswith("IPPool(a) unchanged\n")
    assert bench.type("patch", "pool", "a", "-p", '{"spec": {"colour": "red"}}') == 1
    assert bench.err.startswith("netplugctl: failed to patch 'IPPool' resource: field in document is not recognized")
    assert bench.type("patch", "pool", "a", "-p", '{"spec": {"cidr": "10.1.0.0/16"}}') == 1
    assert "IPPool CIDR cannot be modified" in bench.err


def test_what_is_exported_is_free_of_where_it_was(bench: Bench) -> None:
    """S-45 of the catalogue."""
    bench.type("label", "pool", "a", "app=web")
    assert bench.type("get", "pool", "a", "-o", "yaml", "--export") == 0
    text = bench.out
    assert yaml.safe_load(text)["metadata"] == {"name": "a", "labels": {"app": "web"}}
    bench.type("delete", "pool", "a")
    assert bench.type("create", "-f", bench.file(text, "again.yaml")) == 0
    bench.type("get", "pools", "-o", "json", "--export")
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(json.loads(bench.out)["items"][0]["metadata"])
