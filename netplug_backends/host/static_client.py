"""The static client of the node process: a program in C, built before, or built with the compiler of this host.

Beside it is the launcher of a bundle (``netplug_core.installation.bundle``), which only ``tools/bundle.py`` builds.

``install`` puts it onto a host, ``python -m tools.client`` builds the file that a package carries. Its source is in the
folder ``netplug_cli/cni/static``, and a built file lies beside it, named for the architecture that it is for. Two
builds with one compiler are identical.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from netplug_core.errors import Unavailable

__all__ = ["build_client", "built_file"]

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
