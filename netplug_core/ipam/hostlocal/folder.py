"""What the files in the folder of a network mean, and the text of those that are written.

The folder has one file for each address that is held, called like the address. Its text is the id of the container,
CR and LF, and the name of the interface. Files of old versions have no second line. ``last_reserved_ip.N`` has the
address that range set N gave last, and ``lock`` is locked by every call that changes something. That is the layout of
the well-known plugin. Netplug adds ``.netplug-boot``: the files that are older than the current boot of the host.

A file that is called like an address holds it, whatever is in it. Only a text that names a container makes it a
container's; any other file is never removed. An empty file is the exception: its writer was killed, or the machine lost
its power, before the text was there. A program that makes a file holds the lock until the text is written, so under the
lock an empty file belongs to no container, and its address is given when no other is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS
from netplug_core.names import DEFAULT_INTERFACE, handle_id, is_cni_name

__all__ = [
    "BOOT_FILE", "LOCK_FILE", "TEMPORARY_PREFIX", "AddressFile", "Boot", "BootRecord", "NetworkFolder", "Owner",
    "find_address", "last_reserved_file", "parse_boot_record", "parse_owner",
]  # fmt: skip

LOCK_FILE = "lock"
BOOT_FILE = ".netplug-boot"
TEMPORARY_PREFIX = ".netplug-new-"
"""Files under construction, of earlier releases; under the lock, every one was left by a process that was killed."""

_BOOT_HEADER = "boot "
_CLOCK_MARGIN_NS = SECOND_NS


@frozen(order=True)
class Owner:
    """The interface that an address is held for; the first one if the file, of an old version, names none."""

    container_id: str
    interface: str = DEFAULT_INTERFACE

    def handle(self, network: str) -> str:
        """The handle of the attachment."""
        return handle_id(network, self.container_id, self.interface)

    def render(self) -> str:
        """The text of the file."""
        return f"{self.container_id}\r\n{self.interface}"


@frozen
class AddressFile:
    """A file that holds an address. ``owner`` is None if the text names no container, or cannot be read.

    ``is_empty``: it is a file without any text.
    """

    name: str
    address: Address
    owner: Owner | None
    modified_ns: int
    is_empty: bool = False


@frozen
class Boot:
    """The current boot of the host: its random id, and when it began by the wall clock."""

    boot_id: str
    started_ns: int


@frozen
class BootRecord:
    """The files that were older than a boot when netplug first assigned an address in it, by name and time of change.

    A file that is made later in the same boot is never among them, even if the clock is set back or forward.
    """

    boot_id: str
    older_files: frozenset[tuple[str, int]]

    def render(self) -> str:
        """The text of the file."""
        return "".join(
            (f"{_BOOT_HEADER}{self.boot_id}\n", *(f"{name} {time}\n" for name, time in sorted(self.older_files)))
        )


@frozen(kw_only=True)
class NetworkFolder:
    """What the folder of one network says. ``last_reserved`` has the last address of range sets, by their numbers."""

    files: tuple[AddressFile, ...] = ()
    last_reserved: Mapping[int, Address] = field(factory=dict)
    boot_record: BootRecord | None = None

    def files_of(self, handle: str, network: str) -> tuple[AddressFile, ...]:
        """The files of an attachment."""
        return tuple(one for one in self.files if one.owner is not None and one.owner.handle(network) == handle)

    def record_of(self, boot: Boot) -> BootRecord:
        """The record that belongs to the current boot: the stored one, or a new one if that is of another boot."""
        if self.boot_record is not None and self.boot_record.boot_id == boot.boot_id:
            return self.boot_record
        begun = boot.started_ns - _CLOCK_MARGIN_NS
        return BootRecord(
            boot.boot_id, frozenset((one.name, one.modified_ns) for one in self.files if one.modified_ns < begun)
        )

    def ended_files(self, boot: Boot | None) -> frozenset[AddressFile]:
        """The files of no container that runs: empty ones, and those of containers that ended with an earlier boot.

        Of the latter there are none if the boot of the host is not known.
        """
        older = frozenset[tuple[str, int]]() if boot is None else self.record_of(boot).older_files
        return frozenset(
            one for one in self.files if one.is_empty or (one.owner and (one.name, one.modified_ns) in older)
        )


def find_address(name: str) -> Address | None:
    """The address that a file of this name holds; None for every other file."""
    try:
        return Address.parse(name)
    except ValueError:
        return None


def last_reserved_file(range_set: int) -> str:
    """The name of the file with the address that a range set gave last."""
    return f"last_reserved_ip.{range_set}"


def parse_owner(text: str) -> Owner | None:
    """The interface that the text of a file names; None if it names no container."""
    lines = text.strip().splitlines()
    if not lines or len(lines) > len(("container", "interface")) or not is_cni_name(lines[0]):
        return None
    return Owner(*lines)


def parse_boot_record(text: str) -> BootRecord | None:
    """The record that a text has; None if it is damaged."""
    header, *lines = text.splitlines() or [""]
    if not header.startswith(_BOOT_HEADER):
        return None
    try:
        return BootRecord(header.removeprefix(_BOOT_HEADER), frozenset(_parse_lines(lines)))
    except ValueError:
        return None


def _parse_lines(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    for line in lines:
        name, time = line.split(" ")
        yield name, int(time)
