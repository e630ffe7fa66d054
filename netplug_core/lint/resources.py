"""Documents judged one by one: resources, Installations, and the annotations of pods, templates and namespaces.

The rules are those of the other rooms; here they become findings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import UnknownField, find_member
from netplug_core.errors import ConfigurationError
from netplug_core.installation.components import ComponentKind, read_component
from netplug_core.installation.document import (
    InstallationDocument,
    InvalidInstallation,
    ProblemClass,
    find_selection_problems,
    overlaid,
    read_installation,
)
from netplug_core.installation.rules import CheckedInstallation, check
from netplug_core.lint.documents import Document, KubernetesObject, Sourced, malformed_finding, subject_of
from netplug_core.lint.rules import Finding, Path, Repair, Rule, format_path
from netplug_core.netconf.precedence import (
    ALLOWED_SOURCE_PREFIXES,
    ANNOTATIONS,
    FLOATING_IPS,
    HW_ADDR,
    IP_ADDRS,
    IP_ADDRS_NO_IPAM,
    IP_FAMILIES,
    IPV4_POOLS,
    IPV6_POOLS,
    AnnotatedPod,
    AnnotationRefused,
    PodAnnotations,
    parse_annotations,
)
from netplug_core.orchestrator.model import PodName
from netplug_core.resources.codec import manifest_from_mapping
from netplug_core.resources.fields import Metadata
from netplug_core.resources.installation import INSTALLATION_NAME
from netplug_core.resources.ippool import IPPOOL, IPAMConfiguration, IPPool
from netplug_core.resources.kinds import Resource, UnknownKind, key_of
from netplug_core.resources.node import Node
from netplug_core.resources.validation import (
    FieldError,
    InvalidResource,
    find_unusual_settings,
    validate_resource,
)

__all__ = [
    "AnnotatedObject", "check_components", "check_installations", "check_namespace", "check_resource",
    "check_workload", "field_problems", "node_of", "read_resource",
]  # fmt: skip


# --- resources --------------------------------------------------------------------------------------------------------


_METADATA: Final = "metadata."
_DEFAULT_NAMESPACE: Final = "default"
_LABELS: Final = "metadata.labels"
_OF_POOLS: Final = {
    "spec.blockSize": Rule.POOL_BLOCK_SIZE,
    "spec.cidr": Rule.POOL_CIDR,
    "spec.ipipMode": Rule.POOL_ENCAPSULATION,
    "spec.vxlanMode": Rule.POOL_ENCAPSULATION,
    "spec.allowedUses": Rule.POOL_USES,
    "spec.disableBGPExport": Rule.POOL_USES,
    "spec.nodeSelector": Rule.POOL_SELECTOR,
    "spec.namespaceSelector": Rule.POOL_SELECTOR,
}


def read_resource(document: Document) -> Resource | Finding:
    """The resource that a document is, or why it cannot be read."""
    try:
        return manifest_from_mapping(document.mapping, source=document.source).within(_DEFAULT_NAMESPACE).resource
    except UnknownKind as error:
        return malformed_finding(document, error, Rule.UNKNOWN_KIND)
    except UnknownField as error:
        found = malformed_finding(document, error, Rule.UNKNOWN_FIELD)
        return evolve(found, accepted=error.advice)
    except ConfigurationError as error:
        return _host_bits_finding(document, error) or malformed_finding(document, error)


def _host_bits_finding(document: Document, error: ConfigurationError) -> Finding | None:
    """What was found if the CIDR of a pool has bits behind its prefix, and is right without them."""
    if document.mapping.get("kind") != IPPOOL.name or not error.where.endswith("$.spec.cidr"):
        return None
    try:
        meant = Prefix.enclosing(str(error.value))
    except ValueError:
        return None
    found = malformed_finding(document, error, Rule.POOL_HOST_BITS)
    return evolve(found, repair=Repair(("spec", "cidr"), str(meant)))


def check_resource(resource: Resource, source: str) -> Iterator[Finding]:
    """What a resource by itself breaks; ``source`` names its document, or the datastore."""
    try:
        validate_resource(resource)
    except InvalidResource as error:
        for one in error.field_errors:
            yield _finding(_rule_of(resource, one), resource, one, source)
    if isinstance(resource, IPPool):
        for one in find_unusual_settings(resource):
            yield _finding(Rule.POOL_LARGE_BLOCKS, resource, one, source)


def field_problems(rule: Rule, resource: Resource, errors: Iterable[FieldError], source: str) -> Iterator[Finding]:
    """The errors about fields of a resource, as findings of one rule."""
    return (_finding(rule, resource, one, source) for one in errors)


def node_of(found: KubernetesObject) -> Node:
    """The Node that stands for a node of Kubernetes: pools select it by its labels."""
    return Node(metadata=Metadata(name=found.name, labels=found.labels))


def _rule_of(resource: Resource, error: FieldError) -> Rule:
    if isinstance(resource, Node) and error.field.startswith(_LABELS):
        return Rule.NODE_LABEL
    if error.field.startswith(_METADATA):
        return Rule.METADATA
    if isinstance(resource, IPPool):
        return _OF_POOLS[error.field]
    return Rule.IPAM_CONFIGURATION if isinstance(resource, IPAMConfiguration) else Rule.RESOURCE_VALUE


def _finding(rule: Rule, resource: Resource, error: FieldError, source: str) -> Finding:
    value = error.value if isinstance(error.value, str | int) else str(error.value)
    return Finding(
        rule=rule,
        source=source,
        subject=str(key_of(resource)),
        field=error.field,
        value=value,
        accepted=error.reason,
    )


# --- Installations ----------------------------------------------------------------------------------------------------


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
            found.append(_installation_finding(document, error))
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
        found.extend(_installation_finding(document, problem) for problem in checked[-1].value.problems)
        found.extend(_warning_finding(document, checked[-1].value, text) for text in checked[-1].value.warnings)
    return tuple(checked), tuple(found)


def check_components(documents: Iterable[Document]) -> Iterator[Finding]:
    """What the components beside an Installation break."""
    for document in documents:
        kind = ComponentKind(find_member(document.mapping, "kind"))
        try:
            read_component(kind, document.mapping, source=document.source)
        except InvalidInstallation as error:
            yield _installation_finding(document, error)


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


def _installation_finding(document: Document, error: InvalidInstallation) -> Finding:
    hint = f" ({error.hint})" if error.hint else ""
    return Finding(
        rule=_RULES[error.problem_class],
        source=document.source,
        subject=subject_of(document),
        field=" and ".join(error.paths),
        value=error.value,
        accepted=f"{error.accepted}{hint}",
    )


# --- pods and namespaces ----------------------------------------------------------------------------------------------


_ANNOTATION_RULES: Final = {
    IPV4_POOLS: Rule.ANNOTATION_POOLS,
    IPV6_POOLS: Rule.ANNOTATION_POOLS,
    IP_FAMILIES: Rule.ANNOTATION_FAMILIES,
    IP_ADDRS: Rule.ANNOTATION_ADDRESSES,
    IP_ADDRS_NO_IPAM: Rule.ANNOTATION_ADDRESSES,
    FLOATING_IPS: Rule.ANNOTATION_FLOATING,
    HW_ADDR: Rule.ANNOTATION_MAC,
    ALLOWED_SOURCE_PREFIXES: Rule.ANNOTATION_SOURCES,
}


@frozen(kw_only=True)
class AnnotatedObject:
    """What pods of one object ask for. ``path`` leads to their annotations; ``asked`` has those that are accepted."""

    document: Document
    found: KubernetesObject
    pod: AnnotatedPod
    path: Path
    asked: PodAnnotations = field(factory=PodAnnotations)

    def finding(self, rule: Rule, name: str, value: object, accepted: str) -> Finding:
        """What is wrong with an annotation, which is given by its full name."""
        return Finding(
            rule=rule,
            source=self.document.source,
            subject=self.found.subject,
            field=f"{format_path(self.path)}[{name}]",
            value=value,
            accepted=accepted,
        )


def check_workload(
    document: Document, found: KubernetesObject, prefix: str
) -> tuple[AnnotatedObject, tuple[Finding, ...]]:
    """What the pods of an object ask for, and what is wrong with its annotations."""
    name = PodName(found.namespace, found.name or found.generate_name)
    pod = AnnotatedPod(name=name, annotations=_texts(found.of_pods), prefix=prefix)
    one = AnnotatedObject(document=document, found=found, pod=pod, path=found.template_path)
    problems = [*_type_problems(one, found.of_pods), *_prefix_problems(one, found.of_pods)]
    if found.of_pods is not found.own:
        problems.extend(_place_problems(one))
    asked = _read(one, problems)
    return evolve(one, asked=asked), tuple(problems)


def check_namespace(document: Document, found: KubernetesObject, prefix: str) -> tuple[Finding, ...]:
    """What is wrong with the annotations of a namespace."""
    own = _texts(found.own)
    pod = AnnotatedPod(name=PodName(found.name, ""), annotations=(), namespace_annotations=own, prefix=prefix)
    one = AnnotatedObject(document=document, found=found, pod=pod, path=found.template_path)
    problems = [*_type_problems(one, found.own), *_prefix_problems(one, found.own)]
    unused = _read(one, problems).unused
    return (
        *problems,
        *(one.finding(Rule.ANNOTATION_UNUSED, name, found.own[name], "only a pod can have it") for name in unused),
    )


def _read(one: AnnotatedObject, problems: list[Finding]) -> PodAnnotations:
    """What the annotations ask for that are accepted; what is wrong with the others is added."""
    pod = one.pod
    while True:
        try:
            return parse_annotations(pod)
        except AnnotationRefused as error:
            name = error.annotation
            problems.append(one.finding(_annotation_rule(pod, name), name, error.value, error.accepted))
            pod = evolve(
                pod,
                annotations=tuple(pair for pair in pod.annotations if pair[0] != name),
                namespace_annotations=tuple(pair for pair in pod.namespace_annotations if pair[0] != name),
            )


def _annotation_rule(pod: AnnotatedPod, full_name: str) -> Rule:
    name = full_name.removeprefix(f"{pod.prefix}/")
    texts = dict(pod.annotations)
    if name == IP_ADDRS_NO_IPAM and texts.get(pod.full_name(IP_ADDRS)):
        return Rule.ANNOTATION_CONFLICT
    return _ANNOTATION_RULES.get(name, Rule.ANNOTATION_UNKNOWN)


def _texts(annotations: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, text) for name, text in annotations.items() if isinstance(text, str)))


def _type_problems(one: AnnotatedObject, annotations: Mapping[str, object]) -> Iterator[Finding]:
    """Annotations of netplug that are no texts, such as a list of YAML in place of its JSON.

    What was written cannot be found out from a number or a truth value: YAML takes the MAC address
    ``12:34:56:12:34:56`` for a number to the base of 60. So neither is repaired.
    """
    for name, value in annotations.items():
        if name.startswith(f"{one.pod.prefix}/") and not isinstance(value, str):
            if not isinstance(value, list | dict):
                yield one.finding(Rule.ANNOTATION_TYPE, name, value, "a text is expected; quote what is written there")
            elif not _has_only_texts(value):
                accepted = "a text is expected: the JSON of a list of texts, in quotes"
                yield one.finding(Rule.ANNOTATION_TYPE, name, value, accepted)
            else:
                text = json.dumps(value)
                found = one.finding(Rule.ANNOTATION_TYPE, name, value, f"a text is expected, such as {text!r}")
                yield evolve(found, repair=Repair((*one.path, name), text))


def _has_only_texts(value: object) -> bool:
    """Whether the JSON of a value has what was written: also in a list ``010`` is the number 8."""
    if isinstance(value, list):
        return all(map(_has_only_texts, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _has_only_texts(member) for name, member in value.items())
    return isinstance(value, str)


def _prefix_problems(one: AnnotatedObject, annotations: Mapping[str, object]) -> Iterator[Finding]:
    """Annotations that are called as netplug's are, with another prefix."""
    for name, value in annotations.items():
        prefix, _slash, last = name.rpartition("/")
        if last in ANNOTATIONS and prefix != one.pod.prefix:
            yield one.finding(Rule.ANNOTATION_PREFIX, name, value, f"{one.pod.full_name(last)} is netplug's")


def _place_problems(one: AnnotatedObject) -> Iterator[Finding]:
    """Annotations of netplug that an object has itself, and not its pods."""
    for name, value in one.found.own.items():
        if name.startswith(f"{one.pod.prefix}/"):
            found = one.finding(Rule.ANNOTATION_PLACE, name, value, f"pods have those of {format_path(one.path)}")
            yield evolve(found, field=f"metadata.annotations[{name}]")
