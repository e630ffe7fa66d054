"""Decodes pods, namespaces and nodes of the API as the core's values, by tables of members. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from attrs import frozen

from netplug_backends.kubernetes.client.messages import Json
from netplug_backends.kubernetes.client.objects import metadata_of
from netplug_core.addressing import Address, Prefix
from netplug_core.decoding.codecs import ADDRESS, INTEGER, TEXT, TEXT_MAP, TIME, Codec, Refused, enum_codec
from netplug_core.decoding.errors import document_error
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table
from netplug_core.orchestrator.model import ContainerPort, NamespaceFacts, NodeFacts, PodFacts, PodNetwork, PodPhase
from netplug_core.records import Malformed
from netplug_core.resources.metadata import Labels

__all__ = ["namespace_facts", "node_facts", "pod_facts", "sorted_labels"]

T = TypeVar("T")


@frozen
class _Container:
    ports: tuple[ContainerPort, ...] = ()


@frozen
class _PodIP:
    address: Address | None = None


def pod_facts(found: Json) -> PodFacts:
    """The facts in a Pod object.

    Raises:
        Malformed: a member has the wrong type or value.
    """
    return _decode("Pod", found, PodFacts)


def namespace_facts(found: Json) -> NamespaceFacts:
    """The facts in a Namespace object; errors as for ``pod_facts``."""
    return _decode("Namespace", found, NamespaceFacts)


def node_facts(found: Json) -> NodeFacts:
    """The facts in a Node object; errors as for ``pod_facts``."""
    return _decode("Node", found, NodeFacts)


def sorted_labels(metadata: Json, name: str) -> Labels:
    """A member that is an object of texts, such as ``labels``, sorted.

    Raises:
        Malformed: it is not an object of texts.
    """
    value = metadata.get(name)
    try:
        labels = TEXT_MAP.decode({} if value is None else value)
    except Refused as refused:
        refused.locate(f".metadata.{name}", value)
        raise _malformed(refused, str(metadata.get("name") or "")) from None
    return cast("Labels", labels)


def _decode(kind: str, found: Json, cls: type[T]) -> T:
    metadata = metadata_of(found)
    path = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
    return _DECODER.decode(found, cls, f"{kind}({path})")


def _malformed(refused: Refused, where: str) -> Malformed:
    return Malformed(where, str(document_error(refused, "")))


def _finish_pod(values: dict[str, object], _keys: Mapping[str, str]) -> dict[str, object]:
    # Those of the containers that run first come last: of two ports of one name, that of the running container counts.
    containers = [
        container
        for member in ("ports", "init_ports")
        for container in cast("tuple[_Container, ...]", values.pop(member, ()))
    ]
    pod_ips = cast("tuple[_PodIP, ...]", values.pop("addresses", ()))
    values["ports"] = tuple(port for container in containers for port in container.ports)
    values["addresses"] = tuple(each.address for each in pod_ips if each.address is not None)
    return values


def _pod_network(value: object) -> PodNetwork:
    return PodNetwork.HOST if value is True else PodNetwork.OWN


def _find_address(value: object) -> Address | None:
    return cast("Address", ADDRESS.decode(value)) if value else None


def _enclosing_prefix(value: object) -> Prefix:
    return Prefix.enclosing(str(TEXT.decode(value)))


_PHASE = enum_codec(PodPhase)
# These members are missing in an object that the API server has not completed.
_TEXT = Codec(lambda value: "" if value is None else TEXT.decode(value))
_NUMBER = Codec(lambda value: 0 if value is None else INTEGER.decode(value))
_PREFIX = Codec(_enclosing_prefix)

_METADATA = {
    "name": Field(("metadata", "name"), _TEXT),
    "uid": Field(("metadata", "uid"), _TEXT),
    "labels": Field(("metadata", "labels"), TEXT_MAP),
    "annotations": Field(("metadata", "annotations"), TEXT_MAP),
}

_DECODER = Decoder(
    (
        Table(
            cls=ContainerPort,
            fields={
                "name": Field("name", TEXT),
                "protocol": Field("protocol", TEXT, is_unset_if_empty=True),
                "port": Field("containerPort", _NUMBER),
                "host_port": Field("hostPort", INTEGER),
                "host_ip": Field("hostIP", TEXT),
            },
        ),
        Table(cls=_Container, fields={"ports": Field("ports", ListOf(ContainerPort))}),
        Table(cls=_PodIP, fields={"address": Field("ip", Codec(_find_address))}),
        Table(
            cls=PodFacts,
            fields={
                "namespace": Field(("metadata", "namespace"), _TEXT),
                **_METADATA,
                "node": Field(("spec", "nodeName"), TEXT),
                "service_account": Field(("spec", "serviceAccountName"), TEXT),
                "network": Field(("spec", "hostNetwork"), Codec(_pod_network)),
                "phase": Field(
                    ("status", "phase"), Codec(lambda value: _PHASE.decode(value or PodPhase.PENDING.value))
                ),
                "ports": Field(("spec", "containers"), ListOf(_Container)),
                "init_ports": Field(("spec", "initContainers"), ListOf(_Container)),
                "addresses": Field(
                    ("status", "podIPs"),
                    ListOf(_PodIP),
                    alternatives=(Field(("status", "podIP"), Codec(lambda value: (_PodIP(_find_address(value)),))),),
                    is_unset_if_empty=True,
                ),
                "generate_name": Field(("metadata", "generateName"), TEXT),
                "creation_time_ns": Field(("metadata", "creationTimestamp"), TIME),
                "deletion_time_ns": Field(("metadata", "deletionTimestamp"), TIME),
            },
            finish=_finish_pod,
        ),
        Table(cls=NamespaceFacts, fields=_METADATA),
        Table(
            cls=NodeFacts,
            fields={
                **_METADATA,
                "pod_cidrs": Field(
                    ("spec", "podCIDRs"),
                    ListOf(_PREFIX),
                    alternatives=(Field(("spec", "podCIDR"), Codec(lambda value: (_PREFIX.decode(value),))),),
                    is_unset_if_empty=True,
                ),
            },
        ),
    ),
    _malformed,
)
