"""Copies the certificates of etcd to the host again when they change, for as long as the installer stays."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from attrs import define, field

from netplug_core.log import Level, Log

__all__ = ["CertificateRefresh"]


@define(kw_only=True)
class CertificateRefresh:
    """``copy`` copies all that differ. ``find_stamps`` is what changes with them; ``copied`` was found before a copy.

    The kubelet changes all of them at once, by replacing one link. A change counts once two looks in a row see it.
    """

    copy: Callable[[], None]
    find_stamps: Callable[[], Hashable]
    log: Log
    copied: Hashable
    _seen: Hashable = field(default=None, init=False)
    _problem: str = field(default="", init=False)

    def look(self) -> None:
        """Copy the certificates if they have changed. A failure is a line of the log, and the next look tries again."""
        stamps = self.find_stamps()
        has_settled, self._seen = stamps == self._seen, stamps
        if not has_settled or stamps == self.copied:
            return
        try:
            self.copy()
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self.log(Level.ERROR, "the certificates of etcd are not copied", cause=self._problem)
            return
        self.copied, self._problem = stamps, ""
