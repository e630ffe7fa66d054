"""The CNI plugin and its IPAM, whichever of the spellings a document uses.

Source: spec 2.6 names ``netplugNetwork.cni.type``, ``netplugNetwork.cni.ipam.type`` and ``CNI.IPAM.Plugin``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from attrs import frozen

from netplug_core.installation.document import InstallationDocument
from netplug_core.installation.problems import InvalidInstallation, ProblemClass
from netplug_core.resources.installation import CNISettings, InstallMode, SpecVersion

__all__ = ["CNIType", "IPAMType", "Selected", "Selection", "find_selection_problems", "select"]

T = TypeVar("T")
V = TypeVar("V")
E = TypeVar("E", bound=enum.Enum)


class CNIType(enum.Enum):
    """Which CNI plugin connects pods."""

    NETPLUG = "Netplug"
    GKE = "GKE"
    AMAZON_VPC = "AmazonVPC"
    AZURE_VNET = "AzureVNET"


class IPAMType(enum.Enum):
    """Who assigns addresses."""

    NETPLUG = "Netplug"
    HOST_LOCAL = "HostLocal"
    AMAZON_VPC = "AmazonVPC"
    AZURE_VNET = "AzureVNET"


@frozen
class Selected(Generic[T]):
    """A setting, and the field that sets it, as the user spelled it. The value is None if no field does."""

    path: str
    value: T | None


@frozen(kw_only=True)
class Selection:
    """What a document selects, with one field for each setting."""

    cni: Selected[CNIType]
    ipam: Selected[IPAMType]
    spec_version: Selected[SpecVersion]
    bin_dir: Selected[str]
    conf_dir: Selected[str]
    install_mode: Selected[InstallMode]


_PLACES: Final = ("spec.cni", "spec.netplugNetwork.cni")


def select(document: InstallationDocument) -> Selection:
    """The selection of a document without selection problems; of several spellings, the first one."""
    return Selection(
        cni=_first(_cni_types(document), "spec.cni.type", lambda text: _canonical(text, CNIType)),
        ipam=_first(_ipam_types(document), "spec.cni.ipam.type", lambda text: _canonical(text, IPAMType)),
        spec_version=_chosen(document, "specVersion", lambda cni: cni.spec_version),
        bin_dir=_chosen(document, "binDir", lambda cni: cni.bin_dir),
        conf_dir=_chosen(document, "confDir", lambda cni: cni.conf_dir),
        install_mode=_chosen(document, "installMode", lambda cni: cni.install_mode),
    )


def find_selection_problems(document: InstallationDocument) -> Iterator[InvalidInstallation]:
    """The spellings that name no plugin (V5), or contradict each other (V21)."""
    for spellings, choices in ((_cni_types(document), CNIType), (_ipam_types(document), IPAMType)):
        unknown = [(path, value) for path, value in spellings if _canonical(value, choices) is None]
        accepted = ", ".join(str(choice.value) for choice in choices)
        for path, value in unknown:
            yield InvalidInstallation(
                document.where, value, f"one of {accepted} is expected", ProblemClass.UNSUPPORTED, (path,)
            )
        if not unknown:
            yield from _conflicts(document, [(path, _canonical(value, choices)) for path, value in spellings])
    for name, read in _OTHERS:
        yield from _conflicts(document, _spellings(document, name, read))


_OTHERS: Final[tuple[tuple[str, Callable[[CNISettings], object]], ...]] = (
    ("specVersion", lambda cni: cni.spec_version),
    ("binDir", lambda cni: cni.bin_dir),
    ("confDir", lambda cni: cni.conf_dir),
    ("installMode", lambda cni: cni.install_mode),
)


def _conflicts(
    document: InstallationDocument, spellings: Sequence[tuple[str, object]]
) -> Iterator[InvalidInstallation]:
    if len({value for _, value in spellings}) > 1:
        paths = tuple(path for path, _ in spellings)
        values = ", ".join(str(value.value if isinstance(value, enum.Enum) else value) for _, value in spellings)
        accepted = "these fields are spellings of one setting; they have to be equal"
        yield InvalidInstallation(document.where, values, accepted, ProblemClass.CONFLICT, paths, "keep one of them")


def _cni_types(document: InstallationDocument) -> list[tuple[str, object]]:
    return [*_spellings(document, "type", lambda cni: cni.type), *_respelled(document, ("spec", "cni", "type"))]


def _ipam_types(document: InstallationDocument) -> list[tuple[str, object]]:
    return [
        *_spellings(document, "ipam.type", lambda cni: cni.ipam.type),
        *_spellings(document, "ipam.plugin", lambda cni: cni.ipam.plugin),
        *_respelled(document, ("spec", "cni", "ipam", "type")),
        *_respelled(document, ("spec", "cni", "ipam", "plugin")),
    ]


def _spellings(document: InstallationDocument, name: str, read: Callable[[CNISettings], T]) -> list[tuple[str, T]]:
    """The fields that set something; an empty text sets nothing."""
    spec = document.installation.spec
    return [
        (f"{place}.{name}", value)
        for place, cni in zip(_PLACES, (spec.cni, spec.network.cni), strict=True)
        if (value := read(cni))
    ]


def _respelled(document: InstallationDocument, names: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    return ((member.path, member.value) for member in document.respelled if member.names == names)


def _chosen(document: InstallationDocument, name: str, read: Callable[[CNISettings], T | None]) -> Selected[T]:
    return _first(_spellings(document, name, read), f"spec.cni.{name}", lambda value: value)


def _first(spellings: Sequence[tuple[str, V]], otherwise: str, convert: Callable[[V], T | None]) -> Selected[T]:
    for path, value in spellings:
        return Selected(path, convert(value))
    return Selected(otherwise, None)


def _canonical(value: object, choices: type[E]) -> E | None:
    if not isinstance(value, str):
        return None
    return next((choice for choice in choices if str(choice.value).lower() == value.lower()), None)
