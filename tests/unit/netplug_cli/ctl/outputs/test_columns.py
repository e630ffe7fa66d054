"""Custom columns: paths, names of a kind's own columns, and what is refused."""

import pytest
from attrs import evolve

from netplug_cli.ctl.outputs import CustomColumns, PathError, UnknownColumn, parse_columns
from netplug_core.records import Record, Revision
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import Resource, key_of, kind_of
from tests.harness.resources import ENDPOINT, NODE, make_pool

POOL = make_pool("10.0.0.0/16", "a")


def row(columns: CustomColumns, resource: Resource) -> dict[str, str]:
    """The cells of a resource by their headers."""
    made = columns.of_kind(kind_of(resource), lambda record: to_mapping(record.value))
    return dict(zip(made.headers, made.cells(Record(key_of(resource), resource, Revision("1"))), strict=True))


@pytest.mark.parametrize(
    "text, cells",
    [
        ("NAME:.metadata.name", {"NAME": "a"}),
        ("NAME:.metadata.name,CIDR:.spec.cidr", {"NAME": "a", "CIDR": "10.0.0.0/16"}),
        ("name:metadata.name", {"name": "a"}),
        ("N:{.metadata.name}, C : {spec.cidr} ", {"N": "a", "C": "10.0.0.0/16"}),
        ("NAME,cidr", {"NAME": "a", "CIDR": "10.0.0.0/16"}),
        ("CIDR,MINE:.spec.cidr,NAT", {"CIDR": "10.0.0.0/16", "MINE": "10.0.0.0/16", "NAT": "false"}),
        ("A:.missing", {"A": "<none>"}),
        ("A:.spec.allowedUses[*]", {"A": "Workload,Tunnel"}),
        ("A:.spec.allowedUses", {"A": '["Workload","Tunnel"]'}),
        ("A:.metadata.labels['a,b:c'],B:.kind", {"A": "<none>", "B": "IPPool"}),
    ],
)
def test_columns_of_a_pool(text: str, cells: dict[str, str]) -> None:
    assert row(parse_columns(text), POOL) == cells


def test_a_label_with_a_comma_in_its_name_is_one_column() -> None:
    labelled = evolve(NODE, metadata=evolve(NODE.metadata, labels=(("a,b]", "x"),)))
    assert row(parse_columns("L:.metadata.labels['a,b]']"), labelled) == {"L": "x"}


def test_an_endpoint_has_a_column_with_its_namespace() -> None:
    assert row(parse_columns("NAMESPACE,NAME"), ENDPOINT) == {
        "NAMESPACE": ENDPOINT.metadata.namespace,
        "NAME": ENDPOINT.metadata.name,
    }


def test_a_column_of_another_kind_is_refused_with_those_of_this_one() -> None:
    with pytest.raises(UnknownColumn) as caught:
        row(parse_columns("NAME,NODE"), POOL)
    assert str(caught.value) == (
        "IPPool has no column 'NODE'; there are NAME, CIDR, SELECTOR, NAT, IPIPMODE, VXLANMODE, DISABLED, "
        "DISABLEBGPEXPORT, ASSIGNMENTMODE, and HEADER:PATH"
    )


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "position 1: found ''; columns are HEADER:PATH, such as CIDR:.spec.cidr, or names of the kind's own"),
        ("A:.a,,B:.b", "position 6: found ''"),
        ("A:.a,", "position 6: found ''"),
        (":.a", "position 1: found ':.a'"),
        ("A:", "position 1: found 'A:'"),
        ("A:.a,B: ", "position 6: found 'B: '"),
        ("A:.a,B:.b[?(@.c)]", "position 10: '[?(@.c)]' begins a filter"),
        ("A:a..b", "position 4: '..b' begins a search"),
        ("A: {.a()}", "position 7: found '()'"),
        ("A:.a[0,1]", "position 5: '[0,1]' begins a union"),
    ],
)
def test_what_columns_cannot_be(text: str, problem: str) -> None:
    with pytest.raises(PathError) as caught:
        parse_columns(text)
    assert str(caught.value).startswith(problem)
