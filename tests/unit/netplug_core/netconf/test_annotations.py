"""The annotations of a pod and its namespace: what each text means, and how each wrong one is refused."""

from __future__ import annotations

import json

import pytest

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import ConfigurationError
from netplug_core.netconf.precedence import AnnotatedPod, AnnotationRefused, PodAnnotations, parse_annotations
from netplug_core.orchestrator.model import PodName

PREFIX = "cni.projectnetplug.org"


def parse(own: dict[str, str], of_namespace: dict[str, str] | None = None) -> PodAnnotations:
    """The annotations of a pod with these texts, and those of other programs."""
    return parse_annotations(
        AnnotatedPod(
            name=PodName("test", "web"),
            annotations=tuple(sorted({f"{PREFIX}/{name}": text for name, text in own.items()}.items())),
            namespace_annotations=(
                *((f"{PREFIX}/{name}", text) for name, text in (of_namespace or {}).items()),
                ("example.org/ipv4pools", "not ours"),
            ),
        )
    )


def refusal(own: dict[str, str], of_namespace: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(own, of_namespace)
    assert caught.value.code == 7
    return str(caught.value)


@pytest.mark.parametrize("own", [{"x of pod y": "z"}, {"hwAddr": "z"}, {"ipv4pools": "z"}])
def test_the_error_has_the_full_name_of_the_annotation(own: dict[str, str]) -> None:
    with pytest.raises(AnnotationRefused) as caught:
        parse(own)
    (name,) = own
    assert caught.value.annotation == f"{PREFIX}/{name}"
    assert str(caught.value).startswith(f"annotation {PREFIX}/{name} of pod test/web: 'z' is not accepted; ")


def addresses(*texts: str) -> tuple[Address, ...]:
    return tuple(map(Address.parse, texts))


# --- what is asked for --------------------------------------------------------------------------------------------


def test_without_annotations_nothing_is_asked_for() -> None:
    assert parse({}) == PodAnnotations()
    written_by_us = {"podIP": "10.0.0.1/32", "podIPs": "10.0.0.1/32", "containerID": "c1"}
    assert parse(written_by_us) == PodAnnotations()


def test_pools_keep_their_order() -> None:
    found = parse({"ipv4pools": '["b", "10.0.0.0/16", "a"]', "ipv6pools": '["fd00::/48"]'})
    assert found.pools == ((Family.IPV4, ("b", "10.0.0.0/16", "a")), (Family.IPV6, ("fd00::/48",)))


@pytest.mark.parametrize(
    "text,families",
    [
        ('["IPv4"]', {Family.IPV4}),
        ('["IPv6"]', {Family.IPV6}),
        ('["IPv6", "IPv4"]', {Family.IPV4, Family.IPV6}),
    ],
)
def test_families(text: str, families: set[Family]) -> None:
    assert parse({"ipFamilies": text}).families == frozenset(families)


@pytest.mark.parametrize("name,field", [("ipAddrs", "addresses"), ("ipAddrsNoIpam", "addresses_no_ipam")])
def test_addresses_keep_their_order(name: str, field: str) -> None:
    assert getattr(parse({name: '["10.0.0.1"]'}), field) == addresses("10.0.0.1")
    assert getattr(parse({name: '["fd00::1", "10.0.0.1"]'}), field) == addresses("fd00::1", "10.0.0.1")
    assert getattr(parse({name: '["::ffff:10.0.0.1", "fd00::1"]'}), field) == addresses("10.0.0.1", "fd00::1")


def test_floating_ips_are_a_set() -> None:
    found = parse({"floatingIPs": '["192.0.2.1", "2001:db8::1", "192.0.2.1"]'})
    assert found.floating_ips == addresses("192.0.2.1", "2001:db8::1")
    assert parse({"floatingIPs": "[]"}).floating_ips == ()


def test_check_86_allowed_source_prefixes_lose_their_host_bits() -> None:
    found = parse({"allowedSourcePrefixes": '["8.8.8.8/32", "1.1.1.7/24"]'})
    assert found.allowed_source_prefixes == (Prefix.parse("8.8.8.8/32"), Prefix.parse("1.1.1.0/24"))


@pytest.mark.parametrize("text", ["CA:FE:ca:fe:ca:fe", "ca-fe-ca-fe-ca-fe", "cafe.cafe.cafe"])
def test_check_87_a_hardware_address_in_any_notation(text: str) -> None:
    assert parse({"hwAddr": text}).mac == "ca:fe:ca:fe:ca:fe"


# --- the pod and its namespace --------------------------------------------------------------------------------------


def test_the_pod_wins_over_its_namespace_for_each_annotation_alone() -> None:
    found = parse({"ipv4pools": '["mine"]'}, {"ipv4pools": '["all"]', "ipv6pools": '["six"]', "ipFamilies": '["IPv6"]'})
    assert found.pools == ((Family.IPV4, ("mine",)), (Family.IPV6, ("six",)))
    assert found.families == frozenset({Family.IPV6})


def test_check_77_what_the_pod_replaces_is_not_read() -> None:
    assert parse({"ipv4pools": '["mine"]'}, {"ipv4pools": "{"}).pools == ((Family.IPV4, ("mine",)),)
    assert '"a JSON array' not in refusal({}, {"ipv4pools": "{"})


@pytest.mark.parametrize("name", ["ipv4pools", "ipFamilies", "ipAddrs", "floatingIPs", "allowedSourcePrefixes"])
def test_an_empty_text_is_not_set(name: str) -> None:
    assert parse({name: ""}) == PodAnnotations()


def test_an_empty_text_of_the_pod_leaves_that_of_the_namespace() -> None:
    assert parse({"ipv4pools": ""}, {"ipv4pools": '["all"]'}).pools == ((Family.IPV4, ("all",)),)


def test_what_only_a_pod_can_have_is_named_if_the_namespace_has_it() -> None:
    found = parse({}, {"ipAddrs": '["10.0.0.1"]', "nonsense": "x"})
    assert found == PodAnnotations(unused=(f"{PREFIX}/ipAddrs", f"{PREFIX}/nonsense"))


def test_another_prefix_is_another_programs() -> None:
    pod = AnnotatedPod(name=PodName("test", "web"), annotations=((f"{PREFIX}/ipAddrs", "x"),), prefix="net.example.org")
    assert parse_annotations(pod) == PodAnnotations()


# --- refusals -------------------------------------------------------------------------------------------------------

ARRAYS = ("ipv4pools", "ipv6pools", "ipFamilies", "ipAddrs", "ipAddrsNoIpam", "floatingIPs", "allowedSourcePrefixes")


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "text,problem",
    [
        ("10.0.0.1", "failed to parse as JSON"),
        ("[" * 100_000, "failed to parse as JSON"),
        ('"10.0.0.1"', "it is no array"),
        ("null", "it is no array"),
        ('{"a": 1}', "it is no array"),
        ("[1]", "1 is no text"),
        ("[null]", "None is no text"),
        (r'["\ud800"]', r"'\ud800' is no text"),
        (r'["a\u0000"]', r"'a\x00' is no text"),
    ],
)
def test_what_is_no_array_of_texts(name: str, text: str, problem: str) -> None:
    said = refusal({name: text})
    shown = repr(text)[:200]
    assert said.startswith(f"annotation {PREFIX}/{name} of pod test/web: {shown}")
    assert f" is not accepted; {problem}; a JSON array of " in said


POOLS = 'a JSON array of names or whole CIDRs of IP pools is expected, such as ["pool-1", "10.0.0.0/16"]'
FAMILIES = 'a JSON array of "IPv4", "IPv6" or both is expected'
KNOWN = "ipv4pools, ipv6pools, ipFamilies, ipAddrs, ipAddrsNoIpam, floatingIPs, hwAddr, allowedSourcePrefixes"


@pytest.mark.parametrize(
    "name,text,problem",
    [
        ("ipv4pools", "[]", f"specified but empty; {POOLS}"),
        (
            "ipv4pools",
            '["172.16.5.5/16"]',
            f"'172.16.5.5/16' has host bits set; 172.16.0.0/16 is the prefix that holds it; {POOLS}",
        ),
        ("ipFamilies", "[]", f"error parsing ipFamilies; {FAMILIES}"),
        ("ipFamilies", '["ipv4"]', f"error parsing ipFamilies; {FAMILIES}"),
        (
            "floatingIPs",
            '["127.0.0.1"]',
            ("invalid IP format: '127.0.0.1' (no workload can have an address of the loopback range 127.0.0.0/8);"
            " a JSON array of IPv4 and IPv6 addresses without prefix lengths is expected"),
        ),
        (
            "allowedSourcePrefixes",
            '["8.8.8.8"]',
            ("failed to parse as a CIDR: '8.8.8.8' (it has no prefix length);"
            ' a JSON array of CIDRs is expected, such as ["192.0.2.0/24"]'),
        ),
        ("ipv4Pools", '["a"]', f"there is no such annotation: {KNOWN} are accepted"),
    ],
)  # fmt: skip
def test_refusals_name_annotation_pod_value_and_what_is_accepted(name: str, text: str, problem: str) -> None:
    assert refusal({name: text}) == f"annotation {PREFIX}/{name} of pod test/web: {text!r} is not accepted; {problem}"


def test_two_annotations_that_exclude_each_other() -> None:
    assert refusal({"ipAddrs": '["10.0.0.1"]', "ipAddrsNoIpam": '["10.0.0.2"]'}) == (
        f"annotation {PREFIX}/ipAddrsNoIpam of pod test/web: '[\"10.0.0.2\"]' is not accepted; "
        "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time; leave one out"
    )


@pytest.mark.parametrize("name", ["ipAddrs", "ipAddrsNoIpam"])
@pytest.mark.parametrize(
    "items,problem",
    [
        ([], 'annotation "{}" specified but empty'),
        (["10.0.0.1", "10.0.0.2"], 'cannot have more than one IPv4 address for "{}" annotation'),
        (["10.0.0.1", "10.0.0.1"], 'cannot have more than one IPv4 address for "{}" annotation'),
        (["fd00::1", "fd00::2"], 'cannot have more than one IPv6 address for "{}" annotation'),
        (["10.0.0.1/32"], "invalid IP format: '10.0.0.1/32' ('10.0.0.1/32' is not an IP address)"),
        (
            ["fe80::1%eth0"],
            "invalid IP format: 'fe80::1%eth0' ('fe80::1%eth0' is not an IP address: a zone is not allowed)",
        ),
        (["10.0.0.01"], "invalid IP format: '10.0.0.01' ('10.0.0.01' is not an IP address)"),
        ([" 10.0.0.1"], "invalid IP format: ' 10.0.0.1' (' 10.0.0.1' is not an IP address)"),
        (
            ["224.0.0.1"],
            "invalid IP format: '224.0.0.1' (no workload can have an address of the multicast range 224.0.0.0/4)",
        ),
    ],
)
def test_check_82_addresses_that_are_refused(name: str, items: list[str], problem: str) -> None:
    accepted = "a JSON array of one IPv4 address, one IPv6 address, or one of each is expected, without prefix lengths"
    text = json.dumps(items)
    assert refusal({name: text}) == (
        f"annotation {PREFIX}/{name} of pod test/web: {text!r} is not accepted; "
        f"{problem.format(f'{PREFIX}/{name}')}; {accepted}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "invalid MAC address", "ca:fe:ca:fe:ca", "ca:fe:ca:fe:ca:fe:ca:fe", "ca:fe-ca:fe-ca:fe", "cafe.cafecafe",
        "ca:fe:ca:fe:ca:fe\n", "00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "ee:ee:ee:ee:ee:ee",
        "\u0660a:fe:ca:fe:ca:fe",
    ],
)  # fmt: skip
def test_check_87_a_hardware_address_that_no_interface_can_have(text: str) -> None:
    assert refusal({"hwAddr": text}) == (
        f"annotation {PREFIX}/hwAddr of pod test/web: {text!r} is not accepted; failed to parse MAC address provided"
        f" via {PREFIX}/hwAddr; the 6 bytes of a unicast address are expected, such as 02:00:5e:10:00:01"
    )


def test_a_long_text_is_shown_cut() -> None:
    said = refusal({"ipv4pools": json.dumps(["x" * 300, 1])})
    assert "x" * 190 in said
    assert "x" * 200 not in said
