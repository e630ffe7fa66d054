"""The interfaces of a node's packet filter: its tables, what other programs do, and tracked connections.

``ruleset`` has the values that they take. A packet filter belongs to all programs of a machine: another one may change
our tables, delete them with all others, or have chains of its own that drop what ours accept. So a program of ours
waits for what others do, and reads its table again then.
``netplug_core.testing.ruleset_checks`` tests every implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address
from netplug_core.clock import Deadline
from netplug_core.dataplane.ruleset import ObservedTable, TableChange

__all__ = ["Connections", "ForeignChange", "ForeignChanges", "RulesetDataplane", "RulesetEvents"]


# --- tables -----------------------------------------------------------------------------------------------------------


class RulesetDataplane(Protocol):
    """Who keeps tables in the packet filter of a node. Any thread may call it."""

    def read(self, name: str) -> ObservedTable | None:
        """What the kernel has of a table; None if it has no such table.

        Raises:
            KernelError: the kernel would not say, or has no packet filter, or no program that reads it is there.
        """
        ...

    def apply(self, change: TableChange) -> None:
        """Make a change, in one transaction. Tables of other names stay as they are.

        Raises:
            KernelError: the kernel refused; nothing is changed.
        """
        ...


# --- what others do ---------------------------------------------------------------------------------------------------


@frozen
class ForeignChange:
    """A transaction of another program. ``tables`` are those of the family ``inet`` in which it changed something."""

    program: str
    tables: frozenset[str]


@frozen(kw_only=True)
class ForeignChanges:
    """What other programs have done to the packet filter, in its order.

    ``were_lost``: the kernel could not deliver some notifications, so anything may have changed besides.
    """

    changes: tuple[ForeignChange, ...] = ()
    were_lost: bool = False

    def concern(self, table: str) -> bool:
        """Whether a table of the family ``inet`` may be another one now."""
        return self.were_lost or any(table in each.tables for each in self.changes)

    def programs(self, table: str) -> tuple[str, ...]:
        """The names of the programs that have changed a table of the family ``inet``, each once, in their order."""
        return tuple(dict.fromkeys(each.program for each in self.changes if table in each.tables))


class RulesetEvents(Protocol):
    """Notifications of what other programs do to the packet filter. One thread waits for them."""

    def wait(self, *, deadline: Deadline) -> ForeignChanges | None:
        """Wait until another program has changed something, in whatever table; return all that there is by then.

        None: the deadline has passed, or another thread called ``close``. What :class:`RulesetDataplane` of this
        process does is left out, but for what it did in the instant in which another program did something: which of
        the two was ours is not known then.

        Raises:
            KernelError: there are no notifications.
        """
        ...

    def close(self) -> None:
        """End a wait, and each later one; any thread may call it."""
        ...


# --- connections ------------------------------------------------------------------------------------------------------


class Connections(Protocol):
    """The connections that the kernel of a node tracks. Any thread may call it.

    A connection keeps the translation that its first packet got, and what policy decided of it, whatever the tables
    say by now.
    """

    def forget(self, destinations: Iterable[Address]) -> int:
        """Forget the connections that were begun to some addresses, before any translation; return how many.

        The next packet of each is translated as the first one of a new connection.

        Raises:
            KernelError: the kernel refused; some may be forgotten.
        """
        ...

    def forget_workloads(self, addresses: Iterable[Address]) -> int:
        """Forget the connections of workloads with some addresses; return how many.

        They are those that began at such an address, that were begun to it, and that a translation led to it. The
        next workload with such an address inherits none of them.

        Raises:
            KernelError: the kernel refused; some may be forgotten.
        """
        ...
