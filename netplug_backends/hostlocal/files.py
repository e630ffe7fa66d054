"""The files of one network's folder, and its lock. ``netplug_core.ipam.hostlocal.folder`` says what they mean.

An address file is written under another name and then linked to its own. The link fails if the name exists, and the
file is complete from the first moment, so a process that is killed never leaves an address whose holder is unknown.

Nothing is synchronised to the disk (fsync). A file says that a container of this boot has an address. After a loss of
power that container does not run, so a lost file frees what is free, and a file that came back is older than the boot
and may be taken over.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from attrs import frozen

from netplug_backends.host.atomic_files import PRIVATE_FILE_MODE, create_file, make_folder, open_file, replace_file
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

_MAX_SIZE = 4096  # a container id and an interface are far shorter
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
            descriptor = open_file(self._file(LOCK_FILE), os.O_RDONLY, PRIVATE_FILE_MODE)
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
        with self._translated():
            try:
                names = os.listdir(self.path)
            except FileNotFoundError:
                return NetworkFolder()
            files = [one for name in sorted(names) if (one := self._find_address_file(name)) is not None]
            last = {number: self._find_text(last_reserved_file(number)) for number in range(range_sets)}
            found = {number: find_address(text.strip()) for number, text in last.items()}
            return NetworkFolder(
                files=tuple(files),
                last_reserved={number: address for number, address in found.items() if address is not None},
                boot_record=parse_boot_record(self._find_text(BOOT_FILE)),
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
        with self._translated():
            for name in os.listdir(self.path):
                if name.startswith(TEMPORARY_PREFIX):
                    self._unlink(name)

    def create(self, address: Address, owner: Owner) -> Callable[[], None]:
        """Make the file of an address; what is returned removes it again.

        Raises:
            Unavailable: the file exists; a program that does not take the lock has just made it.
        """
        name = str(address)
        with self._translated():
            create_file(self._file(name), owner.render(), PRIVATE_FILE_MODE)
        return lambda: self.remove((name,))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        with self._translated():
            for name in names:
                self._unlink(name)

    def note_last(self, range_set: int, address: Address) -> None:
        """Note the address that a range set gave last."""
        with self._translated():
            replace_file(self._file(last_reserved_file(range_set)), str(address), PRIVATE_FILE_MODE)

    def note_boot(self, record: BootRecord) -> None:
        """Note which files are older than the boot, all at once."""
        with self._translated():
            replace_file(self._file(BOOT_FILE), record.render(), PRIVATE_FILE_MODE)

    # --- single files -----------------------------------------------------------------------------------------------

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._file(name))

    def _try_lock(self, descriptor: int) -> bool:
        with self._translated():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def _find_address_file(self, name: str) -> AddressFile | None:
        """The address that a name holds; a file that cannot be read holds it too."""
        address = find_address(name)
        if address is None:
            return None
        text, modified_ns = "", 0
        try:
            text, modified_ns = self._read_file(name)
        except FileNotFoundError:  # released since the folder was listed
            return None
        except (OSError, UnicodeError):  # a folder, a link, no right, no text: the container is unknown
            pass
        return AddressFile(name, address, parse_owner(text), modified_ns)

    def _find_text(self, name: str) -> str:
        try:
            return self._read_file(name)[0]
        except (OSError, UnicodeError):  # a hint that is missing or damaged is none
            return ""

    def _read_file(self, name: str) -> tuple[str, int]:
        """Text and time of change of a plain file; no other is opened for long, as a pipe would never answer."""
        descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return "", 0
            size = found.st_size if name == BOOT_FILE else _MAX_SIZE
            return os.read(descriptor, size).decode(), found.st_mtime_ns
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"host-local folder {self.path}", str(error)) from error


def current_boot() -> Boot | None:
    """The boot of this host; None if the kernel does not name it."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot_id = file.read().strip()
    except OSError:
        return None
    return Boot(boot_id, time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME))
