"""The parts of a bundle that this machine has: versions, configuration, network configurations, logs, node process."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import partial

from attrs import frozen

from netplug_backends.host.atomic_files import read_part
from netplug_cli.ctl.documents import parse_text, read_configuration
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.node_client import NoNodeProcess, ask_node
from netplug_cli.ctl.session import Session
from netplug_cli.ctl.support.parts import absent, failed, read_guarded
from netplug_cli.node_status import encode_status
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.cni.node_socket import DEFAULT_SOCKET, SOCKET_VARIABLE
from netplug_core.errors import ConfigurationError
from netplug_core.settings.keys import SETTING_VARIABLES
from netplug_core.support.bundle import DocumentsPart, Part, TextPart
from netplug_core.support.redaction import Redactor, is_secret_name

__all__ = ["Machine"]

CLIENT, CONFIGURATION, STATUS, CONFLISTS, LOGS = (
    "client.yaml", "netplugctl.yaml", "node/status.yaml", "node/cni", "node/logs",
)  # fmt: skip

_SUFFIXES = (".conf", ".conflist", ".json")  # of the files that runtimes load
_PLUGINS = ("netplug", "netplug-ipam")
_MAX_FILES = 64
_FILE_LIMIT = _LOG_LIMIT = 2**20
_PREFIXES = ("NETPLUG_", "")


@frozen(kw_only=True)
class Machine:
    """This machine. ``configurations`` is the folder of network configurations.

    Files that only say how to be let in (kubeconfigs, keys) are read for what must be found nowhere in the bundle, and
    are no part of it themselves.
    """

    session: Session
    redactor: Redactor
    configurations: str

    def read_parts(self, deadline: Deadline) -> Iterator[Part]:
        """All parts of this machine."""
        secret = {name: text for name, text in self.session.environ.items() if is_secret_name(name)}
        self.redactor.learn(secret)
        yield from read_guarded(CLIENT, self._read_client, deadline)
        yield from read_guarded(CONFIGURATION, self._read_configuration, deadline)
        yield from read_guarded(STATUS, self._read_status, deadline)
        yield from read_guarded(CONFLISTS, partial(self._read_conflists, deadline), deadline)

    def _read_client(self) -> Iterator[Part]:
        document = {
            "version": f"v{__version__}",
            "python": platform.python_version(),
            "system": platform.platform(),
            "machine": platform.machine(),
        }
        yield DocumentsPart(path=CLIENT, documents=(document,))

    def _read_configuration(self) -> Iterator[Part]:
        session = self.session
        default = session.default_config_file
        file = session.options.config or (default if default and os.path.lexists(default) else "")
        if file:
            document = {"file": file, "content": read_configuration(file)}
        else:
            names = (f"{prefix}{name}" for name in SETTING_VARIABLES for prefix in _PREFIXES)
            document = {"environment": {name: session.environ[name] for name in names if name in session.environ}}
        yield DocumentsPart(path=CONFIGURATION, documents=(document,))
        settings = session.settings()
        access = settings.kubernetes
        self._learn_documents(access.kubeconfig_inline, CONFIGURATION)
        self._learn_files(*access.kubeconfig.split(os.pathsep), access.key, settings.etcd_key_file)

    def _read_status(self) -> Iterator[Part]:
        try:
            status = ask_node(self.session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
        except NoNodeProcess as error:
            yield absent(STATUS, str(error))
        else:
            yield DocumentsPart(path=STATUS, documents=(encode_status(status),))

    def _read_conflists(self, deadline: Deadline) -> Iterator[Part]:
        try:
            names = sorted(name for name in os.listdir(self.configurations) if name.endswith(_SUFFIXES))
        except FileNotFoundError:
            yield absent(CONFLISTS, f"there is no folder {self.configurations}")
            return
        if not names:
            yield absent(CONFLISTS, f"{self.configurations} has no network configuration")
        for name in names[:_MAX_FILES]:
            path = f"{CONFLISTS}/{_file_name(name)}"
            yield from read_guarded(path, partial(self._read_conflist, name, path, deadline), deadline)
        if len(names) > _MAX_FILES:
            yield failed(CONFLISTS, f"{len(names) - _MAX_FILES} further files were not read")

    def _read_conflist(self, name: str, path: str, deadline: Deadline) -> Iterator[Part]:
        file = f"{self.configurations}/{name}"
        found = read_part(file, _FILE_LIMIT)
        if b"netplug" not in found.content:
            yield absent(path, f"{file} is of another program")
            return
        try:
            document: object = json.loads(found.content)
        except (ValueError, RecursionError) as error:
            raise InputError(file, None, f"no JSON: {type(error).__name__}") from None
        plugins = _plugins_of(document)
        if not plugins:
            yield absent(path, f"{file} is of another program")
            return
        yield DocumentsPart(path=path, documents=(document,))
        for plugin in plugins:
            access = plugin.get("kubernetes")
            if isinstance(access, dict):
                self._learn_files(str(access.get("kubeconfig") or ""))
        for log in sorted({text for plugin in plugins for text in _log_files(plugin)}):
            place = f"{LOGS}/{_file_name(log.strip('/'))}"
            yield from read_guarded(place, partial(_read_log, log, place), deadline)

    def _learn_files(self, *paths: str) -> None:
        """Keep what is secret in some files, so that it is found wherever else it is."""
        for path in filter(None, paths):
            try:
                text = read_part(path, _FILE_LIMIT).content.decode("utf-8", "replace")
                if "-----BEGIN" in text and "apiVersion" not in text:
                    self.redactor.learn_text(text)
                else:
                    self._learn_documents(text, path)
            except OSError:
                continue  # no secret of it is known, and none of it is in the bundle

    def _learn_documents(self, text: str, name: str) -> None:
        try:
            for document in parse_text(text, name):
                self.redactor.learn(document)
        except ConfigurationError:
            self.redactor.learn_text(text)


def _read_log(log: str, path: str) -> Iterator[Part]:
    try:
        found = read_part(log, _LOG_LIMIT, is_end=True)
    except FileNotFoundError:
        yield absent(path, f"there is no {log} yet")
        return
    text = found.content.decode("utf-8", "backslashreplace")
    note = ""
    if found.size > len(found.content):
        text = text.partition("\n")[2]  # the first line is only a part of one
        note = f"the last {len(found.content)} of {found.size} bytes"
    yield TextPart(path=path, text=text, note=note)


def _plugins_of(document: object) -> list[Mapping[str, object]]:
    """The configurations of netplug in a network configuration, or in a list of them."""
    if not isinstance(document, dict):
        return []
    listed = document.get("plugins")
    members = [document, *(listed if isinstance(listed, list) else [])]
    plugins = [member for member in members if isinstance(member, dict)]
    return [plugin for plugin in plugins if {plugin.get("type"), _ipam_of(plugin).get("type")} & set(_PLUGINS)]


def _ipam_of(plugin: Mapping[str, object]) -> Mapping[str, object]:
    ipam = plugin.get("ipam")
    return ipam if isinstance(ipam, dict) else {}


def _log_files(plugin: Mapping[str, object]) -> Iterator[str]:
    for section in (plugin, _ipam_of(plugin)):
        path = section.get("log_file_path")
        if isinstance(path, str) and path.startswith("/"):
            yield path


def _file_name(text: str) -> str:
    """A text as the name of one file of the archive."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".") or "_"
