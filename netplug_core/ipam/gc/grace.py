"""The grace period: how long a candidate has to look abandoned, in every scan, before it is acted on."""

from __future__ import annotations

from attrs import Factory, define, field

from netplug_core.ipam.gc.model import Candidate

__all__ = ["GraceLedger"]


@define(kw_only=True)
class GraceLedger:
    """Since when each candidate looks abandoned.

    ``previous`` is from earlier scans; what is not in it looks so since ``new_since_ms``. ``since`` has the candidates
    of this scan: only they are kept.
    """

    now_ms: int
    grace_ms: float
    new_since_ms: int
    previous: dict[Candidate, int]
    since: dict[Candidate, int] = field(default=Factory(dict))

    def first_seen(self, candidate: Candidate) -> int:
        """Since when it looks abandoned."""
        return self.since.setdefault(candidate, self.previous.get(candidate, self.new_since_ms))

    def is_due(self, candidate: Candidate) -> bool:
        """Whether it has looked abandoned for the grace period; never if the grace period is 0."""
        return self.grace_ms > 0 and self.now_ms - self.first_seen(candidate) >= self.grace_ms
