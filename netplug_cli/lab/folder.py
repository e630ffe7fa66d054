"""Where a lab keeps everything: one folder of its own, with a lock on it and a record in it.

The record is written before what it speaks of is made, so that whoever finds the folder can remove all of it. The lock
is the kernel's, on the folder itself; plugins that a command starts inherit it, so that a command that was killed still
holds it while a plugin of its is at work.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from attrs import define

from netplug_cli.lab.model import Lab, LabError
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.record import parse_lab, render_lab
from netplug_core.clock import Clock, Deadline

__all__ = ["LockMode", "LockedFolder", "default_folder", "find_lab", "is_present", "lock_folder", "lock_new_folder"]

_LOCK_TIMEOUT_S = 90.0
_POLL_S = 0.05


@define
class LockedFolder:
    """A folder that is locked, and so this command's alone. ``descriptor`` is for the plugins to inherit."""

    folder: LabFolder
    descriptor: int

    def write_lab(self, lab: Lab) -> None:
        """Write the record down, whole or not at all, and to the disk before anything it speaks of is made."""
        half = self.folder.partial_record_file
        with open(half, "w", encoding="utf-8") as file:
            file.write(render_lab(lab))
            file.flush()
            os.fsync(file.fileno())
        os.rename(half, self.folder.record_file)

    def make_subfolders(self) -> None:
        """Make the folders inside."""
        for part in self.folder.subfolders:
            os.mkdir(part, 0o755)

    def clear(self) -> tuple[str, ...]:
        """Remove everything of the lab, the record last; what is not the lab's stays and is named."""
        for part in self.folder.subfolders:
            with suppress(FileNotFoundError):
                shutil.rmtree(part)
        for file in (self.folder.partial_record_file, self.folder.record_file):
            with suppress(FileNotFoundError):
                os.unlink(file)
        return tuple(sorted(os.listdir(self.folder.path)))

    def remove(self) -> tuple[str, ...]:
        """The same, and then the folder."""
        left = self.clear()
        try:
            os.rmdir(self.folder.path)
        except OSError as error:
            # EBUSY: somebody mounted a file system here, and the empty folder is theirs.
            if error.errno not in {errno.ENOTEMPTY, errno.EBUSY}:
                raise
        return left


class LockMode(enum.Enum):
    """Whether a command needs the folder for itself."""

    EXCLUSIVE = fcntl.LOCK_EX
    SHARED = fcntl.LOCK_SH


def is_present(folder: LabFolder) -> bool:
    """Whether the folder exists and is ours."""
    try:
        found = os.lstat(folder.path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def find_lab(folder: LabFolder) -> Lab | None:
    """The lab that the folder holds; None when it is empty.

    Raises:
        LabError: it holds something else.
    """
    try:
        with open(folder.record_file, encoding="utf-8") as file:
            return parse_lab(file.read(), folder.record_file)
    except FileNotFoundError:
        others = sorted(set(os.listdir(folder.path)) - {os.path.basename(folder.partial_record_file)})
    if others:
        raise LabError(f"{folder.path} holds no lab but {', '.join(others)}; choose another folder with --dir")
    return None


def default_folder(name: str, environ: Mapping[str, str]) -> LabFolder:
    """Where a lab of that name is, or where a new one goes when it is nowhere: the first place that can be written."""
    # Not the tempfile module's folder: it finds that by writing a file, which a kill could leave there.
    candidates = ("/run", environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR") or "/tmp")  # noqa: S108 - owner checked
    bases = [os.path.realpath(base) for base in candidates if base]
    folders = [LabFolder(os.path.join(base, f"netplug-{name}")) for base in bases]
    writable = [folder for folder, base in zip(folders, bases, strict=True) if os.access(base, os.W_OK)]
    there = [folder for folder in folders if is_present(folder)]
    return next(iter((*there, *writable, *folders)))


@contextmanager
def lock_folder(
    folder: LabFolder, mode: LockMode, *, clock: Clock, report: Callable[[str], None]
) -> Iterator[LockedFolder | None]:
    """The folder, locked until the block ends; None when it is not there.

    Raises:
        LabError: it is somebody else's, or another command does not let go of it.
    """
    deadline = Deadline.after(clock, _LOCK_TIMEOUT_S)
    while True:
        descriptor = _open(folder)
        if descriptor is None:
            yield None
            return
        try:
            _lock(descriptor, mode, folder, deadline, report)
            # Between opening and locking, the holder before us may have removed it.
            if _is_same_folder(descriptor, folder.path):
                yield LockedFolder(folder, descriptor)
                return
        finally:
            os.close(descriptor)


@contextmanager
def lock_new_folder(folder: LabFolder, *, clock: Clock, report: Callable[[str], None]) -> Iterator[LockedFolder]:
    """The folder, made if it is not there, locked until the block ends.

    Raises:
        LabError: it cannot be made, or as for :func:`claimed`.
    """
    while True:
        try:
            os.mkdir(folder.path, 0o700)
        except FileExistsError:
            pass  # whose it is, and whether it is a lab at all, is judged under its lock
        except OSError as error:
            raise LabError(f"{folder.path} cannot be made: {error.strerror}; choose a folder with --dir") from error
        with lock_folder(folder, LockMode.EXCLUSIVE, clock=clock, report=report) as held:
            if held is not None:
                yield held
                return


def _open(folder: LabFolder) -> int | None:
    try:
        descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{folder.path}: {error.strerror}; choose another folder with --dir") from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise LabError(f"{folder.path} belongs to another user; choose another folder with --dir")
    return descriptor


def _lock(
    descriptor: int, mode: LockMode, folder: LabFolder, deadline: Deadline, report: Callable[[str], None]
) -> None:
    has_said = False
    while True:
        try:
            fcntl.flock(descriptor, mode.value | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline.has_passed:
                raise LabError(
                    f"{folder.path}: another command has been at work there for {_LOCK_TIMEOUT_S:g} s"
                ) from None
            if not has_said:
                report(f"another command is at work in {folder.path}: waiting for it to end")
            has_said = True
            deadline.clock.sleep(_POLL_S)
        else:
            return


def _is_same_folder(descriptor: int, path: str) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
