"""The packet filter on a real kernel: one table, whatever else is there and whatever others do to it."""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_core.dataplane.packetfilter import RulesetDataplane
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.ruleset import ReplaceTable, find_change
from netplug_core.reconcile.nat import NET_TABLE, NatFacts, plan_table
from tests.harness.node import NetnsNode
from tests.harness.node_process import start_node_process
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

TABLE = """table inet netplug_net {
	chain loopback {
		type filter hook prerouting priority raw; policy accept;
		iifname "netp*" ip daddr 127.0.0.0/8 drop comment "9c2702b6 a pod's packets to the node's loopback"
	}
}
"""
FORMER = (
    "table inet netplug { chain prerouting { type filter hook prerouting priority raw; policy accept;"
    ' iifname "netp*" ip daddr 127.0.0.0/8 drop; }; }'
)
FOREIGN = (
    'table ip other { comment "not ours"; chain c { type filter hook input priority 0; ip saddr 192.0.2.9 drop; }; }'
)
REFUSED = """
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_core.dataplane.protocol import KernelError
try:
    NftablesRuleset().read("netplug_net")
except KernelError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def _nft() -> None:
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("nft is missing")


def program(node: NetnsNode) -> bool:
    """Whether anything had to be programmed on a node."""
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        ruleset: RulesetDataplane = NftablesRuleset()
        change = find_change(plan_table(NatFacts()).table, ruleset.read(NET_TABLE))
        if change is not None:
            ruleset.apply(change)
        return change is not None


def test_nft_shows_the_rule_that_the_documentation_has(node: NetnsNode) -> None:
    assert program(node)
    assert node.run("nft", "list", "ruleset") == TABLE
    handle = node.run("nft", "-a", "list", "ruleset")
    assert not program(node)
    assert node.run("nft", "-a", "list", "ruleset") == handle


@pytest.mark.parametrize(
    "change",
    [
        "flush ruleset",
        "delete table inet netplug_net",
        "flush table inet netplug_net",
        "add rule inet netplug_net loopback accept",
        "insert rule inet netplug_net loopback iifname lo accept",
        "flush table inet netplug_net; add rule inet netplug_net loopback iifname netp* ip daddr 127.0.0.0/16 drop",
        "add chain inet netplug_net more; add rule inet netplug_net more drop; flush chain inet netplug_net loopback",
        "add chain inet netplug_net loopback { policy drop; }",
    ],
)
def test_whatever_others_do_to_the_table_is_undone_and_nothing_else(node: NetnsNode, change: str) -> None:
    program(node)
    node.run("nft", change)
    node.run("nft", FOREIGN)
    foreign = node.run("nft", "-a", "list", "table", "ip", "other")
    assert program(node)
    assert not program(node)
    assert node.run("nft", "list", "table", "inet", "netplug_net") == TABLE
    assert node.run("nft", "-a", "list", "table", "ip", "other") == foreign


def test_several_threads_and_processes_may_program_it_at_once(node: NetnsNode) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert any(threads.map(lambda _number: program(node), range(16)))
    assert node.run("nft", "list", "ruleset") == TABLE


def test_without_the_right_to_it_an_error_says_so(node: NetnsNode) -> None:
    without = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert node.run(*without, sys.executable, "-c", REFUSED) == "reading the packet filter: Operation not permitted\n"
    assert node.run("nft", "list", "ruleset") == ""


def test_without_library_and_program_an_error_says_what_to_install(node: NetnsNode) -> None:
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        ruleset = NftablesRuleset(runners=(lambda _commands: None, lambda _commands: None))
        with pytest.raises(KernelError) as refused:
            ruleset.apply(ReplaceTable(plan_table(NatFacts()).table))
    assert str(refused.value) == (
        "programming the packet filter: neither libnftables.so.1 nor the program nft is installed;"
        " run: apt-get install libnftables1"
    )


def test_the_node_process_programs_it_repairs_it_and_leaves_it(node: NetnsNode) -> None:
    process = start_node_process(node)
    wait_until(lambda: "the packet filter is programmed\n" in process.lines, "it is programmed")
    assert node.run("nft", "list", "ruleset") == TABLE
    node.run("nft", "flush", "ruleset")
    wait_until(lambda: node.run("nft", "list", "ruleset") == TABLE, "it is programmed again")
    wait_until(lambda: "another program has removed it" in process.lines, "a line says so")
    process.child.terminate()
    assert process.wait() == 0
    assert node.run("nft", "list", "ruleset") == TABLE
    assert len(re.findall("packet filter", process.lines)) == 2


def test_the_node_process_removes_the_table_of_a_former_release(node: NetnsNode) -> None:
    node.run("nft", FORMER)
    process = start_node_process(node)
    wait_until(lambda: "of a former release is removed" in process.lines, "a line says so")
    assert node.run("nft", "list", "ruleset") == TABLE
    process.child.terminate()
    assert process.wait() == 0
