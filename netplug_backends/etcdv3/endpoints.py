"""The endpoints of a cluster's members: URLs of the configuration as values, and which member is tried first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.settings.endpoints import EtcdEndpoint

__all__ = ["MemberSource", "RandomBelow", "StaticMembers"]

RandomBelow = Callable[[int], int]
"""Draws a random number from 0 up to, but not including, its argument."""


class MemberSource(Protocol):
    """Finds the members of one cluster."""

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        ...

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members in the order to try them; the first is drawn, so that not all nodes use the same member.

        Raises:
            Unavailable: they cannot be found in time.
        """
        ...


@frozen
class StaticMembers:
    """Members that the configuration lists."""

    endpoints: tuple[EtcdEndpoint, ...]

    @property
    def location(self) -> str:
        """The cluster, as error texts name it."""
        return ",".join(map(str, self.endpoints))

    def find_members(self, random_below: RandomBelow, *, deadline: Deadline) -> tuple[EtcdEndpoint, ...]:
        """The members, beginning with one that is drawn."""
        del deadline  # no lookup is needed
        first = random_below(len(self.endpoints))
        return (*self.endpoints[first:], *self.endpoints[:first])
