"""The outcome of a change of a resource, and the errors that refuse one."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import ConfigurationError, NotYetSupported, excerpt
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource

__all__ = ["Effect", "KindNotWritable", "LabelKept", "Outcome", "ResourceExists", "ResourceMissing", "ResourceOutdated"]


class Effect(enum.Enum):
    """The effect on a resource."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    REPAIRED = "repaired"
    VALID = "valid"


@frozen(kw_only=True)
class Outcome:
    """The effect of a change; ``warnings`` are sentences for the person."""

    key: Key[Resource]
    effect: Effect
    warnings: tuple[str, ...] = ()


class ResourceExists(ConfigurationError):
    """A creation of a resource that is stored already."""

    def __str__(self) -> str:
        return f"resource already exists: {excerpt(self.where)}; {self.accepted}"


@frozen
class ResourceMissing(ConfigurationError):
    """A name of no stored resource; ``similar`` is the name of one that was probably meant, empty if none is known."""

    key: Key[object]
    similar: str = ""

    @classmethod
    def of(cls, key: Key[object], similar: str = "") -> ResourceMissing:
        """The error about a key."""
        return cls(str(key), key.name, "a name that exists", key, similar)

    def __str__(self) -> str:
        meant = f"; did you mean {excerpt(self.similar)}?" if self.similar else ""
        return f"resource does not exist: {excerpt(self.where)}{meant}"


class ResourceOutdated(ConfigurationError):
    """A document that names a resource version other than the stored one; ``accepted`` is the latest."""

    def __str__(self) -> str:
        return (
            f"update conflict: {excerpt(self.where)}: resource version '{excerpt(self.value)}' is out of date "
            f"(latest: {self.accepted}). "
            "Update the resource YAML/JSON in order to make changes."
        )


class BlocksLost(ConfigurationError):
    """A new pool where workloads have addresses that no block holds; ``accepted`` says what to do."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted}"


class DeletionCancelled(ConfigurationError):
    """A pool that was enabled again while it was deleted."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)} {self.accepted}"


class LabelKept(ConfigurationError):
    """A label that a change removed and that is there after it; ``value`` is its name."""

    def __str__(self) -> str:
        return f"cannot remove label {self.value} from {self.where}: {self.accepted}"


class KindNotWritable(NotYetSupported):
    """A change of a kind that people do not write; ``value`` is the operation."""

    def __str__(self) -> str:
        return f"operation {excerpt(self.value)} is not supported on {excerpt(self.where)}: {self.accepted}"
