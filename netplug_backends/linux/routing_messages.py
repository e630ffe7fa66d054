"""The rtnetlink messages for tunnels and routes between nodes, and the values of what the kernel lists of them.

They are encoded and decoded without a library: a node of a cluster with 5,000 others programs 20,000 entries, and reads
them again every 90 seconds. Tests decode each message with pyroute2 and compare. ``routing`` sends them.

Source: rtnetlink(7); the numbers are those of the kernel's ``linux/rtnetlink.h``, ``neighbour.h``, ``nexthop.h``,
``if_link.h`` and ``if_tunnel.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, assert_never

from attrs import frozen

from netplug_backends.linux.netlink import (
    NetlinkMessage,
    decode_attributes,
    encode_attribute,
    encode_nested,
    encode_text,
)
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import RouteProtocol
from netplug_core.dataplane.routing import (
    LINK_MARK,
    MAIN_TABLE,
    NEXTHOP_BASE,
    NEXTHOP_COUNT,
    TUNNEL_DEVICES,
    FdbEntry,
    Nexthop,
    Route,
    RouteKind,
    Tunnel,
    TunnelKind,
    TunnelNeighbour,
)

__all__ = [
    "BRIDGE", "KernelDevice", "change_mtu", "create_tunnel", "decode_device", "decode_fdb", "decode_neighbour",
    "decode_nexthop", "decode_route", "delete_device", "list_addresses", "list_entries", "list_nexthops", "list_routes",
    "put_address", "put_fdb", "put_neighbour", "put_nexthop", "put_route", "remove_address", "remove_entry", "set_up",
]  # fmt: skip

BRIDGE: Final = 7
"""The family of FDB entries."""

_OWN: Final = RouteProtocol.NETPLUG.value

_NEWLINK, _DELLINK = 16, 17
_NEWADDR, _DELADDR, _GETADDR = 20, 21, 22
_NEWROUTE, _DELROUTE, _GETROUTE = 24, 25, 26
_NEWNEIGH, _DELNEIGH, _GETNEIGH = 28, 29, 30
_NEWNEXTHOP, _DELNEXTHOP, _GETNEXTHOP = 104, 105, 106
_REQUEST, _DUMP = 0x1, 0x300
_MAKE, _PUT = 0x1 | 0x400 | 0x200, 0x1 | 0x400 | 0x100  # create and nothing else; create or replace

_AF = {Family.IPV4: 2, Family.IPV6: 10}
_FAMILY = {number: family for family, number in _AF.items()}
_IFF_UP = 0x1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_IFALIAS = 1, 3, 4, 18, 20
_INFO_KIND, _INFO_DATA = 1, 2
_VXLAN_ID, _VXLAN_LINK, _VXLAN_LOCAL, _VXLAN_LEARNING, _VXLAN_PORT, _VXLAN_LOCAL6 = 1, 3, 4, 7, 15, 17
_IPTUN_LOCAL, _IPTUN_REMOTE, _IPTUN_PROTOCOL, _IPTUN_PMTUDISC = 2, 3, 9, 10
_PROTOCOL_IPIP = 4
_IFA_ADDRESS, _IFA_LOCAL, _NO_DUPLICATE_DETECTION = 1, 2, 0x02
_NDA_DST, _NDA_LLADDR, _NDA_IFINDEX = 1, 2, 8
_PERMANENT, _NOARP, _SELF = 0x80, 0x40, 0x02
_NHA_ID, _NHA_OIF, _NHA_GATEWAY = 1, 5, 6
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_PREFSRC, _RTA_METRICS = 1, 4, 5, 6, 7, 8
_RTA_TABLE, _RTA_NH_ID, _RTAX_MTU = 15, 30, 2
_ONLINK = 4
_UNICAST, _BLACKHOLE = 1, 6
_SCOPE_GLOBAL, _SCOPE_LINK, _SCOPE_NOWHERE = 0, 253, 255
_LAST_SHORT_TABLE = 255

_HEADER = struct.Struct("=IHHII")
_START = struct.Struct("=IHH")
_STATE = struct.Struct("=HBB")
_ATTRIBUTE = struct.Struct("=HH")
_U32_ATTRIBUTE = struct.Struct("=HHI")
_U32 = struct.Struct("=I")
_PORT = struct.Struct("!H")
_IFINFOMSG = struct.Struct("=BxHiII")
_IFADDRMSG = struct.Struct("=BBBBI")
_NDMSG = struct.Struct("=B3xiHBB")
_NHMSG = struct.Struct("=BBBxI")
_RTMSG = struct.Struct("=BBBBBBBBI")


# --- requests: entries ----------------------------------------------------------------------------------------------


@frozen
class _Form:
    """How a message about addresses of one family is packed in one step: 0.6 us instead of 3.

    ``pack`` takes the start of the message, its number, and what is different in each. ``size`` is that of an address.
    """

    pack: Callable[..., bytes]
    start: bytes
    size: int
    address: bytes
    """The header of the attribute with the address."""
    family: int

    @classmethod
    def of(cls, kind: int, layout: str, family: Family, attribute: int, metrics: bytes = b"") -> _Form:
        """The form of a message of that kind. In the layout A is an address; the message header is left out."""
        size = family.width // 8
        form = struct.Struct("=8sI4x" + layout.replace("A", f"{size}s"))
        start = _START.pack(form.size + len(metrics), kind, _PUT)
        return cls(form.pack, start, size, _ATTRIBUTE.pack(4 + size, attribute), _AF[family])


_FDB_FORMS = {family: _Form.of(_NEWNEIGH, "B3xi 8s 6s2x 4s A", family, _NDA_DST) for family in Family}
_NEIGHBOUR_FORMS = {family: _Form.of(_NEWNEIGH, "B3xi 4s 4s A 4s 6s2x", family, _NDA_DST) for family in Family}
_NEXTHOP_FORMS = {family: _Form.of(_NEWNEXTHOP, "BBBxI 4sI 4sI 4s A", family, _NHA_GATEWAY) for family in Family}
_MAC_HEADER, _ID_HEADER, _OIF_HEADER = (
    _ATTRIBUTE.pack(size, kind) for size, kind in ((10, _NDA_LLADDR), (8, _NHA_ID), (8, _NHA_OIF))
)
_FDB_MIDDLE = _STATE.pack(_PERMANENT | _NOARP, _SELF, 0) + _MAC_HEADER
_NEIGHBOUR_STATE = _STATE.pack(_PERMANENT, 0, 0)


def put_fdb(entry: FdbEntry, index: int, number: int) -> bytes:
    """Make an FDB entry of the device with that index, or replace the one of its MAC."""
    address = entry.node_address
    form, mac = _FDB_FORMS[address.family], bytes.fromhex(entry.mac.replace(":", ""))
    packed = address.value.to_bytes(form.size, "big")
    return form.pack(form.start, number, BRIDGE, index, _FDB_MIDDLE, mac, form.address, packed)


def put_neighbour(entry: TunnelNeighbour, index: int, number: int) -> bytes:
    """Make a permanent neighbour on the device with that index, or replace the one of its address."""
    address = entry.address
    form, mac = _NEIGHBOUR_FORMS[address.family], bytes.fromhex(entry.mac.replace(":", ""))
    packed, state = address.value.to_bytes(form.size, "big"), _NEIGHBOUR_STATE
    return form.pack(form.start, number, form.family, index, state, form.address, packed, _MAC_HEADER, mac)


def put_nexthop(entry: Nexthop, index: int, number: int) -> bytes:
    """Make a nexthop over the device with that index, or replace the one with its id."""
    gateway = entry.gateway
    form, flags = _NEXTHOP_FORMS[gateway.family], _ONLINK if entry.is_onlink else 0
    packed, head = (
        gateway.value.to_bytes(form.size, "big"),
        (form.start, number, form.family, _SCOPE_GLOBAL, _OWN, flags),
    )
    return form.pack(*head, _ID_HEADER, entry.id, _OIF_HEADER, index, form.address, packed)


def put_route(route: Route, index: int, number: int) -> bytes:
    """Make a route, or replace the one of its table, destination and metric.

    ``index`` is that of its device, if it names one.
    """
    destination = route.destination
    is_usual = route.source is None and destination.length and route.table == MAIN_TABLE
    if route.nexthop is None or not is_usual:
        return _message(_NEWROUTE, _PUT, number, _route(route, index) + _metrics(route.mtu))
    form, key, place, metrics = _route_form(destination.family, destination.length, route.metric, route.mtu)
    packed = destination.base.to_bytes(form.size, "big")
    return form.pack(form.start, number, key, form.address, packed, place, route.nexthop) + metrics


def create_route(route: Route, index: int, number: int) -> bytes:
    """Make a route over the device with that index, unless there is one of its table, destination and metric."""
    return _message(_NEWROUTE, _MAKE, number, _route(route, index))


@cache  # there are few lengths, metrics and MTUs
def _route_form(family: Family, length: int, metric: int, mtu: int) -> tuple[_Form, bytes, bytes, bytes]:
    """How a route by nexthop is packed: the form, the header of the route, its metric, and what follows."""
    metrics = _metrics(mtu)
    form = _Form.of(_NEWROUTE, "12s 4s A 12s I", family, _RTA_DST, metrics)
    key = _RTMSG.pack(_AF[family], length, 0, 0, MAIN_TABLE, _OWN, _SCOPE_GLOBAL, _UNICAST, 0)
    return form, key, _u32(_RTA_PRIORITY, metric) + _ATTRIBUTE.pack(8, _RTA_NH_ID), metrics


def remove_entry(entry: FdbEntry | TunnelNeighbour | Nexthop | Route, index: int, number: int) -> bytes:
    """Remove the entry with that key; of routes only netplug's. ``index`` is that of its device, 0 if it has none."""
    match entry:
        case FdbEntry():
            body = _NDMSG.pack(BRIDGE, index, 0, _SELF, 0) + encode_attribute(_NDA_LLADDR, _packed_mac(entry.mac))
            return _message(_DELNEIGH, _REQUEST, number, body)
        case TunnelNeighbour():
            body = _NDMSG.pack(_AF[entry.address.family], index, 0, 0, 0)
            return _message(_DELNEIGH, _REQUEST, number, body + encode_attribute(_NDA_DST, entry.address.packed))
        case Nexthop():
            return _message(_DELNEXTHOP, _REQUEST, number, _NHMSG.pack(0, 0, 0, 0) + _u32(_NHA_ID, entry.id))
        case Route():
            # No type, gateway or interface: what has the key is deleted, whatever became of it.
            body = _route_key(entry, kind=0, scope=_SCOPE_NOWHERE, flags=0)
            return _message(_DELROUTE, _REQUEST, number, body)
        case _:
            assert_never(entry)


def _route(route: Route, index: int) -> bytes:
    """The body of a route, without its MTU."""
    if route.kind is RouteKind.BLACKHOLE:
        return _route_key(route, kind=_BLACKHOLE, scope=_SCOPE_GLOBAL, flags=0)
    is_on_link = route.nexthop is None and route.gateway is None and route.destination.family is Family.IPV4
    scope, flags = _SCOPE_LINK if is_on_link else _SCOPE_GLOBAL, _ONLINK if route.is_onlink else 0
    body = _route_key(route, kind=_UNICAST, scope=scope, flags=flags)
    if route.nexthop is not None:
        body += _u32(_RTA_NH_ID, route.nexthop)
    else:
        body += _u32(_RTA_OIF, index)
        if route.gateway is not None:
            body += encode_attribute(_RTA_GATEWAY, route.gateway.packed)
    if route.source is not None:
        body += encode_attribute(_RTA_PREFSRC, route.source.packed)
    return body


def _route_key(route: Route, *, kind: int, scope: int, flags: int) -> bytes:
    destination, table = route.destination, route.table
    short_table = table if table <= _LAST_SHORT_TABLE else 0
    body = _RTMSG.pack(_AF[destination.family], destination.length, 0, 0, short_table, _OWN, scope, kind, flags)
    if destination.length:
        body += encode_attribute(_RTA_DST, destination.first.packed)
    if table > _LAST_SHORT_TABLE:
        body += _u32(_RTA_TABLE, table)
    return body + _u32(_RTA_PRIORITY, route.metric)


@cache  # there are few MTUs
def _metrics(mtu: int) -> bytes:
    return encode_nested(_RTA_METRICS, _u32(_RTAX_MTU, mtu)) if mtu else b""


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body


def _u32(kind: int, number: int) -> bytes:
    return _U32_ATTRIBUTE.pack(8, kind, number)


def _packed_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


# --- requests: devices ------------------------------------------------------------------------------------------------


def create_tunnel(tunnel: Tunnel, index: int, parent: int, number: int) -> tuple[bytes, bytes]:
    """Create a tunnel device, down, with that index, and mark it as netplug's. ``parent`` is an index, 0 for none.

    Both are to be sent in one datagram: a process that dies leaves no device without the mark, which would not be
    netplug's.
    """
    match tunnel.kind:
        case TunnelKind.VXLAN:
            kind = _VXLAN_LOCAL if tunnel.local.family is Family.IPV4 else _VXLAN_LOCAL6
            data = _u32(_VXLAN_ID, tunnel.vni) + _u32(_VXLAN_LINK, parent)
            data += encode_attribute(kind, tunnel.local.packed) + encode_attribute(_VXLAN_LEARNING, b"\0")
            data += encode_attribute(_VXLAN_PORT, _PORT.pack(tunnel.port))
            own = encode_attribute(_IFLA_ADDRESS, _packed_mac(tunnel.mac))
        case TunnelKind.IPIP:
            data = encode_attribute(_IPTUN_LOCAL, tunnel.local.packed) + encode_attribute(_IPTUN_REMOTE, bytes(4))
            data += encode_attribute(_IPTUN_PROTOCOL, bytes((_PROTOCOL_IPIP,)))
            data += encode_attribute(_IPTUN_PMTUDISC, b"\1")
            own = b""
        case _:
            assert_never(tunnel.kind)
    info = encode_text(_INFO_KIND, tunnel.kind.value) + encode_nested(_INFO_DATA, data)
    body = _link(index) + encode_text(_IFLA_IFNAME, tunnel.name) + own + encode_nested(_IFLA_LINKINFO, info)
    mark = _link(index) + encode_attribute(_IFLA_IFALIAS, LINK_MARK.encode())
    return _message(_NEWLINK, _MAKE, number, body), _message(_NEWLINK, _REQUEST, number + 1, mark)


def change_mtu(index: int, mtu: int, number: int) -> bytes:
    """Change the MTU of a device; the kernel refuses what does not fit into that of the parent."""
    return _message(_NEWLINK, _REQUEST, number, _link(index) + _u32(_IFLA_MTU, mtu))


def set_up(index: int, number: int) -> bytes:
    """Set a device up."""
    return _message(_NEWLINK, _REQUEST, number, _IFINFOMSG.pack(0, 0, index, _IFF_UP, _IFF_UP))


def delete_device(index: int, number: int) -> bytes:
    """Delete a device, and everything over it."""
    return _message(_DELLINK, _REQUEST, number, _link(index))


def put_address(index: int, held: InterfaceAddress, number: int) -> bytes:
    """Give a device an address, without duplicate address detection."""
    return _message(_NEWADDR, _PUT, number, _address(index, held))


def remove_address(index: int, held: InterfaceAddress, number: int) -> bytes:
    """Remove an address of a device."""
    return _message(_DELADDR, _REQUEST, number, _address(index, held))


def _address(index: int, held: InterfaceAddress) -> bytes:
    packed = held.address.packed
    body = _IFADDRMSG.pack(_AF[held.address.family], held.length, _NO_DUPLICATE_DETECTION, 0, index)
    return body + encode_attribute(_IFA_LOCAL, packed) + encode_attribute(_IFA_ADDRESS, packed)


def _link(index: int) -> bytes:
    return _IFINFOMSG.pack(0, 0, index, 0, 0)


# --- requests: listings -----------------------------------------------------------------------------------------------


def list_entries(family: int, index: int) -> NetlinkMessage:
    """List the neighbours of one device: FDB entries for the family of bridges."""
    body = _NDMSG.pack(family, 0, 0, 0, 0) + _u32(_NDA_IFINDEX, index)
    return NetlinkMessage(_GETNEIGH, _REQUEST | _DUMP, body, lambda: "listing the neighbours of a tunnel device")


def list_routes(family: Family, table: int) -> NetlinkMessage:
    """List the routes of netplug's protocol in one table."""
    short_table = table if table <= _LAST_SHORT_TABLE else 0
    body = _RTMSG.pack(_AF[family], 0, 0, 0, short_table, _OWN, 0, 0, 0) + _u32(_RTA_TABLE, table)
    return NetlinkMessage(_GETROUTE, _REQUEST | _DUMP, body, lambda: f"listing the {family} routes of table {table}")


def list_nexthops() -> NetlinkMessage:
    """List all nexthops; the kernel has no filter by protocol."""
    return NetlinkMessage(_GETNEXTHOP, _REQUEST | _DUMP, _NHMSG.pack(0, 0, 0, 0), lambda: "listing the nexthops")


def list_addresses(index: int) -> NetlinkMessage:
    """List the addresses of one device, of both families."""
    body = _IFADDRMSG.pack(0, 0, 0, 0, index)
    return NetlinkMessage(_GETADDR, _REQUEST | _DUMP, body, lambda: "listing the addresses of a tunnel device")


# --- replies ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class KernelDevice:
    """A device with a name of ours, as the kernel describes it.

    ``kind`` is None if it is none of a tunnel. ``parent`` is an index; it, ``vni``, ``port`` and ``is_learning`` are
    those of VXLAN.
    """

    index: int
    name: str
    alias: str
    is_up: bool
    mtu: int
    mac: str
    kind: TunnelKind | None
    local: Address | None = None
    parent: int = 0
    vni: int = 0
    port: int = 0
    is_learning: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether it has the mark."""
        return self.name in TUNNEL_DEVICES and self.alias == LINK_MARK

    def may_become(self, tunnel: Tunnel, parent: int) -> bool:
        """Whether it can be made this tunnel without making it anew."""
        found = (self.kind, self.local, self.parent, self.vni, self.port, self.is_learning)
        has_mac = tunnel.kind is not TunnelKind.VXLAN or self.mac == tunnel.mac
        return has_mac and found == (tunnel.kind, tunnel.local, parent, tunnel.vni, tunnel.port, False)


def decode_device(body: bytes) -> KernelDevice:
    """Decode the reply to a query of a link."""
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    found = decode_attributes(body, _IFINFOMSG.size)
    info = decode_attributes(found.get(_IFLA_LINKINFO, b""))
    kind = info.get(_INFO_KIND, b"").rstrip(b"\0").decode(errors="replace")
    data = decode_attributes(info.get(_INFO_DATA, b""))
    is_vxlan, is_ipip = kind == TunnelKind.VXLAN.value, kind == TunnelKind.IPIP.value
    local = data.get(_IPTUN_LOCAL if is_ipip else _VXLAN_LOCAL) or data.get(_VXLAN_LOCAL6)
    return KernelDevice(
        index=index,
        name=found[_IFLA_IFNAME].rstrip(b"\0").decode(errors="replace"),
        alias=found.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace"),
        is_up=bool(flags & _IFF_UP),
        mtu=_number(found[_IFLA_MTU]),
        mac=found.get(_IFLA_ADDRESS, b"").hex(":"),
        kind=TunnelKind(kind) if is_vxlan or is_ipip else None,
        local=_unpacked(local) if local and (is_vxlan or is_ipip) else None,
        parent=_number(data.get(_VXLAN_LINK, bytes(4))) if is_vxlan else 0,
        vni=_number(data.get(_VXLAN_ID, bytes(4))) if is_vxlan else 0,
        port=int.from_bytes(data.get(_VXLAN_PORT, b""), "big") if is_vxlan else 0,
        is_learning=data.get(_VXLAN_LEARNING, b"\0") != b"\0" if is_vxlan else False,
    )


def decode_fdb(body: bytes, device: str) -> FdbEntry | None:
    """Decode one of the replies to :func:`list_entries`; None for an entry that is learned, or leads to no node."""
    found = decode_attributes(body, _NDMSG.size)
    mac, address = found.get(_NDA_LLADDR), found.get(_NDA_DST)
    if not _is_permanent(body) or mac is None or address is None:
        return None
    return FdbEntry(device, mac.hex(":"), _unpacked(address))


def decode_neighbour(body: bytes, device: str) -> TunnelNeighbour | None:
    """Decode one of the replies to :func:`list_entries`; None for a neighbour that the kernel has found itself."""
    found = decode_attributes(body, _NDMSG.size)
    mac, address = found.get(_NDA_LLADDR), found.get(_NDA_DST)
    if not _is_permanent(body) or mac is None or address is None:
        return None
    return TunnelNeighbour(device, _unpacked(address), mac.hex(":"))


def decode_nexthop(body: bytes, names: Mapping[int, str]) -> Nexthop | None:
    """Decode a listed nexthop; None for one of others."""
    _, _, protocol, flags = _NHMSG.unpack_from(body)
    found = decode_attributes(body, _NHMSG.size)
    number, gateway = _number(found.get(_NHA_ID, bytes(4))), found.get(_NHA_GATEWAY)
    if protocol != _OWN or gateway is None or not NEXTHOP_BASE <= number < NEXTHOP_BASE + NEXTHOP_COUNT:
        return None
    device = names.get(_number(found.get(_NHA_OIF, bytes(4))), "")
    return Nexthop(number, device, _unpacked(gateway), is_onlink=bool(flags & _ONLINK))


def decode_route(body: bytes, names: Mapping[int, str]) -> Route | None:
    """Decode one of the replies to :func:`list_routes`; None for a route of others.

    What the kernel adds is left out: the device and gateway of a nexthop, and the loopback of an IPv6 blackhole.
    """
    number, length, _, _, short_table, protocol, _, kind, flags = _RTMSG.unpack_from(body)
    family, found = _FAMILY.get(number), decode_attributes(body, _RTMSG.size)
    if protocol != _OWN or family is None or kind not in {_UNICAST, _BLACKHOLE}:
        return None
    destination = Prefix(family, int.from_bytes(found.get(_RTA_DST, b""), "big"), length)
    table = _number(found[_RTA_TABLE]) if _RTA_TABLE in found else short_table
    metric = _number(found.get(_RTA_PRIORITY, bytes(4)))
    if kind == _BLACKHOLE:
        return Route(destination=destination, table=table, metric=metric, kind=RouteKind.BLACKHOLE)
    source = found.get(_RTA_PREFSRC)
    mtu = decode_attributes(found.get(_RTA_METRICS, b"")).get(_RTAX_MTU, bytes(4))
    nexthop, gateway = found.get(_RTA_NH_ID), found.get(_RTA_GATEWAY)
    device = names.get(_number(found[_RTA_OIF]), "") if nexthop is None and _RTA_OIF in found else ""
    return Route(
        destination=destination,
        table=table,
        metric=metric,
        nexthop=None if nexthop is None else _number(nexthop),
        device=device,
        gateway=None if nexthop is not None or gateway is None else _unpacked(gateway),
        is_onlink=nexthop is None and bool(flags & _ONLINK),
        source=None if source is None else _unpacked(source),
        mtu=_number(mtu),
    )


def _is_permanent(body: bytes) -> bool:
    _, _, state, _, _ = _NDMSG.unpack_from(body)
    return bool(state & _PERMANENT)


def _unpacked(address: bytes) -> Address:
    return Address(Family.IPV4 if len(address) == 4 else Family.IPV6, int.from_bytes(address, "big"))  # noqa: PLR2004  bytes of an address


def _number(data: bytes) -> int:
    (number,) = _U32.unpack(data)
    return int(number)
