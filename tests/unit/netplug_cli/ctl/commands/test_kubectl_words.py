"""Words of kubectl: ``describe``, ``explain``, ``wait``, ``config view`` and options of ``get``; their corner cases."""

import json
from contextlib import nullcontext
from typing import cast

import pytest
import yaml
from attrs import define, field

from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.installation.cluster import Cluster, ObjectEvent
from netplug_core.records import Create, Key
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolStatus, PoolCondition, ippool_key
from netplug_core.resources.kinds import KINDS, Resource
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.ctl import ToolHarness
from tests.harness.resources import make_pool


@pytest.fixture
def pools(harness: ToolHarness) -> ToolHarness:
    assert harness.run_command("create", "-f", harness.write_pools(("a", "10.9.0.0/16"), ("b", "10.10.0.0/16"))) == 0
    return harness


# --- get -------------------------------------------------------------------------------------------------------------


def test_several_kinds_are_one_list_in_other_outputs(pools: ToolHarness) -> None:
    assert pools.run_command("get", "ippools,profiles,ippool", "-o", "json") == 0
    shown = json.loads(pools.out)
    assert (shown["kind"], [item["kind"] for item in shown["items"]]) == ("List", ["IPPool", "IPPool", "Profile"])
    assert pools.run_command("get", "ippools,nodes", "-o", "name") == 0
    assert pools.out == "ippool/a\nippool/b\n"


def test_nothing_of_several_kinds_is_said(pools: ToolHarness) -> None:
    assert pools.run_command("get", "nodes,bgppeers", "-l", "x=y") == 0
    assert (pools.out, pools.err) == ("", "netplugctl: nothing with labels that match 'x=y' found\n")


@pytest.mark.parametrize(
    "argv, problem",
    [
        (["ippools,nodes", "-w"], "--watch follows resources of one KIND; several are named."),
        (["ippools", "-w", "--sort-by", ".spec"], "--watch follows resources of one KIND"),
        (["ippools", "--sort-by", "a[["], "position"),
        (["all", "a"], "resource type 'all' is not supported"),
        (["ippools,nods"], "did you mean node?"),
    ],
)
def test_what_makes_no_sense_is_refused(pools: ToolHarness, argv: list[str], problem: str) -> None:
    assert pools.run_command("get", *argv) in (1, 2)
    assert problem in pools.err


@pytest.mark.parametrize(
    "path, names",
    [
        (".spec.cidr", ["b", "a"]),
        ("{.metadata.name}", ["a", "b"]),
        ("metadata.labels.zone", ["b", "a"]),
        (".spec.blockSize", ["a", "b"]),
    ],
)
def test_what_has_no_value_comes_first_and_the_order_is_that_of_every_output(
    pools: ToolHarness, path: str, names: list[str]
) -> None:
    pools.run_command("label", "ippool", "a", "zone=x")
    for output in ("name", "yaml"):
        assert pools.run_command("get", "ippools", "--sort-by", path, "-o", output) == 0
        found = (
            [line.partition("/")[2] for line in pools.out.splitlines()]
            if output == "name"
            else [item["metadata"]["name"] for item in yaml.safe_load(pools.out)["items"]]
        )
        assert found == names


def test_a_missing_resource_may_be_no_failure(pools: ToolHarness) -> None:
    assert pools.run_command("get", "ippool", "a", "none", "--ignore-not-found", "-o", "name") == 0
    assert (pools.out, pools.err) == ("ippool/a\n", "")
    assert pools.run_command("delete", "ippool", "none", "a", "--ignore-not-found") == 0
    assert (pools.out, pools.err) == ("IPPool(a) deleted\nSuccessfully deleted 1 'IPPool' resource(s)\n", "")


# --- describe --------------------------------------------------------------------------------------------------------


def test_a_description_names_what_is_unusual(pools: ToolHarness) -> None:
    condition = PoolCondition(type="Allocatable", status="False", message="it is being deleted")
    pool = make_pool("10.11.0.0/16", "c")
    stored = IPPool(metadata=pool.metadata, spec=pool.spec, status=IPPoolStatus(conditions=(condition,)))
    pools.store_records(Create(pool.key, stored))
    assert pools.run_command("describe", "ippool/c", "ippool/none", "ippool/a") == 1
    assert "Problems:\n  Allocatable: False: it is being deleted\n\nName:         a\n" in pools.out
    assert pools.err == "netplugctl: resource does not exist: IPPool(none)\n"


def test_all_of_a_kind_are_described_and_none_is_said(pools: ToolHarness) -> None:
    assert pools.run_command("describe", "ippools") == 0
    assert pools.out.count("Kind:         IPPool") == 2
    assert pools.run_command("describe", "ippools", "-l", "x=y") == 0
    assert pools.err == "netplugctl: no IPPool with labels that match 'x=y' found\n"


@define
class EventsOfACluster:
    """A cluster of which only the Events are read."""

    events: tuple[ObjectEvent, ...] = ()
    asked: list[tuple[str, str, str]] = field(factory=list)

    def find_events(self, kind: str, name: str, namespace: str, *, deadline: Deadline) -> tuple[ObjectEvent, ...]:
        self.asked.append((kind, name, namespace))
        if not self.events:
            raise Unavailable("kubernetes", f"forbidden, {deadline}")
        return self.events


def in_kubernetes(pools: ToolHarness, cluster: EventsOfACluster) -> ToolHarness:
    pools.environ |= {"DATASTORE_TYPE": "kubernetes"}
    pools.open_cluster = lambda _settings: nullcontext(cast("Cluster", cluster))
    return pools


def an_event(minute: int, *, count: int = 1) -> ObjectEvent:
    return ObjectEvent(
        last_seen=f"2026-11-28T10:{minute:02}:00Z",
        is_warning=count > 1,
        reason="PluginsMissing",
        message="portmap is\x1bmissing",
        component="netplug-node",
        count=count,
    )


def test_the_last_events_of_a_resource_are_shown(pools: ToolHarness) -> None:
    cluster = EventsOfACluster(events=(*map(an_event, range(12)), an_event(30, count=3)))
    assert in_kubernetes(pools, cluster).run_command("describe", "ippool", "a") == 0
    shown = pools.out.partition("Events:\n")[2].splitlines()
    assert len(shown) == 11
    assert shown[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "FROM", "MESSAGE"]
    assert shown[1].split()[:2] == ["2026-11-28T10:03:00Z", "Normal"]
    assert shown[-1].split()[1] == "Warning"
    assert shown[-1].endswith("portmap is\\x1bmissing (x3)")
    assert cluster.asked == [("IPPool", "a", "")]


def test_an_endpoint_has_the_events_of_its_pod(pools: ToolHarness) -> None:
    spec = WorkloadEndpointSpec(orchestrator="k8s", node="node-a", endpoint="eth0", pod="web-0")
    endpoint = WorkloadEndpoint(metadata=Metadata(name="node--a-k8s-web--0-eth0", namespace="shop"), spec=spec)
    pools.store_records(Create(WORKLOAD_ENDPOINT.key("shop", endpoint.metadata.name), endpoint))
    cluster = EventsOfACluster(events=(an_event(1),))
    assert in_kubernetes(pools, cluster).run_command("describe", "weps", "-n", "shop") == 0
    assert cluster.asked == [("Pod", "web-0", "shop")]


def test_a_description_is_whole_where_events_may_not_be_read(pools: ToolHarness) -> None:
    assert in_kubernetes(pools, EventsOfACluster()).run_command("describe", "ippool", "a") == 0
    assert "Events:\n  they cannot be read: " in pools.out


# --- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_explained(harness: ToolHarness, kind: object) -> None:
    name = getattr(kind, "name", "")
    assert harness.run_command("explain", name, "--recursive") == 0
    assert harness.out.startswith(f"KIND:     {name}\n")
    assert "  metadata.labels <object>\n      Names and texts by which selectors find it.\n" in harness.out
    assert ".." not in harness.out
    assert "No description." not in harness.out


@pytest.mark.parametrize(
    "path, problem",
    [
        ("ippool.spc", "IPPool.spc: no such field; did you mean spec? there are metadata, spec, status"),
        ("ippool.spec.cidr.x", "IPPool.spec.cidr.x: no such field; it has no fields"),
        ("ippol", "resource type 'ippol' is not supported; did you mean ippool?"),
    ],
)
def test_an_unknown_field_is_named_with_those_there_are(harness: ToolHarness, path: str, problem: str) -> None:
    assert harness.run_command("explain", path) == 1
    assert problem in harness.err


def test_the_fields_of_items_of_a_list_are_named_without_brackets(harness: ToolHarness) -> None:
    assert harness.run_command("explain", "ippool.status.conditions") == 0
    assert "FIELD:    status.conditions <list of object>" in harness.out
    assert "  message <string>\n" in harness.out
    assert harness.run_command("explain", "ippool.status.conditions.TYPE") == 0
    assert "FIELD:    status.conditions[].type <string>" in harness.out


# --- wait ------------------------------------------------------------------------------------------------------------


def remove(pools: ToolHarness, key: Key[Resource]) -> None:
    pools.run_command("delete", "ippool", key.name)


@pytest.mark.parametrize(
    "goal, met",
    [
        ("create", True),
        ("delete", False),
        ("jsonpath={.spec.cidr}", True),
        ("jsonpath={.spec.cidr}=10.9.0.0/16", True),
        ("jsonpath={.spec.cidr}=10.0.0.0/16", False),
        ("jsonpath={.spec.none}", False),
        ("condition=Ready", False),
    ],
)
def test_a_goal_is_met_at_once_or_not_in_time(pools: ToolHarness, goal: str, *, met: bool) -> None:
    before = pools.clock.monotonic()
    assert pools.run_command("wait", "ippool/a", "--for", goal, "--timeout", "5s") == (0 if met else 1)
    if met:
        assert (pools.out, pools.clock.monotonic()) == ("IPPool(a) condition met\n", before)
    else:
        assert pools.err == f"netplugctl: timed out after 5s waiting for {goal} of IPPool(a)\n"
        assert pools.clock.monotonic() == pytest.approx(before + 5)


def test_a_condition_has_a_status(pools: ToolHarness) -> None:
    condition = PoolCondition(type="Allocatable", status="False")
    pool = make_pool("10.11.0.0/16", "c")
    stored = IPPool(metadata=pool.metadata, spec=pool.spec, status=IPPoolStatus(conditions=(condition,)))
    pools.store_records(Create(pool.key, stored))
    assert pools.run_command("wait", "ippool", "c", "--for=condition=allocatable=false") == 0
    assert pools.run_command("wait", "ippool", "c", "--for=condition=Allocatable", "--timeout=1s") == 1


def test_what_is_gone_meanwhile_is_said(pools: ToolHarness) -> None:
    remove(pools, ippool_key("a"))
    assert pools.run_command("wait", "ippool", "a", "--for=delete") == 0
    assert pools.out == "IPPool(a) deleted\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["ippool/a"],
        ["ippool/a", "--for", "ready"],
        ["ippool/a", "--for", "delete=now"],
        ["ippool/a", "--for", "condition="],
        ["ippool/a", "--for", "jsonpath=.spec"],
        ["ippool/a", "--for", "jsonpath={.spec}x"],
        ["ippool/a", "--for", "jsonpath={[[}"],
        ["ippools", "--for", "create"],
        ["ippool/a", "--all", "--for", "create"],
    ],
)
def test_a_goal_that_is_none_is_wrong_usage(pools: ToolHarness, argv: list[str]) -> None:
    assert pools.run_command("wait", *argv) == 2
    assert pools.err.startswith("netplugctl: ")


# --- config ----------------------------------------------------------------------------------------------------------


def test_the_configuration_says_where_it_comes_from_and_shows_no_secret(harness: ToolHarness) -> None:
    assert harness.run_command("config", "view", "-o", "json") == 0
    rows = {row["setting"]: row["value"] for row in json.loads(harness.out)["rows"]}
    assert rows["configuration"] == "the environment"
    assert rows["etcdPassword"] == "…"
    text = "kind: NetplugAPIConfig\napiVersion: projectnetplug.org/v3\nspec: {datastoreType: sqlite, sqlitePath: /a}\n"
    file = harness.write_file(text, "some.cfg")
    assert harness.run_command("config", "view", "--config", file) == 0
    assert harness.out.splitlines()[1:] == [
        f"configuration   {file}", "datastoreType   sqlite", "sqlitePath      /a",
    ]  # fmt: skip
