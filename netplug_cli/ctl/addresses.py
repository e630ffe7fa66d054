"""Pools, blocks and addresses as lines; ``commands.ipam`` prints them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from netplug_cli.ctl.tables import columns
from netplug_core.addressing import Family
from netplug_core.clock import format_time
from netplug_core.flows.overview import AddressState
from netplug_core.ipam.block import Allocation, Attribute, Pairs
from netplug_core.ipam.utilization import BlockUsage, Loan, PoolUsage
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec

__all__ = ["address_lines", "block_lines", "configuration_lines", "held_line", "loan_lines", "pool_lines"]

_EXACT_BELOW = 10**9
_COUNTS = ("IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE")


def pool_lines(usages: Iterable[PoolUsage]) -> list[str]:
    """The table of pools; where there are several of a family, their total too."""
    shown = list(usages)
    rows: list[tuple[str, ...]] = [
        (usage.name, str(usage.prefix), _number(usage.capacity), *_counts(usage, usage.capacity)) for usage in shown
    ]
    for family in Family:
        of_family = [usage for usage in shown if usage.pool is not None and usage.prefix.family is family]
        if len(of_family) > 1:
            rows.append(_total(family, of_family))
    return columns(("POOL", "CIDR", "IPS TOTAL", *_COUNTS), rows)


def block_lines(usages: Iterable[BlockUsage]) -> list[str]:
    """The table of blocks."""
    rows = (
        (str(usage.block.prefix), usage.block.owner.removeprefix("host:"), *_counts(usage, usage.capacity))
        for usage in usages
    )
    return columns(("BLOCK", "NODE", *_COUNTS), rows)


def held_line(held: Allocation) -> str:
    """One address that is not free: its handle (``-`` for none), and what is known of its owner as name=value."""
    # One blank between words and no padding: a line changes only when its own address does.
    attribute = held.attribute
    words = [str(held.address), attribute.handle or "-", *(f"{name}={_word(value)}" for name, value in attribute.owner)]
    if attribute.released_ns is not None:
        words.append(f"released={format_time(attribute.released_ns)}")
    return " ".join(words)


def loan_lines(loans: Iterable[Loan]) -> list[str]:
    """The table of borrowed addresses."""
    rows = (
        (
            str(loan.allocation.address),
            loan.node,
            str(loan.block.prefix),
            loan.block.owner.removeprefix("host:"),
            *_holder(loan.allocation.attribute),
        )
        for loan in loans
    )
    return columns(("IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"), rows)


def configuration_lines(spec: IPAMConfigurationSpec) -> list[str]:
    """The table of the rules of assignment."""
    rows = [
        ("StrictAffinity", _flag(spec.is_affinity_strict)),
        ("AutoAllocateBlocks", _flag(spec.claims_blocks)),
        ("MaxBlocksPerHost", str(spec.max_blocks)),
        ("IPCooldownSeconds", str(spec.cooldown_s)),
    ]
    if spec.vm_persistence:
        rows.append(("KubeVirtVMAddressPersistence", spec.vm_persistence))
    return columns(("PROPERTY", "VALUE"), rows)


def address_lines(state: AddressState) -> list[str]:
    """What is known of one address."""
    address, allocation = state.holder.address, state.holder.allocation
    if allocation is None:
        reservations = ", ".join(f"IPReservation({name})" for name in state.reserved_by)
        reserved = f"; it is reserved by {reservations}" if reservations else ""
        return [f"{address} is not assigned{reserved}"]
    attribute = allocation.attribute
    if attribute.released_ns is not None and state.rests_until_ns is not None:
        released, until = format_time(attribute.released_ns), format_time(state.rests_until_ns)
        return [f"IP {address} is cooling down: released at {released}, given again from {until} on"]
    alternate = ["Alternate Owner Attributes:", *_indented(attribute.alternate)] if attribute.alternate else []
    owner = ["Active Owner Attributes:", *_indented(attribute.owner)]
    return [
        f"IP {address} is in use",
        f"Handle ID: {attribute.handle or '<none>'}",
        *(owner if attribute.owner else ["No Active Owner attributes defined"]),
        *alternate,
    ]


def _total(family: Family, usages: list[PoolUsage]) -> tuple[str, ...]:
    capacity = sum(usage.capacity for usage in usages)
    return (
        f"all {family}",
        "",
        _number(capacity),
        _share(sum(usage.in_use for usage in usages), capacity),
        _number(sum(usage.cooling for usage in usages)),
        _number(sum(usage.reserved for usage in usages)),
        _share(sum(usage.available for usage in usages), capacity),
    )


def _counts(usage: PoolUsage | BlockUsage, capacity: int) -> tuple[str, ...]:
    return (
        _share(usage.in_use, capacity),
        _number(usage.cooling),
        _number(usage.reserved),
        _share(usage.available, capacity),
    )


def _holder(attribute: Attribute) -> tuple[str, str]:
    """What sort of thing has an address, and which one."""
    pod, namespace = attribute.owner_value("pod"), attribute.owner_value("namespace")
    service, container = attribute.owner_value("service"), attribute.owner_value("container")
    if pod:
        return "pod", f"{namespace}/{pod}" if namespace else pod
    if service:
        return "service", f"{namespace}/{service}" if namespace else service
    if container:
        return "container", container
    return attribute.owner_value("type"), attribute.handle or ""


def _indented(pairs: Pairs) -> list[str]:
    return [f"  {name}: {value}" for name, value in pairs]


def _word(value: str) -> str:
    # Quoted where it would not stay one word.
    return value if value and not any(char.isspace() or char == '"' for char in value) else json.dumps(value)


def _flag(value: object) -> str:
    return "true" if value else "false"


def _number(count: int) -> str:
    return str(count) if count < _EXACT_BELOW else f"{count:.5g}"


def _share(count: int, total: int) -> str:
    return f"{_number(count)} ({round(100 * count / total)}%)"
