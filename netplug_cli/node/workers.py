"""The threads that serve calls. Each serves one call at a time, from its queue, until that is closed."""

from __future__ import annotations

import time
import traceback
from threading import Thread

from attrs import define, field

from netplug_cli.node.calls import AnswerCall, CallQueue, serve_call
from netplug_core.log import Level, Log

__all__ = ["Workers"]


@define
class Workers:
    """``count`` threads that serve the calls of a queue."""

    count: int
    queue: CallQueue
    answer: AnswerCall
    log: Log
    _threads: list[Thread] = field(factory=list, init=False)
    _began_at: list[float | None] = field(factory=list, init=False)  # each thread writes its own item

    @property
    def began_at(self) -> tuple[float, ...]:
        """When each call that is being served was taken (monotonic seconds)."""
        return tuple(began for began in self._began_at if began is not None)

    @property
    def are_alive(self) -> bool:
        """Whether every thread runs."""
        return all(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        """Begin to serve."""
        self._began_at = [None] * self.count
        for number in range(self.count):
            # A daemon: a call that hangs must not keep the process from ending.
            thread = Thread(target=self._serve, args=(number,), name=f"worker {number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, seconds: float) -> int:
        """Close the queue and wait for the calls that have begun; return how many have not ended in that time."""
        self.queue.close()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self, number: int) -> None:
        while (call := self.queue.take()) is not None:
            self._began_at[number] = began = time.monotonic()
            try:
                serve_call(call, self.answer, now=began, log=self.log)
            except BaseException:  # noqa: BLE001  the client finds its reply broken off; the next call is served
                self.log(Level.ERROR, f"a call could not be answered\n{traceback.format_exc()}")
            finally:
                self._began_at[number] = None
