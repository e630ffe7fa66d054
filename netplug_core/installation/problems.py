"""The error about an Installation: the class of the problem, the fields as they were spelled, and what is accepted."""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.decoding.codecs import Refused, WrongType
from netplug_core.decoding.tables import UnknownKeys, Unreadable
from netplug_core.errors import ConfigurationError, excerpt, quote

__all__ = ["InvalidInstallation", "ProblemClass", "document_problem"]

_MAX_NAMES = 5
"""Unknown members that an error names."""


class ProblemClass(enum.Enum):
    """What is wrong with a field."""

    REQUIRED = "Required"
    FORMAT = "Format"
    OUT_OF_RANGE = "OutOfRange"
    UNSUPPORTED = "Unsupported"
    INCOMPATIBLE = "Incompatible"
    DUPLICATE = "Duplicate"
    CONFLICT = "Conflict"


@frozen
class InvalidInstallation(ConfigurationError):
    """One problem of an Installation. ``where`` names the document or the object, ``value`` is what was found.

    ``paths`` are the fields, as the user spelled them: several if they contradict each other. ``hint`` is the next
    step, if ``accepted`` does not say it.
    """

    problem_class: ProblemClass
    paths: tuple[str, ...]
    hint: str = ""

    def __str__(self) -> str:
        found = "nothing" if self.value is None else quote(self.value)
        fields = " and ".join(excerpt(path) for path in self.paths)
        hint = f" ({self.hint})" if self.hint else ""
        return (
            f"{excerpt(self.where)}: {self.problem_class.value}: {fields}: {found} is not accepted; "
            f"{self.accepted}{hint}"
        )


def document_problem(refused: Refused, where: str) -> InvalidInstallation:
    """The error about a member that cannot be read."""
    path = refused.path.removeprefix(".")
    accepted = f"expected {refused.accepted}"
    if isinstance(refused, UnknownKeys):
        place = path or "the document"
        names = str(refused.value).split(", ")[:_MAX_NAMES]
        paths = tuple(f"{path}.{name}".removeprefix(".") for name in names)
        accepted = f"there is no such field; {place} has {refused.accepted}"
        return InvalidInstallation(where, refused.value, accepted, ProblemClass.UNSUPPORTED, paths)
    return InvalidInstallation(where, refused.value, accepted, _class_of(refused), (path or "the document",))


def _class_of(refused: Refused) -> ProblemClass:
    if refused.value is None:
        return ProblemClass.REQUIRED
    if isinstance(refused, Unreadable) and isinstance(refused.value, str):
        return ProblemClass.UNSUPPORTED  # of an enumeration
    if isinstance(refused, WrongType | Unreadable):
        return ProblemClass.FORMAT
    return ProblemClass.OUT_OF_RANGE
