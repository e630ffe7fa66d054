"""The JSON Schema of the network configuration (draft 2020-12), made from the members that are decoded.

`make manifests` writes it for editors. What it accepts, ``model.load`` accepts too, and the other way round.
Only what a text means is beyond it: whether a CIDR has host bits, a pool exists or a datastore is installed. What the
keys are for that no class declares is here, by path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from attrs import NOTHING, frozen

from netplug_core.cni.dispatch import SUPPORTED_VERSIONS
from netplug_core.decoding.codecs import Codec, exactly
from netplug_core.decoding.tables import Decoder, ListOf, Table, attributes_of, find_member, member_schemas
from netplug_core.ipam.hostlocal.settings import settings_decoder
from netplug_core.netconf.model import BLOCK_IPAM, HOST_LOCAL_IPAM, KEYS_OF_IPAM, LoadPurpose, netconf_decoder
from netplug_core.settings.model import (
    DEPRECATED_KEYS,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    KUBERNETES_NETCONF_KEYS,
    SQLITE_DATASTORE,
)

__all__ = [
    "CONFIGURATION_FILE", "DESCRIPTIONS", "configuration_schema", "find_unknown_keys", "list_schema",
]  # fmt: skip


# --- descriptions ----------------------------------------------------------------------------------------------------


_CREDENTIAL: Final = "Deprecated: put it into the file of kubernetes.kubeconfig."

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "name": "The network's name: letters, digits, '_', '.' and '-', a letter or digit first.",
    "cniVersion": "The version of the CNI specification; 0.1.0 if it is left out.",
    "plugins": "The plugins of the chain, in the order in which an ADD calls them; netplug is the first one.",
    "type": "The program that the runtime executes.",
    "datastore_type": "Where addresses and endpoints are stored; other names are those of installed backends.",
    "sqlite_path": "The file of the datastore sqlite; an absolute path.",
    "etcd_endpoints": "URLs of etcd, separated by commas. Not together with etcd_discovery_srv.",
    "etcd_discovery_srv": "The domain whose SRV records name the members of etcd. Not together with etcd_endpoints.",
    "etcd_authority": "Deprecated: host and port of one etcd; use etcd_endpoints.",
    "etcd_scheme": "Deprecated: http or https, of one etcd; use etcd_endpoints.",
    "etcd_key_file": "The private key of etcd_cert_file.",
    "etcd_cert_file": "The certificate that etcd knows the plugin by.",
    "etcd_ca_cert_file": "The certificates of all authorities that etcd's own certificate may be signed by.",
    "kubernetes": "How to reach the orchestrator's API.",
    "kubernetes.kubeconfig": "The kubeconfig file with server and credentials.",
    "kubernetes.k8s_api_root": "The URL of the API server; goes before the kubeconfig's.",
    "kubernetes.node_name": "The Node object whose pod CIDRs count, if it has another name than the node.",
    "netplug_api_group": "The API group of netplug's objects; found by asking the API server if it is left out.",
    "qps": "How many requests a second the API server gets at most; 0 means the default.",
    "burst": "How many requests may follow at once before qps counts; 0 means the default.",
    "annotation_prefix": "The prefix of the annotations of pods and namespaces.",
    "datastore_options": "Settings of a datastore backend that is not netplug's own.",
    "policy": "Network policy of the orchestrator.",
    "policy.k8s_api_root": "Deprecated: use kubernetes.k8s_api_root.",
    "policy.k8s_auth_token": _CREDENTIAL,
    "policy.k8s_client_certificate": _CREDENTIAL,
    "policy.k8s_client_key": _CREDENTIAL,
    "policy.k8s_certificate_authority": _CREDENTIAL,
    "dataplane_options": "Which implementation makes the links.",
    "runtimeConfig": "What the runtime adds for declared capabilities; not written by hand.",
    "capabilities": "What the runtime may add as runtimeConfig; it adds nothing that is not declared here.",
    "capabilities.ips": "true: the runtime may name the container's addresses.",
    "capabilities.mac": "true: the runtime may choose the MAC of the container's interface.",
    "capabilities.io.kubernetes.cri.pod-annotations": "true: containerd sends the pod's annotations.",
    "args": "What an orchestrator or a user says of the container.",
    "args.cni": "What is asked for in the words of the CNI conventions.",
    "args.org.apache.mesos": "What Mesos says of the container.",
    "args.org.apache.mesos.network_info": "What Mesos says of the container's network.",
    "args.org.apache.mesos.network_info.labels": "The labels of the container, as Mesos writes them.",
}


# --- schema ----------------------------------------------------------------------------------------------------------


Schema = dict[str, object]

CONFIGURATION_FILE: Final = "netplug.conf.schema.json"
"""The name under which the schema of one configuration is published; that of a list refers to it."""

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAME: Final = {"type": "string", "pattern": exactly("[A-Za-z0-9][A-Za-z0-9_.-]*")}
_NOTHING: Final[Schema] = {"enum": [None, "", False, 0, [], {}]}
_SOMETHING: Final[Schema] = {"type": "string", "minLength": 1}
# What is defined for every plugin. Source: CNI specification, "Plugin configuration objects".
_OF_RUNTIMES: Final = ("args", "capabilities", "dns", "prevResult", "runtimeConfig")
_CAPABILITIES: Final = ("ips", "mac", "io.kubernetes.cri.pod-annotations")
_DEPRECATED: Final = (*DEPRECATED_KEYS, "hostname")


def configuration_schema() -> Schema:
    """The schema of one configuration, as a runtime sends it; ``$defs.plugin`` is without the keys of its list."""
    return {
        "$schema": _DRAFT,
        "title": "Network configuration of netplug",
        "$ref": "#/$defs/plugin",
        "type": "object",
        "required": ["name"],
        "properties": _of_the_list(),
        "$defs": {"plugin": _plugin_schema()},
    }


def list_schema() -> Schema:
    """The schema of a list of configurations (a ``.conflist`` file); other plugins' members are not judged."""
    ours = {
        "if": {"properties": {"type": {"const": "netplug"}}, "required": ["type"]},
        "then": {"$ref": f"{CONFIGURATION_FILE}#/$defs/plugin"},
    }
    plugins = {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["type"], **ours}}
    return {
        "$schema": _DRAFT,
        "title": "List of network configurations with netplug in it",
        "type": "object",
        "required": ["name", "plugins"],
        "properties": {**_of_the_list(), "plugins": {**plugins, "description": DESCRIPTIONS["plugins"]}},
    }


def find_unknown_keys(members: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The path of each key that nothing reads, and the names that there are in its object.

    Keys that runtimes define count as known, and so does everything inside them. A key that begins with ``_`` or ``$``
    is a remark of its author.
    """
    yield from _find_unknown_keys(members, _plugin_properties(), ())


@cache
def _plugin_properties() -> Mapping[str, object]:
    properties = member_schemas(_plugin_schema())
    of_ipam = member_schemas(properties["ipam"])
    for keys in KEYS_OF_IPAM.values():
        of_ipam.update({key: {} for key in keys if key not in of_ipam})
    return {**properties, **{key: {} for key in (*_of_the_list(), *_OF_RUNTIMES)}}


def _find_unknown_keys(
    members: Mapping[str, object], known: Mapping[str, object], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for name, value in members.items():
        if name not in known:
            if not name.startswith(("_", "$")):
                yield (*above, name), tuple(known)
            continue
        inner = find_member(known, name, "properties")
        is_of_another = name == "ipam" and find_member(members, "ipam", "type") not in tuple(KEYS_OF_IPAM)
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and not is_of_another:
            yield from _find_unknown_keys(value, inner, (*above, name))


def _of_the_list() -> Schema:
    version = {"enum": [None, "", *(version.text for version in SUPPORTED_VERSIONS)]}
    return {
        "name": {**_NAME, "description": DESCRIPTIONS["name"]},
        "cniVersion": {**version, "description": DESCRIPTIONS["cniVersion"]},
    }


def _plugin_schema() -> Schema:
    decoder, classes = netconf_decoder(LoadPurpose.SETUP)
    schema: Schema = {"type": "object"}
    for cls in classes:
        _merge(schema, _Reader(decoder).object_of(cls))
    properties = member_schemas(schema)
    properties["type"] = {"const": "netplug"}
    properties["ipam"]["type"] = "object"  # null is no configuration
    properties["capabilities"] = {"properties": {key: {} for key in _CAPABILITIES}}  # it is the runtime that reads it
    # The name of any installed backend is accepted; an editor offers netplug's own.
    own = [ETCD_DATASTORE, KUBERNETES_DATASTORE, SQLITE_DATASTORE]
    properties["datastore_type"] = {"anyOf": [{"enum": own}, properties["datastore_type"]]}
    _describe(schema, "")
    return {**schema, "required": ["type", "ipam"], "allOf": [_keys_of_own_ipam(properties["ipam"]), *_rules()]}


def _keys_of_own_ipam(ipam: Schema) -> Schema:
    """The rules of the keys of ``ipam``, taken out of its schema: another plugin may have the same keys."""
    keys = member_schemas(ipam)
    ipam["properties"] = {
        key: schema if key == "type" else {"description": schema["description"]} for key, schema in keys.items()
    }
    is_own = _has({"ipam": _has({"type": {"enum": list(KEYS_OF_IPAM)}})})
    return _if(is_own, _members({"ipam": _members(keys)}))


# --- from tables -----------------------------------------------------------------------------------------------------


@frozen
class _Reader:
    """Makes schemas of the classes of one decoder."""

    decoder: Decoder

    def object_of(self, cls: type) -> Schema:
        """The schema of an object of a class."""
        table = self.decoder.table_of(cls)
        schema: Schema = {"type": "object"}
        for attribute, line in table.fields.items():
            is_required = line.is_required or _default(table, attribute) is NOTHING
            for one in (line, *line.alternatives):
                value = self.value_of(one.codec) if is_required else _nullable(self.value_of(one.codec))
                described = {**value, "description": one.text} if one.text else value
                _merge(schema, _below(one.path, described, is_required=is_required))
        return schema

    def value_of(self, codec: Codec[object] | ListOf | type) -> Schema:
        """The schema of one member's value."""
        match codec:
            case Codec():
                return dict(codec.schema)
            case ListOf():
                return {"type": "array", "items": self._item_of(codec.item)}
        return self.object_of(codec)

    def _item_of(self, codec: Codec[object] | ListOf | type) -> Schema:
        item = self.value_of(codec)
        # An object of a list may be null, like any other, if it has no required members.
        return _nullable(item) if isinstance(codec, type) and "required" not in item else item


def _default(table: Table[object], attribute: str) -> object:
    found = attributes_of(table.cls).get(attribute)
    return None if found is None else found.default


def _below(path: tuple[str, ...], value: Schema, *, is_required: bool) -> Schema:
    """The schema of an object in which a path leads to a value."""
    if not path:
        return {name: part for name, part in value.items() if name != "type"}
    name, *rest = path
    inner = _nullable({"type": "object", **_below(tuple(rest), value, is_required=is_required)}) if rest else value
    return {"properties": {name: inner}, **({"required": [name]} if is_required and not rest else {})}


def _merge(schema: Schema, other: Mapping[str, object]) -> None:
    """Add the members of another object's schema."""
    for name, value in other.items():
        here = schema.get(name)
        if isinstance(here, dict) and isinstance(value, Mapping):
            _merge(here, value)
        elif name == "required" and isinstance(here, list) and isinstance(value, list):
            here.extend(one for one in value if one not in here)
        else:
            schema[name] = value


def _nullable(schema: Schema) -> Schema:
    """The schema with null, which means that a member is absent."""
    either, choices = schema.get("anyOf"), schema.get("enum")
    if isinstance(either, list):
        return {**schema, "anyOf": [*either, {"type": "null"}]}
    with_null = dict(schema)
    if isinstance(choices, list):
        with_null["enum"] = [*choices, None]
    if isinstance(schema.get("type"), str):
        with_null["type"] = [schema["type"], "null"]
    return with_null


def _describe(schema: Schema, path: str) -> None:
    """Put marks, and the descriptions that no class declares, at an object's members; every one has a description."""
    for name, member in member_schemas(schema).items():
        here = f"{path}{name}"
        if "description" not in member:
            member["description"] = DESCRIPTIONS[here]
        if here in _DEPRECATED:
            member["deprecated"] = True
        _describe(member, f"{here}.")


# --- rules between keys ----------------------------------------------------------------------------------------------


def _rules() -> Iterator[Schema]:
    """What ``load`` refuses of keys that are right by themselves."""
    yield _if(
        _datastore_is(None, "", ETCD_DATASTORE),
        {"not": _has({"etcd_endpoints": _SOMETHING, "etcd_discovery_srv": _SOMETHING})},
    )
    yield _if(_datastore_is(SQLITE_DATASTORE), _members({"sqlite_path": {"pattern": "^(?:/|(?![\\s\\S]))"}}))
    yield from _ipam_rules()
    yield from _access_rules()


def _ipam_rules() -> Iterator[Schema]:
    for ipam_type in KEYS_OF_IPAM:
        others = [key for other, keys in KEYS_OF_IPAM.items() if other != ipam_type for key in keys]
        yield _if(_ipam_is(ipam_type), _members({"ipam": _members(dict.fromkeys(others, _NOTHING))}))
    decoder, cls = settings_decoder()
    host_local = _Reader(decoder).object_of(cls)
    yield _if(_ipam_is(HOST_LOCAL_IPAM), host_local)
    yield _if(_ipam_is(BLOCK_IPAM), _members({"include_default_routes": _NOTHING}))


def _access_rules() -> Iterator[Schema]:
    """Keys about the Kubernetes API that nothing reads."""
    policy = [key.partition(".")[2] for key in DEPRECATED_KEYS if key.startswith("policy.")]
    unused = _members(
        {
            **dict.fromkeys(KUBERNETES_NETCONF_KEYS, _NOTHING),
            "policy": _members({"type": _NOTHING, **dict.fromkeys(policy, _NOTHING)}),
        }
    )
    has_access: Schema = {
        "anyOf": [
            *(_has({"kubernetes": _has({key: _SOMETHING})}) for key in ("kubeconfig", "k8s_api_root")),
            _has({"policy": _has({"k8s_api_root": {"type": "string", "pattern": r"^(?!/api/)[\s\S]"}})}),
        ]
    }
    beside = {"if": has_access, "then": _members({"netplug_api_group": _NOTHING}), "else": unused}
    yield {"if": _datastore_is(KUBERNETES_DATASTORE), "else": beside}


def _if(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _members(members: Mapping[str, Schema]) -> Schema:
    """Members that have to be so if they are there."""
    return {"properties": dict(members)}


def _has(members: Mapping[str, Schema]) -> Schema:
    """An object with these members."""
    return {"type": "object", **_members(members), "required": list(members)}


def _datastore_is(*names: str | None) -> Schema:
    condition = _members({"datastore_type": {"enum": list(names)}})
    return condition if None in names else {**condition, "required": ["datastore_type"]}


def _ipam_is(ipam_type: str) -> Schema:
    return _has({"ipam": _has({"type": {"const": ipam_type}})})
