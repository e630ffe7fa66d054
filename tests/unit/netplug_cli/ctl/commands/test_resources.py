"""The verbs: what they print, where, and how they exit."""

import io
import json
from pathlib import Path

import pytest
import yaml

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.model import Attribute, Block
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.ctl import ToolHarness

TWO = (("a", "10.0.0.0/16"), ("b", "fd00::/48"))


def endpoint(namespace: str, name: str) -> Create[object]:
    spec = WorkloadEndpointSpec(
        orchestrator="cni", node="node-a", endpoint="eth0", container_id="4f2a", addresses=(Address.parse("10.0.0.1"),)
    )
    value = WorkloadEndpoint(metadata=Metadata(name=name, namespace=namespace), spec=spec)
    return Create(WORKLOAD_ENDPOINT.key(namespace, name), value)


# --- create, apply -------------------------------------------------------------------------------------------------


def test_create_prints_a_line_for_each_document_and_a_summary(harness: ToolHarness) -> None:
    assert harness.run_command("create", "-f", harness.write_pools(*TWO)) == 0
    assert harness.out == "IPPool(a) created\nIPPool(b) created\nSuccessfully created 2 'IPPool' resource(s)\n"
    assert harness.err == ""


@pytest.mark.parametrize("kind", ["NetworkPolicy", "GlobalNetworkPolicy"])
@pytest.mark.parametrize(
    "spec, path, found",
    [
        ({"tier": "x"}, "$.spec.tier", "'x'"),
        ({"ingress": [{"action": "Pass"}]}, "$.spec.ingress[0].action", "'Pass'"),
        ({"preDNAT": True}, "preDNAT", "$.spec"),
        ({"egress": [{"action": "Allow", "destination": {"services": {"name": "a"}}}]}, "services", "{'name': 'a'}"),
    ],
)
def test_what_policies_do_not_support_is_refused_by_name(
    harness: ToolHarness, kind: str, spec: dict[str, object], path: str, found: str
) -> None:
    """P-30: and nothing is stored."""
    document = {"apiVersion": "projectnetplug.org/v3", "kind": kind, "metadata": {"name": "p"}, "spec": spec}
    name = harness.write_file(yaml.safe_dump(document))
    for verb in ("create", "apply"):
        assert harness.run_command(verb, "-f", name) != 0
        assert path in harness.err
        assert found in harness.err
    assert harness.run_command("get", kind, "-o", "json") == 0
    assert json.loads(harness.out)["items"] == []


def test_create_gives_the_cluster_an_identity_first(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    assert harness.run_command("get", "clusterinfo") == 0
    assert harness.out.splitlines()[1].startswith("default   0000000000004000800000000000000")


def test_one_failure_of_one_is_one_line(harness: ToolHarness) -> None:
    """S-41 of the catalogue."""
    file = harness.write_pools(TWO[0])
    harness.run_command("create", "-f", file)
    assert harness.run_command("create", "-f", file) == 1
    assert harness.out == ""
    assert harness.err == (
        f"netplugctl: failed to create 'IPPool' resource: {file}#1: resource already exists: IPPool(a); "
        "choose another name, or apply\n"
    )


def test_failures_of_all_are_said_one_by_one(harness: ToolHarness) -> None:
    """S-41 of the catalogue."""
    file = harness.write_pools(*TWO)
    harness.run_command("create", "-f", file)
    assert harness.run_command("create", "-f", file) == 1
    first, second, summary = harness.err.splitlines()
    assert first.startswith(f"netplugctl: {file}#1: resource already exists: IPPool(a)")
    assert second.startswith(f"netplugctl: {file}#2: resource already exists: IPPool(b)")
    assert summary == "netplugctl: failed to create any 'IPPool' resources"


def test_create_goes_on_after_a_failure(harness: ToolHarness) -> None:
    file = harness.write_pools(TWO[0], ("within", "10.0.1.0/24"), TWO[1])
    assert harness.run_command("create", "-f", file) == 1
    assert harness.out == (
        "IPPool(a) created\nIPPool(b) created\nPartial success: created 2 out of 3 'IPPool' resources\n"
    )
    assert harness.err == (
        f"netplugctl: {file}:9:14: IPPool(within): error with field spec.cidr = '10.0.1.0/24' "
        "(IPPool(within) CIDR overlaps with IPPool(a) CIDR 10.0.0.0/16)\n"
    )


def document(kind: str, name: str, spec: str = "{}") -> str:
    return f"apiVersion: projectnetplug.org/v3\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_several_kinds_are_counted_without_a_name(harness: ToolHarness) -> None:
    cluster = harness.write_file(document("ClusterInformation", "default"), "cluster.yaml")
    assert harness.run_command("create", "-f", harness.write_pools(TWO[0]), "-f", cluster) == 1
    assert harness.out.endswith("Partial success: created 1 out of 2 resources\n")
    kept = "operation Create is not supported on ClusterInformation(default): it is kept by netplug itself"
    assert harness.err.endswith(f"{kept}\n")


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
    harness: ToolHarness, text: str, words: list[str], rows: list[list[str]]
) -> None:
    file = harness.write_file(text)
    assert harness.run_command("create", "-f", file) == 0
    assert harness.run_command("get", *words, "-o", "wide") == 0
    assert [line.split() for line in harness.out.splitlines()] == rows
    harness.run_command("get", *words, "-o", "yaml")
    assert harness.run_command("apply", "-f", harness.write_file(harness.out, "back.yaml")) == 0
    assert " unchanged\n" in harness.out
    assert harness.run_command("delete", *words) == 0
    assert harness.run_command("get", *words) == 1


def test_replace_changes_and_never_creates(harness: ToolHarness) -> None:
    """S-40 of the catalogue."""
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    assert harness.run_command("replace", "-f", harness.write_pools(*TWO, spec="disabled: true")) == 1
    assert harness.out == "IPPool(a) updated\nPartial success: replaced 1 out of 2 'IPPool' resources\n"
    assert harness.err.endswith("#2: resource does not exist: IPPool(b)\n")


def test_warnings_go_to_standard_error(harness: ToolHarness) -> None:
    assert harness.run_command("apply", "-f", harness.write_pools(TWO[0], spec="blockSize: 22")) == 0
    assert harness.out == "IPPool(a) created\nSuccessfully applied 1 'IPPool' resource(s)\n"
    assert harness.err == (
        "netplugctl: warning: IPPool(a): blockSize 22: a block of so many addresses can outgrow what a datastore "
        "accepts, and then takes no more; use 23 or more\n"
    )


def test_apply_says_what_became_of_each(harness: ToolHarness) -> None:
    harness.run_command("apply", "-f", harness.write_pools(*TWO))
    assert harness.run_command("apply", "-f", harness.write_pools(TWO[0])) == 0
    assert harness.out == "IPPool(a) unchanged\nSuccessfully applied 1 'IPPool' resource(s)\n"
    harness.run_command("apply", "-f", harness.write_pools(TWO[0], spec="disabled: true"))
    assert harness.out == "IPPool(a) updated\nSuccessfully applied 1 'IPPool' resource(s)\n"


def test_standard_input_is_a_file(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {
        "apiVersion": "projectnetplug.org/v3",
        "kind": "IPPool",
        "metadata": {"name": "a"},
        "spec": {"cidr": "10.0.0.0/16"},
    }
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(pool)))
    assert harness.run_command("create", "-f", "-") == 0
    assert harness.out.startswith("IPPool(a) created\n")


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "{file}: no resources specified in file"),
        ("---\n---\n", "{file}: no resources specified in file"),
        ("kind: [", "{file}: neither YAML nor JSON, line 1, column 8: "),
        ("kind: Pod", "resource type 'Pod' is not supported @ {file}:1:7 $.kind; it is an object of Kubernetes, "),
        ("a: 1\n---\n- b", "resource type '' is not supported @ {file}:1:1 $.kind; give the document a kind, "),
        (
            "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.0.0.1/24}",
            "expected a CIDR @ {file}:4:14 $.spec.cidr, found '10.0.0.1/24': IPPool CIDR is not strictly masked; ",
        ),
    ],
)
def test_nothing_is_begun_with_a_file_that_cannot_be_read(harness: ToolHarness, text: str, sentence: str) -> None:
    good, bad = harness.write_pools(TWO[0]), harness.write_file(text, "bad.yaml")
    files = ("-f", bad) if "no resources" in sentence else ("-f", good, "-f", bad)
    assert harness.run_command("create", *files) == 1
    assert harness.out == ""
    assert harness.err.startswith(f"netplugctl: {sentence.format(file=bad)}")
    assert harness.err.count("\n") == 1
    assert harness.store.calls.commits == 0


def test_a_file_that_is_not_there(harness: ToolHarness) -> None:
    assert harness.run_command("create", "-f", "/nowhere/pool.yaml") == 1
    assert harness.err == "netplugctl: /nowhere/pool.yaml: No such file or directory; nothing was done\n"


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
        ["delete", "pool/a", "-f", "x"],
        ["get", "pool/a", "-f", "x"],
        ["get", "wep/name", "-A"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(harness: ToolHarness, argv: list[str]) -> None:
    assert harness.run_command(*argv) == 2
    assert harness.err.startswith("netplugctl: ")
    assert "\nnetplugctl: see 'netplugctl " in harness.err
    assert harness.out == ""


MIXED = "give every resource as KIND/NAME, or one KIND and its NAMEs"


@pytest.mark.parametrize("verb", ["get", "delete"])
@pytest.mark.parametrize(
    "words, problem",
    [
        (["pool/a", "b"], f"'b' has no '/', and 'pool/a' has one: {MIXED}."),
        (["pool", "pool/a"], f"'pool' has no '/', and 'pool/a' has one: {MIXED}."),
        (["pool", "10.0.0.0/16"], f"'pool' has no '/', and '10.0.0.0/16' has one: {MIXED}."),
        (["pool/"], f"'pool/' is no KIND/NAME: {MIXED}."),
        (["/a"], f"'/a' is no KIND/NAME: {MIXED}."),
        (["wep/shop/w"], f"'wep/shop/w' is no KIND/NAME: {MIXED}."),
    ],
)
def test_both_forms_of_naming_resources_are_not_mixed(
    harness: ToolHarness, verb: str, words: list[str], problem: str
) -> None:
    assert harness.run_command(verb, *words) == 2
    assert harness.err == f"netplugctl: {problem}\nnetplugctl: see 'netplugctl {verb} --help'\n"
    assert (harness.out, harness.opened_settings) == ("", [])


def test_a_mistyped_field_is_named_rather_than_the_one_that_is_missing_for_it(harness: ToolHarness) -> None:
    file = harness.write_pools(("a", "10.0.0.0/16"))
    Path(file).write_text(Path(file).read_text().replace("cidr:", "cidrs:"))
    assert harness.run_command("create", "-f", file) == 1
    assert harness.err.startswith(
        "netplugctl: field in document is not recognized or is in the wrong location: cidrs @ "
        f"{file}:4:8 $.spec; did you mean cidr? there are allowedUses, assignmentMode, blockSize, cidr, "
    )


# --- get -----------------------------------------------------------------------------------------------------------


def test_the_tables_of_a_pool(harness: ToolHarness) -> None:
    """S-37 of the catalogue."""
    spec = "ipipMode: Always, blockSize: 27, nodeSelector: \"foo == 'bar'\""
    harness.run_command("create", "-f", harness.write_pools(("ippool-name1", "10.0.1.0/24"), spec=spec))
    assert harness.run_command("get", "pool") == 0
    assert harness.out.splitlines() == [
        "NAME           CIDR          SELECTOR",
        "ippool-name1   10.0.1.0/24   foo == 'bar'",
    ]
    assert harness.run_command("get", "IPPools", "ippool-name1", "--output", "wide") == 0
    header, row = harness.out.splitlines()
    assert header.split() == (
        ["NAME", "CIDR", "NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT", "SELECTOR", "ASSIGNMENTMODE"]
    )
    assert row == (
        "ippool-name1   10.0.1.0/24   false   Always     Never       false      false              "
        "foo == 'bar'   Automatic"
    )


def test_a_list_is_sorted_and_an_empty_one_is_said_to_be_empty(harness: ToolHarness) -> None:
    assert harness.run_command("get", "pools") == 0
    assert harness.out.split() == ["NAME", "CIDR", "SELECTOR"]
    assert harness.err == "netplugctl: no IPPool found\n"
    assert harness.run_command("get", "weps") == 0
    assert harness.err == "netplugctl: no WorkloadEndpoint found in namespace default; -A shows all namespaces\n"
    harness.run_command("create", "-f", harness.write_pools(*reversed(TWO)))
    harness.run_command("get", "pools")
    assert [line.split()[0] for line in harness.out.splitlines()] == ["NAME", "a", "b"]


def test_what_is_found_is_printed_and_what_is_not_is_said(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    assert harness.run_command("get", "pool", "nope", "a") == 1
    assert [line.split()[0] for line in harness.out.splitlines()] == ["NAME", "a"]
    assert harness.err == "netplugctl: resource does not exist: IPPool(nope)\n"
    assert harness.run_command("get", "pool", "nope", "-o", "json") == 1
    assert harness.out == ""


def test_one_name_is_an_object_with_its_resource_version(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    harness.run_command("get", "pool", "a", "-o", "json")
    shown = json.loads(harness.out)
    assert list(shown) == ["kind", "apiVersion", "metadata", "spec"]
    assert shown["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert shown["metadata"]["resourceVersion"]
    harness.run_command("get", "pool", "a", "-o", "yaml")
    assert yaml.load(harness.out, Loader=yaml.BaseLoader)["metadata"] == shown["metadata"]  # noqa: S506 - it guesses nothing


def test_a_kind_and_several_names_are_a_list_of_the_kind(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    for argv in (["get", "pool"], ["get", "pool", "a", "b"]):
        harness.run_command(*argv, "-o", "yaml")
        shown = yaml.safe_load(harness.out)
        assert (shown["kind"], shown["apiVersion"]) == ("IPPoolList", "projectnetplug.org/v3")
        assert [item["metadata"]["name"] for item in shown["items"]] == ["a", "b"]


def test_files_are_objects_one_by_one(harness: ToolHarness) -> None:
    file = harness.write_pools(*TWO)
    harness.run_command("create", "-f", file)
    harness.run_command("get", "-f", file, "-o", "json")
    assert [item["metadata"]["name"] for item in json.loads(harness.out)] == ["a", "b"]
    harness.run_command("get", "-f", harness.write_pools(TWO[1]), "-o", "json")
    assert json.loads(harness.out)["metadata"]["name"] == "b"


def test_what_get_prints_can_be_applied(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    harness.run_command("get", "pools", "-o", "yaml")
    assert harness.run_command("apply", "-f", harness.write_file(harness.out, "back.yaml")) == 0
    assert harness.out.splitlines()[:2] == ["IPPool(a) unchanged", "IPPool(b) unchanged"]


def test_kinds_in_files_have_a_table_each(harness: ToolHarness) -> None:
    harness.store_records(Create(node_key("n"), Node(metadata=Metadata(name="n"))))
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    node = harness.write_file("apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {name: n}\n", "node.yaml")
    assert harness.run_command("get", "-f", harness.write_pools(TWO[0]), "-f", node) == 0
    assert [line.split()[:1] for line in harness.out.splitlines()] == [["NAME"], ["a"], [], ["NAME"], ["n"]]


def test_resources_of_several_kinds_are_named_by_kind_and_name(harness: ToolHarness) -> None:
    harness.store_records(Create(node_key("n"), Node(metadata=Metadata(name="n"))), endpoint("other", "w2"))
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    assert harness.run_command("get", "ippool/b", "Pools/a", "no/n") == 0
    assert [line.split()[:1] for line in harness.out.splitlines()] == [["NAME"], ["b"], ["a"], [], ["NAME"], ["n"]]
    assert harness.run_command("get", "ippool/b", "node/n", "wep/w2", "-n", "other", "-o", "name") == 0
    assert harness.out == "ippool/b\nnode/n\nworkloadendpoint/w2\n"
    assert harness.run_command("get", "ippool/b", "node/n", "-n", "other") == 1
    assert harness.err == "netplugctl: failed to get resources: IPPool is not namespaced\n"
    assert harness.run_command("get", "pool/a", "node/nope") == 1
    assert harness.err == "netplugctl: resource does not exist: Node(nope)\n"
    assert harness.run_command("get", "sheep/dolly") == 1
    assert "failed to get resources: resource type 'sheep' is not supported" in harness.err


def test_objects_of_several_kinds_are_a_list_that_can_be_applied(harness: ToolHarness) -> None:
    harness.store_records(Create(node_key("n"), Node(metadata=Metadata(name="n"))))
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    for words, kind in (
        (["pool/a"], "IPPool"),
        (["pool/a", "ippool/b"], "IPPoolList"),
        (["pool/a", "node/n"], "List"),
    ):
        assert harness.run_command("get", *words, "-o", "yaml") == 0
        shown = yaml.safe_load(harness.out)
        assert (shown["kind"], shown["apiVersion"]) == (kind, "projectnetplug.org/v3")
    assert harness.run_command("apply", "-f", harness.write_file(harness.out, "back.yaml")) == 0
    assert harness.out.splitlines()[:2] == ["IPPool(a) unchanged", "Node(n) unchanged"]


def test_a_column_that_one_of_the_kinds_lacks_prints_nothing(harness: ToolHarness) -> None:
    assert harness.run_command("get", "pool/a", "node/n", "-o", "custom-columns=NAME,CIDR") == 2
    assert "Node has no column 'CIDR'" in harness.err
    assert (harness.out, harness.opened_settings) == ("", [])


def test_namespaces(harness: ToolHarness) -> None:
    harness.store_records(endpoint("default", "w1"), endpoint("other", "w2"))
    header = ["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"]
    harness.run_command("get", "wep")
    assert [line.split() for line in harness.out.splitlines()] == [header, ["4f2a", "node-a", "10.0.0.1/32"]]
    harness.run_command("get", "wep", "-A")
    assert [line.split()[0] for line in harness.out.splitlines()] == ["NAMESPACE", "default", "other"]
    assert harness.run_command("get", "wep", "-n", "other", "w2", "-o", "wide") == 0
    assert harness.out.splitlines()[1].startswith("w2     4f2a")
    assert harness.run_command("get", "wep", "w2") == 1
    assert harness.err == "netplugctl: resource does not exist: WorkloadEndpoint(default/w2); did you mean w1?\n"


def test_a_file_without_a_namespace_means_that_of_the_command_line(harness: ToolHarness) -> None:
    """A namespace that the file has wins."""
    harness.store_records(endpoint("default", "w"), endpoint("shop", "w"), endpoint("other", "w"))

    document = (
        "apiVersion: projectnetplug.org/v3\nkind: WorkloadEndpoint\nmetadata: {name: w}\n"
        "spec: {orchestrator: cni, node: node-a, endpoint: eth0}\n"
    )

    def found(file: str, *options: str) -> str:
        output = ("-o", "custom-columns=NS:.metadata.namespace")
        harness.run_command("get", "-f", harness.write_file(file, "w.yaml"), *output, *options)
        return "".join(harness.out.split()[1:])

    assert (found(document), found(document, "-n", "shop")) == ("default", "shop")
    assert found(document.replace("{name: w}", "{name: w, namespace: other}"), "-n", "shop") == "other"
    assert found(document, "-A") == ""
    assert "in one namespace" in harness.err


def test_an_endpoint_that_names_no_workload_has_a_row(harness: ToolHarness) -> None:
    bare = WorkloadEndpoint(
        metadata=Metadata(name="w1", namespace="default"),
        spec=WorkloadEndpointSpec(orchestrator="", node="", endpoint=""),
    )
    harness.store_records(Create(WORKLOAD_ENDPOINT.key("default", "w1"), bare))
    harness.run_command("get", "wep")
    assert harness.out.splitlines()[1:] == ["w1"]


@pytest.mark.parametrize("option", [["-n", "default"], ["a", "-n", "default"]])
def test_a_pool_has_no_namespace(harness: ToolHarness, option: list[str]) -> None:
    """S-42 of the catalogue."""
    assert harness.run_command("get", "ippool", *option) == 1
    assert harness.err == "netplugctl: failed to get resources: IPPool is not namespaced\n"


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_an_unknown_kind(harness: ToolHarness, verb: str) -> None:
    """S-39 of the catalogue."""
    assert harness.run_command(verb, "somekind", "name") == 1
    text = f"netplugctl: failed to {verb} resources: resource type 'somekind' is not supported; there are IPPool"
    assert harness.err.startswith(text)


# --- delete --------------------------------------------------------------------------------------------------------


def test_delete_by_name_tries_all(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    assert harness.run_command("delete", "pool", "a", "nope", "b") == 1
    assert harness.out == (
        "IPPool(a) deleted\nIPPool(b) deleted\nPartial success: deleted 2 out of 3 'IPPool' resources\n"
    )
    assert harness.err == "netplugctl: resource does not exist: IPPool(nope)\n"


def test_what_get_prints_as_names_can_be_deleted(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(*TWO))
    harness.store_records(Create(node_key("n"), Node(metadata=Metadata(name="n"))))
    harness.run_command("get", "pools", "-o", "name")
    pools = harness.out.split()
    assert harness.run_command("delete", *pools, "node/n", "ippool/nope") == 1
    assert harness.out == (
        "IPPool(a) deleted\nIPPool(b) deleted\nNode(n) deleted\nPartial success: deleted 3 out of 4 resources\n"
    )
    assert harness.err == "netplugctl: resource does not exist: IPPool(nope)\n"


def test_a_damaged_resource_of_another_namespace_can_be_deleted(harness: ToolHarness) -> None:
    harness.store_records(endpoint("shop", "w1"))
    harness.damage[WORKLOAD_ENDPOINT.key("shop", "w1")] = b"7"
    assert harness.run_command("delete", "wep", "w1") == 1
    assert "WorkloadEndpoint(default/w1)" in harness.err
    assert harness.run_command("delete", "wep/w1", "-n", "shop") == 0
    assert harness.out.startswith("WorkloadEndpoint(shop/w1) deleted\n")


def test_delete_by_file_honours_its_resource_version(harness: ToolHarness) -> None:
    """S-40 of the catalogue."""
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    harness.run_command("get", "pool", "a", "-o", "yaml")
    old = harness.write_file(harness.out, "old.yaml")
    harness.run_command("apply", "-f", harness.write_pools(TWO[0], spec="disabled: true"))
    assert harness.run_command("delete", "-f", old) == 1
    assert "update conflict: IPPool(a): resource version '" in harness.err
    harness.run_command("get", "pool", "a", "-o", "yaml")
    assert harness.run_command("delete", "-f", harness.write_file(harness.out, "new.yaml")) == 0
    assert harness.out == "IPPool(a) deleted\nSuccessfully deleted 1 'IPPool' resource(s)\n"


def test_delete_names_what_a_node_takes_with_it(harness: ToolHarness) -> None:
    node = "apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {name: node-a}\n"
    own = (
        "---\napiVersion: projectnetplug.org/v3\nkind: HostEndpoint\nmetadata: {name: lan}\n"
        "spec: {node: node-a, interfaceName: eth0}\n"
    )
    harness.run_command("create", "-f", harness.write_file(node + own, "node.yaml"))
    warning = "netplugctl: warning: HostEndpoint(lan): it belonged to the node node-a alone, and is deleted too\n"
    for options, words in (("--dry-run",), "would delete Node(node-a)\n"), ((), "Node(node-a) deleted\n"):
        assert harness.run_command("delete", "node", "node-a", *options) == 0
        assert harness.out.startswith(words)
        assert harness.err == warning
    harness.run_command("get", "heps")
    assert harness.err == "netplugctl: no HostEndpoint found\n"


def test_delete_warns_of_addresses_that_stay_held(harness: ToolHarness) -> None:
    harness.run_command("create", "-f", harness.write_pools(TWO[0]))
    block = Block.new(Prefix.parse("10.0.0.0/26"), owner="host:a", now_ns=1).assign((Ordinal(1),), Attribute())
    harness.store_records(Create(block.key, block))
    assert harness.run_command("delete", "pool", "a") == 0
    warning = "IPPool(a): addresses of it that are still held: 1; their workloads keep them"
    assert harness.err == f"netplugctl: warning: {warning}\n"


def test_cluster_information_is_not_deleted(harness: ToolHarness) -> None:
    assert harness.run_command("delete", "clusterinformation", "default") == 1
    assert harness.err == (
        "netplugctl: failed to delete 'ClusterInformation' resource: operation Delete is not supported on "
        "ClusterInformation(default): it is kept by netplug itself\n"
    )


def test_a_store_that_is_away_is_one_line_and_no_secret(harness: ToolHarness) -> None:
    harness.is_unavailable = True
    assert harness.run_command("get", "pools") == 1
    assert harness.out == ""
    assert harness.err == "netplugctl: /nowhere: unable to open the file\n"


def test_a_folder_of_files_is_created_and_deleted(harness: ToolHarness) -> None:
    below = harness.folder / "below"
    below.mkdir()
    Path(harness.write_pools(TWO[1])).rename(below / "second.yaml")
    harness.write_pools(TWO[0])
    assert harness.run_command("create", "-R", "-f", str(harness.folder)) == 0
    assert harness.out.splitlines()[-1] == "Successfully created 2 'IPPool' resource(s)"
    assert harness.run_command("delete", "-f", str(harness.folder)) == 0
    assert harness.out.splitlines()[-1] == "Successfully deleted 1 'IPPool' resource(s)"
    assert harness.run_command("get", "-f", str(below), "-o", "json") == 0
    assert harness.run_command("apply", "-f", str(harness.folder / "nothing")) == 1


# --- long lists ----------------------------------------------------------------------------------------------------


def test_a_long_table_begins_before_it_is_read(harness: ToolHarness) -> None:
    """The columns are those of the first thousand rows, and grow where a later row is wider."""
    names = [f"n-{number:04}" for number in range(1_000)] + ["z" * 30]
    harness.run_command("create", "-f", harness.write_pools(("main", "10.0.0.0/16")))
    labels = (("rack", "r1"),)
    harness.store_records(
        *(Create(node_key(name), Node(metadata=Metadata(name=name, labels=labels))) for name in names)
    )
    assert harness.run_command("get", "nodes", "-o", "wide") == 0
    header, *rows = harness.out.splitlines()
    assert header == "NAME     ORCHESTRATORS   LABELS"
    assert rows[999] == "n-0999                   rack=r1"
    assert rows[1000] == f"{'z' * 30}                   rack=r1"
    assert [row.split()[0] for row in rows] == names
