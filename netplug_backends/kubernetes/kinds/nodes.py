"""The keeper of Nodes: views of the cluster's own nodes, with what netplug knows of them in annotations.

Nodes come and go with the cluster; here they can only be changed, through their status, which the agents' account may
write. Labels of the cluster's shadow ours of the same name, and are never written by us.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Final, cast

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json, parse_json, path_segment
from netplug_backends.kubernetes.client.objects import (
    ConditionFailed,
    QueryResult,
    error_of_reply,
    event_object,
    find_object,
    get_object,
    is_valid_path,
    list_objects,
    metadata_of,
    parse_revision,
    require_key,
    revision_of,
)
from netplug_backends.kubernetes.kinds.pod_and_node_facts import node_facts, sorted_labels
from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.orchestrator.model import NodeFacts
from netplug_core.records import (
    Create,
    Delete,
    Get,
    Key,
    Kind,
    List,
    Malformed,
    NotSupported,
    Record,
    Revision,
    Update,
    WatchEvent,
)
from netplug_core.resources.codec import DocumentOrigin, from_mapping, to_mapping
from netplug_core.resources.kinds import Resource

__all__ = ["NodeStore", "PodAddressSource", "node_annotations", "node_record"]

_DOMAIN: Final = "projectnetplug.org"
_LABELS, _ANNOTATIONS, _INTERFACES = f"{_DOMAIN}/labels", f"{_DOMAIN}/annotations", f"{_DOMAIN}/Interfaces"
_ROUTE_REFLECTOR, _AS_NUMBER = f"{_DOMAIN}/RouteReflectorClusterID", f"{_DOMAIN}/ASNumber"
_AS_NUMBERS, _AS_DIGITS = 2**32, 10  # RFC 6793
_CONFLICT = 409

# An annotation's name (behind the domain), and where its text stands in the resource.
_TEXT_ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    "IPv4Address": ("spec", "bgp", "ipv4Address"),
    "IPv6Address": ("spec", "bgp", "ipv6Address"),
    "IPv4IPIPTunnelAddr": ("spec", "bgp", "ipv4IPIPTunnelAddr"),
    "IPv4VXLANTunnelAddr": ("spec", "ipv4VXLANTunnelAddr"),
    "VXLANTunnelMACAddr": ("spec", "vxlanTunnelMACAddr"),
    "IPv6VXLANTunnelAddr": ("spec", "ipv6VXLANTunnelAddr"),
    "VXLANTunnelMACAddrV6": ("spec", "vxlanTunnelMACAddrV6"),
    "IPv4WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv4Address"),
    "IPv6WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv6Address"),
    "WireguardPublicKey": ("status", "wireguardPublicKey"),
    "WireguardPublicKeyV6": ("status", "wireguardPublicKeyV6"),
}


class PodAddressSource(enum.Enum):
    """Where pods' addresses come from: netplug's pools, or the range that the cluster set aside for each node."""

    POOLS = "pools"
    POD_CIDR = "podCIDR"


class NodeStore:
    """The nodes of a cluster."""

    def __init__(self, client: ApiClient, address_source: PodAddressSource = PodAddressSource.POOLS) -> None:
        self._client = client
        self._address_source = address_source

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One node; see :class:`~netplug_backends.kubernetes.client.objects.Keeper`."""
        found = self._find_node(query.key, deadline)
        if found is None:
            return QueryResult(())
        record = require_key(query.key, self._record(query.key.kind, found))
        return QueryResult((record,), record.revision)

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All nodes."""
        if query.within and not is_valid_path(_path(query.kind.key(*query.within))):
            return QueryResult(())
        selection = {"fieldSelector": f"metadata.name={query.within[0]}"} if query.within else {}
        items, number = list_objects(self._client, ApiRequest("GET", "/api/v1/nodes", selection), deadline=deadline)
        records = sorted((self._record(query.kind, item) for item in items), key=lambda record: record.key.path)
        return QueryResult(tuple(records), Revision(number))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused: the cluster makes its nodes."""
        del deadline
        raise NotSupported("Create", write.key.kind, "the cluster's own nodes are the nodes")

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Write what netplug knows of a node into its annotations."""
        found = self._find_node(write.key, deadline)
        if found is None or revision_of(found) != revision:
            raise ConditionFailed(None if found is None else self._record(write.key.kind, found))
        annotations = {**dict(sorted_labels(metadata_of(found), "annotations")), **node_annotations(write.value, found)}
        body = {
            **found,
            "metadata": {
                **metadata_of(found),  # with uid and version, which the server compares
                "annotations": {name: text for name, text in annotations.items() if text is not None},
            },
        }
        request = ApiRequest("PUT", f"{_path(write.key)}/status", body=body)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return revision_of(get_object(self._client, request, reply))
        if not reply.is_missing and reply.status != _CONFLICT:
            raise error_of_reply(self._client, request, reply)
        now = self._find_node(write.key, deadline)
        raise ConditionFailed(None if now is None else self._record(write.key.kind, now))

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused: the cluster removes its nodes."""
        del revision, deadline
        raise NotSupported("Delete", write.key.kind, "the cluster's own nodes are the nodes")

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All nodes."""
        del kind
        return ((ApiRequest("GET", "/api/v1/nodes"), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """What an event about a node means."""
        record = self._record(kind, event_object(event))
        return WatchEvent(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)

    def _record(self, kind: Kind[object], found: Json) -> Record[object]:
        return node_record(kind, found, self._address_source)

    def _find_node(self, key: Key[object], deadline: Deadline) -> Json | None:
        return find_object(self._client, _path(key), deadline=deadline)


# --- from annotations to a resource and back -------------------------------------------------------------------------


def node_record(
    kind: Kind[object], found: Json, address_source: PodAddressSource = PodAddressSource.POOLS
) -> Record[object]:
    """The record that a node of the cluster is.

    Where addresses come from its own range, its tunnels have the range's first address, whatever its annotations say.

    Raises:
        Malformed: an annotation of ours makes no sense.
    """
    facts = node_facts(found)
    metadata = {
        "name": facts.name,
        "uid": facts.uid,
        "creationTimestamp": metadata_of(found).get("creationTimestamp"),
        "labels": {**_label_annotation(facts, _LABELS), **dict(facts.labels)},
        "annotations": _label_annotation(facts, _ANNOTATIONS),
    }
    mapping: dict[str, object] = {"kind": kind.name, "apiVersion": f"{_DOMAIN}/v3", "metadata": metadata}
    tunnels = () if address_source is PodAddressSource.POOLS else _tunnel_members(facts)
    for path, value in (*_spec_members(facts), *tunnels):
        _set_member(mapping, path, value)
    try:
        value = from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
    except (ConfigurationError, RecursionError) as error:
        raise Malformed(f"{kind}({facts.name})", str(error)) from error
    return Record(kind.key(facts.name), value, revision_of(found))


def _spec_members(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """What stands where in the resource."""
    annotations = dict(facts.annotations)
    yield ("spec", "orchRefs"), [{"nodeName": facts.name, "orchestrator": "k8s"}]
    for name, path in _TEXT_ANNOTATIONS.items():
        text = annotations.get(f"{_DOMAIN}/{name}")
        if text:
            yield path, text
    number = annotations.get(_AS_NUMBER, "")
    if number.isascii() and number.isdigit() and len(number) <= _AS_DIGITS and int(number) < _AS_NUMBERS:
        yield ("spec", "bgp", "asNumber"), int(number)
    reflector = annotations.get(_ROUTE_REFLECTOR, "")
    if _is_ipv4(reflector):
        yield ("spec", "bgp", "routeReflectorClusterID"), reflector
    interfaces = _json(facts, _INTERFACES)
    if interfaces is not None:
        yield ("spec", "interfaces"), interfaces
    if facts.pod_cidrs:
        yield ("status", "podCIDRs"), [str(prefix) for prefix in facts.pod_cidrs]


def _tunnel_members(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """What a node's own range says of its tunnels (spec 2.6); a range of neither family leaves them without."""
    first = {prefix.family: str(prefix.nth(1)) for prefix in facts.pod_cidrs}
    has_key = f"{_DOMAIN}/WireguardPublicKey" in dict(facts.annotations)
    yield ("spec", "bgp", "ipv4IPIPTunnelAddr"), first.get(Family.IPV4, "")
    yield ("spec", "wireguard", "interfaceIPv4Address"), first.get(Family.IPV4, "") if has_key else ""


def node_annotations(value: object, found: Json) -> dict[str, str | None]:
    """The annotations of a node of the cluster that a resource is kept in; None for one that has to go."""
    mapping = to_mapping(cast("Resource", value))
    out: dict[str, str | None] = {f"{_DOMAIN}/{name}": _text(mapping, path) for name, path in _TEXT_ANNOTATIONS.items()}
    out[_AS_NUMBER] = _text(mapping, ("spec", "bgp", "asNumber"))
    out[_ROUTE_REFLECTOR] = _text(mapping, ("spec", "bgp", "routeReflectorClusterID"))
    interfaces = _find_member(mapping, ("spec", "interfaces"))
    out[_INTERFACES] = None if interfaces is None else _compact(interfaces)
    metadata, shadows = metadata_of(mapping), metadata_of(found).get("labels") or {}
    labels = cast("Mapping[str, str]", metadata.get("labels") or {})
    own = {name: text for name, text in labels.items() if name not in cast("Json", shadows)}
    out[_LABELS] = _compact(own) if own else None
    out[_ANNOTATIONS] = _compact(metadata["annotations"]) if metadata.get("annotations") else None
    return out


def _label_annotation(facts: NodeFacts, name: str) -> dict[str, str]:
    found = _json(facts, name)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise Malformed(f"Node({facts.name})", f"annotation {name}: a JSON object of texts is expected")
    return found


def _json(facts: NodeFacts, name: str) -> object:
    text = dict(facts.annotations).get(name)
    try:
        return parse_json(text) if text else None
    except ValueError as error:
        raise Malformed(f"Node({facts.name})", f"annotation {name}: {error}") from error


def _set_member(mapping: dict[str, object], path: tuple[str, ...], value: object) -> None:
    *outer, last = path
    for name in outer:
        mapping = cast("dict[str, object]", mapping.setdefault(name, {}))
    mapping[last] = value


def _find_member(mapping: Json, path: tuple[str, ...]) -> object:
    found: object = mapping
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(mapping: Json, path: tuple[str, ...]) -> str | None:
    found = _find_member(mapping, path)
    return None if found in (None, "") else str(found)


def _is_ipv4(text: str) -> bool:
    try:
        return Address.parse(text).family is Family.IPV4
    except ValueError:
        return False


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _path(key: Key[object]) -> str:
    return f"/api/v1/nodes/{path_segment(key.name)}"
