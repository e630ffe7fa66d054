"""The words and the bars of a map: every use is visible, and names of the datastore can do no harm."""

import pytest
from attrs import evolve

from netplug_cli.ctl.commands.ipam_map import BAR_CELLS, draw_pool
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.ipam.reporting.address_map import AddressUse, MapBlock, MapGap, MapGroup, MapPool, MapRow, UseCounts
from tests.harness.resources import make_pool

USED, BORROWED, COOLING, RESERVED, FREE, UNCLAIMED = AddressUse
ESCAPE = "\x1b[31m<script>&\u202e"


def counts(**numbers: int) -> UseCounts:
    return UseCounts.of({AddressUse[name.upper()]: number for name, number in numbers.items()})


def block(owner: str = "host:a", addresses: str = "uubc", borrowers: tuple[tuple[str, int], ...] = ()) -> MapBlock:
    uses = {"u": USED, "b": BORROWED, "c": COOLING, "r": RESERVED, "f": FREE}
    return MapBlock(
        prefix=Prefix.parse("10.0.0.4/30"),
        owner=owner,
        counts=counts(used=2, borrowed=1, cooling=1),
        addresses=tuple(uses[letter] for letter in addresses),
        borrowers=borrowers,
    )


def pool(*rows: MapRow, numbers: UseCounts | None = None) -> MapPool:
    total = numbers or UseCounts.sum(row.counts for row in rows)
    return MapPool(
        pool=make_pool("10.0.0.0/24", "main"),
        family=Family.IPV4,
        block_count=sum(not isinstance(row, MapGap) for row in rows),
        owner_count=1,
        counts=total,
        rows=rows,
    )


def detail(row: MapRow) -> str:
    return draw_pool(pool(row)).rows[0].detail


# --- words ------------------------------------------------------------------------------------------------------------


def test_a_pool_is_summed_up() -> None:
    drawn = draw_pool(pool(block()))
    assert drawn.title == "main 10.0.0.0/24"
    assert drawn.summary == "4 addresses in all, 1 block of 1 node: 2 in use, 1 borrowed, 1 cooling down"
    assert drawn.notes == ()


@pytest.mark.parametrize(
    "is_disabled, deleted_ns, state",
    [(True, None, " (disabled)"), (False, 5, " (being deleted)"), (True, 5, " (being deleted, disabled)")],
)
def test_a_pool_that_gives_no_addresses_says_so(is_disabled: object, deleted_ns: int | None, state: str) -> None:
    stored = make_pool("10.0.0.0/24", "main", is_disabled=is_disabled)
    stored = evolve(stored, metadata=evolve(stored.metadata, deletion_time_ns=deleted_ns))
    assert draw_pool(evolve(pool(block()), pool=stored)).title == f"main 10.0.0.0/24{state}"


def test_blocks_in_no_pool_have_a_title_too() -> None:
    assert draw_pool(evolve(pool(block()), pool=None)).title == "orphaned allocation blocks (IPv4)"


@pytest.mark.parametrize(
    "row, text",
    [
        (block(), "a: 2 in use, 1 borrowed, 1 cooling down"),
        (block("virtual:lb"), "virtual:lb: 2 in use, 1 borrowed, 1 cooling down"),
        (block(""), "no node: 2 in use, 1 borrowed, 1 cooling down"),
        (block(borrowers=(("b", 1),)), "a: 2 in use, 1 borrowed, 1 cooling down; borrowed by b (1)"),
        (
            block(borrowers=(("b", 3), ("c", 2), ("d", 1), ("e", 1), ("f", 1))),
            "a: 2 in use, 1 borrowed, 1 cooling down; borrowed by b (3), c (2), d (1) and 2 more",
        ),
        (
            MapGap(
                first=Address.parse("fd00::"),
                last=Address.parse("fd00::ffff:ffff:ffff"),
                counts=counts(unclaimed=2**48 - 4, reserved=4),
            ),
            "4 reserved, 2.8147e+14 unclaimed",
        ),
    ],
)
def test_a_row_says_who_has_what(row: MapRow, text: str) -> None:
    assert detail(row) == text


def test_a_group_names_the_owners_with_the_most_blocks_and_what_is_outside() -> None:
    group = MapGroup(
        prefix=Prefix.parse("10.0.0.0/25"),
        block_count=7,
        owners=(("host:a", 3), ("", 2), ("host:b", 1), ("virtual:lb", 1)),
        counts=counts(used=100, free=12),
        outside=counts(unclaimed=16),
    )
    assert (
        detail(group)
        == "7 blocks of a (3), no node (2), b (1) and 1 more: 100 in use, 12 free; outside of them 16 unclaimed"
    )
    drawn = draw_pool(pool(group, block()))
    assert drawn.notes == ("The 2 blocks are drawn in 2 rows, neighbours together; --max-rows changes that.",)


def test_names_are_cut_and_cannot_control_a_terminal() -> None:
    text = detail(block(f"host:{ESCAPE}", borrowers=(("n" * 60, 1),)))
    assert text.startswith(r"\x1b[31m<script>&\u202e: 2 in use")
    assert text.endswith(f"borrowed by {'n' * 37}... (1)")
    assert text.isprintable()


# --- bars -------------------------------------------------------------------------------------------------------------


def test_a_bar_of_a_block_has_a_cell_for_each_address() -> None:
    bar = draw_pool(pool(block())).rows[0].bar
    assert bar is not None
    assert bar.is_exact
    assert bar.cells == (USED, USED, BORROWED, COOLING)
    assert [(run.use, run.start, run.length, run.label) for run in bar.runs] == [
        (USED, 0, 2, "10.0.0.4 - 10.0.0.5"),
        (BORROWED, 2, 1, "10.0.0.6"),
        (COOLING, 3, 1, "10.0.0.7"),
    ]


@pytest.mark.parametrize(
    "numbers, widths",
    [
        (counts(used=1), [64]),
        (counts(used=64, free=64), [32, 32]),
        (counts(used=1, free=1, unclaimed=1), [22, 21, 21]),
        (counts(used=1, borrowed=1, cooling=1, reserved=1, free=1, unclaimed=2**80), [1, 1, 1, 1, 1, 59]),
        (counts(used=10**6, free=1), [63, 1]),
    ],
)
def test_a_bar_of_shares_shows_each_use_that_there_is(numbers: UseCounts, widths: list[int]) -> None:
    bar = draw_pool(pool(block(), numbers=numbers)).bar
    assert not bar.is_exact
    assert len(bar.cells) == BAR_CELLS
    assert [run.length for run in bar.runs] == widths
    assert {run.label for run in bar.runs} == {""}


def test_a_large_block_has_shares_and_a_gap_has_no_bar() -> None:
    gap = MapGap(first=Address.parse("10.0.0.8"), last=Address.parse("10.0.0.9"), counts=counts(unclaimed=2))
    large, none = draw_pool(pool(block(addresses=""), gap)).rows
    assert large.bar is not None
    assert not large.bar.is_exact
    assert [run.length for run in large.bar.runs] == [32, 16, 16]
    assert (none.label, none.bar) == ("10.0.0.8 - 10.0.0.9", None)
