"""This host as the installer sees it: what is in its folders, and the steps of an installation or a removal on it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from attrs import define, field

from netplug_backends.host.atomic_files import (
    MAX_BYTES,
    MAX_PROGRAM_BYTES,
    PRIVATE_FOLDER_MODE,
    make_folder,
    open_folder,
    read_file,
    read_part,
)
from netplug_backends.host.executables import (
    EXECUTABLES,
    STANDALONE,
    current_bundle,
    install,
    install_bundle,
    read_bundle,
    remove_bundles,
    remove_unused_bundles,
    require_trusted_environment,
    uninstall,
)
from netplug_backends.host.placing import (
    place_copy,
    place_file,
    place_link,
    remove_empty_folder,
    remove_file,
    remove_leftover,
)
from netplug_core.errors import Unavailable
from netplug_core.installation.bundle import CLIENT, COPIES, LAUNCHER, Bundle
from netplug_core.installation.installer import CERTIFICATES, BinFolder, ConfFolder, CopyProgram, WriteFile

__all__ = ["HostFolders", "ProgramsOfBundle", "ProgramsOfEnvironment"]

_LOCK_S = 120.0
_LOCK_PAUSE_S = 0.1
_CONF_ENDINGS = (".conflist", ".conf", ".json")
_PROGRAM_MODE = 0o755

Report = Callable[[str], None]


@define(eq=False, repr=False)
class ProgramsOfBundle:
    """The executables, with an interpreter and libraries of their own, from the bundle in a folder."""

    _folder: str
    _report: Report
    _bundle: Bundle | None = field(default=None, init=False)

    def check(self) -> None:
        """Read the bundle's manifest.

        Raises:
            ConfigurationError: it is damaged, or for another architecture.
            OSError: there is none.
        """
        self._bundle = read_bundle(self._folder)

    def install(self, bin_dir: str) -> None:
        """Put the executables into a folder for plugins.

        The client comes after what it executes. The copy that was in use before stays until the next installation,
        because a call may just have begun.

        Raises:
            Unavailable: the bundle does not run on this host, or is damaged.
            OSError: something cannot be written.
        """
        bundle = self._bundle or read_bundle(self._folder)
        before = current_bundle(bin_dir)
        install_bundle(self._folder, bundle, bin_dir, self._report)
        for name in STANDALONE:
            if place_link(os.path.join(bin_dir, name), f"{COPIES}/current/{LAUNCHER}"):
                self._report(f"installed {bin_dir}/{name}")
        client = read_file(os.path.join(self._folder, CLIENT), MAX_PROGRAM_BYTES)
        for name in EXECUTABLES:
            if place_file(os.path.join(bin_dir, name), client, _PROGRAM_MODE):
                self._report(f"installed {bin_dir}/{name}")
        remove_unused_bundles(bin_dir, self._report, keeps=before)


@define(eq=False, repr=False)
class ProgramsOfEnvironment:
    """The executables that run in the environment of this process, as ``netplugctl install host`` writes them."""

    _report: Report
    _is_trusted: bool = field(kw_only=True, alias="is_trusted")

    def check(self) -> None:
        """Return if only root may write the environment, or if that is not asked for.

        Raises:
            ConfigurationError: another user may write a part of it.
        """
        if not self._is_trusted:
            require_trusted_environment()

    def install(self, bin_dir: str) -> None:
        """Put the executables into a folder for plugins.

        Raises:
            ConfigurationError, Unavailable: as for ``netplugctl install host``.
        """
        install(bin_dir, self._report)
        remove_bundles(bin_dir, self._report)


@define(eq=False, repr=False)
class HostFolders:
    """The folders for plugins and for network configurations, and what is mounted for the installer."""

    _report: Report

    @contextmanager
    def lock(self, conf_dir: str) -> Iterator[None]:
        """No other installer of this host meanwhile. The folder is made if it is missing.

        Raises:
            Unavailable: another one does not end.
            OSError: the folder cannot be made or opened.
        """
        make_folder(conf_dir)
        with open_folder(conf_dir) as folder:
            end = time.monotonic() + _LOCK_S
            while not _try_lock(folder.descriptor):
                if time.monotonic() > end:
                    raise Unavailable(conf_dir, f"another netplug-install has been at work for {_LOCK_S:.0f} s")
                time.sleep(_LOCK_PAUSE_S)
            yield

    def find_bin_folder(self, path: str) -> BinFolder:
        """A folder for plugins; one that is missing cannot be written, and nothing is in it."""
        names = frozenset(_list_folder(path))
        return BinFolder(path=path, is_writable=os.path.isdir(path) and os.access(path, os.W_OK), names=names)

    def read_conf_folder(self, path: str) -> ConfFolder:
        """The network configurations in a folder; one that cannot be read is there with an empty text.

        Raises:
            OSError: the folder cannot be read.
        """
        texts = {}
        for name in sorted(_list_folder(path)):
            if name.endswith(_CONF_ENDINGS):
                texts[name] = _find_text(os.path.join(path, name))
        return ConfFolder(path=path, texts=texts)

    def read_certificates(self, folder: str) -> Mapping[str, bytes]:
        """The certificates of etcd in a folder, by name; those that are missing are left out.

        Raises:
            OSError: one is there and cannot be read.
        """
        found = {}
        for name in CERTIFICATES:
            with suppress(FileNotFoundError):
                found[name] = read_file(os.path.join(folder, name))
        return found

    def find_stamps(self, folder: str) -> tuple[tuple[str, int, int, int], ...]:
        """What changes with the certificates in a folder: name, modification time, size and inode of each."""
        found = []
        for name in CERTIFICATES:
            with suppress(OSError):  # it is missing
                status = os.stat(os.path.join(folder, name))
                found.append((name, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def list_programs(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder that may be executed; none if it is missing."""
        names = (name for name in _list_folder(folder) if not name.startswith("."))
        return tuple(name for name in names if _is_program(os.path.join(folder, name)))

    def copy_program(self, step: CopyProgram) -> None:
        """Copy a helper plugin.

        Raises:
            OSError: it cannot be read or written.
        """
        if place_copy(step.source, step.path, keeps=step.keeps):
            self._report(f"installed {step.path}")

    def write_file(self, step: WriteFile) -> None:
        """Write a file; a folder of its own that is missing is made for its owner alone.

        Raises:
            OSError: it cannot be written.
        """
        if place_file(step.path, step.content, step.mode, PRIVATE_FOLDER_MODE):
            self._report(f"installed {step.path}")

    def remove_file(self, path: str) -> None:
        """Remove a file, and its folder if that is one of ours and empty.

        Raises:
            OSError: it cannot be removed.
        """
        if remove_file(path):
            self._report(f"removed {path}")
        folder = os.path.dirname(path)
        if os.path.basename(folder) == "netplug-tls":
            remove_empty_folder(folder)

    def remove_programs(self, bin_dir: str) -> bool:
        """Remove our executables from a folder for plugins; whether nothing is left of what they execute.

        Raises:
            Unavailable: one cannot be removed.
            OSError: the same.
        """
        if not os.path.isdir(bin_dir):
            return True
        uninstall(bin_dir, self._report)
        for name in (*EXECUTABLES, *STANDALONE):
            remove_leftover(os.path.join(bin_dir, name))
        return remove_bundles(bin_dir, self._report)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _list_folder(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _find_text(path: str) -> str:
    try:
        return read_part(path, MAX_BYTES).content.decode(errors="replace")
    except OSError:
        return ""


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
