"""What runtimes and pods need of a host besides the executables. ``netplugctl install host`` reports what is missing.

It only reads: settings of the kernel, plugin folders, and the configuration files of containerd, podman and CNI. A file
that cannot be read or understood says nothing about a host, so it is passed over: its own program reports it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from netplug_backends.host.atomic_files import read_file
from netplug_core.addressing import Family
from netplug_core.dataplane.plan import find_node_problems

__all__ = ["find_host_problems", "find_missing_plugins"]

_CONTAINERD_FILE = "etc/containerd/config.toml"
_CONTAINERD_DEFAULT = "/opt/cni/bin"
_CONFIGURATIONS = "etc/cni/net.d"
_PLUGIN = "netplug"

# Where podman reads its configuration, the last one wins; and where its own network program is.
_PODMAN_FILES = ("usr/share/containers/containers.conf", "etc/containers/containers.conf")
_PODMAN_FOLDER = "etc/containers/containers.conf.d"
_PODMAN = ("usr/bin/podman", "usr/local/bin/podman")
_NETAVARK = ("usr/lib/podman/netavark", "usr/libexec/podman/netavark", "usr/local/libexec/podman/netavark")

_DEBIAN_FOLDER = "usr/lib/cni"
_NEEDED = {"loopback": "containerd starts no pod without it"}
_OPTIONAL = {"portmap": "host ports do not work without it, and no pod starts if the configuration list names it"}


def find_host_problems(bin_dir: str, root: str = "/") -> tuple[str, ...]:
    """What pods would lack on the host whose files are below ``root``: one sentence each, with the command to run.

    ``bin_dir`` is the folder that the executables are installed into.
    """
    host = _Host(Path(root), bin_dir)
    return (*host.find_settings(), *host.find_optional_plugins(), *host.find_containerd(), *host.find_podman())


def find_missing_plugins(bin_dir: str, root: str = "/") -> tuple[str, ...]:
    """The plugins without which no pod starts and that a runtime would not find: one sentence each, with the command.

    They are ``loopback`` and those that a configuration list of this host chains with netplug. A runtime that lacks
    one calls netplug for each attempt to start a pod, and never removes what that attempt was given.
    """
    return tuple(_Host(Path(root), bin_dir).find_needed_plugins())


@frozen
class _Host:
    root: Path
    bin_dir: str

    def find_settings(self) -> Iterator[str]:
        """Settings of the kernel."""
        for problem in find_node_problems(tuple(Family), lambda path: self._find_text(f"proc/sys/{path}")):
            yield str(problem)

    def find_needed_plugins(self) -> Iterator[str]:
        """Plugins without which no pod starts."""
        for name, purpose in self._needed_plugins().items():
            yield from self._find_plugin(name, purpose)

    def find_optional_plugins(self) -> Iterator[str]:
        """Plugins that pods may want, and that no configuration list names."""
        needed = self._needed_plugins()
        for name, purpose in _OPTIONAL.items():
            if name not in needed:
                yield from self._find_plugin(name, purpose)

    def _needed_plugins(self) -> Mapping[str, str]:
        """The names of the plugins without which no pod starts, each with the reason."""
        needed = dict(_NEEDED)
        for name, file in self._chained_plugins():
            if name == _PLUGIN:  # it is what is being installed
                continue
            needed.setdefault(name, f"{file} names it, so no pod starts without it")
        return needed

    def _find_plugin(self, name: str, purpose: str) -> Iterator[str]:
        if not any(self._is_executable(f"{folder}/{name}") for folder in self._plugin_folders()):
            yield f"{name} is not in {self.bin_dir}: {purpose}; {self._how_to_get(name)}"

    def _plugin_folders(self) -> tuple[str, ...]:
        """Where a plugin is found: the folder, and the others in which a containerd that looks there looks, too."""
        text = self._find_text(_CONTAINERD_FILE) or ""
        folders = _folders_of_containerd(_parse(tomllib.loads, text))
        if os.path.normpath(self.bin_dir) in map(os.path.normpath, folders):
            return (self.bin_dir, *folders)
        return (self.bin_dir,)

    def find_containerd(self) -> Iterator[str]:
        """Another folder in which containerd looks for plugins.

        Only the usual configuration file is read: one that runs with another says so in its command line alone.
        """
        text = self._find_text(_CONTAINERD_FILE)
        if text is None:
            return
        folders = _folders_of_containerd(_parse(tomllib.loads, text)) or (_CONTAINERD_DEFAULT,)
        if os.path.normpath(self.bin_dir) not in map(os.path.normpath, folders):
            yield (
                f"containerd does not look for plugins in {self.bin_dir}, if /{_CONTAINERD_FILE} is its configuration "
                f"(with containerd -c FILE, look there); run: netplugctl install host --bin-dir {folders[0]}"
            )

    def find_podman(self) -> Iterator[str]:
        """A podman whose networks are not made by CNI plugins."""
        if not any(self._is_executable(path) for path in _PODMAN):
            return
        backend = self._network_backend()
        if backend == "cni" or (not backend and not any(self._is_executable(path) for path in _NETAVARK)):
            return
        yield (
            f"podman makes networks with {backend or 'netavark'} and calls no CNI plugin: set network_backend to cni; "
            "run: mkdir -p /etc/containers/containers.conf.d && "
            """printf '[network]\\nnetwork_backend = "cni"\\n' >/etc/containers/containers.conf.d/netplug.conf"""
        )

    def _network_backend(self) -> str:
        """What podman is configured to make networks with; empty if no file says it."""
        folder = self.root / _PODMAN_FOLDER
        further = sorted(f"{_PODMAN_FOLDER}/{path.name}" for path in folder.glob("*.conf"))
        backend = ""
        for path in (*_PODMAN_FILES, *further):
            network = _parse(tomllib.loads, self._find_text(path) or "").get("network")
            if isinstance(network, dict):
                backend = str(network.get("network_backend", backend))
        return backend

    def _chained_plugins(self) -> Iterator[tuple[str, str]]:
        """The names of the plugins beside netplug in its configuration lists, each with its file."""
        for path in sorted((self.root / _CONFIGURATIONS).glob("*.conflist")):
            document = _parse(json.loads, self._find_text(f"{_CONFIGURATIONS}/{path.name}") or "{}")
            plugins = document.get("plugins")
            sections = [entry for entry in plugins if isinstance(entry, dict)] if isinstance(plugins, list) else []
            names = [str(section.get("type", "")) for section in sections]
            if _PLUGIN in names:
                yield from ((name, f"/{_CONFIGURATIONS}/{path.name}") for name in names if name and "/" not in name)

    def _how_to_get(self, plugin: str) -> str:
        link = f"ln -s /{_DEBIAN_FOLDER}/{plugin} {self.bin_dir}/"
        if self._is_executable(f"{_DEBIAN_FOLDER}/{plugin}"):
            return f"run: {link}"
        package = "apt-get install containernetworking-plugins"
        return f"run: {package}" if self.bin_dir.strip("/") == _DEBIAN_FOLDER else f"run: {package} && {link}"

    def _find_text(self, path: str) -> str | None:
        try:
            return read_file(str(self.root / path)).decode(errors="replace").strip()
        except OSError:
            return None

    def _is_executable(self, path: str) -> bool:
        return os.access(self.root / path.lstrip("/"), os.X_OK)


def _parse(parse: Callable[[str], object], text: str) -> Mapping[str, object]:
    try:
        found = parse(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _folders_of_containerd(document: Mapping[str, object]) -> tuple[str, ...]:
    """The plugin folders that a configuration of containerd names, in every version of that file; empty for none."""
    found: list[str] = []
    plugins = document.get("plugins")
    for plugin in plugins.values() if isinstance(plugins, dict) else ():
        section = plugin.get("cni") if isinstance(plugin, dict) else None
        if isinstance(section, dict):
            folders = section.get("bin_dirs") or [section.get("bin_dir")]
            found.extend(folder for folder in folders if isinstance(folder, str) and folder)
    return tuple(found)
