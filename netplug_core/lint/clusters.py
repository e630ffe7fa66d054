"""What documents are together: pools beside nodes, namespaces, configurations and pods, ranges beside other ranges.

The ranges are those of pods, of services, of the networks of hosts and of the routes of a host.

Which pool may serve is decided by the rules of assignment itself. Nothing is judged by what is not known: without a
pool no configuration, without a node no selector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve, frozen

from netplug_core.addressing import Address, Family, Prefix, PrefixIndex
from netplug_core.decoding.codecs import STRING, Codec, Refused
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, document_error
from netplug_core.errors import AllocationError, ConfigurationError, NetplugError
from netplug_core.flows.cni.call import wanted_of
from netplug_core.ipam.allocation.pools import (
    Choice,
    Pools,
    Reserved,
    choose,
    find_selector_problems,
    is_enabled,
    is_selected,
    pool_of_address,
)
from netplug_core.ipam.allocation.request import AssignRequest, Automatic, Specific
from netplug_core.ipam.outcome import NoPoolQualifies, NoPoolServes, PoolUnknown
from netplug_core.lint.configurations import Configuration
from netplug_core.lint.documents import KubernetesObject, Sourced
from netplug_core.lint.resources import AnnotatedObject, field_problems
from netplug_core.lint.rules import Finding, Rule, format_path
from netplug_core.names import HOST_INTERFACE_PREFIX
from netplug_core.netconf.model import BLOCK_IPAM, NetConf
from netplug_core.netconf.precedence import (
    ALLOWED_SOURCE_PREFIXES,
    FLOATING_IPS,
    IP_ADDRS,
    IP_ADDRS_NO_IPAM,
    AnnotationRefused,
    require_allowed,
)
from netplug_core.records import Record, Revision
from netplug_core.resources.hostendpoint import HostEndpoint
from netplug_core.resources.ippool import AllowedUse, AssignmentMode, IPPool, IPReservation
from netplug_core.resources.node import Node
from netplug_core.resources.profile import (
    DEFAULT_ALLOW_PROFILE,
    NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
)
from netplug_core.resources.validation import InvalidResource, validate_pool_overlaps, validate_pool_update
from netplug_core.selectors import SelectorError, matches, parse

__all__ = [
    "Cluster", "HostRoute", "Surroundings", "check_cluster", "check_ranges", "find_pool_changes", "read_routes",
]  # fmt: skip


# --- clusters --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Cluster:
    """Everything that is known of a cluster. ``installed`` are the pools that an Installation stands for."""

    pools: tuple[Sourced[IPPool], ...] = ()
    installed: tuple[Sourced[IPPool], ...] = ()
    reservations: tuple[Sourced[IPReservation], ...] = ()
    nodes: tuple[Sourced[Node], ...] = ()
    profiles: tuple[Sourced[Profile], ...] = ()
    host_endpoints: tuple[Sourced[HostEndpoint], ...] = ()
    namespaces: tuple[KubernetesObject, ...] = ()
    configurations: tuple[Configuration, ...] = ()
    workloads: tuple[AnnotatedObject, ...] = ()

    @property
    def all_pools(self) -> tuple[Sourced[IPPool], ...]:
        """Every pool."""
        return (*self.pools, *self.installed)

    @property
    def records(self) -> Pools:
        """The pools as a datastore lists them."""
        pools = sorted((one.value for one in self.all_pools), key=lambda pool: pool.metadata.name)
        return tuple(Record(pool.key, pool, Revision("")) for pool in pools)

    @property
    def netconfs(self) -> tuple[tuple[Configuration, NetConf], ...]:
        """The configurations without an error."""
        return tuple((one, one.netconf) for one in self.configurations if one.netconf is not None)


def check_cluster(cluster: Cluster) -> Iterator[Finding]:
    """What is wrong between objects."""
    yield from _overlaps(cluster)
    yield from _shared_addresses(cluster)
    yield from _refused_annotations(cluster)
    if cluster.profiles:
        yield from _unknown_profiles(cluster)
    if cluster.all_pools:
        yield from _reservations(cluster)
        yield from _unknown_pools(cluster)
        yield from _addresses_of_pods(cluster)
        if cluster.nodes:
            yield from _pools_without_nodes(cluster)
            yield from _nodes_without_pools(cluster)
        if cluster.namespaces:
            yield from _pools_without_namespaces(cluster)


def find_pool_changes(pools: Sequence[Sourced[IPPool]], stored: Sequence[IPPool]) -> Iterator[Finding]:
    """What cannot be changed of stored pools, and is another in the documents."""
    by_name = {pool.metadata.name: pool for pool in stored}
    for one in pools:
        old = by_name.get(one.value.metadata.name)
        try:
            if old is not None:
                validate_pool_update(old, one.value)
        except InvalidResource as error:
            yield from field_problems(Rule.POOL_CHANGE, one.value, error.field_errors, one.source)


# --- pools ------------------------------------------------------------------------------------------------------------


def _overlaps(cluster: Cluster) -> Iterator[Finding]:
    """Pools that overlap an earlier one. Those of an Installation have been judged beside each other."""
    earlier = PrefixIndex[IPPool]()
    for number, one in enumerate(cluster.all_pools):
        prefix = one.value.spec.prefix
        others = earlier.overlapping(prefix)
        if number < len(cluster.pools):
            earlier.add(prefix, one.value)
        try:
            validate_pool_overlaps(one.value, others)
        except InvalidResource as error:
            yield from field_problems(Rule.POOL_OVERLAP, one.value, error.field_errors, one.source)


def _reservations(cluster: Cluster) -> Iterator[Finding]:
    prefixes = [one.value.spec.prefix for one in cluster.all_pools]
    for one in cluster.reservations:
        for number, reserved in enumerate(one.value.spec.reserved):
            if not any(reserved.overlaps(prefix) for prefix in prefixes):
                yield Finding(
                    rule=Rule.RESERVATION_OUTSIDE,
                    source=one.source,
                    subject=f"IPReservation({one.value.metadata.name})",
                    field=f"spec.reservedCIDRs[{number}]",
                    value=str(reserved),
                    accepted=f"a range of a pool is expected: {', '.join(map(str, prefixes))}",
                )
    reserved_set = Reserved.of(prefix for one in cluster.reservations for prefix in one.value.spec.reserved)
    for pool in cluster.all_pools:
        if reserved_set.covers(pool.value.spec.prefix):
            accepted = "at least one address that is not reserved is expected"
            yield _pool_finding(Rule.POOL_RESERVED, pool, "cidr", pool.value.spec.prefix, accepted)


def _unknown_profiles(cluster: Cluster) -> Iterator[Finding]:
    """Host endpoints whose profiles do not exist. Those of namespaces and accounts are the orchestrator's."""
    names = {DEFAULT_ALLOW_PROFILE.key.name, *(one.value.metadata.name for one in cluster.profiles)}
    for one in cluster.host_endpoints:
        for number, name in enumerate(one.value.spec.profiles):
            if name not in names and not name.startswith((NAMESPACE_PROFILE_PREFIX, SERVICE_ACCOUNT_PROFILE_PREFIX)):
                yield Finding(
                    rule=Rule.PROFILE_UNKNOWN,
                    source=one.source,
                    subject=f"HostEndpoint({one.value.metadata.name})",
                    field=f"spec.profiles[{number}]",
                    value=name,
                    accepted=f"the name of a profile is expected: {', '.join(sorted(names))}",
                )


def _pools_without_nodes(cluster: Cluster) -> Iterator[Finding]:
    records = {record.key.name: record for record in cluster.records}
    for pool in cluster.all_pools:
        spec = pool.value.spec
        if not is_enabled(pool.value) or spec.assignment_mode is AssignmentMode.MANUAL:
            continue
        record = records[pool.value.metadata.name]
        try:
            selected = [one for one in cluster.nodes if is_selected(record, dict(one.value.metadata.labels))]
        except ConfigurationError:
            continue  # found with the pool itself
        blocks = spec.prefix.subprefix_count(spec.block_length) if spec.block_length >= spec.prefix.length else 0
        if not selected:
            accepted = f"a selector of a node is expected; there are {_names(cluster.nodes)}"
            yield _pool_finding(Rule.POOL_WITHOUT_NODE, pool, "nodeSelector", spec.node_selector, accepted)
        elif 0 < blocks < len(selected):
            accepted = f"at least {len(selected)} blocks are expected, one for each node; there are {blocks}"
            yield _pool_finding(Rule.POOL_FEW_BLOCKS, pool, "blockSize", spec.block_length, accepted)


def _pools_without_namespaces(cluster: Cluster) -> Iterator[Finding]:
    names = ", ".join(one.name for one in cluster.namespaces)
    for pool in cluster.all_pools:
        text = pool.value.spec.namespace_selector
        try:
            selector = parse(text)
        except SelectorError:
            continue  # found with the pool itself
        if text and not any(matches(selector, dict(one.labels)) for one in cluster.namespaces):
            accepted = f"a selector of a namespace is expected; there are {names}"
            yield _pool_finding(Rule.POOL_WITHOUT_NAMESPACE, pool, "namespaceSelector", text, accepted)


def _pool_finding(rule: Rule, pool: Sourced[IPPool], field: str, value: object, accepted: str) -> Finding:
    return Finding(
        rule=rule,
        source=pool.source,
        subject=str(pool.value.key),
        field=f"spec.{field}",
        value=value if isinstance(value, int) else str(value),
        accepted=accepted,
    )


def _names(nodes: Sequence[Sourced[Node]]) -> str:
    return ", ".join(one.value.metadata.name for one in nodes)


# --- nodes and configurations -----------------------------------------------------------------------------------------


def _nodes_without_pools(cluster: Cluster) -> Iterator[Finding]:
    # A namespace may have any labels, so that any of the selectors of namespaces may match.
    pools = tuple(
        evolve(record, value=evolve(record.value, spec=evolve(record.value.spec, namespace_selector="")))
        for record in cluster.records
    )
    for node in cluster.nodes:
        name, labels = node.value.metadata.name, dict(node.value.metadata.labels)
        for wanted in _automatic_families(cluster):
            error = _find_refusal(pools, wanted, labels, node=name)
            if isinstance(error, NoPoolServes | NoPoolQualifies) and any(map(find_selector_problems, pools)):
                continue  # the selector is found with the pool itself
            if isinstance(error, AllocationError):
                yield Finding(
                    rule=Rule.NODE_WITHOUT_POOL,
                    source=node.source,
                    subject=f"Node({name})",
                    field="metadata.labels",
                    value=", ".join(f"{label}={text}" for label, text in labels.items()) or None,
                    accepted=str(error),
                )


def _automatic_families(cluster: Cluster) -> tuple[Automatic, ...]:
    """What pods ask for that name no pool: what configurations say, or without any an address of each pool's family."""
    if not cluster.configurations:
        return tuple(map(_one_address, sorted({one.value.spec.prefix.family for one in cluster.all_pools})))
    wanted = (one for _at, netconf in cluster.netconfs for one in _wanted(netconf) if not one.pools)
    return tuple(dict.fromkeys(wanted))


def _one_address(family: Family) -> Automatic:
    return Automatic(family=family)


def _wanted(netconf: NetConf) -> tuple[Automatic, ...]:
    """What a configuration asks for by itself."""
    try:
        return tuple(one for one in wanted_of(netconf) if isinstance(one, Automatic))
    except AllocationError:
        return ()  # found with the configuration itself


def _unknown_pools(cluster: Cluster) -> Iterator[Finding]:
    """Pools that configurations name, and that do not serve them."""
    for one, netconf in cluster.netconfs:
        for wanted in _wanted(netconf):
            for number, name in enumerate(wanted.pools):
                error = _find_refusal(cluster.records, evolve(wanted, pools=(name,)), {})
                if error is not None:
                    is_unknown = isinstance(error, PoolUnknown | ConfigurationError)
                    yield Finding(
                        rule=Rule.POOL_UNKNOWN if is_unknown else Rule.POOL_UNUSABLE,
                        source=one.document.source,
                        subject=one.subject,
                        field=format_path(one.path_of(("ipam", f"ipv{wanted.family.value}_pools", number))),
                        value=name,
                        accepted=str(error),
                    )


def _find_refusal(
    pools: Pools, wanted: Automatic, labels: dict[str, str], *, node: str = "a-node"
) -> NetplugError | None:
    """Why no pool serves a request; None if one does."""
    request = AssignRequest(handle=None, node=node, wanted=(wanted,), use=AllowedUse.WORKLOAD)
    chosen = choose(pools, request, wanted, labels)
    return None if isinstance(chosen, Choice) else chosen


# --- pods -------------------------------------------------------------------------------------------------------------


def _refused_annotations(cluster: Cluster) -> Iterator[Finding]:
    """Annotations that a configuration does not allow, or that its IPAM cannot follow."""
    for one in cluster.workloads:
        for _at, netconf in cluster.netconfs:
            try:
                require_allowed(one.pod, one.asked, netconf)
            except AnnotationRefused as error:
                rule = Rule.FEATURE_OFF if _is_feature_off(error.annotation, netconf) else Rule.ANNOTATION_IPAM
                yield one.finding(rule, error.annotation, error.value, error.accepted)


def _is_feature_off(name: str, netconf: NetConf) -> bool:
    last, features = name.rpartition("/")[2], netconf.feature_control
    if last == IP_ADDRS_NO_IPAM:
        return not features.ip_addrs_no_ipam
    return last in (FLOATING_IPS, ALLOWED_SOURCE_PREFIXES)


def _addresses_of_pods(cluster: Cluster) -> Iterator[Finding]:
    """Pools and addresses that annotations name, and that do not serve them."""
    if cluster.netconfs and not any(netconf.ipam.type == BLOCK_IPAM for _at, netconf in cluster.netconfs):
        return
    for one in cluster.workloads:
        for family, names in one.asked.pools:
            for name in names:
                error = _find_refusal(cluster.records, Automatic(family=family, pools=(name,)), {})
                if error is not None:
                    is_unknown = isinstance(error, PoolUnknown)
                    rule = Rule.ANNOTATION_POOL_UNKNOWN if is_unknown else Rule.ANNOTATION_POOL_UNUSABLE
                    yield one.finding(rule, one.pod.full_name(f"ipv{family.value}pools"), name, str(error))
        for address in one.asked.addresses:
            found = pool_of_address(cluster.records, Specific(address=address), AllowedUse.WORKLOAD)
            if isinstance(found, NetplugError):
                yield one.finding(Rule.ADDRESS_OUTSIDE, one.pod.full_name(IP_ADDRS), str(address), str(found))


def _shared_addresses(cluster: Cluster) -> Iterator[Finding]:
    owners: dict[Address, str] = {}
    for one in cluster.workloads:
        for name, addresses in ((IP_ADDRS, one.asked.addresses), (IP_ADDRS_NO_IPAM, one.asked.addresses_no_ipam)):
            for address in addresses:
                owner = owners.setdefault(address, one.found.subject)
                if owner != one.found.subject or one.found.replicas > 1:
                    count = f"{one.found.replicas} replicas" if owner == one.found.subject else owner
                    accepted = f"{count} would have the same address"
                    yield one.finding(Rule.ADDRESS_SHARED, one.pod.full_name(name), str(address), accepted)


# --- ranges ----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class HostRoute:
    """A route of a host. ``destination`` is None for the default route."""

    destination: Prefix | None = None
    device: str = ""

    def __str__(self) -> str:
        return f"{self.destination} dev {self.device or '-'}"


@frozen(kw_only=True)
class Surroundings:
    """What else has addresses where pods run."""

    services: tuple[Prefix, ...] = ()
    hosts: tuple[Prefix, ...] = ()
    routes: tuple[HostRoute, ...] = ()


@frozen(kw_only=True)
class _Routes:
    routes: tuple[HostRoute, ...]


@frozen(kw_only=True)
class _Range:
    """Addresses of pods, and where they are configured."""

    prefix: Prefix
    source: str
    subject: str
    field: str
    is_pool: bool

    def finding(self, rule: Rule, accepted: str) -> Finding:
        return Finding(
            rule=rule,
            source=self.source,
            subject=self.subject,
            field=self.field,
            value=str(self.prefix),
            accepted=accepted,
        )


def _read_destination(value: object) -> Prefix | None:
    text = str(STRING.decode(value))
    try:
        return None if text == "default" else Prefix.parse(text)
    except ValueError:
        raise Refused("default or a CIDR") from None


_DECODER: Final = Decoder(
    document_error,
    tables=(
        Table(cls=_Routes, fields={"routes": Field("routes", ListOf(HostRoute))}),
        Table(
            cls=HostRoute,
            fields={"destination": Field("dst", Codec(_read_destination)), "device": Field("dev", STRING)},
        ),
    ),
)


def read_routes(value: object, *, source: str) -> tuple[HostRoute, ...]:
    """The routes of a host, as ``ip -j route`` prints them.

    Raises:
        ConfigurationError: it prints something else.
    """
    return _DECODER.decode({"routes": value}, _Routes, source).routes


def check_ranges(cluster: Cluster, surroundings: Surroundings) -> Iterator[Finding]:
    """What ranges of pods have in common with others."""
    ranges = tuple(_ranges(cluster))
    for one in ranges:
        yield from _range_problems(one, surroundings)
    yield from _service_problems(surroundings)
    pools = [one for one in ranges if one.is_pool]
    for one in ranges:
        for pool in pools if not one.is_pool else ():
            if pool.prefix.overlaps(one.prefix):
                yield one.finding(
                    Rule.TWO_IPAMS, f"a range outside of {pool.prefix}, that of {pool.subject}, is expected"
                )


def _range_problems(one: _Range, surroundings: Surroundings) -> Iterator[Finding]:
    for services in surroundings.services:
        if services.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_OF_SERVICES, f"a range outside of {services}, that of services, is expected")
    for hosts in surroundings.hosts:
        if hosts.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_OF_HOSTS, f"a range outside of {hosts}, the network of hosts, is expected")
    for route in surroundings.routes:
        if _is_foreign(route) and route.destination is not None and route.destination.overlaps(one.prefix):
            yield one.finding(Rule.RANGE_ROUTED, f"a range without other routes is expected; the host has {route}")


def _service_problems(surroundings: Surroundings) -> Iterator[Finding]:
    for services in surroundings.services:
        for hosts in surroundings.hosts:
            if services.overlaps(hosts):
                yield Finding(
                    rule=Rule.SERVICES_IN_HOSTS,
                    source="command line",
                    subject="services",
                    field="--service-cidr",
                    value=str(services),
                    accepted=f"a range outside of {hosts}, the network of hosts, is expected",
                )


def _is_foreign(route: HostRoute) -> bool:
    """Whether another program made a route: those of netplug lead to its own interfaces."""
    return not route.device.startswith(HOST_INTERFACE_PREFIX)


def _ranges(cluster: Cluster) -> Iterator[_Range]:
    for pool in cluster.all_pools:
        prefix, subject = pool.value.spec.prefix, str(pool.value.key)
        yield _Range(prefix=prefix, source=pool.source, subject=subject, field="spec.cidr", is_pool=True)
    for one in cluster.configurations:
        field = format_path(one.path_of(("ipam", "ranges")))
        for range_set in one.range_sets:
            for each in range_set.ranges:
                yield _Range(
                    prefix=each.subnet, source=one.document.source, subject=one.subject, field=field, is_pool=False
                )
