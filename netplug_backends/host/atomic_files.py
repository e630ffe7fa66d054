"""Reads and writes the files of this machine. No other module of backends and executables opens one without a reason.

**Reading** never waits and is bounded, whatever stands at a path: only a regular file is read, and it is opened without
waiting for the writer of a pipe. What is a pipe, a device, a socket or a folder is an error that says so. ``/dev/null``
counts as an empty file, as people use it.

**Writing** replaces a file as a whole. The content goes to a new file beside it, whose name cannot be guessed and which
must not exist (``O_EXCL``, ``O_NOFOLLOW``), with an explicit mode whatever the umask; it is synced and renamed, and
then the folder is synced. All names are resolved below one descriptor of the folder. So a link, a pipe or a folder that
another program has put there leads no write elsewhere. After a loss of power the file is the old one or the new one.

A process that is killed meanwhile leaves the new file. It begins with a dot and has an ending that no container runtime
reads, and :func:`remove_leftovers` knows it: a file that is still being written is locked (flock(2)).

Not a backend. It imports only the standard library, and little of it: what is loaded before attrs uses it too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

__all__ = [
    "FOLDER_MODE", "MAX_BYTES", "MAX_PROGRAM_BYTES", "OPEN_FILE_MODE", "PRIVATE_FILE_MODE", "PRIVATE_FOLDER_MODE",
    "PROGRAM_MODE", "Content", "FileContent", "Folder", "NotRegular", "TooLarge", "create_file", "find_file",
    "is_unfinished", "make_folder", "memory_file", "open_file", "open_folder", "open_to_read", "read_file",
    "read_input", "read_part", "remove_file", "remove_leftovers", "replace_file", "require_regular", "sync_folder",
    "sync_tree", "write_new_file",
]  # fmt: skip

FOLDER_MODE = 0o755
"""A folder: its owner writes, everybody may look."""

PRIVATE_FOLDER_MODE = 0o700
"""A folder that only its owner may look into."""

OPEN_FILE_MODE = 0o644
"""A file without secrets."""

PRIVATE_FILE_MODE = 0o600
"""A file that only its owner may read."""

PROGRAM_MODE = 0o755
"""An executable."""

MAX_BYTES = 1 << 20
"""How much of a file is read unless a caller says otherwise: far more than settings, certificates and records have."""

MAX_PROGRAM_BYTES = 1 << 28
"""The largest program that is copied; the helper plugins have a few MiB each."""

Content = str | bytes | Iterable[bytes]
"""What is written: text as UTF-8, bytes, or parts of them."""

_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 16
_NULL_DEVICE = os.makedev(1, 3)
_UNFINISHED = re.compile(r"\.netplug-[0-9a-f]{32}\.new")
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


class NotRegular(OSError):
    """What stands at a path is no regular file."""

    def __init__(self, path: str, mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        super().__init__(errno.EINVAL, f"a regular file is expected, and it is {kind}", path)


class TooLarge(OSError):
    """A file is larger than the caller takes."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"it is larger than {limit} bytes", path)


class FileContent(NamedTuple):
    """Content of a file, all or a part; the size of all of it in bytes, and when it was last changed."""

    content: bytes
    size: int
    modified_ns: int

    def __repr__(self) -> str:  # the content may be a secret
        return f"FileContent(size={self.size}, modified_ns={self.modified_ns})"


# --- reading --------------------------------------------------------------------------------------------------------


def read_file(path: str, limit: int = MAX_BYTES) -> bytes:
    """The whole content of a regular file, to which the path may lead over links.

    Raises:
        OSError: it is missing, no regular file, larger than ``limit``, or cannot be read.
        ValueError: no file can have that path.
    """
    return _read(path, limit).content


def find_file(path: str, limit: int = MAX_BYTES) -> bytes | None:
    """As ``read_file``; None if there is no such file.

    Raises:
        OSError, ValueError: as for ``read_file``.
    """
    try:
        return read_file(path, limit)
    except FileNotFoundError:
        return None


def read_part(path: str, limit: int, *, is_end: bool = False) -> FileContent:
    """The first bytes of a regular file, at most that many, or its last ones.

    Raises:
        OSError, ValueError: as for ``read_file``; a file that is larger is no error.
    """
    with _closing(open_to_read(path)) as descriptor:
        status = os.fstat(descriptor)
        if is_end and status.st_size > limit:
            os.lseek(descriptor, -limit, os.SEEK_END)
        return FileContent(_read_up_to(descriptor, limit), status.st_size, status.st_mtime_ns)


def read_input(path: str, limit: int) -> bytes:
    """The content of what a person names as input: a file, but also a pipe or a terminal, which is waited for.

    Raises:
        OSError: it is missing, a folder, a device other than a terminal, larger than ``limit``, or cannot be read.
        ValueError: no file can have that path.
    """
    status = os.stat(path)
    if stat.S_ISBLK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        raise NotRegular(path, status.st_mode)
    with _closing(os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)) as descriptor:
        if stat.S_ISCHR(status.st_mode) and not _is_readable(status) and not os.isatty(descriptor):
            raise NotRegular(path, status.st_mode)  # such as /dev/zero, which never ends
        return _read_whole(path, descriptor, limit)


@contextmanager
def memory_file(content: bytes) -> Iterator[str]:
    """A path from which a library reads this content until the block ends; it is on no disk."""
    with _closing(os.memfd_create("netplug", os.MFD_CLOEXEC)) as descriptor:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"


def require_regular(path: str) -> bool:
    """Whether something stands at a path; refuse what is no regular file, without opening it.

    For a library that opens the path itself.

    Raises:
        OSError: it is no regular file, or cannot be looked at.
        ValueError: no file can have that path.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise NotRegular(path, mode)
    return True


# --- writing --------------------------------------------------------------------------------------------------------


def replace_file(path: str, content: Content, mode: int, check: Callable[[str], None] | None = None) -> None:
    """Give a file this content and mode, whatever it was before; it is on the disk when this returns.

    ``check`` gets the path of the new file before it is renamed; if it raises, nothing is replaced.

    Raises:
        OSError: it cannot be written; what was there is unharmed, or, if only the folder could not be synced, may come
            back after a loss of power.
        ValueError: no file can have that path.
    """
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        opened.replace(name, content, mode, check)


def create_file(path: str, content: Content, mode: int) -> None:
    """As ``replace_file``, where nothing may be replaced.

    Raises:
        FileExistsError: something has that name.
        OSError, ValueError: as for ``replace_file``.
    """
    folder, name = os.path.split(path)
    with open_folder(folder) as opened:
        opened.create(name, content, mode)


def write_new_file(path: str, content: bytes, mode: int) -> None:
    """Write one of many files of a new folder, which is renamed once :func:`sync_tree` has put it on the disk.

    Raises:
        FileExistsError: something has that name.
        OSError: it cannot be written; a part of it may be there.
        ValueError: no file can have that path.
    """
    with open(os.open(path, _NEW_FLAGS, PRIVATE_FILE_MODE), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)


def open_file(path: str, flags: int, mode: int) -> int:
    """Open a regular file, which is created with that mode if it does not exist; the mode of an existing file stays.

    For a log, and for a lock. A link is followed to a file that exists, unless ``flags`` say otherwise.

    Raises:
        OSError: it cannot be opened, or is no regular file.
        ValueError: no file can have that path.
    """
    return _open_or_create(path, flags, mode)


def make_folder(path: str, mode: int = FOLDER_MODE) -> None:
    """Make a folder, and the missing ones above it, each with that mode. A folder that exists stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if not path or os.path.isdir(path):
        return
    make_folder(os.path.dirname(path.rstrip("/")), mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another process made it meanwhile
    os.chmod(path, mode)  # the umask may have taken bits away


def remove_file(path: str) -> bool:
    """Remove a file or link; whether it was there.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_unfinished(name: str) -> bool:
    """Whether a name is that of a file which is being written, or whose writer was killed."""
    return _UNFINISHED.fullmatch(name) is not None


def remove_leftovers(path: str) -> None:
    """Remove from a folder what processes that were killed while they wrote a file in it have left.

    A file that a process is still writing stays. A folder that does not exist has nothing.

    Raises:
        OSError: one cannot be removed.
    """
    with suppress(FileNotFoundError, NotADirectoryError), open_folder(path) as folder:
        folder.remove_leftovers()


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on the disk.

    Raises:
        OSError: they cannot be written.
    """
    with open_folder(path) as folder:
        folder.sync()


def sync_tree(path: str) -> None:
    """Return when a folder with everything in it is on the disk.

    Not sync(2), which waits for every file system of the machine, also for a network disk whose server is gone.

    Raises:
        OSError: something in it cannot be written.
    """
    for folder, _folders, names in os.walk(path):
        for name in names:
            with _closing(open_to_read(os.path.join(folder, name))) as descriptor:
                os.fsync(descriptor)
        sync_folder(folder)


# --- one folder -----------------------------------------------------------------------------------------------------


class Folder(NamedTuple):
    """An open folder: its names are resolved in this very folder, whatever its path leads to meanwhile.

    Links are not followed. Every method raises OSError if the system refuses.
    """

    path: str
    descriptor: int

    def names(self) -> list[str]:
        """What is in it, sorted."""
        return sorted(os.listdir(self.descriptor))

    def read(self, name: str, limit: int = MAX_BYTES) -> FileContent:
        """The whole content of a regular file.

        Raises:
            OSError: it is missing, no regular file, larger than ``limit``, or cannot be read.
        """
        return _read(name, limit, self)

    def replace(
        self,
        name: str,
        content: Content,
        mode: int,
        check: Callable[[str], None] | None = None,
        *,
        is_synced: bool = True,
    ) -> None:
        """See :func:`replace_file`. What is not synced may be lost, or be empty, after a loss of power."""
        with self._written(content, mode, is_synced=is_synced) as new:
            if check is not None:
                check(os.path.join(self.path, new))
            os.rename(new, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        if is_synced:
            self.sync()

    def create(self, name: str, content: Content, mode: int) -> None:
        """See :func:`create_file`."""
        with self._written(content, mode) as new:
            os.link(new, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)
        self.sync()

    def open(self, name: str, flags: int, mode: int) -> int:
        """Open a regular file; see :func:`open_file`."""
        return _open_or_create(name, flags | os.O_NOFOLLOW, mode, self)

    def link(self, name: str, target: str) -> None:
        """Make a name a symbolic link, whatever file or link it was before."""
        new = _new_name()
        os.symlink(target, new, dir_fd=self.descriptor)
        try:
            os.rename(new, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        finally:
            self.remove(new)
        self.sync()

    def remove(self, name: str) -> bool:
        """Remove a file or link; whether it was there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        return True

    def remove_leftovers(self) -> None:
        """See :func:`remove_leftovers`."""
        for name in filter(is_unfinished, self.names()):
            with suppress(FileNotFoundError):  # renamed meanwhile
                self._remove_if_left(name)

    def sync(self) -> None:
        """Return when its names are on the disk."""
        os.fsync(self.descriptor)

    @contextmanager
    def _written(self, content: Content, mode: int, *, is_synced: bool = True) -> Iterator[str]:
        """The name of a new file; it is gone when the block ends, unless that has renamed it."""
        with ExitStack() as stack:
            new, descriptor = self._new_file(stack)
            os.fchmod(descriptor, mode)  # the umask may have taken bits away
            with open(descriptor, "wb") as file:
                # It keeps the lock when the other is closed: no program can be executed that is open for writing.
                reading = os.open(new, _READ_FLAGS | os.O_NOFOLLOW, dir_fd=self.descriptor)
                stack.callback(os.close, reading)
                _lock(reading)
                file.writelines(_parts(content))
                file.flush()
                if is_synced:
                    os.fsync(descriptor)
            yield new

    def _new_file(self, stack: ExitStack) -> tuple[str, int]:
        """The name of a new file for its owner alone, and its locked descriptor; the stack removes the file."""
        while True:
            new = _new_name()
            descriptor = os.open(new, _NEW_FLAGS, PRIVATE_FILE_MODE, dir_fd=self.descriptor)
            if _lock(descriptor):
                stack.callback(self.remove, new)
                return new, descriptor
            os.close(descriptor)  # another process has just taken it for a leftover

    def _remove_if_left(self, name: str) -> None:
        if stat.S_ISLNK(os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode):
            self.remove(name)  # a link is made and renamed at once
            return
        with _closing(open_to_read(name, self)) as descriptor:
            # Without locks on this file system nothing is known about the file, and it stays. A process that has made
            # it and does not have the lock yet sees that it is gone, and makes another one.
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            self.remove(name)


@contextmanager
def open_folder(path: str) -> Iterator[Folder]:
    """An open folder; the empty path is the working folder.

    Raises:
        OSError: it is missing, no folder, or cannot be opened.
        ValueError: no folder can have that path.
    """
    with _closing(os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        yield Folder(path, descriptor)


# --- descriptors ----------------------------------------------------------------------------------------------------


def _read(path: str, limit: int, folder: Folder | None = None) -> FileContent:
    with _closing(open_to_read(path, folder)) as descriptor:
        status = os.fstat(descriptor)
        return FileContent(_read_whole(_shown(path, folder), descriptor, limit), status.st_size, status.st_mtime_ns)


def open_to_read(path: str, folder: Folder | None = None) -> int:
    """A descriptor of a regular file, for a lock on it; below a folder, a link is none.

    Raises:
        OSError: it is missing, no regular file, or cannot be opened.
        ValueError: no file can have that path.
    """
    return _open(path, _READ_FLAGS if folder is None else _READ_FLAGS | os.O_NOFOLLOW, folder, _is_readable)


def _is_readable(status: os.stat_result) -> bool:
    return _is_regular(status) or (stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL_DEVICE)


def _is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def _open(
    path: str, flags: int, folder: Folder | None = None, accepts: Callable[[os.stat_result], bool] = _is_regular
) -> int:
    """Open a file that exists, if it is accepted."""
    below, follows = None if folder is None else folder.descriptor, not flags & os.O_NOFOLLOW
    # Looked at before: to open a device, or the other end of a pipe, already has effects.
    status = os.stat(path, dir_fd=below, follow_symlinks=follows)
    if accepts(status):
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=below)
        status = os.fstat(descriptor)
        if accepts(status):
            return descriptor
        os.close(descriptor)
    raise NotRegular(_shown(path, folder), status.st_mode)


def _open_or_create(path: str, flags: int, mode: int, folder: Folder | None = None) -> int:
    below = None if folder is None else folder.descriptor
    try:
        return _open(path, flags, folder)
    except FileNotFoundError:
        pass
    try:
        new = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, new, mode, dir_fd=below)
    except FileExistsError:  # another process made it meanwhile, or it is a link to a file that does not exist
        return _open(path, flags, folder)
    os.fchmod(descriptor, mode)
    return descriptor


def _read_whole(path: str, descriptor: int, limit: int) -> bytes:
    content = _read_up_to(descriptor, limit + 1)
    if len(content) > limit:
        raise TooLarge(path, limit)
    return content


def _read_up_to(descriptor: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (part := os.read(descriptor, min(limit, _CHUNK))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _lock(descriptor: int) -> bool:
    """Mark a new file as one that is being written; whether it is still there."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system has no locks; then no leftover is removed either
        return True
    return os.fstat(descriptor).st_nlink > 0


def _new_name() -> str:
    return f".netplug-{os.urandom(16).hex()}.new"


def _parts(content: Content) -> Iterable[bytes]:
    match content:
        case str():
            return (content.encode(),)
        case bytes():
            return (content,)
        case _:
            return content


def _shown(path: str, folder: Folder | None) -> str:
    return path if folder is None else os.path.join(folder.path, path)


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
