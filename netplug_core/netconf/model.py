"""The network configuration: its values and members, and how :func:`load` makes them of the JSON object of a runtime.

Defaults are filled in, deprecated keys folded, values checked. String booleans exist only in the codecs of members.
Empty texts and tuples mean not set. The executables call ``load`` once for a call. A DEL or GC must not fail because of
a setting that it does not use. So ``LoadPurpose.TEARDOWN`` reads only the keys that a teardown uses, of the named
datastore only those that lead to it, and a value outside its set counts as not set. ``LoadPurpose.COLLECTION`` reads
besides them the keys of GC alone. A setting that does not work yet is no error here: ADD and STATUS refuse it, the
other commands do not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.addressing import Address, Prefix
from netplug_core.cni.dispatch import CNICommand, Plugin
from netplug_core.decoding.codecs import (
    BOOLEAN,
    HTTP_URL,
    INTEGER,
    NONEMPTY_STRING,
    OBJECT,
    REQUESTED_ADDRESS,
    STRING,
    STRING_MAP,
    Codec,
    Refused,
    WrongType,
    choice_of,
    exactly,
    number_in,
)
from netplug_core.decoding.tables import (
    Decoder,
    Field,
    ListOf,
    Table,
    cni_error,
    declared_table,
    find_member,
    items_of,
    json_object,
    member,
)
from netplug_core.errors import REDACTED, ConfigurationError, NotYetSupported, redact_url_credentials, redacted_repr
from netplug_core.log import Level, LogSettings
from netplug_core.names import HOST_MAC, RESOURCE_DOMAIN, label_value
from netplug_core.settings.model import (
    ALL_DATASTORE_KEYS,
    DATASTORE_KEYS,
    DEPRECATED_KEYS,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    KUBERNETES_NETCONF_KEYS,
    DatastoreSettings,
    netconf_tables,
)

__all__ = [
    "ARGUMENT_IPS", "AT_LEAST_ZERO", "BLOCK_IPAM", "BOOLEAN_OR_TEXT", "HOST_LOCAL_IPAM", "KEYS_OF_IPAM", "LEVEL",
    "LINUX_DATAPLANE", "MAX_MTU", "MAX_QUEUES", "RUNTIME_IPS", "ContainerLabel", "ContainerSettings",
    "FeatureControl", "IPAMConfig", "LoadPurpose", "NetConf", "Requested", "RequestedAddress", "RuntimeParameters",
    "load", "netconf_decoder", "parse_mac",
]  # fmt: skip


# --- model -----------------------------------------------------------------------------------------------------------


BLOCK_IPAM = "netplug-ipam"
"""The ``ipam.type`` whose addresses come from pools."""

HOST_LOCAL_IPAM = "host-local"
"""The ``ipam.type`` whose addresses come from ranges of one host."""

LINUX_DATAPLANE = "linux"
"""The dataplane that makes interfaces with the kernel's own means."""

MAX_MTU = 0xFFFF
MAX_QUEUES = 4096  # the kernel refuses more for any link


# --- values of members ------------------------------------------------------------------------------------------------


_LEVELS: Final = {
    "ERROR": Level.ERROR,
    "WARNING": Level.WARNING,
    "WARN": Level.WARNING,
    "INFO": Level.INFO,
    "DEBUG": Level.DEBUG,
}


_NAMESPACE_LABEL: Final = f"{RESOURCE_DOMAIN}/namespace"


def _read_level(value: object) -> Level | None:
    text = STRING.decode(value)
    level = _LEVELS.get(text.upper()) if text.isascii() else None
    if text and level is None:
        raise Refused("ERROR, WARNING, INFO and DEBUG are accepted")
    return level


def _read_string_boolean(value: object) -> bool | None:
    """A key whose value is the *string* true or false."""
    text = STRING.decode(value)
    if text not in ("", "true", "false"):
        raise Refused('the string "true" or "false" is expected')
    return text == "true" if text else None


def _read_boolean_or_text(value: object) -> bool:
    """A key of the list, which runtimes take as a boolean or as its text in any case."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return BOOLEAN.decode(value)


def _read_plugin_name(value: object) -> str:
    name = "" if value is None else STRING.decode(value)
    if not name or "/" in name or name == "netplug":
        raise Refused("the name of an IPAM plugin is expected, such as netplug-ipam", value=name)
    return name


def _read_queues(value: object) -> int:
    queues = max(INTEGER.decode(value), 1)
    if queues > MAX_QUEUES:
        raise Refused(f"at most {MAX_QUEUES} are possible")
    return queues


def _read_route(value: object) -> Prefix | None:
    """The destination of a route; its gateway is ignored, as the next hop is always the same."""
    text = find_member(OBJECT.decode(value), "dst")
    try:
        return Prefix.parse(STRING.decode(text)) if text else None
    except WrongType:
        raise
    except ValueError as error:
        raise Refused(f"{error}; a CIDR such as 10.0.0.0/8 is expected", path=".dst", value=text) from None


def _read_label_name(value: object) -> str:
    """The name of a label that an orchestrator of plain containers sends.

    One of these labels would move the endpoint to a namespace. A DEL finds the endpoint by container and interface
    alone, and the labels may have changed since the ADD; so all endpoints of such containers are in one namespace.
    """
    text = STRING.decode(value)
    if text == _NAMESPACE_LABEL:
        raise Refused("endpoints of containers without a pod are in the namespace default; leave this label out")
    name = _without_foreign_characters(text)
    if not name:
        raise Refused("a text with a letter, a digit or '_' is expected")
    return label_value(name)


def _read_label_value(value: object) -> str:
    return label_value(_without_foreign_characters(STRING.decode(value)))


def _without_foreign_characters(text: str) -> str:
    """A text such as a path, of the characters that a label may have: ``/a/b/c`` becomes ``a.b.c``."""
    dashed = re.sub("[^-_.a-zA-Z0-9]+", "-", text.replace("/", "."))
    return re.sub("[-.]+", lambda run: "." if "." in run[0] else run[0], dashed).strip("-.")


def _any_case(text: str) -> str:
    """A pattern of JSON Schema, which has no flags, for a text in upper and lower case."""
    return "".join(f"[{letter}{letter.lower()}]" for letter in text)


def parse_mac(text: str) -> str:
    """The MAC that a text is, in lower case with colons.

    Raises:
        ValueError: it is none that an interface of a container can have. The kernel gives no interface a multicast
            address or 0, and the host end has its own.
    """
    octets = bytes.fromhex(re.sub("[:.-]", "", text)) if re.fullmatch(_MAC, text) else b""
    mac = octets.hex(":")
    if not any(octets) or octets[0] & 1 or mac == HOST_MAC:
        raise ValueError(MAC_ACCEPTED)
    return mac


def _read_mac(value: object) -> str:
    text = STRING.decode(value)
    try:
        return parse_mac(text) if text else ""
    except ValueError as error:
        raise Refused(str(error), value=text) from None


MAC_ACCEPTED: Final = "the 6 bytes of a unicast address are expected, such as 02:00:5e:10:00:01"
"""What an error about a MAC says would be accepted."""

# The three ways to write one. Loader and schema have one pattern; in it, the host end's MAC is left out in each.
_MAC: Final = (
    "[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}(?:[.][0-9A-Fa-f]{4}){2}"
)
_UNICAST: Final = f"(?![0:.-]*$)(?!(?:[eE]{{2}}[:.-]?){{6}}$)(?![0-9A-Fa-f][13579bdfBDF])(?:{_MAC})"
MAC: Final = Codec(_read_mac, schema={"type": "string", "pattern": exactly(f"|{_UNICAST}")})
LEVEL: Final = Codec(
    _read_level,
    schema={
        "anyOf": [
            {"enum": ["", *_LEVELS]},  # what an editor offers
            {"type": "string", "pattern": exactly("|".join(map(_any_case, _LEVELS)))},
        ]
    },
)
LABEL_NAME: Final = Codec(
    _read_label_name,
    schema={
        "type": "string",
        "pattern": exactly(
            rf"(?!{re.escape(_NAMESPACE_LABEL)}(?![\s\S]))[^\u0000]*[A-Za-z0-9_][^\u0000]*",
        ),
    },
)
LABEL_VALUE: Final = Codec(_read_label_value, schema=STRING.schema)
STRING_BOOLEAN: Final = Codec(_read_string_boolean, schema={"enum": ["", "true", "false"]})
BOOLEAN_OR_TEXT: Final = Codec(
    _read_boolean_or_text,
    schema={
        "anyOf": [{"type": "boolean"}, {"type": "string", "pattern": exactly("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]")}]
    },
)
PLUGIN_NAME: Final = Codec(
    _read_plugin_name, schema={"type": "string", "pattern": "^(?!netplug(?![\\s\\S]))[^/\\u0000]+$"}
)
QUEUES: Final = Codec(_read_queues, schema={"type": "integer", "maximum": MAX_QUEUES})
ROUTE: Final = Codec(_read_route, schema={"type": "object", "properties": {"dst": {"type": ["string", "null"]}}})
AT_LEAST_ZERO: Final = number_in(0, None, "a number of at least 0 is expected")
MTU: Final = number_in(0, MAX_MTU, f"a number from 0 to {MAX_MTU} is expected")
POLICY_TYPE: Final = choice_of(("k8s",), '"k8s" is the one policy type there is')
DEVICE_TYPE: Final = choice_of(("veth",), 'supported: "veth"; "netkit" comes with a later release')
DATAPLANE_TYPE: Final = choice_of(
    (LINUX_DATAPLANE,), f'invalid dataplane type: "{LINUX_DATAPLANE}" is the one there is'
)


# --- the configuration ------------------------------------------------------------------------------------------------


# The keys of ``ipam`` that belong to one type; beside another they would be ignored in silence.
KEYS_OF_IPAM: Final = {
    BLOCK_IPAM: ("assign_ipv4", "assign_ipv6", "ipv4_pools", "ipv6_pools"),
    HOST_LOCAL_IPAM: ("subnet", "rangeStart", "rangeEnd", "gateway", "ranges", "routes", "dataDir", "resolvConf"),
}
_ANNOTATIONS_CAPABILITY: Final = "io.kubernetes.cri.pod-annotations"
RUNTIME_IPS: Final = ("runtimeConfig", "ips")
ARGUMENT_IPS: Final = ("args", "cni", "ips")
_MESOS_LABELS: Final = ("args", "org.apache.mesos", "network_info", "labels", "labels")


def _finish_ipam(values: dict[str, object], _: object) -> dict[str, object]:
    # A route without a destination is skipped.
    is_delegated = values.get("type", "") not in ("", *KEYS_OF_IPAM)
    return {**values, "routes": items_of(values, "routes", Prefix), "is_delegated": is_delegated}


@json_object(finish=_finish_ipam)
@frozen(kw_only=True)
class IPAMConfig:
    """The ``ipam`` object; pools are names or CIDRs in the order to try them.

    ``routes`` and ``resolv_conf`` belong to host-local: the destinations that replace the default routes, and a file
    with settings of name resolution. Its ranges are decoded by that IPAM itself. ``is_delegated``: the addresses are
    those of another plugin, a program that is executed; of its keys only ``type`` is read.
    """

    # fmt: off
    type: str = field(default="", metadata=member("type", PLUGIN_NAME,
        "netplug-ipam assigns from pools, host-local from ranges of this host; any other plugin is executed."))
    assign_ipv4: bool = field(default=True, metadata=member("assign_ipv4", STRING_BOOLEAN,
        "The string true or false: whether a container gets an IPv4 address; true if it is left out."))
    assign_ipv6: bool = field(default=False, metadata=member("assign_ipv6", STRING_BOOLEAN,
        "The string true or false: whether a container gets an IPv6 address; false if it is left out."))
    ipv4_pools: tuple[str, ...] = field(default=(), metadata=member("ipv4_pools", ListOf(STRING),
        "Names or whole CIDRs of the IPv4 pools to assign from, in this order; all pools if empty."))
    ipv6_pools: tuple[str, ...] = field(default=(), metadata=member("ipv6_pools", ListOf(STRING),
        "Names or whole CIDRs of the IPv6 pools to assign from, in this order; all pools if empty."))
    routes: tuple[Prefix, ...] = field(default=(), metadata=member("routes", ListOf(ROUTE),
        "With host-local: destinations that replace the default routes."))
    resolv_conf: str = field(default="", metadata=member("resolvConf", STRING,
        "With host-local: a resolv.conf file whose settings the result has.", is_unset_if_empty=True))
    # fmt: on
    is_delegated: bool = False


@frozen(kw_only=True)
class ContainerSettings:
    """Settings inside the container's namespace."""

    # fmt: off
    allow_ip_forwarding: bool = field(default=False, metadata=member("allow_ip_forwarding", BOOLEAN,
        "Whether the container may forward packets."))
    # fmt: on


@frozen(kw_only=True)
class FeatureControl:
    """Features that are off unless asked for: annotations by which a pod can reach what is not its own."""

    # fmt: off
    ip_addrs_no_ipam: bool = field(default=False, metadata=member("ip_addrs_no_ipam", BOOLEAN,
        "Whether pods may name addresses that no address assignment holds."))
    floating_ips: bool = field(default=False, metadata=member("floating_ips", BOOLEAN,
        "Whether pods may have floating IPs."))
    allowed_source_prefixes: bool = field(default=False, metadata=member("allowed_source_prefixes", BOOLEAN,
        "Whether pods may send from other addresses than their own."))
    # fmt: on


@frozen(kw_only=True)
class ContainerLabel:
    """A label that an orchestrator of plain containers sends, in the characters that labels may have."""

    name: str = field(metadata=member("key", LABEL_NAME))
    value: str = field(default="", metadata=member("value", LABEL_VALUE))


@frozen(kw_only=True)
class RuntimeParameters:
    """The addresses and the MAC that a configuration asks for: by capabilities of the runtime, and by ``args.cni``.

    Source: CNI conventions, "Dynamic Plugin specific fields" and "args in network config".
    """

    # fmt: off
    runtime_ips: tuple[Address, ...] = field(default=(), metadata=member(RUNTIME_IPS, ListOf(REQUESTED_ADDRESS),
        "The container's addresses, at most one of each family; a prefix length is ignored."))
    argument_ips: tuple[Address, ...] = field(default=(), metadata=member(ARGUMENT_IPS, ListOf(REQUESTED_ADDRESS),
        "The container's addresses, at most one of each family; a prefix length is ignored."))
    runtime_mac: str = field(default="", metadata=member(("runtimeConfig", "mac"), MAC,
        "The MAC of the container's interface.", is_unset_if_empty=True))
    argument_mac: str = field(default="", metadata=member(("args", "cni", "mac"), MAC,
        "The MAC of the container's interface.", is_unset_if_empty=True))
    # fmt: on


@frozen(kw_only=True)
class RequestedAddress:
    """An address that the caller of an ADD asks for; ``source`` says where it stands."""

    address: Address
    source: str


@frozen(kw_only=True)
class Requested:
    """What the caller of an ADD asks for, wherever it stands: at most one address of a family, and a MAC or none."""

    addresses: tuple[RequestedAddress, ...] = ()
    mac: str = ""


@frozen(kw_only=True)
class NetConf:
    """One network configuration.

    ``valid_attachments`` is GC's list of container and interface; None if the runtime sent none. ``disables_gc``: GC
    does nothing. ``own_keys`` has every
    key for this plugin as it came, also keys that no field holds; it is never shown. ``unsupported`` is the error about
    the first setting that does not work yet. ``ignored_keys`` are those of a datastore that is not the configured one.
    ``deprecated_keys`` are those that still work, each with the key to use in its place.
    ``pod_annotations`` are those that the runtime sent by its capability; None if the plugin's configuration does not
    declare that capability, or the runtime does not have it. ``runtime`` is what the runtime asks for in the same way.
    ``labels`` are for the endpoint of a container without a pod; the last one of a name counts.
    """

    # fmt: off
    type: str = field(default="", metadata=member("type", STRING))
    nodename: str = field(default="", metadata=member("nodename", STRING,
        "The name that this node is registered under, if it is not the machine's own name.", is_unset_if_empty=True))
    hostname: str = field(default="", metadata=member("hostname", STRING, "Deprecated: use nodename.",
        is_unset_if_empty=True))
    nodename_file: str = field(default="/var/lib/netplug/nodename", metadata=member("nodename_file", STRING,
        "Where the node process writes the node's name; read if nodename is empty.", is_unset_if_empty=True))
    nodename_file_optional: bool = field(default=True, metadata=member("nodename_file_optional", BOOLEAN,
        "false: ADD and STATUS wait until the node-name file exists."))
    datastore: DatastoreSettings = field(factory=DatastoreSettings, metadata=member((), DatastoreSettings))
    log: LogSettings = field(factory=LogSettings, metadata=member((), LogSettings))
    ipam: IPAMConfig = field(default=IPAMConfig(), metadata=member("ipam", IPAMConfig, "How addresses are assigned."))
    container_settings: ContainerSettings = field(default=ContainerSettings(), metadata=member("container_settings",
        ContainerSettings, "Settings inside the container's network namespace."))
    feature_control: FeatureControl = field(default=FeatureControl(), metadata=member("feature_control", FeatureControl,
        "Features by which a pod can reach what is not its own; all are off unless set to true."))
    policy_type: str = field(default="", metadata=member(("policy", "type"), POLICY_TYPE,
        "k8s: pods get the profiles of their namespace and service account."))
    readiness_gates: tuple[str, ...] = field(default=(), repr=redacted_repr, metadata=member("readiness_gates",
        ListOf(HTTP_URL), "URLs that must answer before an ADD begins to assign addresses."))
    num_queues: int = field(default=1, metadata=member("num_queues", QUEUES,
        "Receive and transmit queues of both ends of the link; below 1 means 1."))
    mtu: int = field(default=0, metadata=member("mtu", MTU,
        "The MTU of both ends of the link; 0 means that of mtu_file, else the kernel's default."))
    mtu_file: str = field(default="/var/lib/netplug/mtu", metadata=member("mtu_file", STRING,
        "A file with the MTU; read even if mtu is set.", is_unset_if_empty=True))
    require_mtu_file: bool = field(default=False, metadata=member("require_mtu_file", BOOLEAN,
        "true: an ADD fails if mtu_file does not exist."))
    include_default_routes: bool = field(default=False, metadata=member("include_default_routes", BOOLEAN,
        "Beside the routes of host-local or of another IPAM plugin: the default routes."))
    policy_setup_timeout_s: int = field(default=0, metadata=member("policy_setup_timeout_seconds", AT_LEAST_ZERO,
        "How long an ADD waits until the pod's policy is programmed; 0: it does not wait.", is_unset_if_empty=True))
    policy_guard: bool = field(default=False, metadata=member("policy_guard", BOOLEAN,
        "true: where the packet filter has no table of policy yet, an ADD makes one in which no pod passes anything."))
    endpoint_status_dir: str = field(default="/var/run/netplug/endpoint-status", metadata=member("endpoint_status_dir",
        STRING, "Where the node process says which endpoints are programmed.", is_unset_if_empty=True))
    ipam_lock_file: str = field(default="/var/run/netplug/ipam.lock", metadata=member("ipam_lock_file", STRING,
        "The lock file of all calls on this host.", is_unset_if_empty=True))
    release_record_dir: str = field(default="/var/lib/netplug/release-records", metadata=member("release_record_dir",
        STRING, "Where a DEL without its datastore leaves what is to be released.", is_unset_if_empty=True))
    device_type: str = field(default="veth", metadata=member("device_type", DEVICE_TYPE, "The kind of link.",
        is_unset_if_empty=True))
    dataplane_type: str = field(default=LINUX_DATAPLANE, metadata=member(("dataplane_options", "type"), DATAPLANE_TYPE,
        "The name of the implementation.", is_unset_if_empty=True))
    runtime: RuntimeParameters = field(default=RuntimeParameters(), metadata=member((), RuntimeParameters))
    pod_annotations: Mapping[str, str] | None = field(default=None, repr=False, hash=False, metadata=member(
        ("runtimeConfig", _ANNOTATIONS_CAPABILITY), STRING_MAP, "The pod's annotations, from the runtime."))
    labels: tuple[ContainerLabel, ...] = field(default=(), repr=False, metadata=member(_MESOS_LABELS,
        ListOf(ContainerLabel), "What the endpoint of a container without a pod has as labels."))
    # fmt: on
    disables_gc: bool = False
    valid_attachments: frozenset[tuple[str, str]] | None = None
    own_keys: Mapping[str, object] = field(factory=dict, repr=False, eq=False)
    unsupported: ConfigurationError | None = field(default=None, repr=False, eq=False)
    ignored_keys: tuple[str, ...] = field(default=(), eq=False)
    deprecated_keys: tuple[tuple[str, str], ...] = field(default=(), eq=False)

    @property
    def has_orchestrator(self) -> bool:
        """Whether the orchestrator's API can be asked: it is the datastore, or the configuration says where it is."""
        return self.datastore.is_kubernetes or self.datastore.kubernetes.is_configured


# --- load ------------------------------------------------------------------------------------------------------------


# --- load ------------------------------------------------------------------------------------------------------------


_WHERE = "network configuration"
_PREVIOUS_RESULT: Final = "prevResult"
_MAX_KEPT: Final = 32  # a node has a few networks, each with a configuration for ADD and one for DEL
_NODE_KEYS: Final = ("nodename", "nodename_file", "hostname")
_COMMON_KEYS = (*_NODE_KEYS, "nodename_file_optional", "datastore_type", "log_level",
                "log_file_path", "log_file_max_size", "log_file_max_age", "log_file_max_count",
                "ipam_lock_file", "release_record_dir")  # fmt: skip
_TEARDOWN_KEYS: Final = frozenset({*_COMMON_KEYS, "type", "name", "dataDir"} - {"nodename_file_optional"})
_ATTACHMENT_LISTS: Final = ("cni.dev/valid-attachments", "cni.dev/attachments")  # the second one is of drafts
_COLLECTION_KEYS: Final = (*_ATTACHMENT_LISTS, "disableGC")


class LoadPurpose(enum.Enum):
    """What the configuration is read for: to set something up, to take it down, or to take down what is left over."""

    SETUP = "setup"
    TEARDOWN = "teardown"
    COLLECTION = "collection"

    @classmethod
    def of(cls, command: CNICommand) -> LoadPurpose:
        """What a command reads the configuration for."""
        return {CNICommand.DEL: cls.TEARDOWN, CNICommand.GC: cls.COLLECTION}.get(command, cls.SETUP)


def load(mapping: Mapping[str, object], plugin: Plugin, purpose: LoadPurpose = LoadPurpose.SETUP) -> NetConf:
    """The network configuration that a JSON object is.

    ``netplug-ipam`` reads that of another main plugin. Its top level belongs to that plugin, so our keys may stand
    inside ``ipam`` too, and win there.

    A process that serves many calls reads equal members once. The result of the plugin before, which differs from
    call to call, belongs to the request and is left out.

    Raises:
        DecodeError: a key has the wrong JSON type.
        ConfigurationError: a value is not accepted, or a key is missing.
    """
    if purpose is LoadPurpose.SETUP:
        members: Mapping[str, object] = {key: value for key, value in mapping.items() if key != _PREVIOUS_RESULT}
    else:
        members = _keys_for_teardown(mapping, plugin)
        if purpose is LoadPurpose.COLLECTION:
            members = {**members, **{key: mapping[key] for key in _COLLECTION_KEYS if key in mapping}}
    return _load(_Members(repr(members), members), plugin, purpose)


@frozen
class _Members:
    """The members of a configuration; those with the same ``text`` are equal, JSON type by JSON type."""

    text: str = field(repr=False)
    by_name: Mapping[str, object] = field(eq=False, repr=False)


@lru_cache(maxsize=_MAX_KEPT)
def _load(members: _Members, plugin: Plugin, purpose: LoadPurpose) -> NetConf:
    mapping = members.by_name
    decoder, _classes = netconf_decoder(purpose)
    top = decoder.decode(mapping, _TopLevel, _WHERE)
    if top.ipam is None and purpose is LoadPurpose.SETUP:
        raise ConfigurationError(f"{_WHERE}.ipam", None, 'an object such as {"type": "netplug-ipam"} is expected')
    if plugin is Plugin.MAIN and top.type != "netplug":
        raise ConfigurationError(f"{_WHERE}.type", top.type, '"netplug" is expected')
    own = mapping if plugin is Plugin.MAIN else _keys_for_ipam(mapping, top.ipam or {})
    read = {**own, "type": top.type}
    ipam_type = find_member(own, "ipam", "type")
    if plugin is Plugin.MAIN and (not isinstance(ipam_type, str) or ipam_type not in KEYS_OF_IPAM):
        read["ipam"] = {"type": ipam_type}  # the other keys belong to the plugin that it names
    netconf = decoder.decode(read, NetConf, _WHERE)
    reads_etcd = netconf.datastore.type == ETCD_DATASTORE or netconf.datastore.type not in DATASTORE_KEYS
    deprecated = ((key, new) for key, new in DEPRECATED_KEYS.items() if find_member(own, *key.split(".")))
    return evolve(
        netconf,
        valid_attachments=_valid_attachments(mapping, top),
        disables_gc=top.disables_gc,
        own_keys=own,
        unsupported=_find_unsupported(netconf, own, plugin),
        ignored_keys=_ignored_keys(netconf, own),
        # A key that is not read is ignored, and whether there is a newer one does not matter.
        deprecated_keys=tuple(pair for pair in deprecated if reads_etcd or not pair[0].startswith("etcd_")),
    )


def _valid_attachments(mapping: Mapping[str, object], top: _TopLevel) -> frozenset[tuple[str, str]] | None:
    """The attachments that GC has to keep; None if the runtime did not say. Null is an empty list.

    Runtimes in Go write an empty list as null. After a restart of a host the list is empty: no container is left.
    """
    if top.attachments is not None:
        return frozenset((one.container, one.ifname) for one in top.attachments)
    return frozenset() if any(key in mapping for key in _ATTACHMENT_LISTS) else None


def _keys_for_teardown(mapping: Mapping[str, object], plugin: Plugin) -> Mapping[str, object]:
    """The keys that a DEL or GC uses: node name, which datastore and IPAM, locks, and where log lines go."""
    datastore, ipam = _datastore_type(mapping, plugin), mapping.get("ipam")
    used = _teardown_keys_of(mapping, datastore)
    return {**used, "ipam": _teardown_keys_of(ipam, datastore)} if isinstance(ipam, dict) else used


def _datastore_type(mapping: Mapping[str, object], plugin: Plugin) -> str:
    """The datastore that is named. A name of the wrong JSON type is refused where it is decoded."""
    inside = find_member(mapping, "ipam", "datastore_type") if plugin is Plugin.IPAM else None
    return str((mapping.get("datastore_type") if inside is None else inside) or ETCD_DATASTORE)


def _teardown_keys_of(members: Mapping[str, object], datastore: str) -> dict[str, object]:
    keys = (*_TEARDOWN_KEYS, *DATASTORE_KEYS.get(datastore, ALL_DATASTORE_KEYS))
    used = {key: value for key, value in members.items() if key in keys}
    for key in _NODE_KEYS:  # the addresses name their node; a name of the wrong type is none
        if not isinstance(used.get(key, ""), str):
            del used[key]
    policy = members.get("policy")
    if isinstance(policy, dict) and (datastore == KUBERNETES_DATASTORE or datastore not in DATASTORE_KEYS):
        # The deprecated place of credentials for the Kubernetes API.
        used["policy"] = {key: value for key, value in policy.items() if key.startswith("k8s_")}
    return used


def _keys_for_ipam(mapping: Mapping[str, object], ipam: Mapping[str, object]) -> Mapping[str, object]:
    """The keys for ``netplug-ipam``: those inside ``ipam``, and at the top level those that no main plugin uses.

    If the datastore is Kubernetes, the top level may also say how to reach it. Of what the runtime asks for, addresses
    are for the IPAM, and the MAC is for the main plugin.
    """
    is_kubernetes = _datastore_type(mapping, Plugin.IPAM) == KUBERNETES_DATASTORE
    keys = {*_COMMON_KEYS, *ALL_DATASTORE_KEYS}
    keys -= set() if is_kubernetes else set(KUBERNETES_NETCONF_KEYS)
    shared = {key: value for key, value in mapping.items() if key in keys}
    if (runtime_ips := find_member(mapping, *RUNTIME_IPS)) is not None:
        shared["runtimeConfig"] = {"ips": runtime_ips}
    if (argument_ips := find_member(mapping, *ARGUMENT_IPS)) is not None:
        shared["args"] = {"cni": {"ips": argument_ips}}
    # Null counts as absent, so it hides nothing.
    inside = {key: value for key, value in ipam.items() if value is not None}
    return {**shared, **inside, "ipam": ipam}


# --- settings that do not work yet ------------------------------------------------------------------------------------

_NEEDS_ACCESS: Final = "nothing reads it without kubernetes.kubeconfig or kubernetes.k8s_api_root; leave it out"


def _find_unsupported(netconf: NetConf, own: Mapping[str, object], plugin: Plugin) -> ConfigurationError | None:
    if plugin is Plugin.MAIN and netconf.policy_type and not netconf.has_orchestrator:
        accepted = "pods are looked up for it: set kubernetes.kubeconfig or kubernetes.k8s_api_root"
        return ConfigurationError(f"{_WHERE}.policy.type", netconf.policy_type, accepted)
    for where, value, accepted in (*_misplaced_keys(netconf, own), *_unused_access_keys(netconf, own, plugin)):
        return ConfigurationError(f"{_WHERE}.{where}", redact_url_credentials(value), accepted)
    for where, value, accepted in _unsupported_settings(netconf, plugin):
        return NotYetSupported(f"{_WHERE}.{where}", redact_url_credentials(value), accepted)
    return None


def _misplaced_keys(netconf: NetConf, own: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    """Every key that another ``ipam.type`` has: the key, its value, and what is accepted."""
    for ipam_type, keys in KEYS_OF_IPAM.items() if netconf.ipam.type in KEYS_OF_IPAM else ():
        for key in keys:
            if netconf.ipam.type != ipam_type and (value := find_member(own, "ipam", key)):
                yield f"ipam.{key}", value, f"it belongs to {ipam_type}"
    if netconf.include_default_routes and netconf.ipam.type == BLOCK_IPAM:
        yield (
            "include_default_routes",
            True,
            f"it belongs to an ipam.type with routes of its own, such as {HOST_LOCAL_IPAM}",
        )


def _unsupported_settings(netconf: NetConf, plugin: Plugin) -> Iterator[tuple[str, object, str]]:
    """Every setting that does not work yet: its key, its value, and what is accepted."""
    if plugin is Plugin.IPAM and netconf.ipam.type != BLOCK_IPAM:
        yield "ipam.type", netconf.ipam.type, f"{BLOCK_IPAM!r} is"


def _unused_access_keys(
    netconf: NetConf, own: Mapping[str, object], plugin: Plugin
) -> Iterator[tuple[str, object, str]]:
    """The keys about the Kubernetes API that nothing reads.

    Its own datastore reads all of them. The main plugin asks the API about pods beside every other datastore, if it is
    said where the API is.
    """
    given = [(key, own.get(key)) for key in KUBERNETES_NETCONF_KEYS]
    given += [(key, find_member(own, *key.split("."))) for key in DEPRECATED_KEYS if key.startswith("policy.")]
    for key, value in given if netconf.datastore.type != KUBERNETES_DATASTORE else ():
        if value and not (key != "netplug_api_group" and plugin is Plugin.MAIN and netconf.has_orchestrator):
            is_shown = key in KUBERNETES_NETCONF_KEYS and not isinstance(value, dict)
            has_use = plugin is Plugin.MAIN and key != "netplug_api_group"
            accepted = _NEEDS_ACCESS if has_use else f"it belongs to the datastore {KUBERNETES_DATASTORE}"
            yield key, value if is_shown else REDACTED, accepted


def _ignored_keys(netconf: NetConf, own: Mapping[str, object]) -> tuple[str, ...]:
    if netconf.datastore.type != KUBERNETES_DATASTORE:
        return ()
    return tuple(sorted(key for key, value in own.items() if key.startswith("etcd_") and value))


# --- members ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Attachment:
    container: str = field(metadata=member("containerID", NONEMPTY_STRING))
    ifname: str = field(metadata=member("ifname", NONEMPTY_STRING))


@frozen(kw_only=True)
class _TopLevel:
    """The keys that stand at the top level, whichever plugin is the main one."""

    ipam: Mapping[str, object] | None = field(default=None, metadata=member("ipam", OBJECT))
    type: str = field(default="", metadata=member("type", STRING))
    disables_gc: bool = field(
        default=False,
        metadata=member(
            "disableGC",
            BOOLEAN_OR_TEXT,
            "true: GC frees nothing. A key of the list; a runtime that reads it there does not ask for GC.",
        ),
    )
    attachments: tuple[_Attachment, ...] | None = field(
        default=None,
        metadata=member(
            _ATTACHMENT_LISTS[0],
            ListOf(_Attachment),
            "GC's list of attachments; from the runtime.",
            alternatives=(
                Field(_ATTACHMENT_LISTS[1], ListOf(_Attachment), "An older name of cni.dev/valid-attachments."),
            ),
        ),
    )


@cache
def netconf_decoder(purpose: LoadPurpose) -> tuple[Decoder, tuple[type, ...]]:
    """The decoder of a configuration, and the classes that are read from its one object."""
    is_strict = purpose is LoadPurpose.SETUP
    tables = _netconf_tables(is_strict=is_strict)
    return Decoder(cni_error, tables=tables, defaults_if_refused=not is_strict), (_TopLevel, NetConf)


def _netconf_tables(*, is_strict: bool) -> tuple[Table[object], ...]:
    """The members of classes that have others on another wire, and of ``ipam``, which a teardown does not need."""
    ipam = declared_table(IPAMConfig)
    kind = evolve(ipam.fields["type"], is_required=is_strict)
    log = {
        "level": Field("log_level", LEVEL, "Lines below this level are not written."),
        "file_path": Field(
            "log_file_path",
            STRING,
            "The file that lines are appended to; without it they go to standard error only.",
            is_unset_if_empty=True,
        ),
        "max_size_mb": Field(
            "log_file_max_size",
            AT_LEAST_ZERO,
            "Size in MB at which the file is rotated; 0 means the default, 100.",
            is_unset_if_empty=True,
        ),
        "max_age_days": Field(
            "log_file_max_age",
            AT_LEAST_ZERO,
            "Days after which a rotated file is removed; 0 means the default, 30.",
            is_unset_if_empty=True,
        ),
        "max_count": Field(
            "log_file_max_count",
            AT_LEAST_ZERO,
            "How many rotated files are kept; 0 means the default, 10.",
            is_unset_if_empty=True,
        ),
    }
    return (
        evolve(ipam, fields={**ipam.fields, "type": kind}),
        Table(cls=LogSettings, fields=log),
        *netconf_tables(is_strict=is_strict),
    )
