"""What should be and what is, by key, and the changes that make them the same.

The engine of routes keeps one tracker for each sort of entry. Both sides may change at any time. Only keys that differ
are remembered, so an update of one entry costs the same however many there are.
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
    """The desired and the observed values of some keys. A value is compared as a whole.

    Of observed values only those are kept that differ from the desired ones, so that nothing is held twice.
    """

    _desired: dict[K, V] = field(factory=dict, init=False)
    _differing: dict[K, V | None] = field(factory=dict, init=False)
    """What is observed of the keys that differ, in the order in which they began to."""

    @property
    def desired(self) -> Mapping[K, V]:
        """What should be."""
        return self._desired

    @property
    def observed(self) -> Mapping[K, V]:
        """What is, as far as it is known: a new mapping each time."""
        found = {**self._desired, **self._differing}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def is_settled(self) -> bool:
        """Whether nothing differs."""
        return not self._differing

    def differs(self, key: K) -> bool:
        """Whether what is desired of a key is not what is observed."""
        return key in self._differing

    def desire(self, key: K, value: V | None) -> None:
        """This should be the value of a key; None: it should not exist."""
        observed = self._differing.get(key, self._desired.get(key))
        if value is None:
            self._desired.pop(key, None)
        else:
            self._desired[key] = value
        self._compare(key, value, observed)

    def desire_all(self, values: Mapping[K, V]) -> None:
        """These should be all."""
        for key in [each for each in self._desired if each not in values]:
            self.desire(key, None)
        for key, value in values.items():
            self.desire(key, value)

    def observe(self, key: K, value: V | None) -> None:
        """This is the value of a key; None: it does not exist."""
        self._compare(key, self._desired.get(key), value)

    def observe_all(self, values: Mapping[K, V]) -> None:
        """These are all."""
        if values == self._desired:  # the usual case, in one step: a third of the time
            self._differing.clear()
            return
        for key in dict.fromkeys((*self._differing, *self._desired, *values)):
            self._compare(key, self._desired.get(key), values.get(key))

    def updates(self) -> Iterator[tuple[K, V]]:
        """What has to be made or replaced."""
        return ((key, self._desired[key]) for key in tuple(self._differing) if key in self._desired)

    def deletions(self) -> Iterator[tuple[K, V]]:
        """What exists and should not, with its observed value."""
        for key, value in tuple(self._differing.items()):
            if value is not None and key not in self._desired:
                yield key, value

    def _compare(self, key: K, desired: V | None, observed: V | None) -> None:
        # None is compared by identity: a comparison of values costs more than all the rest.
        if (desired is not None) if observed is None else (desired != observed):
            self._differing[key] = observed
            return
        self._differing.pop(key, None)
        if not self._differing:
            self._differing.clear()  # an emptied dict keeps the room of all that it once had
