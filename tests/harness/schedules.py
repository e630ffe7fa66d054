"""Clients of one store in every order in which their calls can come.

Exhaustive, not sampled: a schedule says who makes the next call; each is run, then the one that differs from it in the
last choice that can be made otherwise. A client is a thread only so that it can be stopped at each of its calls; no
two of them ever run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Semaphore, Thread
from typing import TypeAlias

from attrs import Factory, define, field

__all__ = ["CallScheduler", "Choose", "every_schedule"]

Choose: TypeAlias = Callable[[Sequence[str]], str]
"""Chooses who goes on, from the sorted names of those who wait."""


@define
class CallScheduler:
    """Lets one client run at a time, from one call to the store to the next."""

    waiting: dict[str, Semaphore] = field(default=Factory(dict))
    paused: Semaphore = field(factory=lambda: Semaphore(0))
    errors: list[BaseException] = field(default=Factory(list))

    def wait(self, name: str) -> None:
        """Stop here until it is this client's turn."""
        mine = self.waiting[name] = Semaphore(0)
        self.paused.release()
        mine.acquire()

    def run(self, clients: Mapping[str, Callable[[], object]], choose: Choose) -> None:
        """Run all clients to their ends, in the chosen order."""
        for name, client in clients.items():
            Thread(target=self._run_client, args=(name, client), daemon=True).start()
            self.paused.acquire()
        while self.waiting:
            self.waiting.pop(choose(sorted(self.waiting))).release()
            self.paused.acquire()
        if self.errors:
            raise self.errors[0]

    def _run_client(self, name: str, client: Callable[[], object]) -> None:
        self.wait(name)
        try:
            client()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test raises it
            self.errors.append(error)
        finally:
            self.paused.release()


def every_schedule(run: Callable[[Choose], None]) -> Iterator[str]:
    """Run every schedule once; what was chosen in each."""
    script: list[int] = []
    while True:
        options: list[int] = []
        chosen: list[str] = []

        def choose(
            waiting: Sequence[str],
            script: Sequence[int] = script,
            options: list[int] = options,
            chosen: list[str] = chosen,
        ) -> str:
            pick = script[len(options)] if len(options) < len(script) else 0
            options.append(len(waiting))
            chosen.append(waiting[pick])
            return waiting[pick]

        run(choose)
        yield " ".join(chosen)
        script = [*script, *[0] * (len(options) - len(script))]
        while script and script[-1] + 1 >= options[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1
