"""Results in the shape of every version, and read back from any of them."""

import json

import pytest

from netplug_core.addressing import Address, Prefix
from netplug_core.cni.request import CNIArgs, CNICommand, CNIRequest
from netplug_core.cni.result import (
    CNIInterface,
    CNIResult,
    CNIRoute,
    IPConfig,
    find_previous_result,
    parse_result,
    render_result,
)
from netplug_core.errors import ConfigurationError, DecodeError, IncompatibleVersion
from netplug_core.ipam.allocation.request import DNS

NETNS = "/var/run/netns/cni-1"
MAC = "3a:5d:80:a2:ab:d0"


def assigned(text: str, *, interface: int | None = 1, gateway: str = "") -> IPConfig:
    bare, _, length = text.partition("/")
    return IPConfig(
        address=Address.parse(bare),
        length=int(length),
        gateway=Address.parse(gateway) if gateway else None,
        interface=interface,
    )


def route(destination: str, gateway: str = "") -> CNIRoute:
    return CNIRoute(destination=Prefix.parse(destination), gateway=Address.parse(gateway) if gateway else None)


POD = CNIResult(
    interfaces=(
        CNIInterface(name="netpbd37e2e16c8"),
        CNIInterface(name="eth0", mac=MAC, mtu=1450, sandbox=NETNS),
    ),
    ips=(assigned("10.65.0.5/32"),),
    routes=(route("0.0.0.0/0", "169.254.1.1"),),
)

DUAL = CNIResult(
    interfaces=POD.interfaces,
    ips=(
        assigned("fd00::5/128", gateway="fd00::1"),
        assigned("10.65.0.5/32"),
        assigned("10.65.0.6/32"),
    ),
    routes=(*POD.routes, route("::/0", "fe80::1"), route("10.0.0.0/8")),
    dns=DNS(nameservers=("10.0.0.10",), domain="local", search=("a.local",), options=("ndots:5",)),
)

DETAILED = CNIResult(
    interfaces=(CNIInterface(name="eth0", sandbox=NETNS, socket_path="/s", pci_id="0000:00:1f.6"),),
    ips=(assigned("10.0.0.2/24", interface=0),),
    routes=(CNIRoute(destination=Prefix.parse("10.1.0.0/16"), mtu=1400, advmss=1360, priority=0, table=254, scope=0),),
)

HOST_JSON = {"name": "netpbd37e2e16c8"}
ROUTE_JSON = {"dst": "0.0.0.0/0", "gw": "169.254.1.1"}


def rendered(result: CNIResult, version: str) -> object:
    return json.loads(render_result(result, version))


# --- rendering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_the_oldest_shape(version: str) -> None:
    assert rendered(POD, version) == {
        "cniVersion": version,
        "ip4": {"ip": "10.65.0.5/32", "routes": [ROUTE_JSON]},
    }


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
def test_the_shape_that_names_the_ip_version(version: str) -> None:
    assert rendered(POD, version) == {
        "cniVersion": version,
        "interfaces": [HOST_JSON, {"name": "eth0", "mac": MAC, "sandbox": NETNS}],
        "ips": [{"version": "4", "interface": 1, "address": "10.65.0.5/32"}],
        "routes": [ROUTE_JSON],
    }


def test_the_shape_of_1_0_0_has_no_mtu() -> None:
    assert rendered(POD, "1.0.0") == {
        "cniVersion": "1.0.0",
        "interfaces": [HOST_JSON, {"name": "eth0", "mac": MAC, "sandbox": NETNS}],
        "ips": [{"interface": 1, "address": "10.65.0.5/32"}],
        "routes": [ROUTE_JSON],
    }


def test_the_newest_shape_has_the_mtu() -> None:
    assert rendered(POD, "1.1.0") == {
        "cniVersion": "1.1.0",
        "interfaces": [HOST_JSON, {"name": "eth0", "mac": MAC, "mtu": 1450, "sandbox": NETNS}],
        "ips": [{"interface": 1, "address": "10.65.0.5/32"}],
        "routes": [ROUTE_JSON],
    }


def test_the_oldest_shape_has_the_first_address_and_the_routes_of_each_family() -> None:
    assert rendered(DUAL, "0.2.0") == {
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.65.0.5/32", "routes": [ROUTE_JSON, {"dst": "10.0.0.0/8"}]},
        "ip6": {"ip": "fd00::5/128", "gateway": "fd00::1", "routes": [{"dst": "::/0", "gw": "fe80::1"}]},
        "dns": {
            "nameservers": ["10.0.0.10"],
            "domain": "local",
            "search": ["a.local"],
            "options": ["ndots:5"],
        },
    }


def test_both_families_in_one_list() -> None:
    document = rendered(DUAL, "0.4.0")
    assert isinstance(document, dict)
    assert document["ips"] == [
        {"version": "6", "interface": 1, "address": "fd00::5/128", "gateway": "fd00::1"},
        {"version": "4", "interface": 1, "address": "10.65.0.5/32"},
        {"version": "4", "interface": 1, "address": "10.65.0.6/32"},
    ]


def test_details_are_shown_where_the_version_has_them() -> None:
    newest, before = rendered(DETAILED, "1.1.0"), rendered(DETAILED, "1.0.0")
    assert isinstance(newest, dict)
    assert isinstance(before, dict)
    assert newest["interfaces"] == [{"name": "eth0", "sandbox": NETNS, "socketPath": "/s", "pciID": "0000:00:1f.6"}]
    assert newest["routes"] == [
        {"dst": "10.1.0.0/16", "mtu": 1400, "advmss": 1360, "priority": 0, "table": 254, "scope": 0}
    ]
    assert before["interfaces"] == [{"name": "eth0", "sandbox": NETNS}]
    assert before["routes"] == [{"dst": "10.1.0.0/16"}]


def test_an_ipam_answer_has_no_interfaces() -> None:
    answer = CNIResult(ips=(assigned("10.0.0.2/24", interface=None, gateway="10.0.0.1"),))
    assert rendered(answer, "1.1.0") == {
        "cniVersion": "1.1.0",
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}],
    }


def test_the_text_is_indented_by_four_and_ends_its_line() -> None:
    assert render_result(CNIResult(ips=(assigned("10.0.0.2/24", interface=0),)), "1.0.0") == (
        '{\n    "cniVersion": "1.0.0",\n    "ips": [\n        {\n            "interface": 0,\n'
        '            "address": "10.0.0.2/24"\n        }\n    ]\n}\n'
    )


def test_a_path_that_is_no_utf8_still_makes_ascii_json() -> None:
    text = render_result(CNIResult(interfaces=(CNIInterface(name="e", sandbox="/\udcff"),)), "1.0.0")
    assert text.isascii()


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_the_oldest_shape_cannot_show_a_result_without_addresses(version: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        render_result(CNIResult(interfaces=POD.interfaces), version)
    assert str(refusal.value) == (
        f"network configuration.cniVersion: {version!r} is not accepted; "
        "a result without an address needs 0.3.0 or later"
    )


def test_newer_shapes_can() -> None:
    assert rendered(CNIResult(), "0.3.0") == {"cniVersion": "0.3.0"}


def test_an_unsupported_version_cannot_be_rendered() -> None:
    with pytest.raises(IncompatibleVersion):
        render_result(POD, "9.9.9")


# --- chaining ------------------------------------------------------------------------------------------------------


def test_our_part_comes_behind_what_was_given() -> None:
    given = CNIResult(
        interfaces=(CNIInterface(name="lo", sandbox=NETNS),),
        ips=(assigned("127.0.0.1/8", interface=0),),
        routes=(route("127.0.0.0/8"),),
    )
    merged = given.chained_with(DUAL)
    assert merged.interfaces == given.interfaces + DUAL.interfaces
    assert merged.routes == given.routes + DUAL.routes
    assert [str(ip) for ip in merged.ips] == ["127.0.0.1/8", "fd00::5/128", "10.65.0.5/32", "10.65.0.6/32"]
    assert [ip.interface for ip in merged.ips] == [0, 2, 2, 2]
    assert merged.dns == DUAL.dns


def test_an_address_without_an_interface_stays_so() -> None:
    own = CNIResult(ips=(assigned("10.0.0.2/24", interface=None),))
    assert POD.chained_with(own).ips == POD.ips + own.ips


def test_given_name_resolution_stays() -> None:
    given = CNIResult(dns=DNS(domain="given"))
    assert given.chained_with(DUAL).dns == DNS(domain="given")


# --- parsing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [POD, DUAL, DETAILED])
def test_the_newest_shape_loses_nothing(result: CNIResult) -> None:
    assert parse_result(rendered(result, "1.1.0"), path="result", cni_version="0.1.0") == result


def test_an_old_result_is_read() -> None:
    parsed = parse_result(rendered(DUAL, "0.2.0"), path="result", cni_version="1.0.0")
    assert parsed == CNIResult(
        ips=(
            assigned("10.65.0.5/32", interface=None),
            assigned("fd00::5/128", interface=None, gateway="fd00::1"),
        ),
        routes=(
            route("0.0.0.0/0", "169.254.1.1"),
            route("10.0.0.0/8"),
            route("::/0", "fe80::1"),
        ),
        dns=DUAL.dns,
    )


def test_a_result_without_a_version_has_the_callers() -> None:
    document = {"ip4": {"ip": "10.0.0.2/24"}}
    assert parse_result(document, path="result", cni_version="0.2.0").ips == (assigned("10.0.0.2/24", interface=None),)
    assert parse_result(document, path="result", cni_version="1.0.0") == CNIResult()


def test_what_others_write_is_taken() -> None:
    document = {
        "cniVersion": "1.0.0",
        "extra": True,
        "interfaces": [{"name": "eth0", "mac": "", "mtu": 1450, "sandbox": None, "extra": 1}],
        "ips": [{"version": "4", "address": "10.0.0.2/24", "gateway": "", "interface": None}],
        "routes": [{"dst": "10.0.0.5/26"}],
        "dns": {},
    }
    assert parse_result(document, path="result", cni_version="1.0.0") == CNIResult(
        interfaces=(CNIInterface(name="eth0", mtu=1450),),
        ips=(assigned("10.0.0.2/24", interface=None),),
        routes=(route("10.0.0.0/26"),),
    )


@pytest.mark.parametrize(
    "document,message",
    [
        ([], "prevResult: must be an object"),
        ({"cniVersion": "9.9.9"}, 'prevResult.cniVersion: "9.9.9" is not a supported CNI version'),
        ({"cniVersion": 1}, "prevResult.cniVersion: must be a string"),
        ({"interfaces": {}}, "prevResult.interfaces: must be an array"),
        ({"interfaces": [{}]}, "prevResult.interfaces[0].name: is missing or empty"),
        ({"ips": [{"interface": 0}]}, "prevResult.ips[0].address: is missing or empty"),
        (
            {"interfaces": [{"name": "a"}], "ips": [{"address": "10.0.0.1/8", "interface": 1}]},
            "prevResult.ips[0].interface: 1 is no position in interfaces, which has 1",
        ),
        ({"routes": [{"dst": "10.0.0.0/8", "gw": "x"}]}, "prevResult.routes[0].gw: 'x' is not an IP address"),
        ({"dns": {"search": "a"}}, "prevResult.dns.search: must be an array"),
        (
            {"cniVersion": "0.2.0", "ip6": {"ip": "10.0.0.1/8"}},
            "prevResult.ip6.ip: 10.0.0.1 is not an IPv6 address",
        ),
        ({"cniVersion": "0.2.0", "ip4": {}}, "prevResult.ip4.ip: is missing or empty"),
        (
            {"ips": [{"address": "10.0.0.1"}]},
            "prevResult.ips[0].address: '10.0.0.1' has no prefix length; address/length is expected",
        ),
    ],
)
def test_what_is_no_result_is_refused_by_its_place(document: object, message: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        find_previous_result(request_with({"prevResult": document}))
    assert str(refusal.value) == message


@pytest.mark.parametrize("config", [{}, {"prevResult": None}])
def test_a_call_may_have_no_previous_result(config: dict[str, object]) -> None:
    assert find_previous_result(request_with(config)) is None


def test_the_previous_result_is_in_the_version_of_the_call() -> None:
    document = {"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.0.0.2/24", "interface": 0}]}
    assert find_previous_result(request_with({"prevResult": document})) == CNIResult(
        interfaces=(CNIInterface(name="eth0"),), ips=(assigned("10.0.0.2/24", interface=0),)
    )


def request_with(config: dict[str, object]) -> CNIRequest:
    return CNIRequest(
        command=CNICommand.CHECK,
        container_id="abc",
        netns=NETNS,
        ifname="eth0",
        args=CNIArgs(),
        path=(),
        has_netns_override=False,
        network="net1",
        cni_version="1.0.0",
        reported_version="1.0.0",
        netconf_text="",
        netconf_mapping=config,
    )
