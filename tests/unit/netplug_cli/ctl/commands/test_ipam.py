"""``ipam show``: totals, blocks, and a line for each address held."""

import pytest

from netplug_core.addressing import Ordinal, Prefix
from netplug_core.ipam.block import Attribute, Block
from netplug_core.records import Create
from tests.unit.netplug_cli.ctl.bench import Bench


def block(cidr: str, held: int, attribute: Attribute, owner: str = "host:node-a") -> Create[object]:
    empty = Block.new(Prefix.parse(cidr), owner=owner, now_ns=1)
    full = empty.assign(tuple(map(Ordinal, range(held))), attribute)
    return Create(full.key, full)


@pytest.fixture
def used(bench: Bench) -> Bench:
    """Five addresses of an IPv4 pool and seven of an IPv6 pool."""
    bench.type("create", "-f", bench.pools(("v4", "10.65.0.0/16"), ("v6", "fd5f:abcd:64::/48")))
    mine = Attribute(handle="net.4f2a", owner=(("node", "node-a"), ("note", 'two "words"'), ("pod", "web-0")))
    bench.put(block("10.65.0.0/26", 5, mine), block("fd5f:abcd:64::/122", 7, Attribute()))
    return bench


def test_totals_of_each_pool(used: Bench) -> None:
    """S-51 of the catalogue."""
    assert used.type("ipam", "show") == 0
    assert [line.rstrip() for line in used.out.splitlines()] == [
        "POOL   CIDR                IPS TOTAL    IPS IN USE   IPS FREE",
        "v4     10.65.0.0/16        65536        5 (0%)       65531 (100%)",
        "v6     fd5f:abcd:64::/48   1.2089e+24   7 (0%)       1.2089e+24 (100%)",
    ]


def test_blocks_and_then_every_address_with_its_handle(used: Bench) -> None:
    """S-51 of the catalogue."""
    assert used.type("ipam", "show", "--show-blocks") == 0
    _, blocks, held = used.out.split("\n\n")
    assert [line.rstrip() for line in blocks.splitlines()] == [
        "BLOCK                NODE     IPS IN USE   IPS FREE",
        "10.65.0.0/26         node-a   5 (8%)       59 (92%)",
        "fd5f:abcd:64::/122   node-a   7 (11%)      57 (89%)",
    ]
    lines = held.splitlines()
    assert len(lines) == 12
    assert lines[0] == r'10.65.0.0 net.4f2a node=node-a note="two \"words\"" pod=web-0'
    assert lines[5] == "fd5f:abcd:64:: -"


def test_shares_are_of_the_block(bench: Bench) -> None:
    """S-51 of the catalogue."""
    bench.put(block("10.66.0.0/29", 8, Attribute()), block("10.66.0.8/29", 3, Attribute(), owner="virtual:lb"))
    bench.type("ipam", "show", "--show-blocks")
    rows = [line.split(maxsplit=2)[1:] for line in bench.out.split("\n\n")[1].splitlines()[1:]]
    assert [[node, shares.split()] for node, shares in rows] == [
        ["node-a", ["8", "(100%)", "0", "(0%)"]],
        ["virtual:lb", ["3", "(38%)", "5", "(62%)"]],
    ]


def test_an_address_that_cools_down_says_when_it_was_released(bench: Bench) -> None:
    bench.put(block("10.66.0.0/29", 1, Attribute(released_ns=1_767_225_600_000_000_000)))
    bench.type("ipam", "show", "--show-blocks")
    assert bench.out.splitlines()[-1] == "10.66.0.0 - released=2026-01-01T00:00:00Z"


def test_nothing_to_show_is_headers_alone(bench: Bench) -> None:
    assert bench.type("ipam", "show", "--show-blocks") == 0
    assert [line.split()[:1] for line in bench.out.splitlines()] == [["POOL"], [], ["BLOCK"], []]
