"""The address of a node: what the kernel has, what is chosen of it, and what is registered.

The registration is that of the node process, with what it acts through, in the network namespace of a test's node.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define, field, frozen
from pyroute2 import IPRoute

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.addresses import BIRD_PROTOCOL, count_routes, find_interfaces, find_source_address
from netplug_backends.linux.netns import entered_namespace
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_cli.node.stores import KnownCredentials
from netplug_cli.node.tasks import INTERFACES_CHANGED
from netplug_cli.wiring.node_process import helper_plugins, node_registration, node_tasks
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import AddressState, HostAddress
from netplug_core.records import Create, Delete, Get, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import Encapsulation, IPPool, IPPoolSpec, ippool_key
from netplug_core.resources.node import Node, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration, NodeConfigurationSpec
from netplug_core.testing.clock import ManualClock
from tests.harness.controllers import DrivenControllers
from tests.harness.node import NODE_ADDRESS, NetnsNode
from tests.harness.node_process import start_node_process
from tests.harness.node_server import Lines
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.netns

_UNUSED_STATES = """
link add eth1 mtu 9000 type bridge
link set eth1 up
addr add 10.1.0.1/24 dev eth1
addr add 10.1.0.2/24 dev eth1
addr add 10.1.0.3/32 dev eth1
addr add 10.1.1.1 peer 10.1.1.2/30 dev eth1
addr add 169.254.7.7/16 scope link dev eth1
addr add fd01::1/64 dev eth1 nodad
addr add fd01::2/64 dev eth1 nodad preferred_lft 0
"""


def test_interfaces_are_those_that_pyroute2_finds(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_UNUSED_STATES)
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        found = find_interfaces()
        with IPRoute() as kernel:
            links = [
                (each["index"], each.get_attr("IFLA_IFNAME"), each.get_attr("IFLA_MTU")) for each in kernel.get_links()
            ]
            listed = [
                (each["index"], each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS"))
                for each in kernel.get_addr()
            ]
    assert [(each.index, each.name, each.mtu) for each in found] == sorted(links)
    addresses = [(each.index, str(one.held.address)) for each in found for one in each.addresses]
    assert sorted(addresses) == sorted(listed)
    assert {each.name: each.is_up for each in found} == {"lo": True, "up0": True, "eth1": True}
    (eth1,) = (each for each in found if each.name == "eth1")
    described = {_described(each) for each in eth1.addresses if not str(each.held).startswith("fe80")}
    assert described == {
        "10.1.0.1/24",
        "10.1.0.2/24 secondary",
        "10.1.0.3/32",
        "10.1.1.1/32",
        "169.254.7.7/16 not global",
        "fd01::1/64",
        "fd01::2/64 deprecated",
    }


def _described(address: HostAddress) -> str:
    marks = [
        *([] if address.state is AddressState.USABLE else [address.state.value]),
        *(["secondary"] if address.is_secondary else []),
        *([] if address.is_global else ["not global"]),
    ]
    return " ".join((str(address.held), *marks))


def test_the_source_of_packets_is_that_of_the_route(node: NetnsNode) -> None:
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        for target, family, expected in (
            ("203.0.113.9", Family.IPV4, NODE_ADDRESS),
            ("2001:db8:9::9", Family.IPV6, "2001:db8::1"),
        ):
            assert find_source_address(target, family, deadline=deadline_in()) == Address.parse(expected)
        node.run("ip", "route", "delete", "default")
        with pytest.raises(KernelError, match=r"address for 203\.0\.113\.9: Network is unreachable"):
            find_source_address("203.0.113.9", Family.IPV4, deadline=deadline_in())


def test_routes_of_the_main_table_are_counted_by_their_protocol(node: NetnsNode) -> None:
    for destination, more in (("10.9.0.0/24", ()), ("10.9.1.0/24", ("table", "77")), ("fd09::/64", ())):
        node.run("ip", "route", "add", "blackhole", destination, "protocol", "bird", *more)
    node.run("ip", "route", "add", "blackhole", "10.9.2.0/24", "protocol", "static")
    with entered_namespace(f"/proc/{node.pid}/ns/net"):
        assert count_routes(BIRD_PROTOCOL) == 2


# --- registration -----------------------------------------------------------------------------------------------------

_ONE_NIC = """
link add eth0 type bridge
link set eth0 addrgenmode none up
addr add 10.240.0.11/24 dev eth0
addr add fd10::11/64 dev eth0 nodad
link add docker0 type bridge
link set docker0 up
addr add 172.17.0.1/16 dev docker0
"""
_SECOND_NIC = """
link add eth1 type bridge
link set eth1 addrgenmode none up
addr add 10.241.0.11/16 dev eth1
addr add fd11::11/64 dev eth1 nodad
"""


@frozen
class Expected:
    """What the tests ask for in one family: variables of it, and addresses that the node may have."""

    family: Family
    own: str
    floating: str
    second: str
    uplink: str
    prefix: str
    target: str

    def ask(self, method: str) -> dict[str, str]:
        """The variables by which the address of this family alone is found by a method."""
        name = "IP" if self.family is Family.IPV4 else "IP6"
        return {"IP": "none", name: "autodetect", f"{name}_AUTODETECTION_METHOD": method}

    def take(self, address: str) -> dict[str, str]:
        """The variables by which the node is to have an address of this family, and no other one."""
        return {"IP": "none"} | {"IP" if self.family is Family.IPV4 else "IP6": address}


EXPECTED = {
    Family.IPV4: Expected(
        Family.IPV4, own="10.240.0.11/24", floating="10.240.0.99/32", second="10.241.0.11/16", uplink="192.0.2.1/24",
        prefix="10.241.0.0/16", target="10.241.0.1",
    ),
    Family.IPV6: Expected(
        Family.IPV6, own="fd10::11/64", floating="fd10::99/128", second="fd11::11/64", uplink="2001:db8::1/64",
        prefix="fd11::/64", target="fd11::1",
    ),
}  # fmt: skip

both_families = pytest.mark.parametrize("asked", EXPECTED.values(), ids=map(str, EXPECTED))


@define
class NodeOnHost:
    """A node process's registration on a host, without its threads. ``environ`` are further variables."""

    host: NetnsNode
    name: str = "n1"
    environ: dict[str, str] = field(factory=dict)
    log: Lines = field(factory=Lines)
    clock: ManualClock = field(factory=ManualClock)
    driven: DrivenControllers | None = None

    @property
    def folder(self) -> str:
        return self.host.file(self.name)

    def start(self, **environ: str) -> None:
        """Start anew, with the stored Node as it is, and pass once."""
        Path(self.folder).mkdir(exist_ok=True)
        variables = {
            "DATASTORE_TYPE": "sqlite",
            "SQLITE_PATH": self.host.database,
            "NODENAME": self.name,
            "NODENAME_FILE": f"{self.folder}/nodename",
            "ENDPOINT_STATUS_DIR": f"{self.folder}/endpoint-status",
            **self.environ,
            **environ,
        }
        credentials, plugins = KnownCredentials(SystemClock()), helper_plugins({"CNI_NET_DIR": "/nowhere"})
        registration = node_tasks(variables, node_registration(variables, "", self.log), self.log, credentials, plugins)
        self.driven = DrivenControllers(registration, clock=self.clock, log=self.log)
        self.pass_time(0.0)

    def pass_time(self, seconds: float) -> None:
        """Let its passes come until that time has passed."""
        assert self.driven is not None
        with entered_namespace(f"/proc/{self.host.pid}/ns/net"):
            self.driven.pass_time(seconds)

    def notify(self) -> None:
        """Let it know that interfaces have changed, as notifications of the kernel do."""
        assert self.driven is not None
        for loop in self.driven.loops:
            if INTERFACES_CHANGED in loop.controller.inputs:
                loop.wake()
        self.pass_time(5.0)

    def node(self) -> Node:
        with closing(SqliteDatastore(self.host.database, clock=SystemClock())) as store:
            stored = store.read([Get(node_key(self.name))], deadline=deadline_in()).find(node_key(self.name))
        assert stored is not None
        return stored.value

    def addresses(self) -> list[str]:
        """Those of the stored Node, IPv4 first."""
        return [str(found) for family in Family if (found := self.node().find_address(family)) is not None]

    def file(self, name: str) -> str:
        return Path(f"{self.folder}/{name}").read_text()


def change(host: NetnsNode, writes: Sequence[Write]) -> None:
    with closing(SqliteDatastore(host.database, clock=SystemClock())) as store:
        store.commit(writes, deadline=deadline_in())


def pool(name: str, cidr: str) -> IPPool:
    spec = IPPoolSpec(prefix=Prefix.parse(cidr), vxlan_mode=Encapsulation.ALWAYS)
    return IPPool(metadata=Metadata(name=name), spec=spec)


def test_a_node_registers_the_address_of_its_interface_and_writes_its_files(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC)
    found = NodeOnHost(node)
    found.start()
    assert found.addresses() == ["10.240.0.11/24"]
    assert (found.file("nodename"), found.file("mtu")) == ("n1", "1500")
    interfaces = {each.name: list(map(str, each.addresses)) for each in found.node().spec.interfaces}
    assert interfaces == {"eth0": ["10.240.0.11", "fd10::11"], "up0": ["192.0.2.1", "2001:db8::1"]}
    assert "INFO the addresses of the node are registered ipv4=10.240.0.11/24 node=n1" in found.log.texts


def test_ipv6_is_registered_on_demand_with_or_without_ipv4(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC)
    both, six = NodeOnHost(node), NodeOnHost(node, name="n2", environ={"DISABLE_NODE_IP_CHECK": "true"})
    both.start(IP6="autodetect")
    assert both.addresses() == ["10.240.0.11/24", "fd10::11/64"]
    six.start(IP="none", IP6="autodetect")
    assert six.addresses() == ["fd10::11/64"]
    assert not [text for text in six.log.texts if not text.startswith("INFO")]


@both_families
def test_each_method_finds_the_second_interface_and_an_unknown_one_is_an_error(
    node: NetnsNode, asked: Expected
) -> None:
    node.run("ip", "-batch", "-", stdin=_SECOND_NIC + _ONE_NIC)
    found = NodeOnHost(node)
    found.start(**asked.ask("first-found"))
    assert found.addresses() == [asked.own]
    uplink = str(InterfaceAddress.parse(asked.uplink).prefix)
    for method in ("interface=eth1", "skip-interface=eth0,up0", f"cidr={asked.prefix}", f"can-reach={asked.target}"):
        found.start(**asked.ask(f"cidr={uplink}"))
        assert found.addresses() == [asked.uplink]
        found.start(**asked.ask(method))
        assert found.addresses() == [asked.second], method
    found.start(**asked.ask("best"))
    (line,) = (text for text in found.log.texts if "best" in text)
    methods = "first-found, interface=<expression>,..., skip-interface=<expression>,..., cidr=<CIDR>,...,"
    assert f"{methods} can-reach=<address or name>, kubernetes-internal-ip is" in line
    assert found.addresses() == [asked.second]


@both_families
@pytest.mark.parametrize("is_floating_first", [False, True])
def test_a_floating_address_is_not_chosen_in_whatever_order_it_came(
    node: NetnsNode, asked: Expected, *, is_floating_first: bool
) -> None:
    order = (asked.floating, asked.own) if is_floating_first else (asked.own, asked.floating)
    lines = "".join(f"addr add {each} dev eth0{' nodad' if ':' in each else ''}\n" for each in order)
    node.run("ip", "-batch", "-", stdin=f"link add eth0 type bridge\nlink set eth0 addrgenmode none up\n{lines}")
    found = NodeOnHost(node)
    found.start(**asked.ask("first-found"))
    assert found.addresses() == [asked.own]


@both_families
def test_a_new_interface_moves_no_node_and_an_address_that_goes_is_replaced(node: NetnsNode, asked: Expected) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC)
    found = NodeOnHost(node, environ=asked.ask("first-found"))
    found.start()
    node.run("ip", "-batch", "-", stdin=_SECOND_NIC)
    for _ in range(2):
        found.notify()
        assert found.addresses() == [asked.own]
    assert [each.name for each in found.node().spec.interfaces] == ["eth0", "eth1", "up0"]
    node.run("ip", "addr", "del", asked.own, "dev", "eth0")
    found.notify()
    assert found.addresses() == [asked.second]


@both_families
def test_a_configured_address_of_another_node_is_an_error_that_names_it(node: NetnsNode, asked: Expected) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC)
    first, second = NodeOnHost(node), NodeOnHost(node, name="n2")
    first.start(**asked.ask("first-found"))
    before, address = first.node(), str(InterfaceAddress.parse(asked.own).address)
    second.start(**asked.take(address))
    cause = f"cause=the node n1 has the address {address}"
    assert f"ERROR the configured {asked.family} address is not registered {cause}" in second.log.texts
    assert (second.addresses(), first.node()) == ([], before)
    assert not Path(f"{second.folder}/nodename").exists()


def test_the_mtu_of_pods_follows_pools_and_what_is_configured(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC.replace("link add eth0", "link add eth0 mtu 9000"))
    found = NodeOnHost(node)

    def mtu_after(*writes: Write) -> str:
        change(node, writes)
        found.start()
        return found.file("mtu")

    v4, v6 = pool("vxlan4", "10.66.0.0/16"), pool("vxlan6", "fd66::/64")
    assert mtu_after(Create(ippool_key("vxlan4"), v4)) == "8950"
    assert mtu_after(Create(ippool_key("vxlan6"), v6)) == "8930"
    own = NodeConfiguration(metadata=Metadata(name="node.n1"), spec=NodeConfigurationSpec(vxlan_mtu=1400))
    assert mtu_after(Create(NODE_CONFIGURATION.key("node.n1"), own)) == "1400"
    with closing(SqliteDatastore(node.database, clock=SystemClock())) as store:
        keys = (NODE_CONFIGURATION.key("node.n1"), ippool_key("vxlan4"), ippool_key("vxlan6"))
        read = store.read([Get(key) for key in keys], deadline=deadline_in())
        stored = [read.find(key) for key in keys]
    assert mtu_after(*(Delete(each.key, each.revision) for each in stored if each is not None)) == "9000"


def test_a_process_is_notified_of_changes_of_its_host_and_of_pools(node: NetnsNode) -> None:
    node.run("ip", "-batch", "-", stdin=_ONE_NIC + _SECOND_NIC)
    found = NodeOnHost(node, name="node-7.example")
    environ = {
        "DATASTORE_TYPE": "sqlite",
        "SQLITE_PATH": node.database,
        "NODENAME_FILE": node.file("nodename"),
        "IP": "autodetect",
        "AUTODETECT_POLL_INTERVAL": "1h",
    }
    process = start_node_process(node, environ=environ)
    wait_until(lambda: 'ipv4="10.241.0.11/16"' in process.lines, "the address is registered")
    wait_until(lambda: "the node is registered" in process.lines, "the node is registered")
    shown = node.run(sys.executable, "-m", "netplug_cli.wiring.ctl", "node", "address", "--socket", process.socket)
    assert shown.startswith("Node:        node-7.example\nMTU of pods: 1500\nIPv4:        10.241.0.11/16 (detected)\n")
    assert "\n  docker0: names with docker are of containers or networks of this machine\n" in shown
    assert "\n  eth1 10.241.0.11/16: " in shown, "chosen, or kept at the next look"
    node.run("ip", "link", "del", "eth1")
    wait_until(lambda: found.addresses() == ["10.240.0.11/24"], "the other address is registered")
    change(node, [Create(ippool_key("vxlan4"), pool("vxlan4", "10.66.0.0/16"))])
    wait_until(lambda: Path(node.file("mtu")).read_text() == "1450", "the MTU is that of the pool")
