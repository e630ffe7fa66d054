"""Which address a node registers, and what it does about another node with it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import AddressState, HostAddress, HostInterface
from netplug_core.errors import ConfigurationError
from netplug_core.reconcile.registration import (
    METHODS,
    AddressMode,
    ByInterface,
    ByPrefix,
    CanReach,
    Choice,
    ConfiguredAddress,
    DetectionMethod,
    FamilyAddress,
    FamilySettings,
    FirstFound,
    FoundOnHost,
    InternalAddress,
    Origin,
    RegistrationSettings,
    SkipInterface,
    choose_address,
    describe_registered,
    find_conflicts,
    find_lack,
    find_node_interfaces,
    find_relevant_interfaces,
    is_contested,
    parse_address_setting,
    parse_method,
    register_addresses,
    settle_address,
    without_conflicts,
)
from netplug_core.reconcile.tunnels import MTUSettings
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec

V4, V6 = Family.IPV4, Family.IPV6


def held(text: str) -> InterfaceAddress:
    return InterfaceAddress.parse(text)


def address(text: str) -> HostAddress:
    """An address such as ``10.0.0.1/24``; words after it say what is unusual."""
    first, *words = text.split()
    states = {each.value: each for each in AddressState}
    return HostAddress(
        held=held(first),
        state=next((states[word] for word in words if word in states), AddressState.USABLE),
        is_secondary="secondary" in words,
        is_global="local" not in words,
    )


def interface(
    name: str, index: int, *addresses: str, mtu: int = 1500, is_up: bool = True, alias: str = ""
) -> HostInterface:
    found = tuple(map(address, addresses))
    return HostInterface(name=name, index=index, is_up=is_up, mtu=mtu, addresses=found, alias=alias)


LO = interface("lo", 1, "127.0.0.1/8", "::1/128", mtu=65_536)
ETH0 = interface("eth0", 2, "10.240.0.11/24", "fd10::11/64", "fe80::11/64")
ETH1 = interface("eth1", 3, "10.241.0.11/24")
DOCKER = interface("docker0", 9, "172.17.0.1/16")
HOST = (LO, ETH0, ETH1, DOCKER)


def chosen(method: DetectionMethod, *interfaces: HostInterface, family: Family = V4, registered: str = "") -> str:
    before = held(registered) if registered else None
    return str(choose_address(method, family, interfaces, before).address)


def trace(choice: Choice) -> list[str]:
    return list(map(str, choice.trace))


# --- methods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, method",
    [
        ("", FirstFound()),
        (" first-found ", FirstFound()),
        ("interface=eth1", ByInterface(("eth1",))),
        ("interface=eth.*, bond0", ByInterface(("eth.*", "bond0"))),
        ("skip-interface=eth0", SkipInterface(("eth0",))),
        ("cidr=10.241.0.0/16,fd00::1/8", ByPrefix((Prefix.parse("10.241.0.0/16"), Prefix.parse("fd00::/8")))),
        ("can-reach=10.241.0.1", CanReach("10.241.0.1")),
        ("can-reach=gateway.example", CanReach("gateway.example")),
        ("kubernetes-internal-ip", InternalAddress()),
    ],
)
def test_a_method_is_parsed(text: str, method: DetectionMethod) -> None:
    assert parse_method(text, variable="IP_AUTODETECTION_METHOD") == method


@pytest.mark.parametrize(
    "text",
    [
        "last-found", "first-found=", "kubernetes-internal-ip=x", "interface", "interface=", "interface=eth0,",
        "skip-interface=", "cidr=", "can-reach=", "can-reach=a,b", "can-reach",
    ],
)  # fmt: skip
def test_an_unknown_method_is_an_error_that_lists_the_six(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_method(text, variable="IP_AUTODETECTION_METHOD")
    assert str(caught.value) == (
        f"IP_AUTODETECTION_METHOD: {text!r} is not accepted; one of first-found, interface=<expression>,...,"
        " skip-interface=<expression>,..., cidr=<CIDR>,..., can-reach=<address or name>, kubernetes-internal-ip is"
    )
    assert len(METHODS) == 6


@pytest.mark.parametrize(
    "text, reason",
    [
        ("interface=eth(", "eth( is no regular expression: missing ), unterminated subpattern at position 3"),
        ("skip-interface=a,*", "* is no regular expression: nothing to repeat at position 0"),
        ("cidr=10.0.0.0/8,eth0", "'eth0' is not an IP address"),
    ],
)
def test_an_argument_that_cannot_be_used_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_method(text, variable="IP6_AUTODETECTION_METHOD")
    assert str(caught.value) == f"IP6_AUTODETECTION_METHOD: {text!r} is not accepted; {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "first-found", "interface=a,b", "skip-interface=a", "cidr=10.0.0.0/8", "can-reach=a", "kubernetes-internal-ip",
    ],
)  # fmt: skip
def test_a_method_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_method(text, variable="")) == text


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_first_found_is_that_of_the_last_interface_that_leads_to_other_machines() -> None:
    assert chosen(FirstFound(), *HOST) == "10.241.0.11/24"
    assert chosen(FirstFound(), LO, ETH0, DOCKER) == "10.240.0.11/24"
    assert chosen(FirstFound(), LO, ETH0, DOCKER, family=V6) == "fd10::11/64"
    assert chosen(FirstFound(), LO, DOCKER) == "None"


@pytest.mark.parametrize(
    "name",
    [
        "docker0", "cbr0", "dummy0", "podman1", "virbr0", "lxcbr0", "veth12", "br-0af", "netp1a2b", "tunl0",
        "flannel.1", "kube-ipvs0", "cni0", "nodelocaldns", "lo",
    ],
)  # fmt: skip
def test_interfaces_of_containers_are_not_found_first_but_by_their_name(name: str) -> None:
    other = interface(name, 9, "10.9.0.1/24")
    assert chosen(FirstFound(), ETH0, other) == "10.240.0.11/24"
    assert chosen(SkipInterface(("eth1",)), ETH0, other) == "10.240.0.11/24"
    assert chosen(ByInterface((f"^{name}$",)), ETH0, other) == "10.9.0.1/24"
    assert chosen(ByPrefix((Prefix.parse("10.9.0.0/16"),)), ETH0, other) == "10.9.0.1/24"


@pytest.mark.parametrize("name", ["lom1", "bridge0", "brenda", "tun0", "ens3"])
def test_interfaces_with_a_similar_name_are_found(name: str) -> None:
    assert chosen(FirstFound(), ETH0, interface(name, 9, "10.9.0.1/24")) == "10.9.0.1/24"


@pytest.mark.parametrize("name, alias", [("vxlan.netplug", ""), ("vxlan6.netplug", ""), ("odd", "netplug")])
@pytest.mark.parametrize(
    "method", [FirstFound(), ByInterface((".*",)), SkipInterface(("x",)), ByPrefix((Prefix.parse("0.0.0.0/0"),))]
)
def test_a_tunnel_of_netplug_is_never_found(method: DetectionMethod, name: str, alias: str) -> None:
    tunnel = interface(name, 9, "10.65.0.1/32", alias=alias)
    assert chosen(method, ETH0, tunnel) == "10.240.0.11/24"


def test_the_four_methods_of_interfaces_and_prefixes() -> None:
    for method in (
        ByInterface(("eth1",)),
        ByInterface(("nothing", "h1$")),
        SkipInterface(("eth0",)),
        ByPrefix((Prefix.parse("10.241.0.0/16"),)),
    ):
        assert chosen(method, *HOST) == "10.241.0.11/24"
    assert chosen(ByInterface(("eth1",)), interface("eth10", 4, "10.9.0.1/24")) == "10.9.0.1/24"
    assert chosen(SkipInterface(("eth",)), *HOST) == "None"


@pytest.mark.parametrize("order", [("10.240.0.11/24", "10.240.0.99/32"), ("10.240.0.99/32", "10.240.0.11/24")])
def test_an_address_with_a_subnet_beats_a_floating_one(order: tuple[str, str]) -> None:
    assert chosen(FirstFound(), interface("eth0", 2, *order)) == "10.240.0.11/24"
    assert chosen(FirstFound(), interface("eth0", 2, "10.240.0.99/32")) == "10.240.0.99/32"


def test_a_primary_address_beats_a_secondary_one_and_the_first_of_equals_counts() -> None:
    assert chosen(FirstFound(), interface("eth0", 2, "10.0.0.2/24 secondary", "10.0.0.1/24")) == "10.0.0.1/24"
    assert chosen(FirstFound(), interface("eth0", 2, "10.0.0.2/24", "10.0.1.1/24")) == "10.0.0.2/24"


@pytest.mark.parametrize(
    "unusable", ["10.0.0.2/24 tentative", "10.0.0.2/24 deprecated", "10.0.0.2/24 local", "169.254.1.1/16"]
)
def test_an_address_that_cannot_be_used_is_passed_over(unusable: str) -> None:
    assert chosen(FirstFound(), interface("eth0", 2, unusable, "10.0.1.1/24")) == "10.0.1.1/24"
    assert chosen(FirstFound(), interface("eth0", 2, unusable)) == "None"


def test_an_interface_that_is_down_is_passed_over() -> None:
    assert chosen(FirstFound(), ETH0, evolve(ETH1, is_up=False)) == "10.240.0.11/24"


def test_the_source_of_packets_is_the_address_with_the_prefix_of_its_interface() -> None:
    reaching = CanReach("10.241.0.1", Address.parse("10.241.0.11"))
    assert chosen(reaching, *HOST) == "10.241.0.11/24"
    assert chosen(reaching, ETH0) == "10.241.0.11/32"
    assert chosen(reaching, ETH0, registered="10.240.0.11/24") == "10.241.0.11/32"
    assert chosen(reaching, ETH0, interface("vxlan.netplug", 8, "10.241.0.11/32")) == "None"
    assert chosen(CanReach("10.241.0.1"), *HOST) == "None"


def test_an_internal_address_of_the_orchestrators_node_is_chosen_and_a_registered_one_kept() -> None:
    named = [Address.parse(text) for text in ("fd10::11", "10.240.0.11", "10.241.0.11")]

    def found(family: Family, registered: str = "") -> str:
        before = held(registered) if registered else None
        return str(choose_address(InternalAddress(), family, HOST, before, named).address)

    assert found(V4) == "10.240.0.11/24"
    assert found(V6) == "fd10::11/64"
    assert found(V4, "10.241.0.11/8") == "10.241.0.11/24"
    assert found(V4, "10.9.0.1/8") == "10.240.0.11/24"
    assert choose_address(InternalAddress(), V4, HOST, None, named[:1]).address is None


@pytest.mark.parametrize(
    "method",
    [FirstFound(), ByInterface(("eth",)), SkipInterface(("nothing",)), ByPrefix((Prefix.parse("10.0.0.0/8"),))],
)
def test_a_registered_address_that_is_allowed_is_kept(method: DetectionMethod) -> None:
    assert chosen(method, *HOST, registered="10.240.0.11/24") == "10.240.0.11/24"
    assert chosen(method, *HOST, registered="10.240.0.11/32") == "10.240.0.11/24", "with the length of now"
    down = evolve(ETH0, is_up=False, addresses=(address("10.240.0.11/24 deprecated"),))
    assert chosen(method, down, ETH1, registered="10.240.0.11/24") == "10.240.0.11/24", "it may be back at once"
    assert chosen(method, ETH1, registered="10.240.0.11/24") == "10.241.0.11/24"


def test_a_registered_address_that_is_not_allowed_is_not_kept() -> None:
    assert chosen(SkipInterface(("eth0",)), *HOST, registered="10.240.0.11/24") == "10.241.0.11/24"
    assert chosen(FirstFound(), *HOST, registered="172.17.0.1/16") == "10.241.0.11/24"


def test_the_trace_says_what_was_considered() -> None:
    eth1 = interface("eth1", 3, "169.254.7.7/16", "10.241.0.9/24 tentative", "10.241.0.11/24")
    six = interface("eth2", 4, "fd10::2/64")
    vxlan = interface("vxlan.netplug", 7, "10.65.0.1/32")
    found = choose_address(FirstFound(), V4, (LO, ETH0, eth1, six, vxlan, DOCKER), held("10.9.9.9/24"))
    assert trace(found) == [
        "docker0: names with docker are of containers or networks of this machine",
        "vxlan.netplug: a tunnel of netplug",
        "eth2: it has no address of IPv4",
        "eth1 169.254.7.7/16: not a global unicast address",
        "lo: the loopback interface",
        "10.9.9.9/24: registered, but the method does not allow it now",
        "eth1 10.241.0.9/24: it is still checked for duplicates, or is one",
        "eth1 10.241.0.11/24: chosen",
        "eth0 10.240.0.11/24: not needed",
    ]
    kept = choose_address(ByInterface(("eth0",)), V4, (LO, ETH0), held("10.240.0.11/24"))
    assert trace(kept) == ["lo: interface=eth0 does not match", "eth0 10.240.0.11/24: kept, as it is registered"]
    skipped = choose_address(SkipInterface(("eth0",)), V4, (ETH0,), None)
    assert trace(skipped) == ["eth0: skip-interface=eth0 matches"]
    outside = choose_address(ByPrefix((Prefix.parse("10.9.0.0/16"),)), V4, (ETH0,), None)
    assert trace(outside) == ["eth0 10.240.0.11/24: not in 10.9.0.0/16"]
    down = choose_address(FirstFound(), V4, (evolve(ETH1, is_up=False),), None)
    assert trace(down) == ["eth1 10.241.0.11/24: the interface is down"]
    old = choose_address(FirstFound(), V4, (interface("eth0", 2, "10.0.0.1/24 deprecated"),), None)
    assert trace(old) == ["eth0 10.0.0.1/24: it is deprecated"]


def test_the_trace_of_a_named_address_says_who_names_it() -> None:
    source = CanReach("web", Address.parse("10.240.0.11"))
    assert trace(choose_address(source, V4, HOST, None)) == [
        "the source of packets to web: 10.240.0.11",
        "10.240.0.11/24: chosen; it is on eth0",
    ]
    assert trace(choose_address(source, V4, (), held("10.240.0.11/24"))) == [
        "the source of packets to web: 10.240.0.11",
        "10.240.0.11/32: kept; it is on no interface, so without a prefix",
    ]
    assert trace(choose_address(CanReach("web", None, "no route"), V4, HOST, None)) == [
        "the source of packets to web: no route"
    ]
    tunnel = interface("ipip.netplug", 7, "10.240.0.11/32")
    assert trace(choose_address(source, V4, (tunnel,), None)) == [
        "the source of packets to web: 10.240.0.11 is the address of a tunnel"
    ]
    assert trace(choose_address(InternalAddress(), V6, HOST, None)) == [
        "the orchestrator's node: it has no internal address of IPv6"
    ]


# --- what is configured -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, family, expected",
    [
        ("", V4, AddressMode.UNSET),
        ("autodetect", V6, AddressMode.DETECT),
        (" none ", V4, AddressMode.NONE),
        ("10.0.0.1", V4, ConfiguredAddress(Address.parse("10.0.0.1"))),
        ("10.0.0.1/24", V4, ConfiguredAddress(Address.parse("10.0.0.1"), 24)),
        ("fd00::1", V6, ConfiguredAddress(Address.parse("fd00::1"))),
        ("fd00::1/128", V6, ConfiguredAddress(Address.parse("fd00::1"), 128)),
    ],
)
def test_what_a_variable_asks_for_is_parsed(text: str, family: Family, expected: object) -> None:
    assert parse_address_setting(text, family, variable="IP") == expected


@pytest.mark.parametrize(
    "text, family, reason",
    [
        ("auto", V4, "autodetect, none, or an IPv4 address, with or without the length of its prefix, is"),
        ("fd00::1", V4, "autodetect, none, or an IPv4 address, with or without the length of its prefix, is"),
        ("10.0.0.1", V6, "autodetect, none, or an IPv6 address, with or without the length of its prefix, is"),
        ("127.0.0.1", V4, "it is loopback: other nodes do not reach it"),
        ("fe80::1/64", V6, "it is link-local: other nodes do not reach it"),
    ],
)
def test_what_no_node_may_have_is_an_error(text: str, family: Family, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_address_setting(text, family, variable="IP")
    assert str(caught.value) == f"IP: {text!r} is not accepted; {reason}"


def test_the_settings_are_those_of_the_environment() -> None:
    environ = {
        "IP": "10.0.0.1/24",
        "IP6": "autodetect",
        "IP6_AUTODETECTION_METHOD": "interface=eth0",
        "AS": "1.10",
        "DISABLE_NODE_IP_CHECK": "True",
        "NETPLUG_NETWORKING_BACKEND": "none",
        "NETPLUG_IPINIPMTU": "1400",
        "NETPLUG_VXLANMTU": " 1410 ",
    }
    assert RegistrationSettings.parse(environ) == RegistrationSettings(
        families={
            V4: FamilySettings(ConfiguredAddress(Address.parse("10.0.0.1"), 24)),
            V6: FamilySettings(AddressMode.DETECT, ByInterface(("eth0",))),
        },
        as_number=65_546,
        has_addresses=False,
        checks_conflicts=False,
        mtu=MTUSettings(ipip=1400, vxlan=1410, vxlan_v6=1410),
    )
    usual = RegistrationSettings.parse({"NETPLUG_NETWORKING_BACKEND": "vxlan", "DISABLE_NODE_IP_CHECK": "false"})
    assert usual == RegistrationSettings()
    assert RegistrationSettings.parse({"NETPLUG_VXLANMTUV6": "1300"}).mtu == MTUSettings(vxlan_v6=1300)


MTU_RULE = "a number from 0, which is automatic, to 65535 is"


@pytest.mark.parametrize(
    "environ, message",
    [
        ({"AS": "0"}, "AS: '0' is not accepted; an AS number from 1 to 4294967295, or a text such as '1.10' is"),
        ({"AS": "x"}, "AS: 'x' is not accepted; an AS number from 1 to 4294967295, or a text such as '1.10' is"),
        ({"NETPLUG_VXLANMTU": "big"}, f"NETPLUG_VXLANMTU: 'big' is not accepted; {MTU_RULE}"),
        ({"NETPLUG_IPINIPMTU": "65536"}, f"NETPLUG_IPINIPMTU: '65536' is not accepted; {MTU_RULE}"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_used_is_an_error(environ: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RegistrationSettings.parse(environ)
    assert str(caught.value) == message


# --- the table of IP and IP6 ------------------------------------------------------------------------------------------


def settled(
    setting: object, family: Family = V4, stored: str = "", interfaces: tuple[HostInterface, ...] = HOST
) -> tuple[str, Origin | None, list[str]]:
    assert isinstance(setting, AddressMode | ConfiguredAddress)
    before = held(stored) if stored else None
    found = settle_address(FamilySettings(setting), family, FoundOnHost(interfaces=interfaces), before)
    assert found.family is family
    return str(found.address), found.origin, [f"{each.message}: {each.cause}" for each in found.problems]


NOT_HERE = (
    "the registered address of the node is not on this host:"
    " 10.9.0.1/24 is registered, and no interface of this host has it"
)


NOT_DETECTED = (
    "the address of the node is not detected: other nodes do not reach its pods: first-found finds no IPv4 address"
)


def test_what_is_stored_is_kept_unless_it_is_to_be_detected() -> None:
    for mode in (AddressMode.UNSET, AddressMode.NONE):
        assert settled(mode, stored="10.240.0.11/24") == ("10.240.0.11/24", Origin.STORED, [])
        assert settled(mode, stored="10.9.0.1/24") == ("10.9.0.1/24", Origin.STORED, [NOT_HERE])
        assert settled(mode, V6, stored="fd10::11/64") == ("fd10::11/64", Origin.STORED, [])
    assert settled(AddressMode.DETECT, stored="10.9.0.1/24") == ("10.241.0.11/24", Origin.DETECTED, [])


def test_without_a_stored_one_that_of_ipv4_is_detected_and_ipv6_on_demand() -> None:
    assert settled(AddressMode.UNSET) == ("10.241.0.11/24", Origin.DETECTED, [])
    assert settled(AddressMode.UNSET, V6) == ("None", None, [])
    assert settled(AddressMode.NONE) == ("None", None, [])
    assert settled(AddressMode.DETECT, V6) == ("fd10::11/64", Origin.DETECTED, [])


def test_what_is_not_found_is_kept_if_it_is_stored() -> None:
    assert settled(AddressMode.DETECT, stored="10.9.0.1/24", interfaces=(LO,)) == (
        "10.9.0.1/24",
        Origin.STORED,
        ["the node keeps the address that is registered: first-found finds no IPv4 address"],
    )
    assert settled(AddressMode.UNSET, interfaces=(LO,)) == (
        "None",
        None,
        [NOT_DETECTED],
    )


def test_a_configured_address_has_the_prefix_of_its_interface_unless_it_has_one() -> None:
    for text, family, expected in (
        ("10.240.0.11", V4, "10.240.0.11/24"),
        ("10.240.0.11/20", V4, "10.240.0.11/20"),
        ("fd10::11", V6, "fd10::11/64"),
        ("10.9.0.1/24", V4, "10.9.0.1/24"),
    ):
        setting = parse_address_setting(text, family, variable="IP")
        assert settled(setting, family, stored="10.1.1.1/24" if family is V4 else "") == (
            expected,
            Origin.CONFIGURED,
            [],
        )
    cause = "no interface has 10.9.0.1; give the length of its prefix too"
    assert settled(ConfiguredAddress(Address.parse("10.9.0.1"))) == (
        "10.9.0.1/32",
        Origin.CONFIGURED,
        [f"no node counts as being in the subnet of this one: {cause}"],
    )


# --- the change of the Node -------------------------------------------------------------------------------------------


def node(name: str = "n1", v4: str = "", v6: str = "") -> Node:
    bgp = NodeBGP(ipv4_address=held(v4) if v4 else None, ipv6_address=held(v6) if v6 else None)
    return Node(metadata=Metadata(name=name), spec=NodeSpec(bgp=None if bgp == NodeBGP() else bgp))


def wanted(text: str, origin: Origin | None = Origin.DETECTED, family: Family = V4) -> FamilyAddress:
    return FamilyAddress(family=family, address=held(text) if text else None, origin=origin)


def test_addresses_interfaces_and_the_as_number_are_registered_and_the_rest_stays() -> None:
    before = evolve(node(), metadata=Metadata(name="n1", labels=(("a", "b"),)))
    interfaces = (NodeInterface(name="eth0"),)
    both = (wanted("10.0.0.1/24"), wanted("fd00::1/64", family=V6))
    after = register_addresses(before, both, interfaces, 65_000)
    assert after.metadata == before.metadata
    assert after.spec.interfaces == interfaces
    assert after.spec.bgp == NodeBGP(
        ipv4_address=held("10.0.0.1/24"), ipv6_address=held("fd00::1/64"), as_number=65_000
    )
    assert register_addresses(after, (), interfaces, None) == after
    moved = register_addresses(after, (wanted("10.0.0.2/24"), wanted("", None, V6)), interfaces, None)
    assert moved.spec.bgp == NodeBGP(ipv4_address=held("10.0.0.2/24"), as_number=65_000)


def test_what_has_nothing_of_bgp_is_not_stored_with_an_empty_object() -> None:
    assert register_addresses(node(), (wanted("", None),), (), None).spec.bgp is None
    assert register_addresses(node(v4="10.0.0.1/24"), (wanted("", None),), (), None).spec.bgp is None


def test_the_interfaces_of_a_node_are_those_that_lead_to_other_machines() -> None:
    odd = interface("eno1", 5, "10.0.0.2/24", "fd00::2/64 tentative", "fe80::2/64", "10.0.0.1/24")
    assert find_node_interfaces(
        (*HOST, odd, interface("eth9", 8, "fe80::9/64"), interface("vxlan.netplug", 7, "10.65.0.1/32"))
    ) == (
        NodeInterface(name="eno1", addresses=(Address.parse("10.0.0.1"), Address.parse("10.0.0.2"))),
        NodeInterface(name="eth0", addresses=(Address.parse("10.240.0.11"), Address.parse("fd10::11"))),
        NodeInterface(name="eth1", addresses=(Address.parse("10.241.0.11"),)),
    )


def test_interfaces_of_pods_and_tunnels_change_nothing() -> None:
    pods = (
        interface("netp12", 20, "fe80::1/64"),
        interface("veth1", 21, "fe80::2/64"),
        interface("netp13", 22, "10.9.0.1/24"),
    )
    tunnel = interface("vxlan.netplug", 7, "10.65.0.1/32")
    down = interface("eth7", 8, is_up=False)
    assert find_relevant_interfaces((*HOST, *pods, tunnel, down)) == (ETH0, ETH1, DOCKER, down)


def test_a_node_without_any_address_is_a_problem_unless_another_one_says_so() -> None:
    none = (wanted("", None), wanted("", None, V6))
    problem = find_lack(none)
    assert problem is not None
    assert problem.message == "the node has no address: other nodes do not reach its pods"
    assert find_lack((wanted("10.0.0.1/24"), none[1])) is None
    assert find_lack((evolve(none[0], problems=(problem,)), none[1])) is None
    assert none[0].origin_text == ""


# --- conflicts --------------------------------------------------------------------------------------------------------

OTHERS = (node("n3", "10.0.0.3/24"), node("n2", "10.0.0.2/24", "fd00::2/64"), node("n4", "10.0.0.2/16"), node("n5"))


def test_another_node_with_an_address_that_is_new_is_a_conflict() -> None:
    (found,) = find_conflicts(node(), (wanted("10.0.0.2/24"), wanted("", None, V6)), OTHERS)
    assert (found.node, str(found)) == ("n2", "the node n2 has the address 10.0.0.2")
    assert not found.is_configured
    assert (found.problem.message, found.problem.cause) == (
        "the detected IPv4 address is not registered",
        "the node n2 has the address 10.0.0.2",
    )
    (found,) = find_conflicts(node(), (wanted("10.0.0.9/24"), wanted("fd00::2/64", Origin.CONFIGURED, V6)), OTHERS)
    assert (str(found), found.is_configured) == ("the node n2 has the address fd00::2", True)


def test_what_the_node_has_already_or_no_other_one_has_is_no_conflict() -> None:
    assert find_conflicts(node(v4="10.0.0.2/24"), (wanted("10.0.0.2/24"),), OTHERS) == ()
    assert find_conflicts(node(), (wanted("10.0.0.9/24"),), (*OTHERS, node("n1", "10.0.0.9/24"))) == ()


def test_of_two_nodes_that_both_have_an_address_the_lower_name_keeps_it() -> None:
    both = (evolve(node(v4="10.0.0.9/24"), metadata=Metadata(name=name)) for name in ("n1", "n7"))
    low, high = both
    for origin, left in ((Origin.DETECTED, None), (Origin.CONFIGURED, None)):
        addresses = (wanted("10.0.0.9/24", origin),)
        assert find_conflicts(low, addresses, (low, high)) == ()
        (found,) = conflicts = find_conflicts(high, addresses, (low, high))
        assert str(found) == "the node n1 has the address 10.0.0.9"
        (kept,) = without_conflicts(high, addresses, conflicts)
        assert (kept.address, kept.origin) == (left, None)
    assert not is_contested(low, (low, high))
    assert is_contested(high, (low, high))
    assert not is_contested(high, (node("n0"), node("n2", "10.0.0.8/24")))


def test_a_detected_address_in_conflict_is_cleared_and_a_configured_one_not_taken() -> None:
    before = node(v4="10.0.0.7/24", v6="fd00::7/64")
    for origin, expected in (
        (Origin.DETECTED, (None, None)),
        (Origin.CONFIGURED, (held("10.0.0.7/24"), Origin.STORED)),
    ):
        addresses = (wanted("10.0.0.2/24", origin), wanted("fd00::8/64", origin, V6))
        conflicts = find_conflicts(before, addresses, OTHERS)
        first, second = without_conflicts(before, addresses, conflicts)
        assert (first.address, first.origin) == expected
        assert [str(step) for step in first.trace] == [
            "10.0.0.2/24: not registered: the node n2 has the address 10.0.0.2"
        ]
        assert second == addresses[1]


# --- another node -----------------------------------------------------------------------------------------------------


def test_what_another_node_has_registered_is_described_by_what_is_stored() -> None:
    interfaces = (
        NodeInterface(name="eth0", addresses=(Address.parse("10.0.0.1"), Address.parse("10.0.0.9"))),
        NodeInterface(name="eth1", addresses=(Address.parse("fd00::1"),)),
    )
    found = node(v4="10.0.0.1/24", v6="fd00::7/64")
    found = evolve(found, spec=evolve(found.spec, interfaces=interfaces))
    twins = (node("n3", "10.0.0.1/16"), found, node("n2", "10.0.0.1/24", "fd00::8/64"))
    addresses, problems = describe_registered(found, twins)
    assert [(str(each.address), [str(step) for step in each.trace]) for each in addresses] == [
        ("10.0.0.1/24", ["eth0 10.0.0.1: registered", "eth0 10.0.0.9: not chosen"]),
        ("fd00::7/64", ["eth1 fd00::1: not chosen", "fd00::7/64: on no interface that the node has registered"]),
    ]
    assert [each.cause for each in problems] == [f"the node {name} has the address 10.0.0.1" for name in ("n2", "n3")]


def test_a_node_that_has_registered_no_address_is_a_problem() -> None:
    addresses, problems = describe_registered(node(), (node(), node("n2", "10.0.0.2/24")))
    assert [(each.address, each.trace) for each in addresses] == [(None, ()), (None, ())]
    assert [each.message for each in problems] == ["the node has no address: other nodes do not reach its pods"]
