"""A packet-filter table as nftables writes it, so that tests can say what it is to be in lines."""

from __future__ import annotations

from netplug_core.addressing import Address
from netplug_core.dataplane.ruleset import (
    Concatenation,
    Counter,
    DestinationNAT,
    Expression,
    Fib,
    Goto,
    Jump,
    JumpByMap,
    Limit,
    LogPacket,
    MapLookup,
    Masquerade,
    Match,
    Meta,
    Operand,
    PacketTable,
    Payload,
    Reject,
    SetReference,
    SourceNAT,
    Statement,
    TrackingState,
    Verdict,
)
from netplug_core.resources.fields import PortRange

__all__ = ["elements", "rules"]


def rules(table: PacketTable, chain: str | None = None) -> list[str]:
    """The rules of all chains, or of one, each a line; the name of its chain stands before it."""
    return [
        f"{each.name}: {' '.join(map(_statement, rule.statements))}"
        for each in table.chains
        if chain in (None, each.name)
        for rule in each.rules
    ]


def elements(table: PacketTable, name: str) -> set[str]:
    """The elements of a set."""
    (found,) = (each for each in table.sets if each.name == name)
    return {str(element) for element in found.elements}


def _statement(statement: Statement) -> str:
    match statement:
        case Match(left=left, right=right, is_negated=is_negated):
            return f"{_expression(left)}{' !=' if is_negated else ''} {_operand(right)}"
        case Goto(chain=chain):
            return f"goto {chain}"
        case Jump():
            return str(statement)
        case JumpByMap(key=key, name=name):
            return f"{key.key.value} vmap @{name}"
        case Masquerade() | SourceNAT() | DestinationNAT():
            return _translation(statement)
        case _:
            return _report(statement)


def _report(statement: Counter | Limit | LogPacket | Reject | Verdict) -> str:
    match statement:
        case Counter():
            return "counter"
        case Limit(rate=rate, per=per, burst=burst):
            return f"limit rate {rate}/{per} burst {burst} packets"
        case LogPacket(prefix=prefix):
            return f'log prefix "{prefix}"'
        case Reject():
            return f"reject with {statement.value}"
        case Verdict():
            return statement.value


def _translation(statement: Masquerade | SourceNAT | DestinationNAT) -> str:
    match statement:
        case Masquerade(ports=ports):
            return f"masquerade{_ports(ports, ' to :')}"
        case SourceNAT(to=to, ports=ports):
            return f"snat to {_address(to)}{_ports(ports, ':')}"
        case DestinationNAT(to=to):
            return f"dnat to {_address(to)}"


def _expression(expression: Expression) -> str:
    match expression:
        case Meta(key=key):
            return key.value
        case Payload(protocol=protocol, field=field):
            return f"{protocol} {field}"
        case Fib(keys=keys):
            return f"fib {' . '.join(key.value for key in keys)} type"
        case Concatenation(parts=parts):
            return " . ".join(map(_expression, parts))
        case TrackingState():
            return "ct state"


def _operand(operand: Operand) -> str:
    match operand:
        case SetReference(name=name):
            return f"@{name}"
        case tuple():
            return f"{{ {', '.join(map(str, operand))} }}"
        case _:
            return str(operand)


def _address(to: Address | MapLookup) -> str:
    return f"{_expression(to.key)} map @{to.name}" if isinstance(to, MapLookup) else str(to)


def _ports(ports: PortRange | None, before: str) -> str:
    return "" if ports is None else f"{before}{ports.first}-{ports.last}"
