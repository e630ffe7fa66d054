"""The clock of a simulation."""

from __future__ import annotations

from attrs import define, field

from netplug_core.clock import SECOND_NS

__all__ = ["SimulatedClock"]

_EPOCH_NS = 1_767_225_600 * SECOND_NS  # 2026-01-01T00:00:00Z, so that stored times are the same in every run


@define
class SimulatedClock:
    """A :class:`~netplug_core.clock.Clock` on which time passes only by ``sleep``, which returns at once."""

    _elapsed_ns: int = field(default=0, init=False)

    def now_ns(self) -> int:
        """Wall-clock time: nanoseconds since 1970-01-01 UTC."""
        return _EPOCH_NS + self._elapsed_ns

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / SECOND_NS

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._elapsed_ns += round(seconds * SECOND_NS)
