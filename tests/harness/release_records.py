"""Release records in the texts of a fake machine: as strict as the files of ``netplug_backends.host.release_records``.

``tests/unit/netplug_backends/host/test_release_records.py`` holds both to the same text.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from attrs import define

from netplug_core.clock import Clock
from netplug_core.flows.world import RecordCounts

if TYPE_CHECKING:
    from tests.harness.cni_node import FakeHost

__all__ = ["FakeRecordFiles", "record_files"]

_RECORD, _DAMAGED = ".json", ".damaged"


@define
class FakeRecordFiles:
    """Records of a machine, on whose clock they are written. In an ``unwritable`` folder nothing can be changed."""

    host: FakeHost
    clock: Clock
    folder: str

    def path(self, location: str, attachment: str) -> str:
        return f"{self.folder}/stores/{self._target(location)}/{attachment}{_RECORD}"

    def find(self, location: str, attachment: str) -> str | None:
        found = None
        for path in self._paths(location, attachment):
            found = found or self.host.find_text(path)
        return found

    def names(self, location: str) -> tuple[str, ...]:
        found = {
            name.removesuffix(_RECORD): self.host.times.get(f"{self.folder}/stores/{store}/{name}", 0)
            for store in (location, self._target(location))
            for name in self._list(f"stores/{store}")
            if name.endswith(_RECORD)
        }
        return tuple(sorted(found, key=lambda name: (found[name], name)))

    def write(self, location: str, attachment: str, text: str) -> str:
        self._require_writable()
        self.host.before_write()
        self.host.texts.setdefault(f"{self.folder}/locations/{location}", location)
        path = self.path(location, attachment)
        self.host.texts[path] = text
        self.host.times[path] = self.clock.now_ns()
        return path

    def remove(self, location: str, attachment: str, text: str) -> None:
        self._require_writable()
        for path in self._paths(location, attachment):
            if self.host.texts.get(path) == text:
                del self.host.texts[path]

    def set_aside(self, location: str, attachment: str, text: str | None) -> None:
        self._require_writable()
        for path in self._paths(location, attachment):
            if path in self.host.texts and text in (None, self.host.texts[path]):
                self._move(path, path.removesuffix(_RECORD) + _DAMAGED)

    def find_store(self, location: str) -> str | None:
        target = self._target(location)
        return None if target == location else target

    def has_stores(self) -> bool:
        return any(name.endswith(_RECORD) for name in self._list("stores"))

    def lead(self, location: str, store: str) -> None:
        self._require_writable()
        self.host.texts[f"{self.folder}/locations/{location}"] = store
        for name in self._list(f"stores/{location}") if location != store else ():
            self._move(f"{self.folder}/stores/{location}/{name}", f"{self.folder}/stores/{store}/{name}")

    def find_former(self, attachment: str) -> tuple[str, ...]:
        if f"{self.folder}/layout" in self.host.texts:
            return ()
        return tuple(name for name in self.list_former() if name.endswith(f"-{attachment}{_RECORD}"))

    def list_former(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self._list("") if "/" not in name and name.endswith(_RECORD)))

    def read_former(self, name: str) -> str | None:
        return self.host.find_text(f"{self.folder}/{name}")

    def adopt(self, name: str, location: str, attachment: str) -> None:
        self._require_writable()
        self.host.texts.setdefault(f"{self.folder}/locations/{location}", location)
        self._move(f"{self.folder}/{name}", self.path(location, attachment))

    def remove_former(self, name: str) -> None:
        self._require_writable()
        self.host.texts.pop(f"{self.folder}/{name}", None)

    def set_former_aside(self, name: str) -> None:
        self._require_writable()
        self._move(f"{self.folder}/{name}", f"{self.folder}/stores/former/{name.removesuffix(_RECORD)}{_DAMAGED}")

    def end_takeover(self) -> None:
        if self._list(""):
            self._require_writable()
            self.host.texts[f"{self.folder}/layout"] = "2\n"

    def count(self, locations: Collection[str]) -> RecordCounts:
        own = self._stores_of(locations)
        names = [name.partition("/") for name in self._list("stores")]
        records = [store in own for store, _, name in names if name.endswith(_RECORD)]
        damaged = sum(name.endswith(_DAMAGED) for _store, _, name in names)
        return RecordCounts(own=sum(records), foreign=len(records) - sum(records), damaged=damaged)

    def orphan(self, locations: Collection[str], *, before_ns: int) -> int:
        self._require_writable()
        own, moved = self._stores_of(locations), 0
        for name in self._list("stores"):
            path, is_own = f"{self.folder}/stores/{name}", name.partition("/")[0] in own
            is_of_nobody = name.endswith(_DAMAGED) or (name.endswith(_RECORD) and not is_own)
            if is_of_nobody and self.host.times.get(path, 0) < before_ns:
                self._move(path, f"{self.folder}/orphaned/{name}")
                moved += 1
        return moved

    def find_report_ns(self) -> int | None:
        text = self.host.find_text(f"{self.folder}/reported") or ""
        return int(text) if text.strip().isdigit() else None

    def note_report(self, now_ns: int) -> None:
        self._require_writable()
        self.host.texts[f"{self.folder}/reported"] = f"{now_ns}\n"

    def _target(self, location: str) -> str:
        return str(self.host.texts.get(f"{self.folder}/locations/{location}", location))

    def _paths(self, location: str, attachment: str) -> tuple[str, ...]:
        stores = dict.fromkeys((location, self._target(location)))
        return tuple(f"{self.folder}/stores/{store}/{attachment}{_RECORD}" for store in stores)

    def _stores_of(self, locations: Collection[str]) -> frozenset[str]:
        return frozenset((*locations, *map(self._target, locations)))

    def _list(self, below: str) -> tuple[str, ...]:
        """The paths below a folder."""
        error = self.host.texts.get(self.folder)
        if isinstance(error, OSError):
            raise error
        start = f"{self.folder}/{below}".rstrip("/") + "/"
        return tuple(path.removeprefix(start) for path in self.host.texts if path.startswith(start))

    def _move(self, source: str, target: str) -> None:
        if source in self.host.texts:
            self.host.texts[target] = self.host.texts.pop(source)
            self.host.times[target] = self.host.times.pop(source, 0)

    def _require_writable(self) -> None:
        if self.folder in self.host.unwritable:
            raise OSError(30, "Read-only file system")


def record_files(folder: str) -> list[str]:
    """The paths of the release records in a real folder, below it and sorted; damaged ones are none."""
    found = (os.path.join(path, name) for path, _folders, names in os.walk(folder) for name in names)
    return sorted(os.path.relpath(path, folder) for path in found if path.endswith(_RECORD))
