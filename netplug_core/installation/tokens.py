"""The token with which the plugin reaches the API server: when it expires, and when it is renewed."""

from __future__ import annotations

import re
from typing import Protocol

from attrs import field, frozen

from netplug_core.clock import SECOND_NS, Deadline

__all__ = [
    "LIFETIME_S",
    "RETRY_S",
    "IssuedToken",
    "TokenIssuer",
    "parse_duration_s",
    "refresh_delay_s",
]

LIFETIME_S = 86_400
"""The lifetime that is asked for. The server may grant another one."""

RETRY_S = 5.0
"""The shortest pause after a failure, or before a token is renewed that expires soon."""

_SOON_S = 20.0
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@frozen(kw_only=True)
class IssuedToken:
    """A token that is valid until ``expires_ns`` (nanoseconds since 1970-01-01 UTC).

    ``is_mounted``: it is the process's own, since the server issues none.
    """

    text: str = field(repr=False)
    expires_ns: int
    is_mounted: bool = False


class TokenIssuer(Protocol):
    """Issues tokens for service accounts of the process's own namespace."""

    @property
    def server(self) -> str:
        """The URL of the API server."""
        ...

    def read_certificate_authority(self) -> bytes:
        """The certificates (PEM) that the server's certificate is verified with.

        Raises:
            ConfigurationError: they cannot be read.
        """
        ...

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        """A new token of an account; a server that issues none gets the process's own token used.

        Raises:
            ConfigurationError: there is no access to the API server, or the account does not exist.
            Unauthorized: the right to create the token is missing.
            Unavailable: the server does not answer.
        """
        ...


def refresh_delay_s(issued: IssuedToken, *, now_ns: int, interval_s: float | None, chance: float) -> float:
    """How many seconds from now a token is renewed that was issued now.

    It is a quarter of the time that is left, or ``interval_s`` if that is configured, and up to twice as long by
    ``chance`` (from 0 to 1), so that the nodes of a cluster do not ask all at once.
    """
    left_s = (issued.expires_ns - now_ns) / SECOND_NS
    usual_s = left_s / 4 if interval_s is None else interval_s
    return (usual_s if left_s > _SOON_S else RETRY_S) * (1 + chance)


def parse_duration_s(text: str) -> float:
    """The seconds of a duration such as ``90s`` or ``1h30m``, as Go writes it.

    Raises:
        ValueError: it is none, or not longer than nothing.
    """
    parts = _PART.findall(text)
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if "".join(f"{number}{unit}" for number, unit in parts) != text or seconds <= 0:
        raise ValueError(f"{text!r} is not accepted; a duration such as 90s or 1h30m is")
    return float(seconds)
