"""Copies the certificates of etcd to the host again when they change, for as long as the installer stays."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from attrs import define, field, frozen

from netplug_core.clock import Deadline
from netplug_core.log import Level
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing, Unfinished

__all__ = ["LOOK_EVERY_S", "CertificateRefresh"]

LOOK_EVERY_S = 0.5
"""The pause between two looks at certificates."""

_NOT_COPIED = "the certificates of etcd are not copied"


@frozen
class _Copy:
    """The certificates have changed to these stamps, and are to be copied."""

    stamps: Hashable


@define(kw_only=True)
class CertificateRefresh:
    """``copy`` copies all that differ. ``find_stamps`` is what changes with them; ``copied`` was found before a copy.

    The kubelet changes all of them at once, by replacing one link. A change counts once two looks in a row see it.
    """

    copy: Callable[[], None]
    find_stamps: Callable[[], Hashable]
    copied: Hashable
    _seen: Hashable = field(default=None, init=False)

    def controller(self) -> Controller[_Copy | None, _Copy]:
        """What copies the certificates if they have changed; the next look tries again what failed."""
        return Controller(
            name="certificates of etcd",
            observe=self._find_change,
            plan=lambda change: Plan(actions=(change,) if change else (), look_again_s=LOOK_EVERY_S),
            act=self._copy,
            failure=_NOT_COPIED,
            timing=Timing(backoff=Backoff(first_s=LOOK_EVERY_S, longest_s=10 * LOOK_EVERY_S)),
        )

    def _find_change(self, _deadline: Deadline) -> _Copy | None:
        stamps = self.find_stamps()
        has_settled, self._seen = stamps == self._seen, stamps
        return _Copy(stamps) if has_settled and stamps != self.copied else None

    def _copy(self, change: _Copy, _deadline: Deadline) -> None:
        try:
            self.copy()
        except OSError as error:
            raise Unfinished((Problem(message=_NOT_COPIED, cause=str(error), level=Level.ERROR),)) from error
        self.copied = change.stamps
