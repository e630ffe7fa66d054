"""Puts files onto a host, each whole or not at all, and not again if it is as it shall be. The installer uses it.

``atomic_files`` writes them: under a name that no container runtime reads, synced and renamed, with an explicit
mode. An executable that runs can be replaced so.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress

from netplug_backends.host import atomic_files
from netplug_backends.host.atomic_files import (
    MAX_PROGRAM_BYTES,
    PROGRAM_MODE,
    NotRegular,
    TooLarge,
    make_folder,
    open_folder,
    read_file,
    replace_file,
)

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

_NEW = ".new"


def place_file(path: str, content: bytes, mode: int, folder_mode: int = 0o755) -> bool:
    """Give a file this content and mode; whether something was done. A missing folder is made with its mode.

    Raises:
        OSError: it cannot be written; what was there is unharmed.
    """
    remove_leftover(path)
    if _is_same(path, content, mode):
        return False
    make_folder(os.path.dirname(path), folder_mode)
    replace_file(path, content, mode)
    return True


def place_copy(source: str, path: str, *, keeps: bool) -> bool:
    """Copy a program; whether something was done. ``keeps``: one that is there stays as it is.

    Raises:
        OSError: it cannot be read or written.
    """
    if keeps and os.path.lexists(path):
        return False
    return place_file(path, read_file(source, MAX_PROGRAM_BYTES), PROGRAM_MODE)


def place_link(path: str, target: str) -> bool:
    """Make a path a symbolic link to a target; whether something was done.

    Raises:
        OSError: it cannot be made; what was there is unharmed.
    """
    with suppress(OSError):  # it is missing, or no link
        if os.readlink(path) == target:
            return False
    remove_leftover(path)
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        opened.link(name, target)
    return True


def remove_file(path: str) -> bool:
    """Remove a file or link, and what the death of a process that wrote it has left; whether it was there.

    Raises:
        OSError: it cannot be removed.
    """
    remove_leftover(path)
    return atomic_files.remove_file(path)


def remove_leftover(path: str) -> None:
    """Remove what the death of a process that wrote a file has left beside it.

    Raises:
        OSError: it cannot be removed.
    """
    folder, name = os.path.split(path)
    atomic_files.remove_leftovers(folder)
    if _is_file_or_link(former := _former_temporary(folder, name)):
        atomic_files.remove_file(former)


def remove_leftovers(folder: str) -> None:
    """Remove what the death of a process has left in a folder of ours: files, links and folders with another's name.

    Raises:
        OSError: one cannot be removed.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    atomic_files.remove_leftovers(folder)
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith(".") and name.endswith(_NEW):
            remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else atomic_files.remove_file(path)


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
    gone = path if name.startswith(".") else _former_temporary(folder, name)
    if gone != path:
        remove_tree(gone)
        os.rename(path, gone)
    shutil.rmtree(gone)


def _is_same(path: str, content: bytes, mode: int) -> bool:
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != mode or status.st_size != len(content):
            return False
        return read_file(path, len(content)) == content
    except (FileNotFoundError, NotRegular, TooLarge):  # missing, or changed meanwhile
        return False


def _is_file_or_link(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _former_temporary(folder: str, name: str) -> str:
    """The name under which earlier releases wrote a file, and under which a folder waits for its removal."""
    return os.path.join(folder, f".{name}{_NEW}")
