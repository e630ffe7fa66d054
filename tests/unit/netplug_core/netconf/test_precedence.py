"""Which annotation wins over what, and which the configuration does not allow."""

from __future__ import annotations

import pytest

from netplug_core.addressing import Address
from netplug_core.errors import ConfigurationError
from netplug_core.ipam.allocation.request import Specific
from netplug_core.netconf.annotations import AnnotatedPod, PodAnnotations, parse_annotations
from netplug_core.netconf.model import FeatureControl, IPAMConfig, NetConf
from netplug_core.netconf.precedence import ResolvedAddresses, require_allowed, resolve_addresses
from netplug_core.orchestrator.model import PodName

PREFIX = "cni.projectnetplug.org"
FOUR, SIX = Address.parse("10.0.0.9"), Address.parse("fd00::9")
CONFIGURED = IPAMConfig(type="netplug-ipam", ipv4_pools=("configured",), ipv6_pools=("six",))


def annotated(**texts: str) -> tuple[AnnotatedPod, PodAnnotations]:
    own = tuple((f"{PREFIX}/{name}", text) for name, text in texts.items())
    pod = AnnotatedPod(name=PodName("test", "web"), annotations=own)
    return pod, parse_annotations(pod)


def resolve(address: Address | None = None, **texts: str) -> ResolvedAddresses:
    return resolve_addresses(*annotated(**texts), CONFIGURED, address)


# --- precedence (spec 4) --------------------------------------------------------------------------------------------


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
        "IP=10.0.0.9 of CNI_ARGS is an IPv4 address, and ipFamilies must name its family"
    )


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
