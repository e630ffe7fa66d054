"""The packet filter on a real kernel: one table, whatever else is there and whatever others do to it."""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from netplug_backends.linux.netns import entered_namespace
from netplug_backends.linux.nftables import NftablesFilter
from tests.harness.node import NetnsNode
from tests.harness.node_process import start_node_process
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.netns, pytest.mark.alone]

TABLE = """table inet netplug {
	chain prerouting {
		type filter hook prerouting priority raw; policy accept;
		iifname "netp*" ip daddr 127.0.0.0/8 drop
	}
}
"""
FOREIGN = (
    'table ip other { comment "not ours"; chain c { type filter hook input priority 0; ip saddr 192.0.2.9 drop; }; }'
)
REFUSED = """
from netplug_backends.linux.nftables import NftablesFilter
from netplug_core.dataplane.protocol import KernelError
try:
    NftablesFilter().program()
except KernelError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def _nft() -> None:
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("nft is missing")


def program(node: NetnsNode) -> bool:
    """What the filter returns when it is programmed on a node."""
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        return NftablesFilter().program()


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
        "delete table inet netplug",
        "flush table inet netplug",
        "add rule inet netplug prerouting accept",
        "insert rule inet netplug prerouting iifname lo accept",
        "flush table inet netplug; add rule inet netplug prerouting iifname netp* ip daddr 127.0.0.0/16 drop",
        "add chain inet netplug more; add rule inet netplug more drop; flush chain inet netplug prerouting",
    ],
)
def test_whatever_others_do_to_the_table_is_undone_and_nothing_else(node: NetnsNode, change: str) -> None:
    program(node)
    node.run("nft", change)
    node.run("nft", FOREIGN)
    foreign = node.run("nft", "-a", "list", "table", "ip", "other")
    assert program(node)
    assert not program(node)
    assert node.run("nft", "list", "table", "inet", "netplug") == TABLE
    assert node.run("nft", "-a", "list", "table", "ip", "other") == foreign


def test_several_threads_and_processes_may_program_it_at_once(node: NetnsNode) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert any(threads.map(lambda _number: program(node), range(16)))
    assert node.run("nft", "list", "ruleset") == TABLE


def test_without_the_right_to_it_an_error_says_so(node: NetnsNode) -> None:
    without = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert node.run(*without, sys.executable, "-c", REFUSED) == "reading the packet filter: Operation not permitted\n"
    assert node.run("nft", "list", "ruleset") == ""


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
