"""The folder of a host-local network: a file for each address, and the attachments that hold addresses.

A file names no pod, so for the CNI command GC the endpoints say which attachments there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.names import DEFAULT_INTERFACE, handle_id, is_cni_name
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "BOOT_FILE", "LOCK_FILE", "TEMPORARY_PREFIX", "AddressFile", "Boot", "BootRecord", "NetworkFolder", "Owner",
    "attachments", "find_address", "last_reserved_file", "parse_boot_record", "parse_owner",
]  # fmt: skip


# --- folder ----------------------------------------------------------------------------------------------------------


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


# --- attachments -----------------------------------------------------------------------------------------------------


def attachments(
    folder: NetworkFolder, endpoints: Iterable[WorkloadEndpoint], *, node: str, network: str
) -> tuple[Attachment, ...]:
    """Every attachment that a file names, sorted, with the pod that the endpoint of its container names."""
    pods = {
        Owner(one.spec.container_id, one.spec.endpoint): (one.metadata.namespace, one.spec.pod)
        for one in endpoints
        if one.spec.node == node and one.spec.pod
    }
    held: defaultdict[Owner, list[ReleaseItem]] = defaultdict(list)
    for one in folder.files:
        if one.owner is not None:
            item = ReleaseItem(address=one.address, handle=one.owner.handle(network))
            held[one.owner].append(item)
    found: list[Attachment] = []
    for owner, items in sorted(held.items()):
        namespace, pod = pods.get(owner, ("", ""))
        found.append(
            Attachment(
                container_id=owner.container_id,
                interface=owner.interface,
                handle=owner.handle(network),
                namespace=namespace,
                pod=pod,
                addresses=tuple(items),
            )
        )
    return tuple(found)
