"""Decodes pods, namespaces and nodes of the API as the core's values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from netplug_backends.kubernetes.client.messages import Json
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import parse_time
from netplug_core.orchestrator.model import (
    ContainerPort,
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodNetwork,
    PodPhase,
)
from netplug_core.records import Malformed
from netplug_core.resources.metadata import Labels

__all__ = ["namespace_facts", "node_facts", "pod_facts", "sorted_labels"]

T = TypeVar("T")


def pod_facts(found: Json) -> PodFacts:
    """The facts in a Pod object.

    Raises:
        Malformed: a member has the wrong type or value.
    """
    return _decode("Pod", found, _pod)


def namespace_facts(found: Json) -> NamespaceFacts:
    """The facts in a Namespace object; errors as for ``pod_facts``."""
    return _decode("Namespace", found, _namespace)


def node_facts(found: Json) -> NodeFacts:
    """The facts in a Node object; errors as for ``pod_facts``."""
    return _decode("Node", found, _node)


def sorted_labels(found: Json, name: str) -> Labels:
    """The members of an object of texts, sorted."""
    return tuple(sorted((str(key), str(value)) for key, value in _object(found, name).items()))


def _decode(kind: str, found: Json, decode: Callable[[Json], T]) -> T:
    try:
        return decode(found)
    except ValueError as error:
        metadata = _object(found, "metadata")
        path = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
        raise Malformed(f"{kind}({path})", str(error)) from error


def _pod(found: Json) -> PodFacts:
    metadata, spec, status = _object(found, "metadata"), _object(found, "spec"), _object(found, "status")
    return PodFacts(
        namespace=_text(metadata, "namespace"),
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        node=_text(spec, "nodeName"),
        labels=sorted_labels(metadata, "labels"),
        annotations=sorted_labels(metadata, "annotations"),
        service_account=_text(spec, "serviceAccountName"),
        network=PodNetwork.HOST if spec.get("hostNetwork") is True else PodNetwork.OWN,
        phase=PodPhase(_text(status, "phase") or PodPhase.PENDING.value),
        ports=tuple(_ports(spec)),
        addresses=tuple(_addresses(status)),
        generate_name=_text(metadata, "generateName"),
        creation_time_ns=_time(metadata, "creationTimestamp"),
        deletion_time_ns=_time(metadata, "deletionTimestamp"),
    )


def _ports(spec: Json) -> Iterator[ContainerPort]:
    for container in _objects(spec, "containers"):
        for port in _objects(container, "ports"):
            yield ContainerPort(
                name=_text(port, "name"),
                protocol=_text(port, "protocol") or "TCP",
                port=_number(port, "containerPort"),
                host_port=_number(port, "hostPort"),
                host_ip=_text(port, "hostIP"),
            )


def _addresses(status: Json) -> Iterator[Address]:
    found = [_text(item, "ip") for item in _objects(status, "podIPs")] or [_text(status, "podIP")]
    for text in found:
        if text:
            yield Address.parse(text)


def _namespace(found: Json) -> NamespaceFacts:
    metadata = _object(found, "metadata")
    return NamespaceFacts(
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        labels=sorted_labels(metadata, "labels"),
        annotations=sorted_labels(metadata, "annotations"),
    )


def _node(found: Json) -> NodeFacts:
    metadata, spec = _object(found, "metadata"), _object(found, "spec")
    prefixes = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    if not isinstance(prefixes, list):
        raise ValueError("spec.podCIDRs: a list is expected")
    return NodeFacts(
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        labels=sorted_labels(metadata, "labels"),
        annotations=sorted_labels(metadata, "annotations"),
        pod_cidrs=tuple(Prefix.enclosing(str(text)) for text in prefixes),
    )


# --- members -------------------------------------------------------------------------------------------------------


def _object(found: Json, name: str) -> Json:
    value = found.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: an object is expected")
    return cast("Json", value)


def _objects(found: Json, name: str) -> Iterator[Json]:
    value = found.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name}: a list is expected")
    for item in value or ():
        if not isinstance(item, Mapping):
            raise ValueError(f"{name}: a list of objects is expected")
        yield item


def _text(found: Json, name: str) -> str:
    value = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name}: a text is expected")
    return value


def _number(found: Json, name: str) -> int:
    value = found.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: a number is expected")
    return value


def _time(found: Json, name: str) -> int | None:
    text = _text(found, name)
    return parse_time(text) if text else None
