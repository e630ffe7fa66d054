"""The CNI commands with another IPAM plugin, on a node of fakes and a program that is really executed."""

import errno
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.delegate.hookimpls import netplug_open_ipam
from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.addressing import Prefix
from netplug_core.cni.delegation import IPAMPluginError, IPAMPluginFailed
from netplug_core.cni.dispatch import Plugin
from netplug_core.cni.result import CNIRoute
from netplug_core.dataplane.plan import next_hop
from netplug_core.dataplane.protocol import KernelError
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable, UnhealthyStatus
from netplug_core.flows.cni.call import open_call
from netplug_core.flows.cni.check import _link
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import DNS
from netplug_core.log import Level
from netplug_core.names import attachment_lock_offset
from netplug_core.orchestrator.model import NamespaceFacts, PodFacts
from netplug_core.testing.faults import FaultyDatastore, LostRequest
from tests.harness.cni_node import DEFAULT_CONTAINER, LOCK_FILE, NODE, POD, CNINodeHarness, ContainerInterface
from tests.harness.scripted_plugin import ScriptedPlugin
from tests.harness.stores import HookedStore

SECOND = ContainerInterface(id="c2", netns="/run/netns/c2")
V4 = Prefix.parse("0.0.0.0/0")


@pytest.fixture
def plugin(tmp_path: Path) -> ScriptedPlugin:
    return ScriptedPlugin.make(tmp_path / "bin")


@pytest.fixture
def harness(plugin: ScriptedPlugin) -> CNINodeHarness:
    made = CNINodeHarness(cni_path=f"/nowhere:{plugin.folder}")
    made.config["ipam"] = {"type": "my-ipam", "assign_ipv4": True, "routes": "its own"}
    return made


def away(harness: CNINodeHarness) -> Datastore:
    """The store, which does not answer."""

    def fail() -> None:
        raise Unavailable("the store", "connection refused")

    return HookedStore(harness.memory, before_read=fail, before_commit=fail)


def assert_nothing_left(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    assert plugin.held() == []
    harness.assert_nothing_left()


def test_a_failed_sandbox_of_a_pod_is_left_to_the_other_plugin(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Only it knows what it held, and a DEL of it needs the arguments of that container."""
    harness.add(ContainerInterface(args=POD))
    harness.dataplane.remove_namespace(DEFAULT_CONTAINER.netns)
    harness.add(evolve(SECOND, args=POD))
    assert plugin.calls() == ["ADD c1 eth0", "ADD c2 eth0"]


def test_an_attachment(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    result = harness.add()
    assert [(str(ip), str(ip.gateway), ip.interface) for ip in result.ips] == [("10.88.0.5/32", "10.88.0.1", 1)]
    assert result.routes[-1] == CNIRoute(destination=V4, gateway=next_hop(V4.family))
    assert result.dns == DNS()
    assert [str(address) for address in harness.endpoints()[0].spec.addresses] == ["10.88.0.5"]
    assert (harness.allocations(), plugin.held()) == ({}, ["c1.eth0"])

    harness.check(DEFAULT_CONTAINER, result)
    assert plugin.calls() == ["ADD c1 eth0", "CHECK c1 eth0"]
    harness.run("DEL")
    harness.run("DEL")
    assert_nothing_left(harness, plugin)


def test_a_resumed_add_gives_back_what_the_program_assigned(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """The program may refuse a second ADD, or return another address than the interface has."""
    first = harness.add()
    assert harness.resume("ADD") == first
    assert plugin.calls() == ["ADD c1 eth0", "DEL c1 eth0", "ADD c1 eth0"]
    harness.check(DEFAULT_CONTAINER, first)
    assert len(harness.endpoints()) == 1


def test_check_sees_that_the_default_route_is_gone(harness: CNINodeHarness) -> None:
    """As with every other IPAM; routes that the program named are not compared."""
    request, netconf = harness.make_call("CHECK", DEFAULT_CONTAINER, Plugin.MAIN)
    previous = harness.add()
    for routes, expected in ((previous.routes, None), (previous.routes[:-1], ())):
        result = evolve(previous, routes=routes)
        assert _link(result, open_call(request, netconf, NODE)).routes == expected


def test_the_program_gets_the_call_as_it_came(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Keys of its own are never looked at, and reach it byte for byte."""
    container = ContainerInterface(args=f"{POD};IP=10.88.0.9")
    harness.config["of-others"] = {"ü": [1.50, None]}
    request, _netconf = harness.make_call("ADD", container, Plugin.MAIN)
    harness.add(container)
    assert plugin.stdin("ADD") == request.netconf_text.encode()
    environ = plugin.environ("ADD")
    assert environ["CNI_ARGS"] == f"IgnoreUnknown=1;{POD};IP=10.88.0.9"
    assert {name: environ[name] for name in ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME")} == {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": container.netns, "CNI_IFNAME": "eth0",
    }  # fmt: skip
    assert environ["CNI_PATH"] == harness.cni_path


def test_its_routes_and_dns_are_those_of_the_container(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Routes replace the default ones; their gateways are not used. CHECK knows them from the result."""
    plugin.answer(
        {
            "cniVersion": "1.0.0",
            "ips": [{"address": "10.88.0.5/24"}, {"address": "fd88::5/64"}, {"address": "10.88.0.5/24"}],
            "routes": [{"dst": "10.0.0.0/8", "gw": "10.88.0.1"}, {"dst": "fd00::/8"}, {"dst": "10.0.0.0/8"}],
            "dns": {"nameservers": ["10.88.0.53"], "search": ["example.org"]},
        }
    )
    result = harness.add()
    assert [str(ip) for ip in result.ips] == ["10.88.0.5/32", "fd88::5/128"]
    reached = [str(route.destination) for route in result.routes if route.gateway]
    assert reached == ["10.0.0.0/8", "fd00::/8"]
    assert result.dns == DNS(nameservers=("10.88.0.53",), search=("example.org",))
    harness.check(DEFAULT_CONTAINER, result)
    harness.run("DEL")

    result = harness.add(include_default_routes=True)
    reached = [str(route.destination) for route in result.routes if route.gateway]
    assert reached == ["0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8"]
    harness.check(DEFAULT_CONTAINER, result, include_default_routes=True)


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_an_answer_of_the_oldest_versions(harness: CNINodeHarness, plugin: ScriptedPlugin, version: str) -> None:
    plugin.answer(
        {
            "cniVersion": version,
            "ip4": {"ip": "10.88.0.5/24", "gateway": "10.88.0.1", "routes": [{"dst": "10.0.0.0/8"}]},
            "ip6": {"ip": "fd88::5/64"},
        }
    )
    result = harness.add()
    assert [str(ip) for ip in result.ips] == ["10.88.0.5/32", "fd88::5/128"]
    assert [str(route.destination) for route in result.routes if route.gateway] == ["10.0.0.0/8"]


def test_an_answer_without_a_version_is_that_of_the_configuration(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    plugin.answer({"ip4": {"ip": "10.88.0.5/24"}})
    assert [str(ip) for ip in harness.add(cniVersion="0.2.0").ips] == ["10.88.0.5/32"]


ERROR = """'{"cniVersion": "1.0.0", "code": 4711, "msg": "no more", "details": "in range 7"}'"""


@pytest.mark.parametrize("status", [0, 1, 3])
def test_its_error_is_that_of_the_call(harness: CNINodeHarness, plugin: ScriptedPlugin, status: int) -> None:
    """An ADD may fail after it assigned, so DEL follows."""
    plugin.script("ADD", f"touch $held; echo {ERROR}; exit {status}")
    with pytest.raises(IPAMPluginError) as failure:
        harness.add()
    assert (failure.value.reported_code, str(failure.value), failure.value.details) == (4711, "no more", "in range 7")
    assert plugin.calls() == ["ADD c1 eth0", "DEL c1 eth0"]
    assert_nothing_left(harness, plugin)


@pytest.mark.parametrize(
    "script,text",
    [
        ("echo garbage; exit 0", "its result is no JSON; its standard output begins with 'garbage'"),
        ("exit 0", "its result is no JSON; it wrote nothing"),
        ("cat result; exit 1", "it ended with status 1 and reported no error; its standard output begins with '{"),
        ("echo oh >&2; exit 2", "it ended with status 2 and reported no error; its standard error begins with 'oh'"),
        ("kill -9 $$", "it was ended by signal 9 and reported no error; it wrote nothing"),
        ("echo '{}'; exit 0", "its result has no address"),
        ("echo '[]'; exit 0", "its result: must be an object"),
        ("""echo '{"cniVersion": "7.0.0"}'; exit 0""", 'its result.cniVersion: "7.0.0" is not a supported CNI'),
        ("""echo '{"ips": [{"address": "10.88.0.5"}]}'; exit 0""", "its result.ips[0].address: "),
        ("""echo '{"ips": [{"address": "169.254.1.1/16"}]}'; exit 0""", "and 169.254.0.0/16 is link-local"),
        ("head -c 60000000 /dev/zero; exit 0", "it wrote more than 1048576 bytes and was killed"),
    ],
)
def test_an_answer_that_is_none_leaves_nothing(
    harness: CNINodeHarness, plugin: ScriptedPlugin, script: str, text: str
) -> None:
    plugin.script("ADD", f"touch $held; {script}")
    with pytest.raises(IPAMPluginFailed) as failure:
        harness.add()
    assert text in str(failure.value)
    assert failure.value.code == 160
    assert_nothing_left(harness, plugin)


def test_a_program_that_does_not_end_is_killed(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """STATUS has two seconds. Here its standard output is closed long before."""
    plugin.script("STATUS", "exec >&-; sleep 1000")
    with pytest.raises(UnhealthyStatus, match=r"my-ipam, STATUS: it did not end within 2\.0 s and was killed"):
        harness.run("STATUS")


def test_a_program_that_is_missing_or_cannot_be_executed(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """The first file of the name counts, as in other runtimes; a folder of that name does not."""
    first = plugin.folder.parent / "first"
    (first / "my-ipam").mkdir(parents=True)
    harness.cni_path = f"{first}:{plugin.folder}"
    harness.add()
    harness.run("DEL")

    plugin.path.chmod(0o644)
    with pytest.raises(IPAMPluginFailed, match=f"ADD: {plugin.path} cannot be executed: Permission denied"):
        harness.add()
    plugin.path.unlink()
    text = f"ipam.type: 'my-ipam' is not accepted; the name of a program in CNI_PATH .{harness.cni_path}. is expected"
    for command in ("ADD", "STATUS", "DEL"):
        with pytest.raises(ConfigurationError, match=text):
            harness.run(command)
    assert_nothing_left(harness, plugin)


@pytest.mark.parametrize("name", ["../my-ipam", "/bin/true", "netplug", ""])
def test_a_name_that_is_none_is_refused(harness: CNINodeHarness, name: str) -> None:
    with pytest.raises(ConfigurationError, match="the name of an IPAM plugin is expected, such as netplug-ipam"):
        harness.add(ipam={"type": name})
    harness.assert_nothing_left()


def test_netplug_under_another_name_is_not_run_by_itself_for_ever(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    harness.add()
    mark = {name: value for name, value in plugin.environ("ADD").items() if name.startswith("NETPLUG_")}
    assert mark == {"NETPLUG_DELEGATED": "my-ipam"}
    request, netconf = harness.make_call("STATUS", SECOND, Plugin.MAIN)
    context = IPAMContext(
        datastore=harness.store,
        clock=harness.clock,
        chance=lambda: 0.5,
        netconf=netconf.own_keys,
        request=evolve(request, environ={**request.environ, **mark}),
    )
    with pytest.raises(ConfigurationError, match=r"ipam\.type: 'my-ipam' is not accepted; that program is netplug"):
        netplug_open_ipam("delegate", context)


# --- what fails after it assigned -------------------------------------------------------------------------------------


def test_an_endpoint_that_is_not_stored_takes_the_address_back(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Here the store is away from the commit on."""
    harness.store = FaultyDatastore(harness.memory, dict.fromkeys(range(1, 2000), LostRequest()))
    with pytest.raises(NetplugError):
        harness.add()
    harness.store = harness.memory
    assert plugin.held() == []
    harness.run("DEL")
    assert_nothing_left(harness, plugin)


def test_a_dataplane_that_fails_takes_the_address_back(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    def fail(effect: str) -> None:
        raise KernelError(effect, "Operation not permitted")

    harness.dataplane.before_effect = fail
    with pytest.raises(KernelError):
        harness.add()
    assert plugin.calls() == ["ADD c1 eth0", "DEL c1 eth0"]
    assert_nothing_left(harness, plugin)


def test_a_locked_cluster_refuses_an_add_and_takes_the_address_back(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    harness.set_ready()
    with pytest.raises(Unavailable):
        harness.add()
    with pytest.raises(UnhealthyStatus):
        harness.run("STATUS")
    assert plugin.held() == []


# --- DEL --------------------------------------------------------------------------------------------------------------


def test_a_del_whose_program_fails_is_repeated_by_the_runtime(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Interface and endpoint are gone; the address is the program's own affair until it succeeds."""
    harness.add()
    plugin.script("DEL", f"echo {ERROR}; exit 1")
    for _ in range(2):
        with pytest.raises(IPAMPluginError, match="no more"):
            harness.run("DEL")
    harness.assert_nothing_left()
    plugin.forget_script("DEL")
    harness.run("DEL")
    assert_nothing_left(harness, plugin)


def test_a_del_in_an_outage_runs_the_program_at_once(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """Only this call has its configuration. What is left for the record is the endpoint, which any call deletes."""
    harness.add()
    harness.store = away(harness)
    harness.run("DEL")
    assert (plugin.held(), len(harness.release_records())) == ([], 1)
    harness.store = harness.memory
    before = plugin.calls()
    harness.run("DEL", SECOND, ipam={"type": "netplug-ipam"})
    assert plugin.calls() == before
    assert_nothing_left(harness, plugin)


def test_a_del_in_an_outage_is_finished_by_a_call_of_the_same_network(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    harness.add()
    harness.store = away(harness)
    harness.run("DEL")
    harness.store = harness.memory
    harness.run("DEL", SECOND)
    assert plugin.calls().count("DEL c1 eth0") == 1
    assert_nothing_left(harness, plugin)


def test_a_del_in_an_outage_whose_program_fails_too(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    harness.add()
    plugin.script("DEL", f"echo {ERROR}; exit 1")
    harness.store = away(harness)
    with pytest.raises(IPAMPluginError):
        harness.run("DEL")
    assert harness.release_records() == []


def test_a_del_that_cannot_wait_for_an_add_leaves_the_program_to_a_later_call(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    """Only a call of the same network and type has a configuration for it."""
    harness.add(ContainerInterface(args=POD))
    offset = attachment_lock_offset("net1", "c1", "eth0")
    held = harness.host.locks.try_lock(LOCK_FILE, offset)
    assert held is not None
    harness.run("DEL", ContainerInterface(args=POD))
    held.release()
    assert (plugin.held(), len(harness.release_records())) == (["c1.eth0"], 1)
    others: tuple[dict[str, object], ...] = ({"name": "net2"}, {"ipam": {"type": "netplug-ipam"}})
    for changes in others:
        harness.run("DEL", SECOND, Plugin.MAIN, **changes)
        assert plugin.held() == ["c1.eth0"]
    gc(harness)  # it takes its time for records
    environ = plugin.environ("DEL")
    assert "CNI_NETNS" not in environ
    assert environ["CNI_ARGS"] == f"IgnoreUnknown=1;{POD}"
    assert_nothing_left(harness, plugin)


def test_addresses_of_pools_go_with_the_container(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    """The type may have been netplug-ipam when the container was attached."""
    harness.add_pool("main", "10.66.0.0/24")
    harness.add(ipam={"type": "netplug-ipam"})
    assert harness.allocations() != {}
    harness.run("DEL")
    assert_nothing_left(harness, plugin)


# --- CHECK, STATUS, GC ------------------------------------------------------------------------------------------------


def test_check_of_the_program_decides(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    result = harness.add()
    (plugin.folder / "held" / "c1.eth0").unlink()
    with pytest.raises(IPAMPluginError) as failure:
        harness.check(DEFAULT_CONTAINER, result)
    assert (failure.value.reported_code, str(failure.value)) == (4711, "not held")
    assert b"prevResult" in plugin.stdin("CHECK")


@pytest.mark.parametrize("code", [1, 3, 4])
def test_a_program_without_status_counts_as_ready(harness: CNINodeHarness, plugin: ScriptedPlugin, code: int) -> None:
    plugin.script("STATUS", f"""echo '{{"code": {code}, "msg": "unknown command"}}'; exit 1""")
    harness.run("STATUS")
    assert len(plugin.calls()) == 1


def test_what_status_of_the_program_says_is_passed_on(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    plugin.script("STATUS", """echo '{"code": 51, "msg": "full"}'; exit 1""")
    with pytest.raises(IPAMPluginError) as failure:
        harness.run("STATUS")
    assert (failure.value.reported_code, str(failure.value)) == (51, "full")
    plugin.script("STATUS", "exit 1")
    with pytest.raises(UnhealthyStatus, match="it ended with status 1 and reported no error; it wrote nothing; run"):
        harness.run("STATUS")


def gc(harness: CNINodeHarness, *valid: str) -> None:
    listed = [{"containerID": container, "ifname": "eth0"} for container in valid]
    changes: dict[str, object] = {"cni.dev/valid-attachments": listed}
    harness.run("GC", DEFAULT_CONTAINER, Plugin.MAIN, **changes)


def test_gc_releases_what_is_not_valid_and_goes_on_to_the_program(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    for number, container in enumerate((DEFAULT_CONTAINER, SECOND)):
        plugin.answer({"ips": [{"address": f"10.88.0.{number + 5}/24"}]})
        harness.add(container)
    gc(harness, "c2")
    assert [call.split()[:2] for call in plugin.calls()[2:]] == [["DEL", "c1"], ["GC", "c1"]]
    assert plugin.held() == ["c2.eth0"]
    assert [endpoint.spec.container_id for endpoint in harness.endpoints()] == ["c2"]
    assert b"cni.dev/valid-attachments" in plugin.stdin("GC")

    harness.run("GC")  # without a list nothing is known
    assert plugin.held() == ["c2.eth0"]
    plugin.script("GC", """echo '{"code": 4, "msg": "unknown command"}'; exit 1""")
    gc(harness)
    assert_nothing_left(harness, plugin)


POLICY = {"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/k"}}


def make_pod(harness: CNINodeHarness, **annotations: str) -> ContainerInterface:
    """A pod that can be looked up, with annotations of ours."""
    found = harness.orchestrator = MemoryOrchestrator(clock=harness.clock)
    found.put_namespace(NamespaceFacts(name="test", uid=""))
    texts = tuple((f"cni.projectnetplug.org/{name}", text) for name, text in annotations.items())
    found.put_pod(PodFacts(namespace="test", name="test-pod-1", uid="", node=NODE, annotations=texts))
    return ContainerInterface(args=POD)


def test_gc_knows_a_pod_whose_profiles_are_those_of_kubernetes_by_its_mac(
    harness: CNINodeHarness, plugin: ScriptedPlugin
) -> None:
    """The MAC follows from network, container and interface, so GC of another network does not touch it."""
    harness.add(make_pod(harness), **POLICY)
    assert harness.endpoints()[0].spec.profiles[0] == "kns.test"
    harness.run("GC", DEFAULT_CONTAINER, Plugin.MAIN, **{"name": "net2", "cni.dev/valid-attachments": []})
    gc(harness, "c1")
    assert plugin.held() == ["c1.eth0"]
    gc(harness)
    assert_nothing_left(harness, plugin)


def test_gc_does_not_find_a_pod_that_has_chosen_its_mac(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    harness.add(make_pod(harness, hwAddr="ca:fe:ca:fe:ca:fe"), **POLICY)
    gc(harness)
    assert plugin.held() == ["c1.eth0"]
    harness.run("DEL", make_pod(harness))
    assert_nothing_left(harness, plugin)


def test_what_gc_of_the_program_could_not_do_is_said(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    plugin.script("GC", f"echo {ERROR}; exit 1")
    with pytest.raises(Unavailable, match="GC: no more"):
        gc(harness)


# --- locks, annotations -----------------------------------------------------------------------------------------------


def test_the_lock_of_the_host_is_not_held_while_it_runs(harness: CNINodeHarness) -> None:
    assert harness.host.locks.try_lock(LOCK_FILE, 0) is not None
    assert harness.add().ips
    assert harness.log.of(Level.WARNING) == []


def test_without_locks_an_add_is_not_taken_for_deleted(harness: CNINodeHarness) -> None:
    """Whether the program still holds the address cannot be asked."""

    def fail() -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    harness.host.before_lock = fail
    assert harness.add().ips


def test_annotations_about_addresses_are_refused(harness: CNINodeHarness, plugin: ScriptedPlugin) -> None:
    orchestrator = MemoryOrchestrator(clock=harness.clock)
    orchestrator.put_namespace(NamespaceFacts(name="test", uid=""))
    texts = (("cni.projectnetplug.org/ipAddrs", '["10.88.0.7"]'),)
    orchestrator.put_pod(PodFacts(namespace="test", name="test-pod-1", uid="", node=NODE, annotations=texts))
    harness.orchestrator = orchestrator
    with pytest.raises(ConfigurationError, match="ipAddrs is not compatible with configured IPAM: my-ipam"):
        harness.add(ContainerInterface(args=POD))
    assert plugin.calls() == []


def test_what_it_writes_to_standard_error_is_copied(
    harness: CNINodeHarness, plugin: ScriptedPlugin, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin.script("ADD", "echo a line of mine >&2")
    harness.add()
    assert "a line of mine\n" in capfd.readouterr().err
