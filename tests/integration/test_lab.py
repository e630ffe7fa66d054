"""The lab as a person has it: made, shown and removed by ``netplugctl``, killed at every moment, without root."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.local_stores import IS_DEEP
from tests.harness.node import NetnsNode, missing_requirement, open_node
from tests.harness.servers.binaries import find_apiserver_binary, find_etcd_binary
from tests.harness.waiting import is_eventually, wait_until

pytestmark = pytest.mark.netns

HERE = Path(__file__).parent
KILLER_SCRIPT = HERE.parent / "harness" / "processes" / "tool_killer.py"
CTL = (sys.executable, "-m", "netplug_cli.wiring.ctl")
FOLDER = "/run/netplug-lab"
EVERY = re.compile(r"IPv4\+IPv6")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[NetnsNode]:
    """A machine of the test's own, with a /run of its own; what a lab leaves there, it leaves nowhere else."""
    reason = missing_requirement()
    if reason:
        pytest.skip(reason)
    with open_node(str(tmp_path)) as opened:
        yield opened


def lab(machine: NetnsNode, *argv: str) -> subprocess.CompletedProcess[str]:
    """One command line of ``netplugctl lab``."""
    return machine.run_unchecked(*CTL, "lab", *argv, env=environment())


def environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(HERE.parent.parent)}


def what_shows(machine: NetnsNode) -> list[str]:
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


def everything(machine: NetnsNode) -> list[str]:
    """The same, and the settings and packet filters that workloads could leave.

    The kernel marks routes while an interface has no carrier. The uplink gets its carrier a moment after it is made.
    """
    return [line.replace("linkdown ", "") for line in (*machine.leftovers(), *what_shows(machine))]


def test_a_lab_is_made_shown_and_removed(machine: NetnsNode) -> None:
    before = everything(machine)
    made = lab(machine, "up", "--pods", "3")
    assert made.returncode == 0, made
    assert made.stderr == ""
    assert re.search(
        r"^pod-3 attached in \d+ ms: 10\.98\.0\.\d+, fd98:6e70:6c67:\S+ over netp[a-z2-7]{11}$",
        made.stdout,
        re.MULTILINE,
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


def test_what_programs_read_is_one_document(machine: NetnsNode) -> None:
    made = lab(machine, "up", "--pods", "2", "-o", "json")
    document = json.loads(made.stdout)
    assert [(pod["name"], pod["node"]) for pod in document["pods"]] == [("pod-1", "node"), ("pod-2", "node")]
    assert (document["name"], document["folder"], made.stderr) == ("lab", FOLDER, "")
    removed = lab(machine, "down", "-o", "json")
    assert (json.loads(removed.stdout), removed.stderr) == (
        {"problems": [], "folder": FOLDER, "removed": "everything"},
        "",
    )


def test_its_node_process_serves_it_and_may_be_missing(machine: NetnsNode) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "1")
    log = machine.run("cat", f"{FOLDER}/log/netplug-node.log")
    assert "the node process serves" in log
    process = machine.run("cat", f"{FOLDER}/run/netplug-node.pid").strip()
    machine.run("kill", "-9", process)
    wait_until(lambda: "netplug-node: it is not running any more" in lab(machine, "status").stderr, "it has ended")
    removed = lab(machine, "down")
    assert (removed.returncode, "pod-1 detached" in removed.stdout) == (0, True)
    assert everything(machine) == before


def test_its_pods_reach_each_other_for_others_too(machine: NetnsNode) -> None:
    """What the status says about packets, ping says too."""
    lab(machine, "up", "--pods", "2")
    shown = lab(machine, "status").stdout
    row = next(line for line in shown.splitlines() if line.startswith("pod-2 "))
    for address in (row.split()[1].rstrip(","), row.split()[2]):
        machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ping", "-n", "-c", "1", "-W", "2", address)
    assert lab(machine, "down").returncode == 0


def test_what_does_not_reach_is_said_and_fails(machine: NetnsNode) -> None:
    lab(machine, "up", "--pods", "2")
    machine.run("nsenter", f"--net={FOLDER}/netns/node", "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward")
    shown = lab(machine, "status")
    assert shown.returncode == 1
    complaints = shown.stderr.splitlines()
    assert len(complaints) == 2
    assert re.fullmatch(r"netplugctl: pod-1 to pod-2 over IPv4 \(10\.98\.0\.\d+\): no answer", complaints[0])
    assert "works" not in shown.stdout
    assert lab(machine, "down").returncode == 0


def test_a_pod_without_its_interface_is_unreachable_and_still_removed(machine: NetnsNode) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "2")
    machine.run("nsenter", f"--net={FOLDER}/netns/pod-1", "ip", "link", "delete", "eth0")
    assert lab(machine, "status").returncode == 1
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


def test_nothing_there(machine: NetnsNode) -> None:
    gone = lab(machine, "down")
    assert (gone.returncode, gone.stdout) == (0, f"no lab in {FOLDER}: nothing to remove\n")
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert f"no lab is up in {FOLDER}" in shown.stderr


def test_up_again_replaces_the_lab_only_if_asked_to(machine: NetnsNode) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "3")
    running = everything(machine)
    refused = lab(machine, "up", "--pods", "1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"the lab lab is up in {FOLDER}, with 3 pods: --replace removes it first" in refused.stderr
    assert everything(machine) == running
    again = lab(machine, "up", "--pods", "1", "--replace")
    assert again.returncode == 0, again
    assert again.stdout.startswith("an earlier lab is there (complete): it goes first\n")
    assert lab(machine, "status").stdout.endswith("All 4 ways work.\n")
    assert lab(machine, "down").returncode == 0
    assert everything(machine) == before


@pytest.mark.night
def test_two_labs_at_once(machine: NetnsNode, tmp_path: Path) -> None:
    before = everything(machine)
    other = ("--dir", str(tmp_path / "an other"))
    assert lab(machine, "up", "--pods", "1").returncode == 0
    assert lab(machine, "up", "--pods", "2", *other).returncode == 0
    assert lab(machine, "down").returncode == 0
    assert lab(machine, "status", *other).stdout.endswith("All 12 ways work.\n")
    assert lab(machine, "down", *other).returncode == 0
    assert not (tmp_path / "an other").exists()
    assert everything(machine) == before


def killed_at(machine: NetnsNode, number: int, log: Path, *argv: str) -> list[str]:
    """Run a command that dies at its n-th effect; the effects until then."""
    driver = (
        sys.executable,
        "-P",
        str(KILLER_SCRIPT),
        str(number),
        str(log),
    )
    machine.run_unchecked(*driver, "lab", *argv, env=environment())
    return log.read_text().splitlines()


WITHOUT_LASTING_EFFECT = {"BufferedSubFile.push", "Popen._communicate", "_Attempt.commit", "_is_binary_writer", "echo"}
"""Functions that write within the process or to the terminal, or return from an effect that was counted before."""


def choose_victims(effects: list[str]) -> list[int]:
    """The number of the last effect of each kind; in a deep run, at each place of the program.

    A loop is left where most of it is done. Writes of different functions are of different kinds.
    """
    last = dict[str, int]()
    for line in effects:
        number, name, function, _line_number = line.split()
        if IS_DEEP:
            last[line.partition(" ")[2]] = int(number)
        elif function not in WITHOUT_LASTING_EFFECT:
            last[function if name == "write" else name] = int(number)
    return sorted(last.values())


@pytest.mark.parametrize(
    "datastore,step",
    [
        ("sqlite", 1),
        pytest.param("etcdv3", 1, marks=pytest.mark.etcd),
        pytest.param("kubernetes", 3, marks=[pytest.mark.etcd, pytest.mark.apiserver]),
    ],
)
@pytest.mark.night
@pytest.mark.parametrize("victim", ["up", "down"])
def test_killed_after_every_kind_of_effect(
    machine: NetnsNode, tmp_path: Path, victim: str, datastore: str, step: int
) -> None:
    """Whatever it was doing, ``down`` leaves nothing, servers included, and ``up`` works.

    A lab takes its time to start, most of all with servers: by day it is every so many kinds, by night nearly all, and
    the servers too.
    """
    before, quick, log = everything(machine), what_shows(machine), tmp_path / "effects"
    up = ("up", "--pods", "1", *on(datastore, tmp_path))
    if victim == "down":
        started = lab(machine, *up)
        assert started.returncode == 0, started
    command = up if victim == "up" else ("down",)
    numbers = choose_victims(killed_at(machine, 0, log, *command))
    lab(machine, "down")
    assert len(numbers) > step // 2, "the driver sees what happens"
    for turn, place in enumerate(range(step // 2, len(numbers), step)):
        for _attempt in range(10):
            if victim == "down":
                assert lab(machine, *up).returncode == 0
            effects = killed_at(machine, numbers[place], log, *command)
            if len(effects) == numbers[place]:
                break
            # It ended before: how often a server is asked whether it is ready depends on the machine.
            numbers = choose_victims(effects)
            assert lab(machine, "down").returncode == 0
        else:
            raise AssertionError("ten times the command ended before it came to its place")
        if turn % 8 == 0:
            if victim == "down":  # it may have died before its first effect, and a lab that is up is not replaced
                assert lab(machine, "down").returncode == 0
            again = lab(machine, *up)
            assert again.returncode == 0, (effects[-1], again)
            assert lab(machine, "status").returncode == 0, effects[-1]
        removed = lab(machine, "down")
        assert removed.returncode == 0, (effects[-1], removed)
        assert what_shows(machine) == quick, effects[-1]
    assert everything(machine) == before


def on(datastore: str, folder: Path) -> tuple[str, ...]:
    """The options for a lab that starts the servers of a datastore; skips where they are missing."""
    if datastore == "sqlite":
        return ()
    programs = folder / "servers"
    programs.mkdir()
    (programs / "etcd").symlink_to(find_etcd_binary())
    if datastore == "kubernetes":
        (programs / "kube-apiserver").symlink_to(find_apiserver_binary())
    return ("--datastore", datastore, "--servers", str(programs))


SERVERS = [
    pytest.param("etcdv3", "etcd", marks=pytest.mark.etcd),
    pytest.param(
        "kubernetes", "etcd, kube-apiserver", marks=[pytest.mark.etcd, pytest.mark.apiserver, pytest.mark.night]
    ),
]


@pytest.mark.parametrize("datastore,servers", SERVERS)
def test_a_lab_has_the_servers_of_its_datastore_inside(
    machine: NetnsNode, tmp_path: Path, datastore: str, servers: str
) -> None:
    before, options = everything(machine), on(datastore, tmp_path)
    listening = machine.run("ss", "-Hltn")
    made = lab(machine, "up", "--pods", "2", *options)
    assert (made.returncode, made.stderr) == (0, ""), made
    assert machine.run("ss", "-Hltn") == listening, "nothing of the machine can be reached by others"
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stderr) == (0, ""), shown
    assert shown.stdout.endswith("All 12 ways work.\n")

    # What it says about looking around is true.
    asking = next(line for line in made.stdout.splitlines() if line.endswith("netplugctl get ippools"))
    asked = asking.strip().removesuffix("netplugctl get ippools").split()
    assert "lab-ipv4" in machine.run(*asked, *CTL, "get", "ippools", env=environment())

    again = lab(machine, "up", "--pods", "1", "--replace", *options)
    assert (again.returncode, again.stderr) == (0, ""), again
    assert f"ended: {servers}, netplug-node\n" in again.stdout
    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert "no address is held, no interface is left on the node\n" in removed.stdout
    assert everything(machine) == before


@pytest.mark.apiserver
def test_on_kubernetes_its_node_and_pods_are_objects(machine: NetnsNode, tmp_path: Path) -> None:
    options = on("kubernetes", tmp_path)
    made = lab(machine, "up", "--pods", "2", *options)
    assert made.returncode == 0, made
    script = """
import json, ssl, sys, urllib.request
folder, path = sys.argv[1:]
config = json.load(open(folder + "/conf/kubeconfig"))
cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
asked = urllib.request.Request(cluster["server"] + path, headers={"Authorization": "Bearer " + user["token"]})
context = ssl.create_default_context(cafile=cluster["certificate-authority"])
for item in json.load(urllib.request.urlopen(asked, context=context))["items"]:
    print(item["metadata"]["name"], item["metadata"].get("annotations", {}).get("cni.projectnetplug.org/podIPs", ""))
"""
    ask = ("nsenter", f"--net={FOLDER}/netns/node", sys.executable, "-c", script, FOLDER)
    assert machine.run(*ask, "/api/v1/nodes").split() == ["lab-node"]
    pods = [line.split() for line in machine.run(*ask, "/api/v1/namespaces/lab/pods").splitlines()]
    assert [(name, annotation.count(",")) for name, annotation in pods] == [("pod-1", 1), ("pod-2", 1)]
    assert lab(machine, "down").returncode == 0


@pytest.mark.etcd
def test_a_server_that_has_ended_is_reported_and_the_lab_is_still_removed(machine: NetnsNode, tmp_path: Path) -> None:
    before = everything(machine)
    lab(machine, "up", "--pods", "1", *on("etcdv3", tmp_path))
    machine.run("sh", "-c", f"kill -9 $(cat {FOLDER}/run/etcd.pid)")
    assert is_eventually(lambda: "etcd: it is not running any more" in lab(machine, "status").stderr)
    removed = lab(machine, "down")
    assert removed.returncode == 1
    assert re.search(r"^netplugctl: etcd: http://127\.0\.0\.1:2379: ", removed.stderr, re.MULTILINE), removed
    assert everything(machine) == before


@pytest.mark.etcd
def test_a_server_that_cannot_start_is_reported_with_its_reason_and_leaves_nothing(
    machine: NetnsNode, tmp_path: Path
) -> None:
    before = everything(machine)
    programs = tmp_path / "servers"
    programs.mkdir()
    (programs / "etcd").write_text("#!/bin/sh\necho 'no room' >&2\nexit 1\n")
    (programs / "etcd").chmod(0o755)
    refused = lab(machine, "up", "--datastore", "etcdv3", "--servers", str(programs))
    assert refused.returncode == 1
    assert refused.stderr.endswith("netplugctl: etcd ended as soon as it was started: no room\n")
    assert everything(machine) == before


URL = "http://192.0.2.1:12379"
ON_ETCD = ("--datastore", "etcdv3", "--server", URL)
RUNNING = f"""
set -e
ip address replace 192.0.2.1/32 dev lo
exec {{etcd}} --data-dir {{folder}} --log-level error --listen-client-urls {URL} --advertise-client-urls {URL} \
    --listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 \
    --initial-cluster default=http://127.0.0.1:12380
"""
KEYS = f"""
import base64, json, urllib.request
everything = {{"key": "AA==", "range_end": "AA==", "keys_only": True}}
asked = urllib.request.Request("{URL}/v3/kv/range", json.dumps(everything).encode(), method="POST")
for pair in json.load(urllib.request.urlopen(asked)).get("kvs", ()):
    print(base64.b64decode(pair["key"]).decode())
"""


def outside_etcd(machine: NetnsNode, folder: Path) -> subprocess.Popen[str]:
    """An etcd that runs on the machine, and is no lab's; again over the same data after it has ended."""
    started = machine.start_process("sh", "-c", RUNNING.format(etcd=find_etcd_binary(), folder=folder / "etcd"))
    assert is_eventually(lambda: "192.0.2.1:12379" in machine.run("ss", "-Hltn"))
    return started


def keys(machine: NetnsNode) -> list[str]:
    """Every key in it."""
    return machine.run(sys.executable, "-c", KEYS).split()


@pytest.mark.etcd
def test_a_lab_on_an_etcd_that_runs_leaves_nothing_there(machine: NetnsNode, tmp_path: Path) -> None:
    """Its node has no way to anywhere, and reaches that one address all the same."""
    outside_etcd(machine, tmp_path)
    before = everything(machine)
    made = lab(machine, "up", "--pods", "2", *ON_ETCD)
    assert made.returncode == 0, made
    assert "\n192.0.2.1 port 12379 is relayed to from the node (process " in made.stdout
    shown = lab(machine, "status")
    assert (shown.returncode, shown.stderr) == (0, ""), shown
    outside = {**environment(), "DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": URL}
    assert "lab-ipv4" in machine.run(*CTL, "get", "ippools", env=outside)
    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert "released" not in removed.stdout, "the plugins did that"
    assert "no interface is left on the node\n" in removed.stdout
    assert keys(machine) == []
    assert everything(machine) == before


@pytest.mark.etcd
@pytest.mark.parametrize("lost", ["*", "node", "pod-1"])
def test_addresses_on_an_etcd_that_runs_are_released_when_namespaces_are_gone(
    machine: NetnsNode, tmp_path: Path, lost: str
) -> None:
    """As after a restart of the machine: plugins cannot be called where there is no node."""
    outside_etcd(machine, tmp_path)
    before = everything(machine)
    lab(machine, "up", "--pods", "2", *ON_ETCD)
    assert sum("/handle/" in key for key in keys(machine)) == 2
    machine.run("sh", "-c", f"umount -n {FOLDER}/netns/{lost}")
    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert keys(machine) == []
    assert everything(machine) == before


@pytest.mark.night
@pytest.mark.etcd
def test_down_goes_on_when_an_etcd_that_was_away_is_back(machine: NetnsNode, tmp_path: Path) -> None:
    server = outside_etcd(machine, tmp_path)
    before = everything(machine)
    lab(machine, "up", "--pods", "1", *ON_ETCD)
    server.kill()
    server.wait()
    refused = lab(machine, "up")
    assert (refused.returncode, "--replace removes it first" in refused.stderr) == (1, True)
    for command in (("down",), ("down",), ("up", "--replace")):
        refused = lab(machine, *command)
        assert refused.returncode == 1
        assert f"netplugctl: {FOLDER} stays, so that lab down can go on when the servers answer" in refused.stderr
    assert machine.run("sh", "-c", "ip -o link; ip netns list").count("netp") == 0, "here everything is gone"
    outside_etcd(machine, tmp_path)
    removed = lab(machine, "down")
    assert (removed.returncode, removed.stderr) == (0, ""), removed
    assert removed.stdout.endswith(f"{FOLDER} is removed\n")
    assert keys(machine) == []
    assert everything(machine) == before


def test_an_etcd_that_does_not_run_is_all_that_up_speaks_of(machine: NetnsNode) -> None:
    before = everything(machine)
    refused = lab(machine, "up", "--datastore", "etcdv3", "--server", "http://127.0.0.1:1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.fullmatch(r"netplugctl: etcd: http://127\.0\.0\.1:1: .*[Cc]onnection refused\n", refused.stderr)
    assert everything(machine) == before


def unprivileged(machine: NetnsNode, script: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """A shell without any right over the machine: in a user namespace of its own."""
    return machine.run_unchecked("unshare", "--user", *flags, "sh", "-c", script, env=environment())


def test_without_root_in_a_user_namespace(machine: NetnsNode) -> None:
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
def test_without_the_rights_it_says_what_is_needed(machine: NetnsNode, tmp_path: Path, flags: tuple[str, ...]) -> None:
    folder = tmp_path / "lab"
    done = unprivileged(machine, f"{' '.join(CTL)} lab up --dir {folder}", *flags)
    assert done.returncode == 1, done
    assert done.stderr.endswith(
        f"making the network namespace {folder}/netns/node: Operation not permitted; "
        "root is needed, or a user namespace: unshare --user --map-root-user --net --mount\n"
    )
    assert not os.path.exists(folder)
