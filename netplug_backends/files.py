"""Folders and files with explicit modes, whatever the umask of the process is.

No backend: backends and executables make what stays on a host with these functions. Under the umask of a caller a
folder could be open to everybody (0), or closed to those who need it (077).
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = [
    "FOLDER_MODE",
    "OPEN_FILE_MODE",
    "PRIVATE_FILE_MODE",
    "PRIVATE_FOLDER_MODE",
    "make_folder",
    "open_file",
    "sync_folder",
    "write_file",
    "write_whole",
]

FOLDER_MODE = 0o755
"""A folder: its owner writes, everybody may look."""

PRIVATE_FOLDER_MODE = 0o700
"""A folder that only its owner may look into."""

OPEN_FILE_MODE = 0o644
"""A file without secrets."""

PRIVATE_FILE_MODE = 0o600
"""A file that only its owner may read."""


def make_folder(path: str, mode: int = FOLDER_MODE) -> None:
    """Make a folder, and the missing ones above it, each with that mode. A folder that exists stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if not path or os.path.isdir(path):
        return
    make_folder(os.path.dirname(path.rstrip("/")), mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another process made it meanwhile
    os.chmod(path, mode)  # the umask may have taken bits away


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a file, which is created with that mode if it does not exist; the mode of an existing file stays.

    Raises:
        OSError: it cannot be opened.
    """
    flags |= os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:  # another process made it meanwhile, or it is a link to a file that does not exist
        return os.open(path, flags | os.O_CREAT, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def write_file(path: str, content: str | bytes, mode: int, *, is_synced: bool = False) -> None:
    """Replace the content and the mode of a file, which is created if it does not exist. Text is written as UTF-8.

    ``is_synced``: the content is on the disk when this returns.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content.encode() if isinstance(content, str) else content)
        if is_synced:
            file.flush()
            os.fsync(descriptor)


def write_whole(path: str, content: str | bytes, mode: int, *, temporary: str = "") -> None:
    """Replace a file as a whole, so that it is on the disk: it is synced, then renamed, then its folder is synced.

    ``temporary`` is the path that it is written under, in the same folder; empty: the path with ``.tmp`` behind.

    Raises:
        OSError: it cannot be written; it is not there, or may not survive a crash of the machine.
    """
    temporary = temporary or f"{path}.tmp"
    try:
        write_file(temporary, content, mode, is_synced=True)
        os.rename(temporary, path)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on the disk.

    Raises:
        OSError: they cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
