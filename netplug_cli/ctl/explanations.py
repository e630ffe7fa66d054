"""What ``ipam explain`` found, as lines for a person and as a document. The decisions and errors have the sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from netplug_cli.formatting import escape_unprintable
from netplug_core.addressing import Address
from netplug_core.clock import format_time
from netplug_core.ipam.allocation.request import AssignRequest, Specific
from netplug_core.ipam.model.affinity import owner_node
from netplug_core.ipam.model.block import Block
from netplug_core.ipam.reporting.explanation import AddressExplanation, RequestExplanation
from netplug_core.ipam.reporting.usage import borrowing_node

__all__ = ["Explanation", "explanation_document", "explanation_lines"]

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
