"""The attachments that hold addresses. The CNI command GC releases those that the runtime does not list as valid."""

from __future__ import annotations

from collections.abc import Iterable

from netplug_core.ipam.allocation.request import Attachment
from netplug_core.ipam.model.block import Block

__all__ = ["attachments"]


def attachments(blocks: Iterable[Block], *, node: str, network: str) -> tuple[Attachment, ...]:
    """The attachments of one network that hold addresses through one node, sorted.

    They are read from the attributes stored with each address, never from the text of a handle. An address that was not
    assigned to a CNI attachment, such as a tunnel address, has no such attributes and is not included.
    """
    found = {
        Attachment(
            container_id=held.owner_value("container"),
            interface=held.owner_value("interface"),
            handle=held.handle,
            namespace=held.owner_value("namespace"),
            pod=held.owner_value("pod"),
        )
        for block in blocks
        for held in block.attributes
        if held.handle is not None
        and held.owner_value("node") == node
        and held.owner_value("network") == network
        and held.owner_value("container")
    }
    return tuple(sorted(found))
