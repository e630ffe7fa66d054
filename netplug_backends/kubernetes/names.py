"""What records are called as objects of the API, and the labels that they are listed by. Pure.

Names are only ever made, never read back: what a record is about stands in its spec. No two records share a name,
which the property tests hold; where a plain name would be ambiguous, too long or no name at all, a hash tells it apart.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping

from netplug_core.addressing import Family, Prefix
from netplug_core.names import MAX_NAME_LENGTH, is_dns_subdomain, prefix_to_name

__all__ = [
    "AFFINITY_TYPE_LABEL",
    "HOST_HASH_LABEL",
    "IP_VERSION_LABEL",
    "affinity_labels",
    "affinity_name",
    "block_name",
    "handle_name",
    "host_hash_label",
]

HOST_HASH_LABEL = "projectnetplug.org/hostname-hash"
AFFINITY_TYPE_LABEL = "projectnetplug.org/affinity-type"
IP_VERSION_LABEL = "projectnetplug.org/ip-version"

_HASH_DIGITS = 11
_HANDLE_HASH_DIGITS = 16
_ENDS_IN_IPV6_GROUP = re.compile(r".*-[0-9a-f]{1,4}")
_ENDS_IN_HASH = re.compile(rf".*-[0-9a-f]{{{_HANDLE_HASH_DIGITS}}}")
_NOT_IN_LABELS = re.compile(r"[^a-z0-9]")


def block_name(prefix: Prefix) -> str:
    """The name of a block: ``10-0-0-0-26``."""
    name = prefix_to_name(prefix)
    # ``::/64`` would begin with a dash; no other prefix is spelled with the zero that is put before it.
    return f"0{name}" if name.startswith("-") else name


def affinity_name(owner_type: str, owner: str, prefix: Prefix) -> str:
    """The name of an owner's claim on a block: ``node-a-10-0-0-0-26``; of one that is no host it ends in its type."""
    block = block_name(prefix)
    ending = "" if owner_type == "host" else f"-{owner_type}"
    name = f"{owner}-{block}{ending}"
    if _is_name(name) and not _is_ambiguous(owner, prefix):
        return name
    digest = hashlib.sha256(f"{owner}+{block}{ending}".encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]
    room = MAX_NAME_LENGTH - 3 - len(block) - len(digest) - len(ending)
    head = _name_start(owner)[:room].rstrip("-.") or "x"
    return f"{head}-{block}-{digest}{ending}"


def handle_name(handle_id: str) -> str:
    """The name of a handle: its id where that is a name, else what a name can hold of it and a hash of all of it."""
    if _is_name(handle_id) and not _ENDS_IN_HASH.fullmatch(handle_id):
        return handle_id
    digest = hashlib.sha256(handle_id.encode("utf-8", "surrogateescape")).hexdigest()[:_HANDLE_HASH_DIGITS]
    head = _name_start(handle_id)[: MAX_NAME_LENGTH - 1 - len(digest)].rstrip("-.") or "x"
    return f"{head}-{digest}"


def host_hash_label(owner: str) -> str:
    """An owner's name as the value of a label, which may be much shorter than a name."""
    return base64.b32encode(hashlib.sha3_256(owner.encode("utf-8", "surrogateescape")).digest()).decode().rstrip("=")


def affinity_labels(path: tuple[str, ...]) -> Mapping[str, str]:
    """The labels of the affinities whose keys begin with that path: type, owner and family, as far as it goes."""
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
    # "a-fd00" and "1::/64" spell the name of "a" and "fd00:1::/64".
    return prefix.family is Family.IPV6 and _ENDS_IN_IPV6_GROUP.fullmatch(owner) is not None


def _name_start(text: str) -> str:
    """A text as far as it can begin a name."""
    return text if is_dns_subdomain(text) else _NOT_IN_LABELS.sub("-", text.lower()).lstrip("-")
