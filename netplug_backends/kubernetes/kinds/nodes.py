"""The store of Nodes: the cluster's own Node objects, with netplug's data in annotations.

The cluster creates and deletes nodes; this store only updates them, through their status, which the agents' account
may write. A label of the cluster's hides a label of ours with the same name, and is never written: ours stays in its
annotation, and a write that would change the cluster's is refused.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping

from attrs import define

from netplug_backends.kubernetes.client.apiclient import ApiClient, ApiRequest, Json, parse_json
from netplug_backends.kubernetes.client.objects import (
    event_object,
    find_object,
    get_object,
    is_valid_path,
    metadata_of,
    parse_revision,
    revision_of,
)
from netplug_backends.kubernetes.kinds.customobjects import (
    NOTHING_FOUND,
    ConditionFailed,
    QueryResult,
    event_of_record,
    list_records,
    list_result,
    not_supported,
    record_result,
    require_key,
    write_error,
)
from netplug_backends.kubernetes.kinds.profiles import node_facts, sorted_labels
from netplug_backends.kubernetes.names import API_DOMAIN, NODES_PATH, node_path
from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.decoding.tables import DocumentOrigin, find_member
from netplug_core.errors import ConfigurationError, narrow
from netplug_core.names import API_VERSION, KUBERNETES_ORCHESTRATOR
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
    Write,
)
from netplug_core.resources.codec import from_mapping, to_mapping
from netplug_core.resources.kinds import resource_of

__all__ = ["NodeStore", "PodAddressSource", "node_annotations", "node_record"]

_LABELS, _ANNOTATIONS, _INTERFACES = (f"{API_DOMAIN}/{name}" for name in ("labels", "annotations", "Interfaces"))
_REMEMBERED_LABELS = f"{API_DOMAIN}/kube-labels"  # those of the cluster, as another datastore remembers them
_ROUTE_REFLECTOR, _AS_NUMBER = f"{API_DOMAIN}/RouteReflectorClusterID", f"{API_DOMAIN}/ASNumber"
_UNREADY = ("False", "Unknown")
_AS_NUMBERS, _AS_DIGITS = 2**32, 10  # RFC 6793
_REASON = "the cluster's own nodes are the nodes"

# The name of an annotation (after the domain), and the member of the resource that its text is.
_TEXT_ANNOTATIONS: Mapping[str, tuple[str, ...]] = {
    "IPv4Address": ("spec", "bgp", "ipv4Address"),
    "IPv6Address": ("spec", "bgp", "ipv6Address"),
    "IPv4IPIPTunnelAddr": ("spec", "bgp", "ipv4IPIPTunnelAddr"),
    "IPv4VXLANTunnelAddr": ("spec", "ipv4VXLANTunnelAddr"),
    "VXLANTunnelMACAddr": ("spec", "vxlanTunnelMACAddr"),
    "IPv6VXLANTunnelAddr": ("spec", "ipv6VXLANTunnelAddr"),
    "VXLANTunnelMACAddrV6": ("spec", "vxlanTunnelMACAddrV6"),
    "NetplugVersion": ("status", "netplugVersion"),
    "IPv4WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv4Address"),
    "IPv6WireguardInterfaceAddr": ("spec", "wireguard", "interfaceIPv6Address"),
    "WireguardPublicKey": ("status", "wireguardPublicKey"),
    "WireguardPublicKeyV6": ("status", "wireguardPublicKeyV6"),
}


class PodAddressSource(enum.Enum):
    """Where pods' addresses come from: netplug's pools, or the pod CIDR that the cluster gave each node."""

    POOLS = "pools"
    POD_CIDR = "podCIDR"


@define(eq=False, repr=False)
class NodeStore:
    """The nodes of a cluster."""

    _client: ApiClient
    _address_source: PodAddressSource = PodAddressSource.POOLS

    def find(self, query: Get[object], *, deadline: Deadline) -> QueryResult:
        """One node; see :class:`~netplug_backends.kubernetes.kinds.customobjects.KindStore`."""
        record = self._find_record(query.key, deadline)
        return record_result(None if record is None else require_key(query.key, record))

    def find_all(self, query: List[object], *, deadline: Deadline) -> QueryResult:
        """All nodes."""
        if query.within and not is_valid_path(node_path(query.within[0])):
            return NOTHING_FOUND
        parameters = {"fieldSelector": f"metadata.name={query.within[0]}"} if query.within else {}
        request = ApiRequest("GET", NODES_PATH, parameters)
        found, resource_version = list_records(
            self._client, request, lambda item: self._record(query.kind, item), deadline=deadline
        )
        return list_result(query, found, resource_version)

    def find_refusal(self, write: Write) -> NotSupported | None:
        """The error of a write other than an update: the cluster creates and deletes its nodes."""
        return not_supported(write, _REASON) if isinstance(write, (Create, Delete)) else None

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused: the cluster creates its nodes."""
        del deadline
        raise not_supported(write, _REASON)

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Write netplug's data on a node into its annotations."""
        found = self._find_node(write.key, deadline)
        if found is None or revision_of(found) != revision:
            raise ConditionFailed(None if found is None else self._record(write.key.kind, found))
        annotations = {**dict(sorted_labels(metadata_of(found), "annotations")), **node_annotations(write.value, found)}
        body = {
            **found,
            "metadata": {
                **metadata_of(found),  # with uid and resourceVersion, which the server compares
                "annotations": {name: text for name, text in annotations.items() if text is not None},
            },
        }
        request = ApiRequest("PUT", f"{node_path(write.key.name)}/status", body=body)
        reply = self._client.send(request, deadline=deadline)
        if reply.is_success:
            return revision_of(get_object(self._client, request, reply))
        raise write_error(self._client, (request, reply), lambda: self._find_record(write.key, deadline))

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused: the cluster deletes its nodes."""
        del revision, deadline
        raise not_supported(write, _REASON)

    def watched_collections(self, kind: Kind[object], revision: Revision) -> tuple[tuple[ApiRequest, str], ...]:
        """All nodes."""
        del kind
        return ((ApiRequest("GET", NODES_PATH), parse_revision(revision).resource_version),)

    def decode_event(self, kind: Kind[object], event: Json) -> WatchEvent[object]:
        """The change that an event about a node means."""
        return event_of_record(event, self._record(kind, event_object(event)))

    def _record(self, kind: Kind[object], found: Json) -> Record[object]:
        return node_record(kind, found, self._address_source)

    def _find_node(self, key: Key[object], deadline: Deadline) -> Json | None:
        return find_object(self._client, node_path(key.name), deadline=deadline)

    def _find_record(self, key: Key[object], deadline: Deadline) -> Record[object] | None:
        found = self._find_node(key, deadline)
        return None if found is None else self._record(key.kind, found)


# --- from annotations to a resource and back -------------------------------------------------------------------------


def node_record(
    kind: Kind[object], found: Json, address_source: PodAddressSource = PodAddressSource.POOLS
) -> Record[object]:
    """The record of a Node object.

    If pods' addresses come from pod CIDRs, the node's tunnels have the first address of its pod CIDR; the annotations
    about them are ignored.

    Raises:
        Malformed: an annotation of ours cannot be decoded.
    """
    facts = node_facts(found)
    _label_annotation(facts, _REMEMBERED_LABELS)  # the cluster's labels are at hand; an invalid text is an error
    metadata = {
        "name": facts.name,
        "uid": facts.uid,
        "creationTimestamp": metadata_of(found).get("creationTimestamp"),
        "labels": {**_label_annotation(facts, _LABELS), **dict(facts.labels)},
        "annotations": _label_annotation(facts, _ANNOTATIONS),
    }
    mapping: dict[str, object] = {"kind": kind.name, "apiVersion": API_VERSION, "metadata": metadata}
    tunnels = () if address_source is PodAddressSource.POOLS else _tunnel_members(facts)
    unready = ((("status", "ready"), False),) if _is_unready(found) else ()
    for path, value in (*_spec_members(facts), *tunnels, *unready):
        _set_member(mapping, path, value)
    try:
        value = from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
    except (ConfigurationError, RecursionError) as error:
        raise Malformed(f"{kind}({facts.name})", str(error)) from error
    return Record(kind.key(facts.name), value, revision_of(found))


def _is_unready(found: Json) -> bool:
    """Whether the cluster has noticed that the node does not work, or has lost sight of it."""
    conditions = find_member(found, "status", "conditions")
    listed = (one for one in (conditions if isinstance(conditions, list) else ()) if isinstance(one, Mapping))
    return any(one.get("type") == "Ready" and one.get("status") in _UNREADY for one in listed)


def _spec_members(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """The resource's members, each with its path."""
    annotations = dict(facts.annotations)
    yield ("spec", "orchRefs"), [{"nodeName": facts.name, "orchestrator": KUBERNETES_ORCHESTRATOR}]
    for name, path in _TEXT_ANNOTATIONS.items():
        text = annotations.get(f"{API_DOMAIN}/{name}")
        if text:
            yield path, text
    number = annotations.get(_AS_NUMBER, "")
    if number.isascii() and number.isdigit() and len(number) <= _AS_DIGITS and 0 < int(number) < _AS_NUMBERS:
        yield ("spec", "bgp", "asNumber"), int(number)
    reflector = annotations.get(_ROUTE_REFLECTOR, "")
    if _is_ipv4(reflector):
        yield ("spec", "bgp", "routeReflectorClusterID"), reflector
    interfaces = _json(facts, _INTERFACES)
    if interfaces is not None:
        yield ("spec", "interfaces"), interfaces
    if facts.pod_cidrs:
        yield ("status", "podCIDRs"), [str(prefix) for prefix in facts.pod_cidrs]
    if facts.internal_addresses:
        yield ("status", "internalAddresses"), [str(address) for address in facts.internal_addresses]


def _tunnel_members(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """The tunnel addresses that follow from a node's pod CIDRs; empty without a CIDR of the family."""
    first = {prefix.family: str(prefix.nth(1)) for prefix in facts.pod_cidrs}
    has_key = f"{API_DOMAIN}/WireguardPublicKey" in dict(facts.annotations)
    yield ("spec", "bgp", "ipv4IPIPTunnelAddr"), first.get(Family.IPV4)
    yield ("spec", "ipv4VXLANTunnelAddr"), first.get(Family.IPV4)
    yield ("spec", "ipv6VXLANTunnelAddr"), first.get(Family.IPV6)
    yield ("spec", "wireguard", "interfaceIPv4Address"), first.get(Family.IPV4, "") if has_key else ""


def node_annotations(value: object, found: Json) -> dict[str, str | None]:
    """The annotations that a resource is stored in; None for an annotation to remove.

    Raises:
        ConfigurationError: the resource has another text for a label of the cluster's: the change would have no effect.
    """
    resource = resource_of(value)
    mapping = to_mapping(resource)
    out: dict[str, str | None] = {
        f"{API_DOMAIN}/{name}": _text(mapping, path) for name, path in _TEXT_ANNOTATIONS.items()
    }
    out[_AS_NUMBER] = _text(mapping, ("spec", "bgp", "asNumber"))
    out[_ROUTE_REFLECTOR] = _text(mapping, ("spec", "bgp", "routeReflectorClusterID"))
    interfaces = _find_member(mapping, ("spec", "interfaces"))
    out[_INTERFACES] = None if interfaces is None else _compact(interfaces)
    metadata = metadata_of(mapping)
    own = _own_labels(dict(resource.metadata.labels), node_facts(found))
    out[_LABELS] = _compact(own) if own else None
    out[_ANNOTATIONS] = _compact(metadata["annotations"]) if metadata.get("annotations") else None
    return out


def _own_labels(wanted: Mapping[str, str], facts: NodeFacts) -> dict[str, str]:
    """Our labels of a node that is to have the labels ``wanted``, with those that the cluster's hide.

    A resource without a label of the cluster's is no attempt to remove it: a manifest need not repeat those.
    """
    cluster = dict(facts.labels)
    for name, text in cluster.items():
        if wanted.get(name, text) != text:
            where = f"Node({facts.name}) metadata.labels[{name}]"
            accepted = f"the cluster's own Node has this label with the text {text!r}; change it there, with kubectl"
            raise ConfigurationError(where, wanted[name], accepted)
    hidden = {name: text for name, text in _label_annotation(facts, _LABELS).items() if name in cluster}
    return hidden | {name: text for name, text in wanted.items() if name not in cluster}


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
        mapping = narrow(mapping.setdefault(name, {}), dict)
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
