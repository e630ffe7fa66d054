"""Which annotation wins over what, and which the configuration does not allow."""

from __future__ import annotations

import pytest

from netplug_core.addressing import Address
from netplug_core.cni.request import CNIArgs
from netplug_core.errors import ConfigurationError, RequestError
from netplug_core.ipam.allocation.request import Specific
from netplug_core.netconf.model import (
    FeatureControl,
    IPAMConfig,
    NetConf,
    Requested,
    RequestedAddress,
    RuntimeParameters,
)
from netplug_core.netconf.precedence import (
    AnnotatedPod,
    PodAnnotations,
    ResolvedAddresses,
    find_requested,
    parse_annotations,
    require_allowed,
    resolve_addresses,
)
from netplug_core.orchestrator.model import PodName

PREFIX = "cni.projectnetplug.org"
FOUR, SIX, SEVEN = (Address.parse(text) for text in ("10.0.0.9", "fd00::9", "fd00::7"))
CONFIGURED = IPAMConfig(type="netplug-ipam", ipv4_pools=("configured",), ipv6_pools=("six",))


def annotated(**texts: str) -> tuple[AnnotatedPod, PodAnnotations]:
    own = tuple((f"{PREFIX}/{name}", text) for name, text in texts.items())
    pod = AnnotatedPod(name=PodName("test", "web"), annotations=own)
    return pod, parse_annotations(pod)


def resolve(address: Address | None = None, **texts: str) -> ResolvedAddresses:
    requested = () if address is None else (RequestedAddress(address=address, source="IP of CNI_ARGS"),)
    return resolve_addresses(*annotated(**texts), CONFIGURED, requested)


# --- precedence --------------------------------------------------------------------------------------------


def test_without_annotations_the_configuration_counts() -> None:
    assert resolve() == ResolvedAddresses(ipam=CONFIGURED)


def test_pools_of_an_annotation_replace_those_of_the_configuration() -> None:
    ipam = resolve(ipv4pools='["a", "b"]').ipam
    assert (ipam.ipv4_pools, ipam.ipv6_pools) == (("a", "b"), ("six",))
    assert (ipam.assign_ipv4, ipam.assign_ipv6) == (True, False)


def test_pools_do_not_switch_a_family_on() -> None:
    ipam = resolve(ipv6pools='["b"]').ipam
    assert (ipam.assign_ipv6, ipam.ipv6_pools) == (False, ("b",))


@pytest.mark.parametrize("text,on", [('["IPv4"]', (True, False)), ('["IPv6"]', (False, True))])
def test_families_that_are_not_listed_are_off(text: str, on: tuple[bool, bool]) -> None:
    ipam = resolve(ipFamilies=text).ipam
    assert (ipam.assign_ipv4, ipam.assign_ipv6) == on
    assert (ipam.ipv4_pools, ipam.ipv6_pools) == (CONFIGURED.ipv4_pools, CONFIGURED.ipv6_pools)


@pytest.mark.parametrize("address", [None, FOUR])
def test_addresses_go_before_everything_else(address: Address | None) -> None:
    others = {"ipv4pools": '["a"]', "ipFamilies": '["IPv4"]'}
    found = resolve(address, ipAddrs='["fd00::9", "10.0.0.9"]', **others)
    assert found.specific == (Specific(address=SIX), Specific(address=FOUR))
    found = resolve(address, ipAddrsNoIpam='["fd00::9"]', **others)
    assert (found.specific, found.unmanaged) == ((), (SIX,))


def test_the_pools_of_an_annotation_restrict_the_address_of_cni_args() -> None:
    assert resolve(FOUR, ipv4pools='["a"]').specific == (Specific(address=FOUR, pools=("a",)),)
    assert resolve(FOUR, ipv6pools='["a"]').specific == (Specific(address=FOUR),)
    assert resolve(SIX, ipFamilies='["IPv6"]').specific == (Specific(address=SIX),)


def test_an_address_of_cni_args_whose_family_the_pod_switches_off() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(FOUR, ipFamilies='["IPv6"]')
    assert str(caught.value) == (
        f"annotation {PREFIX}/ipFamilies of pod test/web: '[\"IPv6\"]' is not accepted; "
        "IP of CNI_ARGS asks for 10.0.0.9, an IPv4 address, and ipFamilies must name its family"
    )


# --- what the caller asks for -----------------------------------------------------------------------------------------

NOTHING = RuntimeParameters()
ONE_MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"


def requested(args: str = "", runtime: RuntimeParameters = NOTHING, ipam_type: str = "netplug-ipam") -> Requested:
    ipam = IPAMConfig(type=ipam_type, is_delegated=ipam_type == "my-ipam")
    return find_requested(CNIArgs.parse(args), NetConf(ipam=ipam, runtime=runtime), has_interface=True)


def addresses_of(found: Requested) -> list[tuple[str, str]]:
    return [(str(one.address), one.source) for one in found.addresses]


def test_every_place_that_asks_counts() -> None:
    assert requested() == Requested()
    assert addresses_of(requested("IP=10.0.0.9")) == [("10.0.0.9", "IP of CNI_ARGS")]
    assert addresses_of(requested(runtime=RuntimeParameters(runtime_ips=(SIX, FOUR)))) == [
        ("10.0.0.9", "runtimeConfig.ips"), ("fd00::9", "runtimeConfig.ips"),
    ]  # fmt: skip
    both = requested("IP=10.0.0.9", RuntimeParameters(runtime_ips=(FOUR,), argument_ips=(SIX,)))
    assert addresses_of(both) == [("10.0.0.9", "IP of CNI_ARGS"), ("fd00::9", "args.cni.ips")]
    for args, parameters in (
        ("MAC=02-00-00-00-00-01", RuntimeParameters()),
        ("", RuntimeParameters(runtime_mac=ONE_MAC)),
        ("", RuntimeParameters(argument_mac=ONE_MAC)),
        ("MAC=0200.0000.0001", RuntimeParameters(runtime_mac=ONE_MAC, argument_mac=ONE_MAC)),
    ):
        assert requested(args, parameters).mac == ONE_MAC


@pytest.mark.parametrize(
    "args,parameters,where,first",
    [
        (
            "IP=10.0.0.1",
            RuntimeParameters(runtime_ips=(FOUR,)),
            "runtimeConfig.ips: '10.0.0.9'",
            "IP of CNI_ARGS asks for 10.0.0.1",
        ),
        ("", RuntimeParameters(argument_ips=(SIX, SEVEN)), "args.cni.ips: 'fd00::7'", "args.cni.ips asks for fd00::9"),
        (
            f"MAC={ONE_MAC}",
            RuntimeParameters(argument_mac=OTHER_MAC),
            f"args.cni.mac: '{OTHER_MAC}'",
            f"MAC of CNI_ARGS asks for {ONE_MAC}",
        ),
        (
            "",
            RuntimeParameters(runtime_mac=ONE_MAC, argument_mac=OTHER_MAC),
            f"args.cni.mac: '{OTHER_MAC}'",
            f"runtimeConfig.mac asks for {ONE_MAC}",
        ),
    ],
)
def test_two_that_disagree_are_named_both(args: str, parameters: RuntimeParameters, where: str, first: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        requested(args, parameters)
    assert (caught.value.code, str(caught.value).split(", and ")[0]) == (7, f"{where} is not accepted; {first}")


@pytest.mark.parametrize("mac", ["x", "01:00:5e:00:00:01", "ee:ee:ee:ee:ee:ee", "00:00:00:00:00:00"])
def test_a_mac_of_cni_args_that_is_none(mac: str) -> None:
    with pytest.raises(RequestError, match=rf"^ARGS: MAC: '{mac}': the 6 bytes of a unicast address are expected"):
        requested(f"MAC={mac}")


@pytest.mark.parametrize("ipam_type", ["host-local", "my-ipam"])
def test_other_ipams_read_the_addresses_of_the_configuration_themselves(ipam_type: str) -> None:
    several = (FOUR, Address.parse("10.0.0.10"))
    runtime = RuntimeParameters(runtime_ips=several, argument_ips=several, runtime_mac=ONE_MAC)
    found = requested("IP=10.0.0.1", runtime, ipam_type)
    assert (addresses_of(found), found.mac) == ([("10.0.0.1", "IP of CNI_ARGS")], ONE_MAC)


# --- what the configuration allows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name,text,feature",
    [
        ("ipAddrsNoIpam", '["10.0.0.9"]', "ip_addrs_no_ipam"),
        ("floatingIPs", "[]", "floating_ips"),
        ("allowedSourcePrefixes", '["8.8.8.8/32"]', "allowed_source_prefixes"),
    ],
)
def test_checks_84_and_85_a_feature_that_is_off(name: str, text: str, feature: str) -> None:
    pod, annotations = annotated(**{name: text})
    with pytest.raises(ConfigurationError) as caught:
        require_allowed(pod, annotations, NetConf(ipam=CONFIGURED))
    assert str(caught.value) == (
        f"annotation {PREFIX}/{name} of pod test/web: {text!r} is not accepted; "
        f"requested feature is not enabled: {feature}; feature_control.{feature} must be true"
    )
    on = FeatureControl(ip_addrs_no_ipam=True, floating_ips=True, allowed_source_prefixes=True)
    require_allowed(pod, annotations, NetConf(ipam=CONFIGURED, feature_control=on))


@pytest.mark.parametrize(
    "name,text",
    [
        ("ipv4pools", '["a"]'), ("ipv6pools", '["a"]'), ("ipFamilies", '["IPv4"]'), ("ipAddrs", '["10.0.0.9"]'),
        ("ipAddrsNoIpam", '["10.0.0.9"]'),
    ],
)  # fmt: skip
def test_annotations_about_addresses_need_netplugs_own_ipam(name: str, text: str) -> None:
    pod, annotations = annotated(**{name: text, "hwAddr": "02:00:00:00:00:01"})
    netconf = NetConf(ipam=IPAMConfig(type="host-local"), feature_control=FeatureControl(ip_addrs_no_ipam=True))
    with pytest.raises(ConfigurationError) as caught:
        require_allowed(pod, annotations, netconf)
    assert str(caught.value) == (
        f"annotation {PREFIX}/{name} of pod test/web: {text!r} is not accepted; "
        f"{name} is not compatible with configured IPAM: host-local; netplug-ipam is needed"
    )


def test_check_87_a_hardware_address_works_with_every_ipam() -> None:
    require_allowed(*annotated(hwAddr="ca:fe:ca:fe:ca:fe"), NetConf(ipam=IPAMConfig(type="host-local")))
