"""Writes a file that a person named: whole or not at all, for its owner alone, and over no file without being asked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress

from netplug_cli.ctl.errors import InputError

__all__ = ["require_free", "write_private_file"]


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
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # A name that cannot be guessed, in a file that is new: in /tmp others may have put a link there.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error
    try:
        with open(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(descriptor)
        if is_replacing:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # refuses a name that is taken, also one that was taken meanwhile
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _taken(path: str) -> InputError:
    return InputError(path, path, "there is such a file; name another one, or use --overwrite")
