"""host-local beside the well-known plugin of that name: in one folder, one after the other and at the same time.

Debian's build is always used. ``HOST_LOCAL_PLUGIN`` may name another one, such as that of the Go module
``github.com/containernetworking/plugins/plugins/ipam/host-local``, version 1.9.1.
"""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.killer import killer_command
from tests.harness.node import DEBIAN_PLUGINS, CNIRuntime, NetConfDict, NetnsNode, PluginReply, PodNamespace

pytestmark = pytest.mark.netns

NAMED_BUILD = os.environ.get("HOST_LOCAL_PLUGIN")
OTHER_BUILDS = {"debian": f"{DEBIAN_PLUGINS}/host-local"} | ({"named": NAMED_BUILD} if NAMED_BUILD else {})


@frozen
class SharedFolder:
    """A folder of one network that netplug and the well-known plugin share."""

    node: NetnsNode
    runtime: CNIRuntime
    other: str

    @property
    def path(self) -> Path:
        """The network's folder."""
        return Path(self.node.file("networks")) / "net1"

    def conf(self, **ipam: object) -> NetConfDict:
        """A configuration, for both families unless ranges are given."""
        ranges = [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]]
        keys = {"type": "host-local", "dataDir": self.node.file("networks"), "ranges": ranges, **ipam}
        return self.runtime.make_netconf(ipam=keys)

    def call_other(self, command: str, container: str, conf: NetConfDict | None = None) -> PluginReply:
        """A call of the well-known plugin, as a main plugin makes it."""
        environ = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": "/run/netns/not-looked-at",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": DEBIAN_PLUGINS,
        }
        done = self.node.run_unchecked(self.other, stdin=json.dumps(conf or self.conf()), env=environ)
        return PluginReply(done.returncode, done.stdout, done.stderr)

    def held(self) -> dict[str, str]:
        """The address files, with their texts."""
        if not self.path.exists():
            return {}
        names = (name for name in os.listdir(self.path) if name[0].isdigit() or name.startswith("fd"))
        return {name: (self.path / name).read_bytes().decode() for name in names}

    def other_files(self) -> set[str]:
        """The names of all other files."""
        return set(os.listdir(self.path)) - set(self.held())


@pytest.fixture(params=OTHER_BUILDS)
def shared(node: NetnsNode, runtime: CNIRuntime, request: pytest.FixtureRequest) -> SharedFolder:
    other = OTHER_BUILDS[request.param]
    if not os.access(other, os.X_OK):
        pytest.skip(f"{other} is missing")
    return SharedFolder(node, runtime, other)


@pytest.fixture
def own(node: NetnsNode, runtime: CNIRuntime) -> SharedFolder:
    """A folder that netplug has for itself."""
    return SharedFolder(node, runtime, "")


@pytest.mark.parametrize("version", ["0.3.1", "1.0.0", "1.1.0"])
def test_a_pod(own: SharedFolder, pod: PodNamespace, version: str) -> None:
    """Addresses of both families that answer, until DEL."""
    before, conf = own.node.leftovers(), {**own.conf(), "cniVersion": version}
    added = own.runtime.add(conf, pod)
    assert added.addresses == ("10.77.0.2", "fd77::2")
    assert own.held() == {"10.77.0.2": f"{pod.name}\r\neth0", "fd77::2": f"{pod.name}\r\neth0"}
    assert all(own.node.can_ping(address) for address in added.addresses)
    assert own.node.can_ping("192.0.2.2", inside=pod.name)
    if version != "0.3.1":
        assert own.runtime.check(conf, pod, added).is_success_without_output
    if version == "1.1.0":
        assert own.runtime.call("STATUS", conf).is_success_without_output

    own.runtime.delete(conf, pod)
    assert own.held() == {}
    assert own.node.store.is_empty
    assert own.node.leftovers() == before


def test_each_takes_over_the_folder_of_the_other(shared: SharedFolder) -> None:
    mine, theirs, third = shared.node.make_pods(3)
    conf = shared.conf()
    assert shared.runtime.add(conf, mine).addresses == ("10.77.0.2", "fd77::2")
    assert shared.call_other("CHECK", mine.name).status == 0
    assert "duplicate allocation is not allowed" in shared.call_other("ADD", mine.name).text

    assert shared.call_other("ADD", theirs.name).addresses == ("10.77.0.3", "fd77::3")
    assert shared.runtime.add(conf, third).addresses == ("10.77.0.4", "fd77::4")
    assert {text.replace(theirs.name, mine.name).replace(third.name, mine.name) for text in shared.held().values()} == {
        f"{mine.name}\r\neth0"
    }
    assert shared.other_files() == {"lock", "last_reserved_ip.0", "last_reserved_ip.1", ".netplug-boot"}

    shared.runtime.delete(conf, theirs)
    assert shared.call_other("CHECK", theirs.name).status == 1
    assert shared.call_other("DEL", mine.name).status == 0
    assert sorted(shared.held()) == ["10.77.0.4", "fd77::4"]
    for pod in (mine, theirs, third):
        shared.runtime.delete(conf, pod)
    assert shared.held() == {}
    assert shared.node.store.is_empty


def test_a_pod_of_the_other_is_attached_again_with_its_addresses(shared: SharedFolder, pod: PodNamespace) -> None:
    """The plugin of a node is replaced: a container that is started again keeps what its files say."""
    theirs = shared.call_other("ADD", pod.name).addresses
    assert shared.runtime.add(shared.conf(), pod).addresses == theirs
    shared.runtime.delete(shared.conf(), pod)
    assert shared.held() == {}


def test_both_refuse_the_same_address(shared: SharedFolder, pod: PodNamespace) -> None:
    conf = shared.conf(ranges=[[{"subnet": "10.77.0.0/30"}]])
    assert shared.call_other("ADD", "theirs", conf).status == 0
    reply = shared.runtime.call("ADD", {**conf, "cniVersion": "1.1.0"}, pod)
    assert (reply.code, "no IP addresses available in range set: 10.77.0.1-10.77.0.2" in reply.text) == (105, True)
    assert shared.runtime.call("STATUS", {**conf, "cniVersion": "1.1.0"}).code == 50
    taken = shared.runtime.call("ADD", conf, pod, CNI_ARGS="IP=10.77.0.2")
    assert (taken.code, "held by container theirs" in taken.text) == (112, True)
    assert shared.call_other("DEL", "theirs", conf).status == 0
    assert shared.runtime.add(conf, pod).addresses == ("10.77.0.2",)
    shared.runtime.delete(conf, pod)


def test_fifty_adds_of_both_at_once(shared: SharedFolder) -> None:
    """Both take the same lock: no address is given twice, and none is lost."""
    before, pods, conf = shared.node.leftovers(), shared.node.make_pods(20), shared.conf()
    theirs = [f"other-{number}" for number in range(30)]
    with ThreadPoolExecutor(8) as runtime:
        calls = [runtime.submit(shared.runtime.add, conf, pod) for pod in pods]
        calls += [runtime.submit(shared.call_other, "ADD", container) for container in theirs]
        replies = [call.result() for call in calls]

    given = [address for reply in replies for address in reply.addresses]
    assert len(given) == 2 * 50
    assert set(given) == set(shared.held())
    assert shared.other_files() == {"lock", "last_reserved_ip.0", "last_reserved_ip.1", ".netplug-boot"}

    with ThreadPoolExecutor(8) as runtime:
        calls = [runtime.submit(shared.runtime.call, "DEL", conf, pod) for pod in pods]
        calls += [runtime.submit(shared.call_other, "DEL", container) for container in theirs]
        assert {call.result().status for call in calls} == {0}
    assert shared.held() == {}
    assert shared.node.store.is_empty
    assert shared.node.leftovers() == before


# --- killed -----------------------------------------------------------------------------------------------------------

FILE_EFFECTS = ("NetworkFiles", "Folder.")
STORE_EFFECTS = ("SqliteDatastore",)


def own_network(shared: SharedFolder, pod: PodNamespace) -> NetConfDict:
    """A network of the pod's own, so that a call has the same effects whatever other calls have left."""
    number = pod.name.removeprefix("pod-")
    ranges = [[{"subnet": f"10.77.{number}.0/24"}], [{"subnet": f"fd77:{number}::/64"}]]
    return {**shared.conf(ranges=ranges), "name": pod.name}


def files_of_network(shared: SharedFolder, pod: PodNamespace) -> set[str]:
    """The names of the files in the folder of such a network."""
    folder = Path(shared.node.file("networks"), pod.name)
    return set(os.listdir(folder)) if folder.exists() else set()


def kill(shared: SharedFolder, command: str, pod: PodNamespace, number: int) -> tuple[int, list[str]]:
    """A call that is killed after an effect (0: it is not); its exit status and the effects that it had."""
    path = shared.node.file(f"{pod.name}.effects")
    script = killer_command(shared.runtime.executable("netplug"), stop_at=number, effects_file=path)
    environ = shared.runtime.make_environ(command, pod)
    done = shared.node.run_unchecked(*script, stdin=json.dumps(own_network(shared, pod)), env=environ)
    return done.returncode, Path(path).read_text(encoding="utf-8").split()


def effects_of(shared: SharedFolder, command: str) -> list[str]:
    """What a call does that is not killed."""
    pod = shared.node.make_pod()
    if command == "DEL":
        shared.runtime.add(own_network(shared, pod), pod)
    status, effects = kill(shared, command, pod, 0)
    assert status == 0
    shared.runtime.delete(own_network(shared, pod), pod)
    return effects


def kill_after(shared: SharedFolder, command: str, numbers: list[int]) -> tuple[PodNamespace, ...]:
    """A pod for each number, whose call is killed after its effect of that number."""
    pods = shared.node.make_pods(len(numbers))

    def die(number: int, pod: PodNamespace) -> None:
        if command == "DEL":
            shared.runtime.add(own_network(shared, pod), pod)
        status, seen = kill(shared, command, pod, number)
        # A call that waits for another one, or for the store, has more effects than a call that is alone, or fewer.
        assert status == -signal.SIGKILL or len(seen) < number

    with ThreadPoolExecutor(3) as runtime:
        list(runtime.map(die, numbers, pods))
    return pods


@pytest.mark.night
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_killed_after_every_effect_then_del(own: SharedFolder, command: str) -> None:
    """DEL leaves no address file, endpoint or interface, whatever the killed call had done.

    ``test_cni_killed`` has the effects of the dataplane; of those, this has the first and the last.
    """
    before, effects = own.node.leftovers(), effects_of(own, command)
    expected = {"NetworkFiles._try_lock", "Folder.remove"}
    expected |= {"Folder.create", "Folder._written"} if command == "ADD" else set()
    assert expected <= set(effects)
    stored = [n for n, effect in enumerate(effects, 1) if effect.startswith(FILE_EFFECTS + STORE_EFFECTS)]
    numbers = sorted({*stored, stored[-1] + 1, len(effects)})

    for victim in kill_after(own, command, numbers):
        own.runtime.delete(own_network(own, victim), victim)
        assert set(own.node.links(victim)) == {"lo"}
        kept = {"lock", "last_reserved_ip.0", "last_reserved_ip.1", ".netplug-boot"}
        assert files_of_network(own, victim) <= kept
    assert own.node.store.is_empty
    assert own.node.leftovers() == before


def test_what_a_killed_add_leaves_is_freed_by_the_other(shared: SharedFolder) -> None:
    """An address file is complete as soon as it is there, so the other plugin can always tell whose it is."""
    effects = effects_of(shared, "ADD")
    numbers = [n for n, effect in enumerate(effects, 1) if effect.startswith("NetworkFiles")]
    for victim in kill_after(shared, "ADD", numbers):
        conf = own_network(shared, victim)
        assert shared.call_other("DEL", victim.name, conf).status == 0
        assert not {name for name in files_of_network(shared, victim) if name.startswith(("10.", "fd"))}
        shared.runtime.delete(conf, victim)
    assert shared.node.store.is_empty
