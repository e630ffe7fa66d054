"""Which addresses an attachment gets: a pure function of the folder of its network. And which a move takes over.

Each range set gives one address: the one that is held already, the one that is asked for, or the next free one after
the address that the set gave last. If nothing is free, an address is taken from a file of no container that runs: an
empty one, or one that is older than the boot of the host.

A file names no pod, so for the CNI command GC the endpoints say which attachments there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import ClassVar

from attrs import field, frozen

from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS
from netplug_core.errors import AllocationError, ErrorCode
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.hostlocal.settings import AddressRange, RangeSet
from netplug_core.names import DEFAULT_INTERFACE, handle_id, is_cni_name
from netplug_core.orchestrator.model import PodFacts, PodName, PodNetwork
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "BOOT_FILE", "LOCK_FILE", "TEMPORARY_PREFIX", "AddressFile", "AddressHeld", "AddressOutsideRanges", "Boot",
    "BootRecord", "ImportPlan", "ImportedAttachment", "NetworkFolder", "Owner", "RangesExhausted", "Reservation",
    "attachments", "find_address", "last_reserved_file", "parse_boot_record", "parse_owner", "plan_import", "reserve",
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


# --- importing -------------------------------------------------------------------------------------------------------


_YOUNG_NS = 60 * SECOND_NS


@frozen(kw_only=True)
class ImportedAttachment:
    """An interface of a container, its pod, and the files of its addresses, in the order of the addresses."""

    owner: Owner
    pod: PodName
    files: tuple[AddressFile, ...]

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Its addresses, sorted."""
        return tuple(one.address for one in self.files)


@frozen(kw_only=True)
class ImportPlan:
    """What to do with each file: ``imported`` have a pod that runs, the containers of ``gone`` have none.

    ``young`` have none yet. ``elsewhere`` are addresses of pods of other nodes: perhaps this is not the node that was
    named, so they stay. ``unnamed`` name no container: no runtime has made them, and they stay too.
    """

    imported: tuple[ImportedAttachment, ...] = ()
    gone: tuple[AddressFile, ...] = ()
    young: tuple[AddressFile, ...] = ()
    elsewhere: tuple[AddressFile, ...] = ()
    unnamed: tuple[AddressFile, ...] = ()


def plan_import(folder: NetworkFolder, pods: Iterable[PodFacts], *, node: str, now_ns: int) -> ImportPlan:
    """The plan for the folder of a node. ``pods`` are those of all nodes; read them after the folder."""
    running = {
        address: pod
        for pod in pods
        if pod.network is PodNetwork.OWN and not pod.is_terminated
        for address in pod.addresses
    }
    held: defaultdict[tuple[Owner, PodName], list[AddressFile]] = defaultdict(list)
    gone, young = list[AddressFile](), list[AddressFile]()
    elsewhere, unnamed = list[AddressFile](), list[AddressFile]()
    for one in sorted(folder.files, key=lambda file: file.address):
        pod = running.get(one.address)
        if one.owner is None:
            unnamed.append(one)
        elif pod is not None and pod.node == node:
            held[one.owner, pod.pod_name].append(one)
        elif pod is not None:
            elsewhere.append(one)
        elif now_ns - one.modified_ns < _YOUNG_NS:
            young.append(one)
        else:
            gone.append(one)
    return ImportPlan(
        imported=tuple(
            ImportedAttachment(owner=owner, pod=pod, files=tuple(files)) for (owner, pod), files in held.items()
        ),
        gone=tuple(gone),
        young=tuple(young),
        elsewhere=tuple(elsewhere),
        unnamed=tuple(unnamed),
    )


# --- reserve ---------------------------------------------------------------------------------------------------------


_MAX_NAMES = 5


@frozen
class RangesExhausted(AllocationError, error_code=ErrorCode.POOLS_EXHAUSTED):
    """Every address of a range set is held; ``unowned`` are the files among them that name no container."""

    range_set: str
    held: int
    unowned: tuple[AddressFile, ...] = ()

    next_step: ClassVar[str] = "add a range, or remove the files of containers that no longer exist"

    def __str__(self) -> str:
        sentence = f"no IP addresses available in range set: {self.range_set}; {self.held} are held"
        if not self.unowned:
            return sentence
        names = ", ".join(one.name for one in self.unowned[:_MAX_NAMES])
        more = ", …" if len(self.unowned) > _MAX_NAMES else ""
        return f"{sentence}, {len(self.unowned)} of them by files that name no container ({names}{more})"


@frozen
class AddressOutsideRanges(AllocationError, error_code=ErrorCode.ADDRESS_OUTSIDE_POOLS):
    """An address that is asked for cannot be assigned from the ranges; ``reason`` says why."""

    addresses: tuple[Address, ...]
    reason: str

    next_step: ClassVar[str] = "ask for one address of each range set at most"

    def __str__(self) -> str:
        return f"cannot assign {', '.join(map(str, self.addresses))}: {self.reason}"


@frozen
class AddressHeld(AllocationError, error_code=ErrorCode.ADDRESS_TAKEN):
    """The address that is asked for is held; ``owner`` is None if its file names no container."""

    address: Address
    owner: Owner | None

    def __str__(self) -> str:
        holder = f"container {self.owner.container_id}" if self.owner else "a file that names no container"
        return f"the address {self.address} is held by {holder}"


@frozen(kw_only=True)
class Reservation:
    """The address that a range set gives.

    ``is_new``: its file has to be made. ``replaced`` are the files to remove before, of containers that have ended.
    """

    range_set: int
    address: Address
    range: AddressRange
    is_new: bool
    replaced: tuple[AddressFile, ...] = ()


def reserve(
    folder: NetworkFolder,
    range_sets: tuple[RangeSet, ...],
    owner: Owner,
    requested: tuple[Address, ...],
    ended: AbstractSet[AddressFile],
) -> tuple[Reservation, ...]:
    """One address of each range set for an attachment; ``ended`` are the files that may be taken over.

    Raises:
        AllocationError: an address cannot be had.
    """
    choice = _Choice.of(folder, owner, ended)
    left, made = list(requested), list[Reservation]()
    for number, range_set in enumerate(range_sets):
        wanted = next(_inside(range_set, left), None)
        if wanted is None:
            made.append(choice.automatic(number, range_set, folder.last_reserved.get(number)))
        else:
            left.remove(wanted[0])
            made.append(choice.specific(number, *wanted))
    if left:
        ranges = "; ".join(map(str, range_sets))
        raise AddressOutsideRanges(tuple(left), f"each range set gives one address, and they are {ranges}")
    return tuple(made)


@frozen
class _Choice:
    """The addresses that are held: by the attachment itself, by others, and by containers that have ended."""

    owner: Owner
    own: tuple[Address, ...]
    files: dict[Address, list[AddressFile]]
    ended: AbstractSet[AddressFile]

    @classmethod
    def of(cls, folder: NetworkFolder, owner: Owner, ended: AbstractSet[AddressFile]) -> _Choice:
        files: dict[Address, list[AddressFile]] = {}
        for one in folder.files:
            files.setdefault(one.address, []).append(one)
        own = sorted(address for address, held in files.items() if any(one.owner == owner for one in held))
        return cls(owner, tuple(own), files, ended)

    def automatic(self, number: int, range_set: RangeSet, last: Address | None) -> Reservation:
        """The address that is held already, else the next free one, else the next one of a container that has ended."""
        for address, found in _inside(range_set, self.own):
            return self._reservation(number, address, found)
        ended = None
        for address, found in range_set.candidates(last):
            if address not in self.files:
                return self._reservation(number, address, found)
            if ended is None and self._has_ended(address):
                ended = self._reservation(number, address, found)
        if ended is None:
            held = tuple(address for address, _range in _inside(range_set, self.files))
            files = (one for address in held for one in self.files[address])
            raise RangesExhausted(str(range_set), len(held), tuple(one for one in files if one.owner is None))
        return ended

    def specific(self, number: int, address: Address, found: AddressRange) -> Reservation:
        """The address that is asked for."""
        if address == found.gateway:
            raise AddressOutsideRanges((address,), f"it is the gateway of {found.subnet}")
        made = self._reservation(number, address, found)
        if made.is_new and address in self.files and not self._has_ended(address):
            raise AddressHeld(address, self.files[address][0].owner)
        return made

    def _has_ended(self, address: Address) -> bool:
        return all(one in self.ended for one in self.files[address])

    def _reservation(self, number: int, address: Address, found: AddressRange) -> Reservation:
        # A container may have come back after a boot: its file is made again, so that it counts as of this boot.
        is_own = address in self.own and not self._has_ended(address)
        return Reservation(
            range_set=number,
            address=address,
            range=found,
            is_new=not is_own,
            replaced=() if is_own else tuple(self.files.get(address, ())),
        )


def _inside(range_set: RangeSet, addresses: Iterable[Address]) -> Iterator[tuple[Address, AddressRange]]:
    """The addresses that lie in a set, with their ranges."""
    for address in addresses:
        found = range_set.find_range(address)
        if found is not None:
            yield address, found
