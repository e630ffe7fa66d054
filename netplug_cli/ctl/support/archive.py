"""Packs a bundle into one archive. ``ctl.private_files`` writes it."""

from __future__ import annotations

import gzip
import io
import tarfile

from netplug_core.support.bundle import Bundle

__all__ = ["pack"]

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
