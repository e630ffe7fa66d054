"""The schemas refuse what the core refuses: one corpus, both judges, and the differences with their reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from attrs import evolve

from netplug_backends.kubernetes.layout import KIND_MAPPINGS
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Ordinal, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.model import AFFINITY, BLOCK, Affinity, AffinityState, Attribute, Block, affinity_key
from netplug_core.records import Create, Get, Kind, List, Malformed, Update
from netplug_core.resources.codec import manifest_from_mapping
from netplug_core.resources.ippool import IPPOOL, IPPool, PoolCondition
from netplug_core.resources.validation import validate_pool_overlaps, validate_resource
from tests.harness import network_documents, policy_documents
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    open_store,
)
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

_POOL = {"cidr": "10.1.0.0/16"}
_BALANCER = {**_POOL, "allowedUses": ["LoadBalancer"]}

_TEMPLATE = {"generateName": "lan", "interfaceCIDRs": ["10.0.0.0/8"], "nodeSelector": "zone == 'a'"}


def _controllers(**host_endpoint: object) -> Mapping[str, object]:
    return {"controllers": {"node": {"leakGracePeriod": "15m0s", "hostEndpoint": host_endpoint}}}


# A kind, a name, its spec; what both judges accept.
GOOD: list[tuple[str, str, Mapping[str, object]]] = [
    ("IPPool", "usual", {**_POOL, "ipipMode": "Always", "natOutgoing": True, "nodeSelector": "zone == 'a'"}),
    ("IPPool", "six", {"cidr": "fd80:24e2::/64", "blockSize": 122, "vxlanMode": "CrossSubnet"}),
    ("IPPool", "small-but-off", {"cidr": "10.1.0.0/28", "disabled": True}),
    ("IPPool", "small-blocks", {"cidr": "10.1.0.0/28", "blockSize": 29, "assignmentMode": "Manual"}),
    ("IPPool", "balancer", {**_BALANCER, "nodeSelector": "all()", "vxlanMode": "Never"}),
    ("IPPool", "namespaces", {**_POOL, "allowedUses": ["Workload"], "namespaceSelector": "team == 'a'"}),
    ("IPReservation", "some", {"reservedCIDRs": ["10.1.0.0/30", "10.1.1.7", "fd80::1"]}),
    ("IPReservation", "none", {}),
    ("IPAMConfiguration", "default", {"strictAffinity": True, "maxBlocksPerHost": 4, "autoAllocateBlocks": False}),
    ("IPAMConfiguration", "default", {"ipCooldownSeconds": 30, "kubeVirtVMAddressPersistence": "Enabled"}),
    ("ClusterInformation", "default", {"datastoreReady": False, "clusterGUID": "0" * 32}),
    ("KubeControllersConfiguration", "default", {}),
    ("KubeControllersConfiguration", "default", _controllers(autoCreate="Enabled", templates=[_TEMPLATE])),
    (
        "KubeControllersConfiguration",
        "default",
        {"etcdV3CompactionPeriod": "0", "prometheusMetricsPort": 0, "controllers": {"policy": {}, "loadBalancer": {}}},
    ),
]

# What both refuse.
BAD: list[tuple[str, str, Mapping[str, object]]] = [
    ("IPPool", "no-cidr", {}),
    ("IPPool", "no-range", {"cidr": "10.1.0.0"}),
    ("IPPool", "words", {"cidr": "everything"}),
    ("IPPool", "host-bits", {"cidr": "10.0.0.1/24"}),
    ("IPPool", "link-local", {"cidr": "169.254.5.0/24"}),
    ("IPPool", "link-local-inside", {"cidr": "169.0.0.0/8"}),
    ("IPPool", "link-local-six", {"cidr": "fe80::/64"}),
    ("IPPool", "small", {"cidr": "10.1.0.0/27"}),
    ("IPPool", "small-six", {"cidr": "fd80::/124"}),
    ("IPPool", "blocks-19", {**_POOL, "blockSize": 19}),
    ("IPPool", "blocks-33", {**_POOL, "blockSize": 33}),
    ("IPPool", "blocks-six", {"cidr": "fd80::/64", "blockSize": 26}),
    ("IPPool", "blocks-negative", {**_POOL, "blockSize": -1}),
    ("IPPool", "both-modes", {**_POOL, "ipipMode": "Always", "vxlanMode": "Always"}),
    ("IPPool", "ipip-six", {"cidr": "fd80::/64", "ipipMode": "Always"}),
    ("IPPool", "mode", {**_POOL, "ipipMode": "Sometimes"}),
    ("IPPool", "use", {**_POOL, "allowedUses": ["Everything"]}),
    ("IPPool", "uses", {**_POOL, "allowedUses": ["LoadBalancer", "Workload"]}),
    ("IPPool", "balancer-ipip", {**_BALANCER, "ipipMode": "Always"}),
    ("IPPool", "balancer-vxlan", {**_BALANCER, "vxlanMode": "Always"}),
    ("IPPool", "balancer-bgp", {**_BALANCER, "disableBGPExport": True}),
    ("IPPool", "balancer-nodes", {**_BALANCER, "nodeSelector": "zone == 'a'"}),
    ("IPPool", "namespaces-tunnel", {**_POOL, "namespaceSelector": "team == 'a'"}),
    ("IPPool", "assignment", {**_POOL, "assignmentMode": "Never"}),
    ("IPPool", "type", {**_POOL, "natOutgoing": "yes"}),
    ("IPPool", "selector", {**_POOL, "nodeSelector": "zone =="}),
    ("IPPool", "mistyped-selector", {**_POOL, "nodeSelector": "zone = 'a'"}),
    ("IPPool", "namespace-selector", {**_POOL, "allowedUses": ["Workload"], "namespaceSelector": "((("}),
    ("IPPool", "parentheses", {**_POOL, "nodeSelector": "(zone == ')'"}),
    ("IPPool", "long-selector", {**_POOL, "nodeSelector": f"a == '{'x' * 1024}'"}),
    ("IPPool", "unknown", {**_POOL, "colour": "red"}),
    ("IPPool", "Upper", _POOL),
    ("IPReservation", "words", {"reservedCIDRs": ["some"]}),
    ("IPReservation", "host-bits", {"reservedCIDRs": ["10.0.0.1/30"]}),
    ("IPAMConfiguration", "another", {}),
    ("IPAMConfiguration", "default", {"autoAllocateBlocks": False}),
    ("IPAMConfiguration", "default", {"maxBlocksPerHost": 4}),
    ("IPAMConfiguration", "default", {"maxBlocksPerHost": -1, "strictAffinity": True}),
    ("IPAMConfiguration", "default", {"kubeVirtVMAddressPersistence": "Perhaps"}),
    ("ClusterInformation", "another", {}),
    ("ClusterInformation", "default", {"datastoreReady": "no"}),
    ("KubeControllersConfiguration", "another", {}),
    ("KubeControllersConfiguration", "default", {"etcdV3CompactionPeriod": "often"}),
    ("KubeControllersConfiguration", "default", {"prometheusMetricsPort": 65536}),
    ("KubeControllersConfiguration", "default", {"healthChecks": "Perhaps"}),
    ("KubeControllersConfiguration", "default", {"controllers": {"pods": {}}}),
    ("KubeControllersConfiguration", "default", _controllers(autoCreate="yes")),
    ("KubeControllersConfiguration", "default", _controllers(templates=[{**_TEMPLATE, "interfaceCIDRs": ["all"]}])),
    ("KubeControllersConfiguration", "default", _controllers(templates=[_TEMPLATE, _TEMPLATE])),
    ("KubeControllersConfiguration", "default", _controllers(templates=[{**_TEMPLATE, "nodeSelector": "zone =="}])),
    ("KubeControllersConfiguration", "default", _controllers(templates=[{"generateName": "lan"}])),
]

# What the core alone refuses: the API's expression language does not know all of the grammar of selectors, and takes a
# whole number for one however it is written.
CORE_ONLY: list[tuple[str, str, Mapping[str, object]]] = [
    ("IPPool", "global", {**_POOL, "nodeSelector": "global()"}),
    ("IPPool", "deep", {**_POOL, "nodeSelector": f"{'(' * 65}all(){')' * 65}"}),
    ("IPAMConfiguration", "default", {"ipCooldownSeconds": 1.0}),
    ("KubeControllersConfiguration", "default", _controllers(templates=[{**_TEMPLATE, "interfacePattern": "("}])),
]

# What the server alone refuses. Lists need a bound, or it would reckon their rules too costly; numbers have 64 bits;
# its library knows neither addresses mapped from IPv4 nor lengths with zeros, which nobody writes and the core reads;
# and a spec has to be there, where the core takes none for an empty one.
SERVER_ONLY: list[tuple[str, str, Mapping[str, object] | None]] = [
    ("IPReservation", "very-many", {"reservedCIDRs": ["10.1.0.0/30"] * 1025}),
    ("IPPool", "uses-again-and-again", {**_POOL, "allowedUses": ["Workload"] * 4}),
    ("IPAMConfiguration", "default", {"ipCooldownSeconds": 2**63}),
    ("IPReservation", "mapped", {"reservedCIDRs": ["::ffff:10.1.0.1"]}),
    ("IPPool", "zeros", {"cidr": "10.1.0.0/016"}),
    ("IPReservation", "null", None),
    ("IPAMConfiguration", "default", None),
    ("ClusterInformation", "default", None),
]

# What is no range of a block or a claim: such a record would be malformed for everybody who lists the kind.
NO_RANGES = ["nonsense", "", "10.9.0.0/33", "10.9.0.1/30", "fd80::1/122"]


@pytest.fixture(scope="module", params=list(CrdMode), ids=lambda mode: mode.name)
def mode(request: pytest.FixtureRequest, api_server: ApiServer) -> CrdMode:
    """A mode whose definitions are installed and whose objects are gone."""
    chosen: CrdMode = request.param
    install_definitions(api_server, chosen)
    delete_custom_objects(api_server, chosen)
    return chosen


def core_accepts(kind: str, name: str, spec: Mapping[str, object] | None) -> bool:
    mapping = {"kind": kind, "apiVersion": "projectnetplug.org/v3", "metadata": {"name": name}, "spec": spec}
    try:
        validate_resource(manifest_from_mapping(mapping, source="").within("default").resource)
    except ConfigurationError:
        return False
    return True


def server_accepts(
    server: ApiServer, mode: CrdMode, kind: str, document: tuple[str, Mapping[str, object] | None]
) -> bool:
    sort = KIND_MAPPINGS[kind]
    name, spec = document
    body = {"kind": sort.object_kind[mode], "apiVersion": mode.value, "metadata": {"name": name}, "spec": spec}
    namespace = "/namespaces/default" if sort.is_namespaced else ""
    path = f"/apis/{mode.value}{namespace}/{sort.plural[mode]}?dryRun=All&fieldValidation=Strict"
    try:
        server.create(path, body)
    except RequestRefused as error:
        if error.code not in (400, 422):
            raise
        return False
    return True


@pytest.mark.parametrize("kind,name,spec", [*GOOD, *network_documents.GOOD, *policy_documents.GOOD])
def test_both_judges_accept(
    api_server: ApiServer, mode: CrdMode, kind: str, name: str, spec: Mapping[str, object]
) -> None:
    assert core_accepts(kind, name, spec)
    assert server_accepts(api_server, mode, kind, (name, spec))


@pytest.mark.parametrize("kind,name,spec", [*BAD, *network_documents.BAD, *policy_documents.BAD])
def test_both_judges_refuse(
    api_server: ApiServer, mode: CrdMode, kind: str, name: str, spec: Mapping[str, object]
) -> None:
    assert not core_accepts(kind, name, spec)
    assert not server_accepts(api_server, mode, kind, (name, spec))


@pytest.mark.parametrize("kind,name,spec", [*CORE_ONLY, *network_documents.CORE_ONLY, *policy_documents.CORE_ONLY])
def test_selectors_and_fractions_are_the_cores_to_judge(
    api_server: ApiServer, mode: CrdMode, kind: str, name: str, spec: Mapping[str, object]
) -> None:
    assert not core_accepts(kind, name, spec)
    assert server_accepts(api_server, mode, kind, (name, spec))


@pytest.mark.parametrize("kind,name,spec", [*SERVER_ONLY, *network_documents.SERVER_ONLY])
def test_bounds_and_spellings_are_the_servers(
    api_server: ApiServer, mode: CrdMode, kind: str, name: str, spec: Mapping[str, object] | None
) -> None:
    assert core_accepts(kind, name, spec)
    assert not server_accepts(api_server, mode, kind, (name, spec))


def records_of_the_allocator(mode: CrdMode) -> Iterator[tuple[str, Mapping[str, object]]]:
    """A block and a claim: the kind, and the spec that is stored."""
    prefix = Prefix.parse("10.9.0.0/30")
    block = Block.new(prefix, owner="host:node-a", now_ns=1)
    claim = affinity_key("host:node-a", prefix)
    for key, value in ((block.key, block), (claim, Affinity(state=AffinityState.CONFIRMED))):
        yield key.kind.name, json.loads(json.dumps(KIND_MAPPINGS[key.kind.name].encode(mode, key, value)["spec"]))


def test_both_judges_accept_the_allocators_own_records(api_server: ApiServer, mode: CrdMode) -> None:
    for kind, spec in records_of_the_allocator(mode):
        assert server_accepts(api_server, mode, kind, ("some", spec))
        assert record_of(mode, kind, spec) is not None


@pytest.mark.parametrize("cidr", NO_RANGES)
def test_both_judges_refuse_a_range_that_is_none(api_server: ApiServer, mode: CrdMode, cidr: str) -> None:
    for kind, spec in records_of_the_allocator(mode):
        assert not server_accepts(api_server, mode, kind, ("some", {**spec, "cidr": cidr}))
        with pytest.raises(Malformed, match=r"is not|has host bits set"):
            record_of(mode, kind, {**spec, "cidr": cidr})


def record_of(mode: CrdMode, kind: str, spec: Mapping[str, object]) -> object:
    declared: Kind[object] = BLOCK if kind == BLOCK.name else AFFINITY
    return KIND_MAPPINGS[kind].decode(mode, declared, {"metadata": {"name": "some"}, "spec": spec})[1]


def test_pools_that_overlap_are_the_cores_to_judge(api_server: ApiServer, mode: CrdMode) -> None:
    """A rule sees one object; the other pools are not in it."""
    first, second = (IPPool.for_prefix(Prefix.parse("10.1.0.0/16"), name=name) for name in ("first", "second"))
    with pytest.raises(ConfigurationError, match="CIDR overlaps"):
        validate_pool_overlaps(second, [first])
    with open_store(api_server, mode) as store:
        store.commit([Create(first.key, first), Create(second.key, second)], deadline=deadline_in())
        assert len(store.read([List(IPPOOL)], deadline=deadline_in()).list(List(IPPOOL))) >= 2
    delete_custom_objects(api_server, mode)


def test_s30_a_pools_range_and_block_size_stay(api_server: ApiServer, mode: CrdMode) -> None:
    """Trap 35: networks are compared, so another spelling of the same one is no change."""
    pool = IPPool.for_prefix(Prefix.parse("1.2.3.0/24"), name="fixed")
    with open_store(api_server, mode) as store:
        (revision,) = store.commit([Create(pool.key, pool)], deadline=deadline_in())
        for spec in (
            evolve(pool.spec, prefix=Prefix.parse("1.2.4.0/24")),
            evolve(pool.spec, block_length=25),
        ):
            with pytest.raises(ConfigurationError, match="cannot be modified"):
                store.commit([Update(pool.key, evolve(pool, spec=spec), revision)], deadline=deadline_in())
        changed = evolve(pool, spec=evolve(pool.spec, is_disabled=True))
        store.commit([Update(pool.key, changed, revision)], deadline=deadline_in())


def test_d3_a_record_comes_back_as_it_was_written(api_server: ApiServer, mode: CrdMode) -> None:
    """Trap 10: exact numbers beyond 2^53; trap 12: releasedAt; nulls, and members of a newer release."""
    prefix = Prefix.parse("10.9.0.0/30")
    block = Block.new(prefix, owner="host:node-a", now_ns=2**62 + 7)
    attribute = Attribute(
        handle=None, owner=(), released_ns=1_755_684_000_000_000_000, unknown_json='{"newer":[null,1.5]}'
    )
    value = evolve(
        block,
        allocations=(None, 0, None, None),
        free=(Ordinal(2), Ordinal(3), Ordinal(0)),
        attributes=type(block.attributes).of((attribute,)),
        sequences=(0, 2**61 + 1, 0, 0),
        unknown_json='{"later":{"deep":null}}',
    )
    with open_store(api_server, mode) as store:
        store.commit([Create(value.key, value)], deadline=deadline_in())
        record = store.read([Get(value.key)], deadline=deadline_in()).find(value.key)
        assert record is not None
        assert record.value == value
        assert record.key.kind == BLOCK


def test_s34_a_change_of_the_spec_keeps_the_status_and_the_metadata_of_others(
    api_server: ApiServer, mode: CrdMode
) -> None:
    """Traps 13 and 16; D6."""
    pool = IPPool.for_prefix(Prefix.parse("1.3.0.0/24"), name="kept")
    condition = PoolCondition(type="Allocatable", status="False", reason="Overlap", message="…")
    path = f"/apis/{mode.value}/ippools/kept"
    with open_store(api_server, mode) as store:
        store.commit([Create(pool.key, pool)], deadline=deadline_in())
        foreign = {"metadata": {"finalizers": ["a.example/x"], "annotations": {"a": "b"}, "labels": {"l": "m"}}}
        api_server.request("PATCH", path, foreign, content_type="application/merge-patch+json")
        before = store.read([Get(pool.key)], deadline=deadline_in()).find(pool.key)
        assert before is not None
        with_status = evolve(before.value, status=evolve(before.value.status, conditions=(condition,)))
        (revision,) = store.commit([Update(pool.key, with_status, before.revision)], deadline=deadline_in())
        changed = evolve(with_status, spec=evolve(with_status.spec, is_disabled=True))
        store.commit([Update(pool.key, changed, revision)], deadline=deadline_in())
        after = store.read([Get(pool.key)], deadline=deadline_in()).find(pool.key)
        assert after is not None
        assert after.value == changed
        api_server.request(
            "PATCH", path, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json"
        )


def test_what_others_wrote_beside_a_record_of_the_allocator_stays(api_server: ApiServer, mode: CrdMode) -> None:
    """Trap 13, also for a process that has not read the object itself."""
    block = Block.new(Prefix.parse("10.9.1.0/30"), owner="host:node-a", now_ns=1)
    path = f"/apis/{mode.value}/ipamblocks/10-9-1-0-30"
    with open_store(api_server, mode) as store:
        store.commit([Create(block.key, block)], deadline=deadline_in())
    foreign = {"metadata": {"finalizers": ["a.example/x"], "annotations": {"a": "b"}, "labels": {"l": "m"}}}
    api_server.request("PATCH", path, foreign, content_type="application/merge-patch+json")
    with open_store(api_server, mode) as store:
        record = store.read([Get(block.key)], deadline=deadline_in()).find(block.key)
    assert record is not None
    changed = evolve(record.value, sequence=2)
    with open_store(api_server, mode) as store:
        store.commit([Update(block.key, changed, record.revision)], deadline=deadline_in())
    metadata = api_server.get(path)["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["finalizers"] == ["a.example/x"]
    assert (metadata["annotations"], metadata["labels"]) == ({"a": "b"}, {"l": "m"})
    api_server.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")


def test_d8_a_record_marked_as_deleted_is_gone_and_makes_room(api_server: ApiServer, mode: CrdMode) -> None:
    """Trap 2: other programs delete in two steps."""
    block = Block.new(Prefix.parse("10.9.2.0/30"), owner="host:node-a", now_ns=1)
    with open_store(api_server, mode) as store:
        (revision,) = store.commit([Create(block.key, block)], deadline=deadline_in())
        path = f"/apis/{mode.value}/ipamblocks/10-9-2-0-30"
        api_server.request("PATCH", path, {"spec": {"deleted": True}}, content_type="application/merge-patch+json")
        assert store.read([Get(block.key)], deadline=deadline_in()).find(block.key) is None
        (again,) = store.commit([Create(block.key, block)], deadline=deadline_in())
        assert again.partition("/")[0] != revision.partition("/")[0]
        record = store.read([Get(block.key)], deadline=deadline_in()).find(block.key)
        assert record is not None
        assert record.revision == again
