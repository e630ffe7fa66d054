"""What a simulation is told: words of the command line, and files, as values or as one clear error."""

import click
import pytest

from netplug_cli.ctl.studies import (
    NodeGroup,
    duration,
    families_of,
    generated_nodes,
    labels,
    node_group,
    percent,
    pool,
    read_cluster,
    spell_duration,
)
from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from tests.unit.netplug_cli.ctl.bench import Bench

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


def test_files_hold_pools_reservations_nodes_and_a_configuration(bench: Bench) -> None:
    found = read_cluster([bench.file(CLUSTER)])
    assert [(made.metadata.name, made.spec.block_length) for made in found.pools] == [("main", 27)]
    assert [made.spec.reserved for made in found.reservations] == [(Prefix.parse("10.0.0.1/32"),)]
    assert [made.metadata.name for made in found.nodes] == ["big", "small"]
    assert found.nodes[0].metadata.labels == (("rack", "a"),)
    assert found.configuration is not None
    assert found.configuration.spec.is_affinity_strict


def test_without_files_there_is_nothing() -> None:
    found = read_cluster([])
    assert (found.pools, found.reservations, found.nodes, found.configuration) == ([], [], [], None)


def test_every_problem_of_a_file_is_named_with_its_place(bench: Bench) -> None:
    path = bench.file(
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
        read_cluster([path])
    text = str(caught.value)
    assert text.startswith(f"failed to simulate: {path}#1: IPPool(main): error with field spec.blockSize = '19'")
    assert f"{path}#2" in text
    assert "spec.cidr" in text
    assert "ClusterInformation(default)" in text
    assert "a simulation takes IPPool, IPReservation, IPAMConfiguration and Node" in text


def test_a_second_configuration_is_refused(bench: Bench) -> None:
    one = CLUSTER.split("---\n")[2]
    path = bench.file(f"{one}---\n{one}")
    with pytest.raises(ConfigurationError, match=r"#2: 'IPAMConfiguration\(default\)' is not accepted; there is one"):
        read_cluster([path])


def test_a_file_that_is_not_there_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^failed to simulate: /nowhere/x\.yaml: No such file or directory$"):
        read_cluster(["/nowhere/x.yaml"])


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
    made = pool(text)
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
        pool(text)


def test_pods_want_the_families_that_may_be_given_to_them(bench: Bench) -> None:
    four, six = pool("10.0.0.0/16"), pool("fd00::/64")
    assert families_of([six, four]) == (Family.IPV4, Family.IPV6)
    assert families_of([six]) == (Family.IPV6,)
    tunnels = read_cluster([bench.pools(("t", "10.1.0.0/16"), spec="allowedUses: [Tunnel]")]).pools
    disabled = read_cluster([bench.pools(("d", "10.1.0.0/16"), spec="disabled: true")]).pools
    assert families_of([*tunnels, *disabled]) == ()


# --- nodes and labels ----------------------------------------------------------------------------------------------


def test_nodes_in_one_word() -> None:
    assert node_group("200") == NodeGroup(count=200)
    assert node_group("3:zone=b,rack=7") == NodeGroup(count=3, labels=(("rack", "7"), ("zone", "b")))


@pytest.mark.parametrize("text", ["", "0", "-1", "many", ":zone=a", "1e3", "٣", "1234567"])
def test_what_is_no_number_of_nodes_says_what_would_be_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected COUNT\[:LABEL=VALUE,...\], such as 200 or 200:zone=a"):
        node_group(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "'' is not a label; expected LABEL=VALUE,..., such as zone=a,rack=7"),
        ("zone", "'zone' is not a label"),
        ("=a", "'=a' is not a label"),
        ("zone=a,", "'' is not a label"),
        ("zone=a,zone=b", "the label 'zone' is given twice"),
    ],
)
def test_what_is_no_label_is_refused(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        labels(text)
    with pytest.raises(click.BadParameter, match=message):
        node_group(f"1:{text}")


def test_a_label_may_have_no_value_and_one_with_a_sign() -> None:
    assert labels("a=,b=c=d") == (("a", ""), ("b", "c=d"))


def test_nodes_are_numbered_throughout_their_groups() -> None:
    zone = (("zone", "b"),)
    made = generated_nodes([NodeGroup(count=9), NodeGroup(count=2, labels=zone)])
    assert [node.metadata.name for node in made][::9] == ["node-01", "node-10"]
    assert [node.metadata.labels for node in made][8:] == [(), zone, zone]
    assert generated_nodes([]) == ()


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, share", [("0", 0), ("10", 0.1), ("10%", 0.1), ("2.5", 0.025), ("100%", 1)])
def test_a_share_is_given_in_percent(text: str, share: float) -> None:
    assert percent(text) == share


@pytest.mark.parametrize("text", ["", "%", "-1", "101", "ten", "nan", "inf", "10%%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a percentage; expected 0 to 100, such as 10 or 2\.5%"):
        percent(text)


@pytest.mark.parametrize(
    "text, seconds", [("1s", 1), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800), ("1d1h1m1s", 90_061)]
)
def test_a_duration_has_units(text: str, seconds: int) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "60", "1.5h", "1m1h", "-5m", "5 m", "٣m", "1234567d", "9" * 5000 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration; expected one such as 90s, 5m, 1h30m or 2d"):
        duration(text)


@pytest.mark.parametrize(
    "seconds, text", [(0, "0s"), (0.4, "0s"), (59.6, "1m"), (90, "1m30s"), (3_600, "1h"), (90_061, "1d1h1m1s")]
)
def test_a_duration_is_spelled_to_the_second(seconds: float, text: str) -> None:
    assert spell_duration(seconds) == text
