"""The attachments that hold addresses. The CNI command GC releases those that the runtime does not list as valid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from attrs import evolve

from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.model.attributes import Attribute
from netplug_core.ipam.model.block import Block

__all__ = ["attachments"]


def attachments(blocks: Iterable[Block], *, node: str, network: str) -> tuple[Attachment, ...]:
    """The attachments of one network that hold addresses through one node, sorted, with these addresses.

    They are read from the attributes stored with each address, never from the text of a handle. An address that was not
    assigned to a CNI attachment, such as a tunnel address, has no such attributes and is not included.
    """
    found: defaultdict[Attachment, list[ReleaseItem]] = defaultdict(list)
    for block in blocks:
        concerned = {
            held: held.handle
            for held in block.attributes
            if held.handle is not None
            and held.owner_value("node") == node
            and held.owner_value("network") == network
            and held.owner_value("container")
        }
        for attribute, handle in concerned.items():
            found[_attachment(attribute, handle)].extend(
                ReleaseItem(address=held.address, handle=handle, sequence=held.sequence)
                for held in block.held_by(handle)
                if held.attribute == attribute
            )
    return tuple(sorted(evolve(attachment, addresses=tuple(items)) for attachment, items in found.items()))


def _attachment(held: Attribute, handle: str) -> Attachment:
    return Attachment(
        container_id=held.owner_value("container"),
        interface=held.owner_value("interface"),
        handle=handle,
        namespace=held.owner_value("namespace"),
        pod=held.owner_value("pod"),
    )
