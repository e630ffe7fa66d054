"""What a service manager is notified of: that the node process is ready, what it does, and that it lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netplug_cli.node.service_manager import ServiceManager
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing

__all__ = ["NOTIFY_EVERY_S", "Supervision"]

NOTIFY_EVERY_S = 10.0
"""The pause between two notifications, unless the watchdog needs them earlier."""


class Supervision:
    """Notifies a service manager, from ``start`` to ``stop``; does nothing if there is none.

    A process that is found dead by ``find_dead`` says so and feeds the watchdog no more, so that it is started again.
    ``describe`` is the line that ``systemctl status`` shows.
    """

    def __init__(
        self,
        *,
        manager: ServiceManager,
        find_dead: Callable[[], Sequence[str]],
        describe: Callable[[], str],
        clock: Clock,
        log: Log,
    ) -> None:
        self._manager = manager
        self._find_dead = find_dead
        self._describe = describe
        self._has_noted_end = False
        # A notification that comes late by half the time is not too late.
        self._every_s = NOTIFY_EVERY_S if manager.watchdog_s is None else min(NOTIFY_EVERY_S, manager.watchdog_s / 2)
        self._runtime = Runtime((self._controller(),), clock=clock, log=log)

    def start(self) -> None:
        """Say that the process is ready."""
        if self._manager.is_there:
            self._manager.notify("READY=1")
            self._runtime.start()

    def note_end(self) -> None:
        """Say that the process ends what it has begun."""
        self._has_noted_end = True
        self._manager.notify("STOPPING=1", f"STATUS=ends the calls that have begun: {self._describe()}")

    def stop(self) -> None:
        """Say nothing more."""
        if self._manager.is_there:
            self._runtime.stop()

    def _controller(self) -> Controller[Sequence[str], Sequence[str]]:
        return Controller(
            name="notifications",
            observe=lambda _deadline: self._find_dead(),
            plan=self._plan,
            act=lambda problems, _deadline: self._notify(problems),
            failure="the service manager is not notified",
            timing=Timing(backoff=Backoff(first_s=self._every_s, longest_s=self._every_s)),
        )

    def _plan(self, dead: Sequence[str]) -> Plan[Sequence[str]]:
        text, cause = "the process does not work; a watchdog starts it again", "; ".join(dead)
        problems = (Problem(message=text, cause=cause, level=Level.ERROR),) if dead else ()
        return Plan(actions=(dead,), look_again_s=self._every_s, problems=problems)

    def _notify(self, problems: Sequence[str]) -> None:
        watchdog = ("WATCHDOG=1",) if self._manager.watchdog_s is not None and not problems else ()
        status = () if self._has_noted_end else (f"STATUS={'; '.join(problems) or self._describe()}",)
        self._manager.notify(*watchdog, *status)
