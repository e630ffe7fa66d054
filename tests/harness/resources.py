"""Changes of resources in a memory store: for tests of the flows that ``netplugctl`` calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from attrs import define, evolve, field

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_cli.ctl.outputs import Width, columns_of_width, table_row
from netplug_cli.formatting import format_columns
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.datastore.protocol import Datastore
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.flows.resources.delete import delete
from netplug_core.flows.resources.outcome import Outcome
from netplug_core.flows.resources.read import find, list_all
from netplug_core.flows.resources.write import apply, create, replace
from netplug_core.names import API_VERSION
from netplug_core.records import Create, Delete, Key, Record, Revision
from netplug_core.resources.bgp import (
    AddCommunity,
    AdvertisedPrefix,
    BGPConfiguration,
    BGPConfigurationSpec,
    BGPFilter,
    BGPFilterRule,
    BGPFilterSpec,
    BGPPassword,
    BGPPeer,
    BGPPeerSpec,
    BindMode,
    ClusterRoutingMode,
    Community,
    CommunityMatch,
    FilterAction,
    FilterOperation,
    MatchOperator,
    NextHopMode,
    PeerType,
    PrefixLengths,
    PrependASPath,
    ReversePeering,
    RouteSource,
    SecretKeyReference,
    ServiceRange,
    SetPriority,
    SourceAddress,
)
from netplug_core.resources.clusterinformation import ClusterInformation
from netplug_core.resources.codec import Manifest, from_mapping
from netplug_core.resources.fields import LogSeverity, Metadata, PortRange, Switch
from netplug_core.resources.hostendpoint import HostEndpoint, HostEndpointSpec, NamedPort, PortProtocol
from netplug_core.resources.ippool import (
    IPAMConfiguration,
    IPAMConfigurationSpec,
    IPPool,
    IPPoolSpec,
    IPReservation,
    IPReservationSpec,
    ippool_key,
)
from netplug_core.resources.kinds import Resource, ResourceKind, get_kind
from netplug_core.resources.networkpolicy import (
    Direction,
    GlobalNetworkPolicy,
    GlobalNetworkPolicySpec,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkPolicySpec,
    NetworkSet,
    NetworkSetSpec,
)
from netplug_core.resources.node import Node
from netplug_core.resources.nodeconfiguration import (
    EndpointToHostAction,
    FailsafePort,
    NodeConfiguration,
    NodeConfigurationSpec,
)
from netplug_core.resources.policyrule import (
    EntityRule,
    ICMPMatch,
    PolicyRule,
    PortName,
    Protocol,
    RuleAction,
    ServiceAccountMatch,
)
from netplug_core.resources.profile import Profile, ProfileSpec
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import Fault, FaultyDatastore

NODE = Node(metadata=Metadata(name="node-a", labels=(("rack", "a"),)))
RESERVATION = IPReservation(
    metadata=Metadata(name="routers"), spec=IPReservationSpec(reserved=(Prefix.parse("10.0.0.0/30"),))
)
CONFIGURATION = IPAMConfiguration(metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(cooldown_s=60))
PROFILE = Profile(metadata=Metadata(name="web"), spec=ProfileSpec(ingress=(PolicyRule(action=RuleAction.ALLOW),)))
HOST_ENDPOINT = HostEndpoint(
    metadata=Metadata(name="node-a-lan"),
    spec=HostEndpointSpec(
        node="node-a",
        interface_name="eth0",
        expected_ips=(Address.parse("10.1.0.5"), Address.parse("fd00::5")),
        profiles=("projectnetplug-default-allow", "web"),
        ports=(NamedPort(name="http", protocol=PortProtocol.TCP, port=80),),
    ),
)
BGP_CONFIGURATION = BGPConfiguration(
    metadata=Metadata(name="default"),
    spec=BGPConfigurationSpec(
        log_severity=LogSeverity.INFO,
        has_node_mesh=True,
        as_number=64512,
        listen_port=179,
        bind_mode=BindMode.NODE_IP,
        mesh_password=BGPPassword(secret=SecretKeyReference(name="bgp", key="password")),
        mesh_max_restart_time="2m5s",
        cluster_routing_mode=ClusterRoutingMode.BGP,
        service_cluster_ips=(ServiceRange(prefix=Prefix.parse("10.96.0.0/12")),),
        communities=(Community(name="edge", value="65001:100"),),
        advertised=(AdvertisedPrefix(prefix=Prefix.parse("10.0.0.0/16"), communities=("edge", "1:2:3")),),
        ignored_interfaces=("kube-ipvs*",),
    ),
)
BGP_PEER = BGPPeer(
    metadata=Metadata(name="router"),
    spec=BGPPeerSpec(
        node_selector="rack == 'r1'",
        peer_ip="192.0.2.1:179",
        as_number=65546,
        password=BGPPassword(secret=SecretKeyReference(name="bgp", key="password")),
        source_address=SourceAddress.NODE_IP,
        next_hop_mode=NextHopMode.SELF,
        reachable_by=Address.parse("10.0.0.1"),
        max_restart_time="2m5s",
        allowed_local_as_numbers=0,
        ttl_security=1,
        local_as_number=64600,
        keepalive_time="30s",
        reverse_peering=ReversePeering.MANUAL,
        filters=("edge",),
    ),
)
BGP_FILTER = BGPFilter(
    metadata=Metadata(name="edge"),
    spec=BGPFilterSpec(
        export_v4=(
            BGPFilterRule(
                prefix=Prefix.parse("10.0.0.0/16"),
                match_operator=MatchOperator.IN,
                prefix_lengths=PrefixLengths(minimum=20, maximum=32),
                source=RouteSource.REMOTE_PEERS,
                interface="eth*",
                peer_type=PeerType.EXTERNAL,
                communities=CommunityMatch(values=("65001:100",)),
                as_path_prefix=(65001,),
                priority=100,
                action=FilterAction.ACCEPT,
                operations=(
                    FilterOperation(add_community=AddCommunity(value="1:2:3")),
                    FilterOperation(prepend_as_path=PrependASPath(numbers=(64512, 64512))),
                    FilterOperation(set_priority=SetPriority(value=200)),
                ),
            ),
        ),
        import_v6=(BGPFilterRule(action=FilterAction.REJECT),),
    ),
)
NODE_CONFIGURATION = NodeConfiguration(
    metadata=Metadata(name="node.node-a"),
    spec=NodeConfigurationSpec(
        log_severity=LogSeverity.DEBUG,
        interface_prefix="netp",
        mtu_interface_pattern="^(en.*|eth.*)",
        ipip_mtu=0,
        vxlan_port=4789,
        vxlan_vni=4096,
        route_source_v6=Address.parse("fd00::5"),
        endpoint_to_host_action=EndpointToHostAction.DROP,
        failsafe_inbound=(FailsafePort(protocol=PortProtocol.TCP, port=22, net=Prefix.parse("10.0.0.0/8")),),
        failsafe_outbound=(),
        floating_ips=Switch.ENABLED,
        has_ipv6=False,
        health_host="localhost",
        route_refresh_interval="1m30s",
    ),
)
NETWORK_POLICY = NetworkPolicy(
    metadata=Metadata(name="web", namespace="default"),
    spec=NetworkPolicySpec(
        order=10.5,
        selector="app == 'web'",
        service_account_selector="has(role)",
        types=(Direction.INGRESS,),
        ingress=(
            PolicyRule(
                action=RuleAction.ALLOW,
                family=Family.IPV4,
                protocol=Protocol(6),
                source=EntityRule(
                    nets=(Prefix.parse("10.0.0.0/8"),),
                    not_nets=(Prefix.parse("10.1.0.0/16"),),
                    selector="app == 'shop'",
                    not_selector="has(untrusted)",
                    namespace_selector="all()",
                    service_accounts=ServiceAccountMatch(names=("shop",), selector="has(role)"),
                ),
                destination=EntityRule(ports=(PortRange(80, 80), PortRange(8080, 8090), PortName("http"))),
            ),
            PolicyRule(
                action=RuleAction.DENY, protocol=Protocol(1), icmp=ICMPMatch(type=8, code=0), not_icmp=ICMPMatch(type=3)
            ),
        ),
    ),
)
GLOBAL_NETWORK_POLICY = GlobalNetworkPolicy(
    metadata=Metadata(name="hosts"),
    spec=GlobalNetworkPolicySpec(
        order=2000,
        selector="has(host)",
        namespace_selector="all()",
        egress=(PolicyRule(action=RuleAction.LOG), PolicyRule(action=RuleAction.ALLOW, not_protocol=Protocol(17))),
    ),
)
_PARTNERS = (("role", "partner"),)
_NETS = NetworkSetSpec(nets=(Prefix.parse("192.0.2.0/24"), Prefix.parse("2001:db8::1/128")))
NETWORK_SET = NetworkSet(
    metadata=Metadata(name="partners", namespace="default", labels=(("role", "partner"),)), spec=_NETS
)
GLOBAL_NETWORK_SET = GlobalNetworkSet(metadata=Metadata(name="partners", labels=_PARTNERS), spec=_NETS)
POLICY_KINDS: tuple[Resource, ...] = (NETWORK_POLICY, GLOBAL_NETWORK_POLICY, NETWORK_SET, GLOBAL_NETWORK_SET)
"""One resource of each kind of policy."""

NETWORK_KINDS: tuple[Resource, ...] = (HOST_ENDPOINT, BGP_CONFIGURATION, BGP_PEER, BGP_FILTER, NODE_CONFIGURATION)
"""One resource of each kind that describes the network of nodes."""

CLUSTER = ClusterInformation(metadata=Metadata(name="default"))
ENDPOINT = WorkloadEndpoint(
    metadata=Metadata(name="w", namespace="default"),
    spec=WorkloadEndpointSpec(orchestrator="cni", node="a", endpoint="eth0"),
)


def resource_of(kind: str, name: str, spec: Mapping[str, object]) -> Resource:
    """The resource of a user's document, the first of the file ``f``."""
    document = {"kind": kind, "apiVersion": API_VERSION, "metadata": {"name": name}, "spec": spec}
    return from_mapping(document, origin=DocumentOrigin.USER, source="f#1")


def make_pool(cidr: str = "10.0.0.0/16", name: str = "p", **spec: object) -> IPPool:
    prefix = Prefix.parse(cidr)
    usual = IPPoolSpec(prefix=prefix, block_length=prefix.family.default_block_length)
    return IPPool(metadata=Metadata(name=name), spec=evolve(usual, **spec))  # type: ignore[arg-type] # any field of it


def _uid_sequence() -> Iterator[str]:
    return (f"00000000-0000-4000-8000-{number:012}" for number in count(1))


@define
class ResourceHarness:
    """A store, a clock that tests move, and identities in a row."""

    clock: ManualClock
    store: MemoryDatastore
    uids: Iterator[str] = field(factory=_uid_sequence)

    @classmethod
    def with_mode(cls, mode: MemoryMode) -> ResourceHarness:
        """A harness with an empty store in that mode."""
        clock = ManualClock()
        return cls(clock, MemoryDatastore(mode, clock=clock))

    @property
    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 30)

    @property
    def pace(self) -> Pace:
        return Pace(clock=self.clock, deadline=self.deadline, chance=lambda: 0.5)

    def new_uid(self) -> str:
        return next(self.uids)

    def with_faults(self, **script: Fault) -> FaultyDatastore:
        return FaultyDatastore(
            self.store, {int(number.removeprefix("commit_")): fault for number, fault in script.items()}
        )

    def create(self, resource: Resource, revision: str = "", store: Datastore | None = None) -> Outcome:
        manifest = Manifest(resource=resource, revision=revision)
        return create(store or self.store, manifest, pace=self.pace, new_uid=self.new_uid)

    def apply(self, resource: Resource, revision: str = "", store: Datastore | None = None) -> Outcome:
        manifest = Manifest(resource=resource, revision=revision)
        return apply(store or self.store, manifest, pace=self.pace, new_uid=self.new_uid)

    def replace(self, resource: Resource, revision: str = "", store: Datastore | None = None) -> Outcome:
        manifest = Manifest(resource=resource, revision=revision)
        return replace(store or self.store, manifest, pace=self.pace, new_uid=self.new_uid)

    def delete(self, name: str, revision: str = "", store: Datastore | None = None) -> Outcome:
        return delete(store or self.store, ippool_key(name), revision=revision, pace=self.pace)

    def find(self, key: Key[Resource]) -> Record[Resource] | None:
        return find(self.store, [key], deadline=self.deadline)[0]

    def stored(self, name: str = "p") -> Record[IPPool]:
        record = self.find(ippool_key(name))
        assert record is not None
        assert isinstance(record.value, IPPool)
        return Record(ippool_key(name), record.value, record.revision)

    def names(self) -> list[str]:
        return [record.key.name for record in list_all(self.store, get_kind("pool"), deadline=self.deadline)]

    def put(self, *writes: Create[object]) -> tuple[Revision, ...]:
        return self.store.commit(writes, deadline=self.deadline)

    def remove(self, name: str) -> None:
        """Delete the record of a pool."""
        record = self.stored(name)
        self.store.commit([Delete(record.key, record.revision)], deadline=self.deadline)


def table_lines(
    kind: ResourceKind, resources: Iterable[Resource], width: Width, *, leading: Sequence[str] = ()
) -> list[str]:
    """The table of some resources, as ``get`` prints it."""
    headers = columns_of_width(kind, width, leading).headers
    return format_columns(headers, (table_row(resource, headers) for resource in resources))
