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
from netplug_core.cni.dispatch import Handler, Invocation, Plugin, PluginIdentity, identify, run
from netplug_core.cni.versions import Command

if TYPE_CHECKING:
    from netplug_cli.logs import Logger
    from netplug_core.cni.request import CNIRequest
    from netplug_core.cni.result import Result
    from netplug_core.flows.world import World
    from netplug_core.netconf.model import NetConf

    Flow = Callable[[World, CNIRequest, NetConf], Result | None]

__all__ = ["main"]

_COMPONENT = {Plugin.MAIN: "cni-plugin", Plugin.IPAM: "ipam"}

# Module and function of each flow: named, so that a command loads its own and no other.
_FLOWS = {
    Plugin.MAIN: {
        Command.ADD: ("add", "add"),
        Command.DEL: ("delete", "delete"),
        Command.CHECK: ("check", "check"),
        Command.STATUS: ("status", "status"),
        Command.GC: ("gc", "gc"),
    },
    Plugin.IPAM: {
        Command.ADD: ("ipam", "assign_addresses"),
        Command.DEL: ("ipam", "release_addresses"),
        Command.CHECK: ("check", "check_addresses"),
        Command.STATUS: ("status", "status_addresses"),
        Command.GC: ("gc", "collect"),
    },
}


def main() -> int:
    """Serve one call of a runtime; the exit status of the process, which may end at once: all is written and closed."""
    plugin = identify(sys.argv[0])
    lines = _Lines(_COMPONENT[plugin])
    reply = run(
        Invocation(
            identity=PluginIdentity(plugin=plugin, version=RELEASE),
            flags=tuple(sys.argv[1:]),
            environ=os.environ,
            stdin=_standard_input,
        ),
        handlers={command: _handler(plugin, command, lines) for command in _FLOWS[plugin]},
        is_own_namespace=_is_own_namespace,
        log=lines.error,
    )
    if reply.stderr and sys.stderr is not None:
        sys.stderr.write(reply.stderr)
        sys.stderr.flush()
    sys.stdout.write(reply.stdout)
    sys.stdout.flush()
    return reply.status


class _Lines:
    """The process's log, made when the first line or the configuration comes."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._logger: Logger | None = None

    def logger(self) -> Logger:
        if self._logger is None:
            from netplug_cli.logs import Logger

            self._logger = Logger(self._component)
        return self._logger

    def error(self, text: str) -> None:
        from netplug_core.log import Level

        self.logger()(Level.ERROR, text)


def _handler(plugin: Plugin, command: Command, lines: _Lines) -> Handler:
    def handle(request: CNIRequest) -> Result | None:
        from netplug_cli.wiring import open_world
        from netplug_core.netconf.load import Purpose, Role, load

        role = Role.MAIN if plugin is Plugin.MAIN else Role.IPAM
        purpose = Purpose.TEARDOWN if command in (Command.DEL, Command.GC) else Purpose.SETUP
        netconf = load(request.config, role, purpose)
        logger = lines.logger()
        logger.configure(netconf.log.level, netconf.log.file_path)
        with open_world(netconf, logger) as world:
            return _flow(plugin, command)(world, request, netconf)

    return handle


def _flow(plugin: Plugin, command: Command) -> Flow:
    from importlib import import_module

    module, name = _FLOWS[plugin][command]
    flow: Flow = getattr(import_module(f"netplug_core.flows.{module}"), name)
    return flow


def _standard_input() -> bytes:
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
