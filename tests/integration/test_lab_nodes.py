"""A lab of several nodes as a person has it: pods of different nodes reach each other, and nothing is left."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.bird import find_bird
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NetnsNode, missing_requirement, open_node
from tests.integration.test_lab import (
    CTL,
    FOLDER,
    environment,
    everything,
    lab,
    on,
)

pytestmark = pytest.mark.netns


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[NetnsNode]:
    """A machine of the test's own, with a /run of its own."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    with open_node(str(tmp_path)) as opened:
        yield opened


def paths(machine: NetnsNode) -> list[dict[str, str]]:
    """What ``lab status`` says of each path."""
    return list(csv.DictReader(lab(machine, "status", "-o", "csv").stdout.splitlines()))


def broken(machine: NetnsNode) -> set[str]:
    """The relations on which some path does not work."""
    return {path["relation"] for path in paths(machine) if path["reached"] != "true"}


@pytest.mark.parametrize("routing", ["vxlan", "bgp"])
def test_pods_of_all_nodes_reach_each_other(machine: NetnsNode, routing: str) -> None:
    if routing == "bgp":
        find_bird()
    before = everything(machine)
    made = lab(machine, "up", "--nodes", "3", "--routing", routing)
    assert (made.returncode, made.stderr) == (0, ""), made
    assert "every pod reaches every pod and node" in made.stdout
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stderr) == (0, ""), shown
    assert shown.stdout.startswith(f"Lab lab in {FOLDER}: 3 nodes, routing {routing}, 6 pods\n")
    assert len(re.findall(r"^node-\d +lab-node-\d +10\.98\.1\.\d, \S+ +ready ", shown.stdout, re.MULTILINE)) == 3
    assert shown.stdout.endswith("All 144 ways work.\n")
    found = json.loads(lab(machine, "status", "-o", "json").stdout)
    assert (found["routing"], len(found["nodes"]), len(found["paths"]), found["problems"]) == (routing, 3, 144, [])
    for address in found["pods"][1]["addresses"]:  # of another node; and ping says it too
        machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ping", "-n", "-c", "1", "-W", "2", address)

    # What it says about looking around is true.
    asking = next(line for line in made.stdout.splitlines() if "node routes" in line)
    routes = machine.run(*CTL, *asking.split()[1:], env=environment())
    assert "10.98." in routes

    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert "no address is held, no interface is left on any node\n" in removed.stdout
    assert everything(machine) == before


def test_without_routing_nothing_crosses_nodes_and_that_is_said(machine: NetnsNode) -> None:
    before = everything(machine)
    made = lab(machine, "up", "--nodes", "2", "--routing", "none")
    assert made.returncode == 0, made
    shown = lab(machine, "status")
    assert shown.returncode == 1
    assert shown.stderr.startswith("netplugctl: the lab was made with --routing none: nothing carries packets of pods")
    assert {path["relation"] for path in paths(machine) if path["reached"] == "true"} == {
        "pod of the same node", "its own node", "another node",
    }  # fmt: skip
    assert {
        path["from"][:3] for path in paths(machine) if path["relation"] == "another node" and not path["failure"]
    } == {"nod"}
    assert broken(machine) == {"pod of another node", "another node"}
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


@pytest.mark.etcd
@pytest.mark.parametrize(
    "datastore", ["etcdv3", *([pytest.param("kubernetes", marks=pytest.mark.apiserver)] if IS_DEEP else [])]
)
def test_the_servers_of_the_lab_serve_all_nodes(machine: NetnsNode, tmp_path: Path, datastore: str) -> None:
    before, options = everything(machine), on(datastore, tmp_path)
    made = lab(machine, "up", "--nodes", "2", *options)
    assert (made.returncode, made.stderr) == (0, ""), made
    assert lab(machine, "status").stdout.endswith("All 60 ways work.\n")
    asking = next(line for line in made.stdout.splitlines() if line.endswith("netplugctl get ippools"))
    asked = asking.strip().removesuffix("netplugctl get ippools").split()
    assert "10.98.64.0/18" in machine.run(*asked, *CTL, "get", "ippools", env=environment())
    again = lab(machine, "up", "--nodes", "1", "--replace", *options)
    assert (again.returncode, again.stderr) == (0, ""), again
    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert everything(machine) == before


def test_without_bird_it_says_what_to_install(machine: NetnsNode) -> None:
    found = find_bird()
    before = everything(machine)
    machine.run("mount", "-n", "--bind", "/dev/null", found)  # in the mount namespace of this machine only
    refused = lab(machine, "up", "--nodes", "2", "--routing", "bgp")
    machine.run("umount", "-n", found)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("netplugctl: --routing bgp needs BIRD 2, and this machine has no program bird")
    assert everything(machine) == before


def test_connectivity_from_each_pod_to_pods_and_nodes(machine: NetnsNode) -> None:
    """Pods of the same node and of another one, and both nodes; a path that is cut is a row, and the exit status."""
    assert lab(machine, "up", "--nodes", "2").returncode == 0
    tested = connectivity(machine)
    assert (tested.returncode, tested.stderr) == (0, ""), tested
    rows = tested.stdout.splitlines()
    assert rows[0].split() == ["FROM", "TO", "WHICH", "IS", "FAMILY", "RESULT", "TIME"]
    assert re.fullmatch(r"pod-1 +pod-2 +pod of another node +IPv6 +ok +\d+\.\d\d ms", rows[6])
    assert rows[-1] == "All 40 paths work."
    found = json.loads(connectivity(machine, "-o", "json").stdout)["paths"]
    assert {(path["from"], path["relation"]) for path in found if path["to"] == "pod-1"} == {
        ("pod-2", "pod of another node"),
        ("pod-3", "pod of the same node"),
        ("pod-4", "pod of another node"),
    }
    assert all(path["reached"] and path["timeMs"] > 0 for path in found)

    machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ip", "-6", "route", "flush", "default")
    cut = connectivity(machine, "-o", "yaml")
    assert (cut.returncode, cut.stdout.count("reached: false")) == (1, 8)
    assert connectivity(machine).stdout.endswith("8 of 40 paths do not work.\n")
    assert lab(machine, "down").returncode == 0
    gone = connectivity(machine)
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "no lab is up in" in gone.stderr


def connectivity(machine: NetnsNode, *argv: str) -> subprocess.CompletedProcess[str]:
    """One command line of ``netplugctl connectivity test``."""
    return machine.run_unchecked(*CTL, "connectivity", "test", *argv, env=environment())
