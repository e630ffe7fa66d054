"""Puts files onto a host, each whole or not at all, and not again if it is as it shall be. The installer uses it.

A file is written under a name that no container runtime reads, synced and renamed; an executable that runs can be
replaced so. Folders and modes are explicit, whatever the umask.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress

from netplug_backends.files import make_folder, sync_folder, write_whole

__all__ = [
    "place_copy",
    "place_file",
    "place_link",
    "remove_empty_folder",
    "remove_file",
    "remove_leftover",
    "remove_leftovers",
    "remove_tree",
]

_PROGRAM_MODE = 0o755
_NEW = ".new"


def place_file(path: str, content: bytes, mode: int, folder_mode: int = 0o755) -> bool:
    """Give a file this content and mode; whether something was done. A missing folder is made with its mode.

    Raises:
        OSError: it cannot be written; what was there is unharmed.
    """
    if _is_same(path, content, mode):
        return False
    folder, name = os.path.split(path)
    make_folder(folder, folder_mode)
    write_whole(path, content, mode, temporary=_temporary(folder, name))
    return True


def place_copy(source: str, path: str, *, keeps: bool) -> bool:
    """Copy a program; whether something was done. ``keeps``: one that is there stays as it is.

    Raises:
        OSError: it cannot be read or written.
    """
    if keeps and os.path.lexists(path):
        return False
    with open(source, "rb") as file:
        return place_file(path, file.read(), _PROGRAM_MODE)


def place_link(path: str, target: str) -> bool:
    """Make a path a symbolic link to a target; whether something was done.

    Raises:
        OSError: it cannot be made; what was there is unharmed.
    """
    with suppress(OSError):  # it is missing, or no link
        if os.readlink(path) == target:
            return False
    folder, name = os.path.split(path)
    temporary = _temporary(folder, name)
    remove_file(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)
    sync_folder(folder)
    return True


def remove_file(path: str) -> bool:
    """Remove a file or link, and what the death of a process that wrote it has left; whether it was there.

    Raises:
        OSError: it cannot be removed.
    """
    remove_leftover(path)
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove_leftover(path: str) -> None:
    """Remove what the death of a process that wrote a file has left beside it.

    Raises:
        OSError: it cannot be removed.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(_temporary(*os.path.split(path)))


def remove_leftovers(folder: str) -> None:
    """Remove what the death of a process has left in a folder of ours: files, links and folders with another's name.

    Raises:
        OSError: one cannot be removed.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(".") and name.endswith(_NEW):
            remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else remove_file(path)


def remove_empty_folder(path: str) -> bool:
    """Remove a folder if it is empty; whether it was removed.

    Raises:
        OSError: it cannot be removed.
    """
    if not os.path.isdir(path) or os.listdir(path):
        return False
    os.rmdir(path)
    return True


def remove_tree(path: str) -> None:
    """Remove a folder with everything in it, if it is there. It is renamed first, so that it is never there in part.

    Raises:
        OSError: it cannot be removed.
    """
    if not os.path.isdir(path):
        return
    folder, name = os.path.split(path)
    gone = path if name.startswith(".") else _temporary(folder, name)
    if gone != path:
        remove_tree(gone)
        os.rename(path, gone)
    shutil.rmtree(gone)


def _is_same(path: str, content: bytes, mode: int) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != mode or status.st_size != len(content):
            return False
        with open(path, "rb") as file:
            return file.read() == content
    except FileNotFoundError:
        return False


def _temporary(folder: str, name: str) -> str:
    """Runtimes load neither names with a dot in front nor with this ending."""
    return os.path.join(folder, f".{name}{_NEW}")
