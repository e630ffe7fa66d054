"""The release that a cluster runs, and the parts of its type."""

from __future__ import annotations

import pytest
from attrs import evolve

from netplug_core.reconcile.cluster import (
    Release,
    add_cluster_types,
    complete_information,
    parse_types,
    raised_release,
)
from netplug_core.resources.clusterinformation import ClusterInformationSpec


@pytest.mark.parametrize(
    "earlier, later",
    [
        ("v3.9.0", "v3.33.0"),
        ("3.33.0", "v3.33.1"),
        ("v3.33.0-rc1", "v3.33.0"),
        ("v3.33.0-rc.2", "v3.33.0-rc.10"),
        ("v3.33.0-1", "v3.33.0-alpha"),
        ("v3.33.0-alpha", "v3.33.0-alpha.1"),
        ("v3.33", "v3.33.1-rc1"),
    ],
)
def test_releases_have_the_order_of_semantic_versioning(earlier: str, later: str) -> None:
    former, other = Release.parse(earlier), Release.parse(later)
    assert former is not None
    assert other is not None
    assert former < other
    assert not other < former


@pytest.mark.parametrize("text", ["v3.33.0", "3.33", "v3.33.0+build.5", "v3.33.0.9", "v3.33.0-"])
def test_what_names_no_suffix_is_the_release(text: str) -> None:
    assert Release.parse(text) == Release((3, 33, 0))


@pytest.mark.parametrize("text", ["", "latest", "v3", "v3.33.0\n", "v" + "9" * 5000 + ".1", "٣.٣", "3.33.0 "])
def test_other_texts_name_none(text: str) -> None:
    """A number of thousands of digits in a damaged record ends no process."""
    assert Release.parse(text) is None


@pytest.mark.parametrize(
    "known, recorded, expected",
    [
        ("", (), ""),
        ("v3.32.0", (), "v3.32.0"),
        ("", ("v3.33.0",), "v3.33.0"),
        ("v3.32.0", ("v3.33.0", "v3.32.0"), "v3.32.0"),
        ("v3.32.0", ("v3.33.0", "v3.32.5"), "v3.32.5"),
        ("v3.32.0", ("v3.33.0", "v3.34.0"), "v3.33.0"),
        ("v3.33.0", ("v3.32.0",), "v3.33.0"),
        ("v3.33.0-rc1", ("v3.33.0",), "v3.33.0"),
        ("v3.33.0", ("3.33.0",), "v3.33.0"),
        ("v3.32.0", ("", "main", "v3.33.0"), "v3.33.0"),
        ("latest", ("v3.33.0",), "v3.33.0"),
        ("latest", ("main",), "latest"),
    ],
)
def test_the_lowest_recorded_release_raises_that_of_the_cluster(
    known: str, recorded: tuple[str, ...], expected: str
) -> None:
    assert raised_release(known, recorded) == expected


def test_the_parts_of_a_type_are_read_from_a_variable() -> None:
    assert parse_types(" k8s, bgp,,k8s ") == ("k8s", "bgp")
    assert parse_types("") == ()


@pytest.mark.parametrize(
    "known, types, expected",
    [
        ("", (), ""),
        ("", ("k8s",), "k8s"),
        ("", ("k8s", "bgp", "kdd"), "k8s,bgp,kdd"),
        ("kdd", ("k8s", "kdd"), "k8s,kdd"),
        ("k8s,kdd,bgp", ("typha",), "k8s,kdd,bgp,typha"),
        ("k8s,,bgp", ("k8s",), "k8s,,bgp"),
        ("bgp", ("kdd", "k8s", "k8s"), "bgp,k8s,kdd"),
    ],
)
def test_parts_are_added_to_a_type_and_none_is_lost(known: str, types: tuple[str, ...], expected: str) -> None:
    assert add_cluster_types(known, types) == expected


def test_what_people_have_set_stays() -> None:
    spec = ClusterInformationSpec(
        cluster_guid="a" * 32, cluster_type="mine", version="v9.0.0", is_datastore_ready=False, unknown_json='{"x":1}'
    )
    assert complete_information(spec, guid="b" * 32, types=("k8s",), recorded=("v3.33.0",)) == evolve(
        spec, cluster_type="mine,k8s"
    )


def test_what_is_missing_is_completed() -> None:
    found = complete_information(ClusterInformationSpec(), guid="b" * 32, types=("k8s",), recorded=("v3.33.0",))
    assert found == ClusterInformationSpec(
        cluster_guid="b" * 32, cluster_type="k8s", version="v3.33.0", is_datastore_ready=True
    )
