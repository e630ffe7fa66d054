"""How records are spelled as custom objects, in both groups of them. Pure; ``objects`` keeps what is made here.

The allocator's records get the shape that the cluster's other tools know them by: camel case, and with cidr, owner
and id in the spec, because names are never read back. The user's kinds are what ``resources.codec`` makes of them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from attrs import frozen

from netplug_backends.kubernetes.names import affinity_labels, affinity_name, block_name, handle_name
from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.records import Key, Kind, Malformed

__all__ = ["KIND_MAPPINGS", "CrdMode", "Json", "KindMapping", "is_deleted", "mirrored_uid"]

Json = Mapping[str, object]

_API_VERSION = "projectnetplug.org/v3"
_VERSION_AND_VARIANT_BYTES = (6, 8)  # of a uid: they say its version and variant
# What the server keeps about an object, in its own words.
_SERVER_MANAGED_METADATA = (
    "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields", "selfLink",
    "deletionGracePeriodSeconds",
)  # fmt: skip


class CrdMode(enum.Enum):
    """Which group the custom objects are in; a cluster keeps the one that it began with (spec 9.3)."""

    V1 = "crd.projectnetplug.org/v1"
    V3 = "projectnetplug.org/v3"

    @property
    def group(self) -> str:
        """The group without its version."""
        return self.value.partition("/")[0]

    @classmethod
    def parse(cls, text: str) -> CrdMode:
        """The mode of a group that a person wrote, with or without its version.

        Raises:
            ConfigurationError: it is neither.
        """
        for mode in cls:
            if text in (mode.value, mode.group):
                return mode
        accepted = f"{cls.V1.group} or {cls.V3.group} is expected"
        raise ConfigurationError("netplug_api_group", text, accepted)


class KindMapping(Protocol):
    """How one kind is spelled."""

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        """The word in the objects' path."""
        ...

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        """What the objects say they are."""
        ...

    @property
    def has_own_metadata(self) -> bool:
        """Whether values hold their object's metadata; what others wrote there is otherwise kept for them."""
        ...

    def name(self, path: tuple[str, ...]) -> str:
        """The name of the object with the whole path."""
        ...

    def list_parameters(self, within: tuple[str, ...]) -> Json:
        """The parameters of a list of what begins with that path; it may find more."""
        ...

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        """The members of the object but its kind and name."""
        ...

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        """The record that an object is.

        Raises:
            Malformed: it is none.
        """
        ...


def is_deleted(mapping: KindMapping, found: Json) -> bool:
    """Whether a record counts as gone while its object is there.

    Another program deletes in two steps, and has not come to the second; or it was deleted, and waits for those whose
    finalizers it has. A kind of the user's says itself that it is going.
    """
    if _object_member(found, "spec").get("deleted") in (True, "true"):
        return True
    return not mapping.has_own_metadata and bool(_object_member(found, "metadata").get("deletionTimestamp"))


def mirrored_uid(uid: str) -> str:
    """The uid with the bits of each byte reversed, but for the two that say what sort of uid it is.

    Custom objects show it in v1 mode, so that they can be told from the ones that a server in front of them makes of
    them. Mirrored twice it is itself; what is no uid stays as it is.
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
    """A record of the allocator: the core's JSON in the spec, spelled otherwise."""

    plural_name: str
    kind_name: str
    name_of: Callable[[tuple[str, ...]], str]
    encode_spec: Callable[[CrdMode, Key[object], dict[str, object]], dict[str, object]]
    decode_spec: Callable[[dict[str, object]], tuple[tuple[str, ...], dict[str, object]]]
    path_length: int
    labels: Callable[[tuple[str, ...]], Mapping[str, str]] = lambda _path: {}

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        return dict.fromkeys(CrdMode, self.plural_name)

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        return dict.fromkeys(CrdMode, self.kind_name)

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

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        from netplug_core.encoding.ipam import to_mapping

        spec = self.encode_spec(mode, key, to_mapping(value))
        labels = self.labels(key.path)
        return {"metadata": {"labels": dict(labels)} if labels else {}, "spec": spec}

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        from netplug_core.encoding.ipam import from_mapping

        del mode
        spec = _object_member(found, "spec")
        try:
            path, mapping = self.decode_spec(dict(spec))
            return kind.key(*path), from_mapping(kind, mapping)
        except (ValueError, KeyError, RecursionError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise Malformed(f"{kind} {_object_name(found)}", problem) from error


_BLOCK_FIELD_NAMES = {"affinity_claim_time": "affinityClaimTime"}


def _encode_block_spec(mode: CrdMode, _key: Key[object], mapping: dict[str, object]) -> dict[str, object]:
    spec = {_BLOCK_FIELD_NAMES.get(name, name): value for name, value in mapping.items() if value is not None}
    # A schema has no place for nulls in an object; reading takes what is not there for one.
    attributes = cast("list[dict[str, object]]", mapping["attributes"])
    spec["attributes"] = [
        {name: value for name, value in attribute.items() if value is not None} for attribute in attributes
    ]
    spec["deleted"] = False
    if mode is CrdMode.V1:
        spec["strictAffinity"] = False  # nothing reads it any more; its schema required it once
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
    """A kind of the user's: what ``resources.codec`` makes of it."""

    plural_name: str
    kind_name: str
    v1_plural: str = ""
    v1_kind: str = ""

    @property
    def plural(self) -> Mapping[CrdMode, str]:
        return {CrdMode.V1: self.v1_plural or self.plural_name, CrdMode.V3: self.plural_name}

    @property
    def object_kind(self) -> Mapping[CrdMode, str]:
        return {CrdMode.V1: self.v1_kind or self.kind_name, CrdMode.V3: self.kind_name}

    @property
    def has_own_metadata(self) -> bool:
        return True

    def name(self, path: tuple[str, ...]) -> str:
        return path[-1]

    def list_parameters(self, within: tuple[str, ...]) -> Json:
        return {"fieldSelector": f"metadata.name={within[-1]}"} if within else {}

    def encode(self, mode: CrdMode, key: Key[object], value: object) -> dict[str, object]:
        from netplug_core.resources.codec import to_mapping
        from netplug_core.resources.kinds import Resource

        del mode, key
        mapping = to_mapping(cast("Resource", value))
        metadata = cast("Json", mapping["metadata"])
        mapping["metadata"] = {name: said for name, said in metadata.items() if name not in _SERVER_MANAGED_METADATA}
        return mapping

    def decode(self, mode: CrdMode, kind: Kind[object], found: Json) -> tuple[Key[object], object]:
        from netplug_core.resources.codec import DocumentOrigin, from_mapping

        metadata = dict(_object_member(found, "metadata"))
        if mode is CrdMode.V1:
            metadata["uid"] = mirrored_uid(str(metadata.get("uid") or ""))
        mapping = {**found, "kind": self.kind_name, "apiVersion": _API_VERSION, "metadata": metadata}
        try:
            return kind.key(_object_name(found)), from_mapping(mapping, origin=DocumentOrigin.DATASTORE, kind=kind)
        except (ConfigurationError, RecursionError) as error:
            raise Malformed(f"{kind} {_object_name(found)}", str(error)) from error


def _object_member(found: Json, name: str) -> Json:
    value = found.get(name)
    return cast("Json", value) if isinstance(value, Mapping) else {}


def _object_name(found: Json) -> str:
    return str(_object_member(found, "metadata").get("name") or "")


KIND_MAPPINGS: Mapping[str, KindMapping] = {
    "BlockAffinity": _IpamKindMapping(
        plural_name="blockaffinities",
        kind_name="BlockAffinity",
        name_of=lambda path: affinity_name(path[0], path[1], Prefix.parse(path[3])),
        encode_spec=_encode_affinity_spec,
        decode_spec=_decode_affinity_spec,
        path_length=4,
        labels=affinity_labels,
    ),
    "ClusterInformation": _ResourceKindMapping(plural_name="clusterinformations", kind_name="ClusterInformation"),
    "IPAMBlock": _IpamKindMapping(
        plural_name="ipamblocks",
        kind_name="IPAMBlock",
        name_of=lambda path: block_name(Prefix.parse(path[1])),
        encode_spec=_encode_block_spec,
        decode_spec=_decode_block_spec,
        path_length=2,
    ),
    "IPAMConfiguration": _ResourceKindMapping(
        plural_name="ipamconfigurations",
        kind_name="IPAMConfiguration",
        v1_plural="ipamconfigs",
        v1_kind="IPAMConfig",
    ),
    "IPAMHandle": _IpamKindMapping(
        plural_name="ipamhandles",
        kind_name="IPAMHandle",
        name_of=lambda path: handle_name(path[0]),
        encode_spec=_encode_handle_spec,
        decode_spec=_decode_handle_spec,
        path_length=1,
    ),
    "IPPool": _ResourceKindMapping(plural_name="ippools", kind_name="IPPool"),
    "IPReservation": _ResourceKindMapping(plural_name="ipreservations", kind_name="IPReservation"),
}
"""The kinds that are kept as custom objects, by their names."""
