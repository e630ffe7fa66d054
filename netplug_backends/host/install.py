"""Installs the executables on a host, as scripts of three lines, and removes them.

``netplugctl install host`` calls it. A runtime executes the scripts from the host's file system, once per pod. So they
name the interpreter and the libraries of the installing environment and skip ``site`` (``-IS``), which takes longer
than the program. Everything that they load is byte-compiled here; without that, a call takes several times as long.
``trust`` refuses an environment that others may write.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from netplug_backends.host.trust import installing_environment, remove_open_caches, require_trusted
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = ["EXECUTABLES", "SHEBANG_LIMIT", "Installed", "install", "require_trusted_environment", "uninstall"]

EXECUTABLES = ("netplug", "netplug-ipam")

SHEBANG_LIMIT = 127
"""The length of a ``#!`` line, in bytes, that every Linux kernel reads; older ones cut a longer line silently."""

_TRIAL_TIMEOUT_S = 60.0
# Folders 0755, files 0644: everybody may execute and load what is installed, only its owner may change it.
_UMASK = 0o022

_CALL = "from netplug_cli.cni.client import main; main()"
_WRITE_CACHE = "from netplug_cli.cni.method_cache import write_cache; write_cache()"
# The first one is in the launchers of earlier releases.
_OUR_IMPORTS = ("from netplug_cli.wiring.cni import", "from netplug_cli.cni.")

# The packages that the executables load (pyroute2 only for CHECK). They are byte-compiled as a whole.
_LIBRARIES = (
    "attr", "attrs", "cattr", "cattrs", "pluggy", "pyroute2", "netplug_core", "netplug_backends", "netplug_cli",
)  # fmt: skip


@frozen(kw_only=True)
class Installed:
    """The result of an installation: the files written and the packages that are byte-compiled."""

    files: tuple[str, ...]
    compiled: tuple[str, ...]


def require_trusted_environment() -> None:
    """Return if only root may write what the executables will load.

    Bytecode that another user may have written is removed.

    Raises:
        ConfigurationError: another user may write a part of it, which the text names.
        Unavailable: a library is missing.
    """
    remove_open_caches(str(_location(name)) for name in _LIBRARIES)
    require_trusted(installing_environment(_library_folders()))


def install(bin_dir: str, report: Callable[[str], None]) -> Installed:
    """Write the executables into a folder and check that both answer.

    Each file is written under another name, tried and renamed, so that a runtime never executes an incomplete file or
    one that does not run.

    Raises:
        ConfigurationError: the interpreter's path does not fit into a ``#!`` line.
        Unavailable: a library is missing, the folder cannot be written, or an executable does not run.
    """
    interpreter = sys.executable
    shebang = f"#!{interpreter} -IS"
    if len(os.fsencode(shebang)) > SHEBANG_LIMIT or " " in interpreter:
        raise ConfigurationError(
            "interpreter", interpreter, f"a path without spaces of at most {SHEBANG_LIMIT - 6} bytes is needed"
        )
    with _umask(_UMASK):
        return _install(Path(bin_dir).absolute(), shebang, report)


def _install(folder: Path, shebang: str, report: Callable[[str], None]) -> Installed:
    compiled = tuple(_compile(name, report) for name in _LIBRARIES)
    start = f"import sys; sys.path.extend({_library_folders()!r})"
    _cache_attrs_methods(start, report)
    text = f"{shebang}\n{start}\n{_CALL}\n"
    for name in EXECUTABLES:
        _write_executable(folder / name, text)
        report(f"installed {folder / name}")
    return Installed(files=tuple(str(folder / name) for name in EXECUTABLES), compiled=compiled)


def uninstall(bin_dir: str, report: Callable[[str], None]) -> tuple[str, ...]:
    """Remove the executables from a folder; a file that is not ours is kept and reported.

    Raises:
        Unavailable: a file cannot be removed.
    """
    removed = []
    for name in EXECUTABLES:
        file = Path(bin_dir) / name
        try:
            if not file.exists():
                report(f"not there: {file}")
                continue
            text = file.read_text(errors="replace")
            if not any(words in text for words in _OUR_IMPORTS):
                report(f"left alone, not written by netplugctl: {file}")
                continue
            file.unlink()
        except OSError as error:
            raise Unavailable(str(file), error.strerror or str(error)) from error
        removed.append(str(file))
        report(f"removed {file}")
    return tuple(removed)


@contextmanager
def _umask(umask: int) -> Iterator[None]:
    """This process with another umask, also for the compiler and the processes that it starts."""
    before = os.umask(umask)
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


def _compile(package: str, report: Callable[[str], None]) -> str:
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
        problem = _last_error_line(process) if process.returncode != 0 else ""
    if problem:
        report(f"warning: every call will be slower by a quarter: {problem}")


def _write_executable(file: Path, text: str) -> None:
    new_file = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new_file.write_text(text)
        new_file.chmod(0o755)
        problem = _find_problem(new_file)
        if not problem:
            new_file.rename(file)
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            new_file.unlink()
    if problem:
        raise Unavailable(str(file), f"it does not run: {problem}")


def _find_problem(file: Path) -> str:
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
    return _last_error_line(process)


def _last_error_line(process: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of a failed process's standard error."""
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {process.returncode}, {process.stdout!r}"
