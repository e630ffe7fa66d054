"""The outputs of ``get -o``: the tables of each kind, columns and templates of paths, and the formats' names."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import click
from attrs import define, field, frozen

from netplug_cli.formatting import escape_unprintable, format_bool, format_json, truncate
from netplug_core.errors import did_you_mean, quote
from netplug_core.records import Record
from netplug_core.resources.kinds import Resource, ResourceKind, ResourceScope, kind_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from netplug_core.resources.bgp import BGPConfiguration, BGPFilter, BGPPeer
    from netplug_core.resources.clusterinformation import ClusterInformation
    from netplug_core.resources.fields import Labels
    from netplug_core.resources.hostendpoint import HostEndpoint
    from netplug_core.resources.ippool import IPAMConfiguration, IPPool, IPReservation
    from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, GlobalNetworkSet, NetworkPolicy, NetworkSet
    from netplug_core.resources.node import Node
    from netplug_core.resources.profile import Profile
    from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "OUTPUT", "Columns", "CustomColumns", "Every", "Item", "JSONPath", "Member", "ObjectFormat", "OutputFormat",
    "PathError", "Template", "UnknownColumn", "Width", "column_names", "columns_of_width", "format_value",
    "parse_columns", "parse_path", "parse_template", "table_headers", "table_row", "unescape", "with_labels",
]  # fmt: skip


# --- paths -----------------------------------------------------------------------------------------------------------


_ACCEPTED = "a path is made of .name, ['name'], [0], [-1] for the last item, [*] and .*"
_STEP = re.compile(
    r"""\.(?P<name>(?:[^\s.,:\[\]$@{}()?*'"\\]|\\.)+)
      | (?P<every>\.\*|\[\*\])
      | \[(?P<index>-?[0-9]{1,9})\]
      | \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""",
    re.VERBOSE | re.DOTALL,
)
# What kubectl has besides, so that the error can say what it is.
_OUTSIDE = (
    (re.compile(r"\.\."), "a search through all levels"),
    (re.compile(r"\[\?"), "a filter"),
    (re.compile(r"\[[^\]]*:"), "a slice"),
    (re.compile(r"\[[^\]]*,"), "a union"),
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SHOWN_LENGTH = 20
_KEPT_CONTROLS = "\n\t"


class PathError(ValueError):
    """A text that is no path or no template: the position (1 is the first character), and what is accepted."""

    @classmethod
    def at(cls, position: int, problem: str) -> PathError:
        """The error about what stands at a position, counted from 0."""
        return cls(f"position {position + 1}: {problem}")


class Every(enum.Enum):
    """The step to every item of a list, or to the value of every member of an object."""

    EVERY = "*"


@frozen
class Member:
    """The step to the value of a member of an object."""

    name: str


@frozen
class Item:
    """The step to an item of a list; -1 is the last one."""

    index: int


Step: TypeAlias = Member | Item | Every


@frozen
class JSONPath:
    """The steps from a value to others."""

    steps: tuple[Step, ...]

    def select(self, value: object) -> list[object]:
        """The values that the path leads to, in their order; none where a step finds nothing."""
        found = [value]
        for step in self.steps:
            found = [after for before in found for after in _follow(step, before)]
        return found


def parse_path(text: str, *, offset: int = 0) -> JSONPath:
    """The path of a text; ``offset`` is where that begins in what a person typed.

    Raises:
        PathError: it is no path, or one with a step that is not offered.
    """
    if not text:
        raise PathError.at(offset, f"found nothing; {_ACCEPTED}")
    at = 1 if text[0] in "$@" else 0
    if text[at:] == ".":
        return JSONPath(())
    steps: list[Step] = []
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise PathError.at(offset + at, _problem(text[at:]))
        steps.append(_step(match))
        at = match.end()
    return JSONPath(tuple(steps))


def unescape(text: str) -> str:
    """A text in which each backslash stands for the character after it."""
    return _ESCAPED.sub(r"\1", text)


def format_value(value: object) -> str:
    """A value as a person reads it: a text as it is, anything else as JSON on one line; nothing for null.

    Control characters other than a line break and a tabulator are written out, because a terminal obeys them.
    """
    match value:
        case None:
            return ""
        case str():
            if value.isprintable():
                return value
            return "".join(c if c in _KEPT_CONTROLS else escape_unprintable(c) for c in value)
        case bool():
            return format_bool(value)
        case _:
            return format_json(value, separators=(",", ":"))


def _step(match: re.Match[str]) -> Step:
    if match["every"]:
        return Every.EVERY
    if match["index"]:
        return Item(int(match["index"]))
    return Member(unescape(match["name"] or match["quoted"][1:-1]))


def _problem(rest: str) -> str:
    found = quote(rest if len(rest) <= _SHOWN_LENGTH else f"{rest[:_SHOWN_LENGTH]}...")
    named = next((name for pattern, name in _OUTSIDE if pattern.match(rest)), None)
    return f"{found} begins {named}, which is not offered; {_ACCEPTED}" if named else f"found {found}; {_ACCEPTED}"


def _follow(step: Step, value: object) -> Sequence[object]:
    match step:
        case Member(name):
            return (value[name],) if isinstance(value, dict) and name in value else ()
        case Item(index):
            return (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()
        case Every.EVERY:
            return value if isinstance(value, list) else tuple(value.values()) if isinstance(value, dict) else ()
        case _:
            assert_never(step)


# --- tables of kinds --------------------------------------------------------------------------------------------------


Cells = dict[str, str]

_MAX_CELL_LENGTH = 80

_CLUSTER_COLUMNS = ("NAME", "CLUSTERGUID", "CLUSTERTYPE", "NETPLUGVERSION", "DATASTOREREADY")
_ENDPOINT_COLUMNS = ("WORKLOAD", "NODE", "NETWORKS", "INTERFACE")
_CONFIGURATION_COLUMNS = ("NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS")
_POOL_MODE_COLUMNS = ("NAT", "IPIPMODE", "VXLANMODE", "DISABLED", "DISABLEBGPEXPORT")

_BGP_COLUMNS = ("NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER")
_FILTER_COLUMNS = ("NAME", "EXPORTV4", "IMPORTV4", "EXPORTV6", "IMPORTV6")
_POLICY_COLUMNS = ("NAME", "ORDER", "TYPES", "SELECTOR", "INGRESS", "EGRESS")
_PEER_COLUMNS = ("NAME", "PEERIP", "NODE", "ASN")


class Width(enum.Enum):
    """How much of each resource a table shows."""

    NARROW = "ps"
    WIDE = "wide"


_HEADERS: dict[str, dict[Width, tuple[str, ...]]] = {
    "IPPool": {
        Width.NARROW: ("NAME", "CIDR", "SELECTOR"),
        Width.WIDE: ("NAME", "CIDR", *_POOL_MODE_COLUMNS, "SELECTOR", "ASSIGNMENTMODE"),
    },
    "IPReservation": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "CIDRS")},
    "IPAMConfiguration": {
        Width.NARROW: _CONFIGURATION_COLUMNS,
        Width.WIDE: (*_CONFIGURATION_COLUMNS, "MAXBLOCKSPERHOST"),
    },
    "Node": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "ORCHESTRATORS", "LABELS")},
    "Profile": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "LABELS")},
    "WorkloadEndpoint": {Width.NARROW: _ENDPOINT_COLUMNS, Width.WIDE: ("NAME", *_ENDPOINT_COLUMNS, "PROFILES", "NATS")},
    "KubeControllersConfiguration": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME",)},
    "ClusterInformation": {Width.NARROW: _CLUSTER_COLUMNS, Width.WIDE: _CLUSTER_COLUMNS},
    "NodeConfiguration": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME",)},
    "HostEndpoint": {Width.NARROW: ("NAME", "NODE"), Width.WIDE: ("NAME", "NODE", "INTERFACE", "IPS", "PROFILES")},
    "BGPConfiguration": {Width.NARROW: _BGP_COLUMNS, Width.WIDE: _BGP_COLUMNS},
    "BGPPeer": {Width.NARROW: _PEER_COLUMNS, Width.WIDE: (*_PEER_COLUMNS, "NEXTHOPMODE", "MAXRESTARTTIME", "FILTERS")},
    "BGPFilter": {Width.NARROW: _FILTER_COLUMNS, Width.WIDE: _FILTER_COLUMNS},
    "NetworkPolicy": {Width.NARROW: ("NAME",), Width.WIDE: _POLICY_COLUMNS},
    "GlobalNetworkPolicy": {Width.NARROW: ("NAME",), Width.WIDE: _POLICY_COLUMNS},
    "NetworkSet": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "NETS")},
    "GlobalNetworkSet": {Width.NARROW: ("NAME",), Width.WIDE: ("NAME", "NETS")},
}


def table_headers(kind: ResourceKind, width: Width) -> tuple[str, ...]:
    """The columns of the table of a kind."""
    return _HEADERS[kind.name][width]


def column_names(kind: ResourceKind) -> tuple[str, ...]:
    """Every column of the tables of a kind, narrow and wide."""
    namespace = ("NAMESPACE",) if kind.scope is ResourceScope.NAMESPACED else ()
    tables = (table_headers(kind, width) for width in Width)
    return tuple(dict.fromkeys((*namespace, *(name for headers in tables for name in headers))))


def table_row(resource: Resource, headers: Iterable[str]) -> tuple[str, ...]:
    """The cells of a resource below some columns of its kind, NAMESPACE among them."""
    cells = _cells_of(resource)
    return tuple(cells[header] for header in headers)


def _cells_of(resource: Resource) -> Cells:
    own = _CELLS[kind_of(resource).name](resource)
    return {"NAMESPACE": resource.metadata.namespace, "NAME": resource.metadata.name} | own


def _pool_cells(pool: IPPool) -> Cells:
    spec = pool.spec
    return {
        "CIDR": str(spec.prefix),
        "NAT": format_bool(spec.has_outgoing_nat),
        "IPIPMODE": spec.ipip_mode.value,
        "VXLANMODE": spec.vxlan_mode.value,
        "DISABLED": format_bool(spec.is_disabled),
        "DISABLEBGPEXPORT": format_bool(spec.is_bgp_export_disabled),
        "SELECTOR": spec.node_selector,
        "ASSIGNMENTMODE": spec.assignment_mode.value,
    }


def _configuration_cells(configuration: IPAMConfiguration) -> Cells:
    spec = configuration.spec
    return {
        "STRICTAFFINITY": format_bool(spec.is_affinity_strict),
        "AUTOALLOCATEBLOCKS": format_bool(spec.may_auto_allocate_blocks),
        "MAXBLOCKSPERHOST": str(spec.max_blocks_per_host),
    }


def _node_cells(node: Node) -> Cells:
    return {
        "ORCHESTRATORS": ",".join(
            f"{name.orchestrator}:{name.node_name}" for name in node.spec.orchestrator_references
        ),
        "LABELS": _format_labels(node.metadata.labels),
    }


def _endpoint_cells(endpoint: WorkloadEndpoint) -> Cells:
    spec = endpoint.spec
    return {
        "WORKLOAD": spec.pod or spec.workload or spec.container_id or endpoint.metadata.name,
        "NODE": spec.node,
        "NETWORKS": ",".join(str(address.host_prefix) for address in spec.addresses),
        "INTERFACE": spec.interface_name,
        "PROFILES": ",".join(spec.profiles),
        "NATS": ",".join(f"{mapping.internal}:{mapping.external}" for mapping in spec.ip_nats),
    }


def _host_endpoint_cells(endpoint: HostEndpoint) -> Cells:
    spec = endpoint.spec
    return {
        "NODE": spec.node,
        "INTERFACE": spec.interface_name,
        "IPS": ",".join(map(str, spec.expected_ips)),
        "PROFILES": ",".join(spec.profiles),
    }


def _bgp_configuration_cells(configuration: BGPConfiguration) -> Cells:
    spec = configuration.spec
    return {
        "LOGSEVERITY": "" if spec.log_severity is None else spec.log_severity.value,
        "MESHENABLED": "" if spec.has_node_mesh is None else format_bool(spec.has_node_mesh),
        "ASNUMBER": "" if spec.as_number is None else str(spec.as_number),
    }


def _bgp_peer_cells(peer: BGPPeer) -> Cells:
    spec = peer.spec
    return {
        "PEERIP": spec.peer_ip or spec.peer_selector or spec.local_workload_selector,
        "NODE": spec.node or spec.node_selector or "(global)",
        "ASN": "" if spec.as_number is None else str(spec.as_number),
        "NEXTHOPMODE": "" if spec.next_hop_mode is None else spec.next_hop_mode.value,
        "MAXRESTARTTIME": spec.max_restart_time,
        "FILTERS": ",".join(spec.filters),
    }


def _bgp_filter_cells(bgp_filter: BGPFilter) -> Cells:
    """How many rules there are of each family and direction."""
    spec = bgp_filter.spec
    return {
        "EXPORTV4": str(len(spec.export_v4)),
        "IMPORTV4": str(len(spec.import_v4)),
        "EXPORTV6": str(len(spec.export_v6)),
        "IMPORTV6": str(len(spec.import_v6)),
    }


def _set_cells(resource: NetworkSet | GlobalNetworkSet) -> Cells:
    return {"NETS": truncate(",".join(map(str, resource.spec.nets)), _MAX_CELL_LENGTH)}


def _policy_cells(policy: NetworkPolicy | GlobalNetworkPolicy) -> Cells:
    """For whom a policy is, when it is tried, and how many rules there are."""
    spec = policy.spec
    return {
        "ORDER": "" if spec.order is None else f"{spec.order:g}",
        "TYPES": ",".join(direction.value for direction in spec.directions),
        "SELECTOR": truncate(spec.selector, _MAX_CELL_LENGTH),
        "INGRESS": str(len(spec.ingress)),
        "EGRESS": str(len(spec.egress)),
    }


def _cluster_cells(cluster: ClusterInformation) -> Cells:
    ready = cluster.spec.is_datastore_ready
    return {
        "CLUSTERGUID": cluster.spec.cluster_guid,
        "CLUSTERTYPE": cluster.spec.cluster_type,
        "NETPLUGVERSION": cluster.spec.version,
        "DATASTOREREADY": "" if ready is None else format_bool(ready),
    }


def _format_labels(labels: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in labels)


def _reservation_cells(reservation: IPReservation) -> Cells:
    return {"CIDRS": truncate(",".join(map(str, reservation.spec.reserved)), _MAX_CELL_LENGTH)}


def _profile_cells(profile: Profile) -> Cells:
    return {"LABELS": _format_labels(profile.spec.labels_to_apply)}


def _no_cells(_resource: Resource) -> Cells:
    return {}


_CELLS: Final[Mapping[str, Callable[[Any], Cells]]] = {
    "IPPool": _pool_cells,
    "IPReservation": _reservation_cells,
    "IPAMConfiguration": _configuration_cells,
    "Node": _node_cells,
    "Profile": _profile_cells,
    "WorkloadEndpoint": _endpoint_cells,
    "KubeControllersConfiguration": _no_cells,
    "ClusterInformation": _cluster_cells,
    "NodeConfiguration": _no_cells,
    "HostEndpoint": _host_endpoint_cells,
    "BGPConfiguration": _bgp_configuration_cells,
    "BGPPeer": _bgp_peer_cells,
    "BGPFilter": _bgp_filter_cells,
    "NetworkPolicy": _policy_cells,
    "GlobalNetworkPolicy": _policy_cells,
    "NetworkSet": _set_cells,
    "GlobalNetworkSet": _set_cells,
}
"""The cells of each kind besides its name, by the name of the kind: a match of classes would load all kinds."""


# --- columns ---------------------------------------------------------------------------------------------------------


_NOTHING = "<none>"
_ACCEPTED_COLUMNS = (
    "columns are HEADER:PATH, such as CIDR:.spec.cidr, or names of the kind's own columns, between commas"
)
# A comma in brackets is part of a path.
_TOKEN = re.compile(r"""\[(?:[^'"\]]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\]|.""", re.DOTALL)
MappingOf: TypeAlias = Callable[[Record[Resource]], Mapping[str, object]]


class UnknownColumn(ValueError):
    """A name of no column of a kind."""


@frozen
class Columns:
    """The columns of a table: their headers, and the cells of a record below them."""

    headers: tuple[str, ...]
    cells: Callable[[Record[Resource]], tuple[str, ...]]


@frozen
class PathColumn:
    """A column with what a path finds in each object."""

    header: str
    path: JSONPath


@frozen
class CustomColumns:
    """The columns that a person chose: paths, and names of columns of the kind's own tables."""

    columns: tuple[PathColumn | str, ...]

    def of_kind(self, kind: ResourceKind, mapping_of: MappingOf) -> Columns:
        """The columns of a table of a kind; ``mapping_of`` makes the object that the paths are for.

        Raises:
            UnknownColumn: the kind has no column of a name.
        """
        names = column_names(kind)
        for column in self.columns:
            if isinstance(column, str) and column not in names:
                there = ", ".join(names)
                raise UnknownColumn(f"{kind.name} has no column {quote(column)}; there are {there}, and HEADER:PATH")
        headers = (column if isinstance(column, str) else column.header for column in self.columns)
        return Columns(tuple(headers), partial(_cells, self.columns, mapping_of))


def columns_of_width(kind: ResourceKind, width: Width, leading: Sequence[str] = ()) -> Columns:
    """The columns of the table of a kind; ``leading`` ones are put in front."""
    headers = (*leading, *table_headers(kind, width))
    return Columns(headers, lambda record: table_row(record.value, headers))


def with_labels(columns: Columns, names: Sequence[str], *, shows_all: bool) -> Columns:
    """The columns with one for each label of a name, and with a last one for all labels."""
    if not names and not shows_all:
        return columns
    own = tuple(name.rpartition("/")[2].upper() for name in names)
    headers = (*columns.headers, *own, *(("LABELS",) if shows_all else ()))

    def cells(record: Record[Resource]) -> tuple[str, ...]:
        labels = dict(record.value.metadata.labels)
        joined = ",".join(f"{name}={text}" for name, text in labels.items()) or _NOTHING
        named = (labels.get(name, "") for name in names)
        return (*columns.cells(record), *named, *((joined,) if shows_all else ()))

    return Columns(headers, cells)


def parse_columns(text: str) -> CustomColumns:
    """The columns of a text such as ``NAME:.metadata.name,CIDR``.

    Raises:
        PathError: a column has no header or no path, or something in it is not offered.
    """
    commas = (token.start() for token in _TOKEN.finditer(text) if token[0] == ",")
    ends = (-1, *commas, len(text))
    return CustomColumns(tuple(_parse_column(text[before + 1 : end], before + 1) for before, end in pairwise(ends)))


def _parse_column(text: str, position: int) -> PathColumn | str:
    header, colon, path = text.partition(":")
    if not header.strip() or (colon and not path.strip()):
        raise PathError.at(position, f"found {quote(text)}; {_ACCEPTED_COLUMNS}")
    if not colon:
        return header.strip().upper()
    position += len(header) + 1 + len(path) - len(path.lstrip())
    path = path.strip()
    if path.startswith("{") and path.endswith("}"):
        path, position = path[1:-1], position + 1
    if path[:1] not in (".", "[", "$", "@"):
        path, position = f".{path}", position - 1
    return PathColumn(header.strip(), parse_path(path, offset=position))


def _cells(columns: Sequence[PathColumn | str], mapping_of: MappingOf, record: Record[Resource]) -> tuple[str, ...]:
    own = [column for column in columns if isinstance(column, str)]
    named = dict(zip(own, table_row(record.value, own), strict=True))
    mapping = mapping_of(record) if len(own) < len(columns) else {}
    return tuple(named[c] if isinstance(c, str) else _cell(c.path.select(mapping)) for c in columns)


def _cell(found: Sequence[object]) -> str:
    return ",".join(_NOTHING if value is None else format_value(value) for value in found) or _NOTHING


# --- templates -------------------------------------------------------------------------------------------------------


_ACCEPTED_PARTS = "in braces stand a path, 'range' with a path, 'end', or a text in quotes"
_MAX_DEPTH = 16
_BRACES = re.compile(r"""\{((?:[^{}'"\\]|\\.|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)\}""", re.DOTALL)
_RANGE = re.compile(r"range\s+")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@frozen
class Range:
    """Parts that are printed for each value of a path."""

    path: JSONPath
    parts: tuple[Part, ...]


Part: TypeAlias = str | JSONPath | Range


@frozen
class Template:
    """A template that was understood."""

    parts: tuple[Part, ...]

    def render(self, value: object) -> str:
        """The text that the template makes of a value. What a path does not find is left out."""
        return "".join(_render(self.parts, value))


def parse_template(text: str) -> Template:
    """The template of a text.

    Raises:
        PathError: it has no path, or something in braces that is not offered.
    """
    if "{" not in text:
        problem = f"found {quote(text)}, a text without a path; put the path in braces, such as {{.metadata.name}}"
        raise PathError.at(0, problem)
    parser, at = _Parser(), 0
    while (opened := text.find("{", at)) >= 0:
        parser.add(text[at:opened])
        match = _BRACES.match(text, opened)
        if match is None:
            raise PathError.at(opened, "'{' without its '}'; " + _ACCEPTED_PARTS)
        content = match[1].strip()
        parser.add_action(content, match.start(1) + match[1].find(content))
        at = match.end()
    parser.add(text[at:])
    return Template(parser.finish())


@define
class _OpenRange:
    """A range whose end is not read yet; the outermost one is the template, which has no path."""

    position: int
    path: JSONPath | None = None
    parts: list[Part] = field(factory=list)


@define
class _Parser:
    """The ranges that are open, the innermost one last."""

    _open: list[_OpenRange] = field(factory=lambda: [_OpenRange(0)])

    def add(self, part: Part) -> None:
        """Add a part to the innermost range."""
        if part != "":
            self._open[-1].parts.append(part)

    def add_action(self, content: str, position: int) -> None:
        """Read what stands in braces."""
        if content == "end":
            self._close(position)
        elif match := _RANGE.match(content):
            if len(self._open) > _MAX_DEPTH:
                raise PathError.at(position, f"there are more than {_MAX_DEPTH} ranges in each other")
            path = self._path(content[match.end() :], position + match.end())
            self._open.append(_OpenRange(position, path))
        elif _QUOTED.fullmatch(content):
            self.add(_ESCAPE.sub(lambda found: _escaped(found, position), content[1:-1]))
        elif content[:1] in (".", "[", "$", "@"):
            self.add(self._path(content, position))
        else:
            raise PathError.at(
                position, f"found {quote(content)}; {_ACCEPTED_PARTS}, and a path begins with '.' or '['"
            )

    def finish(self) -> tuple[Part, ...]:
        """All parts, once everything is read."""
        innermost = self._open[-1]
        if innermost.path is not None:
            raise PathError.at(innermost.position, "'range' without its {end}")
        return tuple(innermost.parts)

    def _close(self, position: int) -> None:
        closed = self._open[-1]
        if closed.path is None:
            raise PathError.at(position, "'end' without its {range PATH}")
        self._open.pop()
        self.add(Range(closed.path, tuple(closed.parts)))

    def _path(self, text: str, position: int) -> JSONPath:
        if text.startswith("$") and len(self._open) > 1:
            # kubectl takes it for '@' there, and every other tool for the whole answer.
            raise PathError.at(position, "'$' in a range; a path there begins at the value of the range, with '.'")
        return parse_path(text, offset=position)


def _escaped(match: re.Match[str], position: int) -> str:
    if match[1] not in _ESCAPES:
        accepted = ", ".join(f"\\{name}" for name in _ESCAPES)
        raise PathError.at(position + 1 + match.start(), f"found {match[0]}; accepted are {accepted}")
    return _ESCAPES[match[1]]


def _render(parts: Sequence[Part], value: object) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case JSONPath():
                yield " ".join(map(format_value, part.select(value)))
            case Range(path, inner):
                for each in path.select(value):
                    yield from _render(inner, each)
            case _:
                assert_never(part)


# --- formats ---------------------------------------------------------------------------------------------------------


class ObjectFormat(enum.Enum):
    """An output without a table: whole objects, or their kinds and names."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


OutputFormat: TypeAlias = Width | ObjectFormat | CustomColumns | Template

_WORDS: dict[str, OutputFormat] = {
    **{width.value: width for width in Width},
    **{format_.value: format_ for format_ in ObjectFormat},
}
_PARSERS: dict[str, Callable[[str], OutputFormat]] = {"custom-columns": parse_columns, "jsonpath": parse_template}
_GO_TEMPLATES = ("go-template", "go-template-file", "template", "templatefile")
_EXAMPLE = """jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'"""
_ALL = ", ".join((*_WORDS, "custom-columns=COLUMNS", "jsonpath=TEMPLATE"))


class _OutputType(click.ParamType[OutputFormat]):
    """The value of ``-o``."""

    name = "format"

    def convert(
        self, value: str | OutputFormat, param: click.Parameter | None, ctx: click.Context | None
    ) -> OutputFormat:
        """The output; an error of the command line for anything else."""
        if not isinstance(value, str):
            return value
        if value in _WORDS:
            return _WORDS[value]
        word, _, text = value.partition("=")
        if word in _GO_TEMPLATES:
            self.fail(f"{word} is not offered: use {_EXAMPLE}, or custom-columns=NAME:.metadata.name", param, ctx)
        if word not in _PARSERS:
            meant = did_you_mean(value, _WORDS)
            self.fail(f"{value!r} is none of {_ALL}{f'; {meant}' if meant else ''}", param, ctx)
        try:
            return _PARSERS[word](text)
        except PathError as error:
            self.fail(f"{word}, {error}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        """The words that begin as typed."""
        from click.shell_completion import CompletionItem

        words = (*_WORDS, *(f"{word}=" for word in _PARSERS))
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


OUTPUT = click.option(
    "-o", "--output", type=_OutputType(), default=Width.NARROW.value, show_default=True, metavar="FORMAT",
    help=f"One of {_ALL}.",
)  # fmt: skip
"""``-o`` and ``--output``."""
