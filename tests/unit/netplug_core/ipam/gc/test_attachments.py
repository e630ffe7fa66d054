"""The attachments of a network that hold addresses through a node."""

from netplug_core.addressing import Address, Ordinal, Prefix
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.gc.candidates import attachments
from netplug_core.ipam.model import Attribute, Block


def attribute(handle: str | None, **owner: str) -> Attribute:
    return Attribute(handle=handle, owner=tuple(sorted(owner.items())))


def item(address: str, handle: str, sequence: int) -> ReleaseItem:
    return ReleaseItem(address=Address.parse(address), handle=handle, sequence=sequence)


def block(cidr: str, *attributes: Attribute) -> Block:
    found = Block.new(Prefix.parse(cidr), owner="host:node-b", now_ns=1)
    for number, held in enumerate(attributes):
        found = found.assign((Ordinal(number),), held)
    return found


def test_attachments_are_read_from_the_attributes_of_addresses() -> None:
    ours = attribute("h2", network="net", node="node-a", container="c2", interface="eth0", pod="web", namespace="prod")
    bare = attribute("h1", network="net", node="node-a", container="c1", interface="eth1")
    blocks = [
        block("10.0.0.0/30", ours, bare, attribute("h3", network="net", node="node-b", container="c3")),
        block("10.0.1.0/30", attribute("h4", network="other", node="node-a", container="c4")),
        block("10.0.2.0/30", attribute("tunnel", node="node-a", type="ipipTunnelAddress", network="net")),
        block("fd00::/126", ours, attribute(None, network="net", node="node-a", container="c5")),
    ]
    found = attachments(blocks, node="node-a", network="net")
    assert found == (
        Attachment(container_id="c1", interface="eth1", handle="h1"),
        Attachment(container_id="c2", interface="eth0", handle="h2", namespace="prod", pod="web"),
    )
    assert [attachment.addresses for attachment in found] == [
        (item("10.0.0.1", "h1", 2),),
        (item("10.0.0.0", "h2", 1), item("fd00::", "h2", 1)),
    ]
    assert attachments([], node="node-a", network="net") == ()
