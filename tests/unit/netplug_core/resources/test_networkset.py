"""NetworkSet and GlobalNetworkSet: what a document may say, and what counts of a stored one."""

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import DocumentOrigin, MalformedField
from netplug_core.names import API_VERSION
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.networkpolicy import GlobalNetworkSet, NetworkSet, NetworkSetSpec
from netplug_core.resources.validation import InvalidResource, resource_warnings, validate_resource
from tests.harness.resources import GLOBAL_NETWORK_SET, NETWORK_SET

METADATA = {"name": "partners", "namespace": "shop"}


def document(spec: Mapping[str, object]) -> Mapping[str, object]:
    return {"kind": "NetworkSet", "apiVersion": API_VERSION, "metadata": METADATA, "spec": spec}


def by_hand(spec: Mapping[str, object]) -> NetworkSet:
    found = from_mapping(document(spec), origin=DocumentOrigin.USER, source="f")
    assert isinstance(found, NetworkSet)
    return found


@pytest.mark.parametrize("resource", [NETWORK_SET, GLOBAL_NETWORK_SET])
def test_a_set_has_addresses_of_both_families(resource: NetworkSet | GlobalNetworkSet) -> None:
    validate_resource(resource)
    written = to_mapping(resource)
    assert written["spec"] == {"nets": ["192.0.2.0/24", "2001:db8::1/128"]}
    assert from_mapping(written, origin=DocumentOrigin.USER) == resource
    assert resource.spec.not_supported == ()
    assert resource_warnings(resource) == ()


def test_a_set_may_be_empty() -> None:
    found = by_hand({})
    validate_resource(found)
    assert found.spec == NetworkSetSpec()


@pytest.mark.parametrize(
    "net, problem",
    [
        ("10.0.0.1/8", "expected a CIDR without host bits (10.0.0.0/8) @ f $.spec.nets[0], found '10.0.0.1/8'"),
        ("nonsense", "expected a CIDR or an IP address @ f $.spec.nets[0], found 'nonsense'"),
        (1, "expected a CIDR or an IP address @ f $.spec.nets[0], found 1"),
    ],
)
def test_what_is_no_prefix_is_refused(net: object, problem: str) -> None:
    with pytest.raises(MalformedField) as caught:
        by_hand({"nets": [net]})
    assert str(caught.value) == problem


def test_a_set_has_a_bound() -> None:
    nets = [f"10.{n // 256}.{n % 256}.0/24" for n in range(10_001)]
    validate_resource(by_hand({"nets": nets[1:]}))
    with pytest.raises(InvalidResource, match=r"spec\.nets = '10001' \(must be at most 10000 prefixes\)"):
        validate_resource(by_hand({"nets": nets}))


def test_what_cannot_be_read_of_a_stored_set_is_kept_and_no_member() -> None:
    stored = document({"nets": ["10.0.0.1/8", "nonsense", 1], "colour": "red"})
    found = from_mapping(stored, origin=DocumentOrigin.DATASTORE)
    assert isinstance(found, NetworkSet)
    assert found.spec.nets == (Prefix.parse("10.0.0.0/8"),)
    assert found.spec.not_supported == ("colour", "nets")
    assert to_mapping(found) == document({"nets": ["10.0.0.0/8", "nonsense", 1], "colour": "red"})
