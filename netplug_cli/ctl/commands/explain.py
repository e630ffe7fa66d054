"""``ipam explain``: who has an address and by which records, or why a request for one fails now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import click
from attrs import frozen

from netplug_cli.ctl.completion import complete_addresses, complete_nodes, complete_pools
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Column, Report, print_report, text_cell
from netplug_cli.formatting import escape_unprintable
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Pace, format_time
from netplug_core.datastore.protocol import Datastore
from netplug_core.flows.ipam.explain import (
    PodState,
    explain_address,
    explain_request,
    families_of_pools,
    find_addresses_of_handle,
    find_pod,
)
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Shortfall, Specific, Wanted
from netplug_core.ipam.model import Block, Pairs, owner_node
from netplug_core.ipam.reporting.explanation import AddressExplanation, RequestExplanation
from netplug_core.ipam.reporting.usage import borrowing_node
from netplug_core.names import is_dns_subdomain
from netplug_core.orchestrator.model import PodName
from netplug_core.resources.ippool import AllowedUse

__all__ = [
    "Explanation", "explain", "explanation_document", "explanation_lines", "explanation_report",
]  # fmt: skip


# --- explanations ----------------------------------------------------------------------------------------------------


_MAX_CONSIDERED = 20  # in a full cluster a decision considers every block


@frozen(kw_only=True)
class Explanation:
    """What was found about a subject: an address, a handle, a pod, or a request from a node.

    ``notes`` are sentences about the subject itself, ``problems`` about records.
    """

    subject: str
    notes: tuple[str, ...] = ()
    addresses: tuple[AddressExplanation, ...] = ()
    requests: tuple[RequestExplanation, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether a request would be refused."""
        return any(request.refusal is not None for request in self.requests)


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """The lines for a person, with a blank line between addresses and requests; control characters are written out."""
    return map(escape_unprintable, _lines(explanation))


def _lines(explanation: Explanation) -> Iterator[str]:
    yield from explanation.notes
    parts = [*map(_address_lines, explanation.addresses), *map(_request_lines, explanation.requests)]
    for number, part in enumerate(parts):
        if number or explanation.notes:
            yield ""
        yield from part
    yield from (f"problem: {problem}" for problem in explanation.problems)


def explanation_document(explanation: Explanation) -> dict[str, object]:
    """The same for programs; members that are not known are left out."""
    return _without_empty(
        {
            "subject": explanation.subject,
            "notes": list(explanation.notes),
            "addresses": list(map(_address_document, explanation.addresses)),
            "requests": list(map(_request_document, explanation.requests)),
            "problems": list(explanation.problems),
        }
    )


_COLUMNS = tuple(Column("", name) for name in ("subject", "about", "text"))


def explanation_report(explanation: Explanation) -> Report:
    """The same as a report. CSV has a row for each line of the text, with the address or the request it is about."""
    parts = [("note", note) for note in explanation.notes]
    for found in explanation.addresses:
        parts += ((str(found.address), line.strip()) for line in _address_lines(found))
    for request in explanation.requests:
        parts += (("request", line.strip()) for line in _request_lines(request))
    parts += [("problem", problem) for problem in explanation.problems]
    rows = tuple(tuple(map(text_cell, (explanation.subject, about, text))) for about, text in parts)
    facts, shown = explanation_document(explanation), tuple(explanation_lines(explanation))
    return Report(_COLUMNS, rows, name="", facts=facts, shown=shown)


# --- addresses --------------------------------------------------------------------------------------------------------


def _address_lines(found: AddressExplanation) -> Iterator[str]:
    yield f"{found.address} is {found.status.value}"
    rows = [*_allocation_rows(found), *_block_rows(found)]
    rows.extend(("Pool:", str(pool)) for pool in found.pools)
    if not found.pools:
        rows.append(("Pool:", "none that can be read contains it" if found.problems else "no IPPool contains it"))
    rows.extend(("Reserved by:", f"IPReservation({name})") for name in found.reserved_by)
    rows.extend(("Rule:", str(rule)) for rule in found.rules)
    rows.extend(("Problem:", problem) for problem in found.problems)
    width = max(len(name) for name, _value in rows) + 1
    yield from (f"  {name:{width}}{value}" for name, value in rows)


def _allocation_rows(found: AddressExplanation) -> list[tuple[str, str]]:
    if found.allocation is None:
        return []
    attribute = found.allocation.attribute
    rows = [("Since:", attribute.owner_value("timestamp"))]
    if attribute.released_ns is not None:
        rows.append(("Released:", format_time(attribute.released_ns)))
    if found.available_ns is not None:
        rows.append(("Given again:", f"from {format_time(found.available_ns)} on"))
    rows.append(("Handle:", attribute.handle or ""))
    pairs = (("Owner:", attribute.owner), ("Alternate:", attribute.alternate))
    rows.extend((name, " ".join(f"{key}={value}" for key, value in owner)) for name, owner in pairs)
    return [(name, value) for name, value in rows if value]


def _block_rows(found: AddressExplanation) -> list[tuple[str, str]]:
    block = found.block
    if block is None:
        return []
    claimed = f", claimed {format_time(block.claim_time_ns)}" if block.claim_time_ns is not None else ""
    owner = f"of {owner_node(block.owner) or block.owner}{claimed}" if block.owner else "without an owner"
    rows = [("Block:", f"{block.prefix} {owner}; {block.used_count} of {block.prefix.size} addresses in use")]
    if found.affinity is not None:
        rows.append(("Affinity:", found.affinity.value))
    if node := _borrowing_node(found, block):
        rows.append(("Borrowed by:", node))
    return rows


def _borrowing_node(found: AddressExplanation, block: Block) -> str:
    return borrowing_node(block, found.allocation.attribute) if found.allocation else ""


def _address_document(found: AddressExplanation) -> dict[str, object]:
    document: dict[str, object] = {"address": str(found.address), "state": found.status.name.lower().replace("_", "-")}
    if found.allocation is not None:
        attribute = found.allocation.attribute
        document |= {
            "since": attribute.owner_value("timestamp"),
            "releasedAt": _time_text(attribute.released_ns),
            "availableAt": _time_text(found.available_ns),
            "handle": attribute.handle,
            "sequenceNumber": found.allocation.sequence,
            "owner": dict(attribute.owner),
            "alternateOwner": dict(attribute.alternate),
        }
    if found.block is not None:
        document["block"] = _block_document(found, found.block)
    document |= {
        "pools": [
            _without_empty(
                {
                    "name": pool.pool,
                    "cidr": str(pool.prefix),
                    "state": pool.outcome.name.lower().replace("_", "-"),
                    "text": str(pool),
                }
            )
            for pool in found.pools
        ],
        "reservedBy": list(found.reserved_by),
        "rules": list(map(str, found.rules)),
        "problems": list(found.problems),
    }
    return _without_empty(document)


def _block_document(found: AddressExplanation, block: Block) -> dict[str, object]:
    members = {
        "cidr": str(block.prefix),
        "owner": block.owner,
        "claimedAt": _time_text(block.claim_time_ns),
        "affinity": found.affinity.value if found.affinity else None,
        "borrowedBy": _borrowing_node(found, block),
    }
    return _without_empty(members) | {"inUse": block.used_count, "size": block.prefix.size}


# --- requests ---------------------------------------------------------------------------------------------------------


def _request_lines(found: RequestExplanation) -> Iterator[str]:
    subject = f"A request for {_wanted_text(found.request)}{_origin_text(found.request)}"
    if found.refusal is None:
        yield f"{subject} would get {_joined(found.addresses)}"
    else:
        name = f" ({found.refusal.identifier})" if found.refusal.identifier else ""
        yield f"{subject} would be refused with code {found.refusal.reported_code}{name}:"
        yield f"  {found.refusal}"
        if found.refusal.next_step:
            yield f"What to do: {found.refusal.next_step}"
    refusal = str(found.refusal or "")
    considered = [entry for entry in map(str, found.trace) if entry not in refusal]  # once is enough
    if considered:
        yield "Considered:"
        yield from (f"  {entry}" for entry in considered[:_MAX_CONSIDERED])
        more = len(considered) - _MAX_CONSIDERED
        if more > 0:
            yield f"  and {more} more; -o yaml shows all"


def _wanted_text(request: AssignRequest) -> str:
    (wanted,) = request.wanted
    what = f"the address {wanted.address}" if isinstance(wanted, Specific) else f"an {wanted.family} address"
    return f"{what} of {', '.join(wanted.pools)}" if wanted.pools else what


def _origin_text(request: AssignRequest) -> str:
    owner = dict(request.owner)
    pod = f" for {owner['namespace']}/{owner['pod']}" if "pod" in owner else ""
    return f"{pod} from {request.node}"


def _request_document(found: RequestExplanation) -> dict[str, object]:
    (wanted,) = found.request.wanted
    owner = dict(found.request.owner)
    document: dict[str, object] = {
        "node": found.request.node,
        "namespace": owner.get("namespace"),
        "pod": owner.get("pod"),
        "family": str(wanted.family),
        "requestedAddress": str(wanted.address) if isinstance(wanted, Specific) else None,
        "requestedPools": list(wanted.pools),
        "addresses": list(map(str, found.addresses)),
    }
    if found.refusal is not None:
        error = {
            "code": found.refusal.reported_code,
            "reason": found.refusal.identifier,
            "message": str(found.refusal),
            "nextStep": found.refusal.next_step,
        }
        document["error"] = _without_empty(error)
    document["considered"] = list(map(str, found.trace))
    return _without_empty(document)


def _joined(addresses: Sequence[Address]) -> str:
    return ", ".join(map(str, addresses))


def _time_text(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_time(time_ns)


def _without_empty(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value not in (None, "", [], {})}


# --- explain ---------------------------------------------------------------------------------------------------------


_FAMILIES = {"4": Family.IPV4, "6": Family.IPV6}


@frozen(kw_only=True)
class _Asked:
    """What the options say about a request: the node that it comes from, and the pools and families it names."""

    node: str
    pools: tuple[str, ...]
    families: tuple[Family, ...]

    @property
    def is_about_request(self) -> bool:
        return bool(self.node or self.pools or self.families)


@click.command(short_help="Explain who has an address, or why a request for one fails.")
@click.argument("subject", default="", metavar="[ADDRESS|NAMESPACE/POD|HANDLE]", shell_complete=complete_addresses)
@click.option(
    "--node", default="", metavar="NODE", shell_complete=complete_nodes,
    help="Say also what a request from this node would get now.",
)  # fmt: skip
@click.option(
    "--pool", "pools", multiple=True, metavar="POOL", shell_complete=complete_pools,
    help="The request names this pool; may be repeated.",
)  # fmt: skip
@click.option(
    "--family", "families", multiple=True, type=click.Choice(list(_FAMILIES)),
    help="The request is for an address of this family. Default: of each family that there are pools of.",
)  # fmt: skip
@REPORT_OUTPUT
@click.pass_context
def explain(
    context: click.Context, *, subject: str, node: str, pools: tuple[str, ...], families: tuple[str, ...], output: str
) -> int:
    """Explain an address: who has it, since when, and by which block, pool, handle, affinity and reservation.

    For a NAMESPACE/POD or a HANDLE, each of its addresses is explained. For a pod without one, or with --node, the
    allocator decides a request as an ADD does, and nothing is written: what it would get, or the error of the ADD, and
    what was considered. Annotations of the pod do not count; name their pools with --pool.

    The exit status is 1 if a request would be refused, or if nothing is known of the pod or handle.
    """
    if not subject and not node:
        raise click.UsageError("Give an ADDRESS, a NAMESPACE/POD, a HANDLE, or --node NODE.")
    asked = _Asked(node=node, pools=pools, families=tuple(dict.fromkeys(_FAMILIES[each] for each in families)))
    session = session_of(context)
    parsed = _parse_subject(subject) if subject else None
    with session.open_datastore() as store:
        explanation, is_known = _explain(_Query(session=session, store=store, asked=asked), parsed)
    print_report(explanation_report(explanation), output)
    return 0 if is_known and not explanation.is_refused else 1


def _parse_subject(text: str) -> Address | PodName | str:
    """An address, a pod, or the id of a handle.

    Raises:
        InputError: a CIDR, or neither an address nor the name of a pod.
    """
    try:
        return Address.parse(text)
    except ValueError:
        pass  # a pod or a handle
    namespace, slash, pod = text.partition("/")
    accepted = "an address, NAMESPACE/POD or the id of a handle is expected"
    if not slash:
        if text.replace(".", "").isdigit() or text.count(":") > 1:
            raise InputError("", text, f"invalid IP address: {text!r}; {accepted}")
        return text
    try:
        prefix = Prefix.enclosing(text)
    except ValueError:
        pass  # the name of a pod
    else:
        raise InputError("", text, f"{prefix} is a CIDR; {accepted}; ipam show {prefix} shows how full a pool is")
    if not (is_dns_subdomain(namespace) and is_dns_subdomain(pod)):
        raise InputError("", text, f"{text!r} is not the name of a pod; {accepted}")
    return PodName(namespace, pod)


@frozen(kw_only=True)
class _Query:
    """A question to an open datastore."""

    session: Session
    store: Datastore
    asked: _Asked

    @property
    def pace(self) -> Pace:
        return self.session.pace()


def _explain(query: _Query, subject: Address | PodName | str | None) -> tuple[Explanation, bool]:
    """What is known of the subject, and whether anything is."""
    match subject:
        case Address():
            return _of_address(query, subject), True
        case PodName():
            return _of_pod(query, subject)
        case str():
            return _of_handle(query, subject)
        case None:
            requests = _automatic(query, query.asked.node, (), ())
            return Explanation(subject=query.asked.node, requests=requests), True


def _of_address(query: _Query, address: Address) -> Explanation:
    asked = query.asked
    if asked.families:
        raise click.UsageError("--family is not for an ADDRESS, which has one.")
    if asked.pools and not asked.node:
        raise click.UsageError("--pool is for a request: give --node too.")
    found = explain_address(query.store, address, pace=query.pace)
    wanted = Specific(address=address, pools=asked.pools)
    requests = (_decided(query, asked.node, wanted, (), ()),) if asked.node else ()
    return Explanation(subject=str(address), addresses=(found,), requests=requests)


def _of_pod(query: _Query, pod: PodName) -> tuple[Explanation, bool]:
    asked = query.asked
    state = find_pod(query.store, pod, deadline=query.session.deadline())
    addresses = tuple(explain_address(query.store, address, pace=query.pace) for address in state.held)
    node = asked.node or state.node
    notes = _notes_of_pod(pod, state, node)
    owner = (("namespace", pod.namespace), ("pod", pod.name))
    is_asked = bool(node) and (asked.is_about_request or not addresses)
    requests = _automatic(query, node, owner, state.namespace_labels) if is_asked else ()
    explanation = Explanation(
        subject=str(pod), notes=notes, addresses=addresses, requests=requests, problems=state.problems
    )
    return explanation, bool(addresses or requests)


def _notes_of_pod(pod: PodName, state: PodState, node: str) -> tuple[str, ...]:
    if state.held:
        return ()
    where = "" if node else "; no endpoint says on which node it is: --node NODE says what it would get there"
    return (f"no address is held for the pod {pod}{where}",)


def _of_handle(query: _Query, handle: str) -> tuple[Explanation, bool]:
    if query.asked.is_about_request:
        raise click.UsageError("--node, --pool and --family are not for a HANDLE.")
    held = find_addresses_of_handle(query.store, handle, deadline=query.session.deadline())
    addresses = tuple(explain_address(query.store, address, pace=query.pace) for address in held.addresses)
    notes = () if addresses else (f"no address is held by the handle {handle}",)
    return Explanation(subject=handle, notes=notes, addresses=addresses, problems=held.problems), bool(addresses)


def _automatic(query: _Query, node: str, owner: Pairs, labels: Pairs) -> tuple[RequestExplanation, ...]:
    asked = query.asked
    families = asked.families or families_of_pools(query.store, asked.pools, deadline=query.session.deadline())
    wanted = (Automatic(family=family, pools=asked.pools) for family in families)
    return tuple(_decided(query, node, each, owner, labels) for each in wanted)


def _decided(query: _Query, node: str, wanted: Wanted, owner: Pairs, labels: Pairs) -> RequestExplanation:
    request = AssignRequest(
        handle=None,
        node=node,
        wanted=(wanted,),
        owner=owner,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
        namespace_labels=labels,
    )
    return explain_request(query.store, request, pace=query.pace)
