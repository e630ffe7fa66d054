"""What should be and what is, by key, and the changes that make them the same.

The engine of routes keeps one tracker for each sort of entry; policy will. Both sides may change at any time. Only keys
that differ are remembered, so an update of one entry costs the same however many there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from attrs import define, field

__all__ = ["DeltaTracker"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define(eq=False)
class DeltaTracker(Generic[K, V]):
    """The desired and the observed values of some keys. A value is compared as a whole."""

    _desired: dict[K, V] = field(factory=dict, init=False)
    _observed: dict[K, V] = field(factory=dict, init=False)
    _differing: dict[K, None] = field(factory=dict, init=False)  # in the order in which they began to differ

    @property
    def desired(self) -> Mapping[K, V]:
        """What should be."""
        return self._desired

    @property
    def observed(self) -> Mapping[K, V]:
        """What is, as far as it is known."""
        return self._observed

    @property
    def is_settled(self) -> bool:
        """Whether nothing differs."""
        return not self._differing

    def desire(self, key: K, value: V | None) -> None:
        """This should be the value of a key; None: it should not exist."""
        if value is None:
            self._desired.pop(key, None)
        else:
            self._desired[key] = value
        self._compare(key)

    def desire_all(self, values: Mapping[K, V]) -> None:
        """These should be all."""
        keys = self._desired.keys() | values.keys()
        self._desired = dict(values)
        for key in keys:
            self._compare(key)

    def observe(self, key: K, value: V | None) -> None:
        """This is the value of a key; None: it does not exist."""
        if value is None:
            self._observed.pop(key, None)
        else:
            self._observed[key] = value
        self._compare(key)

    def observe_all(self, values: Mapping[K, V]) -> None:
        """These are all."""
        former, self._observed = self._observed, dict(values)
        if self._observed == self._desired:  # the usual case, in one step: a third of the time
            self._observed = dict(self._desired)  # one value of each, not two
            self._differing.clear()
            return
        for key in former.keys() | values.keys():
            self._compare(key)

    def updates(self) -> Iterator[tuple[K, V]]:
        """What has to be made or replaced."""
        return ((key, self._desired[key]) for key in tuple(self._differing) if key in self._desired)

    def deletions(self) -> Iterator[tuple[K, V]]:
        """What exists and should not, with its observed value."""
        return ((key, self._observed[key]) for key in tuple(self._differing) if key not in self._desired)

    def _compare(self, key: K) -> None:
        if self._desired.get(key) == self._observed.get(key):
            self._differing.pop(key, None)
        else:
            self._differing[key] = None
