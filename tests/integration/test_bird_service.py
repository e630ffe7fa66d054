"""BIRD as a service of systemd, for which a stand-in does what it does with the unit; and what takes all off a host."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.host.services import BIRD_SERVICE, DEFAULT_PROGRAM, render_units
from netplug_backends.linux.nftables import NftablesRuleset
from netplug_cli.wiring.node_network import remove_network
from netplug_core.addressing import Family, Prefix
from netplug_core.dataplane.bgp import BgpPlan
from netplug_core.dataplane.ruleset import PacketTable, ReplaceTable
from netplug_core.errors import Unavailable
from netplug_core.reconcile.nat import NET_TABLE
from tests.harness.bird import BirdCluster, BirdNode, block_of, open_bird_nodes, route_events

pytestmark = pytest.mark.netns

# What systemd does to start a service of type forking: it reads the file of variables, and runs the command. Its folder
# is that of a test. "restart" is what follows a failure.
SYSTEMCTL = """#!{python}
import os, pathlib, subprocess, sys
verb, name = sys.argv[1:]
assert (verb, name) == ("start", {name!r}), sys.argv
lines = pathlib.Path({unit!r}).read_text().replace("\\\\\\n", " ").splitlines()
settings = dict(line.split("=", 1) for line in lines if "=" in line)
assert settings["Type"] == "forking" and os.path.exists(settings["ConditionPathExists"])
variables = dict(line.split("=", 1) for line in open(settings["EnvironmentFile"].lstrip("-")).read().splitlines())
command = settings["ExecStart"].replace("$BIRD_OPTIONS", variables["BIRD_OPTIONS"]).split()
with open({ran!r}, "a") as file:
    file.write(" ".join(command) + "\\n")
sys.exit(subprocess.run(command).returncode)
"""


@pytest.fixture
def nodes() -> Iterator[tuple[BirdNode, ...]]:
    with open_bird_nodes(2) as made:
        yield made


@pytest.fixture
def cluster(nodes: tuple[BirdNode, ...]) -> BirdCluster:
    found = BirdCluster(nodes)
    found.put("IPPool", "pool4", cidr="10.91.0.0/16")
    found.put("IPPool", "pool6", cidr="fd91::/48")
    for node in nodes:
        for family in Family:
            node.announce(block_of(node, family))
    return found


def blocks_of(node: BirdNode) -> list[Prefix]:
    """What a node announces."""
    return [block_of(node, family) for family in Family]


def serve_by_unit(node: BirdNode, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let systemd run the BIRD of a node; the file to which each start is written."""
    unit, ran, program = folder / BIRD_SERVICE, folder / "ran", folder / "systemctl"
    unit.write_text(render_units(DEFAULT_PROGRAM)[BIRD_SERVICE].replace("/run/netplug/bird", node.folder))
    program.write_text(SYSTEMCTL.format(python=sys.executable, name=BIRD_SERVICE, unit=str(unit), ran=str(ran)))
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    node.daemon = evolve(node.daemon, unit=BIRD_SERVICE)
    return ran


def test_the_unit_starts_bird_and_starts_it_again_with_its_routes(
    cluster: BirdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, other = cluster.nodes
    ran = serve_by_unit(node, tmp_path, monkeypatch)
    cluster.apply()
    cluster.await_sessions()
    cluster.await_learned(other, blocks_of(node))
    (first,) = ran.read_text().splitlines()
    assert not first.endswith("-R")
    with route_events(other) as events:
        node.send_signal(signal.SIGKILL)
        subprocess.run(["nsenter", "-t", str(node.node.pid), "-n", "systemctl", "start", BIRD_SERVICE], check=True)
        cluster.await_sessions()
        assert events.seen() == []
    assert ran.read_text().splitlines()[1] == f"{first} -R"
    plan = cluster.plan(node).outcome
    assert isinstance(plan, BgpPlan)
    assert node.apply(plan) is False


def test_what_systemd_says_is_the_error(cluster: BirdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.nodes[0]
    serve_by_unit(node, tmp_path, monkeypatch)
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho 'Unit netplug-bird.service not found.' >&2\nexit 5\n")
    with pytest.raises(Unavailable, match=r"Unit netplug-bird\.service not found\."):
        cluster.apply(node)
    assert node.find_status() is None


FOREIGN = (
    ("link", "add", "other0", "type", "bridge"),
    ("route", "add", "198.51.100.0/24", "dev", "lan0", "proto", "static"),
    ("route", "add", "203.0.113.0/24", "dev", "lan0", "proto", "dhcp"),
    ("-6", "route", "add", "2001:db8:77::/48", "dev", "lan0", "proto", "static"),
)


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_uninstallation_leaves_nothing_of_ours_and_all_of_others(
    cluster: BirdCluster, tmp_path: Path, *, is_killed: bool
) -> None:
    node, other = cluster.nodes
    for words in FOREIGN:
        node.node.run("ip", *words)
    node.there(lambda: NftablesRuleset().apply(ReplaceTable(PacketTable(name="other"))))
    for block in blocks_of(node):
        node.withdraw(block)
    before = state_of(node)
    for block in blocks_of(node):
        node.announce(block)
    node.node.run("ip", "route", "add", "blackhole", "10.91.9.0/26", "protocol", "78", "metric", "20")
    node.there(lambda: NftablesRuleset().apply(ReplaceTable(PacketTable(name=NET_TABLE))))
    cluster.apply()
    cluster.await_sessions()
    cluster.await_learned(node, blocks_of(other))
    cluster.await_learned(other, blocks_of(node))
    if is_killed:
        node.send_signal(signal.SIGKILL)
    said: list[str] = []
    files = [str(tmp_path / name) for name in ("nodename.machine", "nodename", "mtu")]
    for path in files:
        Path(path).write_text("node-1")
    variables = {"NETPLUG_BGP_DIR": node.folder, "NODENAME_FILE": files[1]}
    node.there(lambda: remove_network(variables, said.append))
    ended = "routes of a BGP daemon that runs no more are removed count=2" if is_killed else "removed: the BGP daemon"
    assert said == [
        ended,
        "removed: 3 routes, tunnels and neighbours of other nodes",
        f"removed: the table inet {NET_TABLE} of the packet filter",
        *(f"removed: {path}" for path in files),
    ]
    assert not any(os.path.exists(path) for path in files)
    assert state_of(node) == before
    assert os.listdir(node.folder) == []
    if not is_killed:  # neighbours of a killed one keep its routes until it should be back
        cluster.await_learned(other, [])
    node.there(lambda: remove_network(variables, said.append))
    assert len(said) == 6


def state_of(node: BirdNode) -> list[str]:
    """Routes of all tables, links and tables of the packet filter of a node."""
    return [
        node.node.run("ip", "route", "show", "table", "all"),
        node.node.run("ip", "-6", "route", "show", "table", "all"),
        node.node.run("ip", "-br", "link"),
        node.node.run("nft", "list", "ruleset"),
    ]
