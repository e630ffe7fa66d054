"""The Linux dataplane on a real kernel: the conformance suite, and the checks that only a kernel can answer.

The test's host is a network namespace of its own, and containers are namespaces that a child process holds open for
as long as a pipe to it is, so nothing outlives the tests, however they end.
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import define, evolve, field

from netplug_backends.host.machine import SystemClock
from netplug_backends.linux import netlink, netns
from netplug_backends.linux.attachment import interface_name
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_backends.linux.netlink import NetlinkSocket
from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.dataplane.protocol import (
    OWN_NAMESPACE,
    AttachmentPlan,
    DataplaneTimeout,
    Forwarding,
    HostInterfaceTaken,
    InterfacePlan,
    InterfacePresence,
    KernelError,
    Link,
    LinkExists,
    RouteConflict,
    Sysctl,
    SysctlRequirement,
)
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.dataplane_checks import DATAPLANE_CHECKS, DataplaneCheck, endpoint, link_to
from tests.harness.waiting import EMERGENCY_STOP_S, is_eventually, wait_until

pytestmark = pytest.mark.netns

CLONE_NEWNET = 0x40000000
DUAL = ("10.65.0.5", "fd65::5")
HOST_NAME = "netp0123456789a"


def python(code: str) -> tuple[str, ...]:
    """A command that runs code of ours in a process of its own; its arguments follow."""
    return (sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{code}")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=EMERGENCY_STOP_S).stdout


@define
class LinuxDataplaneHarness:
    """The bench of the conformance suite over the kernel. Whatever runs here runs in the test's host namespace."""

    folder: Path
    clock: SystemClock = field(factory=SystemClock)
    warnings: list[str] = field(factory=list)
    holders: dict[str, "subprocess.Popen[str]"] = field(factory=dict)

    @property
    def dataplane(self) -> LinuxDataplane:
        return LinuxDataplane(clock=self.clock, warn=self.warnings.append)

    @property
    def own_namespace(self) -> str:
        return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"

    def make_namespace(self) -> str:
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        path = f"/proc/{holder.pid}/ns/net"
        self.holders[path] = holder
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        return path

    def remove_namespace(self, path: str) -> None:
        """The kernel takes a namespace's links away some time after its last process."""
        left = len(self.links()) - len([link for link in self.show("link", path) if "link_netnsid" in link])
        self.release(self.holders.pop(path))
        wait_until(lambda: len(self.links()) <= left, "the links of a namespace that is gone are gone too")

    def close(self) -> None:
        for holder in self.holders.values():
            self.release(holder)

    @staticmethod
    def release(holder: "subprocess.Popen[str]") -> None:
        with holder:
            assert holder.stdin is not None
            holder.stdin.close()

    def make_file(self) -> str:
        file = self.folder / "file"
        file.write_text("not a namespace")
        return str(file)

    def make_link(self, name: str, namespace: str | None = None) -> None:
        self.ip("link", "add", name, "type", "bridge", namespace=namespace)
        self.ip("link", "set", name, "up", namespace=namespace)

    def set_alias(self, alias: str, name: str) -> None:
        self.ip("link", "set", name, "alias", alias)

    def rename_link(self, name: str, new_name: str, namespace: str | None = None) -> None:
        self.ip("link", "set", name, "down", namespace=namespace)
        self.ip("link", "set", name, "name", new_name, namespace=namespace)

    def delete_link(self, name: str, namespace: str | None = None) -> None:
        self.ip("link", "del", name, namespace=namespace)

    def make_host_route(self, destination: Prefix, name: str) -> None:
        self.ip("route", "add", str(destination), "dev", name, "metric", "1")

    def delete_route(self, destination: Prefix, name: str, namespace: str | None = None) -> None:
        family = f"-{destination.family.value}"
        self.ip(family, "route", "del", str(destination), "dev", name, namespace=namespace)

    def delete_address(self, held: InterfaceAddress, name: str, namespace: str | None = None) -> None:
        self.ip("address", "del", str(held), "dev", name, namespace=namespace)

    def delete_neighbour(self, address: Address, name: str, namespace: str) -> None:
        self.ip("neigh", "del", str(address), "dev", name, namespace=namespace)

    def source_rules(self, namespace: str) -> frozenset[Address]:
        shown = [*self.show("rule", namespace), *self.show("rule", namespace, "-6")]
        return frozenset(Address.parse(str(rule["src"])) for rule in shown if rule["src"] != "all")

    def delete_source_rule(self, address: Address, namespace: str) -> None:
        self.ip(f"-{address.family.value}", "rule", "del", "from", str(address), namespace=namespace)

    def write_setting(self, path: str, value: str) -> None:
        Path("/proc/sys", path).write_text(value)

    def set_down(self, name: str, namespace: str | None = None) -> None:
        self.ip("link", "set", name, "down", namespace=namespace)

    def set_mtu(self, mtu: int, name: str, namespace: str | None = None) -> None:
        self.ip("link", "set", name, "mtu", str(mtu), namespace=namespace)

    def links(self, namespace: str | None = None) -> frozenset[str]:
        return frozenset(str(link["ifname"]) for link in self.show("link", namespace)) - {"lo"}

    def host_routes(self) -> frozenset[tuple[Prefix, str]]:
        found = [*self.show("route"), *self.show("route", None, "-6")]
        return frozenset(
            (Prefix.parse(str(route["dst"])), str(route["dev"]))
            for route in found
            if "/" not in str(route["dst"]) and route["dst"] != "default" and route["dev"] != "lo"
        )

    # --- beyond the suite ------------------------------------------------------------------------------------------

    def ip(self, *arguments: str, namespace: str | None = None) -> str:
        enter = ("nsenter", f"--net={namespace}") if namespace else ()
        return run(*enter, "ip", *arguments)

    def show(self, what: str, namespace: str | None = None, *options: str) -> list[dict[str, object]]:
        shown: list[dict[str, object]] = json.loads(self.ip(*options, "-d", "-j", what, "show", namespace=namespace))
        return shown

    def setting(self, path: str, namespace: str | None = None) -> str:
        enter = ("nsenter", f"--net={namespace}") if namespace else ()
        return run(*enter, "cat", f"/proc/sys/net/{path}").strip()

    def apply(self, wanted: AttachmentPlan) -> AttachmentPlan:
        self.dataplane.apply(wanted, deadline=self.deadline())
        return wanted

    def attach(self, link: Link, *addresses: str) -> AttachmentPlan:
        return self.apply(plan(endpoint(*addresses), link))

    def deadline(self) -> Deadline:
        return Deadline.after(self.clock, 30)


def switch(libc: ctypes.CDLL, outcome: int) -> None:
    if outcome != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LinuxDataplaneHarness]:
    """A host of its own, which the thread of the test is in: with an address, forwarding, and no default route."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open(OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    made = LinuxDataplaneHarness(tmp_path)
    try:
        try:
            switch(libc, libc.unshare(CLONE_NEWNET))
        except PermissionError:
            pytest.skip("making network namespaces needs root, or a user namespace")
        run("ip", "link", "set", "lo", "up")
        run("ip", "address", "add", "10.240.0.1/32", "dev", "lo")
        run("ip", "address", "add", "fd24::1/128", "dev", "lo", "nodad")
        made.write_setting("net/ipv4/ip_forward", "1")
        made.write_setting("net/ipv6/conf/all/forwarding", "1")
        yield made
    finally:
        switch(libc, libc.setns(home, CLONE_NEWNET))
        os.close(home)
        made.close()


@pytest.mark.parametrize("case", DATAPLANE_CHECKS, ids=lambda case: case.__name__)
def test_conformance(case: DataplaneCheck, harness: LinuxDataplaneHarness) -> None:
    case(harness)


# --- the numbered checks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtu", [0, 1280, 3000, 9000])
def test_check_29_both_ends_have_the_mtu(harness: LinuxDataplaneHarness, mtu: int) -> None:
    link = evolve(link_to(harness.make_namespace()), mtu=mtu)
    harness.attach(link, "10.65.0.5")
    inside = {str(found["ifname"]): found["mtu"] for found in harness.show("link", link.namespace)}
    outside = {str(found["ifname"]): found["mtu"] for found in harness.show("link")}
    assert (inside["eth0"], outside[HOST_NAME]) == (mtu or 1500, mtu or 1500)


@pytest.mark.parametrize("queues", [1, 4])
def test_check_30_both_ends_have_the_queues(harness: LinuxDataplaneHarness, queues: int) -> None:
    link = evolve(link_to(harness.make_namespace()), queues=queues)
    harness.attach(link, "10.65.0.5")
    found = [*harness.show("link", link.namespace), *harness.show("link")]
    ends = [(end["num_rx_queues"], end["num_tx_queues"]) for end in found if end["ifname"] != "lo"]
    assert ends == [(queues, queues)] * 2


def test_check_41_host_end(harness: LinuxDataplaneHarness) -> None:
    harness.attach(link_to(harness.make_namespace()), "10.65.0.5")
    found = {
        name: harness.setting(f"ipv4/{path}")
        for name, path in {
            "proxy_arp": f"conf/{HOST_NAME}/proxy_arp",
            "proxy_delay": f"neigh/{HOST_NAME}/proxy_delay",
            "forwarding": f"conf/{HOST_NAME}/forwarding",
        }.items()
    }
    assert found == {"proxy_arp": "1", "proxy_delay": "0", "forwarding": "1"}
    assert harness.ip("-d", "-4", "route", "show", "table", "all", "dev", HOST_NAME).split() == (
        ["unicast", "10.65.0.5", "table", "main", "proto", "78", "scope", "link", "metric", "10"]
    )
    (end,) = [link for link in harness.show("link") if link["ifname"] == HOST_NAME]
    assert end["operstate"] == "UP"
    assert end["address"] == "ee:ee:ee:ee:ee:ee"
    assert int(str(end["txqlen"])) > 0


@pytest.mark.parametrize("address", DUAL)
def test_check_41_the_host_end_protects_the_host_whatever_the_defaults(
    harness: LinuxDataplaneHarness, address: str
) -> None:
    for path in ("ipv4/conf/default/route_localnet", "ipv6/conf/default/accept_redirects"):
        harness.write_setting(f"net/{path}", "1")
    harness.attach(link_to(harness.make_namespace()), address)
    names = (
        "ipv4/route_localnet",
        "ipv4/rp_filter",
        "ipv4/accept_redirects",
        "ipv6/accept_redirects",
        "ipv6/accept_ra",
    )
    found = [harness.setting(name.replace("/", f"/conf/{HOST_NAME}/")) for name in names]
    assert found == ["0", "1", "0", "0", "0"]


def test_route_localnet_of_all_interfaces_is_reported(harness: LinuxDataplaneHarness) -> None:
    """It counts for every interface, whatever is written to that of one."""
    harness.write_setting("net/ipv4/conf/all/route_localnet", "1")
    harness.attach(link_to(harness.make_namespace()), *DUAL)
    (warning,) = harness.warnings
    assert "net.ipv4.conf.all.route_localnet is 1" in warning


def test_the_host_end_counts_as_named_by_us(harness: LinuxDataplaneHarness) -> None:
    """A MAC that the kernel made up would be replaced by the device manager of many distributions."""
    link = link_to(harness.make_namespace())
    harness.attach(link, *DUAL)
    given = 3
    # sysfs shows the namespace that it was mounted in, so the answer comes from one of its own.
    shown = run(
        "unshare", "--mount", "sh", "-c", f"mount -t sysfs s /sys; cat /sys/class/net/{HOST_NAME}/addr_assign_type"
    )
    assert int(shown) == given


def test_ipv6_host_end(harness: LinuxDataplaneHarness) -> None:
    harness.attach(link_to(harness.make_namespace()), "fd65::5")
    names = ("accept_dad", "disable_ipv6", "proxy_ndp", "forwarding", "accept_ra")
    found = [harness.setting(f"ipv6/conf/{HOST_NAME}/{name}") for name in names]
    assert found == ["0", "0", "1", "1", "0"]
    assert "fd65::5 proto 78 metric 10" in " ".join(harness.ip("-6", "route", "show", "dev", HOST_NAME).split())
    # What IPv4 alone needs is left alone.
    assert harness.setting(f"ipv4/conf/{HOST_NAME}/proxy_arp") == "0"


def test_check_42_routes_of_the_container(harness: LinuxDataplaneHarness) -> None:
    link = link_to(harness.make_namespace())
    harness.attach(link, "10.65.0.5")
    routes = harness.ip("-d", "route", "show", namespace=link.namespace).splitlines()
    assert [" ".join(route.split()) for route in routes] == [
        "unicast default via 169.254.1.1 dev eth0 proto boot scope global",
        "unicast 169.254.1.1 dev eth0 proto boot scope link",
    ]
    assert harness.ip("neigh", "show", namespace=link.namespace).split() == (
        ["169.254.1.1", "dev", "eth0", "lladdr", "ee:ee:ee:ee:ee:ee", "PERMANENT"]
    )
    assert harness.setting("ipv4/ip_forward", link.namespace) == "0"


def test_ipv6_routes_of_the_container_and_no_wait_for_duplicates(harness: LinuxDataplaneHarness) -> None:
    """In a namespace that would switch IPv6 off and look for duplicates."""
    link = link_to(harness.make_namespace())
    for path in ("all/disable_ipv6", "default/disable_ipv6", "lo/disable_ipv6", "default/accept_dad"):
        run("nsenter", f"--net={link.namespace}", "sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{path}")
    harness.attach(link, "fd65::5")
    shown = harness.ip("-6", "address", "show", "dev", "eth0", "scope", "global", namespace=link.namespace)
    assert "fd65::5/128" in shown
    assert "tentative" not in shown
    assert harness.setting("ipv6/conf/eth0/accept_dad", link.namespace) == "0"
    # The kernel's own link-local address is usable once its worker has run.
    assert is_eventually(
        lambda: "tentative" not in harness.ip("-6", "address", "show", "dev", "eth0", namespace=link.namespace)
    )
    default = harness.ip("-d", "-6", "route", "show", "default", namespace=link.namespace)
    assert " ".join(default.split()).startswith(
        "unicast default via fe80::ecee:eeff:feee:eeee dev eth0 proto boot scope global metric 1024"
    )
    for path in ("eth0/accept_dad", "all/disable_ipv6", "default/disable_ipv6", "lo/disable_ipv6", "all/forwarding"):
        assert harness.setting(f"ipv6/conf/{path}", link.namespace) == "0"


@pytest.mark.parametrize("forwarding,value", [(Forwarding.ENABLED, "1"), (Forwarding.DISABLED, "0")])
def test_check_45_forwarding_in_the_container(
    harness: LinuxDataplaneHarness, forwarding: Forwarding, value: str
) -> None:
    link = evolve(link_to(harness.make_namespace()), forwarding=forwarding)
    preset = "0" if value == "1" else "1"
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        run("nsenter", f"--net={link.namespace}", "sh", "-c", f"echo {preset} > /proc/sys/net/{path}")
    harness.attach(link, *DUAL)
    found = [harness.setting(path, link.namespace) for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding")]
    assert found == [value, value]


def test_check_46_a_leftover_veth_is_replaced_if_its_alias_is_the_workloads(harness: LinuxDataplaneHarness) -> None:
    harness.ip("link", "add", HOST_NAME, "type", "veth", "peer", "name", "leftover")
    link = link_to(harness.make_namespace())
    with pytest.raises(HostInterfaceTaken, match=r"'netp0123456789a' that is not this workload's: its alias is ''"):
        harness.attach(link, *DUAL)
    assert harness.links() == {HOST_NAME, "leftover"}
    harness.set_alias(str(link_to("", container="earlier").alias), HOST_NAME)
    wanted = harness.attach(link, *DUAL)
    assert harness.links() == {HOST_NAME}
    assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()


# --- traffic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strange", ["", "default/addr_gen_mode=3", "default/addr_gen_mode=1", "all/accept_dad=1"])
def test_workloads_and_host_reach_each_other_at_once(harness: LinuxDataplaneHarness, strange: str) -> None:
    """Also where the machine makes other link-local addresses, or none, or waits for duplicates."""
    if strange:
        path, _, value = strange.partition("=")
        harness.write_setting(f"net/ipv6/conf/{path}", value)
    harness.write_setting("net/ipv4/ip_forward", "1")
    one, two = link_to(harness.make_namespace()), link_to(harness.make_namespace(), host_name="netpbcdefabcdef")
    harness.attach(one, *DUAL)
    harness.attach(two, "10.65.0.6", "fd65::6")
    ping = ("ping", "-c", "1", "-W", "2")
    for address in ("10.65.0.6", "fd65::6", "10.240.0.1", "fd24::1"):
        assert "1 received" in run("nsenter", f"--net={one.namespace}", *ping, address)
    for address in DUAL:
        assert "1 received" in run(*ping, address)


# --- the rest of what only a kernel can answer ---------------------------------------------------------------------


def test_applying_again_causes_no_notification(harness: LinuxDataplaneHarness) -> None:
    """Two attachments of one container, each made true twice: not one index, route or address is new."""
    first = link_to(harness.make_namespace())
    second = link_to(first.namespace, "eth1", "netpbcdefabcdef")

    def everything() -> list[str]:
        shown = [("-o", "link"), ("-o", "address"), ("route",), ("-6", "route"), ("neigh", "show", "nud", "permanent")]
        found = [harness.ip(*what, namespace=where) for what in shown for where in (None, first.namespace)]
        return [text.replace(" tentative", "") for text in found]  # the kernel's own check of a link-local address

    harness.attach(first, *DUAL)
    harness.attach(second, "10.65.0.6", "fd65::6")
    before = everything()
    harness.attach(first, *DUAL)
    harness.attach(second, "10.65.0.6", "fd65::6")
    assert everything() == before


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_the_first_interface_has_the_default_route_whatever_the_order(
    harness: LinuxDataplaneHarness, order: tuple[int, ...]
) -> None:
    """At every packet: the kernel takes turns between IPv4 default routes of one metric."""
    first = link_to(harness.make_namespace())
    links = (
        (first, *DUAL),
        (link_to(first.namespace, "eth1", "netpbcdefabcdef"), "10.65.0.6", "fd65::6"),
        (link_to(first.namespace, "eth2", "netpcdefabcdefa"), "10.65.0.7", "fd65::7"),
    )
    for number in order:
        wanted = harness.attach(*links[number])
        assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()
    harness.ip("link", "delete", "netpcdefabcdefa")
    for _ in range(4):
        assert " dev eth0 " in harness.ip("route", "get", "192.0.2.1", namespace=first.namespace)
    for target in ("192.0.2.1", "2001:db8::1"):
        assert " dev eth0 " in harness.ip("route", "get", target, namespace=first.namespace)
    harness.dataplane.remove(first, deadline=harness.deadline())
    for target in ("192.0.2.1", "2001:db8::1"):
        assert " dev eth1 " in harness.ip("route", "get", target, namespace=first.namespace)


def test_a_second_interface_answers_over_itself(harness: LinuxDataplaneHarness) -> None:
    """What has its address as source takes its own table, in which there are next hop and default route."""
    first = link_to(harness.make_namespace())
    second = link_to(first.namespace, "eth1", "netpbcdefabcdef")
    harness.attach(first, *DUAL)
    wanted = harness.attach(second, "10.65.0.6", "fd65::6")
    for source, target in (("10.65.0.6", "192.0.2.1"), ("fd65::6", "2001:db8::1")):
        route = harness.ip("route", "get", target, "from", source, namespace=first.namespace)
        assert " dev eth1 " in route
    (index,) = [link["ifindex"] for link in harness.show("link", first.namespace) if link["ifname"] == "eth1"]
    assert isinstance(index, int)
    table = str(100 + index)
    assert harness.ip("rule", "show", namespace=first.namespace).splitlines()[1] == (
        f"32765:\tfrom 10.65.0.6 lookup {table} proto boot"
    )
    for family, destination in (("-4", "default"), ("-4", "169.254.1.1"), ("-6", "default")):
        harness.ip(family, "route", "del", destination, "table", table, namespace=first.namespace)
        found = harness.dataplane.verify(wanted, deadline=Deadline.after(ManualClock(), 0))
        assert any("table of the interface" in str(difference) for difference in found)
        harness.attach(second, "10.65.0.6", "fd65::6")
        assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()


def test_tables_of_interfaces_may_have_large_numbers(harness: LinuxDataplaneHarness) -> None:
    """The number does not fit into the message's byte once the namespace has had 155 interfaces."""
    namespace = harness.make_namespace()
    script = "for n in $(seq 160); do ip link add x type bridge; ip link del x; done"
    run("nsenter", f"--net={namespace}", "sh", "-ec", script)
    wanted = harness.attach(link_to(namespace, "eth1"), *DUAL)
    assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()
    assert int(str(harness.show("rule", namespace)[1]["table"])) > 255
    harness.dataplane.remove(wanted.link, deadline=harness.deadline())
    assert harness.source_rules(namespace) == frozenset()


def test_a_learned_route_with_a_worse_metric_is_no_obstacle(harness: LinuxDataplaneHarness) -> None:
    harness.make_link("uplink")
    harness.ip("route", "add", "10.65.0.5/32", "dev", "uplink", "metric", "32")
    harness.ip("route", "add", "fd65::5/128", "dev", "uplink")
    wanted = harness.attach(link_to(harness.make_namespace()), *DUAL)
    assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()


def test_a_route_of_our_own_metric_over_another_interface_is_named(harness: LinuxDataplaneHarness) -> None:
    harness.make_link("uplink")
    harness.ip("route", "add", "fd65::5/128", "dev", "uplink", "metric", "10")
    with pytest.raises(RouteConflict, match=r"fd65::5/128.*'netp0123456789a'.*'uplink'"):
        harness.attach(link_to(harness.make_namespace()), *DUAL)
    assert harness.links() == {"uplink"}


def test_an_address_of_the_host_itself_is_taken(harness: LinuxDataplaneHarness) -> None:
    with pytest.raises(RouteConflict, match="'lo'"):
        harness.attach(link_to(harness.make_namespace()), "10.240.0.1")


def test_routes_over_several_interfaces_have_no_one_owner(harness: LinuxDataplaneHarness) -> None:
    for name, address in (("one", "192.0.2.1/30"), ("two", "192.0.2.5/30")):
        harness.make_link(name)
        harness.ip("address", "add", address, "dev", name)
    hops = ("nexthop", "via", "192.0.2.2", "nexthop", "via", "192.0.2.6")
    harness.ip("route", "add", "10.65.0.5/32", *hops)
    with pytest.raises(RouteConflict, match=interface_name(0)):
        harness.attach(link_to(harness.make_namespace()), "10.65.0.5")


@pytest.mark.parametrize(
    "path, with_it, without_it",
    [
        ("net/ipv4/ip_forward", DUAL, ("fd65::7",)),
        ("net/ipv6/conf/all/forwarding", DUAL, ("10.65.0.7",)),
    ],
)
def test_missing_forwarding_is_reported_once_and_only_for_its_family(
    harness: LinuxDataplaneHarness, path: str, with_it: tuple[str, ...], without_it: tuple[str, ...]
) -> None:
    harness.write_setting(path, "0")
    harness.attach(link_to(harness.make_namespace(), host_name="netp1", pod="web-1"), *without_it)
    assert harness.warnings == []
    harness.attach(link_to(harness.make_namespace()), *with_it)
    (warning,) = harness.warnings
    assert f"{path.replace('/', '.')} is 0 on this node" in warning
    assert f"run: sysctl -w {path.replace('/', '.')}=1" in warning


def with_setting(wanted: AttachmentPlan, end: InterfacePlan, setting: Sysctl) -> AttachmentPlan:
    changed = evolve(end, sysctls=(*end.sysctls, setting))
    return evolve(wanted, host=changed) if end is wanted.host else evolve(wanted, container=changed)


@pytest.mark.parametrize("side", ["host", "container"])
def test_a_setting_that_must_be_made_fails_the_attachment(harness: LinuxDataplaneHarness, side: str) -> None:
    wanted = plan(endpoint(*DUAL), link_to(harness.make_namespace()))
    end = wanted.host if side == "host" else wanted.container
    with pytest.raises(
        KernelError, match=r"setting net/ipv4/no_such = 1 (on the host|in /proc/.*): No such file or directory"
    ):
        harness.apply(with_setting(wanted, end, Sysctl(path="net/ipv4/no_such", value="1")))
    assert harness.links() == frozenset()
    assert harness.dataplane.find(wanted.link) is InterfacePresence.ABSENT


def test_a_setting_that_is_only_wanted_warns(harness: LinuxDataplaneHarness) -> None:
    wanted = plan(endpoint(*DUAL), link_to(harness.make_namespace()))
    setting = Sysctl(path="net/ipv4/no_such", value="1", requirement=SysctlRequirement.OPTIONAL)
    harness.apply(with_setting(wanted, wanted.host, setting))
    assert harness.warnings == ["setting net/ipv4/no_such = 1 on the host: No such file or directory"]
    assert harness.dataplane.verify(wanted, deadline=harness.deadline()) == ()


def set_net_admin(*, is_effective: bool) -> None:
    """Switch the calling thread's CAP_NET_ADMIN off, or on again. Source: capset(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    switch(libc, libc.capget(header, sets))
    sets[0] = sets[0] | 1 << 12 if is_effective else sets[0] & ~(1 << 12)
    switch(libc, libc.capset(header, sets))


class RightLosingClock(SystemClock):
    """A clock that takes the right to remove interfaces away when it is read, which is once the pair exists."""

    def monotonic(self) -> float:
        set_net_admin(is_effective=False)
        return 1


def test_a_taking_back_that_fails_is_a_warning_and_the_reason_stays(harness: LinuxDataplaneHarness) -> None:
    wanted = plan(endpoint(*DUAL), link_to(harness.make_namespace()))
    try:
        with pytest.raises(DataplaneTimeout, match="timed out attaching 'eth0'"):
            harness.dataplane.apply(wanted, deadline=Deadline(RightLosingClock(), 1))
    finally:
        set_net_admin(is_effective=True)
    assert harness.warnings == [
        f"the attachment failed and could not be taken back: removing {HOST_NAME!r}: Operation not permitted"
    ]


KILLED = """
import os, signal, sys
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_backends.linux.netlink import NetlinkSocket
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.testing.dataplane_checks import endpoint, link_to
sends = int(sys.argv[2])
def collect(self, messages, first, original=NetlinkSocket._collect):
    global sends
    sends -= 1
    if not sends:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, messages, first)
NetlinkSocket._collect = collect
clock = SystemClock()
wanted = plan(endpoint("10.65.0.5", "fd65::5"), link_to(sys.argv[1], sys.argv[3]))
LinuxDataplane(clock=clock, warn=print).apply(wanted, deadline=Deadline.after(clock, 30))
"""


@pytest.mark.parametrize("name", ["eth0", "net1"])
def test_a_process_that_is_killed_leaves_a_pair_that_is_known(harness: LinuxDataplaneHarness, name: str) -> None:
    """The alias comes in the datagram that creates the pair: wherever the process ends, DEL finds the pair by it.

    It needs the namespace only for the rules of an interface that has some.
    """
    link = link_to(harness.make_namespace(), name)
    for sends in range(1, 8):
        command = (*python(KILLED), link.namespace, str(sends), name)
        subprocess.run(command, capture_output=True, timeout=EMERGENCY_STOP_S, check=False)
        assert harness.links() == {HOST_NAME}
        namespace = link.namespace if link.has_own_table else ""
        harness.dataplane.remove(evolve(link, namespace=namespace), deadline=harness.deadline())
        assert harness.links() == frozenset()
        assert harness.source_rules(link.namespace) == frozenset()


@define
class MACChangingClock(SystemClock):
    """A clock that gives the host end another MAC as soon as it is there: a device manager with rules of its own."""

    harness: LinuxDataplaneHarness

    def monotonic(self) -> float:
        if HOST_NAME in self.harness.links():
            self.harness.ip("link", "set", HOST_NAME, "address", "02:00:00:00:00:09")
        return 0


def test_a_mac_that_did_not_stay_fails_the_attachment(harness: LinuxDataplaneHarness) -> None:
    wanted = plan(endpoint(*DUAL), link_to(harness.make_namespace()))
    with pytest.raises(KernelError, match=r"giving 'netp.*' the MAC ee:.*: another program changed it to 02:00:00:"):
        harness.dataplane.apply(wanted, deadline=Deadline(MACChangingClock(harness), 1))
    assert harness.links() == frozenset()


def test_the_kernels_own_words_reach_the_reader(harness: LinuxDataplaneHarness) -> None:
    wanted = plan(endpoint("10.65.0.5"), link_to(harness.make_namespace()))
    wrong = InterfaceAddress(Address.parse("10.65.0.5"), 64)
    with pytest.raises(
        KernelError, match=r"10\.65\.0\.5/64 to 'eth0': Invalid argument \(ipv4: Invalid prefix length\)"
    ):
        harness.apply(evolve(wanted, container=evolve(wanted.container, addresses=(wrong,))))
    assert harness.links() == frozenset()


def test_an_interface_that_cannot_be_removed_is_an_error(harness: LinuxDataplaneHarness) -> None:
    link = link_to(harness.make_namespace())
    harness.attach(link, *DUAL)
    set_net_admin(is_effective=False)
    try:
        with pytest.raises(KernelError, match=f"removing '{HOST_NAME}': Operation not permitted"):
            harness.dataplane.remove(link, deadline=harness.deadline())
    finally:
        set_net_admin(is_effective=True)


def test_a_namespace_that_cannot_be_entered_stops_no_removal(harness: LinuxDataplaneHarness) -> None:
    """It is looked into only if the host has no interface of the name; then a warning says that it could not be."""
    loop = harness.folder / "loop"
    loop.symlink_to(loop)
    link = link_to(harness.make_namespace())
    harness.attach(link, *DUAL)
    for _ in range(2):
        harness.dataplane.remove(evolve(link, namespace=str(loop)), deadline=harness.deadline())
        assert harness.links() == frozenset()
    (warning,) = harness.warnings
    assert warning.startswith("'eth0' could not be removed from inside its namespace: entering the namespace ")


def test_the_index_of_a_host_end_is_chosen_by_us(harness: LinuxDataplaneHarness) -> None:
    """It is far above those that the kernel gives, and the index of an existing interface is never chosen."""
    harness.attach(link_to(harness.make_namespace()), *DUAL)
    (end,) = [link for link in harness.show("link") if link["ifname"] == HOST_NAME]
    assert int(str(end["ifindex"])) >= 1 << 20
    assert str(end["ifalias"]).startswith("netplug ")


def test_a_creation_that_fails_marks_no_other_interface(harness: LinuxDataplaneHarness) -> None:
    """The name is taken, inside or on the host: the alias of the interface that has it stays as it is."""
    harness.make_link(HOST_NAME)
    link = link_to(harness.make_namespace())
    for refused in (HostInterfaceTaken, LinkExists):
        with pytest.raises(refused):
            harness.attach(link, *DUAL)
        shown = [*harness.show("link"), *harness.show("link", link.namespace)]
        assert not [found for found in shown if "ifalias" in found]
        if refused is HostInterfaceTaken:
            harness.make_link("eth0", link.namespace)


def test_a_path_that_may_not_be_opened_is_an_error_and_not_a_namespace_that_is_gone(
    harness: LinuxDataplaneHarness,
) -> None:
    loop = harness.folder / "loop"
    loop.symlink_to(loop)
    with pytest.raises(KernelError, match=r"entering the namespace .*: Too many levels of symbolic links"):
        harness.dataplane.find(link_to(str(loop)))


def test_listing_and_asking_on_one_channel(harness: LinuxDataplaneHarness) -> None:
    """A listing is many replies and one end."""
    for number in range(200):
        harness.ip("route", "add", f"fd00:{number:x}::/64", "dev", "lo")
    with NetlinkSocket.open() as channel:
        listed = channel.send_one(netlink.query_routes(Family.IPV6)).require_success().replies
        found = {netlink.decode_route(reply).destination for reply in listed}
        assert {Prefix.parse(f"fd00:{number:x}::/64") for number in range(200)} <= found
        assert channel.send_one(netlink.query_link("lo")).require_success().replies


def test_errors_of_a_batch_belong_to_their_messages(harness: LinuxDataplaneHarness) -> None:
    harness.make_link("here")
    names = ("lo", "absent", "here", "gone")
    with NetlinkSocket.open() as channel:
        outcomes = channel.send([netlink.query_link(name) for name in names])
    assert [os.strerror(outcome.error) for outcome in outcomes] == [
        "Success",
        "No such device",
        "Success",
        "No such device",
    ]
    assert [netlink.decode_link(outcomes[n].reply).name for n in (0, 2)] == ["lo", "here"]
    with pytest.raises(KernelError, match="looking for 'absent': No such device"):
        outcomes[1].require_success()


def test_a_namespace_that_was_opened_before_is_used_without_its_path(harness: LinuxDataplaneHarness) -> None:
    path = harness.make_namespace()
    link = link_to("/run/netns/of-another-mount-namespace")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        dataplane = evolve(harness.dataplane, namespaces={link.namespace: descriptor})
        wanted = plan(endpoint(*DUAL), link)
        dataplane.apply(wanted, deadline=harness.deadline())
        assert link.name in harness.links(path)
        assert dataplane.find(link) is InterfacePresence.OWN
        assert dataplane.verify(wanted, deadline=harness.deadline()) == ()
        dataplane.remove(link, deadline=harness.deadline())
        assert link.name not in harness.links(path)
        assert os.fstat(descriptor).st_ino == os.stat(path).st_ino
    finally:
        os.close(descriptor)


def test_the_thread_is_back_where_it_was_whatever_happens(harness: LinuxDataplaneHarness) -> None:
    link = link_to(harness.make_namespace())
    own = os.stat(OWN_NAMESPACE).st_ino
    wanted = plan(endpoint(*DUAL), link)
    harness.apply(wanted)
    harness.dataplane.verify(wanted, deadline=harness.deadline())
    harness.dataplane.find(link)
    with suppress(RuntimeError), netns.entered_namespace(link.namespace):
        assert os.stat(OWN_NAMESPACE).st_ino != own
        raise RuntimeError
    assert os.stat(OWN_NAMESPACE).st_ino == own


LOST = """
import os, sys
from netplug_backends.linux.netns import entered_namespace
with entered_namespace(sys.argv[1]) as namespaces:
    os.close(namespaces.original)
print("went on")
"""


def test_a_process_that_cannot_return_ends(harness: LinuxDataplaneHarness) -> None:
    command = (*python(LOST), harness.make_namespace())
    ended = subprocess.run(command, capture_output=True, text=True, timeout=EMERGENCY_STOP_S, check=False)
    assert (ended.returncode, ended.stdout) == (-6, "")
    assert "cannot return to the node's network namespace: [Errno 9]" in ended.stderr


IMPORTS = """
import sys
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.testing.dataplane_checks import endpoint, link_to
clock, link = SystemClock(), link_to(sys.argv[1])
dataplane = LinuxDataplane(clock=clock, warn=print)
dataplane.find(link)
dataplane.apply(plan(endpoint("10.65.0.5", "fd65::5"), link), deadline=Deadline.after(clock, 30))
dataplane.remove(link, deadline=Deadline.after(clock, 30))
print([name for name in ("pyroute2", "socket", "asyncio", "logging", "re") if name in sys.modules])
"""


def test_attaching_and_detaching_load_no_netlink_library(harness: LinuxDataplaneHarness) -> None:
    shown = run(*python(IMPORTS), harness.make_namespace())
    assert "pyroute2" not in shown
    assert "asyncio" not in shown


NO_RIGHT = """
import sys
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_core.dataplane.protocol import KernelError
from netplug_core.testing.dataplane_checks import link_to
dataplane = LinuxDataplane(clock=SystemClock(), warn=print)
print(dataplane.find(link_to("/etc/hostname")).value)
try:
    dataplane.find(link_to(sys.argv[1]))
except KernelError as refused:
    print(refused)
"""


def test_without_the_right_to_enter_there_is_an_error_and_the_process_goes_on(harness: LinuxDataplaneHarness) -> None:
    """Whoever may not enter may not return either; that must not be taken for being lost."""
    path = harness.make_namespace()
    unprivileged = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    shown = run(*unprivileged, *python(NO_RIGHT), path)
    assert shown == f"namespace gone\nentering the namespace {path}: Operation not permitted\n"


NO_IPV6 = """
import sys
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_core.clock import Deadline
from netplug_core.dataplane.plan import plan
from netplug_core.testing.dataplane_checks import endpoint, link_to
clock = SystemClock()
dataplane = LinuxDataplane(clock=clock, warn=lambda text: print("warning:", text))
for addresses in (("10.65.0.5",), ("10.65.0.5", "fd65::5")):
    wanted = plan(endpoint(*addresses), link_to(sys.argv[1]))
    try:
        dataplane.apply(wanted, deadline=Deadline.after(clock, 30))
        print(dataplane.verify(wanted, deadline=Deadline.after(clock, 30)))
    except Exception as error:
        print(type(error).__name__, str(error).partition(" in /")[0])
    dataplane.remove(wanted.link, deadline=Deadline.after(clock, 30))
"""


def test_a_kernel_without_ipv6_attaches_ipv4_without_a_warning(harness: LinuxDataplaneHarness) -> None:
    """Such a kernel has no settings of IPv6: here others are mounted in their place."""
    names = ("route_localnet", "rp_filter", "accept_redirects", "proxy_arp", "forwarding")
    settings = [f"conf/{HOST_NAME}/{name}" for name in names]
    for setting in (*settings, f"neigh/{HOST_NAME}/proxy_delay", "ip_forward"):
        file = harness.folder / "net" / "ipv4" / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    mount = f'mount --bind {harness.folder}/net /proc/sys/net && exec "$@"'
    shown = run("unshare", "--mount", "sh", "-c", mount, "sh", *python(NO_IPV6), harness.make_namespace())
    # The mounted file of ip_forward is the host's and the container's, which gets a 0.
    lines = [line for line in shown.splitlines() if "net.ipv4.ip_forward is 0" not in line]
    assert lines[0] == "()"
    assert lines[1].startswith("FamilyNotSupported IPv6 is asked for, and the kernel of this node has no IPv6")


def test_verifying_waits_for_what_settles(harness: LinuxDataplaneHarness) -> None:
    """And no longer than a second; the clock is moved by hand."""
    wanted = harness.attach(link_to(harness.make_namespace()), *DUAL)

    class Healing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.elapsed_ns >= self.healed_ns:
                harness.apply(wanted)

        healed_ns = 10**9 // 2

    for healed_ns, count in ((10**9 // 2, 0), (2 * 10**9, 1)):
        harness.delete_route(Prefix.parse("10.65.0.5/32"), HOST_NAME)
        clock = Healing()
        clock.healed_ns = healed_ns
        found = LinuxDataplane(clock=clock, warn=print).verify(wanted, deadline=Deadline.after(clock, 30))
        assert (len(found), clock.elapsed_ns <= 1.1 * 10**9) == (count, True)
        harness.apply(wanted)
