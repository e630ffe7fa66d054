"""``host-local``: the core's rules, applied to the files of this host, and how these are locked, written and read.

An address is held by its file before the endpoint is committed, and released after the endpoint is deleted. The lock
of the folder is held while addresses are chosen and files are made, never while the datastore is called.

An address file is written under another name and then linked to its own. The link fails if the name exists, and the
file is complete from the first moment, so a process that is killed never leaves an address whose holder is unknown. It
is on the disk before its address is given: after a loss of power it is not empty.

The note of the last address is only a hint: it is not synced, and what stands in its way stops nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from attrs import evolve, field, frozen

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, Folder, make_folder, open_folder, read_file
from netplug_core.addressing import Address, Family, Prefix
from netplug_core.clock import Deadline, Pace
from netplug_core.cni.dispatch import ResultFormat, negotiate_version
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM, require_ready, settle_endpoint
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import (
    AssignedAddress,
    Assignment,
    AssignRequest,
    Attachment,
    Released,
    ReleaseRequest,
    Specific,
)
from netplug_core.ipam.hostlocal.reserve import (
    BOOT_FILE,
    LOCK_FILE,
    TEMPORARY_PREFIX,
    AddressFile,
    Boot,
    BootRecord,
    NetworkFolder,
    Owner,
    Reservation,
    attachments,
    find_address,
    last_reserved_file,
    parse_boot_record,
    parse_owner,
    reserve,
)
from netplug_core.ipam.hostlocal.settings import (
    FolderSettings,
    HostLocalSettings,
    RangeSet,
    load_folder_settings,
    load_settings,
    make_range_sets,
    require_one_set_per_family,
)
from netplug_core.ipam.protocol import EndpointWrites
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["LOCK_S", "HostLocalIPAM", "NetworkFiles", "current_boot"]


# --- the files of a network ------------------------------------------------------------------------------------------

_MAX_BYTES = 1 << 20  # the CNI specification limits no container id
_MAX_NOTE_BYTES = 1 << 26  # the note of a boot has a line for each address
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@frozen
class NetworkFiles:
    """The folder of one network.

    Raises:
        Unavailable: a file cannot be read or written; every method may raise it.
    """

    path: str

    @contextmanager
    def locked(self, pace: Pace) -> Iterator[None]:
        """Hold the lock of the folder, which is made if it does not exist.

        It is the lock of the well-known plugin (flock(2)), so both may work in one folder at the same time.

        Raises:
            Unavailable: another call has held it until the deadline.
        """
        with self._translated():
            make_folder(self.path)
            with open_folder(self.path) as folder:
                descriptor = folder.open(LOCK_FILE, os.O_RDONLY, PRIVATE_FILE_MODE)
        try:
            attempt = 0
            while not self._try_lock(descriptor):
                if pace.deadline.has_passed:
                    raise Unavailable(f"host-local folder {self.path}", "another call holds the lock of the folder")
                attempt += 1
                pace.wait(attempt)
            yield
        finally:
            os.close(descriptor)

    def read(self, range_sets: int = 0) -> NetworkFolder:
        """What the folder holds, with the last addresses of that many range sets; nothing if it does not exist."""
        if not self.exists and not os.path.lexists(self.path):
            return NetworkFolder()
        with self._translated(), open_folder(self.path) as folder:
            files = [one for name in folder.names() if (one := _find_address_file(folder, name)) is not None]
            last = {number: _find_text(folder, last_reserved_file(number)) for number in range(range_sets)}
            found = {number: find_address(text.strip()) for number, text in last.items()}
            return NetworkFolder(
                files=tuple(files),
                last_reserved={number: address for number, address in found.items() if address is not None},
                boot_record=parse_boot_record(_find_text(folder, BOOT_FILE)),
            )

    @property
    def exists(self) -> bool:
        """Whether the folder exists."""
        return os.path.isdir(self.path)

    def require_writable(self) -> None:
        """Return if files can be made in the folder, or the folder itself can be made."""
        path = self.path
        while path != "/" and not os.path.exists(path):
            path = os.path.dirname(path.rstrip("/")) or "/"
        if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
            raise Unavailable(f"host-local folder {self.path}", f"{path} cannot be written")

    # --- under the lock ---------------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Remove what processes that were killed have left."""
        with self._translated(), open_folder(self.path) as folder:
            folder.remove_leftovers()
            for name in folder.names():
                if name.startswith(TEMPORARY_PREFIX):
                    folder.remove(name)

    def create(self, address: Address, owner: Owner) -> Callable[[], None]:
        """Make the file of an address; what is returned removes it again.

        Raises:
            Unavailable: the file exists; a program that does not take the lock has just made it.
        """
        name = str(address)
        with self._translated(), open_folder(self.path) as folder:
            folder.create(name, owner.render(), PRIVATE_FILE_MODE)
        return lambda: self.remove((name,))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        with self._translated(), open_folder(self.path) as folder:
            for name in names:
                folder.remove(name)

    def note_last(self, range_set: int, address: Address) -> None:
        """Note the address that a range set gave last, if that can be noted."""
        with suppress(OSError), open_folder(self.path) as folder:
            folder.replace(last_reserved_file(range_set), str(address), PRIVATE_FILE_MODE, is_synced=False)

    def note_boot(self, record: BootRecord) -> bool:
        """Note which files are older than the boot, all at once; false if a folder has the name of the note."""
        with self._translated(), open_folder(self.path) as folder:
            try:
                folder.replace(BOOT_FILE, record.render(), PRIVATE_FILE_MODE)
            except IsADirectoryError:
                return False
        return True

    # --- parts ------------------------------------------------------------------------------------------------------

    def _try_lock(self, descriptor: int) -> bool:
        with self._translated():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"host-local folder {self.path}", str(error)) from error


def _find_address_file(folder: Folder, name: str) -> AddressFile | None:
    """The address that a name holds; a file that cannot be read holds it too."""
    address = find_address(name)
    if address is None:
        return None
    try:
        found = folder.read(name, _MAX_BYTES)
        text = found.content.decode()
    except FileNotFoundError:  # released since the folder was listed
        return None
    except (OSError, UnicodeError):  # a folder, a link, no right, no text: the container is unknown
        return AddressFile(name, address, None, 0)
    # After a loss of power a file may have its size and no content: then the kernel shows zeros.
    return AddressFile(name, address, parse_owner(text), found.modified_ns, is_empty=not found.content.strip(b"\0"))


def _find_text(folder: Folder, name: str) -> str:
    try:
        return folder.read(name, _MAX_NOTE_BYTES).content.decode()
    except (OSError, UnicodeError):  # a hint that is missing or damaged is none
        return ""


def current_boot() -> Boot | None:
    """The boot of this host; None if the kernel does not name it."""
    try:
        boot_id = read_file(_BOOT_ID).decode("ascii").strip()
    except OSError:
        return None
    return Boot(boot_id, time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME))


LOCK_S = 10.0
"""The longest that a call waits for the lock of a folder."""

_CLEANUP_S = 5.0
_LONGEST_PAUSE_S = 0.01


@frozen
class HostLocalIPAM:
    """See :class:`~netplug_core.ipam.protocol.IPAM`. ``find_boot`` returns the current boot of the host."""

    context: IPAMContext
    find_boot: Callable[[], Boot | None] = field(default=current_boot, kw_only=True)

    def assign(self, request: AssignRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Assignment:
        """Hold one address of each range set, then commit the endpoint."""
        settings = load_settings(self.context.netconf)
        range_sets = self._range_sets(settings, request.node, deadline)
        owner = _owner_of(request)
        files = _files(settings.folder)
        with files.locked(self._lock_pace(deadline)):
            made = self._make_files(files, range_sets, owner, _requested(request, settings))
        with ExitStack() as undo:
            undo.callback(self._take_back, files, owner, made)
            assignment = Assignment(
                addresses=tuple(AssignedAddress(address=one.address, prefix=one.range.subnet) for one in made)
            )
            if all(one.is_new for one in made):
                undo.callback(self._delete_endpoint, endpoint)
            settle_endpoint(self.context.datastore, endpoint, assignment, pace=self._pace(deadline))
            undo.pop_all()
        return assignment

    def release(self, request: ReleaseRequest, endpoint: EndpointWrites, *, deadline: Deadline) -> Released:
        """Delete the endpoint, then the files of the handle.

        Addresses of pools that the handle holds go with the endpoint: ``ipam.type`` may have been another one when the
        container was attached.
        """
        of_pools = tuple(item for item in request.addresses if item.sequence is not None)  # files have no numbers
        freed = self._pools.release(evolve(request, addresses=of_pools), endpoint, deadline=deadline).addresses
        folder = load_folder_settings(self.context.netconf)
        files = _files(folder)
        if not files.exists:
            return Released(addresses=freed)
        with files.locked(self._lock_pace(deadline)):
            files.clean()
            held = files.read().files_of(request.handle, folder.network)
            files.remove(one.name for one in held)
        return Released(addresses=tuple(sorted({*freed, *_addresses(held)})))

    def held(self, handle: str, *, deadline: Deadline) -> Released:  # noqa: ARG002  files answer at once
        """The addresses whose files name the attachment of a handle."""
        folder = load_folder_settings(self.context.netconf)
        return Released(addresses=_addresses(_files(folder).read().files_of(handle, folder.network)))

    def probe(self, request: AssignRequest, *, deadline: Deadline) -> tuple[Family, ...]:
        """Choose addresses without holding them; the folder has to be writable, and the datastore has to answer."""
        settings = load_settings(self.context.netconf)
        range_sets = self._range_sets(settings, request.node, deadline)
        files = _files(settings.folder)
        files.require_writable()
        folder = files.read(len(range_sets))
        ended = folder.ended_files(self.find_boot())
        chosen = reserve(folder, range_sets, Owner("", ""), _requested(request, settings), ended)
        require_ready(self.context.datastore, pace=self._pace(deadline))
        return tuple(dict.fromkeys(one.address.family for one in chosen))

    def attachments(self, *, node: str, network: str, deadline: Deadline) -> tuple[Attachment, ...]:
        """Every attachment that a file of the network names, or that still holds addresses of pools.

        All files of the folder are this node's.
        """
        folder = _files(load_folder_settings(self.context.netconf)).read()
        found = attachments(folder, self._endpoints(deadline), node=node, network=network)
        of_pools = self._pools.attachments(node=node, network=network, deadline=deadline)
        return tuple(sorted((*found, *of_pools)))

    def forward(self, *, deadline: Deadline) -> None:
        """Nothing: the files say everything."""

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _pools(self) -> BlockIPAM:
        """The IPAM that the node may have had before."""
        context = self.context
        return BlockIPAM(datastore=context.datastore, clock=context.clock, chance=context.chance)

    def _range_sets(self, settings: HostLocalSettings, node: str, deadline: Deadline) -> tuple[RangeSet, ...]:
        pod_cidrs = self._pod_cidrs(node, deadline) if settings.uses_pod_cidrs else ()
        made = make_range_sets(settings, node, pod_cidrs)
        if negotiate_version(settings.version).result_format is ResultFormat.PER_FAMILY:
            require_one_set_per_family(settings, made)
        return made

    def _pod_cidrs(self, node: str, deadline: Deadline) -> tuple[Prefix, ...]:
        if self.context.find_node is None:
            accepted = "usePodCidr needs access to the Kubernetes API; set it, or name a CIDR in ipam"
            raise ConfigurationError("network configuration.kubernetes.kubeconfig", None, accepted)
        found = self.context.find_node(node, deadline)
        if found is None:
            raise Unavailable(f"node {node}", "the cluster has no node of that name, so it has no podCidr")
        return found.pod_cidrs

    def _make_files(
        self, files: NetworkFiles, range_sets: tuple[RangeSet, ...], owner: Owner, requested: tuple[Address, ...]
    ) -> tuple[Reservation, ...]:
        """Choose addresses and make their files, under the lock; if one cannot be made, none stays."""
        files.clean()
        folder = files.read(len(range_sets))
        boot = _note_boot(files, folder, self.find_boot())
        made = reserve(folder, range_sets, owner, requested, folder.ended_files(boot))
        with ExitStack() as undo:
            for one in made:
                if one.is_new:
                    files.remove(file.name for file in one.replaced)
                    undo.callback(files.create(one.address, owner))
                    files.note_last(one.range_set, one.address)
            undo.pop_all()
        return made

    def _take_back(self, files: NetworkFiles, owner: Owner, made: tuple[Reservation, ...]) -> None:
        """Remove the files that a failed call has made. The caller gets its own error, whatever happens here."""
        new = {one.address for one in made if one.is_new}
        if not new:
            return
        with suppress(Unavailable), files.locked(self._lock_pace(Deadline.after(self.context.clock, _CLEANUP_S))):
            files.remove(one.name for one in files.read().files if one.owner == owner and one.address in new)

    def _delete_endpoint(self, endpoint: EndpointWrites) -> None:
        """Delete what a commit without an answer may have stored."""
        deadline = Deadline.after(self.context.clock, _CLEANUP_S)
        with suppress(NetplugError):  # the runtime's DEL deletes it
            settle_endpoint(self.context.datastore, endpoint, None, pace=self._pace(deadline))

    def _endpoints(self, deadline: Deadline) -> Iterator[WorkloadEndpoint]:
        """The endpoints of the cluster, where they are records. As objects of pods they go with their pods."""
        if self.context.datastore.description.endpoints is EndpointStorage.RECORDS:
            records = read_pages(self.context.datastore, WORKLOAD_ENDPOINT, deadline=deadline, malformed=[])
            yield from (record.value for record in records)

    def _pace(self, deadline: Deadline) -> Pace:
        return Pace(clock=self.context.clock, deadline=deadline, chance=self.context.chance)

    def _lock_pace(self, deadline: Deadline) -> Pace:
        return Pace(
            clock=self.context.clock,
            deadline=deadline.capped(LOCK_S),
            chance=self.context.chance,
            first_s=0.0005,
            longest_s=_LONGEST_PAUSE_S,
        )


def _files(folder: FolderSettings) -> NetworkFiles:
    return NetworkFiles(os.path.join(folder.data_folder, folder.network))


def _note_boot(files: NetworkFiles, folder: NetworkFolder, boot: Boot | None) -> Boot | None:
    """Note, once in a boot, which files are older than it; None if that is not known.

    Without the note it would be judged anew at each call, and a clock that is set forward would make files of running
    containers look older than the boot.
    """
    if boot is None:
        return None
    record = folder.record_of(boot)
    return boot if record == folder.boot_record or files.note_boot(record) else None


def _owner_of(request: AssignRequest) -> Owner:
    attributes = dict(request.owner)
    return Owner(attributes.get("container", ""), attributes.get("interface", ""))


def _requested(request: AssignRequest, settings: HostLocalSettings) -> tuple[Address, ...]:
    """The addresses that are asked for: that of CNI_ARGS, and those of the configuration."""
    specific = (wanted.address for wanted in request.wanted if isinstance(wanted, Specific))
    return tuple(dict.fromkeys((*specific, *settings.requested)))


def _addresses(files: tuple[AddressFile, ...]) -> tuple[Address, ...]:
    return tuple(sorted({one.address for one in files}))
