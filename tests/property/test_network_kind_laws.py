"""Laws of the kinds that describe the network of nodes: what is written is read again, and every value has a table."""

from __future__ import annotations

import json
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from netplug_cli.ctl.outputs import column_names, table_row
from netplug_core.decoding.tables import DocumentOrigin
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
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.fields import LogSeverity, Metadata, PortRange, Switch
from netplug_core.resources.hostendpoint import HostEndpoint, HostEndpointSpec, NamedPort, PortProtocol
from netplug_core.resources.kinds import Resource, kind_of
from netplug_core.resources.nodeconfiguration import (
    EndpointToHostAction,
    FailsafePort,
    NodeConfiguration,
    NodeConfigurationSpec,
    OutgoingExclusions,
)
from netplug_core.testing.strategies import addresses, labels, names, prefixes

T = TypeVar("T")

METADATA = st.builds(Metadata, name=names(), labels=labels())
TEXTS = st.text(max_size=12)
PORTS = st.integers(1, 65535)
FLAGS = st.none() | st.booleans()
MTUS = st.none() | st.integers(0, 65535)
AS_NUMBERS = st.none() | st.integers(1, 2**32 - 1)
SPANS = st.sampled_from(["", "0", "90s", "1h30m", "2m5s"])

NOTHING_ELSE = st.just("")
LATER = st.sampled_from(["", '{"later":[null,1.5,{"a":18446744073709551616}]}'])
"""Members of a release to come."""


def tuples(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=2).map(tuple)


def host_endpoints(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    protocols = st.sampled_from(PortProtocol)
    port = st.builds(NamedPort, name=TEXTS, protocol=protocols, port=PORTS, unknown_json=carried)
    spec = st.builds(
        HostEndpointSpec,
        node=TEXTS,
        interface_name=TEXTS,
        expected_ips=tuples(addresses()),
        profiles=tuples(TEXTS),
        ports=tuples(port),
        unknown_json=carried,
    )
    return st.builds(HostEndpoint, metadata=METADATA, spec=spec, unknown_json=carried)


def bgp_passwords(carried: st.SearchStrategy[str]) -> st.SearchStrategy[BGPPassword | None]:
    secret = st.builds(SecretKeyReference, name=TEXTS, key=TEXTS, unknown_json=carried)
    return st.none() | st.builds(BGPPassword, secret=secret, unknown_json=carried)


def bgp_configurations(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    ranges = tuples(st.builds(ServiceRange, prefix=prefixes(), unknown_json=carried))
    advertised = st.builds(AdvertisedPrefix, prefix=prefixes(), communities=tuples(TEXTS), unknown_json=carried)
    spec = st.builds(
        BGPConfigurationSpec,
        log_severity=st.none() | st.sampled_from(LogSeverity),
        has_node_mesh=st.none() | st.booleans(),
        as_number=AS_NUMBERS,
        listen_port=st.none() | PORTS,
        bind_mode=st.none() | st.sampled_from(BindMode),
        mesh_password=bgp_passwords(carried),
        mesh_max_restart_time=SPANS,
        cluster_routing_mode=st.none() | st.sampled_from(ClusterRoutingMode),
        service_cluster_ips=ranges,
        service_external_ips=ranges,
        service_load_balancer_ips=ranges,
        communities=tuples(st.builds(Community, name=TEXTS, value=TEXTS, unknown_json=carried)),
        advertised=tuples(advertised),
        ignored_interfaces=tuples(TEXTS),
        unknown_json=carried,
    )
    return st.builds(BGPConfiguration, metadata=METADATA, spec=spec, unknown_json=carried)


def bgp_peers(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    spec = st.builds(
        BGPPeerSpec,
        node=TEXTS,
        node_selector=TEXTS,
        peer_ip=TEXTS,
        peer_selector=TEXTS,
        as_number=AS_NUMBERS,
        password=bgp_passwords(carried),
        source_address=st.none() | st.sampled_from(SourceAddress),
        next_hop_mode=st.none() | st.sampled_from(NextHopMode),
        reachable_by=st.none() | addresses(),
        max_restart_time=SPANS,
        allowed_local_as_numbers=st.none() | st.integers(0, 255),
        ttl_security=st.none() | st.integers(1, 255),
        local_workload_selector=TEXTS,
        local_as_number=AS_NUMBERS,
        keeps_original_next_hop=FLAGS,
        keepalive_time=SPANS,
        reverse_peering=st.none() | st.sampled_from(ReversePeering),
        filters=tuples(TEXTS),
        unknown_json=carried,
    )
    return st.builds(BGPPeer, metadata=METADATA, spec=spec, unknown_json=carried)


def filter_rules(carried: st.SearchStrategy[str]) -> st.SearchStrategy[BGPFilterRule]:
    lengths = st.none() | st.integers(0, 128)
    numbers = tuples(st.integers(1, 2**32 - 1))
    priorities = st.integers(1, 2**31 - 2)
    operation = st.builds(
        FilterOperation,
        add_community=st.none() | st.builds(AddCommunity, value=TEXTS, unknown_json=carried),
        prepend_as_path=st.none() | st.builds(PrependASPath, numbers=numbers, unknown_json=carried),
        set_priority=st.none() | st.builds(SetPriority, value=priorities, unknown_json=carried),
        unknown_json=carried,
    )
    return st.builds(
        BGPFilterRule,
        prefix=st.none() | prefixes(),
        match_operator=st.none() | st.sampled_from(MatchOperator),
        prefix_lengths=st.none() | st.builds(PrefixLengths, minimum=lengths, maximum=lengths, unknown_json=carried),
        source=st.none() | st.sampled_from(RouteSource),
        interface=TEXTS,
        peer_type=st.none() | st.sampled_from(PeerType),
        communities=st.none() | st.builds(CommunityMatch, values=tuples(TEXTS), unknown_json=carried),
        as_path_prefix=numbers,
        priority=st.none() | priorities,
        action=st.sampled_from(FilterAction),
        operations=tuples(operation),
        unknown_json=carried,
    )


def bgp_filters(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    rules = tuples(filter_rules(carried))
    spec = st.builds(
        BGPFilterSpec, export_v4=rules, import_v4=rules, export_v6=rules, import_v6=rules, unknown_json=carried
    )
    return st.builds(BGPFilter, metadata=METADATA, spec=spec, unknown_json=carried)


def node_configurations(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    protocols = st.sampled_from(PortProtocol)
    port = st.builds(FailsafePort, protocol=protocols, port=PORTS, net=st.none() | prefixes(), unknown_json=carried)
    spec = st.builds(
        NodeConfigurationSpec,
        log_severity=st.none() | st.sampled_from(LogSeverity),
        interface_prefix=TEXTS,
        mtu_interface_pattern=TEXTS,
        is_ipip_enabled=FLAGS,
        ipip_mtu=MTUS,
        is_vxlan_enabled=FLAGS,
        vxlan_mtu=MTUS,
        vxlan_mtu_v6=MTUS,
        vxlan_port=st.none() | PORTS,
        vxlan_vni=st.none() | st.integers(1, 2**24 - 1),
        nat_outgoing_address=st.none() | addresses(),
        nat_outgoing_exclusions=st.none() | st.sampled_from(OutgoingExclusions),
        nat_port_range=st.none() | st.tuples(PORTS, PORTS).map(lambda ports: PortRange(min(ports), max(ports))),
        nat_outgoing_interfaces=TEXTS,
        external_nodes=tuples(prefixes()),
        route_source=st.none() | addresses(),
        route_source_v6=st.none() | addresses(),
        endpoint_to_host_action=st.none() | st.sampled_from(EndpointToHostAction),
        failsafe_inbound=st.none() | tuples(port),
        failsafe_outbound=st.none() | tuples(port),
        floating_ips=st.none() | st.sampled_from(Switch),
        has_ipv6=FLAGS,
        is_health_enabled=FLAGS,
        health_host=TEXTS,
        health_port=st.none() | PORTS,
        has_metrics=FLAGS,
        metrics_host=TEXTS,
        metrics_port=st.none() | PORTS,
        route_refresh_interval=SPANS,
        reporting_interval=SPANS,
        unknown_json=carried,
    )
    return st.builds(NodeConfiguration, metadata=METADATA, spec=spec, unknown_json=carried)


def resources(carried: st.SearchStrategy[str]) -> st.SearchStrategy[Resource]:
    return st.one_of(
        [
            host_endpoints(carried),
            bgp_configurations(carried),
            bgp_peers(carried),
            bgp_filters(carried),
            node_configurations(carried),
        ]
    )


def through_json(resource: Resource, origin: DocumentOrigin) -> Resource:
    return from_mapping(json.loads(json.dumps(to_mapping(resource))), origin=origin)


@given(resources(LATER))
def test_d3_what_was_stored_is_read_with_the_members_of_a_later_release(resource: Resource) -> None:
    assert through_json(resource, DocumentOrigin.DATASTORE) == resource


@given(resources(NOTHING_ELSE))
def test_a_user_may_hand_in_what_was_written(resource: Resource) -> None:
    assert through_json(resource, DocumentOrigin.USER) == resource


@given(resources(LATER))
def test_d13_every_value_has_its_columns(resource: Resource) -> None:
    columns = column_names(kind_of(resource))
    cells = dict(zip(columns, table_row(resource, columns), strict=True))
    assert cells["NAME"] == resource.metadata.name
