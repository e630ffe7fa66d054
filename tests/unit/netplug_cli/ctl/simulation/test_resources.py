"""The resources of a simulated cluster: files as values or as one clear error, and generated nodes."""

import pytest

from netplug_cli.ctl.commands.simulate import (
    NodeGroup,
    generate_nodes,
    parse_pool,
    read_scenario_files,
    workload_families,
)
from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from tests.harness.ctl import ToolHarness

CLUSTER = """\
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main}
spec: {cidr: 10.0.0.0/16, blockSize: 27}
---
apiVersion: projectnetplug.org/v3
kind: IPReservation
metadata: {name: gateways}
spec: {reservedCIDRs: [10.0.0.1]}
---
apiVersion: projectnetplug.org/v3
kind: IPAMConfiguration
metadata: {name: default}
spec: {strictAffinity: true}
---
apiVersion: projectnetplug.org/v3
kind: NodeList
items:
- {apiVersion: projectnetplug.org/v3, kind: Node, metadata: {name: big, labels: {rack: a}}}
- {apiVersion: projectnetplug.org/v3, kind: Node, metadata: {name: small}}
"""


def test_files_hold_pools_reservations_nodes_and_a_configuration(harness: ToolHarness) -> None:
    found = read_scenario_files([harness.write_file(CLUSTER)])
    assert [(pool.metadata.name, pool.spec.block_length) for pool in found.pools] == [("main", 27)]
    assert [reservation.spec.reserved for reservation in found.reservations] == [(Prefix.parse("10.0.0.1/32"),)]
    assert [node.metadata.name for node in found.nodes] == ["big", "small"]
    assert found.nodes[0].metadata.labels == (("rack", "a"),)
    assert found.configuration is not None
    assert found.configuration.spec.is_affinity_strict


def test_without_files_there_is_nothing() -> None:
    found = read_scenario_files([])
    assert (found.pools, found.reservations, found.nodes, found.configuration) == ([], [], [], None)


def test_every_problem_of_a_file_is_named_with_its_place(harness: ToolHarness) -> None:
    path = harness.write_file(
        """\
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main}
spec: {cidr: 10.0.0.0/16, blockSize: 19}
---
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: other}
spec: {cidr: nonsense}
---
apiVersion: projectnetplug.org/v3
kind: ClusterInformation
metadata: {name: default}
"""
    )
    with pytest.raises(ConfigurationError) as caught:
        read_scenario_files([path])
    text = str(caught.value)
    assert text.startswith(f"failed to simulate: {path}:4:38: IPPool(main): error with field spec.blockSize = '19'")
    assert f"{path}:9:14 $.spec.cidr" in text
    assert "spec.cidr" in text
    assert "ClusterInformation(default)" in text
    assert "a simulation takes IPPool, IPReservation, IPAMConfiguration and Node" in text


def test_a_second_configuration_is_refused(harness: ToolHarness) -> None:
    one = CLUSTER.split("---\n")[2]
    path = harness.write_file(f"{one}---\n{one}")
    with pytest.raises(ConfigurationError, match=r"#2: 'IPAMConfiguration\(default\)' is not accepted; there is one"):
        read_scenario_files([path])


def test_a_file_that_is_not_there_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^failed to simulate: /nowhere/x\.yaml: No such file or directory$"):
        read_scenario_files(["/nowhere/x.yaml"])


def test_pods_want_the_families_that_may_be_given_to_them(harness: ToolHarness) -> None:
    four, six = parse_pool("10.0.0.0/16"), parse_pool("fd00::/64")
    assert workload_families([six, four]) == (Family.IPV4, Family.IPV6)
    assert workload_families([six]) == (Family.IPV6,)
    tunnels = read_scenario_files([harness.write_pools(("t", "10.1.0.0/16"), spec="allowedUses: [Tunnel]")]).pools
    disabled = read_scenario_files([harness.write_pools(("d", "10.1.0.0/16"), spec="disabled: true")]).pools
    assert workload_families([*tunnels, *disabled]) == ()


def test_nodes_are_numbered_throughout_their_groups() -> None:
    zone = (("zone", "b"),)
    nodes = generate_nodes([NodeGroup(count=9), NodeGroup(count=2, labels=zone)])
    assert [node.metadata.name for node in nodes][::9] == ["node-01", "node-10"]
    assert [node.metadata.labels for node in nodes][8:] == [(), zone, zone]
    assert generate_nodes([]) == ()
