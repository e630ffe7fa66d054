"""The executables on a host: copies of the program, the clients in front of it, and their removal."""

from __future__ import annotations

import compileall
import enum
import fcntl
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from netplug_backends.host import atomic_files
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
from netplug_backends.host.placing import (
    place_link,
    remove_empty_folder,
    remove_file,
    remove_leftovers,
    remove_tree,
)
from netplug_backends.host.requirements import installing_environment, remove_open_caches, require_trusted
from netplug_core.cni.node_socket import SOCKET_VARIABLE
from netplug_core.errors import ConfigurationError, Unavailable
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

__all__ = [
    "EXECUTABLES", "SHEBANG_LIMIT", "STANDALONE", "Client", "Installed", "build_client", "built_file",
    "compile_package", "current_bundle", "find_problem", "install", "install_bundle", "install_file",
    "last_error_line", "read_bundle", "readable_by_all", "remove_bundles", "remove_unused_bundles", "render_launcher",
    "require_trusted_environment", "uninstall",
]  # fmt: skip


# --- static client ---------------------------------------------------------------------------------------------------


_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-Os", "-static", "-s", "-Wl,--build-id=none")
_BUILD_TIMEOUT_S = 120.0


def built_file(source: Path) -> Path:
    """Where the client that was built for this machine's architecture is, if it was built."""
    return source / f"netplug-{os.uname().machine}"


def build_client(source: Path, target: Path, program: str = "netplug.c") -> None:
    """Build the client, or another program, from the folder of its source.

    Raises:
        Unavailable: this host has no C compiler, or the compiler fails.
    """
    compiler = next((found for found in map(shutil.which, _COMPILERS) if found is not None), None)
    if compiler is None:
        raise Unavailable("a C compiler", f"this host has none of {', '.join(_COMPILERS)}; install gcc and libc6-dev")
    command = [compiler, *_FLAGS, "-o", str(target.absolute()), program]
    try:
        process = subprocess.run(
            command, cwd=source, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(compiler, str(error)) from error
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines()
        raise Unavailable(compiler, lines[-1] if lines else f"exit status {process.returncode}")


# --- install ---------------------------------------------------------------------------------------------------------


EXECUTABLES = ("netplug", "netplug-ipam")

STANDALONE = tuple(f"{name}-standalone" for name in EXECUTABLES)
"""What the static client executes where no node process answers; it looks for them beside itself."""

SHEBANG_LIMIT = 127
"""The length of a ``#!`` line, in bytes, that every Linux kernel reads; older ones cut a longer line silently."""

_TRIAL_TIMEOUT_S = 60.0
# Folders 0755, files 0644: everybody may execute and load what is installed, only its owner may change it.
_UMASK = 0o022
_RUN_AS_ROOT = (
    "runtimes run the executables as root, so whoever owns them becomes root: run it as root (sudo), or use "
    "--trust-environment"
)

_CALL = "from netplug_cli.cni.client import main; main()"
# A process of a tenth of a second leaves its memory to the kernel: garbage collection would take a tenth of that time,
# and a regular exit of the interpreter a fifth.
_STANDALONE_CALL = "import gc, os; gc.disable(); from netplug_cli.wiring.cni import main; os._exit(main())"
_WRITE_CACHE = "from netplug_cli.cni.method_cache import write_cache; write_cache()"
# The first one is in the launchers of earlier releases.
_OUR_IMPORTS = (b"from netplug_cli.wiring.cni import", b"from netplug_cli.cni.")
# In the static client, and in no program that is not of the node process.
_OUR_VARIABLE = SOCKET_VARIABLE.encode()

# The packages that the executables load (pyroute2 only for CHECK). They are byte-compiled as a whole.
_LIBRARIES = (
    "attr", "attrs", "cattr", "cattrs", "pluggy", "pyroute2", "netplug_core", "netplug_backends", "netplug_cli",
)  # fmt: skip


class Client(enum.Enum):
    """Which client is installed.

    - ``BUILT``: the static one if it was built for this machine's architecture, otherwise the Python one
    - ``STATIC``: the static one; it is built with the C compiler of this host if it was not built before
    - ``PYTHON``: the Python one
    """

    BUILT = "built"
    STATIC = "static"
    PYTHON = "python"


@frozen(kw_only=True)
class Installed:
    """The result of an installation: the files written and the packages that are byte-compiled."""

    files: tuple[str, ...]
    compiled: tuple[str, ...]


def require_trusted_environment() -> None:
    """Return if only root may write what the executables will load.

    Bytecode that another user may have written is removed.

    Raises:
        ConfigurationError: another user may write a part of it, which the text names, or this user is not root.
        Unavailable: a library is missing.
    """
    if os.geteuid() != 0:
        raise ConfigurationError("installing user", os.geteuid(), _RUN_AS_ROOT)
    remove_open_caches(str(_location(name)) for name in _LIBRARIES)
    require_trusted(installing_environment(_library_folders()))


def install(bin_dir: str, report: Callable[[str], None], client: Client = Client.BUILT) -> Installed:
    """Write the executables into a folder and check that each of them answers.

    Each file is written under another name, tried and renamed, so that a runtime never executes an incomplete file or
    one that does not run.

    Raises:
        ConfigurationError: the interpreter's path does not fit into a ``#!`` line.
        Unavailable: a library is missing, the folder cannot be written, an executable does not run, or the static
            client cannot be built.
    """
    shebang = _shebang()
    with readable_by_all():
        static = _static_client(client)
        installed = _install(Path(bin_dir).absolute(), shebang, static, report)
    hint = "; --client static makes it faster" if client is Client.BUILT else ""
    report("both are the static client" if static is not None else f"both are the Python client{hint}")
    return installed


def _install(folder: Path, shebang: str, static: bytes | None, report: Callable[[str], None]) -> Installed:
    compiled = tuple(compile_package(name, report) for name in _LIBRARIES)
    _cache_attrs_methods(_start(), report)
    standalone, python = (_render(shebang, call) for call in (_STANDALONE_CALL, _CALL))
    # The client comes after what it executes.
    contents = dict.fromkeys(STANDALONE, standalone) if static is not None else {}
    contents |= dict.fromkeys(EXECUTABLES, python if static is None else static)
    for name, content in contents.items():
        install_file(folder / name, content, PROGRAM_MODE, find_problem)
        report(f"installed {folder / name}")
    return Installed(files=tuple(str(folder / name) for name in contents), compiled=compiled)


def render_launcher(call: str) -> bytes:
    """A script that runs a statement with the interpreter and the libraries of this environment, and nothing else.

    Raises:
        ConfigurationError: the interpreter's path does not fit into a ``#!`` line.
    """
    return _render(_shebang(), call)


def _render(shebang: str, call: str) -> bytes:
    return f"{shebang}\n{_start()}\n{call}\n".encode()


def _start() -> str:
    return f"import sys; sys.path.extend({_library_folders()!r})"


def _shebang() -> str:
    interpreter = sys.executable
    shebang = f"#!{interpreter} -IS"
    if len(os.fsencode(shebang)) > SHEBANG_LIMIT or " " in interpreter:
        raise ConfigurationError(
            "interpreter", interpreter, f"a path without spaces of at most {SHEBANG_LIMIT - 6} bytes is needed"
        )
    return shebang


def _static_client(client: Client) -> bytes | None:
    """The static client that is to be installed; None for the Python one."""
    source = _location("netplug_cli") / "cni" / "static"
    built = built_file(source)
    if client is Client.PYTHON or (client is Client.BUILT and not built.exists()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        if not built.exists():
            built = Path(folder) / "client"
            build_client(source, built)
        try:
            return atomic_files.read_file(str(built), MAX_PROGRAM_BYTES)
        except OSError as error:
            raise Unavailable(str(built), error.strerror or str(error)) from error


def uninstall(bin_dir: str, report: Callable[[str], None]) -> tuple[str, ...]:
    """Remove the executables from a folder; a file that is not ours is kept and reported.

    Raises:
        Unavailable: a file cannot be removed.
    """
    removed = []
    for name in (*EXECUTABLES, *STANDALONE):
        file = Path(bin_dir) / name
        try:
            if not os.path.lexists(file):
                if name in EXECUTABLES:  # the others are there beside the static client only
                    report(f"not there: {file}")
                continue
            if not _is_ours(file):
                report(f"left alone, not written by netplugctl: {file}")
                continue
            atomic_files.remove_file(str(file))
        except OSError as error:
            raise Unavailable(str(file), error.strerror or str(error)) from error
        removed.append(str(file))
        report(f"removed {file}")
    return tuple(removed)


def _is_ours(file: Path) -> bool:
    if file.is_symlink() and os.readlink(file).startswith(f"{COPIES}/"):
        return True
    content = atomic_files.find_file(str(file), MAX_PROGRAM_BYTES) or b""
    return any(words in content for words in (*_OUR_IMPORTS, _OUR_VARIABLE))


@contextmanager
def readable_by_all() -> Iterator[None]:
    """This process with the umask of what is installed, also for the compiler and the processes that it starts."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def _library_folders() -> list[str]:
    """The folders of the packages that the executables import; with ``-IS`` Python adds none."""
    return list(dict.fromkeys(str(_location(name).parent) for name in _LIBRARIES))


def _location(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise Unavailable(
            package, "the package is not installed in this environment; netplug[host] brings all it takes"
        )
    return Path(spec.origin).resolve().parent


def compile_package(package: str, report: Callable[[str], None]) -> str:
    """Byte-compile a package; its folder."""
    folder = _location(package)
    if not compileall.compile_dir(str(folder), quiet=2):
        # A read-only installation may have its bytecode already; one without it is slow, so the user is warned.
        report(f"warning: {folder} could not be byte-compiled; every call will be several times slower")
    return str(folder)


def _cache_attrs_methods(start: str, report: Callable[[str], None]) -> None:
    """Fill the cache of attrs' generated methods, in a process that starts like the executables."""
    prefix = [f"-Xpycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    command = [sys.executable, "-IS", *prefix, "-c", f"{start}; {_WRITE_CACHE}"]
    try:
        process = subprocess.run(command, capture_output=True, timeout=_TRIAL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        problem = last_error_line(process) if process.returncode != 0 else ""
    if problem:
        report(f"warning: every call will be slower by a quarter: {problem}")


def install_file(
    file: Path, content: bytes, mode: int, find_problem: Callable[[Path], str] = lambda _new_file: ""
) -> None:
    """Replace a file as a whole, with its mode. What ``find_problem`` finds a problem in replaces nothing.

    A file that is as it shall be stays.

    Raises:
        Unavailable: it cannot be written, or does not run.
    """
    atomic_files.remove_leftovers(str(file.parent))
    if _is_same(file, content, mode) and not find_problem(file):
        return

    def require_running(new_file: str) -> None:
        if problem := find_problem(Path(new_file)):
            raise Unavailable(str(file), f"it does not run: {problem}")

    try:
        atomic_files.make_folder(str(file.parent))
        atomic_files.replace_file(str(file), content, mode, require_running)
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error


def _is_same(file: Path, content: bytes, mode: int) -> bool:
    with suppress(OSError):  # it is missing, or cannot be read: it is replaced
        status = file.lstat()
        is_alike = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == mode
        return is_alike and atomic_files.read_file(str(file), len(content)) == content
    return False


def find_problem(file: Path) -> str:
    """Why an executable does not answer VERSION, as a runtime would send it; empty if it answers."""
    try:
        process = subprocess.run(
            [file],
            input=b"",
            capture_output=True,
            env={"CNI_COMMAND": "VERSION"},
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if process.returncode == 0 and b"supportedVersions" in process.stdout:
        return ""
    return last_error_line(process)


def last_error_line(process: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of a failed process's standard error."""
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {process.returncode}, {process.stdout!r}"


# --- bundles ---------------------------------------------------------------------------------------------------------


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
