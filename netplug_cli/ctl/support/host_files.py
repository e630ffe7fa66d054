"""Reads files of this machine for a bundle: regular ones only, and no more of each than a limit."""

from __future__ import annotations

import os
import stat

from attrs import field, frozen

__all__ = ["FileContent", "NotRegular", "read_bytes"]


class NotRegular(OSError):
    """A file that cannot be read like one: a folder, a device, or a pipe on which a reader could wait for ever."""


@frozen(kw_only=True)
class FileContent:
    """The beginning or the end of a file, and the size of all of it, in bytes."""

    content: bytes = field(repr=False)
    size: int


def read_bytes(path: str, limit: int, *, is_end: bool = False) -> FileContent:
    """At most so many bytes of a file: its first, or its last.

    Raises:
        OSError: it cannot be read, or is not regular.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotRegular(None, "not a regular file", path)
        if is_end and found.st_size > limit:
            file.seek(-limit, os.SEEK_END)
        return FileContent(content=file.read(limit), size=found.st_size)
