"""The lab as a person has it: made, shown and removed by ``netplugctl``, killed at every moment, without root."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.node import Node, capable, opened_node

pytestmark = pytest.mark.netns

HERE = Path(__file__).parent
CTL = (sys.executable, "-m", "netplug_cli.ctl.main")
FOLDER = "/run/netplug-lab"
EVERY = re.compile(r"IPv4\+IPv6")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Node]:
    """A machine of the test's own, with a /run of its own; what a lab leaves there, it leaves nowhere else."""
    reason = capable()
    if reason:
        pytest.skip(reason)
    with opened_node(str(tmp_path)) as opened:
        yield opened


def lab(machine: Node, *argv: str) -> subprocess.CompletedProcess[str]:
    """One command line of ``netplugctl lab``."""
    return machine.ended(*CTL, "lab", *argv, env=environment())


def environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(HERE.parent.parent)}


def what_shows(machine: Node) -> list[str]:
    """What a lab could leave on a machine: links, routes, namespaces, mounts, files, and the number of processes.

    Processes are those of this machine's mount namespace: others may run tests, and labs, beside us.
    """
    script = """
    ip -br link | cut -d' ' -f1; ip route show table all; ip -6 route show table all; ip netns list
    cut -d' ' -f5 /proc/self/mountinfo; ls -A /run
    find /proc/[0-9]*/ns/mnt -lname "$(readlink /proc/self/ns/mnt)" 2>/dev/null | wc -l
    true
    """
    return machine.run("sh", "-c", script).splitlines()


def everything(machine: Node) -> list[str]:
    """The same, and the settings and packet filters that workloads could leave."""
    return [*machine.traces(), *what_shows(machine)]


def test_a_lab_is_made_shown_and_removed(machine: Node) -> None:
    before = everything(machine)
    made = lab(machine, "up", "--pods", "3")
    assert made.returncode == 0, made
    assert made.stderr == ""
    assert re.search(
        r"^pod-3 attached: 10\.98\.0\.\d+, fd98:6e70:6c67:\S+ over netp[0-9a-f]{11}$", made.stdout, re.MULTILINE
    )

    shown = lab(machine, "status")
    assert shown.returncode == 0, shown
    rows = [line for line in shown.stdout.splitlines() if line.startswith(("node ", "pod-")) and EVERY.search(line)]
    assert [(row.split()[0], len(EVERY.findall(row))) for row in rows] == [
        ("node", 3),
        ("pod-1", 3),
        ("pod-2", 3),
        ("pod-3", 3),
    ]
    assert re.search(r"^10\.98\.0\.\d+/26 +lab-node +3 \(5%\)", shown.stdout, re.MULTILINE)
    assert re.search(r"^fd98:\S+/122 +lab-node +3 \(5%\)", shown.stdout, re.MULTILINE)
    assert len(re.findall(r"^10\.98\.0\.\d+ lab\.pod-\d ", shown.stdout, re.MULTILINE)) == 3
    assert shown.stdout.endswith("All 24 ways work.\n")
    assert lab(machine, "status").returncode == 0, "looking changes nothing"

    removed = lab(machine, "down")
    assert removed.returncode == 0, removed
    assert "no address is held, no interface is left on the node\n" in removed.stdout
    assert removed.stdout.endswith(f"{FOLDER} is removed\n")
    assert everything(machine) == before


def test_its_pods_reach_each_other_for_others_too(machine: Node) -> None:
    """What the status says about packets, ping says too."""
    lab(machine, "up", "--pods", "2")
    shown = lab(machine, "status").stdout
    row = next(line for line in shown.splitlines() if line.startswith("pod-2 "))
    for address in (row.split()[1].rstrip(","), row.split()[2]):
        machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ping", "-n", "-c", "1", "-W", "2", address)
    assert lab(machine, "down").returncode == 0


def test_what_does_not_reach_is_said_and_fails(machine: Node) -> None:
    lab(machine, "up", "--pods", "2")
    machine.run("nsenter", f"--net={FOLDER}/netns/node", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")
    shown = lab(machine, "status")
    assert shown.returncode == 1
    complaints = shown.stderr.splitlines()
    assert len(complaints) == 2
    assert re.fullmatch(r"netplugctl: pod-1 to pod-2 over IPv4 \(10\.98\.0\.\d+\): no answer", complaints[0])
    assert "works" not in shown.stdout
    assert lab(machine, "down").returncode == 0


def test_a_pod_without_its_interface_is_unreachable_and_still_removed(machine: Node) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "2")
    machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ip", "link", "delete", "eth0")
    assert lab(machine, "status").returncode == 1
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


def test_nothing_there(machine: Node) -> None:
    gone = lab(machine, "down")
    assert (gone.returncode, gone.stdout) == (0, f"no lab in {FOLDER}: nothing to remove\n")
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert f"no lab is up in {FOLDER}" in shown.stderr


def test_up_again_replaces_the_lab(machine: Node) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "3")
    again = lab(machine, "up", "--pods", "1")
    assert again.returncode == 0, again
    assert again.stdout.startswith("an earlier lab is there (complete): it goes first\n")
    assert lab(machine, "status").stdout.endswith("All 4 ways work.\n")
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


def test_two_labs_at_once(machine: Node, tmp_path: Path) -> None:
    before = everything(machine)
    other = ("--dir", str(tmp_path / "an other"))
    assert lab(machine, "up", "--pods", "1").returncode == 0
    assert lab(machine, "up", "--pods", "2", *other).returncode == 0
    assert lab(machine, "down").returncode == 0
    assert lab(machine, "status", *other).stdout.endswith("All 12 ways work.\n")
    assert lab(machine, "down", *other).returncode == 0
    assert not (tmp_path / "an other").exists()
    assert everything(machine) == before


def killed_at(machine: Node, number: int, log: Path, *argv: str) -> list[str]:
    """Run a command that dies at its n-th effect; the effects until then."""
    driver = (sys.executable, str(HERE / "lab_killed_at.py"), str(number), str(log))
    machine.ended(*driver, "lab", *argv, env=environment())
    return log.read_text().splitlines()


def last_of_each_place(effects: list[str]) -> list[int]:
    """The number of the last effect at each place of the program: a loop is left where most of it is done."""
    places = {line.partition(" ")[2]: int(line.partition(" ")[0]) for line in effects}
    return sorted(places.values())


@pytest.mark.parametrize("victim", ["up", "down"])
def test_killed_after_every_kind_of_effect(machine: Node, tmp_path: Path, victim: str) -> None:
    """Whatever it was doing, ``down`` leaves nothing, and ``up`` works."""
    before, quick, log = everything(machine), what_shows(machine), tmp_path / "effects"
    up = ("up", "--pods", "1")
    if victim == "down":
        lab(machine, *up)
    command = up if victim == "up" else ("down",)
    numbers = last_of_each_place(killed_at(machine, 0, log, *command))
    lab(machine, "down")
    assert len(numbers) > 10, "the driver sees what happens"
    for turn, number in enumerate(numbers):
        if victim == "down":
            assert lab(machine, *up).returncode == 0
        effects = killed_at(machine, number, log, *command)
        assert len(effects) == number, effects
        if turn % 8 == 0:
            again = lab(machine, *up)
            assert again.returncode == 0, (effects[-1], again)
            assert lab(machine, "status").returncode == 0, effects[-1]
        removed = lab(machine, "down")
        assert removed.returncode == 0, (effects[-1], removed)
        assert what_shows(machine) == quick, effects[-1]
    assert everything(machine) == before


def unprivileged(machine: Node, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """A shell without any right over the machine: in a user namespace of its own."""
    return machine.ended("unshare", "--user", *flags, "sh", "-c", script, env=environment())


def test_without_root_in_a_user_namespace(machine: Node) -> None:
    """As ``make demo`` does it for a user, where the kernel lets users have namespaces."""
    machine.run("mkdir", "-p", "/run/mount")  # the program mount makes it
    before = everything(machine)
    ctl = " ".join(CTL)
    script = f"mount -t tmpfs lab /run && {ctl} lab up && {ctl} lab status && {ctl} lab down && ls -A /run"
    done = unprivileged(machine, script, "--map-root-user", "--net", "--mount")
    assert done.returncode == 0, done
    assert "All 24 ways work." in done.stdout
    assert done.stdout.endswith(f"{FOLDER} is removed\n")
    assert everything(machine) == before


@pytest.mark.parametrize("flags", [(), ("--map-root-user",), ("--map-root-user", "--net")])
def test_without_the_rights_it_says_what_is_needed(machine: Node, tmp_path: Path, flags: tuple[str, ...]) -> None:
    folder = tmp_path / "lab"
    done = unprivileged(machine, f"{' '.join(CTL)} lab up --dir {folder}", *flags)
    assert done.returncode == 1, done
    assert done.stderr.endswith(
        f"making the network namespace {folder}/netns/node: Operation not permitted; "
        "root is needed, or a user namespace: unshare --user --map-root-user --net --mount\n"
    )
    assert not os.path.exists(folder)
