"""Release records, replayed every few seconds for the configurations that calls came with.

A DEL that finds its datastore away leaves a record on the node. No call of this process replays one: the task here
does, so that records cost no call any time. It opens a datastore only if there is a record that may be of it, and looks
less and less often at one that stays away and that no call asks for.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from threading import Lock

from attrs import define

from netplug_cli.node.periodic import PeriodicTask
from netplug_core.clock import Clock
from netplug_core.cni.request import CNIRequest
from netplug_core.flows.cni.release_records import has_work, keep_house, places_of, take_over
from netplug_core.flows.world import RecordCounts, RecordFiles
from netplug_core.log import Level, Log
from netplug_core.netconf.model import NetConf

__all__ = ["HOUSEKEEPING_S", "LONGEST_PAUSE_S", "MAX_CONFIGURATIONS", "REPLAY_EVERY_S", "RecordReplay"]

REPLAY_EVERY_S = 10.0
"""The pause between two looks at the records."""

LONGEST_PAUSE_S = 600.0
"""The longest pause between two attempts for a datastore that stays away and that no call asks for."""

HOUSEKEEPING_S = 3600.0
"""How often is looked for records that cannot be done here."""

_FIRST_HOUSEKEEPING_S = 60.0  # by then calls have come with the configurations of this node

MAX_CONFIGURATIONS = 64
"""For how many configurations records are replayed; beyond that, the one that came longest ago is forgotten."""

Replay = Callable[[NetConf, CNIRequest | None], bool]
"""Replays the records of a configuration; whether its datastore did what it was asked."""


@define
class _Configuration:
    """A configuration that calls came with, and the last call, which another IPAM plugin is executed for."""

    netconf: NetConf
    request: CNIRequest | None
    pause_s: float = 0.0
    not_before_s: float = 0.0


class RecordReplay:
    """Replays records, as a :class:`~netplug_cli.node.periodic.PeriodicTask`. ``open_files`` opens a folder of them."""

    def __init__(
        self,
        replay: Replay,
        open_files: Callable[[str], RecordFiles],
        *,
        clock: Clock,
        log: Log,
        every_s: float = REPLAY_EVERY_S,
    ) -> None:
        self._replay = replay
        self._open_files = open_files
        self._clock = clock
        self._log = log
        self._every_s = every_s
        self._known: dict[tuple[object, ...], _Configuration] = {}  # the one that came longest ago is the first
        self._keep_house_at_s: dict[str, float] = {}
        self._lock = Lock()
        self.task = PeriodicTask("release records", self._replay_all, every_s=every_s, log=log)

    def count(self) -> RecordCounts:
        """How many records wait in the folders of its configurations, ``own`` being those that it replays.

        Raises:
            OSError: a folder cannot be listed.
        """
        counts = [self._open_files(folder).count(places) for folder, places in self._places().items()]
        return RecordCounts(
            own=sum(each.own for each in counts),
            foreign=sum(each.foreign for each in counts),
            damaged=sum(each.damaged for each in counts),
        )

    def note(self, netconf: NetConf, request: CNIRequest | None) -> None:
        """Replay the records of this configuration from now on."""
        key = (netconf.datastore, netconf.release_record_dir, netconf.ipam_lock_file, *places_of(netconf))
        with self._lock:
            self._known.pop(key, None)
            if len(self._known) >= MAX_CONFIGURATIONS:
                del self._known[next(iter(self._known))]
            self._known[key] = _Configuration(netconf, request)

    def _replay_all(self) -> None:
        for folder, places in self._places().items():
            files = self._open_files(folder)
            take_over(files, self._log)
            now_s = self._clock.monotonic()
            if now_s >= self._keep_house_at_s.setdefault(folder, now_s + _FIRST_HOUSEKEEPING_S):
                keep_house(files, places, self._clock, self._log)
                self._keep_house_at_s[folder] = now_s + HOUSEKEEPING_S
        for known in self._configurations():
            if self.task.is_stopping:
                return
            if self._clock.monotonic() >= known.not_before_s:
                self._replay_one(known)

    def _replay_one(self, known: _Configuration) -> None:
        try:
            files = self._open_files(known.netconf.release_record_dir)
            is_done = not has_work(files, known.netconf) or self._replay(known.netconf, known.request)
        except Exception:  # noqa: BLE001  those of the next configuration may succeed
            self._log(Level.ERROR, f"release records could not be replayed\n{traceback.format_exc()}")
            is_done = False
        known.pause_s = 0.0 if is_done else min(LONGEST_PAUSE_S, max(self._every_s, 2 * known.pause_s))
        known.not_before_s = self._clock.monotonic() + known.pause_s

    def _configurations(self) -> tuple[_Configuration, ...]:
        with self._lock:
            return tuple(self._known.values())

    def _places(self) -> dict[str, frozenset[str]]:
        """The places whose records are replayed, by folder."""
        found: dict[str, list[str]] = {}
        for known in self._configurations():
            found.setdefault(known.netconf.release_record_dir, []).extend(places_of(known.netconf))
        return {folder: frozenset(places) for folder, places in found.items()}
