"""What the table ``inet netplug_net`` of a node has in it: outgoing NAT, floating addresses, and the guards of tunnels.

Pure rules: the controller ``packet filter`` of the node process compares the table with the kernel's. Chains and rules
follow from settings; what changes with pools, nodes and workloads are elements of sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from attrs import field, frozen

from netplug_core.addressing import Address, Family, Prefix, disjoint_prefixes
from netplug_core.dataplane.filter import NO_OVERLAY, Overlay
from netplug_core.dataplane.routing import IPIP_DEVICE, VXLAN_DEVICES
from netplug_core.dataplane.ruleset import (
    BaseChain,
    Chain,
    ChainType,
    ChangeElements,
    Concatenation,
    DestinationNAT,
    Element,
    ElementType,
    Fib,
    FibKey,
    Goto,
    Hook,
    MapLookup,
    Masquerade,
    Match,
    Meta,
    MetaKey,
    NamedSet,
    ObservedTable,
    PacketTable,
    Payload,
    ReplaceTable,
    Rule,
    SetReference,
    SourceNAT,
    Statement,
    Verdict,
    destination_of,
    find_change,
    source_of,
)
from netplug_core.datastore.view import View
from netplug_core.names import HOST_INTERFACE_PREFIX
from netplug_core.reconcile.controller import Problem
from netplug_core.resources.fields import MAX_PORT, PortRange, Switch
from netplug_core.resources.ippool import IPPOOL, AllowedUse, Encapsulation, IPPool
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.nodeconfiguration import (
    NODE_CONFIGURATION,
    NodeConfigurationSpec,
    OutgoingExclusions,
    effective_settings,
)
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = [
    "FORMER_TABLE", "NET_TABLE", "NODE_LOOPBACK", "NatFacts", "TablePlan", "find_changed_floating", "find_floating",
    "find_nat_facts", "find_overlay", "find_table_change", "has_former_rule", "plan_table",
]  # fmt: skip

NET_TABLE: Final = "netplug_net"
"""The table of NAT and of guards. That of policy is another one, so that each is replaced alone."""

FORMER_TABLE: Final = "netplug"
"""The table that a former release had its only rule in; now it is policy's."""

NODE_LOOPBACK: Final = Prefix.parse("127.0.0.0/8")
"""Where no packet of a workload may go on the node: programs that listen there trust every sender.

The host end of a workload keeps such packets out by ``route_localnet`` 0, but ``portmap`` sets it to 1 where a port is
mapped. (IPv6 has no such setting: the kernel accepts ``::1`` from no interface.)
"""

_RAW: Final = -300  # before connection tracking, and before the addresses of mapped ports are translated
_BEFORE_POLICY: Final = -10
_BEFORE_DNAT, _BEFORE_SNAT = -105, 95  # just before other programs translate addresses at -100 and 100
_FORMER_BASE: Final = BaseChain(ChainType.FILTER, Hook.PREROUTING, _RAW)
_NOT_PROGRAMMED: Final = "a floating address is not programmed"
_FIRST_RANDOM_PORT: Final = 1024
_IPIP_PROTOCOL: Final = 4
_VXLAN_PORT: Final = 4789


# --- what it follows from ---------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class NatFacts:
    """What the table follows from.

    ``pools`` are all of the datastore, and ``node_addresses`` those of all nodes. ``own_families`` are those in which
    this node has an address. ``endpoints`` are those of this node, ``settings`` what holds for it.
    """

    pools: tuple[IPPool, ...] = ()
    settings: NodeConfigurationSpec = field(factory=NodeConfigurationSpec)
    own_families: frozenset[Family] = frozenset(Family)
    node_addresses: frozenset[Address] = frozenset()
    endpoints: tuple[WorkloadEndpoint, ...] = ()


def find_nat_facts(view: View, node: str, endpoints: Iterable[WorkloadEndpoint] = ()) -> NatFacts:
    """The facts for a node, by what is stored. Nodes, pools and configurations of nodes have been listed."""
    nodes = {record.value.metadata.name: record.value for record in view.list(NODE)}
    addresses = {name: _addresses_of(each) for name, each in nodes.items()}
    return NatFacts(
        pools=tuple(record.value for record in view.list(IPPOOL)),
        settings=effective_settings((record.value for record in view.list(NODE_CONFIGURATION)), node),
        own_families=frozenset(address.family for address in addresses.get(node, ())),
        node_addresses=frozenset(address for each in addresses.values() for address in each),
        endpoints=tuple(endpoints),
    )


def _addresses_of(node: Node) -> tuple[Address, ...]:
    found = (node.find_address(family) for family in Family)
    return tuple(held.address for held in found if held is not None)


@frozen
class TablePlan:
    """The table, and what of the facts is not in it."""

    table: PacketTable
    problems: tuple[Problem, ...] = ()


def plan_table(facts: NatFacts) -> TablePlan:
    """The table for some facts."""
    pools = _Pools.of(facts.pools)
    floating, problems = _plan_floating(facts)
    wrapped = _Wrapped.of(facts)
    has_floating = facts.settings.floating_ips is Switch.ENABLED
    outgoing = (
        *(_hairpin_rules() if has_floating else ()),
        *(rule for family in pools.families_with_nat for rule in _nat_rules(family, facts.settings, wrapped)),
        *_tunnel_rules(wrapped),
    )
    chains = (
        _loopback_chain(),
        *_guard_chains(wrapped),
        *(_floating_chains() if has_floating else ()),
        *([Chain(name="outgoing", base=_nat(Hook.POSTROUTING, _BEFORE_SNAT), rules=outgoing)] if outgoing else ()),
    )
    sets = (
        *pools.sets(),
        *_node_sets(facts, wrapped),
        *(_floating_sets(floating) if has_floating else ()),
    )
    problems = (*problems, *_find_missing_addresses(facts, pools))
    return TablePlan(PacketTable(name=NET_TABLE, sets=sets, chains=chains), problems)


def find_table_change(plan: TablePlan | None, observed: ObservedTable | None) -> ReplaceTable | ChangeElements | None:
    """What makes the table as it is planned; None if it is so.

    Without a plan, as long as the facts are not known, a table of an earlier process stays as long as it has the guard
    of the node's loopback; where it has not, there is only that guard.
    """
    if plan is not None:
        return find_change(plan.table, observed)
    guard = _loopback_chain()
    if observed is not None and guard.outline in observed.chains:
        return None
    return ReplaceTable(PacketTable(name=NET_TABLE, chains=(guard,)))


def find_changed_floating(plan: TablePlan, observed: ObservedTable | None) -> frozenset[Address]:
    """The floating addresses that another workload has in the plan than in the kernel, or only one of the two has.

    Connections that were begun before know where they lead, so they have to be forgotten.
    """
    differing = _floating_elements(plan.table.sets) ^ _floating_elements(() if observed is None else observed.sets)
    return frozenset(part for each in differing for part in each.key if isinstance(part, Address))


def has_former_rule(observed: ObservedTable | None) -> bool:
    """Whether the table of policy's name is the one of a former release: one chain, with one rule, and nothing else."""
    if observed is None or observed.sets or observed.unreadable:
        return False
    return [(each.name, each.base, each.marks) for each in observed.chains] == [("prerouting", _FORMER_BASE, ("",))]


def _loopback_chain() -> Chain:
    """Drops what comes from a host end and is for the node's loopback addresses."""
    from_workload = Match(Meta(MetaKey.INPUT_INTERFACE), f"{HOST_INTERFACE_PREFIX}*")
    to_loopback = Match(destination_of(Family.IPV4), NODE_LOOPBACK)
    rule = Rule((from_workload, to_loopback, Verdict.DROP), "a pod's packets to the node's loopback")
    return Chain(name="loopback", base=BaseChain(ChainType.FILTER, Hook.PREROUTING, _RAW), rules=(rule,))


def _nat(hook: Hook, priority: int) -> BaseChain:
    return BaseChain(ChainType.NAT, hook, priority)


def _digit(family: Family) -> str:
    return "4" if family is Family.IPV4 else "6"


# --- outgoing NAT -----------------------------------------------------------------------------------------------------


@frozen
class _Pools:
    """The prefixes of pools, and of those whose packets are translated when they leave all pools.

    Disabled pools count: running pods have their addresses, and such a pool exempts a range from NAT. A pool for
    load balancers alone does not: packets to an address of a service leave the pools.
    """

    prefixes: tuple[Prefix, ...]
    with_nat: tuple[Prefix, ...]

    @classmethod
    def of(cls, pools: Iterable[IPPool]) -> _Pools:
        specs = [pool.spec for pool in pools if set(pool.spec.allowed_uses) != {AllowedUse.LOAD_BALANCER}]
        with_nat = (spec.prefix for spec in specs if spec.has_outgoing_nat)
        return cls(disjoint_prefixes(spec.prefix for spec in specs), disjoint_prefixes(with_nat))

    @property
    def families_with_nat(self) -> tuple[Family, ...]:
        found = {prefix.family for prefix in self.with_nat}
        return tuple(family for family in Family if family in found)

    def sets(self) -> Iterator[NamedSet]:
        for family in self.families_with_nat:
            for name, prefixes in (("pools", self.prefixes), ("nat_pools", self.with_nat)):
                yield _prefix_set(f"{name}{_digit(family)}", family, prefixes)


def _prefix_set(name: str, family: Family, prefixes: Iterable[Prefix]) -> NamedSet:
    elements = frozenset(Element((prefix,)) for prefix in prefixes if prefix.family is family)
    return NamedSet(name=name, types=(ElementType.address_of(family),), is_interval=True, elements=elements)


def _nat_rules(family: Family, settings: NodeConfigurationSpec, wrapped: _Wrapped) -> Iterator[Rule]:
    """From a pool with NAT, to none: the packet gets an address of the node."""
    digit, destination = _digit(family), destination_of(family)
    matches: list[Statement] = [
        Match(source_of(family), SetReference(f"nat_pools{digit}")),
        Match(destination, SetReference(f"pools{digit}"), is_negated=True),
    ]
    if settings.nat_outgoing_exclusions is OutgoingExclusions.POOLS_AND_NODES:
        matches.append(Match(destination, SetReference(f"nodes{digit}"), is_negated=True))
    if settings.nat_outgoing_interfaces:
        matches.append(Match(Meta(MetaKey.OUTPUT_INTERFACE), settings.nat_outgoing_interfaces.replace("+", "*")))
    address = settings.nat_outgoing_address if family is Family.IPV4 else None
    translate = Masquerade if address is None else partial(SourceNAT, family, address)
    yield from _translations(tuple(matches), translate, settings.nat_port_range, wrapped)


def _translations(
    matches: tuple[Statement, ...],
    translate: Callable[[PortRange | None], Statement],
    ports: PortRange | None,
    wrapped: _Wrapped,
) -> Iterator[Rule]:
    """The rules for UDP, for TCP and for the rest; one of UDP or TCP is left out if its ports are any."""
    for transport, chosen in (("udp", wrapped.avoid_ports(ports)), ("tcp", ports)):
        if chosen is not None:
            is_transport = Match(Meta(MetaKey.TRANSPORT), transport)
            yield Rule((*matches, is_transport, translate(chosen)), f"{transport} that leaves")
    yield Rule((*matches, translate(None)), "packets that leave")


def _find_missing_addresses(facts: NatFacts, pools: _Pools) -> Iterator[Problem]:
    for family in pools.families_with_nat:
        has_address = family in facts.own_families or (
            family is Family.IPV4 and facts.settings.nat_outgoing_address is not None
        )
        if not has_address:
            message = f"packets that leave the pools over {family} may be dropped: the kernel finds no address for them"
            yield Problem(message=message, cause=f"this node has no {family} address, and a pool has natOutgoing")


# --- tunnels ----------------------------------------------------------------------------------------------------------


@frozen
class _Wrapped:
    """What tunnels mean for packets: their devices, and what wrapped packets look like.

    Disabled pools count, since their pods run on. So do settings that ask for tunnels which no pool needs.
    """

    devices: tuple[str, ...]
    vxlan_port: int | None
    has_ipip: bool

    @classmethod
    def of(cls, facts: NatFacts) -> _Wrapped:
        settings, specs = facts.settings, [pool.spec for pool in facts.pools]
        families = {spec.prefix.family for spec in specs if spec.vxlan_mode is not Encapsulation.NEVER}
        if settings.is_vxlan_enabled is not None:
            families = set(Family) if settings.is_vxlan_enabled else set()
        has_ipip = any(spec.ipip_mode is not Encapsulation.NEVER for spec in specs)
        if settings.is_ipip_enabled is not None:
            has_ipip = settings.is_ipip_enabled
        vxlan = tuple(VXLAN_DEVICES[family] for family in Family if family in families)
        return cls(
            devices=(*vxlan, *((IPIP_DEVICE,) if has_ipip else ())),
            vxlan_port=(settings.vxlan_port or _VXLAN_PORT) if vxlan else None,
            has_ipip=has_ipip,
        )

    def avoid_ports(self, ports: PortRange | None) -> PortRange | None:
        """The longest part of a range without the port of VXLAN: an answer to that port would be taken for VXLAN."""
        port, whole = self.vxlan_port, ports or PortRange(_FIRST_RANDOM_PORT, MAX_PORT)
        if port is None or not whole.first <= port <= whole.last:
            return ports
        parts = (PortRange(whole.first, port - 1), PortRange(port + 1, whole.last))
        longest = max(parts, key=lambda part: part.last - part.first)
        return longest if longest.first <= longest.last else whole


def find_overlay(facts: NatFacts) -> Overlay:
    """The wrapped packets that the node receives. The table of policy accepts them before it judges others."""
    wrapped = _Wrapped.of(facts)
    if not wrapped.devices:
        return NO_OVERLAY
    return Overlay(
        vxlan_port=wrapped.vxlan_port,
        has_ipip=wrapped.has_ipip,
        nodes=facts.node_addresses,
        external=tuple(facts.settings.external_nodes),
    )


def _guard_chains(wrapped: _Wrapped) -> Iterator[Chain]:
    """Wrapped packets come from nodes alone, and connection tracking does not see them: they are many, and are one."""
    if not wrapped.devices:
        return
    vxlan = [Match(Payload("udp", "dport"), port) for port in (wrapped.vxlan_port,) if port is not None]
    if vxlan:
        for name, hook, address_of in (
            ("untracked-in", Hook.PREROUTING, source_of),
            ("untracked-out", Hook.OUTPUT, destination_of),
        ):
            rules = (
                Rule((is_vxlan, Match(address_of(family), SetReference(node_set)), Verdict.NOTRACK), "wrapped packets")
                for is_vxlan in vxlan
                for family, node_set in _sets_of_nodes()
            )
            yield Chain(name=name, base=BaseChain(ChainType.FILTER, hook, _RAW), rules=tuple(rules))
    ipip = [Match(Meta(MetaKey.TRANSPORT), _IPIP_PROTOCOL)] if wrapped.has_ipip else []
    entries = (Rule((match, Goto("from-nodes")), "wrapped packets") for match in (*vxlan, *ipip))
    accepted = (
        Rule((Match(source_of(family), SetReference(name)), Verdict.ACCEPT), "from a node")
        for family, name in _sets_of_nodes()
    )
    yield Chain(name="from-nodes", rules=(*accepted, Rule((Verdict.DROP,), "from others")))
    yield Chain(name="wrapped", base=BaseChain(ChainType.FILTER, Hook.INPUT, _BEFORE_POLICY), rules=tuple(entries))


def _sets_of_nodes() -> Iterator[tuple[Family, str]]:
    for family in Family:
        for name in ("nodes", "external"):
            yield family, f"{name}{_digit(family)}"


def _node_sets(facts: NatFacts, wrapped: _Wrapped) -> Iterator[NamedSet]:
    """The addresses of nodes, one by one, as there are many; those of other machines are prefixes."""
    is_excluded = facts.settings.nat_outgoing_exclusions is OutgoingExclusions.POOLS_AND_NODES
    if not wrapped.devices and not is_excluded:
        return
    for family in Family:
        addresses = (address for address in facts.node_addresses if address.family is family)
        yield NamedSet(
            name=f"nodes{_digit(family)}",
            types=(ElementType.address_of(family),),
            elements=frozenset(Element((address,)) for address in addresses),
        )
    if wrapped.devices:
        for family in Family:
            external = disjoint_prefixes(each for each in facts.settings.external_nodes if each.family is family)
            yield _prefix_set(f"external{_digit(family)}", family, external)
        devices = frozenset(Element((name,)) for name in wrapped.devices)
        yield NamedSet(name="tunnels", types=(ElementType.INTERFACE_NAME,), elements=devices)


def _tunnel_rules(wrapped: _Wrapped) -> Iterator[Rule]:
    """The node's own packets to pods of others have the tunnel's address; answers to another come by another way."""
    if not wrapped.devices:
        return
    matches = (
        Match(Meta(MetaKey.OUTPUT_INTERFACE), SetReference("tunnels")),
        Match(Fib((FibKey.SOURCE, FibKey.OUTPUT_INTERFACE)), "local", is_negated=True),
        Match(Fib((FibKey.SOURCE,)), "local"),
    )
    yield from _translations(matches, Masquerade, None, wrapped)


# --- floating addresses -----------------------------------------------------------------------------------------------


def find_floating(facts: NatFacts) -> Mapping[Address, str]:
    """The floating addresses that are programmed, each with the host end of its workload; not of one without."""
    chosen, _problems = _plan_floating(facts)
    ends = {address: one.spec.interface_name for one in facts.endpoints for address in one.spec.addresses}
    return {external: ends[internal] for external, internal in chosen.items() if ends[internal]}


def _plan_floating(facts: NatFacts) -> tuple[dict[Address, Address], tuple[Problem, ...]]:
    """The address of a workload behind each floating one, and the floating addresses that are not programmed."""
    endpoints = sorted(facts.endpoints, key=_name)
    if facts.settings.floating_ips is not Switch.ENABLED:
        return {}, tuple(_find_switched_off(endpoints))
    owners = {address: one for one in endpoints for address in one.spec.addresses}
    candidates: dict[Address, list[tuple[int, Address, str]]] = {}
    problems: list[Problem] = []
    for endpoint in endpoints:
        for nat in endpoint.spec.ip_nats:
            reason = _find_obstacle(nat.internal, nat.external, endpoint, owners, facts.node_addresses)
            if reason:
                problems.append(_unprogrammed(nat.external, _name(endpoint), reason))
            else:
                candidate = (int(nat.internal), nat.internal, _name(endpoint))
                candidates.setdefault(nat.external, []).append(candidate)
    chosen: dict[Address, Address] = {}
    for external, found in candidates.items():
        (_, chosen[external], holder), *others = sorted(found)
        for _, internal, name in others:
            if internal != chosen[external]:
                problems.append(_unprogrammed(external, name, f"{holder} has it, whose address is lower"))
    return chosen, tuple(sorted(problems, key=lambda problem: problem.cause))


def _find_obstacle(
    internal: Address,
    external: Address,
    endpoint: WorkloadEndpoint,
    owners: dict[Address, WorkloadEndpoint],
    nodes: frozenset[Address],
) -> str:
    """Why a floating address may not lead to a workload; empty if it may."""
    if internal not in endpoint.spec.addresses:
        return f"it stands for {internal}, which is no address of the workload"
    if internal.family is not external.family:
        return f"it stands for {internal}, which is of another family"
    if external in owners:
        return f"it is the address of {_name(owners[external])}"
    return "it is the address of a node" if external in nodes else ""


def _find_switched_off(endpoints: Iterable[WorkloadEndpoint]) -> Iterator[Problem]:
    for endpoint in endpoints:
        for nat in endpoint.spec.ip_nats:
            yield _unprogrammed(nat.external, _name(endpoint), "floatingIPs of NodeConfiguration is not Enabled")


def _unprogrammed(external: Address, name: str, reason: str) -> Problem:
    return Problem(message=_NOT_PROGRAMMED, cause=f"{external} of {name}: {reason}")


def _name(endpoint: WorkloadEndpoint) -> str:
    return f"{endpoint.metadata.namespace}/{endpoint.metadata.name}"


def _floating_chains() -> tuple[Chain, ...]:
    """To a floating address: the packet goes to the workload. Packets of the node itself enter by another hook."""
    rules = tuple(
        Rule((DestinationNAT(family, MapLookup(destination_of(family), f"floating{_digit(family)}")),), "floating")
        for family in Family
    )
    return (
        Chain(name="floating-in", base=_nat(Hook.PREROUTING, _BEFORE_DNAT), rules=rules),
        Chain(name="floating-out", base=_nat(Hook.OUTPUT, _BEFORE_DNAT), rules=rules),
    )


def _hairpin_rules() -> Iterator[Rule]:
    """From a workload to its own floating address: it would drop a packet with its own address as the source."""
    for family in Family:
        pair = Concatenation((source_of(family), destination_of(family)))
        yield Rule((SourceNAT(family, MapLookup(pair, f"hairpin{_digit(family)}")),), "a workload to itself")


def _floating_sets(floating: dict[Address, Address]) -> Iterator[NamedSet]:
    lowest: dict[Address, Address] = {}
    for external in sorted(floating, key=int, reverse=True):
        lowest[floating[external]] = external
    for family in Family:
        kind, digit = ElementType.address_of(family), _digit(family)
        to_internal = frozenset(Element((key,), to) for key, to in floating.items() if key.family is family)
        to_itself = frozenset(Element((key, key), to) for key, to in lowest.items() if key.family is family)
        yield NamedSet(name=f"floating{digit}", types=(kind,), value_type=kind, elements=to_internal)
        yield NamedSet(name=f"hairpin{digit}", types=(kind, kind), value_type=kind, elements=to_itself)


def _floating_elements(sets: Iterable[NamedSet]) -> frozenset[Element]:
    names = {f"floating{_digit(family)}" for family in Family}
    return frozenset(element for each in sets if each.name in names for element in each.elements)
