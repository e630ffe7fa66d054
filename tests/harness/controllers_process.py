"""A real ``netplug-controllers`` of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field

from tests.harness.operator_process import ROOT, OperatorProcess
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.ports import reserve_port
from tests.harness.set_clock import SetClock

__all__ = ["CONTROLLERS_LEASE_PATH", "ControllersProcesses", "open_controllers"]

CONTROLLERS_LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/netplug-kube-controllers"


@define
class ControllersProcesses:
    """Processes with one environment, such as the replicas of a deployment."""

    folder: Path
    environ: Mapping[str, str]
    _started: list[OperatorProcess] = field(factory=list)

    def start(self, clock: SetClock | None = None, /, **variables: str) -> OperatorProcess:
        """One more, by the clock of the machine or by one that can be set."""
        number, port = len(self._started), reserve_port()
        log = self.folder / f"controllers{number}.log"
        environ = {**os.environ, **self.environ, "POD_NAME": f"controllers-{number}", **variables}
        module = ("netplug_cli.wiring.controllers", f"--health-port={port}")
        command = [sys.executable, "-m", *module] if clock is None else clock.command(*module)
        with log.open("wb") as file:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT, env=environ)
        process = OperatorProcess(child, log, port)
        self._started.append(process)
        return process

    def kill(self) -> None:
        """End all that run."""
        for process in self._started:
            process.kill()


@contextmanager
def open_controllers(folder: Path, environ: Mapping[str, str], server: ApiServer) -> Iterator[ControllersProcesses]:
    """Processes as long as the context lasts; then their Lease goes, too."""
    processes = ControllersProcesses(folder, environ)
    try:
        yield processes
    finally:
        processes.kill()
        with suppress(RequestRefused):  # none has acted
            server.request("DELETE", CONTROLLERS_LEASE_PATH)
