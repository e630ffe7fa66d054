"""The keys of claims, and what they say."""

import pytest

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.affinity import AFFINITY, affinities_path, affinity_key, claimed_block, host_owner
from netplug_core.records import Malformed

BLOCK = Prefix.parse("10.0.0.64/26")


def test_a_claim_is_found_by_owner_family_and_block() -> None:
    key = affinity_key(host_owner("node-a"), BLOCK)
    assert key == AFFINITY.key("host", "node-a", "ipv4", "10.0.0.64/26")
    assert claimed_block(key) == BLOCK
    assert key.path[:3] == affinities_path("host:node-a", Family.IPV4)


def test_sorts_of_owners_cannot_collide() -> None:
    assert affinity_key("virtual:x", BLOCK) != affinity_key("host:x", BLOCK)
    assert affinities_path("host:a:b", Family.IPV6) == ("host", "a:b", "ipv6")


def test_a_key_that_names_no_block_is_a_malformed_record() -> None:
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/x\) is malformed: 'x' is not an IP address"):
        claimed_block(AFFINITY.key("host", "node-a", "ipv4", "x"))
