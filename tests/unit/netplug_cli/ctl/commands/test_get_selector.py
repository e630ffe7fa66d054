"""``get`` with a label selector: of which kinds, in which outputs, and beside which other options."""

import json

import pytest
import yaml
from attrs import evolve

from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.kinds import KINDS, Resource, key_of
from netplug_core.resources.kubecontrollersconfiguration import KubeControllersConfiguration
from tests.harness.ctl import ToolHarness
from tests.harness.resources import (
    CLUSTER,
    CONFIGURATION,
    ENDPOINT,
    NETWORK_KINDS,
    NODE,
    POLICY_KINDS,
    PROFILE,
    RESERVATION,
    make_pool,
)

LABELS = {"a": (("rack", "r1"), ("tier", "gold")), "b": (("rack", "r2"),), "c": ()}
CONTROLLERS = KubeControllersConfiguration(metadata=Metadata(name="default"))
EACH_KIND: tuple[Resource, ...] = (
    make_pool(),
    RESERVATION,
    CONFIGURATION,
    NODE,
    PROFILE,
    CLUSTER,
    CONTROLLERS,
    *NETWORK_KINDS,
    *POLICY_KINDS,
    ENDPOINT,
)


@pytest.fixture
def labelled(harness: ToolHarness) -> ToolHarness:
    for number, (name, labels) in enumerate(LABELS.items()):
        pool = make_pool(f"10.{number}.0.0/16", name)
        pool = evolve(pool, metadata=evolve(pool.metadata, labels=labels))
        harness.store_records(Create(pool.key, pool))
    return harness


def names(harness: ToolHarness, *argv: str) -> list[str]:
    """The names in the table of the pools that some options select."""
    assert harness.run_command("get", "pools", *argv) == 0
    return [line.split()[0] for line in harness.out.splitlines()[1:]]


@pytest.mark.parametrize(
    "argv, found",
    [
        (["-l", "rack=r1"], ["a"]),
        (["-l", "rack"], ["a", "b"]),
        (["-l", "!rack"], ["c"]),
        (["-l", "rack!=r1"], ["b", "c"]),
        (["-l", "rack in (r1,r2),tier!=gold"], ["b"]),
        (["-l", "rack notin (r1)"], ["b", "c"]),
        (["-lrack=r1"], ["a"]),
        (["--selector=rack=r1"], ["a"]),
        (["--selector", "rack == 'r1' || !has(rack)"], ["a", "c"]),
        (["-l", "rack", "-l", "tier"], ["a"]),
        (["-l", "rack", "--selector", "!tier"], ["b"]),
        (["-l", ""], ["a", "b", "c"]),
        (["-l", "rack=r1", "-o", "wide"], ["a"]),
    ],
)
def test_a_selector_selects_by_labels(labelled: ToolHarness, argv: list[str], found: list[str]) -> None:
    assert names(labelled, *argv) == found
    assert labelled.err == ""


@pytest.mark.parametrize("resource", EACH_KIND, ids=lambda resource: key_of(resource).kind.name)
def test_every_kind_has_labels(harness: ToolHarness, resource: Resource) -> None:
    metadata = Metadata(name=resource.metadata.name, namespace="default", labels=(("x.io/team", "net"),))
    if not resource.metadata.namespace:
        metadata = evolve(metadata, namespace="")
    labelled = evolve(resource, metadata=metadata)
    harness.store_records(Create(key_of(labelled), labelled))
    kind = key_of(labelled).kind.name
    for selector, found in (("x.io/team=net", 1), ("x.io/team=other", 0)):
        assert harness.run_command("get", kind, "-l", selector, "-o", "json") == 0
        assert len(json.loads(harness.out)["items"]) == found
    assert {key_of(each).kind.name for each in EACH_KIND} == {row.name for row in KINDS}


def test_lists_hold_what_is_selected(labelled: ToolHarness) -> None:
    assert labelled.run_command("get", "pools", "-l", "tier", "-o", "yaml") == 0
    assert [item["metadata"]["name"] for item in yaml.safe_load(labelled.out)["items"]] == ["a"]
    assert labelled.run_command("get", "pools", "-l", "tier=lead", "-o", "json") == 0
    assert json.loads(labelled.out)["items"] == []


def test_an_empty_result_is_said(labelled: ToolHarness) -> None:
    assert names(labelled, "-l", "tier=lead") == []
    assert labelled.err == "netplugctl: no IPPool with labels that match 'tier=lead' found\n"
    assert labelled.run_command("get", "weps", "-l", "a", "-l", "!b") == 0
    assert labelled.err == (
        "netplugctl: no WorkloadEndpoint with labels that match 'a' and '!b' found in namespace default; "
        "-A shows all namespaces\n"
    )


@pytest.mark.parametrize(
    "argv", [["get", "pools", "-l", "INFO"], ["-l", "INFO", "get", "pools"], ["ipam", "show", "-l", "INFO"]]
)
def test_the_name_of_a_log_level_after_l_is_refused(labelled: ToolHarness, argv: list[str]) -> None:
    """For one release: earlier ones took it for the log level."""
    assert labelled.run_command(*argv) == 2
    assert labelled.err.startswith("netplugctl: -l selects by labels; the log level is --log-level INFO.")
    assert names(labelled, "--selector", "info") == []
    assert labelled.err == "netplugctl: no IPPool with labels that match 'info' found\n"
    assert names(labelled, "--log-level", "info", "-l", "tier") == ["a"]
    assert labelled.err == "netplugctl: datastore memory: this process\n"


def test_l_of_a_command_that_takes_no_selector_is_refused(labelled: ToolHarness) -> None:
    assert labelled.run_command("ipam", "show", "-l", "tier=gold") == 2
    assert labelled.err.startswith("netplugctl: -l selects by labels, and this takes no selector.\n")


def test_a_wrong_selector_is_one_error_before_the_datastore_is_asked(labelled: ToolHarness) -> None:
    for option in ("-l", "--selector"):
        assert labelled.run_command("get", "pools", option, "rack=r1,,tier") == 1
        assert labelled.err == (
            "netplugctl: --selector: 'rack=r1,,tier' is no selector: position 9: found ',', expected a label or '!'\n"
        )
    assert (labelled.out, labelled.opened_settings) == ("", [])


@pytest.mark.parametrize("rest", [["pools", "a"], ["-f", "pool.yaml"]])
def test_a_selector_does_not_go_with_names_or_files(labelled: ToolHarness, rest: list[str]) -> None:
    labelled.write_pools(("a", "10.0.0.0/16"))
    files = [word if word != "pool.yaml" else str(labelled.folder / word) for word in rest]
    assert labelled.run_command("get", *files, "-l", "tier") == 2
    assert "--selector selects among all of a KIND; leave out names and files." in labelled.err
