"""Installations, by the rules of ``installation``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from netplug_core.decoding.tables import find_member
from netplug_core.installation.check import CheckedInstallation, check
from netplug_core.installation.components import read_component
from netplug_core.installation.document import InstallationDocument, read_installation
from netplug_core.installation.overlay import overlaid
from netplug_core.installation.problems import InvalidInstallation, ProblemClass
from netplug_core.installation.selection import find_selection_problems
from netplug_core.lint.documents import Document, Sourced, subject_of
from netplug_core.lint.finding import Finding
from netplug_core.lint.rules import Rule
from netplug_core.resources.components import ComponentKind
from netplug_core.resources.installation import INSTALLATION_NAME

__all__ = ["check_components", "check_installations"]

_RULES: Final = {
    ProblemClass.REQUIRED: Rule.INSTALLATION_REQUIRED,
    ProblemClass.FORMAT: Rule.INSTALLATION_FORMAT,
    ProblemClass.OUT_OF_RANGE: Rule.INSTALLATION_RANGE,
    ProblemClass.UNSUPPORTED: Rule.INSTALLATION_UNSUPPORTED,
    ProblemClass.INCOMPATIBLE: Rule.INSTALLATION_INCOMPATIBLE,
    ProblemClass.DUPLICATE: Rule.INSTALLATION_DUPLICATE,
    ProblemClass.CONFLICT: Rule.INSTALLATION_CONFLICT,
}


def check_installations(
    documents: Iterable[Document],
) -> tuple[tuple[Sourced[CheckedInstallation], ...], tuple[Finding, ...]]:
    """The Installations as they were judged, for a new cluster, and what they break; an overlay comes last.

    An overlay is judged with the settings of the one Installation named default, and not without it. The source is that
    of the document with the pools.
    """
    found, read = list[Finding](), list[tuple[Document, InstallationDocument]]()
    for document in documents:
        try:
            read.append((document, read_installation(document.mapping, source=document.source)))
        except InvalidInstallation as error:
            found.append(_finding(document, error))
    defaults = [(document, one) for document, one in read if _is_default(one)]
    overlays = [(document, one) for document, one in read if not _is_default(one)]
    checked = list[Sourced[CheckedInstallation]]()
    for document, one in (*defaults, *overlays):
        if _is_default(one):
            checked.append(Sourced(check(one), document.source))
        elif len(defaults) == 1 and not any(map(any, map(find_selection_problems, (defaults[0][1], one)))):
            below, default = defaults[0]
            has_pools = bool(one.installation.spec.network.pools)
            checked.append(Sourced(check(overlaid(default, one)), (document if has_pools else below).source))
        else:
            continue
        found.extend(_finding(document, problem) for problem in checked[-1].value.problems)
        found.extend(_warning_finding(document, checked[-1].value, text) for text in checked[-1].value.warnings)
    return tuple(checked), tuple(found)


def check_components(documents: Iterable[Document]) -> Iterator[Finding]:
    """What the components beside an Installation break."""
    for document in documents:
        kind = ComponentKind(find_member(document.mapping, "kind"))
        try:
            read_component(kind, document.mapping, source=document.source)
        except InvalidInstallation as error:
            yield _finding(document, error)


def _is_default(one: InstallationDocument) -> bool:
    return one.installation.metadata.name == INSTALLATION_NAME


def _warning_finding(document: Document, checked: CheckedInstallation, warning: str) -> Finding:
    """A warning, whose text begins with the object and may go on with a field."""
    text = warning.removeprefix(f"{checked.document.where}: ")
    field, colon, rest = text.partition(": ")
    has_field = bool(colon) and " " not in field
    return Finding(
        rule=Rule.INSTALLATION_WARNING,
        source=document.source,
        subject=subject_of(document),
        field=field if has_field else "spec",
        value=None,
        accepted=rest if has_field else text,
    )


def _finding(document: Document, error: InvalidInstallation) -> Finding:
    hint = f" ({error.hint})" if error.hint else ""
    return Finding(
        rule=_RULES[error.problem_class],
        source=document.source,
        subject=subject_of(document),
        field=" and ".join(error.paths),
        value=error.value,
        accepted=f"{error.accepted}{hint}",
    )
