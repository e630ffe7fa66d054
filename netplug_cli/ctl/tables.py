"""Reports of the tool, rows below columns that every format shows, and those of ``ipam show`` and ``check``."""

from __future__ import annotations

import csv
import enum
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
from attrs import define, field, frozen

from netplug_cli.ctl.yaml_documents import write_yaml
from netplug_cli.formatting import escape_unprintable, format_bool, format_columns, format_count, format_json
from netplug_core.addressing import Family
from netplug_core.clock import format_time
from netplug_core.flows.ipam.check import RepairAttempt, RepairResult
from netplug_core.flows.resources.pools import AddressState
from netplug_core.ipam.model import Allocation, Attribute, Block, Pairs
from netplug_core.ipam.reporting.check import CheckReport
from netplug_core.ipam.reporting.usage import BlockUsage, BorrowedAddress, PoolUsage
from netplug_core.resources.ippool import IPAMConfigurationSpec

__all__ = [
    "REPORT_OUTPUT",
    "STEP_OUTPUT",
    "TABLE_OUTPUT",
    "Cell",
    "Column",
    "Report",
    "ReportFormat",
    "StepReport",
    "Value",
    "address_lines",
    "address_report",
    "allocation_line",
    "attempt_line",
    "block_report",
    "borrowed_report",
    "check_lines",
    "check_report",
    "configuration_report",
    "pool_report",
    "print_report",
    "report_format",
    "report_steps",
    "text_cell",
    "usage_lines",
    "usage_report",
]  # fmt: skip


# --- reports ---------------------------------------------------------------------------------------------------------


Value = str | float | bool | Mapping[str, str] | None
"""A value of a cell; a mapping is an object in JSON and YAML, and ``name=value`` words elsewhere."""


class ReportFormat(enum.Enum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


@frozen
class Column:
    """A column: its header in the text, and its member name in every other format."""

    header: str
    member: str


@frozen
class Cell:
    """A typed value, and how the text shows it."""

    value: Value
    text: str


@frozen
class Report:
    """Rows below columns. Totals are shown in the text only: among the rows they would count twice.

    ``name`` is the member of the rows in JSON and YAML, ``facts`` are other members there: what is known besides the
    rows; without a name they have the rows in a form of their own. ``shown`` are the lines of the text where that is
    more, or something else, than a table; None for a table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    totals: tuple[tuple[str, ...], ...] = ()
    name: str = "rows"
    facts: Mapping[str, object] = field(factory=dict, hash=False)
    shown: tuple[str, ...] | None = None

    def render(self, output: ReportFormat) -> str:
        """The report in a format, without a line break at its end. CSV has no notes."""
        match output:
            case ReportFormat.TEXT:
                return "\n".join(self.lines())
            case ReportFormat.JSON:
                return format_json(self.document(), indent=2)
            case ReportFormat.YAML:
                return write_yaml(self.document()).rstrip("\n")
            case ReportFormat.CSV:
                return self._csv()

    def lines(self) -> list[str]:
        """The lines of the text: the table, then the notes."""
        if self.shown is not None:
            return [*self.shown]
        cells = [tuple(cell.text for cell in row) for row in self.rows]
        headers = tuple(column.header for column in self.columns)
        return [*format_columns(headers, [*cells, *self.totals]), *map(escape_unprintable, self.notes)]

    def document(self) -> dict[str, object]:
        """The object that JSON and YAML show."""
        notes = {} if self.shown is not None else {"notes": list(self.notes)}
        rows = {self.name: self.objects()} if self.name else {}
        return {**rows, **self.facts, **notes}

    def objects(self) -> list[dict[str, Value]]:
        """Each row as an object."""
        names = [column.member for column in self.columns]
        return [dict(zip(names, (cell.value for cell in row), strict=True)) for row in self.rows]

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.member for column in self.columns)
        writer.writerows([_csv_value(cell.value) for cell in row] for row in self.rows)
        return text.getvalue().rstrip("\n")


def _csv_value(value: Value) -> object:
    match value:
        case Mapping():
            return escape_unprintable(_words(value.items()))
        case bool():
            return format_bool(value)
        case str():
            return escape_unprintable(value)
        case _:
            return value


def text_cell(value: str) -> Cell:
    """A text, which every format shows as it is."""
    return Cell(value, value)


REPORT_OUTPUT = click.option(
    "-o", "--output", type=click.Choice([each.value for each in ReportFormat]), default=ReportFormat.TEXT.value,
    show_default=True, help="The format.",
)  # fmt: skip
"""``-o`` of a command that prints a report."""


TABLE_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", *(each.value for each in ReportFormat if each.value != "text")]),
    default="table", show_default=True, help="The format.",
)  # fmt: skip
"""The same where the text has always been called ``table``."""


def report_format(word: str) -> ReportFormat:
    """The format that a word of ``-o`` names."""
    return ReportFormat.TEXT if word == "table" else ReportFormat(word)


def print_report(report: Report, output: str) -> None:
    """Print a report in the format that a word of ``-o`` names; a text without lines is not printed."""
    text = report.render(report_format(output))
    if text or report_format(output) is not ReportFormat.TEXT:
        click.echo(text)


# --- steps -----------------------------------------------------------------------------------------------------------


_NAME = "name"
_STEP_COLUMNS = (Column("", "name"), Column("", "text"))

STEP_OUTPUT = click.option(
    "-o", "--output", type=click.Choice([*(each.value for each in ReportFormat), _NAME]),
    default=ReportFormat.TEXT.value, show_default=True,
    help="The format; name is only what was changed, a line each.",
)  # fmt: skip
"""``-o`` of a command that changes something, and says what it does."""


@define
class StepReport:
    """What a command does. Lines and names are printed as they come, every other format with all of them at the end.

    ``output`` is a word of ``-o``.
    """

    output: str
    _rows: list[tuple[Cell, ...]] = field(factory=list, init=False)

    def add(self, text: str, name: str = "") -> None:
        """Report a step. ``name`` is what it changed, as other commands take it; empty if nothing can be named."""
        self.add_all(text, ((name, text),))

    def add_all(self, line: str, steps: Iterable[tuple[str, str]]) -> None:
        """Report steps by their names and texts, which are one line of the text."""
        if self.output == ReportFormat.TEXT.value:
            click.echo(escape_unprintable(line))
            return
        for name, text in steps:
            if self.output != _NAME:
                self._rows.append((text_cell(name), text_cell(text)))
            elif name:
                click.echo(escape_unprintable(name))

    def end(self) -> None:
        """Print what is printed at the end."""
        if self.output not in (ReportFormat.TEXT.value, _NAME):
            print_report(Report(_STEP_COLUMNS, tuple(self._rows), name="steps", shown=()), self.output)


@contextmanager
def report_steps(output: str) -> Iterator[StepReport]:
    """The report of what is done in the context. What was done before an error is reported too."""
    report = StepReport(output)
    try:
        yield report
    finally:
        report.end()


# --- ipam tables -----------------------------------------------------------------------------------------------------


_COUNTS = ("IPS IN USE", "IPS COOLING", "IPS RESERVED", "IPS FREE")
_COUNT_MEMBERS = ("inUse", "cooling", "reserved", "free")
_POOL_COLUMNS = (
    Column("POOL", "pool"), Column("CIDR", "cidr"), Column("IPS TOTAL", "total"),
    *map(Column, _COUNTS, _COUNT_MEMBERS),
)  # fmt: skip
_BORROWED_COLUMNS = (
    Column("IP", "ip"), Column("BORROWING-NODE", "borrowingNode"), Column("BLOCK", "block"),
    Column("BLOCK OWNER", "blockOwner"), Column("TYPE", "type"), Column("ALLOCATED-TO", "allocatedTo"),
)  # fmt: skip
_BLOCK_COLUMNS = (Column("BLOCK", "block"), Column("NODE", "node"), *map(Column, _COUNTS, _COUNT_MEMBERS))
_HELD_COLUMNS = tuple(Column("", name) for name in ("ip", "block", "node", "handle", "owner", "releasedAt"))
_ADDRESS_COLUMNS = tuple(
    Column("", name)
    for name in (
        "ip", "state", "handle", "owner", "alternateOwner", "releasedAt", "givenAgainFrom", "reservedBy", "isInPool",
    )
)  # fmt: skip
_CONFIGURATION_REPORT_COLUMNS = (Column("PROPERTY", "property"), Column("VALUE", "value"))


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


_PROBLEM_COLUMNS = (Column("", "problem"), Column("", "repairable"), Column("", "result"), Column("", "cause"))


def check_report(report: CheckReport, attempts: Iterable[RepairAttempt]) -> Report:
    """What a check found, and what became of the repairs that were tried."""
    results = {attempt.repair: attempt for attempt in attempts}
    found = list[tuple[Value, ...]]()
    for repair in (*report.repairs, *(one for one in report.high_counts if one in results)):
        attempt = results.get(repair)
        texts = ("", "") if attempt is None else (attempt.result.name.lower(), attempt.cause or "")
        found.append((str(repair), True, *texts))
    found += ((str(problem), False, "", "") for problem in report.unrepairable)
    rows = tuple(tuple(Cell(value, "") for value in row) for row in found)
    facts = {
        "blocks": report.blocks,
        "addresses": report.addresses,
        "handles": report.handles,
        "affinities": report.affinities,
        "highCounts": len(report.high_counts),
    }
    return Report(_PROBLEM_COLUMNS, rows, name="problems", facts=facts, shown=())


def attempt_line(attempt: RepairAttempt) -> str:
    """What became of one repair."""
    return escape_unprintable(_attempttext_cell(attempt))


def usage_lines(usages: Sequence[PoolUsage], *, shows_blocks: bool) -> Iterator[str]:
    """The table of pools; with ``shows_blocks`` also the table of their blocks, and a line for each address held."""
    yield from pool_report(usages).lines()
    if not shows_blocks:
        return
    blocks = sorted((block for usage in usages for block in usage.blocks), key=lambda usage: usage.block.prefix)
    yield ""
    yield from block_report(blocks).lines()
    yield ""
    yield "IP HANDLE OWNER"
    yield from (allocation_line(held) for usage in blocks for held in usage.block.held())


def pool_report(usages: Iterable[PoolUsage]) -> Report:
    """How full pools are, with the total of each family that has several pools."""
    shown = list(usages)
    totals = []
    for family in Family:
        of_family = [usage for usage in shown if usage.pool is not None and usage.prefix.family is family]
        if len(of_family) > 1:
            totals.append(_total_row(family, of_family))
    return Report(_POOL_COLUMNS, tuple(map(_pool_row, shown)), totals=tuple(totals))


def _pool_row(usage: PoolUsage) -> tuple[Cell, ...]:
    counts = (usage.in_use, usage.cooling, usage.reserved, usage.available)
    return (
        text_cell(usage.name),
        text_cell(str(usage.prefix)),
        Cell(usage.capacity, format_count(usage.capacity)),
        *map(Cell, counts, _count_columns(usage, usage.capacity)),
    )


def block_report(usages: Iterable[BlockUsage]) -> Report:
    """The blocks and how full they are."""
    return Report(_BLOCK_COLUMNS, tuple(map(_block_row, usages)))


def _block_row(usage: BlockUsage) -> tuple[Cell, ...]:
    counts = (usage.in_use, usage.cooling, usage.reserved, usage.available)
    return (
        text_cell(str(usage.block.prefix)),
        text_cell(usage.block.owner.removeprefix("host:")),
        *map(Cell, counts, _count_columns(usage, usage.capacity)),
    )


def usage_report(usages: Sequence[PoolUsage]) -> Report:
    """The pools, their blocks, and each address that is held; the addresses are the rows."""
    blocks = sorted((block for usage in usages for block in usage.blocks), key=lambda usage: usage.block.prefix)
    rows = tuple(_held_row(usage.block, held) for usage in blocks for held in usage.block.held())
    facts = {"pools": pool_report(usages).objects(), "blocks": block_report(blocks).objects()}
    shown = tuple(usage_lines(usages, shows_blocks=True))
    return Report(_HELD_COLUMNS, rows, name="addresses", facts=facts, shown=shown)


def _held_row(block: Block, held: Allocation) -> tuple[Cell, ...]:
    attribute, released = held.attribute, held.attribute.released_ns
    values: tuple[Value, ...] = (
        str(held.address),
        str(block.prefix),
        block.owner.removeprefix("host:"),
        attribute.handle or "",
        dict(attribute.owner),
        None if released is None else format_time(released),
    )
    return tuple(Cell(value, "") for value in values)


def allocation_line(allocation: Allocation) -> str:
    """The line of an address in use: its handle (``-`` for none), and the attributes of its owner as name=value."""
    # Without padding, so that a line changes only if its own address does.
    attribute = allocation.attribute
    words = [str(allocation.address), attribute.handle or "-"]
    if attribute.owner:
        words.append(_words(attribute.owner))
    if attribute.released_ns is not None:
        words.append(f"released={format_time(attribute.released_ns)}")
    return escape_unprintable(" ".join(words))


def borrowed_report(borrowed: Iterable[BorrowedAddress]) -> Report:
    """The borrowed addresses."""
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
    return Report(_BORROWED_COLUMNS, tuple(tuple(map(text_cell, row)) for row in rows))


def configuration_report(spec: IPAMConfigurationSpec) -> Report:
    """The IPAM configuration."""
    rows = [
        ("StrictAffinity", Cell(spec.is_affinity_strict, format_bool(spec.is_affinity_strict))),
        ("AutoAllocateBlocks", Cell(spec.may_auto_allocate_blocks, format_bool(spec.may_auto_allocate_blocks))),
        ("MaxBlocksPerHost", Cell(spec.max_blocks_per_host, str(spec.max_blocks_per_host))),
        ("IPCooldownSeconds", Cell(spec.cooldown_s, str(spec.cooldown_s))),
    ]
    if spec.vm_address_persistence:
        rows.append(("KubeVirtVMAddressPersistence", text_cell(spec.vm_address_persistence)))
    return Report(_CONFIGURATION_REPORT_COLUMNS, tuple((text_cell(name), value) for name, value in rows))


def address_report(state: AddressState) -> Report:
    """What is known of one address."""
    allocation = state.holder.allocation
    attribute = None if allocation is None else allocation.attribute
    released = None if attribute is None else attribute.released_ns
    until = state.cooldown_ends_ns
    values: tuple[Value, ...] = (
        str(state.holder.address),
        "free" if attribute is None else "in use" if released is None or until is None else "cooling",
        "" if attribute is None else attribute.handle or "",
        {} if attribute is None else dict(attribute.owner),
        {} if attribute is None else dict(attribute.alternate),
        None if released is None else format_time(released),
        None if until is None else format_time(until),
        ",".join(state.reserved_by),
        not state.is_in_no_pool,
    )
    row = tuple(Cell(value, "") for value in values)
    return Report(_ADDRESS_COLUMNS, (row,), shown=tuple(address_lines(state)))


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


def _attempttext_cell(attempt: RepairAttempt) -> str:
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


def _words(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in pairs)


def _quoted(value: str) -> str:
    # Quoted if it would not be one word.
    return value if value and not any(char.isspace() or char == '"' for char in value) else json.dumps(value)


def _format_share(count: int, total: int) -> str:
    return f"{format_count(count)} ({round(100 * count / total)}%)"
