"""What a resident process remembers of a store between its calls, so that a call can begin without a read.

``loop`` asks it first and tells it what was read and written. Nothing rests on it: a commit carries conditions for
everything that its decision leant on, so what is out of date costs a conflict and a fresh read, never a wrong address.
A store that cannot judge such conditions bounds the age of what is remembered instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from netplug_core.clock import Clock
from netplug_core.datastore.interface import Atomicity, Datastore
from netplug_core.records import (
    Answer,
    Create,
    Delete,
    Get,
    Kind,
    List,
    Query,
    Record,
    Require,
    RequireUnchanged,
    Revision,
    Snapshot,
    Update,
    Write,
)

__all__ = ["ORDERED_AGE_S", "Warm"]

ORDERED_AGE_S = 0.5
"""How old an answer may be where the store does not judge requirements."""

_NOTHING = Answer(())


@define
class Warm:
    """Answers of one store, the newest known.

    ``passing`` are kinds that are not remembered, because there is a record for every workload.
    """

    clock: Clock
    passing: frozenset[Kind[object]]
    max_age_s: float | None = None
    _answers: dict[Query, Answer] = field(factory=dict, init=False)
    _listed: set[Kind[object]] = field(factory=set, init=False)
    _revisions: dict[Kind[object], Revision] = field(factory=dict, init=False)
    _since: float = field(default=0.0, init=False)

    @classmethod
    def over(cls, store: Datastore, *, clock: Clock, passing: frozenset[Kind[object]]) -> Warm:
        """A memory for a store, with the age that the store needs."""
        is_atomic = store.description.atomicity is Atomicity.ATOMIC
        return cls(clock, passing, None if is_atomic else ORDERED_AGE_S)

    def recall(self, queries: Sequence[Query], presumed: Sequence[Query]) -> tuple[Snapshot, tuple[Query, ...]]:
        """What is known, and which of the queries have to be read.

        ``presumed`` are queries that are taken to find nothing if anything else is known at all: records that the
        call is about to create. If one is there after all, the create will say so.
        """
        if self.max_age_s is not None and self._answers and self.clock.monotonic() - self._since > self.max_age_s:
            self.forget()
        answers = dict(self._answers)
        if answers:
            answers.update(dict.fromkeys(presumed, _NOTHING))
        return Snapshot(answers, dict(self._revisions)), tuple(query for query in queries if query not in answers)

    def learn(self, snapshot: Snapshot) -> None:
        """Remember what was read."""
        if not self._answers:
            self._since = self.clock.monotonic()
        for query, answer in snapshot.answers.items():
            if query.kind not in self.passing and not (isinstance(query, List) and query.limit):
                self._answers[query] = answer
                if isinstance(query, List):
                    self._listed.add(query.kind)
        self._revisions = {**snapshot.revisions, **self._revisions}

    def applied(self, writes: Sequence[Write], revisions: Sequence[Revision]) -> None:
        """Remember what a commit made; an empty revision is that of a key which the commit removed."""
        for write, revision in zip(writes, revisions, strict=True):
            if isinstance(write, (Require, RequireUnchanged)) or write.key.kind in self.passing:
                continue
            self._put(write, revision)

    def forget(self) -> None:
        """Remember nothing; the next call reads."""
        self._answers.clear()
        self._listed.clear()
        self._revisions.clear()

    def _put(self, write: Create[object] | Update[object] | Delete[object], revision: Revision) -> None:
        key = write.key
        record = None if isinstance(write, Delete) else Record(key, write.value, revision)
        self._answers[Get(key)] = Answer((record,)) if record else _NOTHING
        if key.kind not in self._listed:
            return
        for query, answer in tuple(self._answers.items()):  # another call of this process may be learning
            if isinstance(query, List) and query.kind == key.kind and key.path[: len(query.within)] == query.within:
                found = [old for old in answer.records if old.key != key]
                found.extend([record] if record else ())
                self._answers[query] = Answer(tuple(sorted(found, key=_path)))


def _path(record: Record[object]) -> tuple[str, ...]:
    return record.key.path
