"""What the files ``netplug`` and ``netplug-ipam`` on a host run: text in, text and an exit status out.

The file's name selects the plugin. VERSION and the flags are answered without loading anything below; every other
command loads the flow it needs, and nothing of the others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from netplug_cli.release import RELEASE
from netplug_core.cni.dispatch import Handler, Invocation, Plugin, PluginIdentity, plugin_from_argv0, run_invocation
from netplug_core.cni.versions import CNICommand

if TYPE_CHECKING:
    from netplug_cli.logs import Logger
    from netplug_core.cni.request import CNIRequest
    from netplug_core.cni.result import CNIResult
    from netplug_core.flows.world import World
    from netplug_core.netconf.model import NetConf

    Flow = Callable[[World, CNIRequest, NetConf], CNIResult | None]

__all__ = ["main"]

_COMPONENT = {Plugin.MAIN: "cni-plugin", Plugin.IPAM: "ipam"}

# Module and function of each flow: named, so that a command loads its own and no other.
_FLOWS = {
    Plugin.MAIN: {
        CNICommand.ADD: ("cni.add", "add"),
        CNICommand.DEL: ("cni.delete", "delete"),
        CNICommand.CHECK: ("cni.check", "check"),
        CNICommand.STATUS: ("cni.status", "status"),
        CNICommand.GC: ("cni.gc", "gc"),
    },
    Plugin.IPAM: {
        CNICommand.ADD: ("cni.addresses", "assign_addresses"),
        CNICommand.DEL: ("cni.addresses", "release_addresses"),
        CNICommand.CHECK: ("cni.check", "check_addresses"),
        CNICommand.STATUS: ("cni.status", "status_addresses"),
        CNICommand.GC: ("cni.gc", "collect"),
    },
}


def main() -> int:
    """Serve one call of a runtime; the exit status of the process, which may end at once: all is written and closed."""
    plugin = plugin_from_argv0(sys.argv[0])
    lines = _LazyLogger(_COMPONENT[plugin])
    reply = run_invocation(
        Invocation(
            identity=PluginIdentity(plugin=plugin, version=RELEASE),
            flags=tuple(sys.argv[1:]),
            environ=os.environ,
            stdin=_read_stdin,
        ),
        handlers={command: _make_handler(plugin, command, lines) for command in _FLOWS[plugin]},
        is_own_namespace=_is_own_namespace,
        log=lines.log_error,
    )
    if reply.stderr and sys.stderr is not None:
        sys.stderr.write(reply.stderr)
        sys.stderr.flush()
    sys.stdout.write(reply.stdout)
    sys.stdout.flush()
    return reply.exit_status


class _LazyLogger:
    """The process's log, made when the first line or the configuration comes."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._logger: Logger | None = None

    def logger(self) -> Logger:
        if self._logger is None:
            from netplug_cli.logs import Logger

            self._logger = Logger(self._component)
        return self._logger

    def log_error(self, text: str) -> None:
        from netplug_core.log import Level

        self.logger()(Level.ERROR, text)


def _make_handler(plugin: Plugin, command: CNICommand, lazy_logger: _LazyLogger) -> Handler:
    def handle(request: CNIRequest) -> CNIResult | None:
        from netplug_cli.wiring.backends import open_cni_world
        from netplug_core.netconf.load import LoadPurpose, PluginRole, load

        role = PluginRole.MAIN if plugin is Plugin.MAIN else PluginRole.IPAM
        purpose = LoadPurpose.TEARDOWN if command in (CNICommand.DEL, CNICommand.GC) else LoadPurpose.SETUP
        netconf = load(request.netconf_mapping, role, purpose)
        logger = lazy_logger.logger()
        logger.configure(netconf.log.level, netconf.log.file_path)
        with open_cni_world(netconf, logger) as world:
            return _load_flow(plugin, command)(world, request, netconf)

    return handle


def _load_flow(plugin: Plugin, command: CNICommand) -> Flow:
    from importlib import import_module

    module, name = _FLOWS[plugin][command]
    flow: Flow = getattr(import_module(f"netplug_core.flows.{module}"), name)
    return flow


def _read_stdin() -> bytes:
    """All of standard input; nothing from a terminal, where a person would have to end it by hand.

    Raises:
        OSError: the process was started without one.
    """
    if sys.stdin is None:
        raise OSError("it is closed")
    return b"" if sys.stdin.isatty() else sys.stdin.buffer.read()


def _is_own_namespace(path: str) -> bool:
    try:
        other, own = os.stat(path), os.stat("/proc/self/ns/net")
    except OSError:
        return False
    return (other.st_dev, other.st_ino) == (own.st_dev, own.st_ino)
