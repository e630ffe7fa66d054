"""What a document of a file is, and what is read of objects that Kubernetes defines.

``netplugctl`` reads the files. Objects of other programs are of no sort, and are not judged.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from attrs import evolve, field, frozen

from netplug_core.decoding.codecs import INTEGER, OBJECT, TEXT, TEXT_MAP, Codec
from netplug_core.decoding.members import find_at
from netplug_core.decoding.tables import Decoder, Field, MalformedField, Table, document_error, find_member
from netplug_core.errors import ConfigurationError
from netplug_core.installation.components import find_component_kind
from netplug_core.lint.rules import Finding, Path, Rule
from netplug_core.names import RESOURCE_DOMAIN
from netplug_core.resources.fields import Labels
from netplug_core.resources.installation import INSTALLATION_KIND
from netplug_core.resources.kinds import find_kind

__all__ = [
    "Document", "DocumentSort", "KubernetesObject", "Sourced", "find_sort", "malformed_finding",
    "read_kubernetes_object", "subject_of",
]  # fmt: skip

T = TypeVar("T")


@frozen(kw_only=True)
class Document:
    """One object of a file. ``source`` names it in messages; ``file`` is the path, empty for standard input."""

    source: str
    mapping: Mapping[str, object] = field(repr=False)
    file: str = ""


@frozen
class Sourced(Generic[T]):
    """A value, and the document that it is from, or the datastore."""

    value: T
    source: str


class DocumentSort(enum.Enum):
    """What a document is."""

    CONFIGURATION = "a network configuration, or a list of them"
    RESOURCE = "a resource of netplug"
    INSTALLATION = "an Installation"
    COMPONENT = "a component beside an Installation"
    WORKLOAD = "a pod, or what makes pods of a template"
    NAMESPACE = "a namespace"
    NODE = "a node of Kubernetes"
    POLICY = "a network policy of Kubernetes"


_TEMPLATES: Final = ("spec", "template", "metadata", "annotations")
_JOB_TEMPLATES: Final = ("spec", "jobTemplate", *_TEMPLATES)
_WITH_TEMPLATE: Final = {
    "CronJob": _JOB_TEMPLATES,
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), _TEMPLATES
    ),
}
_CORE_KINDS: Final = {"Namespace": DocumentSort.NAMESPACE, "Node": DocumentSort.NODE, "Pod": DocumentSort.WORKLOAD}
_NETWORK_POLICY: Final = ("NetworkPolicy", "networking.k8s.io/v1")
_OWN_ANNOTATIONS: Final = ("metadata", "annotations")


def find_sort(document: Document) -> DocumentSort | None:
    """What a document is; None if it is none of these."""
    kind, api_version = find_member(document.mapping, "kind"), find_member(document.mapping, "apiVersion")
    if kind is None and api_version is None:
        is_list = "plugins" in document.mapping
        is_one = "type" in document.mapping and ("ipam" in document.mapping or "cniVersion" in document.mapping)
        return DocumentSort.CONFIGURATION if is_list or is_one else None
    is_netplugs = isinstance(api_version, str) and RESOURCE_DOMAIN in api_version
    if kind == INSTALLATION_KIND and (is_netplugs or api_version is None):
        return DocumentSort.INSTALLATION
    if is_netplugs and find_component_kind(document.mapping) is not None:
        return DocumentSort.COMPONENT
    if is_netplugs or (api_version is None and isinstance(kind, str) and find_kind(kind) is not None):
        return DocumentSort.RESOURCE
    return _find_core_sort(document.mapping, kind, api_version) if isinstance(kind, str) else None


def _find_core_sort(mapping: Mapping[str, object], kind: str, api_version: object) -> DocumentSort | None:
    """The sort of an object that Kubernetes itself defines, or that has a template of pods; None: it is not judged."""
    if _find_template(mapping):
        return DocumentSort.WORKLOAD
    return DocumentSort.POLICY if (kind, api_version) == _NETWORK_POLICY else _CORE_KINDS.get(kind)


def _find_template(mapping: Mapping[str, object]) -> Path:
    """Where the annotations of the pods that an object makes are; empty if it makes none.

    Kinds of other programs (rollouts, serverless services) make pods of a template too, at the same place.
    """
    known = _WITH_TEMPLATE.get(str(find_member(mapping, "kind")))
    return known or (_TEMPLATES if isinstance(find_at(mapping, _TEMPLATES[:-1]), Mapping) else ())


@frozen(kw_only=True)
class KubernetesObject:
    """What is read of an object of Kubernetes. ``own`` are its annotations, ``of_pods`` those of the pods it makes.

    ``of_pods`` of a pod are its own. Values that are no texts are kept, so that they can be judged.
    """

    kind: str
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: Labels = ()
    own: Mapping[str, object] = field(factory=dict)
    of_template: Mapping[str, object] = field(factory=dict)
    template: Path = ()
    replicas: int = 1

    @property
    def subject(self) -> str:
        """The object as messages name it."""
        name = self.name or f"{self.generate_name}*"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"

    @property
    def template_path(self) -> Path:
        """Where the annotations of its pods are."""
        return self.template or _OWN_ANNOTATIONS

    @property
    def of_pods(self) -> Mapping[str, object]:
        """The annotations of its pods."""
        return self.of_template if self.template else self.own


def _read_annotations(value: object) -> Mapping[str, object]:
    """The annotations with texts as names: YAML reads ``8080`` as a number and ``on`` as a truth value."""
    return {str(name): text for name, text in OBJECT.decode(value).items()}


_ANNOTATIONS: Final = Codec(_read_annotations)
_TABLE: Final = Table(
    cls=KubernetesObject,
    fields={
        "kind": Field("kind", TEXT),
        "name": Field(("metadata", "name"), TEXT),
        "generate_name": Field(("metadata", "generateName"), TEXT),
        "namespace": Field(("metadata", "namespace"), TEXT),
        "labels": Field(("metadata", "labels"), TEXT_MAP),
        "own": Field(_OWN_ANNOTATIONS, _ANNOTATIONS),
        "of_template": Field(_TEMPLATES, _ANNOTATIONS, alternatives=(Field(_JOB_TEMPLATES, _ANNOTATIONS),)),
        "replicas": Field(("spec", "replicas"), INTEGER),
    },
)


def read_kubernetes_object(document: Document) -> KubernetesObject | Finding:
    """The object of Kubernetes that a document is, or why it cannot be read."""
    try:
        found = Decoder(document_error, tables=(_TABLE,)).decode(document.mapping, KubernetesObject, document.source)
    except ConfigurationError as error:
        return malformed_finding(document, error)
    return evolve(found, template=_find_template(document.mapping))


def malformed_finding(document: Document, error: ConfigurationError, rule: Rule = Rule.MALFORMED_FIELD) -> Finding:
    """What was found by the error about a field of a document."""
    accepted = error.accepted
    if isinstance(error, MalformedField):
        accepted = f"{error.accepted} is expected" + (f": {error.reason}" if error.reason else "")
    return Finding(
        rule=rule,
        source=document.source,
        subject=subject_of(document),
        field=error.where.removeprefix(document.source).lstrip(" ").removeprefix("$").removeprefix(".") or "-",
        value=error.value,
        accepted=accepted,
    )


def subject_of(document: Document) -> str:
    """A document as messages name it, before it has been read."""
    kind, name = find_member(document.mapping, "kind"), find_member(document.mapping, "metadata", "name")
    return f"{kind or 'object'}({name or ''})"
