"""Other IPAM plugins: Debian's ``static``, ``dhcp`` without its daemon, and ``host-local`` under another name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.local_stores import IS_DEEP
from tests.harness.node import DEBIAN_PLUGINS, CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.netns

KILLER_SCRIPT = os.path.join(os.path.dirname(__file__), "..", "harness", "processes", "plugin_killer.py")
BOOKKEEPING = {"lock", "last_reserved_ip.0", "last_reserved_ip.1"}


@frozen
class DelegatedScene:
    """A node with ``my-ipam``, a copy of Debian's host-local, in a folder of its own."""

    node: NetnsNode
    runtime: CNIRuntime

    @property
    def folder(self) -> str:
        """The folder of ``my-ipam``."""
        return self.node.file("plugins")

    def conf(self, *, number: int = 77, **changes: object) -> NetConfDict:
        """A configuration for both families."""
        ranges = [[{"subnet": f"10.{number}.0.0/24"}], [{"subnet": f"fd{number}::/64"}]]
        ipam = {"type": "my-ipam", "dataDir": self.node.file("networks"), "ranges": ranges}
        return self.runtime.make_netconf(**{"ipam": ipam, **changes})

    def call(self, command: str, conf: NetConfDict, pod: PodNamespace | None = None, **variables: str) -> PluginReply:
        """A call with that folder in CNI_PATH."""
        return self.runtime.call(command, conf, pod, CNI_PATH=f"{self.folder}:{DEBIAN_PLUGINS}", **variables)

    def held(self, network: str = "net1") -> set[str]:
        """The addresses that ``my-ipam`` holds."""
        path = Path(self.node.file("networks"), network)
        return set(os.listdir(path)) - BOOKKEEPING if path.exists() else set()

    def is_running(self) -> bool:
        """Whether a call of ``my-ipam`` has not ended, though the call of netplug was killed."""
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{number}/exe") == f"{self.folder}/my-ipam":
                    return True
            except OSError:  # it has ended meanwhile
                continue
        return False


@pytest.fixture
def scene(node: NetnsNode, runtime: CNIRuntime) -> DelegatedScene:
    made = DelegatedScene(node, runtime)
    os.mkdir(made.folder)
    shutil.copy(f"{DEBIAN_PLUGINS}/host-local", f"{made.folder}/my-ipam")
    return made


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.1", "0.4.0", "1.0.0"])
def test_a_pod(scene: DelegatedScene, pod: PodNamespace, version: str) -> None:
    """Addresses of both families that answer, until DEL."""
    before, conf = scene.node.leftovers(), scene.conf(cniVersion=version)
    added = scene.call("ADD", conf, pod)
    if version in ("0.1.0", "0.2.0"):
        result = json.loads(json.dumps(added.result))
        assert (result["ip4"]["ip"], result["ip6"]["ip"]) == ("10.77.0.2/32", "fd77::2/128")
    else:
        assert added.addresses == ("10.77.0.2", "fd77::2")
    assert scene.held() == {"10.77.0.2", "fd77::2"}
    assert all(scene.node.can_ping(address) for address in ("10.77.0.2", "fd77::2"))
    assert scene.node.can_ping("192.0.2.2", inside=pod.name)
    if version in ("0.4.0", "1.0.0"):
        assert scene.call("CHECK", {**conf, "prevResult": added.result}, pod).is_success_without_output

    for _ in range(2):
        assert scene.call("DEL", conf, pod).is_success_without_output
    assert scene.held() == set()
    assert scene.node.store.is_empty
    assert scene.node.leftovers() == before


@pytest.mark.parametrize("arguments", ["IP=10.77.0.9/24", "A=1;", "IgnoreUnknown=perhaps;K8S_POD_NAME"])
def test_a_del_does_not_hand_on_what_the_plugin_would_refuse(
    scene: DelegatedScene, pod: PodNamespace, arguments: str
) -> None:
    """Debian's host-local fails because of each of these, and the sandbox could never be removed."""
    assert scene.call("ADD", scene.conf(), pod).addresses == ("10.77.0.2", "fd77::2")
    reply = scene.call("DEL", scene.conf(), pod, CNI_ARGS=arguments)
    assert reply.is_success_without_output, reply
    assert scene.held() == set()
    assert scene.node.store.is_empty


def test_a_version_that_it_does_not_know_is_its_own_error(scene: DelegatedScene, pod: PodNamespace) -> None:
    """Debian's plugins know neither 1.1.0 nor STATUS and GC, which does not count as an error of theirs."""
    conf = scene.conf(cniVersion="1.1.0")
    reply = scene.call("ADD", conf, pod)
    assert (reply.code, reply.error["msg"]) == (1, "incompatible CNI versions")
    assert scene.call("STATUS", conf).is_success_without_output
    valid = {**conf, "cni.dev/valid-attachments": []}
    assert scene.call("GC", valid).is_success_without_output
    assert scene.node.store.is_empty


def test_routes_and_dns_of_static(scene: DelegatedScene, pod: PodNamespace) -> None:
    """Its routes replace the default ones; name servers and gateways are in the result, and its CHECK compares them."""
    ipam = {
        "type": "static",
        "addresses": [{"address": "10.78.0.9/24", "gateway": "10.78.0.1"}, {"address": "fd78::9/64"}],
        "routes": [{"dst": "192.0.2.0/24", "gw": "10.78.0.1"}, {"dst": "2001:db8::/32"}],
        "dns": {"nameservers": ["10.78.0.53"], "search": ["example.org"]},
    }
    conf = scene.conf(ipam=ipam)
    added = scene.call("ADD", conf, pod)
    assert added.result["dns"] == {"nameservers": ["10.78.0.53"], "search": ["example.org"]}
    assert added.result["ips"] == [
        {"interface": 1, "address": "10.78.0.9/32", "gateway": "10.78.0.1"},
        {"interface": 1, "address": "fd78::9/128"},
    ]
    routes = scene.node.run("ip", "-n", pod.name, "route").splitlines()
    assert [line.split()[0] for line in routes] == ["169.254.1.1", "192.0.2.0/24"]
    assert scene.node.can_ping("192.0.2.2", inside=pod.name)
    assert scene.call("CHECK", {**conf, "prevResult": added.result}, pod).is_success_without_output
    assert scene.call("DEL", conf, pod).is_success_without_output
    assert scene.node.store.is_empty


def test_an_address_that_the_caller_asks_for(scene: DelegatedScene, pod: PodNamespace) -> None:
    arguments = "IP=10.77.0.42;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"
    own = scene.conf(
        ipam={
            "type": "my-ipam",
            "dataDir": scene.node.file("networks"),
            "ranges": [[{"subnet": "10.77.0.0/24"}]],
        }
    )
    assert scene.call("ADD", own, pod, CNI_ARGS=arguments).addresses == ("10.77.0.42",)
    assert scene.call("DEL", own, pod, CNI_ARGS=arguments).is_success_without_output
    assert scene.held() == set()


def test_a_plugin_whose_daemon_is_missing(scene: DelegatedScene, pod: PodNamespace) -> None:
    """``dhcp`` says why; nothing is left, and its DEL is repeated until the daemon is there."""
    before, conf = scene.node.leftovers(), scene.conf(ipam={"type": "dhcp", "daemonSocketPath": "/no/dhcp.sock"})
    for command in ("ADD", "DEL"):
        reply = scene.call(command, conf, pod)
        assert "error dialing DHCP daemon: dial unix /no/dhcp.sock" in reply.text
    assert scene.node.store.is_empty
    assert scene.node.leftovers() == before


def test_thirty_calls_at_once(scene: DelegatedScene) -> None:
    """Each gets addresses of its own: the plugin's own lock keeps its calls apart."""
    before, pods, conf = scene.node.leftovers(), scene.node.make_pods(15), scene.conf()
    with ThreadPoolExecutor(6) as runtime:
        replies = list(runtime.map(lambda pod: scene.call("ADD", conf, pod), pods))
        given = [address for reply in replies for address in reply.addresses]
        assert len(set(given)) == 2 * len(pods)
        assert set(given) == scene.held()
        ended = list(runtime.map(lambda pod: scene.call("DEL", conf, pod), pods))
    assert {reply.status for reply in ended} == {0}
    assert scene.held() == set()
    assert scene.node.store.is_empty
    assert scene.node.leftovers() == before


def test_netplug_does_not_run_itself(scene: DelegatedScene, pod: PodNamespace) -> None:
    shutil.copy(scene.runtime.executable("netplug"), f"{scene.folder}/loop")
    reply = scene.call("ADD", scene.conf(ipam={"type": "loop"}), pod)
    assert (reply.code, "that program is netplug itself" in reply.text) == (7, True)
    assert scene.node.store.is_empty


# --- killed -----------------------------------------------------------------------------------------------------------


def conf_of(scene: DelegatedScene, pod: PodNamespace) -> NetConfDict:
    """A network of the pod's own, so that a call has the same effects whatever others have left."""
    return scene.conf(number=int(pod.name.removeprefix("pod-")) % 89 + 10, name=pod.name)


def kill(scene: DelegatedScene, command: str, pod: PodNamespace, number: int) -> tuple[int, list[str]]:
    """A call that is killed after an effect (0: it is not); its exit status and the effects that it had."""
    path = scene.node.file(f"{pod.name}.effects")
    script = (sys.executable, "-IS", KILLER_SCRIPT, str(number), path, scene.runtime.executable("netplug"), "SIGKILL")
    environ = scene.runtime.make_environ(command, pod, CNI_PATH=scene.folder)
    done = scene.node.run_unchecked(*script, stdin=json.dumps(conf_of(scene, pod)), env=environ)
    return done.returncode, Path(path).read_text(encoding="utf-8").split()


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_killed_around_every_effect_of_the_plugin_then_del(scene: DelegatedScene, command: str) -> None:
    """DEL leaves no address, endpoint or interface, whatever the killed call had done.

    ``test_cni_killed`` has the effects of the dataplane. A plugin whose caller was killed goes on; a runtime that sends
    DEL before it has ended cannot be helped.
    """
    before, first = scene.node.leftovers(), scene.node.make_pod()
    if command == "DEL":
        scene.call("ADD", conf_of(scene, first), first)
    status, effects = kill(scene, command, first, 0)
    assert status == 0
    assert {"_Pipes.serve", "_Pipes._write", "_read"} <= set(effects), effects
    scene.call("DEL", conf_of(scene, first), first)

    watched = ("_Pipes", "_read", "SqliteDatastore")
    found = [n for n, effect in enumerate(effects, 1) if effect.startswith(watched)]
    numbers = sorted({*(found if IS_DEEP else found[::2]), found[-1] + 1, len(effects)})
    victims = scene.node.make_pods(len(numbers))

    def die(number: int, pod: PodNamespace) -> None:
        if command == "DEL":
            assert scene.call("ADD", conf_of(scene, pod), pod).status == 0
        ended, seen = kill(scene, command, pod, number)
        assert ended == -signal.SIGKILL or len(seen) < number

    with ThreadPoolExecutor(3) as runtime:
        list(runtime.map(die, numbers, victims))
    wait_until(lambda: not scene.is_running(), "every call of the plugin has ended")
    for victim in victims:
        assert scene.call("DEL", conf_of(scene, victim), victim).is_success_without_output
        assert set(scene.node.links(victim)) == {"lo"}
        assert scene.held(victim.name) == set()
    assert scene.node.store.is_empty
    assert scene.node.leftovers() == before
