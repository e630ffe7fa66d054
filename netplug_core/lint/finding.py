"""One place that breaks a rule of the table."""

from __future__ import annotations

from attrs import frozen

from netplug_core.errors import excerpt, quote
from netplug_core.lint.rules import Rule

__all__ = ["Finding", "Path", "Repair", "format_path"]

Path = tuple[str | int, ...]
"""The names and positions that lead to a member of a document."""


def format_path(path: Path) -> str:
    """A path as messages show it: ``plugins[0].ipam``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@frozen
class Repair:
    """The value that a member of the document is given, so that the rule is not broken any more."""

    path: Path
    value: object


@frozen(kw_only=True)
class Finding:
    """What breaks a rule: ``field`` of ``subject`` in ``source`` has ``value``; ``accepted`` is what would do.

    ``source`` names the document, or the datastore. ``value`` is None if nothing is there, or if it is not shown.
    ``repair`` is None if it is not known for certain what was meant.
    """

    rule: Rule
    source: str
    subject: str
    field: str
    value: object
    accepted: str
    repair: Repair | None = None

    @property
    def shown_value(self) -> str:
        """The value as a message shows it."""
        if self.value is None:
            return "-"
        return excerpt(self.value) if isinstance(self.value, str) and self.value.isprintable() else quote(self.value)
