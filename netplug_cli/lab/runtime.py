"""Runs the plugin executables of a configuration list as a container runtime does, one command at a time.

They run as files in the node's network namespace, with environment and standard input of the CNI specification. Nothing
of netplug is called directly.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from attrs import frozen

from netplug_backends.host.atomic_files import read_file
from netplug_cli.lab.conflist import Conflist, PluginCall, parse_conflist, plugin_environment
from netplug_cli.lab.folder import LockedFolder, attached_pod
from netplug_cli.lab.model import NODE_NETNS, LabError, LabPod
from netplug_cli.lab.namespaces import Namespaces

__all__ = ["ContainerRuntime", "PluginFailed", "open_runtime"]

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
    """Attaches and detaches the pods of one lab."""

    namespaces: Namespaces
    conflist: Conflist
    locked: LockedFolder

    def add(self, pod: LabPod) -> LabPod:
        """Run every plugin of the list, each with the result of the one before.

        Raises:
            PluginFailed: one of them failed; the interface is not complete.
        """
        call = self._make_call("ADD", pod)
        result = ""
        for position in range(len(self.conflist.plugins)):
            result = self._run(position, call, result)
        return attached_pod(pod.name, result)

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
            node_socket=folder.node_socket,
        )

    def _run(self, position: int, call: PluginCall, previous: str) -> str:
        plugin = str(self.conflist.plugins[position].get("type"))
        try:
            with self.namespaces.enter(self.locked.folder.netns(NODE_NETNS)):
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


def open_runtime(namespaces: Namespaces, locked: LockedFolder) -> ContainerRuntime:
    """The runtime of a lab, with the configuration list in its folder.

    Raises:
        LabError: the file is not a configuration list.
    """
    path = locked.folder.conflist_file
    conflist = parse_conflist(read_file(path).decode(), path)
    return ContainerRuntime(namespaces=namespaces, conflist=conflist, locked=locked)


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
