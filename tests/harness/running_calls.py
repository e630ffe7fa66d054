"""Calls of the executables that run while a test looks at them."""

from __future__ import annotations

import json
import subprocess

from tests.harness.node import CNIRuntime, NetConfDict, PluginReply, PodNamespace
from tests.harness.waiting import EMERGENCY_STOP_S


class RunningCall:
    """A call of the main plugin that runs while the test looks at it; its variables are the usual ones and ``args``."""

    def __init__(
        self, runtime: CNIRuntime, command: str, conf: NetConfDict, pod: PodNamespace, args: str | None = None
    ) -> None:
        self.process = subprocess.Popen(
            runtime.node.entering("", (runtime.executable("netplug"),)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=runtime.make_environ(command, pod, CNI_ARGS=args),
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(conf))
        self.process.stdin.close()
        self.process.stdin = None

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> PluginReply:
        """How it ended."""
        out, err = self.process.communicate(timeout=EMERGENCY_STOP_S)
        return PluginReply(self.process.returncode, out, err)
