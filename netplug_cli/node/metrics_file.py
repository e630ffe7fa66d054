"""The metrics as a file, for the textfile collector of the Prometheus node exporter."""

from __future__ import annotations

from contextlib import suppress

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, remove_file, replace_file
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock, Deadline
from netplug_core.log import Log
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing, Unfinished

__all__ = ["WRITE_EVERY_S", "MetricsFile"]

WRITE_EVERY_S = 15.0
"""The pause between two writes."""

_NOT_WRITTEN = "the metrics file cannot be written"


class MetricsFile:
    """A file that is replaced every few seconds, and removed at the end, since its values would look current."""

    def __init__(
        self, path: str, metrics: NodeMetrics, *, clock: Clock, log: Log, every_s: float = WRITE_EVERY_S
    ) -> None:
        self._path = path
        self._metrics = metrics
        controller: Controller[None, None] = Controller(
            name="metrics file",
            observe=lambda _deadline: None,
            plan=lambda _state: Plan(actions=(None,), look_again_s=every_s),
            act=self._write,
            failure=_NOT_WRITTEN,
            timing=Timing(backoff=Backoff(first_s=every_s, longest_s=every_s)),
            recovered="the metrics file is written again",
            fields=(("path", path),),
        )
        self._runtime = Runtime((controller,), clock=clock, log=log)

    def start(self) -> None:
        """Begin to write."""
        self._runtime.start()

    def stop(self) -> None:
        """Write no more, and remove the file."""
        self._runtime.stop()
        with suppress(OSError):  # there may be none, or its folder cannot be written
            remove_file(self._path)

    def _write(self, _action: None, _deadline: Deadline) -> None:
        try:
            replace_file(self._path, self._metrics.render(), OPEN_FILE_MODE)
        except OSError as error:
            # The error names a file beside it, which the line of the log need not.
            cause = error.strerror or str(error)
            problem = Problem(message=_NOT_WRITTEN, cause=cause, fields=(("path", self._path),))
            raise Unfinished((problem,)) from error
