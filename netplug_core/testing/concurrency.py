"""Threads for the suites; no other module of the core starts any.

Threads that run on their own rarely meet: the interpreter switches between them every few milliseconds, and a commit
in memory takes microseconds. So the calls of :func:`run_together` offer to switch after every line of Python that they
execute. A store without a lock then fails at once, and not once in a thousand runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING, Generic, TypeVar

from attrs import define

if TYPE_CHECKING:
    from _typeshed import TraceFunction

__all__ = ["CallOutcome", "run_in_thread", "run_together"]

R = TypeVar("R")

_LIMIT_S = 20.0


@define
class CallOutcome(Generic[R]):
    """What a call in a thread came to: neither result nor error as long as it runs."""

    result: R | None = None
    error: BaseException | None = None
    has_ended: bool = False

    def run(self, call: Callable[[], R]) -> None:
        """Make the call, in this thread."""
        try:
            self.result = call()
        except BaseException as error:  # noqa: BLE001  # the suite reports it in its own thread
            self.error = error
        self.has_ended = True

    def get(self) -> R | None:
        """The result.

        Raises:
            Exception: the error of the call.
        """
        if self.error is not None:
            raise self.error
        return self.result


def run_in_thread(call: Callable[[], R], *, limit_s: float) -> CallOutcome[R]:
    """Make the call in a thread and wait for it so long; a call that has not ended by then is left alone."""
    outcome = CallOutcome[R]()
    thread = Thread(target=outcome.run, args=(call,), daemon=True)
    thread.start()
    thread.join(limit_s)
    return outcome


def run_together(calls: Sequence[Callable[[], R]]) -> list[CallOutcome[R]]:
    """Make all calls at the same moment, each in a thread of its own; their outcomes, in the order of the calls."""
    outcomes = [CallOutcome[R]() for _ in calls]
    barrier = Barrier(len(calls))

    def start(outcome: CallOutcome[R], call: Callable[[], R]) -> None:
        barrier.wait(_LIMIT_S)
        before = sys.gettrace()
        sys.settrace(_switch_threads)
        try:
            outcome.run(call)
        finally:
            sys.settrace(before)

    threads = [Thread(target=start, args=pair, daemon=True) for pair in zip(outcomes, calls, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_S)
    return outcomes


def _switch_threads(frame: FrameType, event: str, argument: object) -> TraceFunction:
    del frame, argument
    if event == "line":
        sleep(0)  # gives up the interpreter's lock
    return _switch_threads
