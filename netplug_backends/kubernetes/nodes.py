"""The keeper of Nodes: views of the cluster's own nodes, with what netplug knows of them in annotations.

Nodes come and go with the cluster; here they can only be changed, through their status, which the agents' account may
write. Labels of the cluster's shadow ours of the same name, and are never written by us.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from typing import Final, cast

from netplug_backends.kubernetes.client import Client, Json, Request, from_json, segment
from netplug_backends.kubernetes.facts import node_facts, texts
from netplug_backends.kubernetes.keeper import (
    ConditionFailed,
    Found,
    answered,
    can_exist,
    failure,
    found_at,
    listed,
    metadata_of,
    object_of,
    of_key,
    revision_of,
    version_of,
)
from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.orchestrator.interface import NodeFacts
from netplug_core.records import (
    Change,
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
)
from netplug_core.resources.codec import Origin, from_mapping, to_mapping
from netplug_core.resources.kinds import Resource

__all__ = ["Addressing", "Nodes", "node_annotations", "node_record"]

_DOMAIN: Final = "projectnetplug.org"
_LABELS, _ANNOTATIONS, _INTERFACES = f"{_DOMAIN}/labels", f"{_DOMAIN}/annotations", f"{_DOMAIN}/Interfaces"
_ROUTE_REFLECTOR, _AS_NUMBER = f"{_DOMAIN}/RouteReflectorClusterID", f"{_DOMAIN}/ASNumber"
_AS_NUMBERS, _AS_DIGITS = 2**32, 10  # RFC 6793
_CONFLICT = 409

# An annotation's name (behind the domain), and where its text stands in the resource.
_TEXTS: Mapping[str, tuple[str, ...]] = {
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


class Addressing(enum.Enum):
    """Where pods' addresses come from: netplug's pools, or the range that the cluster set aside for each node."""

    POOLS = "pools"
    POD_CIDR = "podCIDR"


class Nodes:
    """The nodes of a cluster."""

    def __init__(self, client: Client, addressing: Addressing = Addressing.POOLS) -> None:
        self._client = client
        self._addressing = addressing

    def find(self, query: Get[object], *, deadline: Deadline) -> Found:
        """One node; see :class:`~netplug_backends.kubernetes.keeper.Keeper`."""
        found = self._node(query.key, deadline)
        if found is None:
            return Found(())
        record = of_key(query.key, self._record(query.key.kind, found))
        return Found((record,), record.revision)

    def find_all(self, query: List[object], *, deadline: Deadline) -> Found:
        """All nodes."""
        if query.within and not can_exist(_path(query.kind.key(*query.within))):
            return Found(())
        selection = {"fieldSelector": f"metadata.name={query.within[0]}"} if query.within else {}
        items, number = listed(self._client, Request("GET", "/api/v1/nodes", selection), deadline=deadline)
        records = sorted((self._record(query.kind, item) for item in items), key=lambda record: record.key.path)
        return Found(tuple(records), Revision(number))

    def create(self, write: Create[object], *, deadline: Deadline) -> Revision:
        """Refused: the cluster makes its nodes."""
        del deadline
        raise NotSupported("Create", write.key.kind, "the cluster's own nodes are the nodes")

    def update(self, write: Update[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Write what netplug knows of a node into its annotations."""
        found = self._node(write.key, deadline)
        if found is None or revision_of(found) != revision:
            raise ConditionFailed(None if found is None else self._record(write.key.kind, found))
        annotations = {**dict(texts(metadata_of(found), "annotations")), **node_annotations(write.value, found)}
        body = {
            **found,
            "metadata": {
                **metadata_of(found),  # with uid and version, which the server compares
                "annotations": {name: text for name, text in annotations.items() if text is not None},
            },
        }
        request = Request("PUT", f"{_path(write.key)}/status", body=body)
        reply = self._client.ask(request, deadline=deadline)
        if reply.is_success:
            return revision_of(answered(self._client, request, reply))
        if not reply.is_missing and reply.status != _CONFLICT:
            raise failure(self._client, request, reply)
        now = self._node(write.key, deadline)
        raise ConditionFailed(None if now is None else self._record(write.key.kind, now))

    def delete(self, write: Delete[object], revision: Revision, *, deadline: Deadline) -> Revision:
        """Refused: the cluster removes its nodes."""
        del revision, deadline
        raise NotSupported("Delete", write.key.kind, "the cluster's own nodes are the nodes")

    def sources(self, kind: Kind[object], revision: Revision) -> tuple[tuple[Request, str], ...]:
        """All nodes."""
        del kind
        return ((Request("GET", "/api/v1/nodes"), version_of(revision).number),)

    def change(self, kind: Kind[object], event: Json) -> Change[object]:
        """What an event about a node means."""
        record = self._record(kind, object_of(event))
        return Change(record.key, None if event.get("type") == "DELETED" else record.value, record.revision)

    def _record(self, kind: Kind[object], found: Json) -> Record[object]:
        return node_record(kind, found, self._addressing)

    def _node(self, key: Key[object], deadline: Deadline) -> Json | None:
        return found_at(self._client, _path(key), deadline=deadline)


# --- from annotations to a resource and back -------------------------------------------------------------------------


def node_record(kind: Kind[object], found: Json, addressing: Addressing = Addressing.POOLS) -> Record[object]:
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
        "labels": {**_remembered(facts, _LABELS), **dict(facts.labels)},
        "annotations": _remembered(facts, _ANNOTATIONS),
    }
    mapping: dict[str, object] = {"kind": kind.name, "apiVersion": f"{_DOMAIN}/v3", "metadata": metadata}
    tunnels = () if addressing is Addressing.POOLS else _tunnels_of(facts)
    for path, value in (*_members(facts), *tunnels):
        _put(mapping, path, value)
    try:
        value = from_mapping(mapping, origin=Origin.STORE, kind=kind)
    except (ConfigurationError, RecursionError) as error:
        raise Malformed(f"{kind}({facts.name})", str(error)) from error
    return Record(kind.key(facts.name), value, revision_of(found))


def _members(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """What stands where in the resource."""
    annotations = dict(facts.annotations)
    yield ("spec", "orchRefs"), [{"nodeName": facts.name, "orchestrator": "k8s"}]
    for name, path in _TEXTS.items():
        text = annotations.get(f"{_DOMAIN}/{name}")
        if text:
            yield path, text
    number = annotations.get(_AS_NUMBER, "")
    if number.isascii() and number.isdigit() and len(number) <= _AS_DIGITS and int(number) < _AS_NUMBERS:
        yield ("spec", "bgp", "asNumber"), int(number)
    reflector = annotations.get(_ROUTE_REFLECTOR, "")
    if _is_dotted(reflector):
        yield ("spec", "bgp", "routeReflectorClusterID"), reflector
    interfaces = _json(facts, _INTERFACES)
    if interfaces is not None:
        yield ("spec", "interfaces"), interfaces
    if facts.pod_prefixes:
        yield ("status", "podCIDRs"), [str(prefix) for prefix in facts.pod_prefixes]


def _tunnels_of(facts: NodeFacts) -> Iterator[tuple[tuple[str, ...], object]]:
    """What a node's own range says of its tunnels (spec 2.6); a range of neither family leaves them without."""
    first = {prefix.family: str(prefix.nth(1)) for prefix in facts.pod_prefixes}
    has_key = f"{_DOMAIN}/WireguardPublicKey" in dict(facts.annotations)
    yield ("spec", "bgp", "ipv4IPIPTunnelAddr"), first.get(Family.IPV4, "")
    yield ("spec", "wireguard", "interfaceIPv4Address"), first.get(Family.IPV4, "") if has_key else ""


def node_annotations(value: object, found: Json) -> dict[str, str | None]:
    """The annotations of a node of the cluster that a resource is kept in; None for one that has to go."""
    mapping = to_mapping(cast("Resource", value))
    out: dict[str, str | None] = {f"{_DOMAIN}/{name}": _text(mapping, path) for name, path in _TEXTS.items()}
    out[_AS_NUMBER] = _text(mapping, ("spec", "bgp", "asNumber"))
    out[_ROUTE_REFLECTOR] = _text(mapping, ("spec", "bgp", "routeReflectorClusterID"))
    interfaces = _got(mapping, ("spec", "interfaces"))
    out[_INTERFACES] = None if interfaces is None else _compact(interfaces)
    metadata, shadows = metadata_of(mapping), metadata_of(found).get("labels") or {}
    labels = cast("Mapping[str, str]", metadata.get("labels") or {})
    own = {name: text for name, text in labels.items() if name not in cast("Json", shadows)}
    out[_LABELS] = _compact(own) if own else None
    out[_ANNOTATIONS] = _compact(metadata["annotations"]) if metadata.get("annotations") else None
    return out


def _remembered(facts: NodeFacts, name: str) -> dict[str, str]:
    found = _json(facts, name)
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise Malformed(f"Node({facts.name})", f"annotation {name}: a JSON object of texts is expected")
    return found


def _json(facts: NodeFacts, name: str) -> object:
    text = dict(facts.annotations).get(name)
    try:
        return from_json(text) if text else None
    except ValueError as error:
        raise Malformed(f"Node({facts.name})", f"annotation {name}: {error}") from error


def _put(mapping: dict[str, object], path: tuple[str, ...], value: object) -> None:
    *outer, last = path
    for name in outer:
        mapping = cast("dict[str, object]", mapping.setdefault(name, {}))
    mapping[last] = value


def _got(mapping: Json, path: tuple[str, ...]) -> object:
    found: object = mapping
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _text(mapping: Json, path: tuple[str, ...]) -> str | None:
    found = _got(mapping, path)
    return None if found in (None, "") else str(found)


def _is_dotted(text: str) -> bool:
    try:
        return Address.parse(text).family is Family.IPV4
    except ValueError:
        return False


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _path(key: Key[object]) -> str:
    return f"/api/v1/nodes/{segment(key.name)}"
