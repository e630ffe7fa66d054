"""Labels, merge patches and copies of stored resources, as values."""

import pytest
from attrs import evolve

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.resources.codec import Mark, apply_merge_patch, strip_cluster_fields, to_mapping, with_marks
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec
from tests.harness.resources import NETWORK_POLICY

POOL = IPPool(
    metadata=Metadata(
        name="p", namespace="", uid="u", creation_time_ns=7_000_000_000, labels=(("b", "1"), ("c", "2")),
        annotations=(("x", "y"),), finalizers=("f",), unknown_json='{"later":1}',
    ),
    spec=IPPoolSpec(prefix=Prefix.parse("10.0.0.0/16"), block_length=26, unknown_json='{"newer":2}'),
    unknown_json='{"newest":3}',
)  # fmt: skip


def test_labels_stay_sorted() -> None:
    assert with_marks(POOL, Mark.LABEL, {"a": "0"}).metadata.labels == (("a", "0"), ("b", "1"), ("c", "2"))
    assert with_marks(POOL, Mark.LABEL, {"b": "9"}) == evolve(
        POOL, metadata=evolve(POOL.metadata, labels=(("b", "9"), ("c", "2")))
    )
    assert with_marks(POOL, Mark.LABEL, {"b": None}).metadata.labels == (("c", "2"),)
    assert with_marks(POOL, Mark.LABEL, {"none": None}) == POOL


def test_a_patch_changes_what_it_names_and_null_takes_away() -> None:
    """S-47 of the catalogue."""
    patch = {
        "metadata": {"labels": {"b": None, "d": "3"}, "annotations": None},
        "spec": {"disabled": True, "allowedUses": ["Tunnel"]},
    }
    found = apply_merge_patch(POOL, patch)
    assert isinstance(found, IPPool)
    assert found.metadata.labels == (("c", "2"), ("d", "3"))
    assert (found.metadata.annotations, found.metadata.finalizers, found.metadata.uid) == ((), ("f",), "u")
    assert found.spec.is_disabled
    assert [use.value for use in found.spec.allowed_uses] == ["Tunnel"]
    assert found.spec.prefix == POOL.spec.prefix
    assert apply_merge_patch(found, patch) == found


def test_an_object_replaces_what_is_none() -> None:
    bare = evolve(POOL, metadata=Metadata(name="p"))
    assert apply_merge_patch(bare, {"metadata": {"labels": {"a": "b"}}}).metadata.labels == (("a", "b"),)


@pytest.mark.parametrize(
    "patch, sentence",
    [
        ({"spec": {"colour": "red"}}, "wrong location: colour @ patch $.spec"),
        ({"status": {}}, "wrong location: status @ patch $; there are metadata, spec"),
        ({"metadata": {"name": "q"}}, "wrong location: name @ patch $.metadata; there are annotations, labels"),
        ({"metadata": 7}, "expected an object @ patch $.metadata, found 7"),
        ({"spec": {"cidr": None}}, "expected a CIDR @ patch $.spec.cidr, found nothing"),
    ],
)
def test_a_patch_that_makes_no_such_resource_is_refused(patch: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        apply_merge_patch(POOL, patch)
    assert sentence in str(refusal.value)


def test_a_copy_for_elsewhere_has_nothing_that_is_its_own_here() -> None:
    """S-45 of the catalogue."""
    metadata = to_mapping(strip_cluster_fields(evolve(POOL, metadata=evolve(POOL.metadata, namespace="ns"))))[
        "metadata"
    ]
    assert metadata == {
        "name": "p",
        "labels": {"b": "1", "c": "2"},
        "annotations": {"x": "y"},
        "finalizers": ["f"],
        "later": 1,
    }


def test_a_field_that_could_not_be_read_has_to_be_given_anew() -> None:
    broken = evolve(NETWORK_POLICY, spec=evolve(NETWORK_POLICY.spec, selector="", unknown_json='{"a":1,"selector":2}'))
    with pytest.raises(ConfigurationError, match=r"expected a text @ patch \$\.spec\.selector, found 2"):
        apply_merge_patch(broken, {"spec": {"order": 10.5}})
    assert apply_merge_patch(broken, {"spec": {"selector": NETWORK_POLICY.spec.selector}}) == NETWORK_POLICY
