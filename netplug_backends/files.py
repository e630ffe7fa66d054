"""Folders and files with explicit modes, whatever the umask of the process is.

No backend: backends and executables make what stays on a host with these functions. Under the umask of a caller a
folder could be open to everybody (0), or closed to those who need it (077).
"""

from __future__ import annotations

import os

__all__ = [
    "FOLDER_MODE",
    "OPEN_FILE_MODE",
    "PRIVATE_FILE_MODE",
    "PRIVATE_FOLDER_MODE",
    "make_folder",
    "open_file",
    "sync_folder",
    "write_file",
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


def write_file(path: str, text: str, mode: int, *, is_synced: bool = False) -> None:
    """Replace the content and the mode of a file, which is created if it does not exist.

    ``is_synced``: the content is on the disk when this returns.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        if is_synced:
            file.flush()
            os.fsync(descriptor)


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
