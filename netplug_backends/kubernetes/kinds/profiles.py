"""The stores that only read: Profiles as views of namespaces and service accounts, and the cluster's own objects.

Profiles are read from two collections, so a revision of the kind is two numbers: ``<namespaces'>/<service
accounts'>``. If one is missing, as in the revision of a single profile, a watch lists that collection first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from attrs import define, evolve, frozen

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json
from netplug_backends.kubernetes.client.objects import (
    collections_revision,
    event_object,
    find_object,
    is_valid_path,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.customobjects import (
    NOTHING_FOUND,
    QueryResult,
    event_of_record,
    list_records,
    list_result,
    not_supported,
    record_result,
    require_key,
)
from netplug_backends.kubernetes.names import (
    NAMESPACES_PATH,
    SERVICE_ACCOUNTS_PATH,
    namespace_path,
    namespaced_path,
    path_segment,
)
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.decoding.codecs import ADDRESS, INTEGER, TEXT, TEXT_MAP, TIME, Codec, Refused, enum_codec
from netplug_core.decoding.tables import Decoder, DocumentOrigin, Field, ListOf, Table, document_error, items_of
from netplug_core.errors import ConfigurationError, narrow
from netplug_core.names import API_VERSION
from netplug_core.orchestrator.model import (
    KUBERNETES_NODE,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    ContainerPort,
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodNetwork,
    PodPhase,
    ServiceAccountFacts,
)
from netplug_core.orchestrator.networkpolicy import (
    KUBERNETES_NETWORK_POLICY,
    KubernetesNetworkPolicy,
    read_network_policy,
)
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Kind,
    List,
    Malformed,
    NotSupported,
    ReadResult,
    Record,
    Revision,
    Update,
    WatchEvent,
    Write,
)
from netplug_core.resources.codec import from_mapping
from netplug_core.resources.fields import Labels
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
    account_spec,
    namespace_spec,
)

__all__ = [
    "FACT_KINDS", "FactStore", "ProfileStore", "namespace_facts", "node_facts", "pod_facts", "profile_record",
    "service_account_facts", "sorted_labels",
]  # fmt: skip


# --- facts -----------------------------------------------------------------------------------------------------------


# --- pod and node facts ----------------------------------------------------------------------------------------------


T = TypeVar("T")


@frozen
class _Container:
    ports: tuple[ContainerPort, ...] = ()


@frozen
class _PodIP:
    address: Address | None = None


@frozen
class _NodeAddress:
    type: str = ""
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


def service_account_facts(found: Json) -> ServiceAccountFacts:
    """The facts in a ServiceAccount object; errors as for ``pod_facts``."""
    return _decode("ServiceAccount", found, ServiceAccountFacts)


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
    return labels


def _decode(kind: str, found: Json, cls: type[T]) -> T:
    metadata = metadata_of(found)
    path = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
    return _DECODER.decode(found, cls, f"{kind}({path})")


def _malformed(refused: Refused, where: str) -> Malformed:
    return Malformed(where, str(document_error(refused, "")))


def _finish_pod(values: dict[str, object], _keys: Mapping[str, str]) -> dict[str, object]:
    # Those of the containers that run first come last: of two ports of one name, that of the running container counts.
    containers = (*items_of(values, "ports", _Container), *items_of(values, "init_ports", _Container))
    values.pop("init_ports", None)
    values["ports"] = tuple(port for container in containers for port in container.ports)
    pod_ips = items_of(values, "addresses", _PodIP)
    values["addresses"] = tuple(each.address for each in pod_ips if each.address is not None)
    return values


def _pod_network(value: object) -> PodNetwork:
    return PodNetwork.HOST if value is True else PodNetwork.OWN


def _finish_node(values: dict[str, object], _keys: Mapping[str, str]) -> dict[str, object]:
    listed = items_of(values, "internal_addresses", _NodeAddress)
    internal = (each.address for each in listed if each.type == "InternalIP")
    values["internal_addresses"] = tuple(each for each in internal if each is not None)
    return values


def _find_address(value: object) -> Address | None:
    return ADDRESS.decode(value) if value else None


def _find_address_or_name(value: object) -> Address | None:
    """The address in a text that may be a name too."""
    try:
        return _find_address(value)
    except ValueError:
        return None


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
    _malformed,
    tables=(
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
            cls=_NodeAddress,
            fields={"type": Field("type", TEXT), "address": Field("address", Codec(_find_address_or_name))},
        ),
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
            cls=ServiceAccountFacts,
            fields={
                "namespace": Field(("metadata", "namespace"), _TEXT),
                **{name: one for name, one in _METADATA.items() if name != "annotations"},
            },
        ),
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
                "internal_addresses": Field(("status", "addresses"), ListOf(_NodeAddress), is_unset_if_empty=True),
            },
            finish=_finish_node,
        ),
    ),
)


# --- facts -----------------------------------------------------------------------------------------------------------


_FACTS_REASON = "pods, namespaces and their like are the cluster's own"


@frozen
class _FactKind:
    """Where the objects of a kind are, and how one is decoded. Kinds in namespaces have paths of two segments."""

    root: str
    plural: str
    decode: Callable[[Json], object]

    def path(self, path: tuple[str, ...], *, length: int) -> str:
        """The path of the object for a whole path, or of the collection that has the objects below a shorter one."""
        namespace = f"/namespaces/{path_segment(path[0])}" if length > 1 and path else ""
        name = f"/{path_segment(path[-1])}" if len(path) == length else ""
        return f"{self.root}{namespace}/{self.plural}{name}"


def _network_policy(found: Json) -> KubernetesNetworkPolicy:
    metadata = metadata_of(found)
    source = f"{KUBERNETES_NETWORK_POLICY}({metadata.get('namespace')}/{metadata.get('name')})"
    try:
        return read_network_policy(found, source=source)
    except ConfigurationError as error:
        subject = KUBERNETES_NETWORK_POLICY.key(str(metadata.get("namespace")), str(metadata.get("name")))
        raise Malformed(source, str(error), subject=subject) from error


FACT_KINDS: Final[Mapping[str, _FactKind]] = {
    POD.name: _FactKind("/api/v1", "pods", pod_facts),
    NAMESPACE.name: _FactKind("/api/v1", "namespaces", namespace_facts),
    SERVICE_ACCOUNT.name: _FactKind("/api/v1", "serviceaccounts", service_account_facts),
    KUBERNETES_NODE.name: _FactKind("/api/v1", "nodes", node_facts),
    KUBERNETES_NETWORK_POLICY.name: _FactKind("/apis/networking.k8s.io/v1", "networkpolicies", _network_policy),
}
"""The objects of a cluster that are shown as they are, by the names of their kinds."""


@define(eq=False, repr=False)
class FactStore:
    """A cluster's pods, namespaces, service accounts, nodes and policies."""

    _client: ApiClient

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One of them; see :class:`~netplug_backends.kubernetes.kinds.customobjects.KindStore`."""
        kind = query.key.kind
        path = FACT_KINDS[kind.name].path(query.key.path, length=len(kind.segments))
        found = find_object(self._client, path, deadline=deadline)
        return record_result(None if found is None else _record(kind, found))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All of them, or those of a namespace."""
        length = len(query.kind.segments)
        path = FACT_KINDS[query.kind.name].path(query.within[: length - 1], length=length)
        if not is_valid_path(path):
            return NOTHING_FOUND
        found, resource_version = list_records(
            self._client, ApiRequest("GET", path), lambda item: _record(query.kind, item), deadline=deadline
        )
        return list_result(query, found, resource_version)

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise not_supported(write, _FACTS_REASON)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _FACTS_REASON)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _FACTS_REASON)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All of them."""
        path = FACT_KINDS[kind.name].path((), length=len(kind.segments))
        return ((ApiRequest("GET", path), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event about one of them means."""
        return event_of_record(event, _record(kind, event_object(event)))


def _record(kind: Kind[object], found: Json) -> Record[object]:
    metadata = metadata_of(found)
    key = kind.key(*(str(metadata.get(segment) or "") for segment in kind.segments))
    return Record(key, FACT_KINDS[kind.name].decode(found), revision_of(found))


# --- profiles --------------------------------------------------------------------------------------------------------


_PROFILES_REASON = "profiles are made of the cluster's own namespaces and service accounts"


@define(eq=False, repr=False)
class ProfileStore:
    """The profiles of a cluster's namespaces and service accounts, and the profile that allows all traffic."""

    _client: ApiClient

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One profile; see :class:`~netplug_backends.kubernetes.kinds.customobjects.KindStore`."""
        kind, name = query.key.kind, query.key.name
        if name == DEFAULT_ALLOW_PROFILE.key.name:
            return QueryResult(ReadResult((DEFAULT_ALLOW_PROFILE,)))
        path = _find_object_path(name)
        found = find_object(self._client, path, deadline=deadline) if path else None
        if found is None:
            return NOTHING_FOUND
        record = require_key(query.key, profile_record(kind, found))
        version = parse_revision(record.revision).resource_version
        is_namespace = name.startswith(NAMESPACE_PROFILE_PREFIX)
        versions = (version, "") if is_namespace else ("", version)
        return QueryResult(ReadResult((record,)), collections_revision(*versions))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All profiles."""
        records: list[Record[object] | Malformed] = [DEFAULT_ALLOW_PROFILE]
        versions: list[str] = []
        for path in (NAMESPACES_PATH, SERVICE_ACCOUNTS_PATH):
            found, resource_version = list_records(
                self._client, ApiRequest("GET", path), lambda item: profile_record(query.kind, item), deadline=deadline
            )
            records += found
            versions.append(resource_version)
        return list_result(query, records, collections_revision(*versions))

    def find_refusal(self, write: Write) -> NotSupported | None:
        """The error of every write."""
        return not_supported(write, _PROFILES_REASON) if isinstance(write, (Create, Update, Delete)) else None

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused."""
        del deadline
        raise not_supported(write, _PROFILES_REASON)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _PROFILES_REASON)

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused."""
        del revision, deadline
        raise not_supported(write, _PROFILES_REASON)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All namespaces, and all service accounts."""
        del kind
        namespaces, _, accounts = revision.partition("/")
        return ((ApiRequest("GET", NAMESPACES_PATH), namespaces), (ApiRequest("GET", SERVICE_ACCOUNTS_PATH), accounts))

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event about a namespace or a service account means."""
        return event_of_record(event, profile_record(kind, event_object(event)))


def profile_record(kind: Kind[object], found: Json) -> Record[object]:
    """The profile of a namespace or of a service account; only the latter has a namespace in its metadata.

    The profile of a namespace allows all traffic of pods that no policy selects. That of a service account only adds
    labels.

    Raises:
        Malformed: the metadata cannot be decoded.
    """
    metadata = metadata_of(found)
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
    account_profile = f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{namespace}.{name}"
    profile = account_profile if namespace else f"{NAMESPACE_PROFILE_PREFIX}{name}"
    labels = sorted_labels(metadata, "labels")
    times = ("uid", "creationTimestamp", "deletionTimestamp")
    mapping = {
        "kind": kind.name,
        "apiVersion": API_VERSION,
        "metadata": {"name": profile, **{member: metadata.get(member) for member in times}},
    }
    try:
        value = narrow(from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind), Profile)
    except ConfigurationError as error:
        raise Malformed(f"{kind}({profile})", str(error)) from error
    spec = account_spec(name, labels) if namespace else namespace_spec(name, labels)
    return Record(kind.key(profile), evolve(value, spec=spec), revision_of(found))


def _find_object_path(name: str) -> str:
    """The path of the object that a profile is a view of; empty if no object can have that profile."""
    if name.startswith(NAMESPACE_PROFILE_PREFIX):
        namespace = name.removeprefix(NAMESPACE_PROFILE_PREFIX)
        return namespace_path(namespace) if namespace else ""
    namespace, _, account = name.removeprefix(SERVICE_ACCOUNT_PROFILE_PREFIX).partition(".")
    if not name.startswith(SERVICE_ACCOUNT_PROFILE_PREFIX) or not namespace or not account:
        return ""
    return f"{namespaced_path(namespace, 'serviceaccounts')}/{path_segment(account)}"
