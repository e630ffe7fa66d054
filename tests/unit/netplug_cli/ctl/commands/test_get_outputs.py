"""``get -o name``, ``custom-columns`` and ``jsonpath``, and which outputs are refused."""

import json
from collections.abc import Callable

import click
import pytest
import yaml
from attrs import evolve

from netplug_cli.ctl.commands.get import get
from netplug_core.records import Create
from netplug_core.resources.kinds import key_of
from tests.harness.ctl import ToolHarness
from tests.harness.resources import ENDPOINT, NODE, make_pool

EXAMPLE = '{range .items[*]}{.metadata.name}{"\\n"}{end}'


@pytest.fixture
def filled(harness: ToolHarness) -> ToolHarness:
    """Two pools, a node and an endpoint."""
    for resource in (make_pool("10.0.0.0/16", "a"), make_pool("10.1.0.0/16", "b"), NODE, ENDPOINT):
        harness.store_records(Create(key_of(resource), resource))
    return harness


def pool_and_node(harness: ToolHarness) -> list[str]:
    """Options that name a pool and a node by files."""
    pool = harness.write_pools(("a", "10.0.0.0/16"))
    node = harness.write_file("apiVersion: projectnetplug.org/v3\nkind: Node\nmetadata: {name: node-a}\n", "node.yaml")
    return ["-f", pool, "-f", node]


def test_names_as_kubectl_prints_them(filled: ToolHarness) -> None:
    assert filled.run_command("get", "pools", "-o", "name") == 0
    assert filled.out == "ippool/a\nippool/b\n"
    assert filled.run_command("get", "weps", "-A", "-o", "name") == 0
    assert filled.out == f"workloadendpoint/{ENDPOINT.metadata.name}\n"
    assert filled.run_command("get", *pool_and_node(filled), "-o", "name") == 0
    assert filled.out == "ippool/a\nnode/node-a\n"


def test_names_of_some_that_are_missing(filled: ToolHarness) -> None:
    assert filled.run_command("get", "pool", "b", "nope", "-o", "name") == 1
    assert (filled.out, filled.err) == ("ippool/b\n", "netplugctl: resource does not exist: IPPool(nope)\n")
    assert filled.run_command("get", "reservations", "-o", "name") == 0
    assert (filled.out, filled.err) == ("", "netplugctl: no IPReservation found\n")


def test_columns(filled: ToolHarness) -> None:
    assert filled.run_command("get", "pools", "-o", "custom-columns=NAME:.metadata.name,CIDR:.spec.cidr,X:.x") == 0
    assert filled.out == "NAME   CIDR          X\na      10.0.0.0/16   <none>\nb      10.1.0.0/16   <none>\n"
    assert filled.run_command("get", "pool", "b", "-o", "custom-columns=CIDR,NAME") == 0
    assert filled.out == "CIDR          NAME\n10.1.0.0/16   b\n"


def test_columns_of_an_empty_kind_are_their_headers(harness: ToolHarness) -> None:
    assert harness.run_command("get", "pools", "-o", "custom-columns=A:.a") == 0
    assert (harness.out, harness.err) == ("A\n", "netplugctl: no IPPool found\n")


def test_columns_of_two_kinds_are_two_tables(filled: ToolHarness) -> None:
    assert filled.run_command("get", *pool_and_node(filled), "-o", "custom-columns=KIND:.kind,NAME") == 0
    assert filled.out == "KIND     NAME\nIPPool   a\n\nKIND   NAME\nNode   node-a\n"


def test_a_template_gets_what_json_prints(filled: ToolHarness) -> None:
    for words, template, printed in (
        (["pools"], EXAMPLE, "a\nb\n"),
        (["pools"], "{.kind}: {.items[*].spec.cidr}", "IPPoolList: 10.0.0.0/16 10.1.0.0/16"),
        (["pool", "a"], "{.metadata.name}", "a"),
        (["pool", "a", "b"], "{.items[-1].metadata.name}", "b"),
        (pool_and_node(filled), "{[*].kind}", "IPPool Node"),
        (["pools", "-l", "rack"], "{.items}", "[]"),
    ):
        assert filled.run_command("get", *words, "-o", f"jsonpath={template}") == 0
        assert filled.out == printed
        filled.run_command("get", *words, "-o", "json")
        shown = filled.out
        assert filled.run_command("get", *words, "-o", "jsonpath={.}") == 0
        assert json.loads(filled.out) == json.loads(shown)


def test_a_missing_name_prints_nothing(filled: ToolHarness) -> None:
    assert filled.run_command("get", "pool", "nope", "-o", "jsonpath=name: {.metadata.name}") == 1
    assert (filled.out, filled.err) == ("", "netplugctl: resource does not exist: IPPool(nope)\n")


def test_an_export_is_what_templates_and_columns_read(filled: ToolHarness) -> None:
    for output in ("jsonpath=[{.metadata.resourceVersion}]", "custom-columns=V:.metadata.resourceVersion"):
        filled.run_command("get", "pool", "a", "-o", output)
        shown = filled.out
        filled.run_command("get", "pool", "a", "--export", "-o", output)
        assert filled.out != shown
        assert filled.out in ("[]", "V\n<none>\n")


def test_large_numbers_stay_exact(filled: ToolHarness) -> None:
    """Trap 10 of numbers beyond 2**53, which go wrong where JSON is read as floating point."""
    large = 2**53 + 1
    pool = make_pool("10.2.0.0/16", "large")
    pool = evolve(pool, spec=evolve(pool.spec, unknown_json=json.dumps({"count": large})))
    filled.store_records(Create(pool.key, pool))
    assert filled.run_command("get", "pool", "large", "-o", "jsonpath={.spec.count} {.spec}") == 0
    first, _, whole = filled.out.partition(" ")
    assert (first, json.loads(whole)["count"]) == (str(large), large)
    filled.run_command("get", "pool", "large", "-o", "custom-columns=COUNT:.spec.count")
    assert filled.out == f"COUNT\n{large}\n"


def test_control_characters_are_written_out(filled: ToolHarness) -> None:
    """A terminal obeys them, and an annotation may come from anybody."""
    pool = make_pool("10.2.0.0/16", "odd")
    pool = evolve(pool, metadata=evolve(pool.metadata, annotations=(("note", "a\x1b]0;b\x07"),)))
    filled.store_records(Create(pool.key, pool))
    for output in ("jsonpath={.metadata.annotations.note}{.}", "custom-columns=NOTE:.metadata.annotations.note"):
        assert filled.run_command("get", "pool", "odd", "-o", output) == 0
        assert filled.out.replace("\n", "").isprintable()
        assert "a\\x1b]0;b\\x07" in filled.out


@pytest.mark.parametrize("output, load", [("json", json.loads), ("yaml", yaml.safe_load)])
def test_objects_have_control_characters_as_escapes(
    filled: ToolHarness, output: str, load: Callable[[str], dict[str, dict[str, dict[str, str]]]]
) -> None:
    """Those of ISO 6429 in one character (U+009B begins a command) too, which JSON leaves as they are."""
    note = "a\x9b31mb\x85\x7f\u202e"
    pool = make_pool("10.2.0.0/16", "odd")
    pool = evolve(pool, metadata=evolve(pool.metadata, annotations=(("note", note),)))
    filled.store_records(Create(pool.key, pool))
    assert filled.run_command("get", "pool", "odd", "-o", output) == 0
    assert filled.out.replace("\n", "").isprintable()
    assert load(filled.out)["metadata"]["annotations"]["note"] == note


@pytest.mark.parametrize(
    "output, problem",
    [
        ("xml", "'xml' is none of ps, wide, yaml, json, name, custom-columns=COLUMNS, jsonpath=TEMPLATE"),
        ("name=x", "'name=x' is none of"),
        ("jsonpath", "jsonpath, position 1: found ''"),
        ("jsonpath={.items[?(@.a)]}", "jsonpath, position 8: '[?(@.a)]' begins a filter"),
        ("custom-columns=A:.a,B:.b[0:1]", "custom-columns, position 10: '[0:1]' begins a slice"),
        ("custom-columns=NAME,NODE", "IPPool has no column 'NODE'; there are NAME, CIDR, SELECTOR"),
        ("go-template={{.a}}", "go-template is not offered: use jsonpath='{range"),
        ("go-template-file=x", "go-template-file is not offered: use jsonpath='{range"),
    ],
)
def test_outputs_that_are_refused(filled: ToolHarness, output: str, problem: str) -> None:
    assert filled.run_command("get", "pools", "-o", output) == 2
    assert filled.out == ""
    assert f"Invalid value for '-o' / '--output': {problem}" in filled.err


def test_the_example_of_the_refusal_is_accepted(filled: ToolHarness) -> None:
    filled.run_command("get", "pools", "-o", "go-template={{.a}}")
    assert f"jsonpath='{EXAMPLE}', or custom-columns=NAME:.metadata.name" in filled.err
    for output in (f"jsonpath={EXAMPLE}", "custom-columns=NAME:.metadata.name"):
        assert filled.run_command("get", "pools", "-o", output) == 0


def test_a_refused_output_asks_no_datastore(harness: ToolHarness) -> None:
    for output in ("jsonpath=x", "custom-columns=NODE", "go-template=x"):
        assert harness.run_command("get", "pools", "-o", output) == 2
    assert harness.opened_settings == []


def test_a_shell_completes_outputs() -> None:
    option = next(parameter for parameter in get.params if parameter.name == "output")
    context = click.Context(get)
    assert [item.value for item in option.type.shell_complete(context, option, "")] == [
        "ps", "wide", "yaml", "json", "name", "custom-columns=", "jsonpath=",
    ]  # fmt: skip
    assert [item.value for item in option.type.shell_complete(context, option, "js")] == ["json", "jsonpath="]
