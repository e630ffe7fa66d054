"""What a command acts through: the environment, the store, time and chance. ``main`` hands it to every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from attrs import field, frozen

from netplug_core.clock import Clock, Deadline, Pace

if TYPE_CHECKING:
    import click

    from netplug_core.datastore.interface import Datastore

__all__ = ["Session", "session_of"]

_PATIENCE_S = 30.0


@frozen(kw_only=True)
class Session:
    """One run of the tool. The environment may hold passwords, so it is never printed."""

    environ: Mapping[str, str] = field(repr=False)
    open_store: Callable[[Mapping[str, str]], AbstractContextManager[Datastore]]
    clock: Clock
    chance: Callable[[], float]
    new_uid: Callable[[], str]

    def store(self) -> AbstractContextManager[Datastore]:
        """The store that the environment names, open for as long as the context lasts."""
        return self.open_store(self.environ)

    def pace(self) -> Pace:
        """How long one change may take, from now, and how to wait in between."""
        return Pace(clock=self.clock, deadline=self.deadline(), chance=self.chance)

    def deadline(self) -> Deadline:
        """How long one question may take, from now."""
        return Deadline.after(self.clock, _PATIENCE_S)


def session_of(context: click.Context) -> Session:
    """The session that ``main`` was given, or this machine's."""
    return context.obj if isinstance(context.obj, Session) else _this_machine()


def _this_machine() -> Session:
    import os
    import random

    from netplug_cli import wiring

    return Session(
        environ=os.environ,
        open_store=wiring.open_datastore,
        clock=wiring.system_clock(),
        chance=random.random,
        new_uid=_random_uuid,
    )


def _random_uuid() -> str:
    import uuid

    return str(uuid.uuid4())
