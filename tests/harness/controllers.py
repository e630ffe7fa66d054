"""Controllers whose passes come when a test moves their clock on."""

from __future__ import annotations

from collections.abc import Iterable

from netplug_cli.runtime.controllers import ControllerLoop, Reconciler
from netplug_core.log import Log
from netplug_core.testing.clock import ManualClock

__all__ = ["DrivenControllers"]


class DrivenControllers:
    """Some controllers without threads. Their pauses have no jitter: those after failures are the shortest ones."""

    def __init__(self, controllers: Iterable[Reconciler], *, clock: ManualClock, log: Log) -> None:
        self._clock = clock
        self.loops = tuple(ControllerLoop(each, clock, log, chance=lambda: 0.0) for each in controllers)

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let the passes come that are due until that time has passed, each at its time."""
        end = self._clock.monotonic() + seconds
        while (pause_s := self._run_due()) is not None and self._clock.monotonic() + pause_s <= end:
            self._clock.sleep(pause_s)
        self._clock.sleep(end - self._clock.monotonic())

    def _run_due(self) -> float | None:
        pauses = [loop.run_due() for loop in self.loops]
        return min((each for each in pauses if each is not None), default=None)
