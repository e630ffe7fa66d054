"""Writes a file that a person named: whole or not at all. One with secrets replaces nothing without being asked."""

from __future__ import annotations

import os
from collections.abc import Iterable

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, PRIVATE_FILE_MODE, create_file, replace_file
from netplug_cli.ctl.errors import InputError

__all__ = ["find_target", "require_free", "write_open_file", "write_private_file"]


def require_free(path: str, *, is_replacing: bool) -> None:
    """Refuse a name that is taken before any work is done.

    Raises:
        InputError: something has that name, and is not to be replaced or is no file.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # os.replace would put a file in the place of a device
        raise InputError(path, path, "Is a directory" if os.path.isdir(path) else "it is not a file")
    if os.path.lexists(path) and not is_replacing:
        raise _taken(path)


def write_private_file(path: str, content: Iterable[bytes], *, is_replacing: bool) -> None:
    """Write a file that is whole and on the disk, with mode 0600.

    Raises:
        InputError: a file has that name and is not to be replaced, or it cannot be written; nothing is left behind.
    """
    require_free(path, is_replacing=is_replacing)
    write = replace_file if is_replacing else create_file  # the second refuses a name that was taken meanwhile, too
    try:
        write(path, content, PRIVATE_FILE_MODE)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error


def find_target(path: str) -> str:
    """The file to which a path leads, over links: it is replaced, and a link stays one.

    Raises:
        InputError: the path leads to something that is no file, such as a device.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(path, None, "it is not a file")
    return target


def write_open_file(path: str, text: str) -> None:
    """Write a file that everybody may read, in the place of one that is there.

    Raises:
        InputError: the path leads to no file, or it cannot be written; nothing is left behind.
    """
    try:
        replace_file(find_target(path), text, OPEN_FILE_MODE)
    except OSError as error:
        raise InputError(path, None, error.strerror or str(error)) from error


def _taken(path: str) -> InputError:
    return InputError(path, path, "there is such a file; name another one, or use --overwrite")
