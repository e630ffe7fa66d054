"""Which documents are read as an Installation."""

import pytest

from netplug_core.installation import document as reader
from netplug_core.installation.document import InvalidInstallation, is_installation, read_installation
from tests.harness.installations import manifest, network


@pytest.mark.parametrize("document, is_read", [
    (manifest(), True), ({}, True), ({"kind": 5}, True), ({"kind": "IPPool"}, False), ({"kind": "installation"}, False),
])  # fmt: skip
def test_a_document_of_another_kind_is_not_read(document: dict[str, object], *, is_read: bool) -> None:
    assert is_installation(document) is is_read


def test_an_error_about_long_members_is_short() -> None:
    found = read_installation(manifest({f"field{number}" + "x" * 3000: number for number in range(9)}))
    assert len(found.unreadable) == 9
    assert all(len(str(problem)) < 2000 for problem in found.unreadable)


def test_what_a_cluster_adds_is_ignored() -> None:
    document = manifest(network(mtu=9), status={"mtu": 5})
    document["metadata"] = {
        "name": "default", "uid": "1", "resourceVersion": "5", "generation": 3, "labels": {"a": "b"},
        "creationTimestamp": "2026-08-20T10:00:00Z", "finalizers": ["x"],
    }  # fmt: skip
    found = read_installation(document)
    assert found.installation.spec.network.mtu == 9
    assert found.installation.metadata.labels == (("a", "b"),)


def test_null_and_empty_objects_set_nothing() -> None:
    empty = read_installation(manifest()).installation
    assert (
        read_installation(manifest({"cni": None, "netplugNetwork": {}, "logging": {"cni": None}})).installation == empty
    )
    assert read_installation(manifest(network(ipPools=[]))).installation != empty


def test_an_error_names_document_object_field_value_and_what_is_accepted() -> None:
    (problem,) = read_installation(manifest(network(linuxDataplane="Windows")), source="a.yaml#2").unreadable
    assert str(problem) == (
        "a.yaml#2 Installation(default): Unsupported: spec.netplugNetwork.linuxDataplane: 'Windows' is not accepted; "
        "expected one of Iptables, Nftables, BPF, VPP"
    )
    with pytest.raises(InvalidInstallation) as caught:
        read_installation({"kind": "Installation", "metadata": {}, "apiVersion": "v1"})
    assert str(caught.value) == (
        "Installation: Unsupported: apiVersion: 'v1' is not accepted; expected operator.projectnetplug.org/v1"
    )


def test_what_is_missing_as_a_whole_is_no_installation() -> None:
    with pytest.raises(InvalidInstallation, match="metadata"):
        reader._decode_readable(reader._decoder(), {}, "a.yaml#1")  # noqa: SLF001  # its callers read the name first
