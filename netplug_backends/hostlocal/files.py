"""The files of one network's folder, and its lock. ``netplug_core.ipam.hostlocal.folder`` says what they mean.

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
from contextlib import contextmanager, suppress

from attrs import frozen

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, Folder, make_folder, open_folder, read_file
from netplug_core.addressing import Address
from netplug_core.clock import Pace
from netplug_core.errors import Unavailable
from netplug_core.ipam.hostlocal.folder import (
    BOOT_FILE,
    LOCK_FILE,
    TEMPORARY_PREFIX,
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

__all__ = ["NetworkFiles", "current_boot"]

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
