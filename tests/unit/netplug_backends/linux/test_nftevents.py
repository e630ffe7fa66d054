"""What the kernel notifies of is put together to transactions. The kernel itself is in the integration tests."""

import struct

from netplug_backends.linux.netlink import encode_attribute, encode_text
from netplug_backends.linux.nftevents import GenerationReader
from netplug_core.dataplane.packetfilter import ForeignChange

SUBSYSTEM = 10 << 8
NEW_TABLE, NEW_RULE, NEW_GENERATION = SUBSYSTEM | 0, SUBSYSTEM | 6, SUBSYSTEM | 15
INET, IP = 1, 2


def message(kind: int, *attributes: bytes, family: int = INET) -> bytes:
    body = struct.pack("!BBH", family, 0, 0) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def generation(number: int, program: str) -> bytes:
    thread = encode_attribute(2, struct.pack("!I", 7))
    return message(NEW_GENERATION, encode_attribute(1, struct.pack("!I", number)), thread, encode_text(3, program))


def test_a_generation_has_the_tables_that_came_before_it() -> None:
    reader = GenerationReader()
    assert list(reader.read(message(NEW_TABLE, encode_text(1, "netplug")))) == []
    rest = message(NEW_RULE, encode_text(1, "netplug")) + message(
        NEW_RULE, encode_text(2, "x"), encode_text(1, "other")
    )
    first = (8, ForeignChange("nft", frozenset({"netplug", "other"})))
    assert list(reader.read(rest + generation(8, "nft") + generation(9, "sh"))) == [
        first,
        (9, ForeignChange("sh", frozenset())),
    ]


def test_tables_of_other_families_are_not_named() -> None:
    datagram = message(NEW_TABLE, encode_text(1, "netplug"), family=IP) + generation(3, "nft")
    assert list(GenerationReader().read(datagram)) == [(3, ForeignChange("nft", frozenset()))]


def test_what_other_subsystems_and_objects_without_a_table_say_is_passed_over() -> None:
    datagram = message(1 << 8 | 0, encode_text(1, "netplug")) + message(NEW_TABLE) + generation(4, "nft")
    assert list(GenerationReader().read(datagram)) == [(4, ForeignChange("nft", frozenset()))]


def test_the_rest_of_a_generation_is_forgotten_with_its_beginning() -> None:
    reader = GenerationReader()
    assert list(reader.read(message(NEW_TABLE, encode_text(1, "netplug")))) == []
    reader.forget()
    assert list(reader.read(generation(5, "nft"))) == [(5, ForeignChange("nft", frozenset()))]
