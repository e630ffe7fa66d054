"""``ipam``: the utilization of pools, who holds which address, the IPAM configuration, and checks of what is stored."""

from __future__ import annotations

from collections.abc import Iterable

import click
from attrs import evolve

from netplug_cli.ctl.commands.explain import explain
from netplug_cli.ctl.commands.ipam_check import ipam_check
from netplug_cli.ctl.commands.ipam_collect import ipam_collect
from netplug_cli.ctl.commands.ipam_import import ipam_import_host_local
from netplug_cli.ctl.commands.ipam_map import ipam_map
from netplug_cli.ctl.commands.ipam_release import ipam_release, parse_address
from netplug_cli.ctl.commands.ipam_split import ipam_split
from netplug_cli.ctl.commands.options import FORCE
from netplug_cli.ctl.ipam_tables import (
    address_lines,
    borrowed_lines,
    configuration_lines,
    usage_lines,
)
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.formatting import print_error
from netplug_core.addressing import Address, Prefix
from netplug_core.flows.resources.cluster import configure_ipam, find_ipam_configuration
from netplug_core.flows.resources.damaged import Risk, delete_damaged_block
from netplug_core.flows.resources.overview import find_address, read_utilization
from netplug_core.ipam.model.block import block_key
from netplug_core.ipam.reporting.utilization import borrowed
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec

__all__ = ["ipam"]


def _parse_block(text: str) -> Prefix:
    try:
        return Prefix.parse(text)
    except ValueError:
        raise click.BadParameter(f"invalid CIDR of a block: {text!r}") from None


@click.group()
def ipam() -> None:
    """Show, check and configure IP address management."""


ipam.add_command(explain)
ipam.add_command(ipam_check)
ipam.add_command(ipam_collect)
ipam.add_command(ipam_map)
ipam.add_command(ipam_release)
ipam.add_command(ipam_split)
ipam.add_command(ipam_import_host_local)


@ipam.command(short_help="Show how full pools are, and who has which address.")
@click.argument("pools", nargs=-1, metavar="[POOL]...")
@click.option(
    "--show-blocks", "shows_blocks", is_flag=True, help="Show each block too, then a line for each address held."
)
@click.option("--show-borrowed", "shows_borrowed", is_flag=True, help="Show the addresses that nodes borrow instead.")
@click.option("--show-configuration", "shows_configuration", is_flag=True, help="Show the IPAM configuration instead.")
@click.option("--ip", "address", type=parse_address, metavar="ADDRESS", help="Say who has one address instead.")
@click.pass_context
def show(
    context: click.Context,
    *,
    pools: tuple[str, ...],
    shows_blocks: bool,
    shows_borrowed: bool,
    shows_configuration: bool,
    address: Address | None,
) -> int:
    """Show how full each POOL is, by name or CIDR; without one, how full all are.

    With --show-blocks a line for each address that is held follows: the address, its handle (- for none), and what is
    known of its owner as name=value.
    """
    selections = (bool(pools) or shows_blocks, shows_borrowed, shows_configuration, address is not None)
    if sum(selections) > 1:
        raise click.UsageError(
            "Use only one of these at a time: pools and --show-blocks, --show-borrowed, --show-configuration, or --ip."
        )
    session = session_of(context)
    if address is not None:
        lines = _address_state_lines(session, address)
    elif shows_configuration:
        lines = _configuration_table_lines(session)
    elif shows_borrowed:
        lines = _borrowed_table_lines(session)
    else:
        lines = _pool_table_lines(session, pools, shows_blocks=shows_blocks)
    for line in lines:
        click.echo(line)
    return 0


@ipam.command(short_help="Change the IPAM configuration.")
@click.option(
    "--strictaffinity",
    "--strict-affinity",
    "is_affinity_strict",
    type=bool,
    help="Whether a node may use its own blocks only.",
)
@click.option(
    "--max-blocks-per-host",
    "max_blocks",
    type=click.IntRange(0),
    metavar="N",
    help="How many blocks a node may claim; 0: no limit.",
)
@click.option(
    "--ip-cooldown-seconds",
    "cooldown_s",
    type=click.IntRange(0),
    metavar="N",
    help="The cooldown: how long a released address is not assigned again.",
)
@click.pass_context
def configure(
    context: click.Context, *, is_affinity_strict: bool | None, max_blocks: int | None, cooldown_s: int | None
) -> int:
    """Change the IPAM configuration; settings that are not given stay as they are."""
    if is_affinity_strict is None and max_blocks is None and cooldown_s is None:
        raise click.UsageError("Give at least one setting.")

    def change(spec: IPAMConfigurationSpec) -> IPAMConfigurationSpec:
        return evolve(
            spec,
            is_affinity_strict=spec.is_affinity_strict if is_affinity_strict is None else is_affinity_strict,
            max_blocks_per_host=spec.max_blocks_per_host if max_blocks is None else max_blocks,
            cooldown_s=spec.cooldown_s if cooldown_s is None else cooldown_s,
        )

    session = session_of(context)
    with session.open_datastore() as store:
        configure_ipam(store, change, pace=session.pace(), new_uid=session.new_uid)
    for name, value in (
        ("StrictAffinity", None if is_affinity_strict is None else str(is_affinity_strict).lower()),
        ("MaxBlocksPerHost", max_blocks),
        ("IPCooldownSeconds", cooldown_s),
    ):
        if value is not None:
            click.echo(f"Successfully set {name} to: {value}")
    return 0


@ipam.command("delete-block", short_help="Delete a damaged block.")
@click.argument("block", type=_parse_block, metavar="CIDR")
@FORCE
@click.pass_context
def delete_block(context: click.Context, *, block: Prefix, is_forced: bool) -> int:
    """Delete the damaged block with that CIDR.

    It is refused while a handle or a workload endpoint says that an address of the block is in use.
    """
    session = session_of(context)
    risk = Risk.ACCEPTED if is_forced else Risk.REFUSED
    with session.open_datastore() as store:
        warnings = delete_damaged_block(store, block, risk, pace=session.pace())
    click.echo(f"{block_key(block)} deleted")
    for warning in warnings:
        print_error(f"warning: {warning}")
    return 0


def _pool_table_lines(session: Session, pools: tuple[str, ...], *, shows_blocks: bool) -> Iterable[str]:
    with session.open_datastore() as store:
        usages = read_utilization(store, pools, deadline=session.deadline())
    if not usages:
        print_error("no IPPool found")
    return usage_lines(usages, shows_blocks=shows_blocks)


def _borrowed_table_lines(session: Session) -> Iterable[str]:
    with session.open_datastore() as store:
        usages = read_utilization(store, deadline=session.deadline())
    return borrowed_lines(borrowed(usage.block for pool in usages for usage in pool.blocks))


def _configuration_table_lines(session: Session) -> Iterable[str]:
    with session.open_datastore() as store:
        return configuration_lines(find_ipam_configuration(store, deadline=session.deadline()))


def _address_state_lines(session: Session, address: Address) -> Iterable[str]:
    with session.open_datastore() as store:
        return address_lines(find_address(store, address, pace=session.pace()))
