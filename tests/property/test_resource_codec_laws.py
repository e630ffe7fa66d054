"""Laws of the resource codec.

1. Reading what was written gives the value that was written, through JSON text too.
2. Defaults are filled in once: what was read and written reads and writes the same again.
3. Members that a store has and this release does not know come back unchanged, at every level.
4. What was written for storing is what a person may hand in, once nothing unknown is in it.
5. What a stored reservation reserves, and what in it is not readable, both survive.
"""

import json

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.names import API_VERSION
from netplug_core.resources.clusterinformation import ClusterInformation, ClusterInformationSpec
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import LogSeverity, Metadata, OwnerReference, Switch
from netplug_core.resources.ippool import (
    AllowedUse,
    AssignmentMode,
    Encapsulation,
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPPoolStatus,
    IPReservation,
    IPReservationSpec,
    PoolCondition,
)
from netplug_core.resources.kinds import Resource
from netplug_core.resources.kubecontrollersconfiguration import (
    AssignedServices,
    Controllers,
    ControllerSettings,
    HostEndpointSettings,
    HostEndpointTemplate,
    KubeControllersConfiguration,
    KubeControllersSpec,
    KubeControllersStatus,
    LoadBalancerController,
    NodeController,
)
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.resources.policyrule import PolicyRule, RuleAction
from netplug_core.resources.profile import Profile, ProfileSpec
from netplug_core.resources.workloadendpoint import (
    IPNAT,
    EndpointPort,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)
from netplug_core.testing.strategies import addresses, labels, names, prefixes

Json = dict[str, object]

TEXTS = st.text(max_size=12)
NUMBERS = st.integers(0, 65535)
TIMES = st.none() | st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1_000_000_000)
MODES = st.sampled_from(Encapsulation)

# Members of a release to come; the prefix keeps them apart from those of this one.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(TEXTS.map("later{}".format), VALUES, max_size=2)
CARRIED = UNKNOWN.map(lambda members: json.dumps(members, sort_keys=True, separators=(",", ":")) if members else "")

OWNERS = st.builds(OwnerReference, api_version=TEXTS, kind=TEXTS, name=TEXTS, uid=TEXTS, unknown_json=CARRIED)
METADATA = st.builds(
    Metadata,
    name=names(),
    namespace=st.just("") | names(),
    generate_name=TEXTS,
    uid=TEXTS,
    creation_time_ns=TIMES,
    deletion_time_ns=TIMES,
    labels=labels(),
    annotations=labels(),
    finalizers=st.lists(TEXTS, max_size=2).map(tuple),
    owner_references=st.lists(OWNERS, max_size=1).map(tuple),
    unknown_json=CARRIED,
)


def pool_specs(prefix: Prefix) -> st.SearchStrategy[IPPoolSpec]:
    return st.builds(
        IPPoolSpec,
        prefix=st.just(prefix),
        block_length=st.integers(1, prefix.family.width),
        is_disabled=st.booleans(),
        allowed_uses=st.lists(st.sampled_from(AllowedUse), min_size=1, unique=True).map(tuple),
        node_selector=TEXTS.filter(bool),
        namespace_selector=TEXTS,
        assignment_mode=st.sampled_from(AssignmentMode),
        ipip_mode=MODES,
        vxlan_mode=MODES,
        has_outgoing_nat=st.booleans(),
        is_bgp_export_disabled=st.booleans(),
        unknown_json=CARRIED,
    )


CONDITIONS = st.builds(PoolCondition, type=TEXTS, status=TEXTS, reason=TEXTS, message=TEXTS, unknown_json=CARRIED)
POOLS = st.builds(
    IPPool,
    metadata=METADATA,
    spec=prefixes().flatmap(pool_specs),
    status=st.builds(IPPoolStatus, conditions=st.lists(CONDITIONS, max_size=1).map(tuple), unknown_json=CARRIED),
    unknown_json=CARRIED,
)
ORCHESTRATOR_NAMES = st.builds(OrchestratorReference, orchestrator=TEXTS, node_name=TEXTS, unknown_json=CARRIED)
NODES = st.builds(
    Node,
    metadata=METADATA,
    spec=st.builds(
        NodeSpec, orchestrator_references=st.lists(ORCHESTRATOR_NAMES, max_size=2).map(tuple), unknown_json=CARRIED
    ),
    unknown_json=CARRIED,
)
RULES = st.lists(st.builds(PolicyRule, action=st.sampled_from(RuleAction), unknown_json=CARRIED), max_size=2).map(tuple)
PROFILES = st.builds(
    Profile,
    metadata=METADATA,
    spec=st.builds(ProfileSpec, labels_to_apply=labels(), ingress=RULES, egress=RULES, unknown_json=CARRIED),
    unknown_json=CARRIED,
)
MAPPINGS = st.builds(IPNAT, internal=addresses(), external=addresses(), unknown_json=CARRIED)
PORTS = st.builds(
    EndpointPort, name=TEXTS, protocol=TEXTS, port=NUMBERS, host_port=NUMBERS, host_ip=TEXTS, unknown_json=CARRIED
)
ENDPOINTS = st.builds(
    WorkloadEndpoint,
    metadata=METADATA,
    spec=st.builds(
        WorkloadEndpointSpec,
        orchestrator=TEXTS,
        node=TEXTS,
        container_id=TEXTS,
        pod=TEXTS,
        workload=TEXTS,
        endpoint=TEXTS,
        service_account=TEXTS,
        addresses=st.lists(addresses(), max_size=2).map(tuple),
        ip_nats=st.lists(MAPPINGS, max_size=1).map(tuple),
        profiles=st.lists(TEXTS, max_size=2).map(tuple),
        interface_name=TEXTS,
        mac=TEXTS,
        ports=st.lists(PORTS, max_size=1).map(tuple),
        allowed_source_prefixes=st.lists(TEXTS, max_size=1).map(tuple),
        unknown_json=CARRIED,
    ),
    unknown_json=CARRIED,
)
CLUSTERS = st.builds(
    ClusterInformation,
    metadata=METADATA,
    spec=st.builds(
        ClusterInformationSpec,
        cluster_guid=TEXTS,
        cluster_type=TEXTS,
        version=TEXTS,
        is_datastore_ready=st.none() | st.booleans(),
        unknown_json=CARRIED,
    ),
    unknown_json=CARRIED,
)
UNREADABLE = VALUES.filter(lambda value: not isinstance(value, str)) | TEXTS.map("not {}".format)
UNREAD = UNREADABLE.map(lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")))
RESERVATIONS = st.builds(
    IPReservation,
    metadata=METADATA,
    spec=st.builds(
        IPReservationSpec,
        reserved=st.lists(prefixes(), max_size=3).map(tuple),
        unparsed=st.lists(UNREAD, max_size=2).map(tuple),
        unknown_json=CARRIED,
    ),
    unknown_json=CARRIED,
)
CONFIGURATIONS = st.builds(
    IPAMConfiguration,
    metadata=METADATA,
    spec=st.builds(
        IPAMConfigurationSpec,
        is_affinity_strict=st.booleans(),
        may_auto_allocate_blocks=st.booleans(),
        max_blocks_per_host=NUMBERS,
        cooldown_s=NUMBERS,
        vm_address_persistence=TEXTS,
        unknown_json=CARRIED,
    ),
    unknown_json=CARRIED,
)
SPANS = st.sampled_from(["", "0", "90s", "1h30m", "5m0s"])
SWITCHES = st.sampled_from(Switch)
OTHER_CONTROLLERS = st.none() | st.builds(ControllerSettings, reconciler_period=SPANS, unknown_json=CARRIED)
TEMPLATES = st.builds(
    HostEndpointTemplate,
    generate_name=TEXTS,
    interface_cidrs=st.lists(prefixes(), max_size=2).map(tuple),
    interface_pattern=TEXTS,
    node_selector=TEXTS,
    labels=labels(),
    annotations=labels(),
    unknown_json=CARRIED,
)
HOST_ENDPOINTS = st.builds(
    HostEndpointSettings,
    auto_create=SWITCHES,
    create_default=SWITCHES,
    templates=st.lists(TEMPLATES, max_size=2).map(tuple),
    unknown_json=CARRIED,
)
NODE_CONTROLLERS = st.none() | st.builds(
    NodeController,
    reconciler_period=SPANS,
    sync_labels=st.none() | SWITCHES,
    leak_grace_period=SPANS.filter(bool),
    host_endpoint=HOST_ENDPOINTS,
    unknown_json=CARRIED,
)
CONTROLLER_SPECS = st.builds(
    KubeControllersSpec,
    log_severity=st.none() | st.sampled_from(LogSeverity),
    health_checks=st.none() | SWITCHES,
    metrics_port=NUMBERS,
    compaction_period=SPANS,
    controllers=st.builds(
        Controllers,
        node=NODE_CONTROLLERS,
        policy=OTHER_CONTROLLERS,
        workload_endpoint=OTHER_CONTROLLERS,
        service_account=OTHER_CONTROLLERS,
        namespace=OTHER_CONTROLLERS,
        load_balancer=st.none() | st.builds(LoadBalancerController, assign_ips=st.sampled_from(AssignedServices)),
        unknown_json=CARRIED,
    ),
    unknown_json=CARRIED,
)
CONTROLLERS = st.builds(
    KubeControllersConfiguration,
    metadata=METADATA,
    spec=CONTROLLER_SPECS,
    status=st.builds(
        KubeControllersStatus, running=st.none() | CONTROLLER_SPECS, environment=labels(), unknown_json=CARRIED
    ),
    unknown_json=CARRIED,
)
RESOURCES = st.one_of(POOLS, NODES, PROFILES, ENDPOINTS, CLUSTERS, RESERVATIONS, CONFIGURATIONS, CONTROLLERS)

# A pool as some writer may have stored it: any of its members may be missing or null.
SPARSE_SPECS = st.fixed_dictionaries(
    {"cidr": prefixes().map(str)},
    optional={
        "blockSize": st.none() | st.integers(0, 128),
        "disabled": st.none() | st.booleans(),
        "allowedUses": st.none() | st.lists(st.sampled_from([use.value for use in AllowedUse])),
        "nodeSelector": st.none() | TEXTS,
        "namespaceSelector": st.none() | TEXTS,
        "assignmentMode": st.none() | st.sampled_from([mode.value for mode in AssignmentMode]),
        "ipipMode": st.none() | st.sampled_from([mode.value for mode in Encapsulation]),
        "natOutgoing": st.none() | st.booleans(),
        "ipip": VALUES,
        "nat-outgoing": VALUES,
    },
)


def through_json(mapping: object) -> Json:
    read = json.loads(json.dumps(mapping))
    assert isinstance(read, dict)
    return read


def stored(mapping: Json) -> Resource:
    return from_mapping(mapping, origin=DocumentOrigin.DATASTORE)


@given(RESOURCES)
def test_reading_what_was_written_gives_the_value(resource: Resource) -> None:
    """Laws 1, 3 and 5."""
    assert stored(through_json(to_mapping(resource))) == resource


@given(SPARSE_SPECS, UNKNOWN)
def test_defaults_are_filled_in_once(spec: Json, unknown: Json) -> None:
    """Laws 2 and 3."""
    mapping: Json = {"kind": "IPPool", "apiVersion": API_VERSION, "metadata": {"name": "p"}, "spec": spec | unknown}
    once = stored(mapping)
    written = to_mapping(once)
    assert stored(through_json(written)) == once
    assert to_mapping(stored(written)) == written
    assert isinstance(written["spec"], dict)
    assert {name: value for name, value in written["spec"].items() if name.startswith("later")} == unknown


@given(POOLS)
def test_a_user_may_hand_in_what_was_written(pool: IPPool) -> None:
    """Law 4."""
    plain = evolve(
        pool,
        metadata=evolve(pool.metadata, unknown_json=""),
        spec=evolve(pool.spec, unknown_json=""),
        status=IPPoolStatus(),
        unknown_json="",
    )
    shown = through_json(to_mapping(plain, revision="5"))
    assert from_mapping(shown, origin=DocumentOrigin.USER, source="pool.yaml#1") == plain
