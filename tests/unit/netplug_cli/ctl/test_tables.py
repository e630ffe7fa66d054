"""Aligned columns, and that every kind has a table, narrow and wide."""

import pytest
from attrs import evolve

from netplug_cli.ctl.outputs import Width
from netplug_core.addressing import Address, Prefix
from netplug_core.resources.bgp import BGPConfigurationSpec, BGPFilterSpec, BGPPeerSpec
from netplug_core.resources.clusterinformation import ClusterInformation, ClusterInformationSpec
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPAMConfiguration, IPAMConfigurationSpec, IPReservation, IPReservationSpec
from netplug_core.resources.kinds import KINDS, Resource, kind_of
from netplug_core.resources.node import Node, NodeSpec, OrchestratorReference
from netplug_core.resources.profile import Profile, ProfileSpec
from netplug_core.resources.workloadendpoint import IPNAT, WorkloadEndpoint, WorkloadEndpointSpec
from tests.harness.resources import (
    BGP_CONFIGURATION,
    BGP_FILTER,
    BGP_PEER,
    HOST_ENDPOINT,
    NODE_CONFIGURATION,
    table_lines,
)

NAMES = (
    OrchestratorReference(orchestrator="k8s", node_name="a"),
    OrchestratorReference(orchestrator="other", node_name="b"),
)
LABELS = (("rack", "a"), ("zone", ""))
NODE = Node(metadata=Metadata(name="node-a", labels=LABELS), spec=NodeSpec(orchestrator_references=NAMES))
PROFILE = Profile(metadata=Metadata(name="kns.shop"), spec=ProfileSpec(labels_to_apply=LABELS))
RESERVED = (Prefix.parse("10.0.0.0/30"), Prefix.parse("10.0.1.7"))
RESERVATION = IPReservation(metadata=Metadata(name="r"), spec=IPReservationSpec(reserved=RESERVED))
CONFIGURATION = IPAMConfiguration(
    metadata=Metadata(name="default"), spec=IPAMConfigurationSpec(is_affinity_strict=True, max_blocks_per_host=4)
)
ENDPOINT = WorkloadEndpoint(
    metadata=Metadata(name="w", namespace="ns"),
    spec=WorkloadEndpointSpec(
        orchestrator="k8s",
        node="node-a",
        endpoint="eth0",
        pod="web-0",
        addresses=(Address.parse("10.0.0.1"), Address.parse("fd00::1")),
        ip_nats=(IPNAT(internal=Address.parse("10.0.0.1"), external=Address.parse("192.0.2.9")),),
        profiles=("kns.default", "ksa.default.default"),
        interface_name="netp1",
    ),
)
CLUSTER = ClusterInformation(metadata=Metadata(name="default"), spec=ClusterInformationSpec(is_datastore_ready=False))


@pytest.mark.parametrize("width", Width)
def test_every_kind_has_a_table(width: Width) -> None:
    for row in KINDS:
        (header,) = table_lines(row, (), width)
        assert header.split()


@pytest.mark.parametrize(
    "resource, width, cells",
    [
        (NODE, Width.NARROW, ["node-a"]),
        (NODE, Width.WIDE, ["node-a", "k8s:a,other:b", "rack=a,zone="]),
        (PROFILE, Width.NARROW, ["kns.shop"]),
        (PROFILE, Width.WIDE, ["kns.shop", "rack=a,zone="]),
        (RESERVATION, Width.NARROW, ["r"]),
        (RESERVATION, Width.WIDE, ["r", "10.0.0.0/30,10.0.1.7/32"]),
        (CONFIGURATION, Width.NARROW, ["default", "true", "true"]),
        (CONFIGURATION, Width.WIDE, ["default", "true", "true", "4"]),
        (ENDPOINT, Width.NARROW, ["web-0", "node-a", "10.0.0.1/32,fd00::1/128", "netp1"]),
        (
            ENDPOINT,
            Width.WIDE,
            [
                "w",
                "web-0",
                "node-a",
                "10.0.0.1/32,fd00::1/128",
                "netp1",
                "kns.default,ksa.default.default",
                "10.0.0.1:192.0.2.9",
            ],
        ),
        (CLUSTER, Width.NARROW, ["default", "false"]),
        (HOST_ENDPOINT, Width.NARROW, ["node-a-lan", "node-a"]),
        (
            HOST_ENDPOINT,
            Width.WIDE,
            ["node-a-lan", "node-a", "eth0", "10.1.0.5,fd00::5", "projectnetplug-default-allow,web"],
        ),
        (BGP_CONFIGURATION, Width.NARROW, ["default", "Info", "true", "64512"]),
        (evolve(BGP_CONFIGURATION, spec=BGPConfigurationSpec()), Width.WIDE, ["default"]),
        (BGP_PEER, Width.NARROW, ["router", "192.0.2.1:179", "rack", "==", "'r1'", "65546"]),
        (BGP_PEER, Width.WIDE, ["router", "192.0.2.1:179", "rack", "==", "'r1'", "65546", "Self", "2m5s", "edge"]),
        (BGP_FILTER, Width.NARROW, ["edge", "1", "0", "0", "1"]),
        (evolve(BGP_FILTER, spec=BGPFilterSpec()), Width.WIDE, ["edge", "0", "0", "0", "0"]),
        (evolve(BGP_PEER, spec=BGPPeerSpec(peer_selector="all()")), Width.WIDE, ["router", "all()", "(global)"]),
        (NODE_CONFIGURATION, Width.NARROW, ["node.node-a"]),
        (NODE_CONFIGURATION, Width.WIDE, ["node.node-a"]),
    ],
)
def test_the_cells_of_a_resource(resource: Resource, width: Width, cells: list[str]) -> None:
    header, line = table_lines(kind_of(resource), [resource], width)
    assert line.split() == cells
    assert (header, line) == (header.rstrip(), line.rstrip())


def test_many_reservations_are_cut() -> None:
    spec = IPReservationSpec(reserved=tuple(Prefix.parse(f"10.0.{n}.0/24") for n in range(7)))
    _, line = table_lines(kind_of(RESERVATION), [evolve(RESERVATION, spec=spec)], Width.WIDE)
    _, cidrs = line.split()
    assert len(cidrs) == 80
    assert cidrs.endswith("...")


def test_columns_may_be_put_in_front() -> None:
    _, line = table_lines(kind_of(ENDPOINT), [ENDPOINT], Width.NARROW, leading=("NAMESPACE",))
    assert line.split()[:2] == ["ns", "web-0"]
