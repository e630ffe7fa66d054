"""host-local: what the files in a network's folder mean."""

import pytest

from netplug_core.addressing import Address
from netplug_core.ipam.hostlocal.reserve import (
    AddressFile,
    Boot,
    BootRecord,
    NetworkFolder,
    Owner,
    find_address,
    last_reserved_file,
    parse_boot_record,
    parse_owner,
)

SECOND_NS = 1_000_000_000
BOOT = Boot("new", 100 * SECOND_NS)


def file(address: str, owner: Owner | None = None, modified_s: int = 0) -> AddressFile:
    return AddressFile(address, Address.parse(address), owner, modified_s * SECOND_NS)


@pytest.mark.parametrize("name", ["10.0.0.1", "fd00::1"])
def test_a_file_is_called_like_its_address(name: str) -> None:
    assert find_address(name) == Address.parse(name)


@pytest.mark.parametrize(
    "name", ["lock", "last_reserved_ip.0", ".netplug-new-10.0.0.1", "", "10.0.0.1~", "fd00::1%eth0"]
)
def test_other_files_hold_nothing(name: str) -> None:
    assert find_address(name) is None


@pytest.mark.parametrize(
    "text,owner",
    [
        ("c1\r\neth0", Owner("c1", "eth0")),
        ("  c1\r\nnet1\r\n\t ", Owner("c1", "net1")),
        ("c1", Owner("c1", "eth0")),
        ("c1\neth0\n", Owner("c1", "eth0")),
        ("", None),
        (" \r\n", None),
        ("kept for the printer", None),
        ("c1\r\neth0\r\nmore", None),
        ("\x00\x00", None),
    ],
)
def test_the_text_names_the_container(text: str, owner: Owner | None) -> None:
    assert parse_owner(text) == owner


def test_what_is_written_is_what_the_well_known_plugin_writes() -> None:
    assert Owner("c1", "eth0").render() == "c1\r\neth0"
    assert last_reserved_file(3) == "last_reserved_ip.3"


def test_the_files_of_an_attachment() -> None:
    mine, second, other = file("10.0.0.1", Owner("c1")), file("10.0.0.2", Owner("c1", "net1")), file("10.0.0.3")
    folder = NetworkFolder(files=(mine, second, other))
    assert folder.files_of("net.c1", "net") == (mine,)
    assert folder.files_of("net.c1.net1", "net") == (second,)
    assert folder.files_of("net.c2", "net") == ()


def test_the_first_look_in_a_boot_notes_what_is_older() -> None:
    old, new = file("10.0.0.1", Owner("c1"), 98), file("10.0.0.2", Owner("c2"), 100)
    folder = NetworkFolder(files=(old, new, file("10.0.0.3", None, 1)))
    assert folder.ended_files(BOOT) == {old}
    assert folder.record_of(BOOT).boot_id == "new"


def test_an_empty_file_is_of_no_container_whatever_its_age_and_the_boot() -> None:
    address = Address.parse("10.0.0.1")
    empty, unreadable = AddressFile("10.0.0.1", address, None, 200, is_empty=True), file("10.0.0.2", None, 1)
    folder = NetworkFolder(files=(empty, unreadable))
    assert folder.ended_files(BOOT) == folder.ended_files(None) == {empty}


def test_what_is_made_later_in_a_boot_is_never_older_whatever_the_clock_says() -> None:
    record = BootRecord("new", frozenset({("10.0.0.1", SECOND_NS)}))
    old, clock_was_wrong = file("10.0.0.1", Owner("c1"), 1), file("10.0.0.2", Owner("c2"), 2)
    made_again = file("10.0.0.1", Owner("c3"), 3)
    assert NetworkFolder(files=(old, clock_was_wrong), boot_record=record).ended_files(BOOT) == {old}
    assert NetworkFolder(files=(made_again,), boot_record=record).ended_files(BOOT) == frozenset()


def test_the_record_of_another_boot_counts_no_more() -> None:
    record = BootRecord("old", frozenset())
    old = file("10.0.0.1", Owner("c1"), 1)
    assert NetworkFolder(files=(old,), boot_record=record).ended_files(BOOT) == {old}


def test_a_record_is_read_as_it_was_written() -> None:
    record = BootRecord("new", frozenset({("10.0.0.1", 5), ("fd00::1", 6)}))
    assert record.render() == "boot new\n10.0.0.1 5\nfd00::1 6\n"
    assert parse_boot_record(record.render()) == record


@pytest.mark.parametrize("text", ["", "another text", "boot new\n10.0.0.1", "boot new\n10.0.0.1 x", "boot new\n\n"])
def test_a_damaged_record_is_none(text: str) -> None:
    assert parse_boot_record(text) is None
