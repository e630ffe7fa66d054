"""Processes that allocate addresses and are killed while they do: started, killed and replaced after enough work.

What one of them does is `tests.harness.processes.allocating_worker`.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from tests.harness.waiting import wait_until

__all__ = ["WorkerProcesses"]

_ROOT = Path(__file__).resolve().parents[2]
_MAX_STARTS = 200


@define
class WorkerProcesses:
    """Workers on one store, two nodes between them. ``folder`` has the files that they write."""

    store_arguments: tuple[str, str]
    folder: Path
    _running: dict[int, subprocess.Popen[bytes]] = field(factory=dict)
    _generation: int = 0

    def start(self, count: int) -> None:
        """Start so many."""
        for number in range(count):
            self._start(number)

    def kill_one_after_another(
        self, times: int, *, handles_between: int, after_half: Callable[[], None] = lambda: None
    ) -> None:
        """Kill a worker and start another in its place, each time after more handles; in the end kill all.

        ``after_half`` is called in the middle, while one worker fewer runs.
        """
        chance = random.Random(7)  # noqa: S311  # which one is killed
        for kill in range(times):
            self._wait_for_more_handles(handles_between)
            victim = chance.choice(sorted(self._running))
            self._kill(victim)
            if kill == times // 2:
                after_half()
            self._start(victim)
        self._wait_for_more_handles(handles_between)
        self.kill_all()

    def kill_all(self) -> None:
        """Kill those that run."""
        for number in tuple(self._running):
            self._kill(number)

    def handles(self) -> list[str]:
        """The handles that were used."""
        return [path.name.removeprefix("handle-") for path in self.folder.glob("handle-*")]

    def held(self) -> dict[str, str]:
        """The addresses that a worker held when it was killed, with their handles."""
        texts = {path.name.removeprefix("held-"): path.read_text() for path in self.folder.glob("held-*")}
        return {address: handle for address, handle in texts.items() if handle}  # none: killed before it was written

    def held_twice(self) -> list[str]:
        """What two workers held at one time."""
        return [path.name for path in self.folder.glob("twice-*")]

    def _start(self, number: int) -> None:
        arguments = (*self.store_arguments, f"node-{number % 2}", str(self.folder), f"w{number}x{self._generation}")
        self._generation += 1
        command = (sys.executable, "-m", "tests.harness.processes.allocating_worker", *arguments)
        with (self.folder / f"errors-{number}.log").open("ab") as log:
            self._running[number] = subprocess.Popen(command, cwd=_ROOT, stderr=log)

    def _kill(self, number: int) -> None:
        """End a worker as a power cut does."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def _wait_for_more_handles(self, count: int) -> None:
        enough = len(self.handles()) + count

        def is_enough() -> bool:
            for number, process in tuple(self._running.items()):
                if process.poll() is not None:  # the server was away for longer than a call may take
                    assert self._generation < _MAX_STARTS, self._errors()
                    self._start(number)
            return len(self.handles()) >= enough

        wait_until(is_enough, f"{enough} handles are used")

    def _errors(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("errors-*.log")))
