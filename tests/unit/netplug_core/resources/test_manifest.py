"""A document of a person: the value, the resource version it names, and where it stood."""

import pytest
from attrs import evolve

from netplug_core.errors import ConfigurationError
from netplug_core.resources.codec import manifest_from_mapping
from netplug_core.resources.ippool import IPPool

POOL: dict[str, object] = {
    "kind": "IPPool",
    "apiVersion": "projectnetplug.org/v3",
    "metadata": {"name": "p", "resourceVersion": "12345"},
    "spec": {"cidr": "10.0.0.0/16"},
}


def test_a_manifest_keeps_its_resource_version_beside_the_value() -> None:
    manifest = manifest_from_mapping(POOL, source="pool.yaml#1")
    assert isinstance(manifest.resource, IPPool)
    assert (manifest.revision, manifest.source) == ("12345", "pool.yaml#1")


def test_a_manifest_need_not_name_one() -> None:
    assert manifest_from_mapping({**POOL, "metadata": {"name": "p"}}, source="x").revision == ""


def test_a_resource_version_is_a_text() -> None:
    with pytest.raises(ConfigurationError, match=r"expected a text @ x \$\.metadata\.resourceVersion, found 5"):
        manifest_from_mapping({**POOL, "metadata": {"name": "p", "resourceVersion": 5}}, source="x")


def test_a_member_has_the_place_of_the_document_unless_its_own_is_known() -> None:
    manifest = manifest_from_mapping(POOL, source="pool.yaml#1")
    assert manifest.place_of("spec.cidr") == "pool.yaml#1"
    assert evolve(manifest, find_place=lambda path: f"pool.yaml:6:9 {path}").place_of("spec") == "pool.yaml:6:9 spec"


def test_a_document_without_a_namespace_is_in_that_of_the_command_line() -> None:
    policy: dict[str, object] = {**POOL, "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {}}
    assert manifest_from_mapping(policy, source="x").within("shop").resource.metadata.namespace == "shop"
    own = manifest_from_mapping({**policy, "metadata": {"name": "p", "namespace": "y"}}, source="x")
    assert own.within("shop") == own
    pool = manifest_from_mapping(POOL, source="x")
    assert pool.within("shop") == pool
