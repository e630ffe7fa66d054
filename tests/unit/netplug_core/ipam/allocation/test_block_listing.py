"""Every block of a family, page by page."""

import pytest

from netplug_core.addressing import Family, Prefix
from netplug_core.ipam.allocation.acquire import all_blocks, list_claims
from netplug_core.ipam.model import BLOCK, Affinity, AffinityState, affinity_key
from netplug_core.records import PAGE_SIZE, List, NeedMore, ReadResult, Record, Revision, Snapshot
from tests.harness.ipam import IPAMHarness
from tests.harness.ipam_release import texts


def listed(harness: IPAMHarness, family: Family) -> tuple[list[str], int]:
    """The blocks, and how many reads they took."""
    snapshot = Snapshot.empty()
    reads = 0
    while isinstance(found := all_blocks(snapshot, family), NeedMore):
        snapshot = snapshot.merged(harness.read(*found.queries))
        reads += 1
    return texts(found), reads


def test_an_empty_store_takes_one_read() -> None:
    assert listed(IPAMHarness.new(), Family.IPV4) == ([], 1)


def test_only_the_blocks_of_the_family_are_found() -> None:
    harness = IPAMHarness.new()
    for cidr in ("fd00::/122", "10.0.0.64/26", "10.0.0.0/28"):
        harness.put_block(cidr)
    assert listed(harness, Family.IPV4) == (["10.0.0.0/28", "10.0.0.64/26"], 1)
    assert listed(harness, Family.IPV6) == (["fd00::/122"], 1)


@pytest.mark.parametrize("count, reads", [(PAGE_SIZE, 1), (PAGE_SIZE + 1, 2), (2 * PAGE_SIZE + 1, 3)])
def test_each_page_takes_one_read(count: int, reads: int) -> None:
    harness = IPAMHarness.new()
    for number in range(count):
        harness.put_block(f"10.0.{number // 256}.{number % 256}/32")
    blocks, spent = listed(harness, Family.IPV4)
    assert (len(set(blocks)), spent) == (count, reads)


def test_the_first_page_is_needed_first() -> None:
    needed = all_blocks(Snapshot.empty(), Family.IPV6)
    assert isinstance(needed, NeedMore)
    assert needed.queries == (List(BLOCK, ("ipv6",), limit=PAGE_SIZE),)


def test_affinities_of_all_owners_are_read_page_by_page() -> None:
    """A cluster has fewer than fit into a page, mostly."""
    found, records = list_claims(Snapshot.empty(), Family.IPV4), []
    for owner, cidr in (("host:node-a", "10.0.0.0/26"), ("virtual:lb", "fd00::/122")):
        key = affinity_key(owner, Prefix.parse(cidr))
        records.append(Record(key, Affinity(state=AffinityState.CONFIRMED), Revision("1")))
    assert isinstance(found, NeedMore)
    (first,) = found.queries
    snapshot = Snapshot({first: ReadResult((records[0],), after="more")}, {})
    found = list_claims(snapshot, Family.IPV4)
    assert isinstance(found, NeedMore)
    (second,) = found.queries
    assert isinstance(second, List)
    assert second.after == "more"
    snapshot = snapshot.merged(Snapshot({second: ReadResult((records[1],))}, {}))
    assert list_claims(snapshot, Family.IPV4) == {Prefix.parse("10.0.0.0/26"): "host:node-a"}
    assert list_claims(snapshot, Family.IPV6) == {Prefix.parse("fd00::/122"): "virtual:lb"}
