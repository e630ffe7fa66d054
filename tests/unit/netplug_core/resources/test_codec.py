"""Resources as mappings: what is read, what is refused and in which words, what is carried, what goes out."""

from collections.abc import Mapping

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import parse_time
from netplug_core.decoding.tables import DocumentOrigin, MalformedField, UnknownField
from netplug_core.errors import ConfigurationError
from netplug_core.names import API_VERSION
from netplug_core.records import Kind
from netplug_core.resources.clusterinformation import CLUSTER_INFORMATION, ClusterInformation
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import (
    IPAM_CONFIGURATION,
    IPPOOL,
    IPRESERVATION,
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolStatus,
    IPReservation,
)
from netplug_core.resources.kinds import Resource, UnknownKind
from netplug_core.resources.node import Node
from netplug_core.resources.policyrule import PolicyRule, RuleAction
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

Json = Mapping[str, object]

STORED_SPEC = {
    "cidr": "10.0.0.0/16",
    "blockSize": 26,
    "ipipMode": "Always",
    "vxlanMode": "Never",
    "natOutgoing": True,
    "nodeSelector": "all()",
    "allowedUses": ["Workload", "Tunnel"],
    "assignmentMode": "Automatic",
}
STORED_POOL: Json = {
    "kind": "IPPool",
    "apiVersion": API_VERSION,
    "metadata": {"name": "pool-1", "uid": "6f1c", "creationTimestamp": "2026-08-20T10:00:00Z"},
    "spec": STORED_SPEC,
}


def document(kind: str = "IPPool", **members: object) -> Json:
    return {"kind": kind, "apiVersion": API_VERSION, "metadata": {"name": "it"}, **members}


def pool(**spec: object) -> Json:
    return document(spec={"cidr": "10.0.0.0/16", **spec})


def by_hand(mapping: Json, source: str = "pool.yaml#1") -> Resource:
    return from_mapping(mapping, origin=DocumentOrigin.USER, source=source)


def stored(mapping: Json, kind: Kind[object] | None = None) -> Resource:
    return from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)


def spec_of(resource: Resource) -> Json:
    spec = to_mapping(resource)["spec"]
    assert isinstance(spec, dict)
    return spec


def test_a_stored_pool_is_read_and_written_as_it_is() -> None:
    value = stored(STORED_POOL, kind=IPPOOL)
    assert isinstance(value, IPPool)
    assert value.metadata.name == "pool-1"
    assert value.metadata.creation_time_ns == parse_time("2026-08-20T10:00:00Z")
    assert value.spec.prefix == Prefix.parse("10.0.0.0/16")
    assert value.spec.ipip_mode is Encapsulation.ALWAYS
    assert value.spec.has_outgoing_nat
    assert to_mapping(value) == STORED_POOL


@pytest.mark.parametrize(
    "cidr, canonical, length", [("10.0.0.0/16", "10.0.0.0/16", 26), ("fdf4:0:0::/64", "fdf4::/64", 122)]
)
def test_defaults_are_filled_in_when_read_and_stand_in_what_is_written(cidr: str, canonical: str, length: int) -> None:
    value = by_hand(document(spec={"cidr": cidr, "blockSize": 0, "allowedUses": [], "nodeSelector": None}))
    assert isinstance(value, IPPool)
    assert value.spec.block_length == length
    assert value.spec.allowed_uses == (AllowedUse.WORKLOAD, AllowedUse.TUNNEL)
    assert value.spec.assignment_mode is AssignmentMode.AUTOMATIC
    assert spec_of(value) == {
        "cidr": canonical,
        "blockSize": length,
        "ipipMode": "Never",
        "vxlanMode": "Never",
        "natOutgoing": False,
        "nodeSelector": "all()",
        "allowedUses": ["Workload", "Tunnel"],
        "assignmentMode": "Automatic",
    }


def test_every_field_of_a_pool_survives() -> None:
    spec = {
        "cidr": "fd00::/64",
        "blockSize": 120,
        "ipipMode": "Never",
        "vxlanMode": "CrossSubnet",
        "natOutgoing": True,
        "nodeSelector": "rack == 'a'",
        "namespaceSelector": "team == 'b'",
        "allowedUses": ["Workload"],
        "assignmentMode": "Manual",
        "disabled": True,
        "disableBGPExport": True,
    }
    metadata = {
        "name": "full",
        "generateName": "fu",
        "uid": "u",
        "creationTimestamp": "2026-08-20T10:00:00Z",
        "deletionTimestamp": "2026-08-21T10:00:00Z",
        "labels": {"a": "b"},
        "annotations": {"c": ""},
        "finalizers": ["projectnetplug.org/ippool-finalizer"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "o", "controller": True}],
    }
    status = {
        "conditions": [
            {
                "type": "Allocatable",
                "status": "False",
                "reason": "CIDROverlap",
                "message": "m",
                "lastTransitionTime": "x",
            }
        ]
    }
    mapping = {"kind": "IPPool", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}
    value = stored(mapping)
    assert isinstance(value, IPPool)
    assert value.is_terminating
    assert value.not_allocatable_condition is not None
    assert value.not_allocatable_condition.reason == "CIDROverlap"
    assert to_mapping(value) == mapping


def test_a_resource_version_is_shown_and_never_stored() -> None:
    value = stored({**STORED_POOL, "metadata": {"name": "pool-1", "resourceVersion": "7", "managedFields": [{}]}})
    assert to_mapping(value)["metadata"] == {"name": "pool-1"}
    assert to_mapping(value, revision="9")["metadata"] == {"name": "pool-1", "resourceVersion": "9"}


def test_what_a_newer_release_stored_is_carried_through_at_every_level() -> None:
    mapping = {
        **STORED_POOL,
        "metadata": {"name": "pool-1", "future": {"b": 2**63, "a": None}},
        "spec": {**STORED_SPEC, "future": [1]},
        "status": {"future": "x"},
        "future": True,
    }
    assert to_mapping(stored(mapping)) == mapping


def test_fields_of_the_first_version_are_read_past_in_a_store_and_refused_from_a_user() -> None:
    old: Json = {"ipip": {"enabled": True}, "nat-outgoing": True}
    value = stored(pool(**old))
    assert not {"ipip", "nat-outgoing"} & set(spec_of(value))
    with pytest.raises(UnknownField, match="ipip, nat-outgoing"):
        by_hand(pool(**old))


def test_a_user_cannot_write_a_status_but_may_hand_one_back() -> None:
    value = by_hand({**pool(), "status": {"conditions": "whatever a later get prints"}})
    assert isinstance(value, IPPool)
    assert value.status == IPPoolStatus()


@pytest.mark.parametrize(
    "mapping, field, place",
    [
        ({**pool(), "sepc": {}}, "sepc", "pool.yaml#1 $; did you mean spec?"),
        (pool(blocksize=26), "blocksize", "pool.yaml#1 $.spec; did you mean blockSize?"),
        ({**pool(), "metadata": {"name": "p", "label": {}}}, "label", "pool.yaml#1 $.metadata; did you mean labels?"),
        (pool(colour="red"), "colour", "pool.yaml#1 $.spec;"),
        ({**pool(), "cidr": "10.0.0.0/24"}, "cidr", "pool.yaml#1 $; it belongs in spec;"),
    ],
)
def test_unknown_fields_of_a_user_are_refused(mapping: Json, field: str, place: str) -> None:
    with pytest.raises(UnknownField) as caught:
        by_hand(mapping)
    text = str(caught.value)
    assert text.startswith(
        f"field in document is not recognized or is in the wrong location: {field} @ {place} there are "
    )


@pytest.mark.parametrize(
    "mapping, sentence",
    [
        (pool(cidr=None), "expected a CIDR @ pool.yaml#1 $.spec.cidr, found nothing: IPPool CIDR must be specified"),
        (document(), "expected a CIDR @ pool.yaml#1 $.spec.cidr, found nothing: IPPool CIDR must be specified"),
        (
            pool(cidr="10.0.0.0/33"),
            "expected a CIDR @ pool.yaml#1 $.spec.cidr, found '10.0.0.0/33': IPPool CIDR must be a valid subnet",
        ),
        (
            pool(cidr="::ffff:10.0.0.0/104"),
            (
                "expected a CIDR @ pool.yaml#1 $.spec.cidr, found '::ffff:10.0.0.0/104': "
                "IPPool CIDR must be a valid subnet"
            ),
        ),
        (
            pool(cidr="10.0.0.1/24"),
            (
                "expected a CIDR @ pool.yaml#1 $.spec.cidr, found '10.0.0.1/24': IPPool CIDR is not strictly masked; "
                "10.0.0.0/24 is the one that holds it"
            ),
        ),
        (pool(cidr=10), "expected a text @ pool.yaml#1 $.spec.cidr, found 10: put it in quotes"),
        (
            pool(blockSize="26"),
            (
                "expected a whole number of at least 0 @ pool.yaml#1 $.spec.blockSize, found '26': "
                "it is a text; leave out the quotes"
            ),
        ),
        (pool(blockSize="x"), "expected a whole number of at least 0 @ pool.yaml#1 $.spec.blockSize, found 'x'"),
        (pool(blockSize=-1), "expected a whole number of at least 0 @ pool.yaml#1 $.spec.blockSize, found -1"),
        (pool(blockSize=True), "expected a whole number of at least 0 @ pool.yaml#1 $.spec.blockSize, found True"),
        (pool(disabled="yes"), "expected true or false @ pool.yaml#1 $.spec.disabled, found 'yes'"),
        (
            pool(disabled="True"),
            "expected true or false @ pool.yaml#1 $.spec.disabled, found 'True': it is a text; leave out the quotes",
        ),
        (
            pool(ipipMode="always"),
            (
                "expected one of Never, Always, CrossSubnet @ pool.yaml#1 $.spec.ipipMode, found 'always': "
                "did you mean Always?"
            ),
        ),
        (
            pool(allowedUses=["Workload", []]),
            "expected one of Workload, Tunnel, LoadBalancer @ pool.yaml#1 $.spec.allowedUses[1], found []",
        ),
        (pool(allowedUses="Workload"), "expected a list @ pool.yaml#1 $.spec.allowedUses, found 'Workload'"),
        ({**pool(), "spec": []}, "expected an object @ pool.yaml#1 $.spec, found []"),
        ({**pool(), "metadata": None}, "expected a name @ pool.yaml#1 $.metadata.name, found nothing"),
        ({**pool(), "metadata": {"name": ""}}, "expected a name @ pool.yaml#1 $.metadata.name, found ''"),
        (
            {**pool(), "metadata": {"name": "p", "labels": []}},
            "expected an object of texts @ pool.yaml#1 $.metadata.labels, found []",
        ),
        (
            {**pool(), "metadata": {"name": "p", "labels": {"a": 1}}},
            "expected a text @ pool.yaml#1 $.metadata.labels['a'], found 1: put it in quotes",
        ),
        (
            {**pool(), "metadata": {"name": "p", "labels": {1: "a"}}},
            "expected texts as keys @ pool.yaml#1 $.metadata.labels, found 1",
        ),
        (
            {**pool(), "metadata": {"name": "p", "deletionTimestamp": "-"}},
            "expected a time such as 2026-08-20T10:00:00Z @ pool.yaml#1 $.metadata.deletionTimestamp, found '-'",
        ),
        ({**pool(), "kind": "ippools"}, "expected 'IPPool' @ pool.yaml#1 $.kind, found 'ippools'"),
        ({**pool(), "apiVersion": "v1"}, "expected 'projectnetplug.org/v3' @ pool.yaml#1 $.apiVersion, found 'v1'"),
        (
            {**pool(), "apiVersion": "crd.projectcalico.org/v1"},
            (
                "expected 'projectnetplug.org/v3' @ pool.yaml#1 $.apiVersion, found 'crd.projectcalico.org/v1': "
                "that is Calico's; kinds that netplug has too have the same fields, "
                "with apiVersion: projectnetplug.org/v3"
            ),
        ),
        ({"kind": "IPPool"}, "expected 'projectnetplug.org/v3' @ pool.yaml#1 $.apiVersion, found nothing"),
    ],
)
def test_refusals_name_the_place_what_is_there_and_what_was_expected(mapping: Json, sentence: str) -> None:
    with pytest.raises(MalformedField) as caught:
        by_hand(mapping)
    assert str(caught.value) == sentence
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    "kind, advice",
    [
        (None, "give the document a kind, and apiVersion: projectnetplug.org/v3; there are IPPool, "),
        ("", "give the document a kind, and apiVersion: projectnetplug.org/v3; there are IPPool, "),
        ("Pod", "it is an object of Kubernetes, "),
        ("Services", "it is an object of Kubernetes, "),
        ("FelixConfiguration", "what it sets is in the kind NodeConfiguration here"),
        ("IPPol", r"did you mean IPPool\?$"),
        ("Whatever", "there are IPPool, "),
    ],
)
def test_an_unknown_kind_is_refused(kind: str | None, advice: str) -> None:
    with pytest.raises(UnknownKind, match=rf"^resource type '{kind or ''}' is not supported @ f#1 \$\.kind; {advice}"):
        by_hand({"kind": kind}, "f#1")


def test_a_stored_record_has_to_be_of_the_kind_of_its_key() -> None:
    with pytest.raises(MalformedField, match=r"^expected 'ClusterInformation' @ \$\.kind, found 'IPPool'$"):
        stored(STORED_POOL, kind=CLUSTER_INFORMATION)


@pytest.mark.parametrize(
    "cidr, prefix", [("10.0.0.1/24", "10.0.0.0/24"), ("FD00:0000::0:1/64", "fd00::/64"), ("10.0.0.7", "10.0.0.7/32")]
)
def test_the_cidr_of_a_stored_pool_is_read_as_it_was_meant(cidr: str, prefix: str) -> None:
    """I-70 of the catalogue."""
    value = stored(pool(cidr=cidr))
    assert isinstance(value, IPPool)
    assert str(value.spec.prefix) == prefix
    assert spec_of(value)["cidr"] == prefix


def test_a_reservation_takes_cidrs_and_addresses_of_both_families() -> None:
    entries = ["10.0.0.0/30", "10.0.1.7", "fd00:0:0::/64"]
    value = by_hand(document("IPReservation", spec={"reservedCIDRs": entries}))
    assert isinstance(value, IPReservation)
    assert [str(prefix) for prefix in value.spec.reserved] == ["10.0.0.0/30", "10.0.1.7/32", "fd00::/64"]
    assert spec_of(value) == {"reservedCIDRs": ["10.0.0.0/30", "10.0.1.7/32", "fd00::/64"]}


@pytest.mark.parametrize(
    "entry, expected",
    [
        ("10.0.0.1/30", "a CIDR without host bits (10.0.0.0/30)"),
        ("fd00::1/64", "a CIDR without host bits (fd00::/64)"),
        ("10.0.0.300", "a CIDR or an IP address"),
        ("::ffff:10.0.0.0/104", "a CIDR or an IP address"),
        ("", "a CIDR or an IP address"),
        (7, "a CIDR or an IP address"),
    ],
)
def test_an_entry_that_reserves_nothing_is_refused_from_a_user(entry: object, expected: str) -> None:
    with pytest.raises(MalformedField) as caught:
        by_hand(document("IPReservation", spec={"reservedCIDRs": ["10.0.0.0/30", entry]}))
    assert str(caught.value) == f"expected {expected} @ pool.yaml#1 $.spec.reservedCIDRs[1], found {entry!r}"


def test_a_stored_entry_that_cannot_be_read_reserves_nothing_and_is_written_back() -> None:
    entries = ["10.0.0.300", "10.0.0.9/30", {"from": "10.0.0.1"}, None, "10.0.1.7"]
    value = stored(document("IPReservation", spec={"reservedCIDRs": entries, "later": 1}), kind=IPRESERVATION)
    assert isinstance(value, IPReservation)
    assert [str(prefix) for prefix in value.spec.reserved] == ["10.0.0.8/30", "10.0.1.7/32"]
    assert spec_of(value) == {
        "later": 1,
        "reservedCIDRs": ["10.0.0.8/30", "10.0.1.7/32", "10.0.0.300", {"from": "10.0.0.1"}, None],
    }
    assert stored(to_mapping(value)) == value


@pytest.mark.parametrize("spec", [None, {}, {"reservedCIDRs": None}])
def test_a_reservation_may_be_empty(spec: object) -> None:
    value = by_hand(document("IPReservation", spec=spec))
    assert isinstance(value, IPReservation)
    assert value.spec.reserved == ()


def test_the_configuration_has_defaults_and_says_them() -> None:
    value = by_hand(document("IPAMConfiguration", metadata={"name": "default"}, spec={"maxBlocksPerHost": None}))
    assert value == IPAMConfiguration(metadata=Metadata(name="default"))
    assert value.spec == IPAMConfigurationSpec()
    assert spec_of(value) == {
        "strictAffinity": False,
        "autoAllocateBlocks": True,
        "maxBlocksPerHost": 0,
        "ipCooldownSeconds": 0,
    }


def test_every_rule_of_the_configuration_survives() -> None:
    spec = {
        "strictAffinity": True,
        "autoAllocateBlocks": False,
        "maxBlocksPerHost": 4,
        "ipCooldownSeconds": 60,
        "kubeVirtVMAddressPersistence": "Disabled",
        "later": [1],
    }
    mapping = document("IPAMConfiguration", metadata={"name": "default"}, spec=spec, future=1)
    value = stored(mapping, kind=IPAM_CONFIGURATION)
    assert isinstance(value, IPAMConfiguration)
    assert (value.spec.is_affinity_strict, value.spec.may_auto_allocate_blocks) == (True, False)
    assert (value.spec.max_blocks_per_host, value.spec.cooldown_s, value.spec.vm_address_persistence) == (
        4,
        60,
        "Disabled",
    )
    assert to_mapping(value) == mapping


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ({"maxBlocksPerHost": -1}, "expected a whole number of at least 0 @ pool.yaml#1 $.spec.maxBlocksPerHost"),
        ({"ipCooldownSeconds": "5"}, "expected a whole number of at least 0 @ pool.yaml#1 $.spec.ipCooldownSeconds"),
        ({"strictAffinity": "yes"}, "expected true or false @ pool.yaml#1 $.spec.strictAffinity"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(spec: Json, sentence: str) -> None:
    with pytest.raises(MalformedField) as caught:
        by_hand(document("IPAMConfiguration", metadata={"name": "default"}, spec=spec))
    assert str(caught.value).startswith(sentence)


def test_a_user_may_hand_back_the_status_of_a_node_and_writes_none() -> None:
    value = by_hand(document("Node", spec={"orchRefs": []}, status={"podCIDRs": ["10.0.0.0/24"]}))
    assert value == Node(metadata=Metadata(name="it"))
    assert "status" not in to_mapping(value)


def test_a_node_survives_with_what_this_release_does_not_know_of_it() -> None:
    mapping = document(
        "Node",
        spec={
            "bgp": {"asNumber": 64512, "x": 2},
            "orchRefs": [{"nodeName": "node-a", "orchestrator": "k8s", "x": 1}],
            "wireguard": {},
        },
        status={"podCIDRs": ["10.0.0.0/24"], "x": 3},
    )
    value = stored(mapping)
    assert isinstance(value, Node)
    assert value.spec.orchestrator_references[0].node_name == "node-a"
    assert to_mapping(value) == mapping


def test_a_profile_survives_with_what_its_rules_match() -> None:
    """The example of the storage model, and rules whose language comes later, whoever wrote them."""
    rule = {"action": "Deny", "protocol": "TCP", "source": {"selector": "team == 'a'"}}
    spec = {
        "ingress": [{"action": "Allow"}],
        "egress": [rule],
        "labelsToApply": {"pcns.projectnetplug.org/name": "default"},
    }
    mapping = document("Profile", spec=spec)
    for value in (stored(mapping), by_hand(mapping)):
        assert isinstance(value, Profile)
        assert value.spec.labels_to_apply == (("pcns.projectnetplug.org/name", "default"),)
        assert value.spec.ingress == (PolicyRule(action=RuleAction.ALLOW),)
        assert value.spec.egress[0].action is RuleAction.DENY
        assert to_mapping(value) == mapping


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ({"ingress": [{"action": "allow"}]}, "expected one of Allow, Deny, Log @ pool.yaml#1 $.spec.ingress[0]"),
        ({"egress": [{}]}, "expected one of Allow, Deny, Log @ pool.yaml#1 $.spec.egress[0].action"),
        ({"labelsToApply": {"a": 1}}, "expected a text @ pool.yaml#1 $.spec.labelsToApply['a']"),
    ],
)
def test_a_profile_that_cannot_be_read_is_refused(spec: Json, sentence: str) -> None:
    with pytest.raises(MalformedField) as caught:
        by_hand(document("Profile", spec=spec))
    assert str(caught.value).startswith(sentence)


def test_a_workload_endpoint_survives() -> None:
    spec = {
        "orchestrator": "k8s",
        "node": "node-a",
        "containerID": "4f2a",
        "pod": "web-0",
        "workload": "w",
        "endpoint": "eth0",
        "serviceAccountName": "default",
        "ipNetworks": ["10.0.0.1/32", "fd00::1/128"],
        "ipNATs": [{"internalIP": "10.0.0.1", "externalIP": "192.0.2.9"}],
        "profiles": ["kns.default"],
        "interfaceName": "netp0123456789a",
        "mac": "ee:ee:ee:ee:ee:ee",
        "ports": [{"protocol": "TCP", "port": 80, "name": "http", "hostPort": 8080, "hostIP": "192.0.2.1"}],
        "allowSpoofedSourcePrefixes": ["10.9.0.0/16"],
        "qosControls": {},
    }
    mapping = document("WorkloadEndpoint", metadata={"name": "it", "namespace": "default"}, spec=spec)
    value = stored(mapping)
    assert isinstance(value, WorkloadEndpoint)
    assert value.spec.addresses == (Address.parse("10.0.0.1"), Address.parse("fd00::1"))
    assert to_mapping(value) == mapping


@pytest.mark.parametrize("network", ["10.0.0.0/31", "10.0.0.1/24", "10.0.0/32", "host", 5])
def test_a_workload_endpoint_has_single_addresses(network: object) -> None:
    spec = {"orchestrator": "cni", "node": "a", "endpoint": "eth0", "ipNetworks": [network]}
    with pytest.raises(MalformedField, match=r"^expected one address, as a /32 or a /128 @ \$\.spec\.ipNetworks\[0\]"):
        stored(document("WorkloadEndpoint", spec=spec))


def test_an_address_that_is_none_is_refused() -> None:
    spec = {"orchestrator": "cni", "node": "a", "endpoint": "eth0", "ipNATs": [{"internalIP": "10.0.0.300"}]}
    with pytest.raises(MalformedField, match=r"^expected an IP address @ \$\.spec\.ipNATs\[0\]\.internalIP"):
        stored(document("WorkloadEndpoint", spec=spec))


@pytest.mark.parametrize("ready", [None, True, False])
def test_cluster_information_distinguishes_unset_from_false(ready: object) -> None:
    spec = {"clusterGUID": "0" * 32, "clusterType": "k8s", "netplugVersion": "v1.2.3", "datastoreReady": ready}
    value = stored(document("ClusterInformation", spec=spec))
    assert isinstance(value, ClusterInformation)
    assert value.is_locked is (ready is False)
    assert spec_of(value) == {name: member for name, member in spec.items() if member is not None}


@pytest.mark.parametrize(
    "metadata,place",
    [
        ({"name": "p\ud800"}, "name, found 'p\\ud800'"),
        ({"name": "p", "annotations": {"a": "\ud800"}}, "annotations['a'], found '\\ud800'"),
        ({"name": "p", "labels": {"\ud800": "a"}}, "labels['\\ud800'], found 'a'"),
        ({"name": "p", "finalizers": ["a", "\udfff"]}, "finalizers[1], found '\\udfff'"),
    ],
)
def test_a_text_that_is_not_utf8_is_refused(metadata: dict[str, object], place: str) -> None:
    """JSON can spell half of a surrogate pair, which no store could keep."""
    document = {"kind": "IPPool", "apiVersion": API_VERSION, "metadata": metadata, "spec": {"cidr": "10.0.0.0/24"}}
    with pytest.raises(MalformedField) as refusal:
        from_mapping(document, origin=DocumentOrigin.USER, source="p.json")
    assert str(refusal.value) == f"expected a text in UTF-8 @ p.json $.metadata.{place}"


def test_unknown_members_of_an_owner_are_kept_and_must_be_utf8_too() -> None:
    owner: dict[str, object] = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "colour": ["red"]}
    metadata = {"name": "p", "ownerReferences": [owner]}
    document = {"kind": "Profile", "apiVersion": API_VERSION, "metadata": metadata, "spec": {}}
    assert to_mapping(from_mapping(document, origin=DocumentOrigin.USER, source="p.json")) == document
    owner["colour"] = ["\ud800"]
    pattern = r"expected a text in UTF-8 @ p\.json \$\.metadata\.ownerReferences\[0\], found"
    with pytest.raises(MalformedField, match=pattern):
        from_mapping(document, origin=DocumentOrigin.USER, source="p.json")
