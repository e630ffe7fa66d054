"""The folder of endpoint status files: the node process writes them, and an ADD waits for its own.

Every file is replaced as a whole, so that a reader finds an old one or a new one. What stands there beside the wanted
files is removed, and what is damaged or gone is restored.

The kernel reports a change of the folder (inotify(7)). Where it does not, because the folder is missing or
the kernel has no more watches for this user, a wait ends after its pause, and the caller looks again.

Loaded only by what writes such files or waits for one.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from attrs import define, field, frozen

from netplug_backends.host.atomic_files import (
    FOLDER_MODE,
    OPEN_FILE_MODE,
    Folder,
    is_unfinished,
    make_folder,
    open_folder,
    read_file,
)
from netplug_core.errors import NetplugError
from netplug_core.workload import BOOT_ID_FILE, EndpointStatus, parse_status, render_status

__all__ = ["EndpointStatusFolder", "FolderChanges", "StatusChanges", "read_boot_id", "watch_folder"]

_MAX_BYTES = 1 << 16
_CREATE, _MOVED_TO, _CLOSE_WRITE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x80, 0x8, 0x400, 0x800
_ONLY_FOLDERS = 0x01000000
_EVENTS = _CREATE | _MOVED_TO | _CLOSE_WRITE | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_EVENTS_BYTES = 1 << 14
_EVENT = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name


def read_boot_id() -> str:
    """The id of this boot of the machine.

    Raises:
        OSError: the kernel does not say.
    """
    return read_file(BOOT_ID_FILE).decode("ascii").strip()


# --- writing ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class StatusChanges:
    """What was changed in a folder: the names of written and removed files, and of what could not be, with the cause.

    A name of a problem is empty if it concerns the folder.
    """

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[tuple[str, OSError], ...] = ()


@frozen
class EndpointStatusFolder:
    """The status files of this node, in a folder that only the node process writes."""

    path: str

    def make_equal(self, wanted: Mapping[str, EndpointStatus]) -> StatusChanges:
        """Let the folder have exactly these files, by their names. One that says the same already is not written.

        What cannot be written or removed is named, and keeps nothing else from being done.
        """
        try:
            make_folder(self.path, FOLDER_MODE)
            with open_folder(self.path) as folder:
                return _make_equal(folder, wanted)
        except OSError as error:
            return StatusChanges(problems=(("", error),))


def _make_equal(folder: Folder, wanted: Mapping[str, EndpointStatus]) -> StatusChanges:
    folder.remove_leftovers()
    written, removed, problems = list[str](), list[str](), list[tuple[str, OSError]]()
    for name in folder.names():
        if name in wanted or is_unfinished(name):
            continue
        try:
            removed += [name] * folder.remove(name)
        except OSError as error:
            problems.append((name, error))
    for name, status in sorted(wanted.items()):
        found = _find_status(folder, name)
        if found is not None and found.says_the_same(status):
            continue
        try:
            folder.replace(name, render_status(status), OPEN_FILE_MODE)
            written.append(name)
        except OSError as error:
            problems.append((name, error))
    return StatusChanges(written=tuple(written), removed=tuple(removed), problems=tuple(problems))


def _find_status(folder: Folder, name: str) -> EndpointStatus | None:
    """What a file says; None if it is missing or damaged."""
    try:
        return parse_status(folder.read(name, _MAX_BYTES).content.decode())
    except (OSError, UnicodeDecodeError, NetplugError):
        return None


# --- waiting ---------------------------------------------------------------------------------------------------------


@define
class FolderChanges:
    """The changes of a folder from the time when this was made; ``is_watched``: the kernel reports them."""

    path: str
    _descriptor: int | None = field(default=None, init=False)

    @property
    def is_watched(self) -> bool:
        """Whether a change ends a wait at once."""
        return self._descriptor is not None

    def arm(self) -> None:
        """Watch from now on, if that is possible."""
        if self._descriptor is None:
            self._descriptor = _watch(self.path)

    def wait(self, seconds: float) -> None:
        """Return when something has changed, or after that time. Then the caller looks, whatever the reason was."""
        if self._descriptor is None:
            time.sleep(seconds)
            self.arm()  # the folder may be there now
            return
        readable = select.poll()  # not select(2), which a process with many files cannot use
        readable.register(self._descriptor, select.POLLIN)
        if readable.poll(seconds * 1000) and _has_ended(self._descriptor):
            self.close()  # what is watched is no longer the folder of that path

    def close(self) -> None:
        """Watch no more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def watch_folder(path: str) -> Iterator[FolderChanges]:
    """The changes of a folder from now on: what the caller finds after this was there, or ends a wait."""
    changes = FolderChanges(path)
    changes.arm()
    try:
        yield changes
    finally:
        changes.close()


def _watch(path: str) -> int | None:
    """A descriptor that is readable when the folder has changed; None if it cannot be watched."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _EVENTS) < 0:
        os.close(descriptor)
        return None
    return descriptor


def _has_ended(descriptor: int) -> bool:
    """Read what was reported; whether the folder itself is gone, or is called otherwise."""
    events, at, masks = os.read(descriptor, _EVENTS_BYTES), 0, 0
    while at < len(events):  # after each stands a name
        _number, mask, _cookie, length = _EVENT.unpack_from(events, at)
        masks |= mask
        at += _EVENT.size + length
    return bool(masks & (_DELETE_SELF | _MOVE_SELF))
