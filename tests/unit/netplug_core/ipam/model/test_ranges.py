"""Which records a range concerns, damaged ones too."""

import pytest

from netplug_core.addressing import Prefix
from netplug_core.ipam.model import BLOCK, affinity_key, block_key, is_within, raise_if_within
from netplug_core.records import Key, Malformed

RANGE = Prefix.parse("10.0.0.0/24")
WITHIN = (
    block_key(Prefix.parse("10.0.0.64/26")),
    block_key(Prefix.parse("10.0.0.0/20")),
    affinity_key("host:a", Prefix.parse("10.0.0.255/32")),
)
ELSEWHERE = (
    block_key(Prefix.parse("10.0.1.0/26")),
    block_key(Prefix.parse("fd00::/122")),
    affinity_key("virtual:lb", Prefix.parse("10.1.0.0/26")),
    BLOCK.key("ipv4", "no block"),
)


@pytest.mark.parametrize("key", WITHIN, ids=str)
def test_a_block_with_addresses_of_the_range_is_within(key: Key[object]) -> None:
    assert is_within(key, RANGE)
    error = Malformed(str(key), "no JSON", subject=key)
    with pytest.raises(Malformed) as raised:
        raise_if_within((Malformed("elsewhere", "no JSON", subject=ELSEWHERE[0]), error), RANGE)
    assert raised.value is error


def test_a_record_whose_key_is_not_understood_may_be_within() -> None:
    with pytest.raises(Malformed, match="odd"):
        raise_if_within((Malformed("odd", "no JSON"),), RANGE)


@pytest.mark.parametrize("key", ELSEWHERE, ids=str)
def test_another_block_and_what_names_no_block_are_not(key: Key[object]) -> None:
    assert not is_within(key, RANGE)
    raise_if_within((Malformed(str(key), "no JSON", subject=key),), RANGE)
