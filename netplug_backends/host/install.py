"""Puts the executables on a host as files of three lines, and takes them away again.

A runtime runs them from the host's file system, once per pod, so they name the interpreter and the libraries of the
environment that installs them, skip ``site`` (``-IS``: it would cost more than the program), and everything they load
is byte-compiled here: without that a call takes several times as long. Called by ``netplugctl install host``.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from netplug_core.errors import ConfigurationError, Unavailable

__all__ = ["EXECUTABLES", "SHEBANG_LIMIT", "Installed", "install", "uninstall"]

EXECUTABLES = ("netplug", "netplug-ipam")

SHEBANG_LIMIT = 127
"""Bytes of a ``#!`` line that every Linux kernel reads; older ones cut what is longer without a word."""

_TRIAL_TIMEOUT_S = 60.0

_CALL = "from netplug_cli.wiring.cni import main; os._exit(main())"
_WRITE_CACHE = "from netplug_cli.cni.method_cache import write_cache; write_cache()"
# The second one is in the launchers of releases up to 3.33.0.
_OUR_IMPORTS = ("from netplug_cli.wiring.cni import", "from netplug_cli.cni.")

# What the commands load (pyroute2: CHECK alone). Byte-compiled whole: which part is loaded is not ours to know.
_LIBRARIES = (
    "attr", "attrs", "cattr", "cattrs", "pluggy", "pyroute2", "netplug_core", "netplug_backends", "netplug_cli",
)  # fmt: skip


@frozen(kw_only=True)
class Installed:
    """What an installation did: the files written, and the packages that are byte-compiled."""

    files: tuple[str, ...]
    compiled: tuple[str, ...]


def install(bin_dir: str, report: Callable[[str], None]) -> Installed:
    """Write the executables into a folder and see both answer.

    Each file is written beside its place, tried there and renamed, so that a runtime never runs half of one, nor one
    that does not run.

    Raises:
        ConfigurationError: the interpreter's path does not fit into a ``#!`` line.
        Unavailable: a library is missing, the folder cannot be written, or what was written does not run.
    """
    interpreter = sys.executable
    shebang = f"#!{interpreter} -IS"
    if len(os.fsencode(shebang)) > SHEBANG_LIMIT or " " in interpreter:
        raise ConfigurationError(
            "interpreter", interpreter, f"a path without spaces of at most {SHEBANG_LIMIT - 6} bytes is needed"
        )
    compiled = tuple(_compile(name, report) for name in _LIBRARIES)
    # A process that lives for a tenth of a second leaves its garbage, and its end, to the kernel: collecting costs a
    # tenth of that, and taking the interpreter down object by object a fifth.
    start = f"import gc, os, sys; gc.disable(); sys.path.extend({_library_folders()!r})"
    _cache_attrs_methods(start, report)
    text = f"{shebang}\n{start}\n{_CALL}\n"
    folder = Path(bin_dir).absolute()
    for name in EXECUTABLES:
        _write_executable(folder / name, text)
        report(f"installed {folder / name}")
    return Installed(files=tuple(str(folder / name) for name in EXECUTABLES), compiled=compiled)


def uninstall(bin_dir: str, report: Callable[[str], None]) -> tuple[str, ...]:
    """Remove the executables from a folder; what is not ours is left alone and said.

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


def _library_folders() -> list[str]:
    """The folders that hold what the executables import; ``-IS`` adds none by itself."""
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
        # A read-only install with its bytecode present is fine; one without is slow, and the user must know.
        report(f"warning: {folder} could not be byte-compiled; every call will be several times slower")
    return str(folder)


def _cache_attrs_methods(start: str, report: Callable[[str], None]) -> None:
    """Have what attrs compiles compiled once, as the executables would, in a process that begins as they do."""
    prefix = [f"-Xpycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    command = [sys.executable, "-IS", *prefix, "-c", f"{start}; {_WRITE_CACHE}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TRIAL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    else:
        problem = _last_error_line(done) if done.returncode != 0 else ""
    if problem:
        report(f"warning: every call will be slower by a quarter: {problem}")


def _write_executable(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text)
        beside.chmod(0o755)
        problem = _find_problem(beside)
        if not problem:
            beside.rename(file)
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            beside.unlink()
    if problem:
        raise Unavailable(str(file), f"it does not run: {problem}")


def _find_problem(file: Path) -> str:
    """Why a file does not answer when it is asked for its version, as a runtime would; empty when it does."""
    try:
        done = subprocess.run(
            [file],
            input=b"",
            capture_output=True,
            env={"CNI_COMMAND": "VERSION"},
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0 and b"supportedVersions" in done.stdout:
        return ""
    return _last_error_line(done)


def _last_error_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last that a process said before it failed."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}, {done.stdout!r}"
