"""The error about an Installation: the class of the problem, the fields as they were spelled, and what is accepted."""

from __future__ import annotations

import enum
from typing import Final

from attrs import frozen

from netplug_core.decoding.codecs import Refused, WrongType
from netplug_core.decoding.tables import UnknownKeys, Unreadable
from netplug_core.errors import ConfigurationError, excerpt, quote

__all__ = ["InvalidInstallation", "ProblemClass", "document_problem"]

_UPSTREAM_FIELDS: Final = frozenset({
    "azure", "calicoKubeControllersDeployment", "calicoNodeDaemonSet", "calicoNodeWindowsDaemonSet",
    "calicoWindowsUpgradeDaemonSet", "certificateManagement", "componentResources", "controlPlaneTolerations",
    "csiNodeDriverDaemonSet", "fipsMode", "nodeMetricsPort", "nonPrivileged", "proxy", "serviceCIDRs",
    "tlsCipherSuites", "typhaAffinity", "typhaDeployment", "typhaMetricsPort", "variant", "windowsDataplane",
    "windowsNodes",
})  # fmt: skip
"""Fields that the operator.tigera.io/v1 resource of the same kind has, and this one does not."""

_OTHER_NAMES: Final = {"calicoNetwork": "netplugNetwork"}
"""Such fields that have another name here."""


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
    accepted = f"expected {refused.accepted.removesuffix(' is expected')}"
    if isinstance(refused, UnknownKeys):
        name = str(refused.value).partition(", ")[0]  # each has a line of its own: the reader goes on without it
        field = f"{path}.{name}".removeprefix(".")
        accepted = _no_such_field(name, path or "the document", refused.accepted)
        return InvalidInstallation(where, name, accepted, ProblemClass.UNSUPPORTED, (field,))
    return InvalidInstallation(where, refused.value, accepted, _class_of(refused), (path or "the document",))


def _no_such_field(name: str, place: str, known: str) -> str:
    if name in _OTHER_NAMES:
        return f"it is called {_OTHER_NAMES[name]} here"
    if name in _UPSTREAM_FIELDS:
        return "netplug does not have this field of the operator.tigera.io resource; leave it out"
    return f"there is no such field; {place} has {known}"


def _class_of(refused: Refused) -> ProblemClass:
    if refused.value is None:
        return ProblemClass.REQUIRED
    if isinstance(refused, Unreadable) and isinstance(refused.value, str):
        return ProblemClass.UNSUPPORTED  # of an enumeration
    if isinstance(refused, WrongType | Unreadable):
        return ProblemClass.FORMAT
    return ProblemClass.OUT_OF_RANGE
