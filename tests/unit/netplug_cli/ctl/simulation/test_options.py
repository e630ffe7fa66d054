"""What a simulation is told: words of the command line, and files, as values or as one clear error."""

import click
import pytest

from netplug_cli.ctl.simulation.options import (
    NodeGroup,
    format_duration,
    generate_nodes,
    parse_duration,
    parse_labels,
    parse_node_group,
    parse_percentage,
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


# --- files ---------------------------------------------------------------------------------------------------------


def test_files_hold_pools_reservations_nodes_and_a_configuration(bench: ToolHarness) -> None:
    found = read_scenario_files([bench.write_file(CLUSTER)])
    assert [(made.metadata.name, made.spec.block_length) for made in found.pools] == [("main", 27)]
    assert [made.spec.reserved for made in found.reservations] == [(Prefix.parse("10.0.0.1/32"),)]
    assert [made.metadata.name for made in found.nodes] == ["big", "small"]
    assert found.nodes[0].metadata.labels == (("rack", "a"),)
    assert found.configuration is not None
    assert found.configuration.spec.is_affinity_strict


def test_without_files_there_is_nothing() -> None:
    found = read_scenario_files([])
    assert (found.pools, found.reservations, found.nodes, found.configuration) == ([], [], [], None)


def test_every_problem_of_a_file_is_named_with_its_place(bench: ToolHarness) -> None:
    path = bench.write_file(
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
    assert text.startswith(f"failed to simulate: {path}#1: IPPool(main): error with field spec.blockSize = '19'")
    assert f"{path}#2" in text
    assert "spec.cidr" in text
    assert "ClusterInformation(default)" in text
    assert "a simulation takes IPPool, IPReservation, IPAMConfiguration and Node" in text


def test_a_second_configuration_is_refused(bench: ToolHarness) -> None:
    one = CLUSTER.split("---\n")[2]
    path = bench.write_file(f"{one}---\n{one}")
    with pytest.raises(ConfigurationError, match=r"#2: 'IPAMConfiguration\(default\)' is not accepted; there is one"):
        read_scenario_files([path])


def test_a_file_that_is_not_there_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^failed to simulate: /nowhere/x\.yaml: No such file or directory$"):
        read_scenario_files(["/nowhere/x.yaml"])


# --- pools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, name, length",
    [
        ("10.0.0.0/16", "10-0-0-0-16", 26),
        ("10.0.0.0/16/24", "10-0-0-0-16", 24),
        ("fd00::/64", "fd00---64", 122),
        ("fd00::/64/120", "fd00---64", 120),
        ("::/64", "64", 122),
    ],
)
def test_a_pool_in_one_word(text: str, name: str, length: int) -> None:
    made = parse_pool(text)
    assert made.spec.prefix == Prefix.parse(text if text.count("/") == 1 else text.rpartition("/")[0])
    assert made.spec.block_length == length
    assert made.metadata.name == name


@pytest.mark.parametrize(
    "text, message",
    [
        ("main", r"'main' is not an IP address; expected CIDR\[/BLOCKSIZE\], such as 10.0.0.0/16/26"),
        ("10.0.0.1/16", r"'10.0.0.1/16' has host bits set; 10.0.0.0/16 is the prefix that holds it; expected CIDR"),
        ("10.0.0.0/16/x", r"'x' is not a block size; expected a number, as in 10.0.0.0/16/26"),
        ("10.0.0.0/16/26/2", r"'10.0.0.0/16/26/2' is not a CIDR; expected"),
        ("10.0.0.0/16/19", r"spec.blockSize = '19' \(blockSize must be between 20 and 32"),
        ("10.0.0.0/30", r"spec.cidr = '10.0.0.0/30' \(IP pool size is too small"),
    ],
)
def test_what_is_no_pool_says_what_would_be_one(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        parse_pool(text)


def test_pods_want_the_families_that_may_be_given_to_them(bench: ToolHarness) -> None:
    four, six = parse_pool("10.0.0.0/16"), parse_pool("fd00::/64")
    assert workload_families([six, four]) == (Family.IPV4, Family.IPV6)
    assert workload_families([six]) == (Family.IPV6,)
    tunnels = read_scenario_files([bench.write_pools(("t", "10.1.0.0/16"), spec="allowedUses: [Tunnel]")]).pools
    disabled = read_scenario_files([bench.write_pools(("d", "10.1.0.0/16"), spec="disabled: true")]).pools
    assert workload_families([*tunnels, *disabled]) == ()


# --- nodes and labels ----------------------------------------------------------------------------------------------


def test_nodes_in_one_word() -> None:
    assert parse_node_group("200") == NodeGroup(count=200)
    assert parse_node_group("3:zone=b,rack=7") == NodeGroup(count=3, labels=(("rack", "7"), ("zone", "b")))


@pytest.mark.parametrize("text", ["", "0", "-1", "many", ":zone=a", "1e3", "٣", "1234567"])
def test_what_is_no_number_of_nodes_says_what_would_be_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected COUNT\[:LAB_LABEL=VALUE,...\], such as 200 or 200:zone=a"):
        parse_node_group(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "'' is not a label; expected LAB_LABEL=VALUE,..., such as zone=a,rack=7"),
        ("zone", "'zone' is not a label"),
        ("=a", "'=a' is not a label"),
        ("zone=a,", "'' is not a label"),
        ("zone=a,zone=b", "the label 'zone' is given twice"),
    ],
)
def test_what_is_no_label_is_refused(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        parse_labels(text)
    with pytest.raises(click.BadParameter, match=message):
        parse_node_group(f"1:{text}")


def test_a_label_may_have_no_value_and_one_with_a_sign() -> None:
    assert parse_labels("a=,b=c=d") == (("a", ""), ("b", "c=d"))


def test_nodes_are_numbered_throughout_their_groups() -> None:
    zone = (("zone", "b"),)
    made = generate_nodes([NodeGroup(count=9), NodeGroup(count=2, labels=zone)])
    assert [node.metadata.name for node in made][::9] == ["node-01", "node-10"]
    assert [node.metadata.labels for node in made][8:] == [(), zone, zone]
    assert generate_nodes([]) == ()


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, share", [("0", 0), ("10", 0.1), ("10%", 0.1), ("2.5", 0.025), ("100%", 1)])
def test_a_share_is_given_in_percent(text: str, share: float) -> None:
    assert parse_percentage(text) == share


@pytest.mark.parametrize("text", ["", "%", "-1", "101", "ten", "nan", "inf", "10%%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a percentage; expected 0 to 100, such as 10 or 2\.5%"):
        parse_percentage(text)


@pytest.mark.parametrize(
    "text, seconds", [("1s", 1), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800), ("1d1h1m1s", 90_061)]
)
def test_a_duration_has_units(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "60", "1.5h", "1m1h", "-5m", "5 m", "٣m", "1234567d", "9" * 5000 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration; expected one such as 90s, 5m, 1h30m or 2d"):
        parse_duration(text)


@pytest.mark.parametrize(
    "seconds, text", [(0, "0s"), (0.4, "0s"), (59.6, "1m"), (90, "1m30s"), (3_600, "1h"), (90_061, "1d1h1m1s")]
)
def test_a_duration_is_spelled_to_the_second(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
