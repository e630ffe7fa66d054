"""Option values of a simulation: as values, or as one clear error."""

import click
import pytest

from netplug_cli.ctl.commands.simulate import (
    NodeGroup,
    parse_labels,
    parse_node_group,
    parse_percentage,
    parse_pool,
)
from netplug_cli.formatting import parse_duration
from netplug_core.addressing import Prefix

# --- pools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, name, length",
    [
        ("10.0.0.0/16", "10-0-0-0-16", 26),
        ("10.0.0.0/16/24", "10-0-0-0-16", 24),
        ("fd00::/64", "fd00---64", 122),
        ("fd00::/64/120", "fd00---64", 120),
        ("::5:0:0:0/80", "5-0-0-0-80", 122),
    ],
)
def test_a_pool_in_one_word(text: str, name: str, length: int) -> None:
    pool = parse_pool(text)
    assert pool.spec.prefix == Prefix.parse(text if text.count("/") == 1 else text.rpartition("/")[0])
    assert pool.spec.block_length == length
    assert pool.metadata.name == name


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


# --- nodes and labels ----------------------------------------------------------------------------------------------


def test_nodes_in_one_word() -> None:
    assert parse_node_group("200") == NodeGroup(count=200)
    assert parse_node_group("3:zone=b,rack=7") == NodeGroup(count=3, labels=(("rack", "7"), ("zone", "b")))


@pytest.mark.parametrize("text", ["", "0", "-1", "many", ":zone=a", "1e3", "٣", "1234567"])
def test_what_is_no_number_of_nodes_says_what_would_be_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"expected COUNT\[:LABEL=VALUE,...\], such as 200 or 200:zone=a"):
        parse_node_group(text)


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
        parse_labels(text)
    with pytest.raises(click.BadParameter, match=message):
        parse_node_group(f"1:{text}")


def test_a_label_may_have_no_value_and_one_with_a_sign() -> None:
    assert parse_labels("a=,b=c=d") == (("a", ""), ("b", "c=d"))


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
