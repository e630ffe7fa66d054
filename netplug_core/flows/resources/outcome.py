"""What becomes of a resource that somebody changes: the outcome, and the ways to be refused."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import ConfigurationError, NotYetSupported
from netplug_core.records import Key
from netplug_core.resources.kinds import Resource

__all__ = ["Effect", "KindNotWritable", "Outcome", "ResourceExists", "ResourceMissing", "ResourceOutdated"]


class Effect(enum.Enum):
    """What became of a resource."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    VALID = "valid"


@frozen(kw_only=True)
class Outcome:
    """What was done, and what the person should know about it: ``warnings`` are sentences."""

    key: Key[Resource]
    effect: Effect
    warnings: tuple[str, ...] = ()


class ResourceExists(ConfigurationError):
    """A create of something that is stored already."""

    def __str__(self) -> str:
        return f"resource already exists: {self.where}; {self.accepted}"


class ResourceMissing(ConfigurationError):
    """A name under which nothing is stored."""

    @classmethod
    def of(cls, key: Key[object]) -> ResourceMissing:
        """The error about a key."""
        return cls(str(key), key.name, "a name that exists")

    def __str__(self) -> str:
        return f"resource does not exist: {self.where}"


class ResourceOutdated(ConfigurationError):
    """A document that names a resource version other than the stored one; ``accepted`` is the latest."""

    def __str__(self) -> str:
        return (
            f"update conflict: {self.where}: resource version '{self.value}' is out of date (latest: {self.accepted}). "
            "Update the resource YAML/JSON in order to make changes."
        )


class KindNotWritable(NotYetSupported):
    """A change of a kind that people cannot change, or not in this release; ``value`` is the operation."""

    def __str__(self) -> str:
        return f"operation {self.value} is not supported on {self.where}: {self.accepted}"
