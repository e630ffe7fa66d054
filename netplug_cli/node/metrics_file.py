"""The metrics as a file, for the textfile collector of the Prometheus node exporter."""

from __future__ import annotations

from contextlib import suppress

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, remove_file, replace_file
from netplug_cli.node.metrics import NodeMetrics
from netplug_cli.node.periodic import PeriodicTask
from netplug_core.log import Level, Log

__all__ = ["WRITE_EVERY_S", "MetricsFile"]

WRITE_EVERY_S = 15.0
"""The pause between two writes."""


class MetricsFile:
    """A file that is replaced every few seconds, and removed at the end, since its values would look current."""

    def __init__(self, path: str, metrics: NodeMetrics, *, log: Log, every_s: float = WRITE_EVERY_S) -> None:
        self._path = path
        self._metrics = metrics
        self._log = log
        self._cause = ""
        self._task = PeriodicTask("metrics file", self._write, every_s=every_s, log=log)

    def start(self) -> None:
        """Begin to write."""
        self._task.start()

    def stop(self) -> None:
        """Write no more, and remove the file."""
        self._task.stop()
        with suppress(OSError):  # there may be none, or its folder cannot be written
            remove_file(self._path)

    def _write(self) -> None:
        """Write it; log the first failure, and the first success after one."""
        try:
            replace_file(self._path, self._metrics.render(), OPEN_FILE_MODE)
        except OSError as error:
            cause = error.strerror or str(error)
        else:
            cause = ""
        if cause and cause != self._cause:
            self._log(Level.WARNING, "the metrics file cannot be written", path=self._path, cause=cause)
        elif self._cause and not cause:
            self._log(Level.INFO, "the metrics file is written again", path=self._path)
        self._cause = cause
