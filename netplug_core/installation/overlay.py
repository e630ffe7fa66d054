"""The Installation ``overlay``: a second object whose settings replace those of ``default``."""

from __future__ import annotations

from typing import Final, TypeVar

from attrs import evolve, fields

from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.selection import select
from netplug_core.resources.installation import (
    CNIFeatures,
    CNISettings,
    InstallationSpec,
    IPAMSettings,
    Logging,
    LogSettings,
    NetworkSettings,
)

__all__ = ["overlaid"]

T = TypeVar("T")

_MERGED: Final = (InstallationSpec, NetworkSettings, CNISettings, CNIFeatures, IPAMSettings, Logging, LogSettings)
"""Objects that are merged member by member; any other value is replaced as a whole."""


def overlaid(default: InstallationDocument, overlay: InstallationDocument) -> InstallationDocument:
    """The document ``default`` with what ``overlay`` sets. What the overlay leaves out, or sets empty, stays.

    Neither has selection problems. The result selects the CNI plugin and its IPAM in ``spec.cni``, so that the two
    documents may use different spellings.
    """
    spec = _merge(_with_one_spelling(default), _with_one_spelling(overlay))
    # One file name, because a place is shown with a limited length; there is only one Installation(default).
    where = f"{overlay.where} over Installation({default.installation.metadata.name})"
    return InstallationDocument(
        installation=evolve(default.installation, spec=spec),
        unreadable=(*default.unreadable, *overlay.unreadable),
        where=where,
    )


def _with_one_spelling(document: InstallationDocument) -> InstallationSpec:
    spec, selection = document.installation.spec, select(document)
    cni = CNISettings(
        type=selection.cni.value.value if selection.cni.value else "",
        ipam=IPAMSettings(type=selection.ipam.value.value if selection.ipam.value else ""),
        spec_version=selection.spec_version.value,
        bin_dir=selection.bin_dir.value or "",
        conf_dir=selection.conf_dir.value or "",
        install_mode=selection.install_mode.value,
    )
    return evolve(spec, cni=cni, network=evolve(spec.network, cni=CNISettings()))


def _merge(below: T, above: T) -> T:
    if not isinstance(below, _MERGED):
        return above or below
    names = [attribute.name for attribute in fields(type(below))]
    return evolve(below, **{name: _merge(getattr(below, name), getattr(above, name)) for name in names})
