"""Names, paths, labels and API groups of the objects that hold records. Pure; every other module here may import it.

A name is made from a record's key and never parsed: the key is in the object's spec. No two records have the same
name (a property test checks that): a name that would be ambiguous, too long or invalid gets a hash.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from netplug_core.addressing import Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.names import API_VERSION, MAX_NAME_LENGTH, is_dns_subdomain, prefix_text_to_name

__all__ = [
    "AFFINITY_TYPE_LABEL", "API_DOMAIN", "HOST_HASH_LABEL", "IP_VERSION_LABEL", "NAMESPACES_PATH", "NODES_PATH",
    "PODS_PATH", "SERVICE_ACCOUNTS_PATH", "CrdMode", "affinity_labels", "affinity_name", "block_name", "handle_name",
    "host_hash_label", "namespace_path", "namespaced_path", "node_path", "path_segment", "pod_path",
]  # fmt: skip

API_DOMAIN: Final = API_VERSION.partition("/")[0]
"""The group of netplug's resources, and what its labels and annotations on other objects begin with."""

HOST_HASH_LABEL = f"{API_DOMAIN}/hostname-hash"
AFFINITY_TYPE_LABEL = f"{API_DOMAIN}/affinity-type"
IP_VERSION_LABEL = f"{API_DOMAIN}/ip-version"

PODS_PATH, NODES_PATH = "/api/v1/pods", "/api/v1/nodes"
NAMESPACES_PATH, SERVICE_ACCOUNTS_PATH = "/api/v1/namespaces", "/api/v1/serviceaccounts"
"""The collections of the whole cluster."""

_HASH_DIGITS = 11
_HANDLE_HASH_DIGITS = 16
_ENDS_IN_IPV6_GROUP = re.compile(r".*-[0-9a-f]{1,4}")
_ENDS_IN_HASH = re.compile(rf".*-[0-9a-f]{{{_HANDLE_HASH_DIGITS}}}")
_NOT_IN_LABELS = re.compile(r"[^a-z0-9]")


class CrdMode(enum.Enum):
    """The API group of the custom objects. A cluster keeps the one it began with."""

    V1 = f"crd.{API_DOMAIN}/v1"
    V3 = API_VERSION

    @property
    def group(self) -> str:
        """The group without its version."""
        return self.value.partition("/")[0]

    @classmethod
    def parse(cls, text: str) -> CrdMode:
        """The mode for a group from a configuration, with or without its version.

        Raises:
            ConfigurationError: the text names neither group.
        """
        for mode in cls:
            if text in (mode.value, mode.group):
                return mode
        accepted = f"{cls.V1.group} or {cls.V3.group} is expected"
        raise ConfigurationError("netplug_api_group", text, accepted)

    @classmethod
    def configured(cls, text: str) -> CrdMode | None:
        """The same; None if a configuration names no group, so that the cluster's is used."""
        return cls.parse(text) if text else None


def path_segment(text: str) -> str:
    """A name as one segment of a URL path; bytes outside UTF-8 are quoted as they came."""
    return quote(text, safe="", errors="surrogateescape")


def namespaced_path(namespace: str, plural: str) -> str:
    """The path of a collection in one namespace, such as its ``pods``."""
    return f"{namespace_path(namespace)}/{plural}"


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod."""
    return f"{namespaced_path(namespace, 'pods')}/{path_segment(name)}"


def namespace_path(name: str) -> str:
    """The path of a namespace."""
    return f"{NAMESPACES_PATH}/{path_segment(name)}"


def node_path(name: str) -> str:
    """The path of a node."""
    return f"{NODES_PATH}/{path_segment(name)}"


def block_name(prefix: Prefix) -> str:
    """The name of a block, such as ``10-0-0-0-26``."""
    return block_name_start(str(prefix))


def block_name_start(text: str) -> str:
    """How the names of all blocks begin whose prefixes, as texts, begin with a text."""
    name = prefix_text_to_name(text)
    # The name of ``::/64`` would begin with a dash. No other prefix has a name that begins with this zero.
    return f"0{name}" if name.startswith("-") else name


def affinity_name(owner_type: str, owner: str, prefix: Prefix) -> str:
    """The name of an affinity, such as ``node-a-10-0-0-0-26``; it ends in the owner's type unless that is a host."""
    block = block_name(prefix)
    suffix = "" if owner_type == "host" else f"-{owner_type}"
    name = f"{owner}-{block}{suffix}"
    if _is_name(name) and not _is_ambiguous(owner, prefix):
        return name
    digest = hashlib.sha256(f"{owner}+{block}{suffix}".encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]
    max_head = MAX_NAME_LENGTH - 3 - len(block) - len(digest) - len(suffix)
    head = _name_start(owner)[:max_head].rstrip("-.") or "x"
    return f"{head}-{block}-{digest}{suffix}"


def handle_name(handle_id: str) -> str:
    """The name of a handle: its id if that is a valid name, else the start of the id and a hash of the whole id."""
    if _is_name(handle_id) and not _ENDS_IN_HASH.fullmatch(handle_id):
        return handle_id
    digest = hashlib.sha256(handle_id.encode("utf-8", "surrogateescape")).hexdigest()[:_HANDLE_HASH_DIGITS]
    head = _name_start(handle_id)[: MAX_NAME_LENGTH - 1 - len(digest)].rstrip("-.") or "x"
    return f"{head}-{digest}"


def host_hash_label(owner: str) -> str:
    """The hash of an owner's name: a label value may be much shorter than a name."""
    return base64.b32encode(hashlib.sha3_256(owner.encode("utf-8", "surrogateescape")).digest()).decode().rstrip("=")


def affinity_labels(path: tuple[str, ...]) -> Mapping[str, str]:
    """The labels of the affinities whose paths begin so: type, owner and family, as many as the path has."""
    kind, owner, family = (*path, "", "", "")[:3]
    labels = {AFFINITY_TYPE_LABEL: kind}
    if owner:
        labels[HOST_HASH_LABEL] = host_hash_label(owner)
    if family:
        labels[IP_VERSION_LABEL] = family.removeprefix("ipv")
    return labels if kind else {}


def _is_name(text: str) -> bool:
    return len(text) < MAX_NAME_LENGTH and is_dns_subdomain(text)


def _is_ambiguous(owner: str, prefix: Prefix) -> bool:
    # "a-fd00" with "1::/64" and "a" with "fd00:1::/64" have the same plain name.
    return prefix.family is Family.IPV6 and _ENDS_IN_IPV6_GROUP.fullmatch(owner) is not None


def _name_start(text: str) -> str:
    """A text changed so that a name can begin with it."""
    return text if is_dns_subdomain(text) else _NOT_IN_LABELS.sub("-", text.lower()).lstrip("-")
