"""``ipam show``: how full the pools are, and who holds which address."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import columns
from netplug_core.clock import format_time
from netplug_core.flows.resources import read_utilization
from netplug_core.ipam.block import Allocation, Block
from netplug_core.ipam.utilization import PoolUsage, Utilization

__all__ = ["ipam"]

_EXACT_BELOW = 10**9


@click.group()
def ipam() -> None:
    """Look into address assignment."""


@ipam.command()
@click.option(
    "--show-blocks", "with_blocks", is_flag=True, help="Show each block too, then a line for each address held."
)
@click.pass_context
def show(context: click.Context, *, with_blocks: bool) -> int:
    """Show how full each pool is.

    With --show-blocks a line for each address that is held follows: the address, its handle (- for none), and what is
    known of its owner as name=value.
    """
    session = session_of(context)
    with session.store() as store:
        usage = read_utilization(store, deadline=session.deadline())
    _print(_pool_lines(usage.pools))
    if with_blocks:
        blocks = _blocks(usage)
        click.echo()
        _print(_block_lines(blocks))
        click.echo()
        _print(_held_line(held) for block in blocks for held in block.held())
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _blocks(usage: Utilization) -> tuple[Block, ...]:
    within = (block for pool in usage.pools for block in pool.blocks)
    return tuple(sorted((*within, *usage.strays), key=lambda block: block.prefix))


def _pool_lines(pools: Iterable[PoolUsage]) -> list[str]:
    rows = (
        (
            pool.pool.metadata.name,
            str(pool.pool.spec.prefix),
            _number(pool.total),
            _share(pool.in_use, pool.total),
            _share(pool.free, pool.total),
        )
        for pool in pools
    )
    return columns(("POOL", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE"), rows)


def _block_lines(blocks: Iterable[Block]) -> list[str]:
    rows = (
        (
            str(block.prefix),
            block.owner.removeprefix("host:"),
            _share(block.prefix.size - len(block.free), block.prefix.size),
            _share(len(block.free), block.prefix.size),
        )
        for block in blocks
    )
    return columns(("BLOCK", "NODE", "IPS IN USE", "IPS FREE"), rows)


def _held_line(held: Allocation) -> str:
    # One blank between words and no padding: a line changes only when its own address does.
    attribute = held.attribute
    words = [str(held.address), attribute.handle or "-", *(f"{name}={_word(value)}" for name, value in attribute.owner)]
    if attribute.released_ns is not None:
        words.append(f"released={format_time(attribute.released_ns)}")
    return " ".join(words)


def _word(value: str) -> str:
    # Quoted where it would not stay one word.
    return value if value and not any(char.isspace() or char == '"' for char in value) else json.dumps(value)


def _number(count: int) -> str:
    return str(count) if count < _EXACT_BELOW else f"{count:.5g}"


def _share(count: int, total: int) -> str:
    return f"{_number(count)} ({round(100 * count / total)}%)"
