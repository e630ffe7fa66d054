"""The verbs: what they print, where, and how they exit."""

import io
import json

import pytest
import yaml

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model.block import Attribute, Block
from netplug_core.records import Create
from netplug_core.resources.metadata import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec, workload_endpoint_key
from tests.harness.ctl import ToolHarness

TWO = (("a", "10.0.0.0/16"), ("b", "fd00::/48"))


def endpoint(namespace: str, name: str) -> Create[object]:
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="node-a", endpoint="eth0", container_id="4f2a", addresses=(Address.parse("10.0.0.1"),)
    )
    value = WorkloadEndpoint(metadata=Metadata(name=name, namespace=namespace), spec=spec)
    return Create(workload_endpoint_key(namespace, name), value)


# --- create, apply -------------------------------------------------------------------------------------------------


def test_create_prints_a_line_for_each_document_and_a_summary(bench: ToolHarness) -> None:
    assert bench.run_command("create", "-f", bench.write_pools(*TWO)) == 0
    assert bench.out == "IPPool(a) created\nIPPool(b) created\nSuccessfully created 2 'IPPool' resource(s)\n"
    assert bench.err == ""


def test_create_gives_the_cluster_an_identity_first(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    assert bench.run_command("get", "clusterinfo") == 0
    assert bench.out.splitlines()[1].startswith("default   0000000000004000800000000000000")


def test_one_failure_of_one_is_one_line(bench: ToolHarness) -> None:
    """S-41 of the catalogue."""
    file = bench.write_pools(TWO[0])
    bench.run_command("create", "-f", file)
    assert bench.run_command("create", "-f", file) == 1
    assert bench.out == ""
    assert bench.err == (
        f"netplugctl: failed to create 'IPPool' resource: {file}#1: resource already exists: IPPool(a); "
        "choose another name, or apply\n"
    )


def test_failures_of_all_are_said_one_by_one(bench: ToolHarness) -> None:
    """S-41 of the catalogue."""
    file = bench.write_pools(*TWO)
    bench.run_command("create", "-f", file)
    assert bench.run_command("create", "-f", file) == 1
    first, second, summary = bench.err.splitlines()
    assert first.startswith(f"netplugctl: {file}#1: resource already exists: IPPool(a)")
    assert second.startswith(f"netplugctl: {file}#2: resource already exists: IPPool(b)")
    assert summary == "netplugctl: failed to create any 'IPPool' resources"


def test_create_goes_on_after_a_failure(bench: ToolHarness) -> None:
    file = bench.write_pools(TWO[0], ("within", "10.0.1.0/24"), TWO[1])
    assert bench.run_command("create", "-f", file) == 1
    assert bench.out == (
        "IPPool(a) created\nIPPool(b) created\nPartial success: created 2 out of 3 'IPPool' resources\n"
    )
    assert bench.err == (
        f"netplugctl: {file}#2: IPPool(within): error with field spec.cidr = '10.0.1.0/24' "
        "(IPPool(within) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16)\n"
    )


def document(kind: str, name: str, spec: str = "{}") -> str:
    return f"apiVersion: projectnetplug.org/v3\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_several_kinds_are_counted_without_a_name(bench: ToolHarness) -> None:
    cluster = bench.write_file(document("ClusterInformation", "default"), "cluster.yaml")
    assert bench.run_command("create", "-f", bench.write_pools(TWO[0]), "-f", cluster) == 1
    assert bench.out.endswith("Partial success: created 1 out of 2 resources\n")
    kept = "operation Create is not supported on ClusterInformation(default): it is kept by netplug itself"
    assert bench.err.endswith(f"{kept}\n")


OTHERS = (
    document("IPReservation", "routers", "{reservedCIDRs: [10.0.0.0/30, 10.0.1.7]}"),
    document("Node", "node-a"),
    document("IPAMConfiguration", "default", "{strictAffinity: true, maxBlocksPerHost: 4}"),
)


@pytest.mark.parametrize(
    "text, words, rows",
    [
        (OTHERS[0], ["reservation", "routers"], [["NAME", "CIDRS"], ["routers", "10.0.0.0/30,10.0.1.7/32"]]),
        (OTHERS[1], ["no", "node-a"], [["NAME", "ORCHESTRATORS", "LABELS"], ["node-a"]]),
        (
            OTHERS[2],
            ["ipamconfig", "default"],
            [
                ["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"],
                ["default", "true", "true", "4"],
            ],
        ),
    ],
)
def test_other_kinds_are_created_shown_and_deleted(
    bench: ToolHarness, text: str, words: list[str], rows: list[list[str]]
) -> None:
    file = bench.write_file(text)
    assert bench.run_command("create", "-f", file) == 0
    assert bench.run_command("get", *words, "-o", "wide") == 0
    assert [line.split() for line in bench.out.splitlines()] == rows
    bench.run_command("get", *words, "-o", "yaml")
    assert bench.run_command("apply", "-f", bench.write_file(bench.out, "back.yaml")) == 0
    assert " unchanged\n" in bench.out
    assert bench.run_command("delete", *words) == 0
    assert bench.run_command("get", *words) == 1


def test_replace_changes_and_never_creates(bench: ToolHarness) -> None:
    """S-40 of the catalogue."""
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    assert bench.run_command("replace", "-f", bench.write_pools(*TWO, spec="disabled: true")) == 1
    assert bench.out == "IPPool(a) updated\nPartial success: replaced 1 out of 2 'IPPool' resources\n"
    assert bench.err.endswith("#2: resource does not exist: IPPool(b)\n")


def test_warnings_go_to_standard_error(bench: ToolHarness) -> None:
    assert bench.run_command("apply", "-f", bench.write_pools(TWO[0], spec="natOutgoing: true")) == 0
    assert bench.out == "IPPool(a) created\nSuccessfully applied 1 'IPPool' resource(s)\n"
    assert bench.err == (
        "netplugctl: warning: IPPool(a): natOutgoing: stored, but not programmed until there is a node process\n"
    )


def test_apply_says_what_became_of_each(bench: ToolHarness) -> None:
    bench.run_command("apply", "-f", bench.write_pools(*TWO))
    assert bench.run_command("apply", "-f", bench.write_pools(TWO[0])) == 0
    assert bench.out == "IPPool(a) unchanged\nSuccessfully applied 1 'IPPool' resource(s)\n"
    bench.run_command("apply", "-f", bench.write_pools(TWO[0], spec="disabled: true"))
    assert bench.out == "IPPool(a) updated\nSuccessfully applied 1 'IPPool' resource(s)\n"


def test_standard_input_is_a_file(bench: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {
        "apiVersion": "projectnetplug.org/v3",
        "kind": "IPPool",
        "metadata": {"name": "a"},
        "spec": {"cidr": "10.0.0.0/16"},
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(pool)))
    assert bench.run_command("create", "-f", "-") == 0
    assert bench.out.startswith("IPPool(a) created\n")


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "no resources specified in file"),
        ("---\n---\n", "no resources specified in file"),
        ("kind: [", "{file}: neither YAML nor JSON, line 1, column 8: "),
        ("kind: Pod", "resource type 'Pod' is not supported @ {file}#1 $.kind; there are IPPool, "),
        ("a: 1\n---\n- b", "resource type '' is not supported @ {file}#1 $.kind; there are "),
        (
            "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.1/24}",
            "expected a CIDR @ {file}#1 $.spec.cidr, found '10.0.0.1/24': IPPool CIDR is not strictly masked; ",
        ),
    ],
)
def test_nothing_is_begun_with_a_file_that_cannot_be_read(bench: ToolHarness, text: str, sentence: str) -> None:
    good, bad = bench.write_pools(TWO[0]), bench.write_file(text, "bad.yaml")
    files = ("-f", bad) if "no resources" in sentence else ("-f", good, "-f", bad)
    assert bench.run_command("create", *files) == 1
    assert bench.out == ""
    assert bench.err.startswith(f"netplugctl: failed to execute command: {sentence.format(file=bad)}")
    assert bench.err.count("\n") == 1
    assert bench.store.calls.commits == 0


def test_a_file_that_is_not_there(bench: ToolHarness) -> None:
    assert bench.run_command("create", "-f", "/nowhere/pool.yaml") == 1
    expected = "netplugctl: failed to execute command: /nowhere/pool.yaml: No such file or directory\n"
    assert bench.err == expected


@pytest.mark.parametrize(
    "argv",
    [
        ["create"],
        ["apply"],
        ["replace"],
        ["delete"],
        ["delete", "pool"],
        ["delete", "pool", "a", "-f", "x"],
        ["delete", "pool", "-f", "x"],
        ["get"],
        ["get", "pool", "-f", "x"],
        ["get", "pool", ""],
        ["get", "wep", "-A", "name"],
        ["get", "pool", "-o", "xml"],
        ["delete", "pool", ""],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(bench: ToolHarness, argv: list[str]) -> None:
    assert bench.run_command(*argv) == 2
    assert "\nError: " in bench.err
    assert bench.out == ""


# --- get -----------------------------------------------------------------------------------------------------------


def test_the_tables_of_a_pool(bench: ToolHarness) -> None:
    """S-37 of the catalogue."""
    spec = "ipipMode: Always, blockSize: 27, nodeSelector: \"foo == 'bar'\""
    bench.run_command("create", "-f", bench.write_pools(("ippool-name1", "10.0.1.0/24"), spec=spec))
    assert bench.run_command("get", "pool") == 0
    assert bench.out.splitlines() == [
        "NAME           CIDR          SELECTOR       ",
        "ippool-name1   10.0.1.0/24   foo == 'bar'   ",
    ]
    assert bench.run_command("get", "IPPools", "ippool-name1", "--output", "wide") == 0
    header, row = bench.out.splitlines()
    assert header.split() == (
        ["NAME", "CIDR", "NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT", "SELECTOR", "ASSIGNMENTMODE"]
    )
    assert row.rstrip() == (
        "ippool-name1   10.0.1.0/24   false   Always     Never       false      false              "
        "foo == 'bar'   Automatic"
    )


def test_a_list_is_sorted_and_an_empty_one_has_its_header(bench: ToolHarness) -> None:
    assert bench.run_command("get", "pools") == 0
    assert bench.out.split() == ["NAME", "CIDR", "SELECTOR"]
    bench.run_command("create", "-f", bench.write_pools(*reversed(TWO)))
    bench.run_command("get", "pools")
    assert [line.split()[0] for line in bench.out.splitlines()] == ["NAME", "a", "b"]


def test_what_is_found_is_printed_and_what_is_not_is_said(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    assert bench.run_command("get", "pool", "nope", "a") == 1
    assert [line.split()[0] for line in bench.out.splitlines()] == ["NAME", "a"]
    assert bench.err == "netplugctl: resource does not exist: IPPool(nope)\n"
    assert bench.run_command("get", "pool", "nope", "-o", "json") == 1
    assert bench.out == ""


def test_one_name_is_an_object_with_its_resource_version(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    bench.run_command("get", "pool", "a", "-o", "json")
    shown = json.loads(bench.out)
    assert list(shown) == ["kind", "apiVersion", "metadata", "spec"]
    assert shown["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert shown["metadata"]["resourceVersion"]
    bench.run_command("get", "pool", "a", "-o", "yaml")
    assert yaml.load(bench.out, Loader=yaml.BaseLoader)["metadata"] == shown["metadata"]  # noqa: S506 - it guesses nothing


def test_a_kind_and_several_names_are_a_list_of_the_kind(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(*TWO))
    for argv in (["get", "pool"], ["get", "pool", "a", "b"]):
        bench.run_command(*argv, "-o", "yaml")
        shown = yaml.safe_load(bench.out)
        assert (shown["kind"], shown["apiVersion"]) == ("IPPoolList", "projectnetplug.org/v3")
        assert [item["metadata"]["name"] for item in shown["items"]] == ["a", "b"]


def test_files_are_objects_one_by_one(bench: ToolHarness) -> None:
    file = bench.write_pools(*TWO)
    bench.run_command("create", "-f", file)
    bench.run_command("get", "-f", file, "-o", "json")
    assert [item["metadata"]["name"] for item in json.loads(bench.out)] == ["a", "b"]
    bench.run_command("get", "-f", bench.write_pools(TWO[1]), "-o", "json")
    assert json.loads(bench.out)["metadata"]["name"] == "b"


def test_what_get_prints_can_be_applied(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(*TWO))
    bench.run_command("get", "pools", "-o", "yaml")
    assert bench.run_command("apply", "-f", bench.write_file(bench.out, "back.yaml")) == 0
    assert bench.out.splitlines()[:2] == ["IPPool(a) unchanged", "IPPool(b) unchanged"]


def test_kinds_in_files_have_a_table_each(bench: ToolHarness) -> None:
    bench.store_records(Create(node_key("n"), Node(metadata=Metadata(name="n"))))
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    node = bench.write_file("apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {name: n}\n", "node.yaml")
    assert bench.run_command("get", "-f", bench.write_pools(TWO[0]), "-f", node) == 0
    assert [line.split()[:1] for line in bench.out.splitlines()] == [["NAME"], ["a"], [], ["NAME"], ["n"]]


def test_namespaces(bench: ToolHarness) -> None:
    bench.store_records(endpoint("default", "w1"), endpoint("other", "w2"))
    header = ["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"]
    bench.run_command("get", "wep")
    assert [line.split() for line in bench.out.splitlines()] == [header, ["4f2a", "node-a", "10.0.0.1/32"]]
    bench.run_command("get", "wep", "-A")
    assert [line.split()[0] for line in bench.out.splitlines()] == ["NAMESPACE", "default", "other"]
    assert bench.run_command("get", "wep", "-n", "other", "w2", "-o", "wide") == 0
    assert bench.out.splitlines()[1].startswith("w2     4f2a")
    assert bench.run_command("get", "wep", "w2") == 1
    assert bench.err == "netplugctl: resource does not exist: WorkloadEndpoint(default/w2)\n"


@pytest.mark.parametrize("option", [["-A"], ["-a"], ["-n", "default"]])
def test_a_pool_has_no_namespace(bench: ToolHarness, option: list[str]) -> None:
    """S-42 of the catalogue."""
    assert bench.run_command("get", "ippool", *option) == 1
    assert bench.err == "netplugctl: failed to get resources: IPPool is not namespaced\n"


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_an_unknown_kind(bench: ToolHarness, verb: str) -> None:
    """S-39 of the catalogue."""
    assert bench.run_command(verb, "somekind", "name") == 1
    text = f"netplugctl: failed to {verb} resources: resource type 'somekind' is not supported; there are IPPool"
    assert bench.err.startswith(text)


# --- delete --------------------------------------------------------------------------------------------------------


def test_delete_by_name_tries_all(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(*TWO))
    assert bench.run_command("delete", "pool", "a", "nope", "b") == 1
    assert bench.out == (
        "IPPool(a) deleted\nIPPool(b) deleted\nPartial success: deleted 2 out of 3 'IPPool' resources\n"
    )
    assert bench.err == "netplugctl: resource does not exist: IPPool(nope)\n"


def test_delete_by_file_honours_its_resource_version(bench: ToolHarness) -> None:
    """S-40 of the catalogue."""
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    bench.run_command("get", "pool", "a", "-o", "yaml")
    old = bench.write_file(bench.out, "old.yaml")
    bench.run_command("apply", "-f", bench.write_pools(TWO[0], spec="disabled: true"))
    assert bench.run_command("delete", "-f", old) == 1
    assert "update conflict: IPPool(a): resource version '" in bench.err
    bench.run_command("get", "pool", "a", "-o", "yaml")
    assert bench.run_command("delete", "-f", bench.write_file(bench.out, "new.yaml")) == 0
    assert bench.out == "IPPool(a) deleted\nSuccessfully deleted 1 'IPPool' resource(s)\n"


def test_delete_warns_of_addresses_that_stay_held(bench: ToolHarness) -> None:
    bench.run_command("create", "-f", bench.write_pools(TWO[0]))
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1).assign((Ordinal(1),), Attribute())
    bench.store_records(Create(block.key, block))
    assert bench.run_command("delete", "pool", "a") == 0
    warning = "IPPool(a): addresses of it that are still held: 1; their workloads keep them"
    assert bench.err == f"netplugctl: warning: {warning}\n"


def test_cluster_information_is_not_deleted(bench: ToolHarness) -> None:
    assert bench.run_command("delete", "clusterinformation", "default") == 1
    assert bench.err == (
        "netplugctl: failed to delete 'ClusterInformation' resource: operation Delete is not supported on "
        "ClusterInformation(default): it is kept by netplug itself\n"
    )


def test_a_store_that_is_away_is_one_line_and_no_secret(bench: ToolHarness) -> None:
    bench.is_unavailable = True
    assert bench.run_command("get", "pools") == 1
    assert bench.out == ""
    assert bench.err == "netplugctl: /nowhere: unable to open the file\n"
