"""This process with another umask, and the modes of what was made under it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["UMASKS", "modes_below", "under_umask"]

UMASKS = (0, 0o022, 0o077)
"""One that closes nothing, the usual one, and one that keeps everything from others."""


@contextmanager
def under_umask(umask: int) -> Iterator[None]:
    """The umask, until the block ends."""
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def modes_below(folder: Path) -> dict[str, int]:
    """The mode of every file and folder below a folder, by its path from there."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
