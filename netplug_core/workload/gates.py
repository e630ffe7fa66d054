"""The readiness gates that hold back the ADD of a pod: URLs that have to answer. Pure.

``flows.cni.pods`` polls them.
"""

from __future__ import annotations

from attrs import frozen

from netplug_core.errors import REDACTED, Unavailable

__all__ = [
    "GATES_S", "PROBE_INTERVAL_S", "PROBE_S", "Gate", "GateNotReady", "ProbeResult", "gates_of", "redact_url",
]  # fmt: skip

GATES_S = 30.0
"""The most time that an ADD waits for all of its readiness gates."""

PROBE_S = 5.0
"""The most time that one probe of a gate takes."""

PROBE_INTERVAL_S = 5.0
"""The time from one probe of a gate to the next."""

_READY = range(200, 400)


@frozen
class Gate:
    """One readiness gate: its URL, and where the configuration has it."""

    url: str
    position: int

    def __str__(self) -> str:
        return f"readiness_gates[{self.position}] {redact_url(self.url)}"


def gates_of(urls: tuple[str, ...]) -> tuple[Gate, ...]:
    """The gates of a configuration, in their order."""
    return tuple(Gate(url, position) for position, url in enumerate(urls))


def redact_url(url: str) -> str:
    """A URL for people: its query, and all of it if a password may be in it, are left out."""
    if "@" in url:
        return REDACTED
    path, separator, _query = url.partition("?")
    return f"{path}{separator}{REDACTED}" if separator else path


@frozen(kw_only=True)
class ProbeResult:
    """What a GET of a gate's URL found: the status of the last reply, or the reason why there is none."""

    status: int = 0
    problem: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the gate is ready: a final status from 200 to 399, redirects having been followed."""
        return self.status in _READY

    def __str__(self) -> str:
        return self.problem or f"status {self.status}"


@frozen
class GateNotReady(Unavailable):
    """A readiness gate did not become ready in time (code 11); ``cause`` has its last answer."""
