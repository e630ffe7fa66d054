"""How each kind of record is encoded as a custom object, in both API groups. Pure; ``kinds.customobjects`` calls it.

The allocator's records have the members that other tools in the cluster read: camel case, with cidr, owner and id in
the spec, because names are never parsed. Users' resources are encoded by ``resources.codec``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from attrs import evolve, frozen

from netplug_backends.kubernetes.client.apiclient import Json
from netplug_backends.kubernetes.names import (
    API_DOMAIN,
    CrdMode,
    affinity_labels,
    affinity_name,
    block_name,
    block_name_start,
    handle_name,
)
from netplug_core.addressing import Prefix
from netplug_core.decoding.tables import DocumentOrigin
from netplug_core.encoding import ipam
from netplug_core.errors import ConfigurationError, narrow
from netplug_core.names import API_VERSION
from netplug_core.records import Key, Kind, Malformed, ValueCondition
from netplug_core.resources import codec
from netplug_core.resources.kinds import plural_of, resource_of

__all__ = ["KIND_MAPPINGS", "KindMapping", "is_deleted", "mirrored_uid"]

_ATTEMPT_ANNOTATION = f"{API_DOMAIN}/attempt"
_VERSION_AND_VARIANT_BYTES = (6, 8)  # of a UUID
# The members of the metadata that the server sets.
_SERVER_MANAGED_METADATA = (
    "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields", "selfLink",
    "deletionGracePeriodSeconds",
)  # fmt: skip


class KindMapping(Protocol):
    """How one kind is encoded."""

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        """The plural in the objects' path."""
        ...

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        """The objects' ``kind``."""
        ...

    @property
    def is_namespaced(self) -> bool:
        """Whether the objects are in namespaces. The first segment of a path is the namespace then."""
        ...

    @property
    def has_own_metadata(self) -> bool:
        """Whether values contain their object's metadata; if not, a store preserves what others wrote there."""
        ...

    def name(self, path: tuple[str, ...]) -> str:
        """The name of the object for a whole path."""
        ...

    def list_parameters(self, within: tuple[str, ...]) -> Json:
        """The query parameters that list the records whose paths begin so; the list may contain others."""
        ...

    def name_start(self, text: str) -> str | None:
        """How the names of the objects begin whose keys' last segments begin with a text; None if they do not."""
        ...

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        """The object's members, without kind and name."""
        ...

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        """The key and the value in an object.

        Raises:
            Malformed: the object holds no record.
        """
        ...

    def find_key(self, kind: Kind[object], found: Json, condition: ValueCondition) -> Key[object] | None:
        """The key in an object, if a condition certainly holds for the value; the value is not decoded."""
        ...


def is_deleted(mapping: KindMapping, found: Json) -> bool:
    """Whether an object that exists counts as deleted.

    That is so if another program has marked it (``deleted``, the first of two steps), or if it waits for finalizers.
    A user's resource has no such mark. One that waits for finalizers is still shown; its metadata says so.
    """
    if mapping.has_own_metadata:
        return False
    is_marked = ipam.is_marked_deleted(_object_member(found, "spec"))
    return is_marked or bool(_object_member(found, "metadata").get("deletionTimestamp"))


def mirrored_uid(uid: str) -> str:
    """The uid with the bits of each byte reversed, except the bytes with the UUID's version and variant.

    Resources have this uid in v1 mode. It differs from the uid of the v3 object that a server in front of the v1
    objects may show. Mirrored twice, it is the original uid. A text that is no UUID is returned unchanged.
    """
    digits = uid.replace("-", "")
    try:
        plain = bytes.fromhex(digits)
    except ValueError:
        return uid
    if len(plain) != 16:  # noqa: PLR2004  # the bytes of a UUID (RFC 9562)
        return uid
    mirrored = bytes(
        byte if place in _VERSION_AND_VARIANT_BYTES else int(f"{byte:08b}"[::-1], 2) for place, byte in enumerate(plain)
    ).hex()
    return "-".join((mirrored[:8], mirrored[8:12], mirrored[12:16], mirrored[16:20], mirrored[20:]))


# --- the allocator's records -----------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _IpamKindMapping:
    """A record of the allocator: the core's JSON in the spec, with other member names."""

    plural_name: str
    kind_name: str
    name_of: Callable[[tuple[str, ...]], str]
    encode_spec: Callable[[CrdMode, Key[object], dict[str, object]], dict[str, object]]
    decode_spec: Callable[[dict[str, object]], tuple[tuple[str, ...], dict[str, object]]]
    path_length: int
    labels: Callable[[tuple[str, ...]], Mapping[str, str]] = lambda _path: {}
    name_start_of: Callable[[str], str | None] = lambda _text: None

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        return dict.fromkeys(CrdMode, self.plural_name)

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        return dict.fromkeys(CrdMode, self.kind_name)

    @property
    def is_namespaced(self) -> bool:
        return False

    @property
    def has_own_metadata(self) -> bool:
        return False

    def name(self, path: tuple[str, ...]) -> str:
        try:
            return self.name_of(path)
        except ValueError as error:
            raise Malformed(f"{self.kind_name}({'/'.join(path)})", str(error)) from None

    def list_parameters(self, within: tuple[str, ...]) -> Json:
        if len(within) == self.path_length:
            return {"fieldSelector": f"metadata.name={self.name(within)}"}
        labels = self.labels(within)
        return {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())} if labels else {}

    def name_start(self, text: str) -> str | None:
        return self.name_start_of(text)

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        spec = self.encode_spec(mode, key, ipam.to_mapping(value))
        labels = self.labels(key.path)
        return {"metadata": {"labels": dict(labels)} if labels else {}, "spec": spec}

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        del mode
        spec = _object_member(found, "spec")
        key: Key[object] | None = None
        try:
            path, mapping = self.decode_spec(dict(spec))
            key = kind.key(*path)
            return key, ipam.from_mapping(kind, mapping)
        except (ValueError, KeyError, RecursionError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise Malformed(f"{kind} {_object_name(found)}", problem, subject=key) from error

    def find_key(self, kind: Kind[object], found: Json, condition: ValueCondition) -> Key[object] | None:
        spec = _object_member(found, "spec")
        if not ipam.holds(condition, spec):
            return None
        try:
            return kind.key(*self.decode_spec(dict(spec))[0])
        except (ValueError, KeyError):
            return None


_BLOCK_FIELD_NAMES = {"affinity_claim_time": "affinityClaimTime"}


def _encode_block_spec(mode: CrdMode, _key: Key[object], mapping: dict[str, object]) -> dict[str, object]:
    spec = {_BLOCK_FIELD_NAMES.get(name, name): value for name, value in mapping.items() if value is not None}
    # A schema accepts no null in an object; the decoder reads a missing member as null.
    attributes = narrow(mapping["attributes"], list)
    spec["attributes"] = [
        {name: value for name, value in attribute.items() if value is not None} for attribute in attributes
    ]
    spec["deleted"] = False
    if mode is CrdMode.V1:
        spec["strictAffinity"] = False  # not read any more, but required by the schemas of older releases
    return spec


def _decode_block_spec(spec: dict[str, object]) -> tuple[tuple[str, ...], dict[str, object]]:
    spec.pop("strictAffinity", None)
    for name, word in _BLOCK_FIELD_NAMES.items():
        if word in spec:
            spec[name] = spec.pop(word)
    prefix = Prefix.parse(str(spec["cidr"]))
    return (f"ipv{prefix.family.value}", str(prefix)), spec


def _encode_affinity_spec(mode: CrdMode, key: Key[object], mapping: dict[str, object]) -> dict[str, object]:
    kind, owner, _family, cidr = key.path
    deleted: object = "false" if mode is CrdMode.V1 else False
    return {**mapping, "type": kind, "node": owner, "cidr": cidr, "deleted": deleted}


def _decode_affinity_spec(spec: dict[str, object]) -> tuple[tuple[str, ...], dict[str, object]]:
    spec.pop("deleted", None)
    prefix = Prefix.parse(str(spec.pop("cidr")))
    kind, owner = spec.pop("type", "") or "host", spec.pop("node")
    return (str(kind), str(owner), f"ipv{prefix.family.value}", str(prefix)), spec


def _encode_handle_spec(_mode: CrdMode, key: Key[object], mapping: dict[str, object]) -> dict[str, object]:
    return {**mapping, "handleID": key.name, "deleted": False}


def _decode_handle_spec(spec: dict[str, object]) -> tuple[tuple[str, ...], dict[str, object]]:
    return (str(spec.pop("handleID")),), spec


# --- the user's kinds ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _ResourceKindMapping:
    """A resource of the user's, encoded by ``resources.codec``. Kind and plural may be others in the v1 group."""

    kind_name: str
    v1_plural: str = ""
    v1_kind: str = ""
    is_namespaced: bool = False

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        plural = plural_of(self.kind_name)
        return {CrdMode.V1: self.v1_plural or plural, CrdMode.V3: plural}

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        return {CrdMode.V1: self.v1_kind or self.kind_name, CrdMode.V3: self.kind_name}

    @property
    def has_own_metadata(self) -> bool:
        return True

    def name(self, path: tuple[str, ...]) -> str:
        return path[-1]

    def list_parameters(self, within: tuple[str, ...]) -> Json:
        is_whole = len(within) == 1 + self.is_namespaced
        return {"fieldSelector": f"metadata.name={within[-1]}"} if is_whole else {}

    def _key_of(self, kind: Kind[object], found: Json) -> Key[object]:
        namespace = (_object_namespace(found),) if self.is_namespaced else ()
        return kind.key(*namespace, _object_name(found))

    def name_start(self, text: str) -> str | None:
        del text
        return None  # few records, which a list shows as well

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        del mode, key
        resource = resource_of(value)
        mapping = codec.to_mapping(resource)
        metadata = _object_member(mapping, "metadata")
        kept = {name: member for name, member in metadata.items() if name not in _SERVER_MANAGED_METADATA}
        attempt = resource.metadata.attempt
        if attempt:
            kept["annotations"] = {**_object_member(metadata, "annotations"), _ATTEMPT_ANNOTATION: attempt}
        mapping["metadata"] = kept
        return mapping

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        metadata = dict(_object_member(found, "metadata"))
        if mode is CrdMode.V1:
            metadata["uid"] = mirrored_uid(str(metadata.get("uid") or ""))
        annotations = dict(_object_member(metadata, "annotations"))
        attempt = annotations.pop(_ATTEMPT_ANNOTATION, "")
        metadata["annotations"] = annotations
        mapping = {**found, "kind": self.kind_name, "apiVersion": API_VERSION, "metadata": metadata}
        try:
            value = codec.from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
        except (ConfigurationError, RecursionError) as error:
            key = self._key_of(kind, found)
            part = codec.readable_part(key, _text_of_spec(found))
            raise Malformed(f"{kind} {'/'.join(key.path)}", str(error), subject=key, counts_as=part) from error
        if isinstance(attempt, str) and attempt:  # most resources were created without one
            value = evolve(value, metadata=evolve(value.metadata, attempt=attempt))
        return self._key_of(kind, found), value

    def find_key(self, kind: Kind[object], found: Json, condition: ValueCondition) -> Key[object] | None:
        del kind, found, condition
        return None  # no condition on them is known


def _object_member(found: Json, name: str) -> Json:
    value = found.get(name)
    return value if isinstance(value, Mapping) else {}


def _text_of_spec(found: Json) -> str:
    try:
        return json.dumps(found.get("spec"))
    except RecursionError:
        return ""


def _object_namespace(found: Json) -> str:
    return str(_object_member(found, "metadata").get("namespace") or "")


def _object_name(found: Json) -> str:
    return str(_object_member(found, "metadata").get("name") or "")


KIND_MAPPINGS: Mapping[str, KindMapping] = {
    "BGPConfiguration": _ResourceKindMapping(kind_name="BGPConfiguration"),
    "BGPFilter": _ResourceKindMapping(kind_name="BGPFilter"),
    "BGPPeer": _ResourceKindMapping(kind_name="BGPPeer"),
    "BlockAffinity": _IpamKindMapping(
        plural_name="blockaffinities",
        kind_name="BlockAffinity",
        name_of=lambda path: affinity_name(path[0], path[1], Prefix.parse(path[3])),
        encode_spec=_encode_affinity_spec,
        decode_spec=_decode_affinity_spec,
        path_length=4,
        labels=affinity_labels,
    ),
    "ClusterInformation": _ResourceKindMapping(kind_name="ClusterInformation"),
    "GlobalNetworkPolicy": _ResourceKindMapping(kind_name="GlobalNetworkPolicy"),
    "GlobalNetworkSet": _ResourceKindMapping(kind_name="GlobalNetworkSet"),
    "HostEndpoint": _ResourceKindMapping(kind_name="HostEndpoint"),
    "IPAMBlock": _IpamKindMapping(
        plural_name="ipamblocks",
        kind_name="IPAMBlock",
        name_of=lambda path: block_name(Prefix.parse(path[1])),
        encode_spec=_encode_block_spec,
        decode_spec=_decode_block_spec,
        path_length=2,
        name_start_of=block_name_start,
    ),
    "IPAMConfiguration": _ResourceKindMapping(
        kind_name="IPAMConfiguration", v1_plural="ipamconfigs", v1_kind="IPAMConfig"
    ),
    "IPAMHandle": _IpamKindMapping(
        plural_name="ipamhandles",
        kind_name="IPAMHandle",
        name_of=lambda path: handle_name(path[0]),
        encode_spec=_encode_handle_spec,
        decode_spec=_decode_handle_spec,
        path_length=1,
    ),
    "IPPool": _ResourceKindMapping(kind_name="IPPool"),
    "IPReservation": _ResourceKindMapping(kind_name="IPReservation"),
    "KubeControllersConfiguration": _ResourceKindMapping(kind_name="KubeControllersConfiguration"),
    "NetworkPolicy": _ResourceKindMapping(kind_name="NetworkPolicy", is_namespaced=True),
    "NetworkSet": _ResourceKindMapping(kind_name="NetworkSet", is_namespaced=True),
    "NodeConfiguration": _ResourceKindMapping(kind_name="NodeConfiguration"),
}
"""The kinds that are stored as custom objects, by name."""
