"""A clock for commands that go on until a person interrupts them."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from netplug_core.testing.clock import ManualClock

__all__ = ["ScriptedClock", "Step"]

Step = Callable[[], object]


@define
class ScriptedClock(ManualClock):
    """A clock on which each wait runs the next step, and Ctrl-C is pressed after the last one."""

    steps: list[Step] = field(factory=list)

    def sleep(self, seconds: float) -> None:
        """Wait, and run the next step."""
        super().sleep(seconds)
        if not self.steps:
            raise KeyboardInterrupt
        self.steps.pop(0)()
