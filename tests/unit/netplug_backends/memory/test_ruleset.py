"""The packet filter in memory is held to the suite of all packet filters."""

import pytest
from attrs import define, field

from netplug_backends.memory.ruleset import MemoryConnections, MemoryRuleset
from netplug_core.addressing import Address
from netplug_core.testing.ruleset_checks import RULESET_CHECKS, RulesetCheck


@define
class MemoryHarness:
    """The suite's harness: what others do, the fake does itself."""

    ruleset: MemoryRuleset = field(factory=MemoryRuleset)

    def flush(self) -> None:
        self.ruleset.flush()

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        self.ruleset.add_rule(name, chain, is_first=is_first)

    def clear_chain(self, name: str, chain: str) -> None:
        self.ruleset.clear_chain(name, chain)

    def add_unreadable(self, name: str, what: str) -> None:
        self.ruleset.add_unreadable(name, what)


@pytest.mark.parametrize("check", RULESET_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RulesetCheck) -> None:
    check(MemoryHarness())


def test_connections_in_memory_are_forgotten_by_their_destination() -> None:
    one, other = Address.parse("203.0.113.1"), Address.parse("203.0.113.2")
    connections = MemoryConnections([one, other, one])
    assert connections.forget({one}) == 2
    assert connections.forget({one}) == 0
    assert connections.begun == [other]
