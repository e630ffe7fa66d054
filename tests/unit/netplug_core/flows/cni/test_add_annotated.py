"""ADD, CHECK and DEL of a pod with annotations: their effects, and that a refused one leaves nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_backends.memory.orchestrator import MemoryOrchestrator
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import RouteConflict
from netplug_core.errors import ConfigurationError, NetplugError, RequestError, Unauthorized
from netplug_core.flows.cni.call import NoAddressWanted
from netplug_core.flows.cni.check import AddressesNotHeld, AttachmentDiffers, EndpointDiffers
from netplug_core.ipam.model import handle_key
from netplug_core.ipam.outcome import AddressOutside, AddressTaken, NoPoolServes, PoolUnknown
from netplug_core.locks import AttachmentBusy
from netplug_core.log import Level
from netplug_core.names import container_mac
from netplug_core.orchestrator.model import NamespaceFacts, NodeFacts, Orchestrator, PodFacts
from netplug_core.records import Create, Delete, Get, Update
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.workloadendpoint import IPNAT
from netplug_core.workload import PodReplaced
from tests.harness.cni_node import DUAL_STACK, NODE, POD, CNINodeHarness, ContainerInterface
from tests.harness.stores import HookedStore

PREFIX = "cni.projectnetplug.org"
FEATURES = {"ip_addrs_no_ipam": True, "floating_ips": True, "allowed_source_prefixes": True}
WEB = ContainerInterface(args=POD)
AGAIN = ContainerInterface(id="c2", netns="/run/netns/c2", args=POD)
OTHER = ContainerInterface(id="c3", netns="/run/netns/c3", args="K8S_POD_NAMESPACE=test;K8S_POD_NAME=other")


def prefixed(texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((f"{PREFIX}/{name}", text) for name, text in texts.items()))


@pytest.fixture
def orchestrator(harness: CNINodeHarness) -> MemoryOrchestrator:
    """The orchestrator that the node asks; its pod has no annotations."""
    found = MemoryOrchestrator(clock=harness.clock)
    harness.orchestrator = found
    put_namespace(found)
    put_pod(found)
    return found


def put_pod(orchestrator: MemoryOrchestrator, name: str = "test-pod-1", **texts: str) -> PodFacts:
    pod = PodFacts(namespace="test", name=name, uid="", node=NODE, annotations=prefixed(texts))
    return orchestrator.put_pod(pod)


def put_namespace(orchestrator: MemoryOrchestrator, labels: tuple[tuple[str, str], ...] = (), **texts: str) -> None:
    orchestrator.put_namespace(NamespaceFacts(name="test", uid="", labels=labels, annotations=prefixed(texts)))


def added(harness: CNINodeHarness, container: ContainerInterface = WEB, **changes: object) -> list[str]:
    """The addresses that an ADD answers."""
    return [str(ip.address) for ip in harness.add(container, **changes).ips]


def refused(
    harness: CNINodeHarness, error: type[NetplugError], container: ContainerInterface = WEB, **changes: object
) -> str:
    """The text of the error that an ADD ends with; it leaves nothing."""
    with pytest.raises(error) as caught:
        harness.add(container, **changes)
    harness.assert_nothing_left()
    return str(caught.value)


def add_selecting_pool(harness: CNINodeHarness, *, node_selector: str = "", namespace_selector: str = "") -> None:
    """A pool, 50.60.0.0/28, that is not for everybody."""
    spec = IPPoolSpec(
        prefix=Prefix.parse("50.60.0.0/28"),
        block_length=28,
        node_selector=node_selector,
        namespace_selector=namespace_selector,
    )
    harness.commit(Create(ippool_key("choosy"), IPPool(metadata=Metadata(name="choosy"), spec=spec)))


def warnings(harness: CNINodeHarness) -> list[str]:
    return harness.log.of(Level.WARNING)


# --- pools and families -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ['["other"]', '["50.60.0.0/28"]', '["other", "four"]'])
def test_check_76_pools_of_the_namespace(harness: CNINodeHarness, orchestrator: MemoryOrchestrator, named: str) -> None:
    harness.add_pool("other", "50.60.0.0/28")
    put_namespace(orchestrator, ipv4pools=named)
    assert added(harness)[0].startswith("50.60.0.")


def test_check_76_a_pool_that_does_not_exist(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_namespace(orchestrator, ipv4pools='["four", "missing"]')
    assert "missing" in refused(harness, PoolUnknown)


def test_check_77_the_pod_wins_over_its_namespace(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    harness.add_pool("other", "50.60.0.0/28")
    put_namespace(orchestrator, ipv4pools='["missing"]')
    put_pod(orchestrator, ipv4pools='["other"]')
    assert added(harness)[0].startswith("50.60.0.")


def test_a_part_of_a_pool_is_no_pool(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipv4pools='["10.65.0.0/25"]')
    assert "10.65.0.0/25" in refused(harness, PoolUnknown)


def test_check_79_an_annotation_wins_over_the_configuration_and_that_over_selectors(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    """The order of precedence."""
    add_selecting_pool(harness, node_selector="zone == 'far'")
    only = {"type": "netplug-ipam", "ipv4_pools": ["choosy"]}
    assert added(harness)[0].startswith("10.65.")
    harness.run("DEL", WEB)
    assert added(harness, ipam=only)[0].startswith("50.60.")
    harness.run("DEL", WEB)
    put_pod(orchestrator, ipv4pools='["four"]')
    assert added(harness, ipam=only)[0].startswith("10.65.")


def test_families_of_an_annotation(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipFamilies='["IPv6"]')
    assert [":" in address for address in added(harness)] == [True]


def test_pools_of_a_family_that_is_off_are_logged(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipv6pools='["nowhere"]')
    assert [":" in address for address in added(harness)] == [False]
    assert warnings(harness) == ["pools of the annotations are not used: their address family is off"]


def test_both_families_off(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator)
    assert "assign_ipv4" in refused(harness, NoAddressWanted, ipam={"type": "netplug-ipam", "assign_ipv4": "false"})


def test_pools_select_namespaces_by_their_labels(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    deadline = Deadline.after(harness.clock, 5)
    stored = harness.memory.read([Get(ippool_key("four"))], deadline=deadline).find(ippool_key("four"))
    assert stored is not None
    harness.commit(Delete(stored.key, stored.revision))
    add_selecting_pool(harness, namespace_selector="team == 'a'")
    assert "choosy" in refused(harness, NoPoolServes)
    put_namespace(orchestrator, labels=(("team", "a"),))
    assert added(harness)[0].startswith("50.60.")


def test_the_address_of_cni_args_outside_the_pools_of_the_annotation(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    harness.add_pool("other", "50.60.0.0/28")
    put_pod(orchestrator, ipv4pools='["other"]')
    inside = ContainerInterface(args=f"{POD};IP=50.60.0.9")
    assert added(harness, inside) == ["50.60.0.9"]
    harness.run("DEL", inside)
    text = refused(harness, AddressOutside, ContainerInterface(args=f"{POD};IP=10.65.0.9"))
    assert "10.65.0.9" in text
    assert "other" in text


def test_the_annotation_wins_over_the_mac_that_the_runtime_asks_for(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator)
    asking = ContainerInterface(args=f"{POD};MAC=02:00:00:00:00:0a")
    assert harness.add(asking).interfaces[1].mac == "02:00:00:00:00:0a"
    harness.run("DEL", asking)
    put_pod(orchestrator, ipv4pools='["10.65.0.0/24"]')
    assert harness.add(asking).interfaces[1].mac == "02:00:00:00:00:0a"
    harness.run("DEL", asking)
    put_pod(orchestrator, hwAddr="02:00:00:00:00:0b")
    assert harness.add(asking).interfaces[1].mac == "02:00:00:00:00:0b"


# --- addresses ------------------------------------------------------------------------------------------------------


def test_check_80_an_address_by_name(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    harness.add_pool("other", "50.60.0.0/28")
    put_pod(orchestrator, ipAddrs='["10.65.0.111"]', ipv4pools='["other"]')
    assert added(harness, ContainerInterface(args=f"{POD};IP=10.65.0.9"), ipam=DUAL_STACK) == ["10.65.0.111"]
    (counted,) = [fields for _level, text, fields in harness.log.lines if text.startswith("annotations of the pod")]
    assert counted["annotations"] == "ipAddrs, ipv4pools"
    assert list(harness.allocations()) == [Address.parse("10.65.0.111")]
    assert harness.stored_endpoint().value.spec.addresses == (Address.parse("10.65.0.111"),)


def test_check_81_both_addresses_in_the_order_of_the_list(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, ipAddrs='["fd00:65::9", "10.65.0.9"]')
    result = harness.add(WEB)
    assert [str(ip) for ip in result.ips] == ["fd00:65::9/128", "10.65.0.9/32"]
    harness.check(WEB, result)
    harness.run("DEL", WEB)
    harness.assert_nothing_left()


def test_check_81_the_second_one_is_taken(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, "other", ipAddrs='["10.65.0.9"]')
    put_pod(orchestrator, ipAddrs='["fd00:65::9", "10.65.0.9"]')
    assert added(harness, OTHER) == ["10.65.0.9"]
    with pytest.raises(AddressTaken, match=r"^10\.65\.0\.9: Address already assigned"):
        harness.add(WEB)
    assert list(harness.allocations()) == [Address.parse("10.65.0.9")]
    assert warnings(harness) == []


def test_check_89_a_new_container_of_the_pod_takes_over_from_the_former_one(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    """The DEL of the former container comes late, and frees nothing."""
    put_pod(orchestrator, ipAddrs='["10.65.0.9", "fd00:65::9"]')
    assert added(harness) == ["10.65.0.9", "fd00:65::9"]
    harness.dataplane.remove_namespace(WEB.netns)
    assert added(harness, AGAIN) == ["10.65.0.9", "fd00:65::9"]
    assert set(harness.allocations().values()) == {"net1.c2"}
    assert warnings(harness) == ["a former container of the pod still held addresses; they are released"]
    harness.run("DEL", WEB)
    assert set(harness.allocations().values()) == {"net1.c2"}
    assert harness.stored_endpoint().value.spec.container_id == "c2"
    harness.run("DEL", AGAIN)
    harness.assert_nothing_left()


def test_the_interface_of_the_former_container_goes_before_its_addresses(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]')
    added(harness)
    assert harness.dataplane.names(WEB.netns) == ("eth0",)
    seen: list[tuple[str, ...]] = []
    harness.store = HookedStore(harness.memory, before_commit=lambda: seen.append(harness.dataplane.names(WEB.netns)))
    assert added(harness, AGAIN) == ["10.65.0.9"]
    assert set(seen) == {()}


def test_a_former_container_to_which_no_handle_leads(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]')
    added(harness)
    key = handle_key("net1.c1")
    record = harness.memory.read([Get(key)], deadline=Deadline.after(harness.clock, 5)).find(key)
    assert record is not None
    harness.commit(Delete(key, record.revision))
    assert added(harness, AGAIN) == ["10.65.0.9"]
    assert set(harness.allocations().values()) == {"net1.c2"}


def test_an_add_takes_no_address_of_an_add_that_is_at_work(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    """Two containers of one pod, at once: the second one is to be repeated."""
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]')
    harness.dataplane.add_namespace(AGAIN.netns)

    def add_another(_effect: str) -> None:
        harness.dataplane.before_effect = lambda _effect: None
        with pytest.raises(AttachmentBusy):
            harness.run("ADD", AGAIN)

    harness.dataplane.before_effect = add_another
    assert added(harness) == ["10.65.0.9"]
    assert set(harness.allocations().values()) == {"net1.c1"}
    assert harness.dataplane.names(WEB.netns) == ("eth0",)


def test_an_address_outside_all_pools(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipAddrs='["192.0.2.1"]')
    assert "192.0.2.1" in refused(harness, AddressOutside)


# --- addresses without IPAM -------------------------------------------------------------------------------------------


def test_check_84_an_address_without_ipam(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipAddrsNoIpam='["192.0.2.9", "2001:db8::9"]')
    text = refused(harness, ConfigurationError)
    assert "requested feature is not enabled: ip_addrs_no_ipam" in text
    result = harness.add(WEB, feature_control=FEATURES)
    assert [str(ip) for ip in result.ips] == ["192.0.2.9/32", "2001:db8::9/128"]
    assert (harness.allocations(), harness.handles()) == ({}, [])
    assert [str(address) for address in harness.stored_endpoint().value.spec.addresses] == ["192.0.2.9", "2001:db8::9"]
    assert {str(route) for route, _name in harness.dataplane.host_routes()} == {"192.0.2.9/32", "2001:db8::9/128"}
    harness.check(WEB, result, feature_control=FEATURES)
    with pytest.raises(AddressesNotHeld):
        harness.check(WEB, result)
    harness.run("DEL", WEB)
    harness.assert_nothing_left()


def test_check_knows_an_address_without_ipam_by_its_endpoint(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, ipAddrsNoIpam='["192.0.2.9"]')
    result = harness.add(WEB, feature_control=FEATURES)
    stored = harness.stored_endpoint()
    harness.commit(
        Update(stored.key, evolve(stored.value, spec=evolve(stored.value.spec, addresses=())), stored.revision)
    )
    with pytest.raises(EndpointDiffers, match=r"does not have 192\.0\.2\.9"):
        harness.check(WEB, result, feature_control=FEATURES)


def test_two_pods_of_a_node_with_one_address(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    """Whichever of them has it from a pool, the second one is refused and the first one is unharmed."""
    put_pod(orchestrator, ipAddrsNoIpam='["10.65.0.9"]')
    put_pod(orchestrator, "other", ipAddrs='["10.65.0.9"]')
    for first, second in ((WEB, OTHER), (OTHER, WEB)):
        assert added(harness, first, feature_control=FEATURES) == ["10.65.0.9"]
        before = harness.allocations(), harness.dataplane.host_routes(), harness.endpoints()
        with pytest.raises(RouteConflict):
            harness.add(second, feature_control=FEATURES)
        assert (harness.allocations(), harness.dataplane.host_routes(), harness.endpoints()) == before
        harness.run("DEL", second)
        harness.run("DEL", first)
        harness.assert_nothing_left()


def test_check_49_addresses_without_ipam_need_a_pod(harness: CNINodeHarness) -> None:
    text = refused(harness, ConfigurationError, ContainerInterface(), feature_control=FEATURES)
    assert text == (
        "network configuration.feature_control.ip_addrs_no_ipam: True is not accepted; "
        "requested feature is not supported for this runtime: ip_addrs_no_ipam; CNI_ARGS must name a pod"
    )


# --- floating IPs, hardware address, allowed sources -----------------------------------------------------------------


def test_check_85_floating_ips_are_stored_and_logged_once(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, floatingIPs='["1.1.1.1", "2001:647f::21"]')
    assert "requested feature is not enabled: floating_ips" in refused(harness, ConfigurationError)
    four, six = map(Address.parse, added(harness, feature_control=FEATURES, ipam=DUAL_STACK))
    assert harness.stored_endpoint().value.spec.ip_nats == (
        IPNAT(internal=four, external=Address.parse("1.1.1.1")),
        IPNAT(internal=six, external=Address.parse("2001:647f::21")),
    )
    assert warnings(harness) == ["floating IPs are programmed only where NodeConfiguration has floatingIPs Enabled"]
    harness.dataplane.remove_namespace(WEB.netns)
    added(harness, AGAIN, feature_control=FEATURES, ipam=DUAL_STACK)
    assert len(harness.stored_endpoint().value.spec.ip_nats) == 2


def test_a_floating_ip_of_a_family_that_the_pod_lacks(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, floatingIPs='["2001:647f::21"]')
    text = refused(harness, ConfigurationError, feature_control=FEATURES)
    assert "2001:647f::21 has no IPv6 address of the pod to stand for" in text


def test_check_87_a_hardware_address(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, hwAddr="CA-FE-CA-FE-CA-FE")
    result = harness.add(WEB)
    assert [interface.mac for interface in result.interfaces if interface.sandbox] == ["ca:fe:ca:fe:ca:fe"]
    assert harness.stored_endpoint().value.spec.mac == "ca:fe:ca:fe:ca:fe"
    harness.check(WEB, result)
    wrong = evolve(result, interfaces=tuple(evolve(one, mac=container_mac("x")) for one in result.interfaces))
    with pytest.raises(AttachmentDiffers, match="ca:fe:ca:fe:ca:fe"):
        harness.check(WEB, wrong)


def test_check_86_allowed_sources(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, allowedSourcePrefixes='["8.8.8.8/32","1.1.1.7/24"]')
    assert "requested feature is not enabled: allowed_source_prefixes" in refused(harness, ConfigurationError)
    result = harness.add(WEB, feature_control=FEATURES)
    assert harness.stored_endpoint().value.spec.allowed_source_prefixes == ("8.8.8.8/32", "1.1.1.0/24")
    (host,) = harness.dataplane.names()
    interface = harness.dataplane.interface(host)
    assert interface is not None
    assert interface.settings[f"net/ipv4/conf/{host}/rp_filter"] == "0"
    assert warnings(harness) == [
        "the pod may send from any IPv4 address where no policy is enforced: only policy filters its prefixes"
    ]
    harness.check(WEB, result, feature_control=FEATURES)
    with pytest.raises(AttachmentDiffers, match="rp_filter"):
        harness.check(WEB, result)


def test_a_further_interface_has_the_pools_only(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    harness.add_pool("other", "50.60.0.0/28")
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]', ipv4pools='["other"]', hwAddr="ca:fe:ca:fe:ca:fe")
    added(harness)
    second = evolve(WEB, ifname="net1")
    result = harness.add(second)
    assert str(result.ips[0].address).startswith("50.60.")
    assert result.interfaces[1].mac == container_mac("net1.c1.net1")
    assert warnings(harness) == ["annotations of the pod are not used: they concern eth0"]
    harness.check(second, result, feature_control=FEATURES)


def test_a_further_interface_of_a_pod_with_pools_only(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, ipv4pools='["four"]')
    assert added(harness, evolve(WEB, ifname="net1"))
    assert warnings(harness) == []


# --- the pod and its namespace ----------------------------------------------------------------------------------------


def test_annotations_that_only_a_pod_can_have_are_logged_if_its_namespace_has_them(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_namespace(orchestrator, ipAddrs='["10.65.0.9"]')
    added(harness)
    assert warnings(harness) == ["annotations of the namespace are not used: only a pod can have them"]


def test_check_65_a_pod_that_does_not_exist(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    del orchestrator
    text = refused(harness, RequestError, OTHER)
    assert text == "pod test/other, which K8S_POD_NAMESPACE and K8S_POD_NAME of CNI_ARGS name, does not exist"


def test_another_pod_has_the_name_now(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    pod = put_pod(orchestrator)
    refused(harness, PodReplaced, ContainerInterface(args=f"{POD};K8S_POD_UID=former"))
    added(harness, ContainerInterface(args=f"{POD};K8S_POD_UID={pod.uid}"))


class _HalfAnOrchestrator:
    """Knows pods; what it does about namespaces is given."""

    def __init__(self, pods: Orchestrator, error: NetplugError | None) -> None:
        self._pods, self._error = pods, error

    def find_pod(self, namespace: str, name: str, *, deadline: Deadline) -> PodFacts | None:
        return self._pods.find_pod(namespace, name, deadline=deadline)

    def find_namespace(self, name: str, *, deadline: Deadline) -> NamespaceFacts | None:
        del name, deadline
        if self._error is not None:
            raise self._error
        return None

    def find_node(self, name: str, *, deadline: Deadline) -> NodeFacts | None:
        return self._pods.find_node(name, deadline=deadline)


def test_check_65_a_namespace_that_cannot_be_read(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    harness.orchestrator = _HalfAnOrchestrator(orchestrator, Unauthorized("get namespaces", "forbidden"))
    assert refused(harness, Unauthorized) == "get namespaces: forbidden"
    harness.orchestrator = _HalfAnOrchestrator(orchestrator, None)
    assert "namespace test" in refused(harness, RequestError)


def test_without_a_pod_the_orchestrator_is_not_asked(harness: CNINodeHarness) -> None:
    harness.orchestrator = _HalfAnOrchestrator(MemoryOrchestrator(clock=harness.clock), Unauthorized("x", "y"))
    assert added(harness, ContainerInterface())


def test_another_prefix(harness: CNINodeHarness, orchestrator: MemoryOrchestrator) -> None:
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]')
    assert added(harness, annotation_prefix="net.example.org") != ["10.65.0.9"]


# --- annotations from the runtime -----------------------------------------------------------------------------------


def sent(**texts: str) -> dict[str, object]:
    """What the runtime puts into the configuration."""
    return {"io.kubernetes.cri.pod-annotations": dict(prefixed(texts))}


def test_the_runtimes_annotations_count_without_an_orchestrator(harness: CNINodeHarness) -> None:
    assert added(harness, runtimeConfig=sent(ipAddrs='["10.65.0.9"]')) == ["10.65.0.9"]
    harness.run("DEL", WEB)
    assert "ipAddrs of pod test/test-pod-1" in refused(harness, ConfigurationError, runtimeConfig=sent(ipAddrs="x"))
    assert added(harness, ContainerInterface(), runtimeConfig=sent(ipAddrs='["10.65.0.9"]')) != ["10.65.0.9"]


def test_an_orchestrator_goes_before_the_runtimes_annotations(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    put_pod(orchestrator, ipAddrs='["10.65.0.7"]')
    assert added(harness, runtimeConfig=sent(ipAddrs='["10.65.0.9"]')) == ["10.65.0.7"]


# --- a running pod ----------------------------------------------------------------------------------------------------


def test_no_change_of_annotations_or_pools_alters_a_running_pod(
    harness: CNINodeHarness, orchestrator: MemoryOrchestrator
) -> None:
    """The new values count from the next container on."""
    put_pod(orchestrator, ipAddrs='["10.65.0.9"]', hwAddr="02:00:00:00:00:09")
    result = harness.add(WEB)
    before = harness.stored_endpoint(), harness.allocations(), harness.dataplane.host_routes()
    put_pod(orchestrator, ipAddrs='["10.65.0.77"]', hwAddr="02:00:00:00:00:77", floatingIPs='["1.1.1.1"]')
    put_namespace(orchestrator, ipv4pools='["six"]')
    deadline = Deadline.after(harness.clock, 5)
    pool = harness.memory.read([Get(ippool_key("four"))], deadline=deadline).find(ippool_key("four"))
    assert pool is not None
    harness.commit(Update(pool.key, evolve(pool.value, spec=evolve(pool.value.spec, is_disabled=True)), pool.revision))
    harness.add_pool("new", "10.70.0.0/24")
    harness.check(WEB, result)
    with pytest.raises(NetplugError, match="eth0"):
        harness.add(WEB, feature_control=FEATURES)
    assert (harness.stored_endpoint(), harness.allocations(), harness.dataplane.host_routes()) == before
    harness.run("DEL", WEB)
    put_pod(orchestrator, ipv4pools='["new"]')
    put_namespace(orchestrator)
    assert added(harness, AGAIN)[0].startswith("10.70.0.")
