"""The interfaces of a node's packet filter: its tables, what other programs do, and tracked connections.

``ruleset`` has the values that they take. A packet filter belongs to all programs of a machine: another one may change
our tables, delete them with all others, or have chains of its own that drop what ours accept. So a program of ours
waits for what others do, and reads its table again then.
``netplug_core.testing.ruleset_checks`` tests every implementation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from attrs import frozen

from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import (
    Chain,
    Concatenation,
    Counter,
    DeleteTable,
    ElementType,
    Hook,
    JumpByMap,
    Limit,
    LogPacket,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    ObservedTable,
    PacketTable,
    Reject,
    ReplaceTable,
    Rule,
    SetReference,
    Statement,
    TableChange,
    TrackingState,
    source_of,
)

__all__ = [
    "REQUIREMENTS", "Connections", "DroppingChain", "ForeignChange", "ForeignChanges", "MissingFeature", "Requirement",
    "RulesetDataplane", "RulesetEvents", "find_missing",
]  # fmt: skip


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

    def count_packets(self, table: str, chain: str) -> int:
        """The packets that the counters of a chain have seen since its rules were made; 0 if there is no such chain.

        Raises:
            KernelError: as from ``read``.
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


@frozen(kw_only=True)
class DroppingChain:
    """A base chain of another program that drops what none of its rules accepts.

    Each program's chains see a packet, and one that drops it has the last word: ours cannot let it pass.
    """

    family: str
    table: str
    name: str
    hook: Hook

    def __str__(self) -> str:
        return f"the chain {self.name} of the table {self.family} {self.table}"

    @property
    def remedy(self) -> str:
        """The command that lets it accept what none of its rules drops."""
        return f"nft 'chain {self.family} {self.table} {self.name} {{ policy accept; }}'"


# --- what the kernel has to have --------------------------------------------------------------------------------------


@frozen
class Requirement:
    """Something that the table of policy has in it. ``option`` is what a kernel without it lacks."""

    what: str
    option: str
    statements: tuple[Statement, ...] = ()
    sets: tuple[NamedSet, ...] = ()

    @property
    def table(self) -> PacketTable:
        """A table with it, and nothing else. No packet enters it."""
        return PacketTable(name=_SCRATCH, sets=self.sets, chains=(Chain(name="x", rules=(Rule(self.statements, ""),)),))


@frozen
class MissingFeature:
    """What the kernel refuses of the table of policy."""

    requirement: Requirement
    error: KernelError

    def __str__(self) -> str:
        return f"{self.requirement.what}: the kernel lacks {self.requirement.option} ({self.error})"


_SCRATCH = "netplug_probe"
_INPUT = Meta(MetaKey.INPUT_INTERFACE)
_NAME, _ADDRESS = ElementType.INTERFACE_NAME, ElementType.IPV4_ADDRESS

REQUIREMENTS: Final = (
    Requirement("tables for both families", "CONFIG_NF_TABLES_INET", (Counter(),)),
    Requirement(
        "chains by the name of an interface",
        "CONFIG_NF_TABLES, of version 4.18 or later",
        (JumpByMap(_INPUT, "m"),),
        (NamedSet(name="m", types=(_NAME,), value_type=ElementType.VERDICT),),
    ),
    Requirement(
        "prefixes of an interface",
        "sets of concatenated intervals, which version 5.6 brought",
        (Match(Concatenation((_INPUT, source_of(Family.IPV4))), SetReference("s")),),
        (NamedSet(name="s", types=(_NAME, _ADDRESS), is_interval=True),),
    ),
    Requirement("known connections", "CONFIG_NFT_CT", (Match(TrackingState(), ("established",)),)),
    Requirement("answers to what is denied", "CONFIG_NFT_REJECT_INET", (Reject.PROHIBITED,)),
    Requirement("rules that log", "CONFIG_NFT_LOG and CONFIG_NFT_LIMIT", (Limit(1, "second", 1), LogPacket("x"))),
)
"""What a table of policy may have in it."""


def find_missing(ruleset: RulesetDataplane) -> tuple[MissingFeature, ...]:
    """What the kernel refuses of it. Each is tried in a table of its own, which goes at once."""
    found: list[MissingFeature] = []
    for each in REQUIREMENTS:
        try:
            ruleset.apply(ReplaceTable(each.table))
        except KernelError as error:
            found.append(MissingFeature(each, error))
        else:
            ruleset.apply(DeleteTable(_SCRATCH))
    return tuple(found)


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
