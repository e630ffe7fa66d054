"""The plugins that a runtime calls beside netplug: which ones a host needs, and which of them it lacks.

A runtime that lacks one calls netplug for each attempt to start a pod, fails at the other plugin, and never removes
what that attempt was given. ``install host`` asks for them once, the node process again and again. Pure: files and
folders are looked at by the caller.

Source: CNI specification, "Section 2: Execution Protocol"; containerd calls ``loopback`` for each pod by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import frozen

from netplug_core.cni.dispatch import Plugin
from netplug_core.decoding.members import find_at
from netplug_core.errors import excerpt

__all__ = [
    "LOOPBACK", "PLUGINS_FOUND", "PLUGINS_MISSING", "REPORT_AGAIN_S", "REPORT_COUNTS_S", "MissingPlugin",
    "NeededPlugin", "find_missing", "needed_plugins",
]  # fmt: skip

PLUGINS_MISSING, PLUGINS_FOUND = "PluginsMissing", "PluginsFound"
"""The reasons of Events about a Node: its host lacks plugins, and it has them again."""

REPORT_AGAIN_S = 600.0
"""The pause between two reports of the same missing plugins to the orchestrator, which forgets Events after a while."""

REPORT_COUNTS_S = 2.5 * REPORT_AGAIN_S
"""How long a report counts: a process that ends, or is started again when nothing is missing, does not take it back."""


@frozen
class NeededPlugin:
    """A plugin without which no pod starts. ``file`` is the configuration list that names it; empty: none has to."""

    name: str
    file: str = ""

    @property
    def purpose(self) -> str:
        """What does not work without it."""
        return (
            f"{self.file} names it, so no pod starts without it" if self.file else "containerd starts no pod without it"
        )


LOOPBACK = NeededPlugin("loopback")
"""The plugin that containerd calls for each pod, whatever is configured."""


@frozen
class MissingPlugin:
    """A plugin that is needed and is in none of the folders where the runtime looks."""

    plugin: NeededPlugin
    folders: tuple[str, ...]

    def __str__(self) -> str:
        return f"{excerpt(self.plugin.name)} is not in {' or '.join(self.folders)}: {self.plugin.purpose}"


def needed_plugins(files: Mapping[str, str], *, calls_loopback: bool) -> tuple[NeededPlugin, ...]:
    """The plugins that configuration lists chain with netplug, each once, in the order of the paths.

    ``files`` are the texts of the lists by their paths. One that is damaged, or that does not name netplug, needs none.
    ``calls_loopback`` is whether the runtime calls :data:`LOOPBACK` too, which it needs once a list names netplug.
    """
    found: dict[str, NeededPlugin] = {}
    for path in sorted(files):
        names = tuple(_types_of(files[path]))
        if Plugin.MAIN.value in names:
            for name in (*((LOOPBACK.name,) if calls_loopback else ()), *names):
                found.setdefault(name, LOOPBACK if name == LOOPBACK.name else NeededPlugin(name, path))
    found.pop(Plugin.MAIN.value, None)
    return tuple(found.values())


def find_missing(
    needed: Sequence[NeededPlugin], folders: Sequence[str], is_executable: Callable[[str], bool]
) -> tuple[MissingPlugin, ...]:
    """Those that are in none of the folders; ``is_executable`` says whether a path is a program."""
    return tuple(
        MissingPlugin(plugin, tuple(folders))
        for plugin in needed
        if not any(is_executable(f"{folder}/{plugin.name}") for folder in folders)
    )


def _types_of(text: str) -> Iterator[str]:
    """The types of the plugins of a list, as far as it can be read. A type is the name of a file, and no path."""
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return
    plugins = find_at(document, ("plugins",))
    for position in range(len(plugins) if isinstance(plugins, list) else 0):
        name = find_at(plugins, (position, "type"))
        if isinstance(name, str) and name and "/" not in name and "\0" not in name:
            yield name
