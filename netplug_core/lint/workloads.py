"""The annotations of pods, of templates of pods and of namespaces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.lint.documents import Document, KubernetesObject
from netplug_core.lint.finding import Finding, Path, Repair, format_path
from netplug_core.lint.rules import Rule
from netplug_core.netconf.annotations import (
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

__all__ = ["AnnotatedObject", "check_namespace", "check_workload"]

_RULES: Final = {
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
            problems.append(one.finding(_rule_of(pod, name), name, error.value, error.accepted))
            pod = evolve(
                pod,
                annotations=tuple(pair for pair in pod.annotations if pair[0] != name),
                namespace_annotations=tuple(pair for pair in pod.namespace_annotations if pair[0] != name),
            )


def _rule_of(pod: AnnotatedPod, full_name: str) -> Rule:
    name = full_name.removeprefix(f"{pod.prefix}/")
    texts = dict(pod.annotations)
    if name == IP_ADDRS_NO_IPAM and texts.get(pod.full_name(IP_ADDRS)):
        return Rule.ANNOTATION_CONFLICT
    return _RULES.get(name, Rule.ANNOTATION_UNKNOWN)


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
