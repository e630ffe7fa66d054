"""The keys of claims, and what they say."""

import pytest
from attrs import evolve

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.model import (
    AFFINITY,
    affinities_path,
    affinities_query,
    affinity_key,
    claimed_block,
    claiming_owner,
    current_affinities_query,
    host_owner,
    owner_node,
)
from netplug_core.records import List, Malformed

BLOCK = Prefix.parse("10.0.0.64/26")


def test_a_claim_is_found_by_owner_family_and_block() -> None:
    key = affinity_key(host_owner("node-a"), BLOCK)
    assert key == AFFINITY.key("host", "node-a", "ipv4", "10.0.0.64/26")
    assert claimed_block(key) == BLOCK
    assert key.path[:3] == affinities_path("host:node-a", Family.IPV4)


def test_trap_19_only_the_claims_of_one_owner_are_listed() -> None:
    listed = List(AFFINITY, ("host", "node-a", "ipv6"))
    assert current_affinities_query(host_owner("node-a"), Family.IPV6) == listed
    assert affinities_query(host_owner("node-a"), Family.IPV6) == evolve(listed, may_be_cached=True)


def test_trap_33_sorts_of_owners_cannot_collide() -> None:
    assert affinity_key("virtual:x", BLOCK) != affinity_key("host:x", BLOCK)
    assert affinities_path("host:a:b", Family.IPV6) == ("host", "a:b", "ipv6")


def test_trap_24_a_name_is_kept_whole_however_long_it_is() -> None:
    first, second = ("n" * 251 + letter for letter in "ab")
    assert affinity_key(host_owner(first), BLOCK) != affinity_key(host_owner(second), BLOCK)
    assert claiming_owner(affinity_key(host_owner(first), BLOCK)) == host_owner(first)


@pytest.mark.parametrize("owner", ["host:node-a", "virtual:load-balancer", "host:a:b"])
def test_a_key_names_the_owner_of_the_affinity(owner: str) -> None:
    assert claiming_owner(affinity_key(owner, BLOCK)) == owner


@pytest.mark.parametrize(
    "owner, node", [("host:node-a", "node-a"), ("host:a:b", "a:b"), ("virtual:node-a", ""), ("", "")]
)
def test_only_a_host_is_a_node(owner: str, node: str) -> None:
    assert owner_node(owner) == node


def test_a_key_that_names_no_block_is_a_malformed_record() -> None:
    with pytest.raises(Malformed, match=r"BlockAffinity\(host/node-a/ipv4/x\) is malformed: 'x' is not an IP address"):
        claimed_block(AFFINITY.key("host", "node-a", "ipv4", "x"))
