"""Writes a bundle as one archive: whole or not at all, for its owner alone, and over no file without being asked."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from contextlib import suppress

from netplug_cli.ctl.errors import InputError
from netplug_core.support.bundle import Bundle

__all__ = ["pack", "refusal", "write_archive"]

_MODE = 0o600


def pack(bundle: Bundle, folder: str, time_s: int) -> bytes:
    """The archive of a bundle, gzipped, whose files are in one folder. Its time is in seconds since the epoch."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in bundle.files:
            entry = tarfile.TarInfo(f"{folder}/{file.path}")
            entry.size, entry.mtime, entry.mode = len(file.content), time_s, _MODE
            archive.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()


def write_archive(path: str, content: bytes, *, is_replacing: bool) -> None:
    """Write a file that is whole and on the disk, with mode 0600.

    Raises:
        InputError: a file has that name and is not to be replaced, or it cannot be written; nothing is left behind.
    """
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # A name that cannot be guessed, in a file that is new: in /tmp others may have put a link there.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        if is_replacing:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # refuses a name that is taken, also one that was taken meanwhile
    except FileExistsError as error:
        raise refusal(path) from error
    except OSError as error:
        raise InputError(path, path, error.strerror or str(error)) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def refusal(path: str) -> InputError:
    """The error about a file that exists."""
    return InputError(path, path, "there is such a file; name another one, or use --overwrite")
