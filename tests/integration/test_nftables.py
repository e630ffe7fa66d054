"""Tables of nftables on a real kernel: libnftables and the program nft are held to the suite of all packet filters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from attrs import define

from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import NftablesRuleset, Run, run_library, run_program
from netplug_core.testing.ruleset_checks import RULESET_CHECKS, RulesetCheck
from tests.harness.node import NetnsNode

pytestmark = [pytest.mark.netns]


@define
class NodeHarness:
    """The suite's harness on a node: what others do, ``nft`` does."""

    node: NetnsNode
    ruleset: NftablesRuleset

    def flush(self) -> None:
        self.node.run("nft", "flush ruleset")

    def add_rule(self, name: str, chain: str, *, is_first: bool = False) -> None:
        self.node.run("nft", f"{'insert' if is_first else 'add'} rule inet {name} {chain} accept")

    def clear_chain(self, name: str, chain: str) -> None:
        self.node.run("nft", f"flush chain inet {name} {chain}")

    def add_unreadable(self, name: str, what: str) -> None:
        self.node.run("nft", f"add counter inet {name} {what}")


@pytest.fixture(params=[run_library, run_program], ids=["library", "program"])
def harness(node: NetnsNode, request: pytest.FixtureRequest) -> Iterator[NodeHarness]:
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("nft is missing")
    runner: Run = request.param
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        yield NodeHarness(node, NftablesRuleset(runners=(runner,)))


@pytest.mark.parametrize("check", RULESET_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: RulesetCheck, harness: NodeHarness) -> None:
    check(harness)
