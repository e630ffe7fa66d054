"""Copies of bundles on a host: one below the folder for plugins for each build, and a link to the one in use.

    BIN_DIR/.netplug/3.33.0-1f0c2d9a4b77/   a copy, which is never changed
    BIN_DIR/.netplug/current                a link to it
    BIN_DIR/netplug-standalone              a link to .netplug/current/launch

A copy is filled under another name, synced, renamed, and executed once at its own place; only then the link changes.
So at every moment the link leads to a copy that works. A process that runs from a copy has locked it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from netplug_backends.host.atomic_files import (
    MAX_PROGRAM_BYTES,
    OPEN_FILE_MODE,
    PROGRAM_MODE,
    NotRegular,
    make_folder,
    open_to_read,
    read_file,
    sync_folder,
    sync_tree,
    write_new_file,
)
from netplug_backends.host.install import find_problem
from netplug_backends.host.placing import (
    place_link,
    remove_empty_folder,
    remove_file,
    remove_leftovers,
    remove_tree,
)
from netplug_core.errors import Unavailable
from netplug_core.installation.bundle import (
    CLIENT,
    COPIES,
    LAUNCHER,
    LOCK,
    MANIFEST,
    Bundle,
    BundleFile,
    find_place,
    parse_bundle,
)

__all__ = ["current_bundle", "install_bundle", "read_bundle", "remove_bundles", "remove_unused_bundles"]

_CURRENT = "current"
_NEW = ".new"
_MAX_MANIFEST_BYTES = 1 << 24  # a line for each of some thousand files

Report = Callable[[str], None]


def read_bundle(folder: str) -> Bundle:
    """The bundle in a folder.

    Raises:
        ConfigurationError: its manifest is damaged, or for another architecture.
        OSError: there is none.
    """
    path = os.path.join(folder, MANIFEST)
    return parse_bundle(read_file(path, _MAX_MANIFEST_BYTES), path, os.uname().machine)


def install_bundle(source: str, bundle: Bundle, bin_dir: str, report: Report) -> None:
    """Copy a bundle into a folder for plugins, execute it there, and let the link lead to it.

    Raises:
        Unavailable: it does not run.
        OSError: it cannot be read or written.
    """
    folder = os.path.join(bin_dir, COPIES)
    make_folder(folder)
    remove_leftovers(folder)
    present = frozenset(_copies(folder))
    intact = {name for name in present if name.startswith(bundle.name) and _is_intact(folder, name, bundle)}
    name = find_place(bundle, present, intact)
    place = os.path.join(folder, name)
    if name not in intact:
        _copy(source, bundle, os.path.join(folder, _NEW))
        os.rename(os.path.join(folder, _NEW), place)
        sync_folder(folder)
        report(f"installed {place}")
    for program in (LAUNCHER, CLIENT):
        problem = find_problem(Path(place, program))
        if problem:
            raise Unavailable(f"{place}/{program}", f"it does not run: {problem}")
    if place_link(os.path.join(folder, _CURRENT), name):
        report(f"{folder}/{_CURRENT} leads to {name}")


def remove_unused_bundles(bin_dir: str, report: Report, *, keeps: str = "") -> None:
    """Remove copies that the link does not lead to and no process runs from. ``keeps`` is one that stays, too.

    Raises:
        OSError: one cannot be removed.
    """
    folder = os.path.join(bin_dir, COPIES)
    for name in _copies(folder):
        if name not in (current_bundle(bin_dir), keeps):
            _remove(os.path.join(folder, name), report)


def remove_bundles(bin_dir: str, report: Report) -> bool:
    """Remove every copy and the link; whether none is left. A copy stays while a process runs from it.

    Raises:
        OSError: one cannot be removed.
    """
    folder = os.path.join(bin_dir, COPIES)
    remove_file(os.path.join(folder, _CURRENT))
    remove_unused_bundles(bin_dir, report)
    remove_leftovers(folder)
    remove_empty_folder(folder)
    return not os.path.isdir(folder)


def current_bundle(bin_dir: str) -> str:
    """The name of the copy that the link leads to; empty if there is none."""
    try:
        return os.readlink(os.path.join(bin_dir, COPIES, _CURRENT))
    except FileNotFoundError:
        return ""


def _copies(folder: str) -> Iterator[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return (name for name in names if not name.startswith(".") and name != _CURRENT)


def _remove(copy: str, report: Report) -> None:
    """Remove a copy unless a process runs from it: that one has locked it (flock(2))."""
    try:
        descriptor = open_to_read(os.path.join(copy, LOCK))
    except (FileNotFoundError, NotRegular):  # damaged: nothing runs from it any more
        remove_tree(copy)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(copy)
        report(f"removed {copy}")
    except BlockingIOError:
        report(f"left, a process runs from it: {copy}")
    finally:
        os.close(descriptor)


def _is_intact(folder: str, name: str, bundle: Bundle) -> bool:
    """Whether every file of a copy is as it was built."""
    place = os.path.join(folder, name)
    try:
        return all(_digest(os.path.join(place, file.path), file.is_executable) == file.digest for file in bundle.files)
    except OSError:
        return False


def _digest(path: str, is_executable: bool) -> str:  # noqa: FBT001  # a property of the file
    """The digest of a file; empty if it may not be executed but shall, or may and shall not."""
    if bool(os.stat(path).st_mode & 0o100) != is_executable:
        return ""
    return hashlib.sha256(read_file(path, MAX_PROGRAM_BYTES)).hexdigest()


def _copy(source: str, bundle: Bundle, target: str) -> None:
    """Copy every file of a bundle, and the manifest last, and return when all of them are on the disk."""
    for file in bundle.files:
        _copy_file(source, file, target)
    _copy_file(source, BundleFile(MANIFEST, "", is_executable=False), target)
    sync_tree(target)  # after all of them are written, so that the disk can take many at once


def _copy_file(source: str, file: BundleFile, target: str) -> None:
    path = os.path.join(target, file.path)
    make_folder(os.path.dirname(path))
    content = read_file(os.path.join(source, file.path), MAX_PROGRAM_BYTES)
    write_new_file(path, content, PROGRAM_MODE if file.is_executable else OPEN_FILE_MODE)
    if file.digest and hashlib.sha256(content).hexdigest() != file.digest:
        raise Unavailable(os.path.join(source, file.path), "it differs from the manifest; the image is damaged")
