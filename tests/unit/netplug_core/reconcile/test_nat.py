"""What the table of NAT and guards has in it."""

import pytest

from netplug_core.dataplane.ruleset import (
    BaseChain,
    ChainOutline,
    ChainType,
    ElementType,
    Hook,
    NamedSet,
    ObservedTable,
)
from netplug_core.reconcile.nat import FORMER_TABLE, NET_TABLE, has_former_rule, plan_table
from tests.harness.rulesets import rules

RAW = BaseChain(ChainType.FILTER, Hook.PREROUTING, -300)
FORMER = ChainOutline(name="prerouting", base=RAW, marks=("",))


def test_the_table_of_a_former_release_is_known_by_its_only_rule() -> None:
    assert has_former_rule(ObservedTable(name=FORMER_TABLE, chains=(FORMER,)))


@pytest.mark.parametrize(
    "observed",
    [
        None,
        ObservedTable(name=FORMER_TABLE),
        ObservedTable(name=FORMER_TABLE, chains=(FORMER, ChainOutline(name="to-pod"))),
        ObservedTable(
            name=FORMER_TABLE, chains=(ChainOutline(name="prerouting", base=RAW, marks=("12ab34cd policy",)),)
        ),
        ObservedTable(name=FORMER_TABLE, chains=(ChainOutline(name="raw-prerouting", base=RAW, marks=("",)),)),
        ObservedTable(
            name=FORMER_TABLE, chains=(FORMER,), sets=(NamedSet(name="s", types=(ElementType.IPV4_ADDRESS,)),)
        ),
        ObservedTable(name=FORMER_TABLE, chains=(FORMER,), unreadable=("map from-wl",)),
    ],
)
def test_policys_own_table_is_not_taken_for_it(observed: ObservedTable | None) -> None:
    assert not has_former_rule(observed)


def test_packets_of_pods_to_the_nodes_loopback_are_dropped() -> None:
    table = plan_table()
    assert (table.name, table.sets) == (NET_TABLE, ())
    assert rules(table) == ["loopback: iifname netp* ip daddr 127.0.0.0/8 drop"]
