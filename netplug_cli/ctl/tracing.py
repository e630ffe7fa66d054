"""Prints which datastore is used and every call to it, as ``--log-level`` selects.

Keys are printed, values never: they may be secret.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from netplug_cli.formatting import print_error
from netplug_core.clock import Clock
from netplug_core.datastore.observed import CommitCall, DatastoreCall, ObservedDatastore, ReadCall
from netplug_core.records import Get, List, Query, RequireUnchanged, Write

__all__ = ["TraceLevel", "TracedDatastore"]


class TraceLevel(enum.Enum):
    """What is printed: nothing, which datastore is used, or every call to it too."""

    OFF = "off"
    STORE = "store"
    CALLS = "calls"

    @classmethod
    def of_level(cls, level: str) -> TraceLevel:
        """The trace level of a log level."""
        return {"info": cls.STORE, "debug": cls.CALLS}.get(level.lower(), cls.OFF)


@define
class TracedDatastore(ObservedDatastore):
    """A datastore that prints each of its calls when it has ended."""

    clock: Clock

    @contextmanager
    def observe(self, call: DatastoreCall) -> Iterator[None]:
        """Print its keys, how long it took, and its error."""
        began, outcome = self.clock.monotonic(), ""
        try:
            yield
        except Exception as error:
            outcome = f": {error}"
            raise
        finally:
            took_ms = (self.clock.monotonic() - began) * 1000
            print_error(f"{_format_call(call)} in {took_ms:.1f} ms{outcome}")


def _format_call(call: DatastoreCall) -> str:
    match call:
        case ReadCall(queries):
            return f"read {', '.join(map(_format_query, queries))}"
        case CommitCall(writes):
            return f"commit {', '.join(map(_format_write, writes))}"


def _format_query(query: Query) -> str:
    match query:
        case Get(key):
            return str(key)
        case List(kind, within):
            return f"{kind}({'/'.join((*within, '*'))})"


def _format_write(write: Write) -> str:
    subject = write.kind if isinstance(write, RequireUnchanged) else write.key
    return f"{type(write).__name__.lower()} {subject}"
