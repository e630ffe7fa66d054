"""Runs the plugin executables of a configuration list as a container runtime does, one command at a time.

They run as files in the node's network namespace, with environment and standard input of the CNI specification. Nothing
of netplug is called directly. The configuration list is made here, too.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import cache

from attrs import frozen

from netplug_backends.host.atomic_files import read_file
from netplug_cli.lab.folder import LockedFolder, attached_pod
from netplug_cli.lab.model import (
    CNI_VERSION,
    IFNAME,
    POD_NAMESPACE,
    Lab,
    LabError,
    LabFolder,
    LabNode,
    LabPod,
    Namespaces,
    store_netconf_keys,
)
from netplug_core.cni.node_socket import SOCKET_VARIABLE
from netplug_core.decoding.codecs import NONEMPTY_STRING, OBJECT
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error
from netplug_core.errors import DecodeError

__all__ = [
    "Conflist", "ContainerRuntime", "PluginCall", "PluginFailed", "open_runtime", "parse_conflist",
    "plugin_environment", "render_conflist",
]  # fmt: skip


# --- conflist --------------------------------------------------------------------------------------------------------


_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@frozen(kw_only=True)
class Conflist:
    """A configuration list: the name of its network, and the objects of its plugins, unchanged."""

    network: str
    cni_version: str
    plugins: tuple[Mapping[str, object], ...] = ()

    def request(self, position: int, previous: str) -> str:
        """The standard input of a plugin; ``previous`` is the JSON of the previous result, or empty.

        Source: CNI specification, "Deriving request configuration from plugin configuration".
        """
        request = {"name": self.network, "cniVersion": self.cni_version, **self.plugins[position]}
        if previous:
            request["prevResult"] = json.loads(previous)
        return json.dumps(request)


@frozen(kw_only=True)
class PluginCall:
    """One command about one pod: the namespace of its interface, the folder of the plugins, and their node process."""

    command: str
    pod: str
    netns: str
    bin_dir: str
    node_socket: str


def plugin_environment(call: PluginCall) -> dict[str, str]:
    """The variables of a call, with those of the kubelet's runtimes (CNI specification, "Parameters").

    The lab is a node of its own: its own node process is asked, not that of this machine.
    """
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": POD_NAMESPACE,
        "K8S_POD_NAME": call.pod,
        "K8S_POD_INFRA_CONTAINER_ID": call.pod,
    }
    return {
        "PATH": _PATH,
        SOCKET_VARIABLE: call.node_socket,
        "CNI_COMMAND": call.command,
        "CNI_CONTAINERID": call.pod,
        "CNI_NETNS": call.netns,
        "CNI_IFNAME": IFNAME,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments.items()),
        "CNI_PATH": call.bin_dir,
    }


def render_conflist(lab: Lab, node: LabNode, folder: LabFolder) -> str:
    """The text of the configuration list of a node."""
    files = folder.node_files(node.netns)
    netplug = {
        "type": "netplug",
        "capabilities": {"ips": True, "mac": True},
        "nodename": node.name,
        "nodename_file": files.nodename_file,
        **store_netconf_keys(lab.store, folder),
        "log_level": "INFO",
        "log_file_path": files.log_file,
        "mtu_file": files.mtu_file,
        "ipam_lock_file": files.ipam_lock_file,
        "release_record_dir": files.release_record_dir,
        "ipam": {"type": "netplug-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
    }
    return json.dumps({"cniVersion": CNI_VERSION, "name": lab.name, "plugins": [netplug]}, indent=2) + "\n"


def parse_conflist(text: str, where: str) -> Conflist:
    """The configuration list that a text is; ``where`` begins the messages.

    Raises:
        LabError: it is not one.
    """
    try:
        return _decoder().decode(json.loads(text), Conflist, where)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    except DecodeError as error:
        raise LabError(f"not a configuration list: {error}") from error


@cache
def _decoder() -> Decoder:
    fields = {
        "network": Field("name", NONEMPTY_STRING),
        "cni_version": Field("cniVersion", NONEMPTY_STRING),
        "plugins": Field("plugins", ListOf(OBJECT)),
    }
    return Decoder(cni_error, tables=(Table(cls=Conflist, fields=fields),))


# --- runtime ---------------------------------------------------------------------------------------------------------


_TIMEOUT_S = 120.0


@frozen
class PluginFailed(LabError):
    """A plugin ended with an error."""

    pod: str
    command: str
    plugin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.command} of plugin {self.plugin} failed: {self.reason}"


@frozen(kw_only=True)
class ContainerRuntime:
    """Attaches and detaches the pods of one node; ``netns`` is the name of the node's namespace."""

    namespaces: Namespaces
    conflist: Conflist
    locked: LockedFolder
    netns: str

    def add(self, pod: LabPod) -> LabPod:
        """Run every plugin of the list, each with the result of the one before.

        Raises:
            PluginFailed: one of them failed; the interface is not complete.
        """
        call = self._make_call("ADD", pod)
        result = ""
        for position in range(len(self.conflist.plugins)):
            result = self._run(position, call, result)
        return attached_pod(pod, result)

    def delete(self, pod: LabPod) -> None:
        """Run every plugin in reverse order, each with the result of ADD if there is one.

        Raises:
            PluginFailed: one of them failed; those after it were not run.
        """
        call = self._make_call("DEL", pod)
        for position in reversed(range(len(self.conflist.plugins))):
            self._run(position, call, pod.add_output)

    def _make_call(self, command: str, pod: LabPod) -> PluginCall:
        folder = self.locked.folder
        return PluginCall(
            command=command,
            pod=pod.name,
            netns=folder.netns(pod.name),
            bin_dir=folder.bin_dir,
            node_socket=folder.node_files(self.netns).node_socket,
        )

    def _run(self, position: int, call: PluginCall, previous: str) -> str:
        plugin = str(self.conflist.plugins[position].get("type"))
        try:
            with self.namespaces.enter(self.locked.folder.netns(self.netns)):
                done = subprocess.run(
                    [f"{call.bin_dir}/{plugin}"],
                    input=self.conflist.request(position, previous).encode(),
                    capture_output=True,
                    env=plugin_environment(call),
                    # The plugin inherits the lock, so a command that cleans up waits for its end.
                    pass_fds=(self.locked.descriptor,),
                    timeout=_TIMEOUT_S,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PluginFailed(call.pod, call.command, plugin, str(error)) from error
        if done.returncode:
            reason = _error_text(done.stdout, done.stderr) or f"exit status {done.returncode}"
            raise PluginFailed(call.pod, call.command, plugin, reason)
        return done.stdout.decode("utf-8", "replace")


def open_runtime(namespaces: Namespaces, locked: LockedFolder, netns: str) -> ContainerRuntime:
    """The runtime of the node with that namespace, with its configuration list.

    Raises:
        LabError: the file is not a configuration list.
    """
    path = locked.folder.node_files(netns).conflist_file
    conflist = parse_conflist(read_file(path).decode(), path)
    return ContainerRuntime(namespaces=namespaces, conflist=conflist, locked=locked, netns=netns)


def _error_text(stdout: bytes, stderr: bytes) -> str:
    """The message of the error object; without one, the last line of the log."""
    try:
        error: object = json.loads(stdout)
    except (ValueError, RecursionError):
        error = None
    if not isinstance(error, Mapping):
        lines = stderr.decode("utf-8", "replace").splitlines()
        return lines[-1] if lines else ""
    details = error.get("details")
    return f"{error.get('msg')} (code {error.get('code')}{f'; {details}' if details else ''})"
