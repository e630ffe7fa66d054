"""Which attachments hold addresses: what GC compares with the runtime's list.

Every call of the plugin loads this, so the collector, which compares pods and nodes, stands beside it (``holdings``,
``survey``).
"""

from __future__ import annotations

from collections.abc import Iterable

from netplug_core.ipam.allocation.request import Attachment
from netplug_core.ipam.model.block import Block

__all__ = ["attachments"]


def attachments(blocks: Iterable[Block], *, node: str, network: str) -> tuple[Attachment, ...]:
    """The attachments of one network that hold addresses through one node, sorted.

    The attributes stored with each address decide; nothing is read out of a handle's text, and what was not assigned
    for a CNI attachment (tunnels, for one) has no such attributes and is never named.
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
