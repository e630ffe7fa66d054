"""What a container runtime does: runs the plugin executables of a configuration list, one command at a time.

They run as files in the node's network namespace, with environment and standard input as the specification says;
nothing of netplug is called directly.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping

from attrs import frozen

from netplug_cli.lab.conflist import Conflist, PluginCall, plugin_environment
from netplug_cli.lab.folder import LockedFolder
from netplug_cli.lab.model import NODE_NETNS, LabError, LabPod
from netplug_cli.lab.namespaces import Namespaces
from netplug_cli.lab.record import attached_pod

__all__ = ["ContainerRuntime", "PluginFailed"]

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
        answer = ""
        for position in range(len(self.conflist.plugins)):
            answer = self._run(position, call, answer)
        return attached_pod(pod.name, answer)

    def delete(self, pod: LabPod) -> None:
        """Run every plugin in reverse, each with the result of ADD as far as it is known.

        Raises:
            PluginFailed: one of them failed; those after it were not run.
        """
        call = self._make_call("DEL", pod)
        for position in reversed(range(len(self.conflist.plugins))):
            self._run(position, call, pod.add_output)

    def _make_call(self, command: str, pod: LabPod) -> PluginCall:
        folder = self.locked.folder
        return PluginCall(command=command, pod=pod.name, netns=folder.netns(pod.name), bin_dir=folder.bin_dir)

    def _run(self, position: int, call: PluginCall, previous: str) -> str:
        plugin = str(self.conflist.plugins[position].get("type"))
        try:
            with self.namespaces.enter(self.locked.folder.netns(NODE_NETNS)):
                done = subprocess.run(
                    [f"{call.bin_dir}/{plugin}"],
                    input=self.conflist.request(position, previous).encode(),
                    capture_output=True,
                    env=plugin_environment(call),
                    # The lock goes with it: whoever cleans up after us waits until it has ended.
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


def _error_text(stdout: bytes, stderr: bytes) -> str:
    """What the error object says, or failing that the last line of the log."""
    try:
        said: object = json.loads(stdout)
    except ValueError:
        said = None
    if not isinstance(said, Mapping):
        lines = stderr.decode("utf-8", "replace").splitlines()
        return lines[-1] if lines else ""
    details = said.get("details")
    return f"{said.get('msg')} (code {said.get('code')}{f'; {details}' if details else ''})"
