"""Network configurations: a list of them as runtimes read it from a file, or one alone.

Each plugin of a list is judged if it is netplug, or another main plugin with netplug's IPAM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from attrs import evolve, field, frozen

from netplug_core.cni.dispatch import Plugin, ResultFormat, negotiate_version
from netplug_core.cni.request import CNICommand, CNIEnvironment, make_request
from netplug_core.dataplane.plan import find_mtu_problem
from netplug_core.decoding.codecs import NONEMPTY_STRING, OBJECT
from netplug_core.decoding.members import find_at, with_member
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error, find_member
from netplug_core.errors import (
    REDACTED,
    AllocationError,
    ConfigurationError,
    DecodeError,
    IncompatibleVersion,
)
from netplug_core.flows.cni.call import wanted_of
from netplug_core.ipam.hostlocal.settings import RangeSet, load_settings, make_range_sets, require_one_set_per_family
from netplug_core.lint.documents import Document
from netplug_core.lint.rules import Finding, Path, Repair, Rule, format_path
from netplug_core.netconf.model import BLOCK_IPAM, HOST_LOCAL_IPAM, NetConf, load
from netplug_core.netconf.schema import find_unknown_keys
from netplug_core.settings.model import ETCD_DATASTORE, DatastoreSettings, parse_endpoints

__all__ = ["Configuration", "find_file_order", "read_configurations"]

_WHERE: Final = "network configuration"
_LIST_SUFFIX: Final = ".conflist"
_FILE_SUFFIXES: Final = (_LIST_SUFFIX, ".conf", ".json")
_OF_THE_LIST: Final = ("name", "cniVersion")
_BOOLEANS: Final = {"true": (True,), "false": (False,)}


@frozen(kw_only=True)
class Configuration:
    """One plugin's configuration. ``netconf`` is None if it cannot be loaded, ``range_sets`` are host-local's.

    ``path`` leads to it in its document. ``members`` has also the name and the version of its list.
    """

    document: Document
    plugin: Plugin
    members: Mapping[str, object] = field(repr=False)
    path: Path = ()
    netconf: NetConf | None = None
    range_sets: tuple[RangeSet, ...] = ()

    @property
    def subject(self) -> str:
        """The configuration as messages name it."""
        return f"network {find_member(self.members, 'name') or '-'}"

    def path_of(self, names: Path) -> Path:
        """Where one of its members is in the document: name and version are the list's."""
        return names if self.path and names[:1] and names[0] in _OF_THE_LIST else (*self.path, *names)


@frozen
class _Plugin:
    """What is read of every plugin of a list."""

    type: str


@frozen
class _List:
    """What is read of a list itself."""

    plugins: tuple[Mapping[str, object], ...]


_LIST_DECODER: Final = Decoder(
    cni_error,
    tables=(
        Table(cls=_List, fields={"plugins": Field("plugins", ListOf(OBJECT))}),
        Table(cls=_Plugin, fields={"type": Field("type", NONEMPTY_STRING)}),
    ),
)


def read_configurations(document: Document) -> tuple[tuple[Configuration, ...], tuple[Finding, ...]]:
    """The configurations of a document for netplug, and what they break by themselves."""
    read, found = list[Configuration](), list(_list_problems(document))
    for members, path in _split(document, found):
        plugin = _plugin_of(members)
        if plugin is not None:
            one = Configuration(document=document, plugin=plugin, members=members, path=path)
            read.append(_check(one, found))
    return tuple(read), tuple(found)


def _list_problems(document: Document) -> Iterator[Finding]:
    """What libcni refuses of a whole file: a list without a name, and a list or a plugin under the other's ending."""
    members = _with_text_keys(document.mapping)
    subject, is_list = f"network {members.get('name') or '-'}", "plugins" in members
    suffix = next((one for one in _FILE_SUFFIXES if document.file.endswith(one)), "")
    problems: list[tuple[str, object, str]] = []
    if is_list and members.get("name") in (None, ""):
        problems.append(("name", None, "a list needs a name; the name of a plugin in it does not count"))
    if is_list and suffix not in ("", _LIST_SUFFIX):
        problems.append(("file name", suffix, f"a list belongs into a file that ends in {_LIST_SUFFIX}"))
    if not is_list and suffix == _LIST_SUFFIX:
        problems.append(("file name", suffix, "a single plugin belongs into a file that ends in .conf or .json"))
    for field_name, value, accepted in problems:
        yield Finding(
            rule=Rule.LIST_MALFORMED, source=document.source, subject=subject, field=field_name, value=value,
            accepted=accepted,
        )  # fmt: skip


def find_file_order(documents: Iterable[Document]) -> Iterator[Finding]:
    """Files with netplug in them that are not the first one of their folder."""
    folders: dict[str, list[Document]] = {}
    for document in documents:
        folder, slash, name = document.file.rpartition("/")
        if name.endswith(_FILE_SUFFIXES):
            folders.setdefault(folder + slash, []).append(document)
    for folder, members in folders.items():
        first, *others = sorted(members, key=lambda one: one.file)
        if any(_plugin_of(found) is not None for found, _path in _split(first, [])):
            continue
        for other in others:
            if any(_plugin_of(found) is not None for found, _path in _split(other, [])):
                name = other.file.removeprefix(folder)
                accepted = f"a name that comes before {first.file.removeprefix(folder)}"
                subject = f"network {find_member(other.mapping, 'name') or '-'}"
                yield Finding(
                    rule=Rule.FILE_ORDER, source=other.source, subject=subject, field="file name", value=name,
                    accepted=accepted,
                )  # fmt: skip
                break


def _split(document: Document, found: list[Finding]) -> Iterator[tuple[Mapping[str, object], Path]]:
    """The configurations of a list, as a runtime sends them, each with its path; of a single one, that."""
    members = _with_text_keys(document.mapping)
    if "plugins" not in members:
        yield members, ()
        return
    shared = {name: members[name] for name in _OF_THE_LIST if name in members}
    # That a list has no name is one problem of the list, and none of each plugin.
    shared["name"] = shared.get("name") or "unnamed"
    try:
        plugins = _read_plugins(members)
    except DecodeError as error:
        subject = f"network {shared.get('name') or '-'}"
        where = error.where.removeprefix(".")
        found.append(
            Finding(
                rule=Rule.LIST_MALFORMED, source=document.source, subject=subject, field=where, value=None,
                accepted=error.problem,
            )
        )  # fmt: skip
        return
    for number, plugin in enumerate(plugins):
        yield {**plugin, **shared}, ("plugins", number)


def _with_text_keys(members: Mapping[str, object]) -> Mapping[str, object]:
    """The object as JSON has it: a key of YAML can be a number or a truth value too, such as ``8080`` or ``on``."""
    return {str(name): _with_text_keys_inside(value) for name, value in members.items()}


def _with_text_keys_inside(value: object) -> object:
    if isinstance(value, Mapping):
        return _with_text_keys(value)
    return [_with_text_keys_inside(one) for one in value] if isinstance(value, list) else value


def _read_plugins(members: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    plugins = _LIST_DECODER.decode(members, _List, "").plugins
    for number, plugin in enumerate(plugins):
        _LIST_DECODER.decode(plugin, _Plugin, f".plugins[{number}]")
    if not plugins:
        raise DecodeError(".plugins", "must have at least one plugin")
    return plugins


def _plugin_of(members: Mapping[str, object]) -> Plugin | None:
    if find_member(members, "type") == "netplug" or "type" not in members:
        return Plugin.MAIN
    return Plugin.IPAM if find_member(members, "ipam", "type") == BLOCK_IPAM else None


# --- one configuration ------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Loaded:
    """What became of a configuration. ``error`` is the first one; ``is_last``: what follows it would follow from it."""

    netconf: NetConf | None = None
    range_sets: tuple[RangeSet, ...] = ()
    error: ConfigurationError | DecodeError | None = None
    is_last: bool = False


def _check(one: Configuration, found: list[Finding]) -> Configuration:
    """The configuration as it was loaded. What it breaks is added; a member that is refused is left out of the rest."""
    found.extend(_header_problems(one))
    found.extend(_placeholder_problems(one))
    members, refused = one.members, set[Path]()
    loaded = _load(members, one.plugin)
    while loaded.error is not None and (path := _path_of(loaded.error)) not in refused:
        refused.add(path)
        found.append(_error_finding(one, loaded.error, is_loaded=loaded.netconf is not None))
        if loaded.is_last:
            break
        members = with_member(members, path, None)
        loaded = _load(members, one.plugin)
    if one.plugin is Plugin.MAIN:
        found.extend(_unknown_key_problems(one))
    if loaded.netconf is None:
        return one
    found.extend(_loaded_problems(one, loaded.netconf))
    return one if refused else evolve(one, netconf=loaded.netconf, range_sets=loaded.range_sets)


def _header_problems(one: Configuration) -> Iterator[Finding]:
    """Why name and version are refused, as by every call."""
    try:
        make_request(CNIEnvironment(command=CNICommand.ADD), netconf_text="", netconf_mapping=one.members)
    except IncompatibleVersion as error:
        value = find_member(one.members, "cniVersion")
        yield _finding(one, Rule.CNI_VERSION, ("cniVersion",), value, error.details)
    except (ConfigurationError, DecodeError) as error:
        yield _error_finding(one, error, is_loaded=False)


def _placeholder_problems(one: Configuration) -> Iterator[Finding]:
    """Texts of a template that were not filled in: a call would take them for a name, a path or an address."""
    for path, text in _texts_in(one.members, ()):
        placeholder = _PLACEHOLDER.search(text)
        if placeholder:
            yield _finding(one, Rule.PLACEHOLDER, path, placeholder[0], "the value for this node is expected")


_PLACEHOLDER: Final = re.compile(r"__[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*__|\$\{[^{}]*\}|\{\{[^{}]*\}\}", re.ASCII)


def _texts_in(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from _texts_in(member, (*path, name))
    elif isinstance(value, list):
        for position, member in enumerate(value):
            yield from _texts_in(member, (*path, position))


def _load(members: Mapping[str, object], plugin: Plugin) -> _Loaded:
    try:
        netconf = load(members, plugin)
    except (ConfigurationError, DecodeError) as error:
        return _Loaded(error=error)
    if netconf.unsupported is not None or netconf.ipam.type != HOST_LOCAL_IPAM:
        return _Loaded(netconf=netconf, error=netconf.unsupported)
    try:
        settings = load_settings(members)
        if settings.uses_pod_cidrs:  # which ranges these are is known on a node
            return _Loaded(netconf=netconf)
        sets = make_range_sets(settings)
        if negotiate_version(settings.version).result_format is ResultFormat.PER_FAMILY:
            require_one_set_per_family(settings, sets)
    except (ConfigurationError, DecodeError) as error:
        return _Loaded(error=error, is_last=True)
    except IncompatibleVersion:  # found with the header
        return _Loaded(netconf=netconf)
    return _Loaded(netconf=netconf, range_sets=sets)


def _path_of(error: ConfigurationError | DecodeError) -> tuple[str, ...]:
    """The member that an error is about; of a list or of an object of texts that member, whichever entry it is."""
    return tuple(_place_of(error)[0].split(".")[1:])


def _place_of(error: ConfigurationError | DecodeError) -> tuple[str, str]:
    """The names that lead to the member, and the entry in it, whose key may have dots: ``['a.b']``."""
    names, bracket, entry = error.where.removeprefix(_WHERE).partition("[")
    return names, f"{bracket}{entry}"


def _error_finding(one: Configuration, error: ConfigurationError | DecodeError, *, is_loaded: bool) -> Finding:
    """What was found by an error. ``is_loaded``: each value is accepted by itself."""
    path = _path_of(error)
    if isinstance(error, DecodeError):
        value = find_at(one.members, path)
        shown = value if isinstance(value, bool | int | float) else REDACTED  # a text may be a secret
        wrong = _finding(one, Rule.WRONG_TYPE, path, shown, error.problem)
        found = evolve(wrong, repair=_find_conversion(one, path, value))
    else:
        rule = Rule.KEY_MISPLACED if is_loaded else Rule.VALUE_REFUSED
        found = _finding(one, rule, path, error.value, error.accepted)
    return evolve(found, field=found.field + _place_of(error)[1])


def _find_conversion(one: Configuration, path: tuple[str, ...], value: object) -> Repair | None:
    """The same value as another JSON type, if that is accepted."""
    candidates: tuple[str | int, ...] = ()
    if isinstance(value, bool):
        candidates = (str(value).lower(),)
    elif isinstance(value, int):
        candidates = (str(value),)
    elif isinstance(value, str):
        candidates = (*_BOOLEANS.get(value, ()), *((int(value),) if value.isascii() and value.isdigit() else ()))
    for candidate in candidates:
        error = _load(with_member(one.members, path, candidate), one.plugin).error
        if error is None or _path_of(error) != path:
            return Repair(one.path_of(path), candidate)
    return None


def _unknown_key_problems(one: Configuration) -> Iterator[Finding]:
    for path, known in find_unknown_keys(one.members):
        meant = get_close_matches(path[-1].lower(), known, n=1)
        accepted = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(sorted(known))}"
        yield _finding(one, Rule.UNKNOWN_KEY, path, REDACTED, accepted)


def _loaded_problems(one: Configuration, netconf: NetConf) -> Iterator[Finding]:
    yield from _endpoint_problems(one, netconf.datastore)
    hostname = (("hostname", "nodename"),) if netconf.hostname else ()
    for key, newer in (*hostname, *netconf.deprecated_keys):
        yield _finding(one, Rule.DEPRECATED_KEY, tuple(key.split(".")), REDACTED, f"{newer} is the newer key")
    for key in netconf.ignored_keys:
        accepted = f"the datastore is {netconf.datastore.type}, which does not read it"
        yield _finding(one, Rule.IGNORED_KEY, (key,), REDACTED, accepted)
    if one.plugin is Plugin.MAIN and netconf.policy_type and not netconf.policy_guard:
        accepted = "true, where the node process enforces policy (NETPLUG_POLICY=Enabled)"
        yield _finding(one, Rule.POLICY_UNGUARDED, ("policy_guard",), None, accepted)
    try:
        families = {wanted.family for wanted in wanted_of(netconf)}
        families |= {range_set.family for range_set in one.range_sets}
        if one.plugin is Plugin.MAIN and (problem := find_mtu_problem(netconf.mtu, families)):
            yield _finding(one, Rule.VALUE_REFUSED, ("mtu",), netconf.mtu, problem)
    except AllocationError as error:
        yield _finding(one, Rule.NO_FAMILY, ("ipam", "assign_ipv4"), find_at(one.members, ("ipam", "assign_ipv4")),
                       str(error))  # fmt: skip


def _endpoint_problems(one: Configuration, datastore: DatastoreSettings) -> Iterator[Finding]:
    """What the backend refuses once it is asked to connect; a placeholder has a finding of its own."""
    urls = datastore.etcd_endpoints
    if datastore.type != ETCD_DATASTORE or datastore.etcd_discovery_srv or any(map(_PLACEHOLDER.search, urls)):
        return
    try:
        parse_endpoints(urls, datastore.etcd_endpoints_source)
    except ConfigurationError as error:
        where = error.where.partition(" and ")[0].split(".")
        yield _finding(one, Rule.VALUE_REFUSED, tuple(where), error.value, error.accepted)


def _finding(one: Configuration, rule: Rule, path: Path, value: object, accepted: str) -> Finding:
    return Finding(
        rule=rule, source=one.document.source, subject=one.subject, field=format_path(one.path_of(path)), value=value,
        accepted=accepted,
    )  # fmt: skip
