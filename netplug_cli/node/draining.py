"""Release records, done every few seconds for the configurations that calls came with.

A DEL that finds its datastore away leaves a record on the node, and the next call that reaches the datastore does it.
On a node without calls it would stay; the node process does it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from threading import Lock

from netplug_cli.node.periodic import PeriodicTask
from netplug_core.flows.cni.release_records import RECORD_SUFFIX
from netplug_core.log import Level, Log
from netplug_core.netconf.model import HOST_LOCAL_IPAM, NetConf

__all__ = ["DRAIN_EVERY_S", "MAX_CONFIGURATIONS", "RecordDrain"]

DRAIN_EVERY_S = 10.0
"""The pause between two looks at the records."""

MAX_CONFIGURATIONS = 8
"""For how many configurations records are done; the records of further ones wait for a call."""


class RecordDrain:
    """Does records, as a :class:`~netplug_cli.node.periodic.PeriodicTask`. ``drain`` does those of a configuration."""

    def __init__(self, drain: Callable[[NetConf], None], *, log: Log, every_s: float = DRAIN_EVERY_S) -> None:
        self._drain = drain
        self._log = log
        self._known: dict[tuple[object, ...], NetConf] = {}
        self._lock = Lock()
        self.task = PeriodicTask("release records", self._drain_all, every_s=every_s, log=log)

    def count_waiting(self) -> int:
        """How many records wait in the folders of its configurations.

        Raises:
            OSError: a folder cannot be listed.
        """
        with self._lock:
            folders = {netconf.release_record_dir for netconf in self._known.values()}
        return sum(_count_records(folder) for folder in folders)

    def note(self, netconf: NetConf) -> None:
        """Do the records of this configuration from now on.

        Those of another IPAM than that of pools are left to a call: each network has its own.
        """
        if netconf.ipam.is_delegated or netconf.ipam.type == HOST_LOCAL_IPAM:
            return
        key = (netconf.datastore, netconf.release_record_dir, netconf.ipam_lock_file)
        with self._lock:
            if key in self._known or len(self._known) < MAX_CONFIGURATIONS:
                self._known[key] = netconf

    def _drain_all(self) -> None:
        with self._lock:
            known = tuple(self._known.values())
        for netconf in known:
            if self.task.is_stopping:
                return
            try:
                self._drain(netconf)
            except Exception:  # noqa: BLE001  those of the next configuration may succeed
                self._log(Level.ERROR, f"release records could not be done\n{traceback.format_exc()}")


def _count_records(folder: str) -> int:
    try:
        return sum(name.endswith(RECORD_SUFFIX) for name in os.listdir(folder))
    except FileNotFoundError:
        return 0  # the first record makes it
