"""Refuses an installing environment that a user other than root may write. ``netplugctl install host`` calls it.

A runtime executes the installed programs as root, and they load the installing environment. So a user who may write its
interpreter, its libraries or a folder above them has all rights of root with the next pod.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from netplug_core.errors import ConfigurationError, Unavailable

__all__ = ["Environment", "installing_environment", "remove_open_caches", "require_trusted"]

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CACHE = "__pycache__"
# Folders of other libraries inside the standard library; the executables do not search them.
_NOT_SEARCHED = frozenset({"site-packages", "dist-packages"})


@frozen(kw_only=True)
class Environment:
    """What an executable loads: its interpreter, the settings beside it, and everything in the libraries' folders."""

    interpreter: str
    settings: tuple[str, ...]
    libraries: tuple[str, ...]


def installing_environment(libraries: Iterable[str]) -> Environment:
    """The environment of this process, with the folders of the libraries that the executables name."""
    folder = os.path.dirname(sys.executable)
    return Environment(
        interpreter=sys.executable,
        settings=tuple(os.path.join(place, "pyvenv.cfg") for place in (folder, os.path.dirname(folder))),
        libraries=(sysconfig.get_path("stdlib"), *libraries),
    )


def require_trusted(environment: Environment) -> None:
    """Return if only root may write everything that the executables load, and every folder above it.

    Raises:
        ConfigurationError: another user may write a file or folder; the text names it, its owner and its mode.
        Unavailable: this process may not look at one.
    """
    try:
        _require_trusted(environment)
    except OSError as error:
        raise Unavailable(str(error.filename), error.strerror or str(error)) from error


def _require_trusted(environment: Environment) -> None:
    # The folder, too, where a file of settings is looked for and is missing.
    for path in (environment.interpreter, *environment.settings, *map(os.path.dirname, environment.settings)):
        if os.path.lexists(path):
            _require_closed_way(path)
    for library in environment.libraries:
        _require_closed_way(library)
        for path in _files_below(os.path.realpath(library)):
            with suppress(FileNotFoundError):  # bytecode that another process replaces, or a link to nothing
                _require_closed_way(path) if os.path.islink(path) else _require_closed(path)


def remove_open_caches(packages: Iterable[str]) -> None:
    """Remove the bytecode of packages from folders that a user other than root may write: it is compiled again.

    A Python that is started with umask 0 makes such folders.
    """
    for package in packages:
        for folder in list(Path(package).rglob(_CACHE)):
            if _is_open(folder.lstat()):
                with suppress(OSError):  # what stays is refused
                    shutil.rmtree(folder)


def _require_closed(path: str, *, accepted_bits: int = 0) -> None:
    status = os.lstat(path)
    if _is_open(status) and not (status.st_uid == 0 and status.st_mode & accepted_bits):
        raise ConfigurationError(
            "installing environment",
            path,
            f"it belongs to {_user_name(status.st_uid)} and has mode {stat.S_IMODE(status.st_mode):04o}, and a user "
            "who may write it becomes root with the next pod; make it root's and writable by root alone (chown root, "
            "chmod go-w), or use --trust-environment",
        )


def _require_closed_way(path: str) -> None:
    folders = list(_way(path))
    for folder in folders[:-1]:
        # In a sticky folder such as /tmp, only root can remove or rename what belongs to root.
        _require_closed(folder, accepted_bits=stat.S_ISVTX)
    _require_closed(folders[-1])


def _is_open(status: os.stat_result) -> bool:
    """Whether a user other than root may write it; a link has an owner, but no rights of its own."""
    may_others_write = not stat.S_ISLNK(status.st_mode) and status.st_mode & _OTHERS_MAY_WRITE
    return status.st_uid != 0 or bool(may_others_write)


def _way(path: str) -> Iterator[str]:
    """Every folder and link that leads to a path that exists, from the root on, and the path itself."""
    yield "/"
    current, waiting = "/", _reversed_parts(os.path.abspath(path))
    while waiting:
        name = waiting.pop()
        if name == "..":
            current = os.path.dirname(current)
            continue
        current = os.path.join(current, name)
        yield current
        if os.path.islink(current):
            target = os.readlink(current)
            current = "/" if target.startswith("/") else os.path.dirname(current)
            waiting.extend(_reversed_parts(target))


def _reversed_parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _files_below(folder: str) -> Iterator[str]:
    """Every file, folder and link below a folder from which Python may import something."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_SEARCHED:
            continue
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path)


def _user_name(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"user {number}"
