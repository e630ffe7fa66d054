"""Every derived name (endpoints, handles, interfaces, hardware addresses, status files) and the shared constants.

Pure functions with known vectors: other programs compute the same names, so nothing in them is random. ``workload``
calls them for a CNI call, the layouts of datastores for their objects. Programs beside netplug search endpoints by
name (``endpoint_name_prefix``, ``matches_endpoint_name``) and find status files (``endpoint_status_file_name``);
``docs/library.md`` shows how.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
from attrs import frozen

from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError, excerpt, quote

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = [
    "API_VERSION", "DEFAULT_INTERFACE", "DEFAULT_NETWORK", "HOST_INTERFACE_PREFIX", "HOST_MAC",
    "KUBERNETES_ORCHESTRATOR", "LAB_LABEL", "MANAGED_BY", "MAX_NAME_LENGTH", "NO_ORCHESTRATOR", "POLICY_TABLE",
    "RESOURCE_DOMAIN", "STORED_ANNOTATIONS", "HostInterfaceAlias", "InvalidName", "WorkloadEndpointIdentifiers",
    "attachment_lock_offset", "container_mac", "encode_segment", "endpoint_labels", "endpoint_name",
    "endpoint_name_prefix", "endpoint_status_file_name", "former_host_interface_name", "handle_id",
    "host_interface_alias", "host_interface_name", "is_cni_name", "is_dns_subdomain", "is_resource_name",
    "label_value", "matches_endpoint_name", "orchestrator_of", "parse_endpoint_name", "prefix_text_to_name",
    "prefix_to_name", "require_node_name", "workload_endpoint_name",
]  # fmt: skip

RESOURCE_DOMAIN = "projectnetplug.org"
"""The domain of netplug's resources, labels and annotations."""

API_VERSION = f"{RESOURCE_DOMAIN}/v3"
"""The API version of every resource, as documents and stored objects spell it."""

POLICY_TABLE = "netplug"
"""The table of policy in the packet filter."""

HOST_INTERFACE_PREFIX = "netp"
"""What the name of every host end begins with: four characters, so that eleven of a hash fit behind them."""

HOST_MAC = "ee:ee:ee:ee:ee:ee"
"""The hardware address of every host end.

A container may cache its next hop's address for ever, and the IPv6 link-local address follows from it.
"""

MANAGED_BY = ("app.kubernetes.io/managed-by", "netplug-operator")
"""The label of what the operator made, and may change and delete."""

LAB_LABEL = f"{RESOURCE_DOMAIN}/lab"
"""The label, with the lab's uid, of everything that a lab stores on servers that it did not start."""

MAX_NAME_LENGTH = 253
"""Characters in the name of a resource (a DNS subdomain, RFC 1123)."""

DEFAULT_INTERFACE = "eth0"
DEFAULT_NETWORK = "k8s-pod-network"
"""The name of the network in the configuration that comes with netplug; handles begin with it."""

"""The name that a runtime gives to a container's first interface."""

KUBERNETES_ORCHESTRATOR = "k8s"
"""The orchestrator of a pod, in the names and records of endpoints."""

STORED_ANNOTATIONS = ("podIP", "podIPs", "containerID")
"""The annotations in which a pod's endpoint is stored, without their prefix. They request nothing."""

NO_ORCHESTRATOR = "cni"
"""What stands in its place for a container that no orchestrator named."""

_SEGMENTS = 4
_MAX_LABEL_VALUE_LENGTH = 63
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NOT_IN_LABEL_VALUES = re.compile(r"[^A-Za-z0-9_.-]")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_CNI_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ENDS_IN_LABEL_HASH = re.compile(r".*_[0-9a-f]{16}", re.DOTALL)
_ESCAPED = "--"
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
_NAME_DIGITS, _ALIAS_DIGITS = 11, 26
_ALIAS_START = "netplug"
_MAX_ALIAS_BYTES = 255
_LETTERS_DIGITS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_UNESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+:=@")


@frozen
class InvalidName(ConfigurationError):
    """A part that a name cannot be made of; ``where`` is which one."""

    def __str__(self) -> str:
        return f"{excerpt(self.where)}: {self.accepted} (it is {quote(self.value)})"


@frozen(kw_only=True)
class WorkloadEndpointIdentifiers:
    """The parts of an endpoint's name; an empty one is not known."""

    node: str = ""
    orchestrator: str = ""
    pod: str = ""
    container_id: str = ""
    workload: str = ""
    endpoint: str = ""

    @property
    def segments(self) -> tuple[tuple[str, str], ...]:
        """The four parts of the name in their order, each with the field it comes from."""
        third = {
            KUBERNETES_ORCHESTRATOR: ("pod", self.pod),
            NO_ORCHESTRATOR: ("containerID", self.container_id),
            "libnetwork": ("workload", "libnetwork"),
        }.get(self.orchestrator, ("workload", self.workload))
        return (("node", self.node), ("orchestrator", self.orchestrator), third, ("endpoint", self.endpoint))


def orchestrator_of(*, pod_namespace: str, pod: str) -> str:
    """Who schedules a workload: Kubernetes if the runtime names a pod and its namespace, else no orchestrator."""
    return KUBERNETES_ORCHESTRATOR if pod_namespace and pod else NO_ORCHESTRATOR


def endpoint_name(identity: WorkloadEndpointIdentifiers) -> str:
    """The name of an endpoint: its four parts, every dash in them doubled, joined by single dashes.

    Raises:
        InvalidName: a part is empty, or begins or ends with a dash.
    """
    return "-".join(_escape_dashes(field, text) for field, text in identity.segments)


def endpoint_name_prefix(identity: WorkloadEndpointIdentifiers) -> str:
    """What the names of all endpoints with the known parts begin with: a filter, no proof.

    It ends before the first unknown part; the node must be known. ``pod-`` also begins the names of ``pod-1``.

    Raises:
        InvalidName: the node is empty, or a part begins or ends with a dash.
    """
    if not identity.node:
        raise InvalidName("node", "", "field should be assigned")
    parts: list[str] = []
    for field, text in identity.segments:
        if not text:
            return "-".join(parts) + "-"
        parts.append(_escape_dashes(field, text))
    return "-".join(parts)


def matches_endpoint_name(identity: WorkloadEndpointIdentifiers, name: str) -> bool:
    """Whether a name has exactly four parts and each known one is equal."""
    parts = _split_endpoint_name(name)
    if len(parts) != _SEGMENTS:
        return False
    return all(not text or text == part for (_field, text), part in zip(identity.segments, parts, strict=True))


def parse_endpoint_name(name: str) -> WorkloadEndpointIdentifiers:
    """The parts of a name, as many as there are. A plain pod name may parse too: never recognise names by this.

    Raises:
        InvalidName: the text is empty or has more than four parts.
    """
    parts = _split_endpoint_name(name)
    if not name or len(parts) > _SEGMENTS:
        raise InvalidName(
            "endpoint name", name, "node, orchestrator, workload and endpoint joined by dashes are expected"
        )
    node, orchestrator, third, endpoint = (*parts, "", "", "")[:_SEGMENTS]
    return WorkloadEndpointIdentifiers(
        node=node,
        orchestrator=orchestrator,
        pod=third if orchestrator == KUBERNETES_ORCHESTRATOR else "",
        container_id=third if orchestrator == NO_ORCHESTRATOR else "",
        workload=third if orchestrator not in (KUBERNETES_ORCHESTRATOR, NO_ORCHESTRATOR) else "",
        endpoint=endpoint,
    )


def workload_endpoint_name(identity: WorkloadEndpointIdentifiers) -> str:
    """The resource name of an endpoint, for all texts that the CNI specification allows.

    Parts that a resource name cannot hold are encoded; a name that would be too long ends in a hash instead.
    """
    encoded = WorkloadEndpointIdentifiers(
        node=encode_segment(identity.node),
        orchestrator=identity.orchestrator,
        pod=encode_segment(identity.pod),
        container_id=encode_segment(identity.container_id),
        workload=encode_segment(identity.workload),
        endpoint=encode_segment(identity.endpoint),
    )
    name = endpoint_name(encoded)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = _sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1].rstrip('-.')}-{digest}"


def encode_segment(text: str) -> str:
    """A text as part of a resource name: itself where it can be, else what is left of it and a hash of all of it."""
    if not text or is_dns_subdomain(text):
        return text
    kept = "".join(character if character in _LETTERS_DIGITS else "-" for character in text.lower()).strip("-")
    digest = _sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{kept}-{digest}" if kept else digest


def handle_id(network: str, container_id: str, interface: str) -> str:
    """The handle of one attachment: ``network.container`` for eth0, ``network.container.interface`` for any other.

    If other parts could give the same text, because a part has a dot in it (or the interface a tilde), ``~`` and 8
    digits of a hash of the three parts follow.
    """
    is_default = interface == DEFAULT_INTERFACE
    text = f"{network}.{container_id}" if is_default else f"{network}.{container_id}.{interface}"
    is_plain = "." not in network + container_id and (is_default or not set(interface) & set(".~"))
    if is_plain:
        return text
    # A NUL cannot occur in any of the three.
    triple = f"{network}\0{container_id}\0{interface}".encode("utf-8", "surrogateescape")
    return f"{text}~{_sha256(triple).hexdigest()[:8]}"


def host_interface_name(*, pod_namespace: str, pod: str, container_id: str, ifname: str) -> str:
    """The name of an interface's host end: ``netp`` and the first 11 characters of a SHA-256 in lower-case base32.

    Hashed is ``namespace/pod/interface`` where both are known, else ``/container/interface``; a ``/`` or ``%`` in a
    part is percent-encoded, so no text can be read two ways. 55 bits can collide: whose an interface is, its alias
    says.
    """
    parts = (pod_namespace, pod, ifname) if pod_namespace and pod else ("", container_id, ifname)
    text = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    return f"{HOST_INTERFACE_PREFIX}{_base32_digest(text, _NAME_DIGITS)}"


def former_host_interface_name(*, pod_namespace: str, pod: str, container_id: str, ifname: str) -> str:
    """The name that a host end had before it had an alias: DEL recognises such an interface by it.

    Hashed is ``namespace.pod`` where both are known, else the container's id; ``.interface`` follows unless it is eth0.
    """
    text = f"{pod_namespace}.{pod}" if pod_namespace and pod else container_id
    if ifname != DEFAULT_INTERFACE:
        text = f"{text}.{ifname}"
    from hashlib import sha1  # as for SHA-256

    digest = sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
    return f"{HOST_INTERFACE_PREFIX}{digest[:11]}"


@frozen(kw_only=True)
class HostInterfaceAlias:
    """Whose a host end is, in the words of its alias: ``netplug ATTACHMENT WORKLOAD TEXT``.

    ``attachment`` is a hash of network, container and interface, ``workload`` one of namespace, pod and interface (of
    the container without a pod). ``text`` is for people: it is not compared.
    """

    attachment: str
    workload: str
    text: str = attrs.field(default="", eq=False)

    def __str__(self) -> str:
        """The alias, cut at the 255 bytes that the kernel keeps."""
        whole = f"{_ALIAS_START} {self.attachment} {self.workload} {self.text}".encode("utf-8", "replace")
        return whole[:_MAX_ALIAS_BYTES].decode("utf-8", "ignore").rstrip()

    @classmethod
    def parse(cls, alias: str) -> HostInterfaceAlias | None:
        """What an alias says; None for any text that is not netplug's."""
        start, attachment, workload, text = (*alias.split(" ", 3), "", "", "", "")[:4]
        if start != _ALIAS_START or not _is_alias_digest(attachment) or not _is_alias_digest(workload):
            return None
        return cls(attachment=attachment, workload=workload, text=text)


def host_interface_alias(
    *, network: str, container_id: str, ifname: str, pod_namespace: str, pod: str
) -> HostInterfaceAlias:
    """The alias of an interface's host end."""
    # A NUL cannot occur in any of the parts.
    attachment, workload, owner = f"{network}\0{container_id}\0{ifname}", f"\0{container_id}\0{ifname}", "container"
    if pod_namespace and pod:
        workload, owner = f"{pod_namespace}\0{pod}\0{ifname}", f"{pod_namespace}/{pod}, container"
    return HostInterfaceAlias(
        attachment=_base32_digest(attachment, _ALIAS_DIGITS),
        workload=_base32_digest(workload, _ALIAS_DIGITS),
        text=f"{ifname} of {owner} {container_id}, network {network}",
    )


def attachment_lock_offset(network: str, container_id: str, interface: str) -> int:
    """The byte of the lock file that stands for one attachment: 1 and 62 bits of a SHA-256 of the three parts."""
    triple = f"{network}\0{container_id}\0{interface}".encode("utf-8", "surrogateescape")
    return 1 + (int.from_bytes(_sha256(triple).digest()[:8], "big") >> 2)


def container_mac(handle: str) -> str:
    """The hardware address of a container's end: derived from its handle, unicast and locally administered."""
    digits = bytearray(_sha256(handle.encode("utf-8", "surrogateescape")).digest()[:6])
    digits[0] = digits[0] & 0xFC | 0x02
    return digits.hex(":")


def endpoint_status_file_name(orchestrator: str, workload: str, endpoint: str) -> str:
    """The file in which the node process says that an endpoint is programmed: three parts, percent-encoded."""
    return " ".join(_percent_encode(part) for part in (orchestrator, workload, endpoint))


def prefix_to_name(prefix: Prefix) -> str:
    """A prefix as (part of) a resource name: ``10.0.0.0/26`` as ``10-0-0-0-26``."""
    return prefix_text_to_name(str(prefix))


def prefix_text_to_name(text: str) -> str:
    """The text of a prefix, or the beginning of one, as in ``prefix_to_name``."""
    return text.replace(".", "-").replace(":", "-").replace("/", "-")


def _sha256(data: bytes) -> _Hash:
    from hashlib import sha256  # it loads OpenSSL; a command that only reads computes no name

    return sha256(data)


def _base32_digest(text: str, length: int) -> str:
    """The first characters of a SHA-256 in lower-case base32. Source: RFC 4648, section 6."""
    digest = _sha256(text.encode("utf-8", "surrogateescape")).digest()
    number = int.from_bytes(digest, "big")
    return "".join([_BASE32[number >> shift & 31] for shift in range(251, 251 - 5 * length, -5)])


def _is_alias_digest(text: str) -> bool:
    return len(text) == _ALIAS_DIGITS and set(text) <= set(_BASE32)


def _escape_dashes(field: str, text: str) -> str:
    if not text:
        raise InvalidName(field, text, "field should be assigned")
    if text.startswith("-"):
        raise InvalidName(field, text, "field must not begin with a '-'")
    if text.endswith("-"):
        raise InvalidName(field, text, "field must not end with a '-'")
    return text.replace("-", _ESCAPED)


def _split_endpoint_name(name: str) -> tuple[str, ...]:
    """The unescaped parts of a name; a single dash separates, a double one stands for a dash."""
    parts, current, position = list[str](), name[:1], 1
    while position < len(name):
        if name.startswith(_ESCAPED, position):
            current, position = current + "-", position + 2
        elif name[position] == "-":
            parts.append(current)
            current, position = "", position + 1
        else:
            current, position = current + name[position], position + 1
    return (*parts, current)


def label_value(text: str) -> str:
    """A text as the value of a label: itself if the API accepts it, else its start, ``_`` and a hash of all of it.

    The API accepts at most 63 letters, digits, ``-``, ``_`` and ``.`` between letters or digits, or nothing. A text
    that could be taken for a hashed one is hashed too, so different texts have different values.
    """
    is_short = len(text) <= _MAX_LABEL_VALUE_LENGTH
    if not text or (is_short and _LABEL_VALUE.fullmatch(text) and not _ENDS_IN_LABEL_HASH.fullmatch(text)):
        return text
    digest = _sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    start = _NOT_IN_LABEL_VALUES.sub("-", text).lstrip("_.-")[: _MAX_LABEL_VALUE_LENGTH - 1 - len(digest)]
    return f"{start or 'x'}_{digest}"


def is_cni_name(text: str) -> bool:
    """Whether a network or a container may be called that.

    Source: CNI specification, "Network configuration format" and "Parameters".
    """
    return _CNI_NAME.fullmatch(text) is not None


def endpoint_labels(
    *, namespace: str, orchestrator: str, service_account: str = "", workload: tuple[tuple[str, str], ...] = ()
) -> tuple[tuple[str, str], ...]:
    """The labels of an endpoint: its workload's, and over them netplug's own, sorted.

    An account whose name is as long as a label may be, or longer, has no label. Nor has the workload's own label of
    that name a meaning: policies select by it.
    """
    account = service_account if len(service_account) < _MAX_LABEL_VALUE_LENGTH else ""
    own = {"namespace": namespace, "orchestrator": orchestrator, "serviceaccount": account}
    named = {f"{RESOURCE_DOMAIN}/{name}": value for name, value in own.items()}
    others = {name: value for name, value in workload if name not in named}
    return tuple(sorted({**others, **{name: label_value(value) for name, value in named.items() if value}}.items()))


def is_dns_subdomain(text: str) -> bool:
    """Whether a text is lower-case letters, digits and ``-`` between dots (a DNS subdomain, RFC 1123), however long."""
    return _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_resource_name(text: str) -> bool:
    """Whether a resource, or an object of the orchestrator's, may be called that."""
    return len(text) <= MAX_NAME_LENGTH and is_dns_subdomain(text)


def require_node_name(source: str, name: str) -> str:
    """The name of a node, if it is one: a DNS subdomain in lower case. ``source`` says where it comes from.

    Source: RFC 1123, as for the names of Kubernetes' nodes.

    Raises:
        ConfigurationError: it is none, such as a placeholder that was never filled in.
    """
    if is_resource_name(name):
        return name
    accepted = "the name of a node is expected: lower-case letters, digits, '-' and '.' (RFC 1123)"
    if is_resource_name(name.lower()):
        accepted = f"names of nodes are in lower case: {quote(name.lower())} is expected"
    raise ConfigurationError(source, name, accepted)


def _percent_encode(text: str) -> str:
    return "".join(
        chr(byte) if chr(byte) in _UNESCAPED else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape")
    )
