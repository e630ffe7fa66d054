"""Why addresses could not be had: each reason as the allocator gives it, and its place in the catalogue of errors."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import AllocationError, ErrorCode, NetplugError
from netplug_core.flows.cni.call import NoAddressWanted, wanted_of
from netplug_core.flows.ipam.addresses import release_addresses
from netplug_core.flows.ipam.affinities import relinquish_block
from netplug_core.ipam import outcome
from netplug_core.ipam.allocation.affinities import Emptiness
from netplug_core.ipam.allocation.request import AssignRequest, ReleaseItem
from netplug_core.ipam.outcome import (
    AddressShortfall,
    AddressTaken,
    AllocationRule,
    BlockLimitReached,
    BlockOutcome,
    BlockTrace,
    NoPoolServes,
    PoolExhausted,
    PoolsExhausted,
    RuleTrace,
    is_shortfall,
)
from netplug_core.netconf.model import IPAMConfig, NetConf
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPoolStatus, PoolCondition, ippool_key
from tests.harness.ipam import OTHER_NODE, IPAMHarness, ipv4, make_request, specific

CATALOGUE = Path(__file__).parents[5] / "docs" / "errors.md"
TAKEN = Address.parse("10.0.0.0")


def cluster() -> IPAMHarness:
    """One pool of four blocks, and one of IPv6."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24")
    harness.add_pool("six", "fd00::/120")
    return harness


def narrow() -> IPAMHarness:
    """One pool of one block, another node's."""
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/26")
    harness.assign_or_refuse("web", node=OTHER_NODE)
    return harness


def refused(harness: IPAMHarness, request: AssignRequest) -> NetplugError:
    """What an assignment says that cannot be served."""
    result = harness.decision(request).result
    assert isinstance(result, NetplugError)
    return result


# --- one example of each reason ---------------------------------------------------------------------------------------


def unknown() -> NetplugError:
    return refused(cluster(), make_request("h", ipv4(1, "spare")))


def address_under_a_leftover_block() -> NetplugError:
    harness = cluster()
    harness.put_block("10.0.0.0/30", OTHER_NODE)
    return refused(harness, make_request("h", specific("10.0.0.9")))


def disabled() -> NetplugError:
    harness = cluster()
    harness.disable_pool("main")
    return refused(harness, make_request("h", ipv4(1, "main")))


def of_the_other_family() -> NetplugError:
    return refused(cluster(), make_request("h", ipv4(1, "six")))


def not_selected() -> NetplugError:
    harness = cluster()
    harness.change_pool("main", node_selector="zone == 'b'")
    harness.add_pool("by-name", "10.1.0.0/24")
    harness.change_pool("by-name", assignment_mode=AssignmentMode.MANUAL)
    harness.label_node(zone="a")
    return refused(harness, make_request("h"))


def exhausted() -> NetplugError:
    harness = narrow()
    harness.reserve("edges", "10.0.0.62/31")
    harness.assign_or_refuse("more", ipv4(61))
    return refused(harness, make_request("h"))


def over_many_blocks() -> NetplugError:
    harness = IPAMHarness.new()
    harness.add_pool("main", "10.0.0.0/24", 32)
    harness.configure(is_affinity_strict=True, max_blocks_per_host=100)
    return refused(harness, make_request("h", ipv4(80)))


def limited() -> NetplugError:
    harness = cluster()
    harness.configure(is_affinity_strict=True, max_blocks_per_host=1)
    harness.assign_or_refuse("web", ipv4(64))
    return refused(harness, make_request("h"))


def removed() -> NetplugError:
    harness = cluster()
    pool = harness.get(ippool_key("main"))
    harness.put(ippool_key("main"), evolve(pool, metadata=evolve(pool.metadata, deletion_time_ns=1)))
    return refused(harness, make_request("h", ipv4(1, "main")))


def not_allocatable() -> NetplugError:
    harness = cluster()
    overlap = PoolCondition(type="Allocatable", status="False", reason="CIDROverlap")
    pool = harness.get(ippool_key("main"))
    harness.put(ippool_key("main"), evolve(pool, status=IPPoolStatus(conditions=(overlap,))))
    return refused(harness, make_request("h", ipv4(1, "main")))


def for_tunnels() -> IPAMHarness:
    harness = cluster()
    harness.change_pool("main", allowed_uses=(AllowedUse.TUNNEL,))
    return harness


def for_another_use() -> NetplugError:
    return refused(for_tunnels(), make_request())


def address_for_another_use() -> NetplugError:
    return refused(for_tunnels(), make_request("h", specific("10.0.0.7")))


def no_family() -> NetplugError:
    with pytest.raises(NoAddressWanted) as caught:
        wanted_of(NetConf(ipam=IPAMConfig(assign_ipv4=False)))
    return caught.value


def outside() -> NetplugError:
    harness = cluster()
    harness.disable_pool("main")
    return refused(harness, make_request("h", specific("10.0.0.7")))


def taken() -> NetplugError:
    harness = cluster()
    harness.assign_or_refuse("web", specific("10.0.0.7"))
    return refused(harness, make_request("h", specific("10.0.0.7")))


def cooling() -> NetplugError:
    harness = cluster()
    harness.configure(cooldown_s=60)
    harness.assign_or_refuse("web", specific("10.0.0.7"))
    harness.release("web")
    return refused(harness, make_request("h", specific("10.0.0.7")))


def without_use() -> NetplugError:
    return refused(cluster(), evolve(make_request(), use=None))


def strict() -> IPAMHarness:
    harness = narrow()
    harness.configure(is_affinity_strict=True)
    return harness


def strictly_exhausted() -> NetplugError:
    return refused(strict(), make_request("h"))


def address_of_another() -> NetplugError:
    return refused(strict(), make_request("h", specific("10.0.0.7")))


def without_claims() -> NetplugError:
    harness = cluster()
    harness.configure(is_affinity_strict=True, may_auto_allocate_blocks=False)
    return refused(harness, make_request("h"))


def of_another_number() -> NetplugError:
    harness = narrow()
    (refusal,) = release_addresses(harness.store, [ReleaseItem(address=TAKEN, sequence=7)], pace=harness.pace).refused
    return refusal


def of_another_handle() -> NetplugError:
    harness = narrow()
    (refusal,) = release_addresses(harness.store, [ReleaseItem(address=TAKEN, handle="h")], pace=harness.pace).refused
    return refusal


def in_use() -> NetplugError:
    harness = narrow()
    block = Prefix.parse("10.0.0.0/26")
    (refusal,) = relinquish_block(harness.store, block, Emptiness.REQUIRED, pace=harness.pace).refused
    return refusal


EXAMPLES: tuple[tuple[int, str, Callable[[], NetplugError]], ...] = (
    (101, "pool-not-found", unknown),
    (102, "pool-disabled", disabled),
    (103, "pool-wrong-family", of_the_other_family),
    (104, "no-pool-selected", not_selected),
    (105, "pools-exhausted", exhausted),
    (105, "pools-exhausted", address_under_a_leftover_block),
    (106, "block-limit-reached", limited),
    (106, "block-limit-reached", over_many_blocks),
    (107, "pool-being-removed", removed),
    (108, "pool-not-allocatable", not_allocatable),
    (109, "pool-wrong-use", for_another_use),
    (109, "pool-wrong-use", address_for_another_use),
    (110, "no-address-wanted", no_family),
    (111, "address-outside-pools", outside),
    (112, "address-taken", taken),
    (113, "address-cooling", cooling),
    (114, "use-missing", without_use),
    (115, "strict-affinity", strictly_exhausted),
    (115, "strict-affinity", address_of_another),
    (116, "claims-off", without_claims),
    (117, "sequence-mismatch", of_another_number),
    (118, "handle-mismatch", of_another_handle),
    (119, "block-not-empty", in_use),
)


def section(code: int, identifier: str) -> str:
    """What the catalogue says of one reason."""
    page = CATALOGUE.read_text()
    found = re.search(rf"^### {code} `{identifier}`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/errors.md has no section for {code} {identifier}"
    return found[1]


@pytest.mark.parametrize("code, identifier, example", EXAMPLES)
def test_the_catalogue_has_each_reason_with_a_text_that_is_really_given(
    code: int, identifier: str, example: Callable[[], NetplugError]
) -> None:
    error = example()
    assert isinstance(error, AllocationError)
    assert (error.code, error.identifier) == (code, identifier)
    said = section(code, identifier)
    assert f"\n```text\n{error}\n```\n" in said
    assert "\n**Fix.** " in said


@pytest.mark.parametrize("code, identifier, example", EXAMPLES)
def test_each_reason_says_what_to_do_next(code: int, identifier: str, example: Callable[[], NetplugError]) -> None:
    error = example()
    assert (error.code, error.identifier) == (code, identifier)
    assert error.next_step


def test_the_details_are_the_first_twenty_entries_of_the_trace() -> None:
    entry = RuleTrace(rule=AllocationRule.STRICT_AFFINITY)
    error = PoolsExhausted(Family.IPV4, 0, 1, (entry,) * 20)
    assert error.details == "; ".join([str(entry)] * 20)
    assert evolve(error, trace=(entry,) * 22).details == f"{error.details}; and 2 more"
    assert error.next_step == ErrorCode.POOLS_EXHAUSTED.next_step
    over = BlockTrace(block=Prefix.parse("10.0.0.0/26"), outcome=BlockOutcome.OVER_LIMIT)
    assert "maxBlocksPerHost" in evolve(error, trace=(entry, over)).next_step


def test_every_reason_has_its_example() -> None:
    classes = {value for value in vars(outcome).values() if isinstance(value, type)}
    reasons = {each for each in classes if issubclass(each, AllocationError)} - {AllocationError, AddressShortfall}
    assert reasons | {NoAddressWanted} == {type(example()) for _code, _identifier, example in EXAMPLES}


def test_codes_and_identifiers_name_each_other() -> None:
    pairs = {(code, identifier) for code, identifier, _example in EXAMPLES}
    assert {code for code, _identifier in pairs} == set(range(101, 120))
    assert len({identifier for _code, identifier in pairs}) == len(pairs)


# --- texts ------------------------------------------------------------------------------------------------------------

POOL = Prefix.parse("192.168.1.0/24")
FULL = PoolExhausted(pool="main", prefix=POOL, used=256, reserved=0, cooling=0, free_elsewhere=0)
UNREACHED = BlockTrace(block=Prefix.parse("192.168.1.64/26"), outcome=BlockOutcome.OVER_LIMIT, detail="limit 20")


def test_the_error_says_that_a_cluster_has_no_pools() -> None:
    assert str(outcome.PoolUnknown("x", ())).endswith("; pools of this cluster: none")
    assert str(NoPoolServes(Family.IPV6, "node-a", ())) == (
        "no configured netplug pools for node node-a (IPv6): there is no IPv6 pool at all"
    )


def test_a_shortfall_counts_and_names_the_pools() -> None:
    """I-17, I-71."""
    assert str(PoolsExhausted(Family.IPV4, 256, 257, (FULL,))) == (
        "Assigned 256 out of 257 requested IPv4 addresses; No IPs available in pools: [192.168.1.0/24]; "
        "IPPool main (192.168.1.0/24): 256 addresses, 256 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )


def test_a_shortfall_says_that_hosts_keep_addresses_back() -> None:  # I-71
    refusal = BlockLimitReached(
        Family.IPV4, 0, 1, (RuleTrace(rule=AllocationRule.BLOCK_LIMIT),), has_host_reserved=True, limit=1
    )
    assert str(refusal) == (
        "Assigned 0 out of 1 requested IPv4 addresses; "
        "Need to allocate an IPAM block but could not - limit of 1 blocks reached for this node; "
        "HostReservedAttr: windows-reserved-ipam-handle"
    )


def test_pools_are_not_called_exhausted_where_the_node_may_not_claim_what_is_left() -> None:
    assert str(PoolsExhausted(Family.IPV4, 0, 1, (evolve(FULL, used=80), UNREACHED))) == (
        "Assigned 0 out of 1 requested IPv4 addresses; "
        "block 192.168.1.64/26 was not claimed: the node has reached its block limit (limit 20); "
        "IPPool main (192.168.1.0/24): 256 addresses, 80 used, 0 reserved, 0 cooling, 0 free in blocks of other nodes"
    )


@pytest.mark.parametrize("owner, holder", [
    ((("container", "c1"), ("namespace", "shop"), ("pod", "web-0")), "pod shop/web-0"),
    ((("container", "c1"), ("pod", "web-0")), "pod -/web-0"),
    ((("container", "c1"), ("network", "net")), "container c1"),
    ((("node", "node-a"),), "handle net.1f4b"),
])  # fmt: skip
def test_a_taken_address_names_its_holder_as_people_know_it(owner: tuple[tuple[str, str], ...], holder: str) -> None:
    refusal = AddressTaken(Address.parse("10.0.0.7"), Prefix.parse("10.0.0.0/26"), "net.1f4b", owner)
    assert str(refusal) == f"10.0.0.7: Address already assigned in block 10.0.0.0/26 by {holder}"


def test_the_details_of_a_shortfall_repeat_nothing_of_its_text() -> None:
    """A log line has both."""
    full = BlockTrace(block=Prefix.parse("192.168.1.0/26"), outcome=BlockOutcome.FULL)
    refusal = PoolsExhausted(Family.IPV4, 0, 1, (full, FULL))
    assert str(FULL) in str(refusal)
    assert refusal.details == str(full)


def test_an_address_that_nobody_named_has_no_holder_to_name() -> None:
    harness = cluster()
    harness.assign_or_refuse(None, specific("10.0.0.7"))
    assert str(refused(harness, make_request("h", specific("10.0.0.7")))) == (
        "10.0.0.7: Address already assigned in block 10.0.0.0/26"
    )


def test_a_base_has_no_message_of_its_own() -> None:
    with pytest.raises(NotImplementedError):
        AddressShortfall(Family.IPV4, 0, 1, ()).message()


# --- which refusals leave the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("example, alone, beside_others", [
    (exhausted, True, True),
    (strictly_exhausted, True, True),
    (limited, False, True),
    (without_claims, False, True),
    (not_selected, False, True),
    (for_another_use, False, True),
    (unknown, False, False),
    (disabled, False, False),
    (without_use, False, False),
    (taken, False, False),
    (address_of_another, False, False),
])  # fmt: skip
def test_a_shortfall_is_what_others_need_not_suffer_from(
    example: Callable[[], NetplugError], *, alone: bool, beside_others: bool
) -> None:
    refusal = example()
    assert is_shortfall(refusal, has_some=False) is alone
    assert is_shortfall(refusal, has_some=True) is beside_others
