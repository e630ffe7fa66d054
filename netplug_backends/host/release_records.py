"""The files of release records: a folder for each store, in it a file for each attachment.

::

    locations/LOCATION       a symbolic link to the folder of the store that a location leads to
    stores/STORE/NAME.json   a record; while no store is known for a location, its folder is called as the location
    stores/STORE/NAME.damaged
    orphaned/STORE/…         what could not be done for 30 days
    layout, reported         whether records of earlier releases were taken over; when the last report was made

A record is moved by renaming it, from the folder of a location to that of a store and never back. So it is at one path
at any time, and a reader that looks into the first folder first finds it. Writers and those who rename hold a lock of
the whole folder for moments (flock(2)). A call that does not get it goes on, and looks again whether it wrote to the
right location.

``netplug_core.flows.cni.release_records`` decides what is written, replayed and put away.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from attrs import define

from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    find_file,
    make_folder,
    open_folder,
    remove_leftovers,
)
from netplug_core.flows.world import RecordCounts

__all__ = ["ReleaseRecordFolder"]

_RECORD, _DAMAGED, _UNFINISHED = ".json", ".damaged", ".tmp"
_FORMER = "former"  # the folder of damaged records of earlier releases, of which no store is known
_LAYOUT = "2\n"
_LOCK_S, _LOOK_S = 2.0, 0.005
_ATTEMPTS = 8


@define
class ReleaseRecordFolder:
    """See :class:`~netplug_core.flows.world.RecordFiles`. The folder is made with the first record."""

    folder: str

    def path(self, location: str, attachment: str) -> str:
        """See :class:`~netplug_core.flows.world.RecordFiles`, as all other methods."""
        return f"{self._stores}/{self._target(location) or location}/{attachment}{_RECORD}"

    def find(self, location: str, attachment: str) -> str | None:
        """The text of a record."""
        name = f"{attachment}{_RECORD}"
        former = f"{self._stores}/{location}/{name}"
        # From here records go to the other folder only. So it is looked at first; nothing is opened for that.
        text = _find_text(former) if os.path.lexists(former) else None
        return _find_text(f"{self._locations}/{location}/{name}") if text is None else text

    def names(self, location: str) -> tuple[str, ...]:
        """The attachments that have a record."""
        found: dict[str, int] = {}
        for store in dict.fromkeys((location, self._target(location) or location)):
            for entry in _entries(f"{self._stores}/{store}"):
                if entry.name.endswith(_RECORD):
                    with suppress(FileNotFoundError):  # done meanwhile
                        found[entry.name.removesuffix(_RECORD)] = entry.stat(follow_symlinks=False).st_mtime_ns
        return tuple(sorted(found, key=lambda name: (found[name], name)))

    def write(self, location: str, attachment: str, text: str) -> str:
        """Write or replace a record."""
        name = f"{attachment}{_RECORD}"
        with self._locked():
            store = self._resolve(location)
            for _ in range(_ATTEMPTS):
                with suppress(FileNotFoundError):  # another process has just removed the empty folder
                    self._write(store, name, text)
                    if self._resolve(location) == store:
                        return f"{self._stores}/{store}/{name}"
                store = self._resolve(location)
        raise OSError(f"the folder of {location} is renamed again and again")

    def remove(self, location: str, attachment: str, text: str) -> None:
        """Remove a record that has this text."""
        with self._locked():
            for path in self._paths(location, f"{attachment}{_RECORD}"):
                if _find_text(path) == text:
                    _unlink(path)
                    _remove_if_empty(os.path.dirname(path))

    def set_aside(self, location: str, attachment: str, text: str | None) -> None:
        """Make a record one of the damaged ones."""
        with self._locked():
            for path in self._paths(location, f"{attachment}{_RECORD}"):
                if text is None or _find_text(path) == text:
                    _move(path, f"{path.removesuffix(_RECORD)}{_DAMAGED}")

    def find_store(self, location: str) -> str | None:
        """The store that a location leads to."""
        target = self._target(location)
        return None if target == location else target

    def has_stores(self) -> bool:
        """Whether any folder has a record."""
        return any(entry.name.endswith(_RECORD) for store in _names(self._stores) for entry in self._entries(store))

    def lead(self, location: str, store: str) -> None:
        """Let a location lead to the folder of a store."""
        former = f"{self._stores}/{location}"
        if self._target(location) == store and not os.path.isdir(former):
            return
        with self._locked():
            self._link(location, store)
            names = [name for name in _names(former) if not name.startswith(".")]
            if names:
                make_folder(f"{self._stores}/{store}", PRIVATE_FOLDER_MODE)
            for name in names:
                _move(f"{former}/{name}", f"{self._stores}/{store}/{name}")
            if names:
                _sync(f"{self._stores}/{store}")
            with suppress(FileNotFoundError):
                remove_leftovers(former)
            _remove_if_empty(former)

    # --- records of earlier releases -------------------------------------------------------------------------------

    def find_former(self, attachment: str) -> tuple[str, ...]:
        """The names of an attachment's records of the earlier form."""
        if os.path.lexists(f"{self.folder}/layout"):
            return ()
        return tuple(name for name in self.list_former() if name.endswith(f"-{attachment}{_RECORD}"))

    def list_former(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(sorted(name for name in _names(self.folder) if name.endswith(_RECORD)))

    def read_former(self, name: str) -> str | None:
        """The text of one."""
        return _find_text(f"{self.folder}/{name}")

    def adopt(self, name: str, location: str, attachment: str) -> None:
        """Move one to a location."""
        with self._locked():
            target = f"{self._stores}/{self._resolve(location)}"
            make_folder(target, PRIVATE_FOLDER_MODE)
            _move(f"{self.folder}/{name}", f"{target}/{attachment}{_RECORD}")

    def remove_former(self, name: str) -> None:
        """Remove one."""
        _unlink(f"{self.folder}/{name}")

    def set_former_aside(self, name: str) -> None:
        """Make one a damaged one."""
        target = f"{self._stores}/{_FORMER}"
        make_folder(target, PRIVATE_FOLDER_MODE)
        _move(f"{self.folder}/{name}", f"{target}/{name.removesuffix(_RECORD)}{_DAMAGED}")

    def end_takeover(self) -> None:
        """Note that there are no more."""
        if os.path.isdir(self.folder) and not os.path.lexists(f"{self.folder}/layout"):
            with open_folder(self.folder) as folder:
                folder.replace("layout", _LAYOUT, OPEN_FILE_MODE)

    # --- the folder as a whole -------------------------------------------------------------------------------------

    def count(self, locations: Collection[str]) -> RecordCounts:
        """How many records wait."""
        own, counts = self._stores_of(locations), {True: 0, False: 0}
        damaged = 0
        for store in _names(self._stores):
            for entry in self._entries(store):
                counts[store in own] += entry.name.endswith(_RECORD)
                damaged += entry.name.endswith(_DAMAGED)
        return RecordCounts(own=counts[True], foreign=counts[False], damaged=damaged)

    def orphan(self, locations: Collection[str], *, before_ns: int) -> int:
        """Put away what is old."""
        own, moved = self._stores_of(locations), 0
        for store in _names(self._stores):
            for entry in self._entries(store):
                is_foreign = entry.name.endswith(_RECORD) and store not in own
                if (is_foreign or entry.name.endswith(_DAMAGED)) and _is_older(entry.path, before_ns):
                    make_folder(f"{self.folder}/orphaned/{store}", PRIVATE_FOLDER_MODE)
                    _move(entry.path, f"{self.folder}/orphaned/{store}/{entry.name}")
                    moved += 1
            remove_leftovers(f"{self._stores}/{store}")
            _remove_if_empty(f"{self._stores}/{store}")
        remove_leftovers(self.folder)
        for name in _names(self.folder):
            if name.endswith(_UNFINISHED) and _is_older(f"{self.folder}/{name}", before_ns):
                _unlink(f"{self.folder}/{name}")  # of a writer of an earlier release that was killed
        return moved

    def find_report_ns(self) -> int | None:
        """When the last report was made."""
        text = _find_text(f"{self.folder}/reported") or ""
        return int(text) if text.strip().isascii() and text.strip().isdigit() else None

    def note_report(self, now_ns: int) -> None:
        """Note that one is made."""
        with open_folder(self.folder) as folder:
            folder.replace("reported", f"{now_ns}\n", OPEN_FILE_MODE)

    # --- parts -----------------------------------------------------------------------------------------------------

    @property
    def _stores(self) -> str:
        return f"{self.folder}/stores"

    @property
    def _locations(self) -> str:
        return f"{self.folder}/locations"

    def _entries(self, store: str) -> tuple[os.DirEntry[str], ...]:
        return _entries(f"{self._stores}/{store}")

    def _target(self, location: str) -> str | None:
        """The name of the folder that a location leads to; None if there is no link."""
        try:
            return os.path.basename(os.readlink(f"{self._locations}/{location}"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _stores_of(self, locations: Collection[str]) -> frozenset[str]:
        return frozenset((*locations, *(self._target(location) or location for location in locations)))

    def _paths(self, location: str, name: str) -> tuple[str, ...]:
        """Where a record may be, in the order in which it is moved."""
        stores = dict.fromkeys((location, self._target(location) or location))
        return tuple(f"{self._stores}/{store}/{name}" for store in stores)

    def _resolve(self, location: str) -> str:
        """The name of the folder that a location leads to, which may have to be made."""
        target = self._target(location)
        if target is None:
            self._link(location, location)
            target = self._target(location) or location
        return target

    def _link(self, location: str, store: str) -> None:
        if self._target(location) == store:
            return
        for path in (self.folder, self._stores, self._locations):
            make_folder(os.path.dirname(path))
            make_folder(path, PRIVATE_FOLDER_MODE)
        with open_folder(self._locations) as locations:
            locations.remove_leftovers()  # this process has the lock, so no process is at a link
            locations.link(location, f"../stores/{store}")

    def _write(self, store: str, name: str, text: str) -> None:
        make_folder(f"{self._stores}/{store}", PRIVATE_FOLDER_MODE)
        with open_folder(f"{self._stores}/{store}") as folder:
            folder.replace(name, text, PRIVATE_FILE_MODE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from the folder for a moment, or go on after a while: one of them may have stopped."""
        make_folder(os.path.dirname(self.folder))
        make_folder(self.folder, PRIVATE_FOLDER_MODE)
        with open_folder(self.folder) as folder:
            until = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= until:
                        break
                    time.sleep(_LOOK_S)
                except OSError:
                    break  # this file system has no locks
                else:
                    break
            yield


def _find_text(path: str) -> str | None:
    try:
        content = find_file(path)
    except NotADirectoryError:  # the whole folder cannot be: no record was ever written
        content = None
    return None if content is None else content.decode(errors="replace")


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def _entries(path: str) -> tuple[os.DirEntry[str], ...]:
    try:
        with os.scandir(path) as found:
            return tuple(found)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _is_older(path: str, before_ns: int) -> bool:
    try:
        return os.lstat(path).st_mtime_ns < before_ns
    except FileNotFoundError:
        return False


def _move(source: str, target: str) -> None:
    """Rename a file; another process may have moved it."""
    with suppress(FileNotFoundError):
        os.rename(source, target)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_if_empty(path: str) -> None:
    with suppress(OSError):  # it has another record, or is gone
        os.rmdir(path)


def _sync(path: str) -> None:
    with open_folder(path) as folder:
        folder.sync()
