"""Tables of pools, blocks and addresses, for ``ipam show`` and the status of a lab."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from netplug_cli.formatting import escape_unprintable, format_bool, format_columns, format_count
from netplug_core.addressing import Family
from netplug_core.clock import format_time
from netplug_core.flows.ipam.check import RepairAttempt, RepairResult
from netplug_core.flows.resources.overview import AddressState
from netplug_core.ipam.model.block import Allocation, Attribute, Pairs
from netplug_core.ipam.reporting.check import CheckReport
from netplug_core.ipam.reporting.utilization import BlockUsage, BorrowedAddress, PoolUsage
from netplug_core.resources.ipamconfiguration import IPAMConfigurationSpec

__all__ = [
    "address_lines", "allocation_line", "attempt_line", "block_lines", "borrowed_lines", "check_lines",
    "configuration_lines", "pool_lines", "usage_lines",
]  # fmt: skip

_COUNTS = ("IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE")


def check_lines(report: CheckReport, *, shows_repairs: bool) -> Iterator[str]:
    """What a check found; with ``shows_repairs`` a line for each problem that can be repaired."""
    yield (
        f"Checked {report.blocks} blocks with {report.addresses} addresses in use, {report.handles} handles, "
        f"{report.affinities} affinities."
    )
    if shows_repairs:
        yield from (escape_unprintable(f"--fix would {repair}") for repair in report.repairs)
    yield from (escape_unprintable(f"not repairable: {problem}") for problem in report.unrepairable)
    if report.high_counts:
        yield (
            f"{len(report.high_counts)} handles count more than they hold, which is no problem: "
            "their next ADD or DEL corrects them, or --fix."
        )
    count = "no problems" if not report.problems else f"{report.problems} problems"
    repairable = f"; --fix can repair {len(report.repairs)} of them" if report.problems else ""
    yield f"Check complete; found {count}{repairable}."


def attempt_line(attempt: RepairAttempt) -> str:
    """What became of one repair."""
    return escape_unprintable(_attempt_text(attempt))


def usage_lines(usages: Sequence[PoolUsage], *, shows_blocks: bool) -> Iterator[str]:
    """The table of pools; with ``shows_blocks`` also the table of their blocks, and a line for each address held."""
    yield from pool_lines(usages)
    if not shows_blocks:
        return
    blocks = sorted((block for usage in usages for block in usage.blocks), key=lambda usage: usage.block.prefix)
    yield ""
    yield from block_lines(blocks)
    yield ""
    yield "IP HANDLE OWNER"
    yield from (allocation_line(held) for usage in blocks for held in usage.block.held())


def pool_lines(usages: Iterable[PoolUsage]) -> list[str]:
    """The table of pools, with the total of each family that has several pools."""
    shown = list(usages)
    rows: list[tuple[str, ...]] = [
        (usage.name, str(usage.prefix), format_count(usage.capacity), *_count_columns(usage, usage.capacity))
        for usage in shown
    ]
    for family in Family:
        of_family = [usage for usage in shown if usage.pool is not None and usage.prefix.family is family]
        if len(of_family) > 1:
            rows.append(_total_row(family, of_family))
    return format_columns(("POOL", "CIDR", "IPS TOTAL", *_COUNTS), rows)


def block_lines(usages: Iterable[BlockUsage]) -> list[str]:
    """The table of blocks."""
    rows = (
        (str(usage.block.prefix), usage.block.owner.removeprefix("host:"), *_count_columns(usage, usage.capacity))
        for usage in usages
    )
    return format_columns(("BLOCK", "NODE", *_COUNTS), rows)


def allocation_line(allocation: Allocation) -> str:
    """The line of an address in use: its handle (``-`` for none), and the attributes of its owner as name=value."""
    # Without padding, so that a line changes only if its own address does.
    attribute = allocation.attribute
    words = [
        str(allocation.address),
        attribute.handle or "-",
        *(f"{name}={_quoted(value)}" for name, value in attribute.owner),
    ]
    if attribute.released_ns is not None:
        words.append(f"released={format_time(attribute.released_ns)}")
    return escape_unprintable(" ".join(words))


def borrowed_lines(borrowed: Iterable[BorrowedAddress]) -> list[str]:
    """The table of borrowed addresses."""
    rows = (
        (
            str(address.allocation.address),
            address.node,
            str(address.block.prefix),
            address.block.owner.removeprefix("host:"),
            *_owner_columns(address.allocation.attribute),
        )
        for address in borrowed
    )
    return format_columns(("IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"), rows)


def configuration_lines(spec: IPAMConfigurationSpec) -> list[str]:
    """The table of the IPAM configuration."""
    rows = [
        ("StrictAffinity", format_bool(spec.is_affinity_strict)),
        ("AutoAllocateBlocks", format_bool(spec.may_auto_allocate_blocks)),
        ("MaxBlocksPerHost", str(spec.max_blocks_per_host)),
        ("IPCooldownSeconds", str(spec.cooldown_s)),
    ]
    if spec.vm_address_persistence:
        rows.append(("KubeVirtVMAddressPersistence", spec.vm_address_persistence))
    return format_columns(("PROPERTY", "VALUE"), rows)


def address_lines(state: AddressState) -> list[str]:
    """The lines about one address."""
    address, allocation = state.holder.address, state.holder.allocation
    if allocation is None:
        reservations = ", ".join(f"IPReservation({name})" for name in state.reserved_by)
        reserved = f"; it is reserved by {reservations}" if reservations else ""
        where = "; no IPPool contains it" if state.is_in_no_pool else ""
        return [f"{address} is not assigned{reserved}{where}"]
    attribute = allocation.attribute
    if attribute.released_ns is not None and state.cooldown_ends_ns is not None:
        released, until = format_time(attribute.released_ns), format_time(state.cooldown_ends_ns)
        return [f"IP {address} is cooling down: released at {released}, given again from {until} on"]
    alternate = ["Alternate Owner Attributes:", *_indent_pairs(attribute.alternate)] if attribute.alternate else []
    owner = ["Active Owner Attributes:", *_indent_pairs(attribute.owner)]
    return [
        f"IP {address} is in use",
        f"Handle ID: {escape_unprintable(attribute.handle or '<none>')}",
        *(owner if attribute.owner else ["No Active Owner attributes defined"]),
        *alternate,
    ]


def _attempt_text(attempt: RepairAttempt) -> str:
    match attempt.result:
        case RepairResult.DONE:
            return f"repaired: {attempt.repair}"
        case RepairResult.CHANGED:
            return f"left alone: {attempt.repair} ({attempt.result.value}; check again)"
        case RepairResult.FAILED:
            return f"failed: {attempt.repair} ({attempt.cause})"


def _total_row(family: Family, usages: list[PoolUsage]) -> tuple[str, ...]:
    capacity = sum(usage.capacity for usage in usages)
    return (
        f"all {family}",
        "",
        format_count(capacity),
        _format_share(sum(usage.in_use for usage in usages), capacity),
        format_count(sum(usage.cooling for usage in usages)),
        format_count(sum(usage.reserved for usage in usages)),
        _format_share(sum(usage.available for usage in usages), capacity),
    )


def _count_columns(usage: PoolUsage | BlockUsage, capacity: int) -> tuple[str, ...]:
    return (
        _format_share(usage.in_use, capacity),
        format_count(usage.cooling),
        format_count(usage.reserved),
        _format_share(usage.available, capacity),
    )


def _owner_columns(attribute: Attribute) -> tuple[str, str]:
    """The type of an address's owner, and its name."""
    pod, namespace = attribute.owner_value("pod"), attribute.owner_value("namespace")
    service, container = attribute.owner_value("service"), attribute.owner_value("container")
    if pod:
        return "pod", f"{namespace}/{pod}" if namespace else pod
    if service:
        return "service", f"{namespace}/{service}" if namespace else service
    if container:
        return "container", container
    return attribute.owner_value("type"), attribute.handle or ""


def _indent_pairs(pairs: Pairs) -> list[str]:
    return [escape_unprintable(f"  {name}: {value}") for name, value in pairs]


def _quoted(value: str) -> str:
    # Quoted if it would not be one word.
    return value if value and not any(char.isspace() or char == '"' for char in value) else json.dumps(value)


def _format_share(count: int, total: int) -> str:
    return f"{format_count(count)} ({round(100 * count / total)}%)"
