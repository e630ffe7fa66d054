"""How long the credentials of the process are valid: client certificates and tokens that say when they expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeAlias

from netplug_cli.node.tracked import Tracked
from netplug_core.clock import SECOND_NS, Clock
from netplug_core.datastore.protocol import CredentialsInUse, HasCredentials
from netplug_core.errors import ConfigurationError
from netplug_core.expiry import parse_certificate_expiry, parse_token_expiry

__all__ = ["FindCredentials", "KnownCredentials"]

FindCredentials: TypeAlias = Callable[[], CredentialsInUse | None]
"""The credentials that are in use; None if there are none yet."""


class KnownCredentials:
    """The credentials that the process has now. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: Tracked[FindCredentials] = Tracked()

    def add(self, find: FindCredentials) -> None:
        """These are its own from now on."""
        self._sources.add(find)

    def used_by(self, opened: object) -> AbstractContextManager[object]:
        """Those of a datastore or an orchestrator, if it has any, are its own for as long as the context lasts."""
        return (
            self._sources.including(opened.credentials_in_use) if isinstance(opened, HasCredentials) else nullcontext()
        )

    def seconds_left(self) -> dict[tuple[str, ...], float]:
        """The seconds until each expires, by access, location and ``certificate`` or ``token``; negative once it has.

        What cannot be read, or does not say when it expires, has no value. Of several with one name the first to
        expire counts.
        """
        left: dict[tuple[str, ...], float] = {}
        now_ns = self._clock.now_ns()
        for name, expires_ns in self._expiries():
            seconds = (expires_ns - now_ns) / SECOND_NS
            left[name] = min(seconds, left.get(name, seconds))
        return left

    def _expiries(self) -> Iterator[tuple[tuple[str, str, str], int]]:
        for find in self._sources.all():
            with suppress(ConfigurationError):  # its file is being replaced
                found = find()
                if found is not None:
                    yield from _expiries_of(found)


def _expiries_of(found: CredentialsInUse) -> Iterator[tuple[tuple[str, str, str], int]]:
    if found.certificate:
        with suppress(ValueError):
            yield (found.access, found.location, "certificate"), parse_certificate_expiry(found.certificate)
    if found.expires_ns is not None:
        yield (found.access, found.location, "token"), found.expires_ns
    elif found.token:
        with suppress(ValueError):  # a token need not be one that says so
            yield (found.access, found.location, "token"), parse_token_expiry(found.token)
