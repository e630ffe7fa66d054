"""What a process remembers of records that cannot be read or judged, from one decision to the next.

``flows.ipam.service`` asks it around each decision of a process that stays. Threads may share it: what they may lose is
one line of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, evolve, field

from netplug_core.ipam.outcome.trace import PoolTrace, RecordTrace
from netplug_core.records import Get, Snapshot, TraceEntry
from netplug_core.resources.ipamconfiguration import IPAM_CONFIGURATION_KEY, IPAMConfiguration
from netplug_core.resources.ippool import IPPOOL

__all__ = ["FORGOTTEN_AFTER_S", "RecordMemory"]

FORGOTTEN_AFTER_S = 600.0
"""A record that no decision passed over for so long counts as repaired."""

_MAX_NOTED = 10_000
_CONFIGURATION = Get(IPAM_CONFIGURATION_KEY)


@define(eq=False)
class RecordMemory:
    """The settings that were last known, and which records were passed over.

    ``noted`` has them by kind and name, each with what was said of it, and when that was.
    """

    configuration: IPAMConfiguration | None = None
    noted: dict[tuple[str, str], tuple[str, float]] = field(factory=dict)

    def completed(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, in which a configuration that cannot be understood counts as the last known one.

        One that is understood, or is gone, is remembered.
        """
        found = snapshot.results.get(_CONFIGURATION)
        if found is None:
            return snapshot
        if not found.malformed:
            self.configuration = next((r.value for r in snapshot.readable(_CONFIGURATION)), None)
            return snapshot
        damaged = tuple(evolve(error, counts_as=self.configuration) for error in found.malformed)
        return Snapshot({**snapshot.results, _CONFIGURATION: evolve(found, malformed=damaged)}, snapshot.revisions)

    def note(self, entries: Iterable[TraceEntry], now_s: float) -> tuple[str, ...]:
        """Note what a decision passed over; the texts of what is new, or has changed since it was noted last."""
        new: list[str] = []
        for entry in entries:
            subject, text = _subject(entry), str(entry)
            known, at_s = self.noted.pop(subject, ("", now_s))
            if known != text or now_s - at_s > FORGOTTEN_AFTER_S:
                new.append(text)
            self.noted[subject] = (text, now_s)  # the one that was noted last is the last
        for subject in list(self.noted)[:-_MAX_NOTED]:
            self.noted.pop(subject, None)
        return tuple(new)

    def counts(self, now_s: float) -> Mapping[str, int]:
        """How many records were passed over of late, by kind; a kind that had some before counts none."""
        counts: dict[str, int] = {}
        for (kind, _name), (_text, at_s) in list(self.noted.items()):
            counts[kind] = counts.get(kind, 0) + (now_s - at_s <= FORGOTTEN_AFTER_S)
        return counts


def _subject(entry: TraceEntry) -> tuple[str, str]:
    """The kind and the name of a record; a pool that can be read may be passed over too."""
    if isinstance(entry, PoolTrace):
        return (IPPOOL.name, entry.pool)
    return (entry.kind, entry.record) if isinstance(entry, RecordTrace) else ("", str(entry))
