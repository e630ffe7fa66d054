"""What else a host needs beside netplug's executables, and who may write what root runs."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from netplug_backends.host.atomic_files import read_file
from netplug_core.addressing import Family
from netplug_core.cni.plugins import LOOPBACK, MissingPlugin, find_missing, needed_plugins
from netplug_core.dataplane.plan import find_node_problems
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = [
    "Environment", "find_host_problems", "find_missing_plugins", "installing_environment", "look_for_plugins",
    "remove_open_caches", "require_trusted",
]  # fmt: skip


# --- trust -----------------------------------------------------------------------------------------------------------


_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CACHE = "__pycache__"
# Folders of other libraries inside the standard library; the executables do not search them.
_NOT_SEARCHED = frozenset({"site-packages", "dist-packages"})


@frozen(kw_only=True)
class Environment:
    """What an executable loads: its interpreter, the settings beside it, and everything in the libraries' folders."""

    interpreter: str
    settings: tuple[str, ...]
    libraries: tuple[str, ...]


def installing_environment(libraries: Iterable[str]) -> Environment:
    """The environment of this process, with the folders of the libraries that the executables name."""
    folder = os.path.dirname(sys.executable)
    return Environment(
        interpreter=sys.executable,
        settings=tuple(os.path.join(place, "pyvenv.cfg") for place in (folder, os.path.dirname(folder))),
        libraries=(sysconfig.get_path("stdlib"), *libraries),
    )


def require_trusted(environment: Environment) -> None:
    """Return if only root may write everything that the executables load, and every folder above it.

    Raises:
        ConfigurationError: another user may write a file or folder; the text names it, its owner and its mode.
        Unavailable: this process may not look at one.
    """
    try:
        _require_trusted(environment)
    except OSError as error:
        raise Unavailable(str(error.filename), error.strerror or str(error)) from error


def _require_trusted(environment: Environment) -> None:
    # The folder, too, where a file of settings is looked for and is missing.
    for path in (environment.interpreter, *environment.settings, *map(os.path.dirname, environment.settings)):
        if os.path.lexists(path):
            _require_closed_way(path)
    for library in environment.libraries:
        _require_closed_way(library)
        for path in _files_below(os.path.realpath(library)):
            with suppress(FileNotFoundError):  # bytecode that another process replaces, or a link to nothing
                _require_closed_way(path) if os.path.islink(path) else _require_closed(path)


def remove_open_caches(packages: Iterable[str]) -> None:
    """Remove the bytecode of packages from folders that a user other than root may write: it is compiled again.

    A Python that is started with umask 0 makes such folders.
    """
    for package in packages:
        for folder in list(Path(package).rglob(_CACHE)):
            if _is_open(folder.lstat()):
                with suppress(OSError):  # what stays is refused
                    shutil.rmtree(folder)


def _require_closed(path: str, *, accepted_bits: int = 0) -> None:
    status = os.lstat(path)
    if _is_open(status) and not (status.st_uid == 0 and status.st_mode & accepted_bits):
        raise ConfigurationError(
            "installing environment",
            path,
            f"it belongs to {_user_name(status.st_uid)} and has mode {stat.S_IMODE(status.st_mode):04o}, and a user "
            "who may write it becomes root with the next pod; make it root's and writable by root alone (chown root, "
            "chmod go-w), or use --trust-environment",
        )


def _require_closed_way(path: str) -> None:
    folders = list(_way(path))
    for folder in folders[:-1]:
        # In a sticky folder such as /tmp, only root can remove or rename what belongs to root.
        _require_closed(folder, accepted_bits=stat.S_ISVTX)
    _require_closed(folders[-1])


def _is_open(status: os.stat_result) -> bool:
    """Whether a user other than root may write it; a link has an owner, but no rights of its own."""
    may_others_write = not stat.S_ISLNK(status.st_mode) and status.st_mode & _OTHERS_MAY_WRITE
    return status.st_uid != 0 or bool(may_others_write)


def _way(path: str) -> Iterator[str]:
    """Every folder and link that leads to a path that exists, from the root on, and the path itself."""
    yield "/"
    current, waiting = "/", _reversed_parts(os.path.abspath(path))
    while waiting:
        name = waiting.pop()
        if name == "..":
            current = os.path.dirname(current)
            continue
        current = os.path.join(current, name)
        yield current
        if os.path.islink(current):
            target = os.readlink(current)
            current = "/" if target.startswith("/") else os.path.dirname(current)
            waiting.extend(_reversed_parts(target))


def _reversed_parts(path: str) -> list[str]:
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _files_below(folder: str) -> Iterator[str]:
    """Every file, folder and link below a folder from which Python may import something."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_SEARCHED:
            continue
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _files_below(entry.path)


def _user_name(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"user {number}"


# --- requirements ----------------------------------------------------------------------------------------------------


_CONTAINERD_FILE = "etc/containerd/config.toml"
_CONTAINERD_DEFAULT = "/opt/cni/bin"
_CONFIGURATIONS = "/etc/cni/net.d"
_CONTAINERD = ("usr/bin/containerd", "usr/local/bin/containerd")

# Where podman reads its configuration, the last one wins; and where its own network program is.
_PODMAN_FILES = ("usr/share/containers/containers.conf", "etc/containers/containers.conf")
_PODMAN_FOLDER = "etc/containers/containers.conf.d"
_PODMAN = ("usr/bin/podman", "usr/local/bin/podman")
_NETAVARK = ("usr/lib/podman/netavark", "usr/libexec/podman/netavark", "usr/local/libexec/podman/netavark")

_DEBIAN_FOLDER = "usr/lib/cni"
_OPTIONAL = {"portmap": "host ports do not work without it, and no pod starts if the configuration list names it"}


def find_host_problems(bin_dir: str, root: str = "/") -> tuple[str, ...]:
    """What pods would lack on the host whose files are below ``root``: one sentence each, with the command to run.

    ``bin_dir`` is the folder that the executables are installed into.
    """
    host = _Host(Path(root), bin_dir)
    return (*host.find_settings(), *host.find_optional_plugins(), *host.find_containerd(), *host.find_podman())


def find_missing_plugins(bin_dir: str, root: str = "/") -> tuple[str, ...]:
    """The plugins without which no pod starts and that a runtime would not find: one sentence each, with the command.

    They are ``loopback`` and those that a configuration list of this host chains with netplug.
    """
    host = _Host(Path(root), bin_dir)
    return tuple(f"{missing}; {host.how_to_get(missing.plugin.name)}" for missing in host.find_missing_at_install())


def look_for_plugins(
    bin_dir: str, conf_dir: str, *, has_orchestrator: bool, root: str = "/"
) -> tuple[MissingPlugin, ...]:
    """The plugins without which no pod starts on a node that serves, and that its runtime would not find.

    ``loopback`` is one of them where there is containerd or an orchestrator.
    """
    host = _Host(Path(root), bin_dir, conf_dir)
    needed = needed_plugins(host.lists(), calls_loopback=has_orchestrator or host.has_containerd())
    return find_missing(needed, host.plugin_folders(), host.is_executable)


@frozen
class _Host:
    root: Path
    bin_dir: str
    conf_dir: str = _CONFIGURATIONS

    def find_settings(self) -> Iterator[str]:
        """Settings of the kernel."""
        for problem in find_node_problems(tuple(Family), lambda path: self._find_text(f"proc/sys/{path}")):
            yield str(problem)

    def find_missing_at_install(self) -> tuple[MissingPlugin, ...]:
        """Plugins without which no pod will start; no list may name netplug yet."""
        needed = dict.fromkeys((LOOPBACK, *needed_plugins(self.lists(), calls_loopback=True)))
        return find_missing(tuple(needed), (self.bin_dir,), self._is_in_some_folder)

    def find_optional_plugins(self) -> Iterator[str]:
        """Plugins that pods may want, and that no configuration list names."""
        needed = {plugin.name for plugin in needed_plugins(self.lists(), calls_loopback=True)}
        for name, purpose in _OPTIONAL.items():
            if name not in needed and not self._is_in_some_folder(f"{self.bin_dir}/{name}"):
                yield f"{name} is not in {self.bin_dir}: {purpose}; {self.how_to_get(name)}"

    def lists(self) -> Mapping[str, str]:
        """The texts of the configuration lists by their paths; one that cannot be read is empty."""
        folder = self.conf_dir.rstrip("/")
        names = sorted(path.name for path in (self.root / folder.lstrip("/")).glob("*.conflist"))
        return {f"{folder}/{name}": self._find_text(f"{folder.lstrip('/')}/{name}") or "" for name in names}

    def has_containerd(self) -> bool:
        """Whether containerd is installed, where distributions put it."""
        return self._find_text(_CONTAINERD_FILE) is not None or any(map(self.is_executable, _CONTAINERD))

    def plugin_folders(self) -> tuple[str, ...]:
        """Where a plugin is found: the folder, and the others in which a containerd that looks there looks, too."""
        text = self._find_text(_CONTAINERD_FILE) or ""
        folders = _folders_of_containerd(_parse(tomllib.loads, text))
        if os.path.normpath(self.bin_dir) in map(os.path.normpath, folders):
            return tuple(dict.fromkeys((self.bin_dir, *folders)))
        return (self.bin_dir,)

    def _is_in_some_folder(self, path: str) -> bool:
        name = os.path.basename(path)
        return any(self.is_executable(f"{folder}/{name}") for folder in self.plugin_folders())

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
        if not any(self.is_executable(path) for path in _PODMAN):
            return
        backend = self._network_backend()
        if backend == "cni" or (not backend and not any(self.is_executable(path) for path in _NETAVARK)):
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

    def how_to_get(self, plugin: str) -> str:
        """The command that brings it."""
        link = f"ln -s /{_DEBIAN_FOLDER}/{plugin} {self.bin_dir}/"
        if self.is_executable(f"{_DEBIAN_FOLDER}/{plugin}"):
            return f"run: {link}"
        package = "apt-get install containernetworking-plugins"
        return f"run: {package}" if self.bin_dir.strip("/") == _DEBIAN_FOLDER else f"run: {package} && {link}"

    def _find_text(self, path: str) -> str | None:
        try:
            return read_file(str(self.root / path)).decode(errors="replace").strip()
        except OSError:
            return None

    def is_executable(self, path: str) -> bool:
        """Whether a path of the host is a program."""
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
