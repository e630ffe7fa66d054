"""Renews the plugin's token before it expires, and earlier when the process's own credentials change.

A cluster that changes its signing key renews the tokens in pods, and those of before are accepted no more. So a change
of the process's own token is a reason to renew the plugin's. If the process's own files cannot be looked at, the token
is renewed by time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from attrs import define, field

from netplug_cli.node.failures import RepeatedFailure
from netplug_cli.node.periodic import PeriodicTask
from netplug_core.clock import Clock, format_time
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.errors import NetplugError
from netplug_core.installation.tokens import IssuedToken, refresh_delay_s
from netplug_core.log import Level, Log

__all__ = ["LOOK_EVERY_S", "TokenRefresh"]

LOOK_EVERY_S = 1.0
"""The pause between two looks at the process's own credentials. A change counts once two looks in a row see it."""


@define(kw_only=True)
class TokenRefresh:
    """``renew`` replaces the plugin's token. ``find_stamps`` is what changes with the process's own credentials.

    ``interval_s`` replaces a quarter of the time left as the pause. ``path`` is the file, for the log.
    """

    renew: Callable[[], IssuedToken]
    find_stamps: Callable[[], Hashable]
    path: str
    clock: Clock
    chance: Callable[[], float]
    log: Log
    interval_s: float | None = None
    _issued: IssuedToken | None = field(default=None, init=False)
    _next_at: float = field(default=float("-inf"), init=False)
    _used_stamps: Hashable = field(default=None, init=False)
    _seen_stamps: Hashable = field(default=None, init=False)
    _failure: RepeatedFailure = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._failure = RepeatedFailure("the plugin's token is not renewed", self.log)

    def credentials_in_use(self) -> CredentialsInUse | None:
        """The plugin's; None as long as this process has written none."""
        issued = self._issued
        if issued is None:
            return None
        return CredentialsInUse(access="plugin", location=self.path, expires_ns=issued.expires_ns)

    def task(self, every_s: float = LOOK_EVERY_S) -> PeriodicTask:
        """What looks again and again."""
        return PeriodicTask("token of the plugin", self.look, every_s=every_s, log=self.log)

    def look(self) -> None:
        """Renew the token if it is time, or if the process's own credentials have changed."""
        stamps = self.find_stamps()
        has_settled, self._seen_stamps = stamps == self._seen_stamps, stamps
        has_changed = stamps is not None and has_settled and stamps != self._used_stamps
        if self.clock.monotonic() < self._next_at and not has_changed:
            return
        self._used_stamps = stamps
        self._schedule(self._try_to_renew())

    def renew_now(self) -> IssuedToken:
        """The new token. The next one is due as after a look.

        Raises:
            NetplugError: there is none.
            OSError: the file cannot be written.
        """
        stamps = self.find_stamps()
        issued = self._renew()
        self._used_stamps = self._seen_stamps = stamps
        self._schedule(issued)
        return issued

    def _schedule(self, issued: IssuedToken | None) -> None:
        delay_s = refresh_delay_s(issued, now_ns=self.clock.now_ns(), interval_s=self.interval_s, chance=self.chance())
        self._next_at = self.clock.monotonic() + delay_s

    def _try_to_renew(self) -> IssuedToken | None:
        """The new token; None if there is none, which is a line of the log."""
        try:
            return self._renew()
        except (NetplugError, OSError) as error:
            self._failure.report(error)
            return None

    def _renew(self) -> IssuedToken:
        issued = self.renew()
        self._failure.clear()
        self._issued = issued
        source = "the pod's own, as the server issues none" if issued.is_mounted else "issued"
        expires = format_time(issued.expires_ns)
        self.log(Level.INFO, "the plugin's token is renewed", path=self.path, expires=expires, token=source)
        return issued
