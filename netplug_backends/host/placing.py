"""A host's root as a container sees it, and files that are placed there: whole or not at all."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import BuiltinImporter, ExtensionFileLoader, FrozenImporter, ModuleSpec
from queue import SimpleQueue
from threading import Thread, current_thread
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

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

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol

__all__ = [
    "CannotEnterHost", "ContainerThread", "RunInContainer", "enter_host", "place_copy", "place_file", "place_link",
    "remove_empty_folder", "remove_file", "remove_leftover", "remove_leftovers", "remove_tree", "run_here",
]  # fmt: skip


# --- root ------------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_LIBC = ctypes.CDLL(None, use_errno=True)


class CannotEnterHost(Exception):
    """The host's mount namespace cannot be entered; the text says why."""


class RunInContainer(Protocol):
    """Does some work where the container's own files are, and returns its result or raises its error."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """Do it."""
        ...


def run_here(work: Callable[[], T], /) -> T:
    """Do some work where the caller is: outside a container, the process's own files are the host's."""
    return work()


class ContainerThread:
    """A thread whose root, working folder and mount namespace stay as they were when it was made."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], object], Future[object]]] = SimpleQueue()
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        self.run(_unshare_root)

    def run(self, work: Callable[[], T], /) -> T:
        """Do some work in it; its result, or its error. Work of several threads is done one after the other."""
        if current_thread() is self._thread:
            return work()
        done: list[T] = []
        future: Future[object] = Future()
        self._waiting.put((lambda: done.append(work()), future))
        future.result()
        return done[0]

    def _serve(self) -> None:
        while True:
            work, future = self._waiting.get()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001  it is raised in the thread that waits
                future.set_exception(error)
            del work, future  # an error would keep the frames of its caller


def enter_host(path: str) -> RunInContainer:
    """Move this process into the mount namespace of the host whose root is at a path; no other thread may run yet.

    What it returns does work in the container, as :func:`run_here` does it in a process that has not been moved.

    Raises:
        CannotEnterHost: the path is not the root of a host, or this process may not enter.
    """
    own, importing = ContainerThread("the container's files"), ContainerThread("imports")
    try:
        _enter(path)
    except OSError as error:
        raise CannotEnterHost(f"{error.filename or path}: {error.strerror}") from error
    builtin: tuple[object, ...] = (BuiltinImporter, FrozenImporter)  # they read no files
    others = tuple(finder for finder in sys.meta_path if finder not in builtin)
    kept = [finder for finder in sys.meta_path if finder in builtin]
    sys.meta_path[:] = [*kept, _ContainerFinder(others, importing.run)]
    return own.run


def _enter(path: str) -> None:
    expected = os.stat(path)
    namespace = os.open(os.path.join(path, "proc/1/ns/mnt"), _OPEN_FLAGS)
    try:
        _check(_LIBC.setns(namespace, _CLONE_NEWNS))
    finally:
        os.close(namespace)
    found = os.stat("/")
    if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino):
        raise CannotEnterHost(f"{path}: it is not the root of the host, whose first process has another one")


def _unshare_root() -> None:
    """Give the calling thread a root and a working folder of its own; a namespace can be entered only then."""
    _check(_LIBC.unshare(_CLONE_FS))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _ContainerFinder(MetaPathFinder):
    """Finds modules with the usual finders, but in the container.

    Python has its import lock meanwhile. So nothing that is done in the thread of the container may import.
    """

    def __init__(self, finders: Sequence[MetaPathFinderProtocol], run: RunInContainer) -> None:
        self._finders = finders
        self._run = run

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        found = self._run(lambda: self._find(name, path, target))
        if found is not None and found.loader is not None:
            found.loader = _ContainerLoader(found.loader, self._run)
        return found

    def _find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        specs = (finder.find_spec(name, path, target) for finder in self._finders)
        return next((spec for spec in specs if spec is not None), None)


class _ContainerLoader(Loader):
    """Reads a module in the container, and executes it in the thread that imports it.

    That thread has the lock of the module, for which an import in another thread would wait for ever.
    """

    def __init__(self, inner: Loader, run: RunInContainer) -> None:
        self._inner = inner
        self._run = run

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        file = spec.origin
        if file is not None and isinstance(self._inner, ExtensionFileLoader):
            # With the libraries that it needs. The loader then finds it by its path among those that are loaded.
            self._run(lambda: ctypes.CDLL(file))
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        get_code: Callable[[str], CodeType | None] = getattr(self._inner, "get_code", lambda _name: None)
        code = self._run(lambda: get_code(module.__name__))
        if code is None:  # an extension, whose file has been read
            self._inner.exec_module(module)
        else:
            exec(code, module.__dict__)  # noqa: S102  as the loader itself does

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


# --- placing ---------------------------------------------------------------------------------------------------------


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
