"""``describe``, ``explain`` and ``api-resources``: what a resource is, what its fields mean, which kinds there are."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from attrs import frozen

from netplug_cli.ctl.arguments import ALL, NAMESPACE, RESOURCES, SELECTOR, Named, find_keys, parse_kind, selected_of
from netplug_cli.ctl.documents import render_yaml
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.global_options import DEFAULT_NAMESPACE
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Cell, Column, Report, ReportFormat, print_report, text_cell
from netplug_cli.formatting import escape_unprintable, format_columns, format_count, print_error, print_failure
from netplug_core.clock import Deadline, format_time
from netplug_core.datastore.protocol import Datastore
from netplug_core.decoding.codecs import Codec
from netplug_core.decoding.tables import Field, ListOf, collect_members
from netplug_core.errors import Unavailable, did_you_mean
from netplug_core.flows.resources.outcome import ResourceMissing
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.flows.resources.read import find, list_all
from netplug_core.ipam.reporting.usage import PoolUsage
from netplug_core.names import API_VERSION
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.fields import Labels
from netplug_core.resources.ippool import IPPool, IPReservation
from netplug_core.resources.kinds import KINDS, Resource, ResourceKind, ResourceScope, get_kind, kind_of
from netplug_core.resources.node import Node
from netplug_core.resources.profile import Profile
from netplug_core.resources.validation import resource_warnings
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

if TYPE_CHECKING:
    from netplug_core.installation.cluster import Cluster, ObjectEvent

__all__ = ["api_resources", "describe", "explain"]


# --- api-resources ---------------------------------------------------------------------------------------------------


_KIND_COLUMNS = (
    Column("NAME", "name"), Column("SHORTNAMES", "shortNames"), Column("APIVERSION", "apiVersion"),
    Column("NAMESPACED", "namespaced"), Column("KIND", "kind"),
)  # fmt: skip


@click.command("api-resources")
@REPORT_OUTPUT
def api_resources(output: str) -> int:
    """Show the kinds of resources, and the words that commands take for them."""
    rows = tuple(_kind_row(kind) for kind in KINDS)
    print_report(Report(_KIND_COLUMNS, rows), output)
    return 0


def _kind_row(kind: ResourceKind) -> tuple[Cell, ...]:
    is_namespaced = kind.scope is ResourceScope.NAMESPACED
    return (
        text_cell(kind.plural),
        text_cell(",".join(kind.short_names)),
        text_cell(API_VERSION),
        Cell(is_namespaced, "true" if is_namespaced else "false"),
        text_cell(kind.name),
    )


# --- explain ---------------------------------------------------------------------------------------------------------


_HEADER_FIELDS = {
    "apiVersion": ("string", f"{API_VERSION}, in every document"),
    "kind": ("string", "the kind, as it stands above"),
}
_LISTED = "[]"
_FIELD_COLUMNS = (Column("", "name"), Column("", "type"), Column("", "description"))


@click.command()
@click.argument("path", metavar="KIND[.FIELD]...")
@click.option("--recursive", "is_recursive", is_flag=True, help="Show the fields of fields too.")
@REPORT_OUTPUT
def explain(path: str, *, is_recursive: bool, output: str) -> int:
    """Say what the fields of a KIND mean, or those of one FIELD, such as ippool.spec.blockSize."""
    word, *steps = path.split(".")
    kind = parse_kind(word, "explain")
    members = collect_members(kind.value_type)
    field = _find_field(kind, members, steps)
    text = _text_of(members[field]) if field else _first_line(kind.value_type.__doc__)
    type_ = _type_of(members[field]) if field else "object"
    lines = [f"KIND:     {kind.name}", f"VERSION:  {API_VERSION}", ""]
    lines += [f"FIELD:    {field} <{type_}>", ""] if field else ["DESCRIPTION:"]
    lines += [f"  {text}", ""]
    below = f"{field}{_LISTED if field and isinstance(members[field].codec, ListOf) else ''}."
    shown = {} if field else dict(_HEADER_FIELDS)
    for name, member in members.items():
        inner = name.removeprefix(below) if field else name
        is_below = not field or name.startswith(below)
        if is_below and (is_recursive or "." not in inner):
            shown[inner] = (_type_of(member), _text_of(member))
    if shown:
        lines += ["FIELDS:", *_field_lines(shown)]
    facts = {"kind": kind.name, "version": API_VERSION, "field": field, "type": type_, "description": text}
    rows = tuple((text_cell(name), text_cell(one), text_cell(meaning)) for name, (one, meaning) in shown.items())
    print_report(Report(_FIELD_COLUMNS, rows, name="fields", facts=facts, shown=tuple(lines)), output)
    return 0


def _find_field(kind: ResourceKind, members: Mapping[str, Field], steps: Sequence[str]) -> str:
    """The path of a field as its kind has it; empty for the kind itself.

    Raises:
        InputError: the kind has no such field.
    """
    plain = {name.replace(_LISTED, "").lower(): name for name in members}
    for end in range(1, len(steps) + 1):
        typed = ".".join(steps[:end])
        if typed.lower() not in plain:
            before = typed.lower().rpartition(".")[0]
            beside = [name.replace(_LISTED, "").rpartition(".")[2] for name in members if _parent(name) == before]
            meant = did_you_mean(steps[end - 1], beside)
            there = f"there are {', '.join(beside)}" if beside else "it has no fields"
            raise InputError(f"{kind.name}.{typed}", None, f"no such field; {meant}{' ' if meant else ''}{there}")
    return plain[".".join(steps).lower()] if steps else ""


def _parent(name: str) -> str:
    return name.replace(_LISTED, "").lower().rpartition(".")[0]


def _type_of(member: Field) -> str:
    codec: object = member.codec
    if isinstance(codec, ListOf):
        return f"list of {_codec_name(codec.item)}"
    return _codec_name(codec)


def _codec_name(codec: object) -> str:
    match codec:
        case Codec():
            choices = codec.schema.get("enum")
            return (
                "|".join(str(one) for one in choices if one)
                if isinstance(choices, list) and choices
                else str(codec.schema.get("type", "string"))
            )
        case ListOf():
            return f"list of {_codec_name(codec.item)}"
        case type() if issubclass(codec, enum.Enum):
            return "|".join(str(choice.value) for choice in codec if choice.value)
    return "object"


def _text_of(member: Field) -> str:
    default = f" Default: {member.default}." if member.default else ""
    required = " Required." if member.is_required else ""
    codec: object = member.codec
    inherited = _first_line(codec.__doc__) if isinstance(codec, type) else ""
    text = (member.text or inherited).rstrip(".") or "no description"
    return f"{text[:1].upper()}{text[1:]}.{default}{required}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _field_lines(shown: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name, (type_, text) in shown.items():
        yield f"  {name} <{type_}>"
        yield f"      {text}"


# --- describe --------------------------------------------------------------------------------------------------------


_MAX_BLOCKS = 10
_NONE = "<none>"
_TIMEOUT_S = 600.0


@click.command()
@RESOURCES
@NAMESPACE
@SELECTOR
@ALL
@REPORT_OUTPUT
@click.pass_context
def describe(context: click.Context, words: tuple[str, ...], namespace: str, *, is_all: bool, output: str) -> int:
    """Show resources with what uses them, what is unusual about them, and their last Events in Kubernetes.

    Without a NAME, all resources of the KIND are shown. In JSON and YAML, resources is a list of objects, each with
    what uses it, its problems and its Events; CSV has a line for each of these.
    """
    selected = selected_of(context)
    is_every = is_all or (len(words) == 1 and "/" not in words[0] and not selected.texts)
    named = Named.of(words, "describe", namespace or DEFAULT_NAMESPACE, selected, is_all=is_every)
    session = session_of(context)
    status, shown = 0, list[_Described]()
    with session.open_datastore() as store, _open_events(session) as find_events:
        deadline = Deadline.after(session.clock, _TIMEOUT_S)
        keys = find_keys(store, named, selected, deadline=deadline)
        for key, record in zip(keys, find(store, keys, deadline=deadline), strict=True):
            if record is None:
                print_failure(str(session.explain(store, ResourceMissing.of(key))))
                status = 1
                continue
            found = _Described(
                resource=record.value,
                uses=tuple(_uses(store, record.value, deadline)),
                problems=tuple(_problems(record.value)),
                events=find_events(record.value, deadline),
            )
            if output == ReportFormat.TEXT.value:
                click.echo("\n".join(("", *_description(found)) if shown else _description(found)))
            shown.append(found)
    if not shown and not status:
        print_error(f"no {named.kind.name}{selected.clause} found")
    if output != ReportFormat.TEXT.value:
        print_report(_report(shown), output)
    return status


@frozen(kw_only=True)
class _Described:
    """A resource, the lines about it, and its Events; these are None where the datastore is not in Kubernetes."""

    resource: Resource
    uses: tuple[str, ...]
    problems: tuple[str, ...]
    events: _Events | None


_DESCRIBED_COLUMNS = tuple(Column("", name) for name in ("kind", "namespace", "name", "about", "text"))


def _report(described: Iterable[_Described]) -> Report:
    rows, objects = list[tuple[Cell, ...]](), list[Mapping[str, object]]()
    for one in described:
        metadata, events = one.resource.metadata, one.events or _Events()
        named = (kind_of(one.resource).name, metadata.namespace, metadata.name)
        lines = {
            "usedBy": one.uses,
            "problem": one.problems,
            "event": tuple(f"{event.reason}: {event.message}" for event in events.found),
        }
        rows += (tuple(map(text_cell, (*named, about, text))) for about, texts in lines.items() for text in texts)
        found = {} if one.events is None else {"events": [*map(_event_object, events.found)]}
        failure = {"eventsUnreadable": events.failure} if events.failure else {}
        uses, problems = [*one.uses], [*one.problems]
        objects.append({**to_mapping(one.resource), "usedBy": uses, "problems": problems, **found, **failure})
    return Report(_DESCRIBED_COLUMNS, tuple(rows), name="", facts={"resources": objects}, shown=())


def _description(described: _Described) -> Iterator[str]:
    resource = described.resource
    metadata = resource.metadata
    yield f"Name:         {escape_unprintable(metadata.name)}"
    if metadata.namespace:
        yield f"Namespace:    {escape_unprintable(metadata.namespace)}"
    yield f"Kind:         {kind_of(resource).name}"
    yield f"Labels:       {_pairs(metadata.labels)}"
    yield f"Annotations:  {_pairs(metadata.annotations)}"
    created = metadata.creation_time_ns
    yield f"Created:      {_NONE if created is None else format_time(created)}"
    mapping = to_mapping(resource)
    for member in ("spec", "status"):
        if mapping.get(member):
            yield f"{member.capitalize()}:"
            yield from _indented(render_yaml(mapping[member]).splitlines())
    yield "Used by:"
    yield from _indented(described.uses or (_NONE,))
    yield "Problems:"
    yield from _indented(described.problems or (_NONE,))
    if described.events is not None:
        yield "Events:"
        yield from _indented(_event_lines(described.events))


# --- events ----------------------------------------------------------------------------------------------------------


_MAX_EVENTS = 10


@frozen
class _Events:
    """The last Events of a resource, or why they cannot be read."""

    found: tuple[ObjectEvent, ...] = ()
    failure: str = ""


@contextmanager
def _open_events(session: Session) -> Iterator[Callable[[Resource, Deadline], _Events | None]]:
    """What finds the Events of a resource; None where the datastore is not in Kubernetes."""
    if not session.settings().is_kubernetes:
        yield lambda _resource, _deadline: None
        return
    with session.open_cluster() as cluster:
        yield lambda resource, deadline: _find_events(cluster, resource, deadline)


def _find_events(cluster: Cluster, resource: Resource, deadline: Deadline) -> _Events:
    try:
        return _Events(tuple(cluster.find_events(*_object_of(resource), deadline=deadline)[-_MAX_EVENTS:]))
    except Unavailable as error:
        return _Events(failure=str(error))


def _event_type(event: ObjectEvent) -> str:
    return "Warning" if event.is_warning else "Normal"


def _event_lines(events: _Events) -> Sequence[str]:
    if events.failure:
        return (f"they cannot be read: {escape_unprintable(events.failure)}",)
    rows = [
        (
            event.last_seen,
            _event_type(event),
            event.reason,
            event.component,
            f"{event.message} (x{event.count})" if event.count > 1 else event.message,
        )
        for event in events.found
    ]
    cells = [tuple(map(escape_unprintable, row)) for row in rows]
    return format_columns(("LAST SEEN", "TYPE", "REASON", "FROM", "MESSAGE"), cells) if rows else (_NONE,)


def _event_object(event: ObjectEvent) -> Mapping[str, object]:
    return {
        "lastSeen": event.last_seen,
        "type": _event_type(event),
        "reason": event.reason,
        "from": event.component,
        "message": event.message,
        "count": event.count,
    }


def _object_of(resource: Resource) -> tuple[str, str, str]:
    """The kind, name and namespace of the object that Events are about; for an endpoint it is its pod."""
    if isinstance(resource, WorkloadEndpoint):
        return "Pod", resource.spec.pod, resource.metadata.namespace
    return kind_of(resource).name, resource.metadata.name, resource.metadata.namespace


def _pairs(pairs: Labels) -> str:
    return escape_unprintable(", ".join(f"{name}={text}" for name, text in pairs)) or _NONE


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _problems(resource: Resource) -> Iterator[str]:
    """What of a resource has no effect, or is seldom meant, and its conditions that are not met."""
    yield from resource_warnings(resource)
    if isinstance(resource, IPPool):
        for condition in resource.status.conditions:
            if condition.status != "True":
                yield escape_unprintable(f"{condition.type}: {condition.status}: {condition.message}")


def _uses(store: Datastore, resource: Resource, deadline: Deadline) -> Iterator[str]:
    """What uses a resource, a line each."""
    match resource:
        case IPPool():
            (usage,) = read_utilization(store, (resource.metadata.name,), deadline=deadline)
            yield from _pool_uses(usage)
        case Node():
            yield from _node_uses(store, resource.metadata.name, deadline)
        case WorkloadEndpoint():
            yield from _endpoint_uses(store, resource, deadline)
        case IPReservation():
            for usage in read_utilization(store, deadline=deadline):
                if usage.pool and any(prefix.overlaps(usage.prefix) for prefix in resource.spec.reserved):
                    yield f"IPPool({usage.name}): {format_count(usage.reserved)} of its addresses are reserved by all"
        case Profile():
            count = sum(resource.metadata.name in one.spec.profiles for one in _endpoints(store, deadline))
            if count:
                yield f"workload endpoints: {count}"
        case _:
            return


def _endpoints(store: Datastore, deadline: Deadline) -> Iterator[WorkloadEndpoint]:
    found = list_all(store, get_kind(WORKLOAD_ENDPOINT.name), deadline=deadline)
    return (record.value for record in found if isinstance(record.value, WorkloadEndpoint))


def _pool_uses(usage: PoolUsage) -> Iterator[str]:
    counts = (usage.in_use, usage.capacity, usage.cooling, usage.reserved, usage.available)
    in_use, capacity, cooling, reserved, free = map(format_count, counts)
    yield f"addresses: {in_use} of {capacity} in use ({cooling} cool down), {reserved} reserved, {free} free"
    for block in usage.blocks[:_MAX_BLOCKS]:
        owner = block.block.owner.removeprefix("host:") or "no node"
        yield escape_unprintable(
            f"block {block.block.prefix} of {owner}: {block.in_use} in use, {block.available} free"
        )
    if len(usage.blocks) > _MAX_BLOCKS:
        more = len(usage.blocks) - _MAX_BLOCKS
        yield f"and {more} more blocks: netplugctl ipam show {usage.name} --show-blocks"


def _node_uses(store: Datastore, name: str, deadline: Deadline) -> Iterator[str]:
    for usage in read_utilization(store, deadline=deadline):
        for block in usage.blocks:
            if block.block.owner == f"host:{name}":
                counts = f"{block.in_use} in use, {block.available} free"
                yield f"block {block.block.prefix} of IPPool({usage.name}): {counts}"
    count = sum(one.spec.node == name for one in _endpoints(store, deadline))
    if count:
        yield f"workload endpoints: {count}"


def _endpoint_uses(store: Datastore, endpoint: WorkloadEndpoint, deadline: Deadline) -> Iterator[str]:
    pools = [usage for usage in read_utilization(store, deadline=deadline) if usage.pool]
    for held in endpoint.spec.addresses:
        pool = next((usage.name for usage in pools if usage.prefix.contains(held)), "")
        yield f"address {held}: {f'IPPool({pool})' if pool else 'of no pool'}"
