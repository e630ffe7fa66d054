"""From the JSON object of a runtime to a :class:`NetConf`: defaults filled in, deprecated keys folded, values checked.

The executables call ``load`` once for a call. A DEL or GC must not fail because of a setting that it does not use. So
``LoadPurpose.TEARDOWN`` reads only the keys that a teardown uses, of the named datastore only those that lead to it,
and a value outside its set counts as not set. ``LoadPurpose.COLLECTION`` reads besides them the keys of GC alone. A
setting that does not work yet is no error here: ADD and STATUS refuse it, the other commands do not.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.cni.dispatch import CNICommand, Plugin
from netplug_core.decoding.codecs import (
    NONEMPTY_STRING,
    OBJECT,
    STRING,
)
from netplug_core.decoding.tables import (
    Decoder,
    Field,
    ListOf,
    Table,
    cni_error,
    declared_table,
    find_member,
    member,
)
from netplug_core.errors import REDACTED, ConfigurationError, NotYetSupported, redact_url_credentials
from netplug_core.log import LogSettings
from netplug_core.netconf.model import (
    ARGUMENT_IPS,
    AT_LEAST_ZERO,
    BLOCK_IPAM,
    BOOLEAN_OR_TEXT,
    HOST_LOCAL_IPAM,
    KEYS_OF_IPAM,
    LEVEL,
    RUNTIME_IPS,
    IPAMConfig,
    NetConf,
)
from netplug_core.settings.model import (
    ALL_DATASTORE_KEYS,
    DATASTORE_KEYS,
    DEPRECATED_KEYS,
    ETCD_DATASTORE,
    KUBERNETES_DATASTORE,
    KUBERNETES_NETCONF_KEYS,
    netconf_tables,
)

__all__ = ["LoadPurpose", "load", "netconf_decoder"]


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
