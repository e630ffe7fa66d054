"""The executables ``netplug`` and ``netplug-ipam``: environment and standard input in, text and an exit status out.

The name of the file selects the plugin. VERSION and ``-v`` are answered without loading what the other commands need.
``netplug_cli.wiring.cni`` calls ``serve``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from netplug_core import __version__
from netplug_core.cni.dispatch import (
    RESUME_FLAG,
    Invocation,
    PluginIdentity,
    ProcessOutput,
    answer_at_once,
    plugin_from_argv0,
)

if TYPE_CHECKING:
    from netplug_cli.logs import OpenLogFile
    from netplug_core.flows.cni.call import OpenWorld

__all__ = ["serve"]


def serve(
    open_world: OpenWorld,
    open_log_file: OpenLogFile,
    *,
    is_own_namespace: Callable[[str], bool],
    stdin: bytes | None = None,
    is_resumed: bool = False,
) -> int:
    """Serve one call of a runtime; return the exit status of the process.

    ``open_world`` opens the interfaces that a configuration names, ``open_log_file`` its log file. ``stdin`` is all of
    standard input, if it has been read already. ``is_resumed``: another process began the call. Everything is written
    and closed at the end, so the process may end at once.
    """
    invocation = Invocation(
        identity=PluginIdentity(plugin=plugin_from_argv0(sys.argv[0]), version=__version__),
        flags=(RESUME_FLAG,) if is_resumed else tuple(sys.argv[1:]),
        environ=os.environ,
        stdin=_read_stdin if stdin is None else lambda: stdin,
    )
    output = answer_at_once(invocation) or _answer(invocation, open_world, open_log_file, is_own_namespace)
    if output.stderr and sys.stderr is not None:
        sys.stderr.write(output.stderr)
        sys.stderr.flush()
    sys.stdout.write(output.stdout)
    sys.stdout.flush()
    return output.exit_status


def _answer(
    invocation: Invocation,
    open_world: OpenWorld,
    open_log_file: OpenLogFile,
    is_own_namespace: Callable[[str], bool],
) -> ProcessOutput:
    # Runtimes call VERSION before every pod, which does without these.
    from contextlib import closing

    from netplug_cli.logs import Logger
    from netplug_core.flows.cni.call import answer

    with closing(Logger(invocation.identity.plugin.log_name, open_log_file)) as log:
        return answer(invocation, open_world, log=log, is_own_namespace=is_own_namespace)


def _read_stdin() -> bytes:
    """All of standard input; empty from a terminal, where a person would have to end it by hand.

    Raises:
        OSError: the process was started without one.
    """
    if sys.stdin is None:
        raise OSError("it is closed")
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
