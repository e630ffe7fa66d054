"""The executables ``netplug`` and ``netplug-ipam``: environment and standard input in, text and an exit status out.

The name of the file selects the plugin. VERSION and ``-v`` are answered without importing a flow; every other
command imports its own flow and no other. ``netplug_cli.wiring.cni`` calls ``serve``. The node process calls
``answer_call`` for each request, so that a call is answered in one way only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from netplug_core import __version__
from netplug_core.cni.dispatch import (
    RESUME_FLAG,
    ConnectionTest,
    Handler,
    Invocation,
    Plugin,
    PluginIdentity,
    ProcessOutput,
    plugin_from_argv0,
    run_invocation,
)
from netplug_core.cni.versions import CNICommand

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from netplug_cli.logs import Logger, OpenLogFile, WriteLine
    from netplug_core.cni.request import CNIRequest
    from netplug_core.cni.result import CNIResult
    from netplug_core.errors import NetplugError
    from netplug_core.flows.world import CNIWorld
    from netplug_core.log import Log
    from netplug_core.netconf.model import NetConf

    Flow = Callable[[CNIWorld, CNIRequest, NetConf], CNIResult | None]
    OpenWorld = Callable[[NetConf, Log, CNIRequest | None], AbstractContextManager[CNIWorld]]

__all__ = ["answer_call", "refuse_call", "serve"]

_COMPONENT = {Plugin.MAIN: "cni-plugin", Plugin.IPAM: "ipam"}

# Module and function of each flow, as text, so that a command imports its own flow and no other.
_FLOWS = {
    Plugin.MAIN: {
        CNICommand.ADD: ("cni.add", "add"),
        CNICommand.DEL: ("cni.delete", "delete"),
        CNICommand.CHECK: ("cni.check", "check"),
        CNICommand.STATUS: ("cni.status", "status"),
        CNICommand.GC: ("cni.gc", "gc"),
    },
    Plugin.IPAM: {
        CNICommand.ADD: ("cni.add", "assign_addresses"),
        CNICommand.DEL: ("cni.delete", "release_addresses"),
        CNICommand.CHECK: ("cni.check", "check_addresses"),
        CNICommand.STATUS: ("cni.status", "status_addresses"),
        CNICommand.GC: ("cni.gc", "collect"),
    },
}


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
    output = answer_call(invocation, open_world, open_log_file, is_own_namespace=is_own_namespace)
    if output.stderr and sys.stderr is not None:
        sys.stderr.write(output.stderr)
        sys.stderr.flush()
    sys.stdout.write(output.stdout)
    sys.stdout.flush()
    return output.exit_status


def answer_call(
    invocation: Invocation,
    open_world: OpenWorld,
    open_log_file: OpenLogFile,
    *,
    is_own_namespace: Callable[[str], bool],
    write_line: WriteLine | None = None,
) -> ProcessOutput:
    """The output for one call of a runtime; what it opened is closed.

    ``write_line`` takes the log lines of the call beside the log file; None: standard error does.
    """
    plugin = invocation.identity.plugin
    logger = _LazyLogger(_COMPONENT[plugin], open_log_file, write_line)
    try:
        return run_invocation(
            invocation,
            handlers={command: _make_handler(plugin, command, open_world, logger) for command in _FLOWS[plugin]},
            is_own_namespace=is_own_namespace,
            test_connection=_make_connection_test(plugin, open_world, logger),
            log=logger.log_error,
        )
    finally:
        logger.close()


def refuse_call(
    invocation: Invocation, error: NetplugError, open_log_file: OpenLogFile, *, write_line: WriteLine
) -> ProcessOutput:
    """The output for a call that is not served, because of an error: nothing is opened, no namespace is looked at.

    A call that is wrong in itself gets its own error.
    """
    plugin = invocation.identity.plugin
    logger = _LazyLogger(_COMPONENT[plugin], open_log_file, write_line)

    def refuse(_request: object) -> NoReturn:
        raise error

    return run_invocation(
        invocation,
        handlers=dict.fromkeys(_FLOWS[plugin], refuse),
        is_own_namespace=lambda _path: False,
        test_connection=refuse,
        log=logger.log_error,
    )


class _LazyLogger:
    """The log of one call, made for the first line or when the configuration has been read."""

    def __init__(self, component: str, open_file: OpenLogFile, write_line: WriteLine | None) -> None:
        self._component = component
        self._open_file = open_file
        self._write_line = write_line
        self._logger: Logger | None = None

    def logger(self) -> Logger:
        if self._logger is None:
            from netplug_cli.logs import Logger

            self._logger = Logger(self._component, self._open_file, self._write_line)
        return self._logger

    def close(self) -> None:
        if self._logger is not None:
            self._logger.close()

    def log_error(self, text: str) -> None:
        from netplug_core.log import Level

        self.logger()(Level.ERROR, text)


def _make_handler(plugin: Plugin, command: CNICommand, open_world: OpenWorld, lazy_logger: _LazyLogger) -> Handler:
    def handle(request: CNIRequest) -> CNIResult | None:
        from netplug_core.log import Level
        from netplug_core.netconf.load import LoadPurpose, load

        netconf = load(request.netconf_mapping, plugin, LoadPurpose.of(command))
        logger = lazy_logger.logger()
        logger.configure(netconf.log)
        logger(Level.DEBUG, "call begins", command=command.value, container=request.container_id)
        with open_world(netconf, logger, request if plugin is Plugin.MAIN else None) as world:
            return _load_flow(plugin, command)(world, request, netconf)

    return handle


def _make_connection_test(plugin: Plugin, open_world: OpenWorld, lazy_logger: _LazyLogger) -> ConnectionTest:
    def test(netconf_mapping: Mapping[str, object]) -> None:
        from netplug_core.flows.cni.gc import require_connection
        from netplug_core.netconf.load import LoadPurpose, load

        netconf = load(netconf_mapping, plugin, LoadPurpose.SETUP)
        logger = lazy_logger.logger()
        logger.configure(netconf.log)
        with open_world(netconf, logger, None) as world:
            require_connection(world, netconf)

    return test


def _load_flow(plugin: Plugin, command: CNICommand) -> Flow:
    from importlib import import_module

    module, name = _FLOWS[plugin][command]
    flow: Flow = getattr(import_module(f"netplug_core.flows.{module}"), name)
    return flow


def _read_stdin() -> bytes:
    """All of standard input; empty from a terminal, where a person would have to end it by hand.

    Raises:
        OSError: the process was started without one.
    """
    if sys.stdin is None:
        raise OSError("it is closed")
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
