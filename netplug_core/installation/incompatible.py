"""The error about a static installation that cannot be converted: which setting of which object, and what to do."""

from __future__ import annotations

from attrs import frozen

from netplug_core.errors import ConfigurationError, excerpt, quote

__all__ = ["IncompatibleCluster"]


@frozen
class IncompatibleCluster(ConfigurationError):
    """A setting that an Installation cannot take over. ``where`` is the component, ``accepted`` what to do.

    ``field`` is the setting in the component, and ``value`` what it is.
    """

    field: str

    def __str__(self) -> str:
        found = "nothing" if self.value is None else quote(self.value)
        return f"{excerpt(self.where)}: {excerpt(self.field)}: {found} cannot be taken over; {self.accepted}"
