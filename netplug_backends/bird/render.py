"""The configuration of BIRD 2 for a plan, as text. Equal plans give equal bytes, which need no reload. Pure.

Whatever comes from a resource is a typed value: an address, a prefix, a number, an enumeration, a name of letters,
digits and ``_``, or a text that is checked here before it is printed. What a node announces is not in the text: BIRD
reads it from a kernel table, so that a new block changes nothing.

The tables of BIRD: routes of the kernel, of interfaces and of peers are in ``master4`` and ``master6``. What the node
announces comes from ``advertised4`` with a preference above that of BGP: no peer's route to an own block replaces it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.bgp import (
    LEARNED_METRIC,
    TUNNELLED_TABLE,
    AddedCommunity,
    BgpPlan,
    BgpRefused,
    BgpSession,
    FilterRule,
    NextHop,
    Operation,
    Prepended,
    Priority,
    RouteFilter,
)
from netplug_core.dataplane.protocol import RouteProtocol
from netplug_core.dataplane.routing import ADVERTISED_TABLE
from netplug_core.resources.bgp import BindMode, FilterAction, MatchOperator, PeerType
from netplug_core.resources.fields import LogSeverity

__all__ = ["RECOVERY_S", "render"]

RECOVERY_S: Final = 120
"""After a restart routes of peers that do not come back are kept for so long."""

_OURS: Final = RouteProtocol.NETPLUG.value
_KERNEL_SCAN_S: Final = 60
_OWN_PREFERENCE: Final = 200  # that of BGP is 100
_MAX_LOG_BYTES: Final = 1 << 20
_DIGITS: Final = 8
_NOT_OURS: Final = ("kube-ipvs*", "netp*")  # workloads' interfaces, and one with the addresses of all Services
_HIGHEST_PREFERENCE: Final = 2**31 - 1

_SYMBOL: Final = re.compile("[A-Za-z0-9_]{1,64}")
_INTERFACE: Final = re.compile("[A-Za-z0-9_.*-]{1,15}")
_QUOTABLE: Final = re.compile(r'[^"\\\x00-\x1f\x7f]*')

_LOG_CLASSES: Final = {
    LogSeverity.NONE: "",
    LogSeverity.DEBUG: "all",
    LogSeverity.INFO: "{ info, remote, warning, error, auth, fatal, bug }",
    LogSeverity.WARNING: "{ warning, error, auth, fatal, bug }",
    LogSeverity.ERROR: "{ error, fatal, bug }",
    LogSeverity.FATAL: "{ fatal, bug }",
}


def render(plan: BgpPlan, *, log_file: str) -> str:
    """The configuration of a plan. BIRD writes its log to a file, and begins a new one when it is large.

    Raises:
        BgpRefused: the plan has a text that cannot be printed.
    """
    families = [family for family in Family if plan.find_address(family) is not None]
    parts = [*_head(plan, log_file), *_interfaces(plan, families)]
    for family in families:
        parts += _kernel(plan, family)
        parts += _communities(plan, family)
    for one in plan.filters:
        parts += _filter(one)
    for session in plan.sessions:
        parts += _session(plan, session)
    return "\n".join(parts) + "\n"


# --- texts from outside -----------------------------------------------------------------------------------------------


def _symbol(name: str) -> str:
    if not _SYMBOL.fullmatch(name):
        raise BgpRefused(f"{name!r} is no name of letters, digits and '_'")
    return name


def _interface(glob: str) -> str:
    if not _INTERFACE.fullmatch(glob):
        raise BgpRefused(f"{glob!r} is no name of interfaces")
    return f'"{glob}"'


def _quoted(text: str, what: str) -> str:
    """A string of BIRD, which has no escapes. The text may be a secret, so no error shows it."""
    if not _QUOTABLE.fullmatch(text):
        raise BgpRefused(f"{what} has a quote, a backslash or a control character")
    return f'"{text}"'


# --- what all sessions share ------------------------------------------------------------------------------------------


def _head(plan: BgpPlan, log_file: str) -> list[str]:
    classes, file = _LOG_CLASSES[plan.log_severity], _quoted(log_file, "the path of the log")
    backup = _quoted(f"{log_file}.1", "the path of the log")
    return [
        "# Written by netplug, which overwrites it.",
        f"router id {plan.router_id};",
        *([f"log {file} {_MAX_LOG_BYTES} {backup} {classes};"] if classes else []),
        f"graceful restart wait {RECOVERY_S};",
        "timeformat base iso long;",
        "timeformat log iso long;",
        "timeformat protocol iso long;",
        "timeformat route iso long;",
        "protocol device { }",
    ]


def _interfaces(plan: BgpPlan, families: Iterable[Family]) -> Iterator[str]:
    """The prefixes of the node's interfaces, by which next hops are found.

    Once one of two addresses within a prefix is deleted, BIRD has lost the prefix, although the interface still has it:
    next hops are then found by the default route. A protocol of another name looks at the interfaces anew, and takes
    the place of the former one without a gap; so the name follows from the addresses.
    """
    left_out = "".join(f"-{_interface(glob)}, " for glob in sorted({*_NOT_OURS, *plan.ignored_interfaces}))
    channels = "".join(f" ipv{family.value};" for family in families)
    held = " ".join(map(str, (*plan.addresses, *plan.interface_addresses)))
    name = f"interfaces_{hashlib.sha1(held.encode(), usedforsecurity=False).hexdigest()[:_DIGITS]}"
    yield f'protocol direct {name} {{{channels} interface {left_out}"*"; }}'


def _kernel(plan: BgpPlan, family: Family) -> Iterator[str]:
    """The kernel's main table, what the node announces, and routes that lead through a tunnel."""
    number, source = family.value, plan.find_address(family)
    written = _within(plan.node_written, family)
    yield from (
        f"protocol kernel main{number} {{",
        f"  learn; persist; merge paths on; graceful restart; metric {LEARNED_METRIC}; scan time {_KERNEL_SCAN_S};",
        f"  ipv{number} {{",
        f"    import filter {{ if krt_source = {_OURS} then reject; accept; }};",
        "    export filter {",
        f'      if source != RTS_BGP && proto != "gateways{number}" then reject;',
        *([f"      if net ~ {written} then reject;"] if written else []),
        f"      krt_prefsrc = {source};",
        "      accept;",
        "    };",
        "  };",
        "}",
        f"ipv{number} table advertised{number};",
        f"protocol kernel own{number} {{",
        f"  kernel table {ADVERTISED_TABLE}; learn; scan time {_KERNEL_SCAN_S};",
        f"  ipv{number} {{",
        f"    table advertised{number}; preference {_OWN_PREFERENCE};",
        f"    import filter {{ if krt_source != {_OURS} then reject; accept; }};",
        "    export none;",
        "  };",
        "}",
        f"protocol pipe announce{number} {{",
        f"  table master{number}; peer table advertised{number}; import all; export none;",
        "}",
    )
    tunnelled = _within(plan.tunnelled, family)
    if tunnelled:
        yield from (
            f"ipv{number} table tunnelled{number};",
            f"protocol kernel tunnels{number} {{",
            f"  kernel table {TUNNELLED_TABLE}; persist; graceful restart; metric {LEARNED_METRIC};",
            f"  scan time {_KERNEL_SCAN_S};",
            f"  ipv{number} {{ table tunnelled{number}; import none; export all; }};",
            "}",
            f"protocol pipe tunnel{number} {{",
            f"  table master{number}; peer table tunnelled{number}; import none;",
            f"  export filter {{ if source = RTS_BGP && net ~ {tunnelled} then accept; reject; }};",
            "}",
        )
    gateways = sorted(
        {(one.address, one.gateway) for one in plan.sessions if one.gateway is not None and one.family is family}
    )
    if gateways:
        yield f"protocol static gateways{number} {{"
        yield f"  ipv{number};"
        yield from (f"  route {address.host_prefix} via {gateway};" for address, gateway in gateways)
        yield "}"


def _within(prefixes: Iterable[Prefix], family: Family) -> str:
    """The set of what lies within prefixes; empty if there are none."""
    items = ", ".join(f"{one}{{{one.length},{family.width}}}" for one in prefixes if one.family is family)
    return f"[ {items} ]" if items else ""


def _communities(plan: BgpPlan, family: Family) -> Iterator[str]:
    yield f"function communities{family.value}()"
    yield "{"
    for prefix, communities in plan.communities:
        added = " ".join(map(_added_community, communities))
        if prefix.family is family and added:
            yield f"  if net ~ {_within([prefix], family)} then {{ {added} }}"
    yield "}"


def _added_community(community: tuple[int, ...]) -> str:
    return f"{_community_list(community)}.add({_tuple(community)});"


def _community_list(community: tuple[int, ...]) -> str:
    """The attribute that has communities of so many numbers. Source: RFC 1997 and RFC 8092."""
    return "bgp_community" if len(community) == len(("AS", "value")) else "bgp_large_community"


def _tuple(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))})"


# --- filters ----------------------------------------------------------------------------------------------------------


def _filter(route_filter: RouteFilter) -> Iterator[str]:
    name, number = _symbol(route_filter.name), route_filter.family.value
    for direction, rules in (("import", route_filter.imported), ("export", route_filter.exported)):
        yield f"function {name}_{direction}(bool is_external)"
        yield "{"
        for rule in rules:
            condition = " && ".join(_conditions(rule)) or "true"
            yield f"  if {condition} then {{ {_verdict(rule, f'communities{number}(); ' * (direction == 'export'))} }}"
        yield "}"


def _verdict(rule: FilterRule, last: str) -> str:
    if rule.action is FilterAction.REJECT:
        return "reject;"
    return f"{''.join(map(_operation, rule.operations))}{last}accept;"


def _operation(operation: Operation) -> str:
    match operation:
        case AddedCommunity(community):
            return f"{_added_community(community)} "
        case Prepended(numbers):  # the last one first, so that the path reads in their order
            return "".join(f"bgp_path.prepend({number}); " for number in reversed(numbers))
        case Priority(value):
            return f"bgp_local_pref = {_HIGHEST_PREFERENCE - value}; "
        case _:
            assert_never(operation)


def _conditions(rule: FilterRule) -> Iterator[str]:
    """What a route has to match; without any condition it is every route."""
    if rule.prefix is not None:
        yield from _prefix_conditions(rule.prefix, rule.operator, rule.lengths)
    if rule.is_from_peers:
        yield "source = RTS_BGP"
    if rule.interface:
        yield f"ifname ~ {_interface(rule.interface)}"
    if rule.peer_type is not None:
        yield "is_external" if rule.peer_type is PeerType.EXTERNAL else "!is_external"
    if rule.community:
        yield f"{_tuple(rule.community)} ~ {_community_list(rule.community)}"
    if rule.as_path_prefix:
        yield f"bgp_path ~ [= {' '.join(map(str, rule.as_path_prefix))} * =]"
    if rule.priority is not None:
        yield f"(defined(bgp_local_pref) && bgp_local_pref = {_HIGHEST_PREFERENCE - rule.priority})"


def _prefix_conditions(prefix: Prefix, operator: MatchOperator, lengths: tuple[int, int] | None) -> Iterator[str]:
    shortest, longest = lengths or (0, prefix.family.width)
    if operator in {MatchOperator.EQUAL, MatchOperator.NOT_EQUAL}:
        yield f"net {'=' if operator is MatchOperator.EQUAL else '!='} {prefix}"
        if lengths is not None:
            yield f"net.len >= {shortest} && net.len <= {longest}"
        return
    shortest = max(shortest, prefix.length)  # a shorter one holds the prefix, and does not lie in it
    within = f"net ~ [ {prefix}{{{shortest},{longest}}} ]" if shortest <= longest else "false"
    yield within if operator is MatchOperator.IN else f"!({within})"


# --- sessions ---------------------------------------------------------------------------------------------------------


_NEXT_HOP: Final = {
    NextHop.AUTO: "",
    NextHop.SELF: " next hop self;",
    NextHop.SELF_FOR_EXTERNAL: " next hop self ebgp;",
    NextHop.KEEP: " next hop keep;",
}


def _session(plan: BgpPlan, session: BgpSession) -> Iterator[str]:
    number = session.family.value
    own = session.source or (plan.find_address(session.family) if plan.bind_mode is BindMode.NODE_IP else None)
    local = f"{own} " if own is not None else ""
    yield f"protocol bgp {_symbol(session.name)} {{"
    yield f"  local {local}port {plan.listen_port} as {session.local_as};"
    yield f"  neighbor {session.address} port {session.port} as {session.peer_as};"
    yield from (f"  {option};" for option in _options(plan, session))
    yield f"  ipv{number} {{"
    yield f"    gateway recursive; add paths on;{_NEXT_HOP[session.next_hop]}"
    if session.is_closed:
        yield "    import none; export none;"
    else:
        yield f"    import filter {{ {_calls(session, 'import')}accept; }};"
        yield "    export filter {"
        yield from (f"      {statement}" for statement in _export(plan, session))
        yield "    };"
    yield "  };"
    yield "}"


def _options(plan: BgpPlan, session: BgpSession) -> Iterator[str]:
    # From anywhere else than the next hop, unless the distance is known: routers stand between the nodes of a cluster.
    yield "multihop" if session.ttl_hops is None else f"multihop {session.ttl_hops}; ttl security on"
    yield f"hold time {session.hold_s}"
    if session.keepalive_s is not None:
        yield f"keepalive time {session.keepalive_s}"
    yield "connect delay time 1; connect retry time 5; error wait time 1, 30"
    yield f"graceful restart on; graceful restart time {session.restart_s}"
    if plan.bind_mode is BindMode.NODE_IP:
        yield "strict bind on"
    if session.is_passive:
        yield "passive on"
    if session.password:
        yield f"password {_quoted(session.password, 'a password')}"
    if session.is_reflector_client:
        yield f"rr client; rr cluster id {plan.cluster_id}"
    if session.allowed_local_as:
        yield f"allow local as {session.allowed_local_as}"


def _calls(session: BgpSession, direction: str) -> str:
    """The calls of the filters; each of them ends what it decides about."""
    is_external = "false" if session.is_internal else "true"
    return "".join(f"{_symbol(name)}_{direction}({is_external}); " for name in session.filters)


def _export(plan: BgpPlan, session: BgpSession) -> Iterator[str]:
    """What the node announces, and what others have announced where that is to be passed on; nothing of the kernel."""
    own = f'proto = "own{session.family.value}"'
    yield f"if !({own}) && source != RTS_BGP then reject;"
    if unexported := _within(plan.unexported, session.family):
        yield f"if net ~ {unexported} then reject;"
    if session.filters:
        yield _calls(session, "export").rstrip()
    yield f"communities{session.family.value}();"
    if session.is_internal and plan.cluster_id is not None:
        yield "accept;"
        return
    yield f"if {own} then accept;"
    pools = _within(plan.pools, session.family)
    if not session.is_internal and pools:
        yield f"if net ~ {pools} then accept;"
    yield "reject;"
