"""What a lab of several nodes does when something breaks: a process, a tunnel, a daemon, or ``lab up`` itself."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.harness.bird import find_bird
from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NetnsNode
from tests.harness.waiting import is_eventually, wait_until
from tests.integration.test_lab import (
    CTL,
    FOLDER,
    choose_victims,
    environment,
    everything,
    killed_at,
    lab,
    what_shows,
)
from tests.integration.test_lab_nodes import broken, machine

__all__ = ["machine"]  # a fixture

pytestmark = pytest.mark.netns


def test_a_node_process_that_died_is_named_with_its_log_and_what_it_made_goes_on(machine: NetnsNode) -> None:
    before = everything(machine)
    assert lab(machine, "up", "--nodes", "2").returncode == 0
    machine.run("sh", "-c", f"kill -9 $(cat {FOLDER}/run/netplug-node-2.pid)")
    log = f"{FOLDER}/log/netplug-node-2.log"
    said = f"netplug-node-2: it is not running any more; its log is {log}"
    wait_until(lambda: said in lab(machine, "status").stderr, "it has ended")
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stderr) == (1, f"netplugctl: {said}\n")
    assert re.search(r"^node-2 .* ended ", shown.stdout, re.MULTILINE)
    assert broken(machine) == set(), "routes and tunnels stay"
    assert "the node process serves" in machine.run("cat", log)
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


def test_a_tunnel_that_is_gone_is_seen(machine: NetnsNode) -> None:
    assert lab(machine, "up", "--nodes", "2").returncode == 0
    machine.run("sh", "-c", f"kill -9 $(cat {FOLDER}/run/netplug-node-2.pid)")  # nobody repairs it
    machine.run("nsenter", f"--net={FOLDER}/netns/node-2", "ip", "link", "delete", "vxlan.netplug")
    shown = lab(machine, "status")
    assert shown.returncode == 1
    assert "netplugctl: pod of another node: nothing answers over IPv4, on 12 paths\n" in shown.stderr
    assert "over IPv6, on" not in shown.stderr
    assert lab(machine, "down").returncode == 0


def test_two_labs_of_nodes_do_not_see_each_other(machine: NetnsNode) -> None:
    before = everything(machine)
    for name in ("one", "two"):
        made = lab(machine, "up", "--nodes", "2", "--pods", "2", "--name", name)
        assert made.returncode == 0, made
    forgotten = lab(machine, "status")
    assert forgotten.stderr.endswith("netplugctl lab up makes one (others of yours: --name one, --name two)\n")
    assert "(others of yours: --name one, --name two)" in lab(machine, "down").stdout
    assert lab(machine, "down", "--name", "one").returncode == 0
    assert lab(machine, "status", "--name", "two").stdout.endswith("All 24 ways work.\n")
    assert lab(machine, "down", "--name", "two").returncode == 0
    assert everything(machine) == before


def test_ctrl_c_in_the_middle_removes_what_there_is(machine: NetnsNode, tmp_path: Path) -> None:
    """At the first pod, when switch, nodes and node processes are there; bird of bgp too, which is a daemon."""
    find_bird()
    before, out = everything(machine), tmp_path / "out"
    command = " ".join((*CTL, "lab", "up", "--nodes", "2", "--routing", "bgp"))
    variables = [f"{name}={value}" for name, value in environment().items()]
    # A shell lets what it starts in the background, such as these tests, ignore Ctrl-C.
    started = machine.start_process(
        "env", "--default-signal=INT", *variables, "sh", "-c", f"exec {command} >{out} 2>&1"
    )
    wait_until(lambda: out.exists() and "pod-1 attached" in out.read_text(), "the first pod is attached")
    started.send_signal(signal.SIGINT)
    assert started.wait(60) in {-signal.SIGINT, 128 + signal.SIGINT}  # which nsenter hands on
    said = out.read_text()
    assert "netplugctl: the lab could not be made: removing what there is of it\n" in said
    assert said.endswith("netplugctl: interrupted\n")
    assert everything(machine) == before


@pytest.mark.parametrize("routing", ["vxlan", "bgp"])
def test_killed_in_the_middle_it_is_removed_by_down(machine: NetnsNode, tmp_path: Path, routing: str) -> None:
    """After a third of the kinds of effects, by night after all of them."""
    if routing == "bgp":
        find_bird()
    before, quick, log = everything(machine), what_shows(machine), tmp_path / "effects"
    up = ("up", "--nodes", "2", "--pods", "2", "--routing", routing)
    numbers = choose_victims(killed_at(machine, 0, log, *up))
    assert lab(machine, "down").returncode == 0
    step = 1 if IS_DEEP else 15
    for number in numbers[step // 2 :: step]:
        killed_at(machine, number, log, *up)
        removed = lab(machine, "down")
        assert removed.returncode == 0, (number, removed)
        assert what_shows(machine) == quick, log.read_text().splitlines()[-1]
    assert everything(machine) == before


def test_a_bgp_daemon_that_is_killed_comes_back(machine: NetnsNode) -> None:
    find_bird()
    before = everything(machine)
    assert lab(machine, "up", "--nodes", "2", "--routing", "bgp").returncode == 0
    machine.run("sh", "-c", f"kill -9 $(cat {FOLDER}/run/node-2/bird/bird.pid)")
    assert is_eventually(lambda: lab(machine, "status").returncode == 0)
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


def test_without_root_in_a_user_namespace(machine: NetnsNode) -> None:
    """As ``make demo`` does it for a user, where the kernel lets users have namespaces."""
    machine.run("mkdir", "-p", "/run/mount")  # the program mount makes it
    before, ctl = everything(machine), " ".join(CTL)
    script = f"mount -t tmpfs lab /run && {ctl} lab up --nodes 2 --pods 2 && {ctl} lab status && {ctl} lab down"
    command = ("unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", f"{script} && ls -A /run")
    done = machine.run_unchecked(*command, env=environment())
    assert done.returncode == 0, done
    assert "All 24 ways work." in done.stdout
    assert done.stdout.endswith(f"{FOLDER} is removed\n")
    assert everything(machine) == before


def test_a_node_process_that_is_not_ready_says_why(machine: NetnsNode) -> None:
    """Its BGP daemon has no program any more; packets still pass, because the routes stay."""
    found = find_bird()
    assert lab(machine, "up", "--nodes", "2", "--pods", "2", "--routing", "bgp").returncode == 0
    machine.run("mount", "-n", "--bind", "/dev/null", found)  # in the mount namespace of this machine only
    machine.run("sh", "-c", f"kill -9 $(cat {FOLDER}/run/node-2/bird/bird.pid)")
    wait_until(lambda: "netplugctl: node-2: " in lab(machine, "status").stderr, "it is not ready")
    machine.run("umount", "-n", found)
    wait_until(lambda: lab(machine, "status").returncode == 0, "it is ready again")
    assert lab(machine, "down").returncode == 0
