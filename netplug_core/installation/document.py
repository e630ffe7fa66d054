"""An Installation as a JSON object: its members, what cannot be read, the CNI plugin it selects, and its overlay.

``read_installation`` reads what a user hands in: every member that can be read, and a problem for each that cannot. The
definition of the kind is made from the same table (``schema``). Settings that a document leaves out stay None. Whether
they fit together is decided in ``rules``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, Generic, TypeVar

from attrs import evolve, field, fields, frozen

from netplug_core.decoding.codecs import (
    TEXT,
    Refused,
    Unreadable,
    WrongType,
)
from netplug_core.decoding.members import RespelledMember, find_steps, take_respelled, without_member
from netplug_core.decoding.tables import (
    Decoder,
    DocumentOrigin,
    UnknownKeys,
    find_member,
    json_object,
    member,
)
from netplug_core.errors import ConfigurationError, did_you_mean, excerpt, quote
from netplug_core.resources.installation import (
    INSTALLATION_API_VERSION,
    INSTALLATION_KIND,
    INSTALLATION_NAME,
    OVERLAY_NAME,
    CNIFeatures,
    CNISettings,
    Installation,
    InstallationSpec,
    InstallMode,
    IPAMSettings,
    Logging,
    LogSettings,
    NetworkSettings,
    SpecVersion,
)

__all__ = [
    "CNIType", "IPAMType", "InstallationDocument", "InvalidInstallation", "ProblemClass", "Selected", "Selection",
    "document_problem", "find_selection_problems", "is_installation", "overlaid", "read_installation", "select",
    "write_spec",
]  # fmt: skip


# --- problems ---------------------------------------------------------------------------------------------------------


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
        accepted = _no_such_field(name, path or "the document", refused)
        return InvalidInstallation(where, name, accepted, ProblemClass.UNSUPPORTED, (field,))
    fields = (path or "the document",)
    return InvalidInstallation(where, refused.value, accepted, _class_of(refused), fields, refused.reason)


def _no_such_field(name: str, place: str, refused: Refused) -> str:
    known = refused.accepted
    if name in _OTHER_NAMES:
        return f"it is called {_OTHER_NAMES[name]} here"
    if name in _UPSTREAM_FIELDS:
        return "netplug does not have this field of the operator.tigera.io resource; leave it out"
    if refused.reason:
        return f"it belongs in {refused.reason}; {place} has {known}"
    meant = did_you_mean(name, known.split(", "))
    return f"there is no such field; {meant}{' ' if meant else ''}{place} has {known}"


def _class_of(refused: Refused) -> ProblemClass:
    if refused.value is None:
        return ProblemClass.REQUIRED
    if isinstance(refused, Unreadable) and isinstance(refused.value, str):
        return ProblemClass.UNSUPPORTED  # of an enumeration
    if isinstance(refused, WrongType | Unreadable):
        return ProblemClass.FORMAT
    return ProblemClass.OUT_OF_RANGE


# --- the document -----------------------------------------------------------------------------------------------------


_MAX_PROBLEMS: Final = 100
"""Members that cannot be read, of one document, that are named."""

_RESPELLED: Final = (("spec", "cni", "type"), ("spec", "cni", "ipam", "type"), ("spec", "cni", "ipam", "plugin"))


@frozen(kw_only=True)
class InstallationDocument:
    """What a document says. ``respelled`` has the fields that are read although their letter case is wrong.

    An API server drops those. ``where`` names the document and the object in errors. ``unreadable`` has a problem for
    each member that could not be read; the Installation is without them, so it is not for use if there are any.
    """

    installation: Installation
    respelled: tuple[RespelledMember, ...] = ()
    unreadable: tuple[InvalidInstallation, ...] = ()
    where: str = f"{INSTALLATION_KIND}({INSTALLATION_NAME})"


def is_installation(mapping: Mapping[str, object]) -> bool:
    """Whether a document may be read as an Installation: it has no other kind."""
    kind = find_member(mapping, "kind")
    return not isinstance(kind, str) or kind == INSTALLATION_KIND


def read_installation(mapping: Mapping[str, object], *, source: str = "") -> InstallationDocument:
    """The Installation that a JSON object stands for.

    ``Spec``, ``CNI``, ``IPAM`` and ``Plugin`` may be in any letter case. ``source`` names the document in errors.

    Members that are unknown or cannot be read are problems of the result, all at once.

    Raises:
        InvalidInstallation: it is no Installation, or has another name than an Installation may have.
    """
    members, respelled = take_respelled(mapping, *_RESPELLED)
    decoder = _decoder()
    header = decoder.decode(members, _Header, source or INSTALLATION_KIND)
    where = f"{source} {INSTALLATION_KIND}({header.name})".strip()
    for path, found, accepted in (
        ("kind", header.kind, (INSTALLATION_KIND,)),
        ("apiVersion", header.api_version, (INSTALLATION_API_VERSION,)),
        ("metadata.name", header.name, (INSTALLATION_NAME, OVERLAY_NAME)),
    ):
        if found not in accepted:
            problem_class = ProblemClass.UNSUPPORTED if found else ProblemClass.REQUIRED
            expected = f"expected {' or '.join(accepted)}"
            raise InvalidInstallation(source or INSTALLATION_KIND, found or None, expected, problem_class, (path,))
    installation, unreadable = _decode_readable(decoder, members, where)
    return InstallationDocument(installation=installation, respelled=respelled, unreadable=unreadable, where=where)


def write_spec(spec: InstallationSpec) -> dict[str, object]:
    """The JSON object of a ``spec``; settings that are not set are left out."""
    return _decoder().encode(spec)


def _decode_readable(
    decoder: Decoder, members: Mapping[str, object], where: str
) -> tuple[Installation, tuple[InvalidInstallation, ...]]:
    """The Installation without what cannot be read, and the problems of that."""
    problems: list[InvalidInstallation] = []
    removed: list[tuple[str | int, ...]] = []
    while True:
        try:
            return decoder.decode(members, Installation, where), tuple(problems)
        except InvalidInstallation as problem:
            steps = find_steps(members, problem.paths[0])
            if not steps:
                raise
            path = _path_before(problem.paths[0], steps, removed)
            if all(path not in one.paths for one in problems):  # what is required is missing once it is left out
                problems.append(evolve(problem, paths=(path,)))
            # Each look reads everything again: a document of nothing but mistakes is not read to its end.
            steps = steps if len(problems) < _MAX_PROBLEMS else ("spec",)
            members = without_member(members, steps)
            removed.append(steps)


def _path_before(path: str, steps: Sequence[str | int], removed: Sequence[tuple[str | int, ...]]) -> str:
    """The path of a problem in the document as it was, before entries of its lists were removed."""
    at = list(steps)
    for gone in reversed(removed):
        depth = len(gone) - 1
        position = at[depth] if len(at) > depth else None
        if isinstance(gone[-1], int) and isinstance(position, int) and at[:depth] == list(gone[:-1]):
            at[depth] = position + (position >= gone[-1])
    positions = iter([step for step in at if isinstance(step, int)])
    return re.sub(r"\[[0-9]+\]", lambda _: f"[{next(positions)}]", path)


@json_object(is_partial=True)
@frozen(kw_only=True)
class _Header:
    """What is read of a document before it is an Installation."""

    kind: str = field(default="", metadata=member("kind", TEXT))
    api_version: str = field(default="", metadata=member("apiVersion", TEXT))
    name: str = field(default="", metadata=member(("metadata", "name"), TEXT))


@cache
def _decoder() -> Decoder:
    return Decoder(document_problem, DocumentOrigin.USER)


# --- the CNI plugin and its IPAM --------------------------------------------------------------------------------------


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


# --- the overlay ------------------------------------------------------------------------------------------------------


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
