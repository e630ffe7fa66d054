"""Laws of results in the shapes of all versions.

1. The newest shape loses nothing: what is rendered and read again is the same result.
2. A version from 0.3.0 on loses the details that it has no members for, and nothing else.
3. The oldest shape keeps the first address of each family and the routes of those families, and name resolution.
4. In every version, what survived once survives again: rendering is stable.
5. The text is indented as Python's encoder indents it.
6. Joining results keeps everything, leaves every address with its interface, and is associative.
"""

import json

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Family
from netplug_core.cni.dispatch import SUPPORTED_VERSIONS, CNIVersion, ResultFormat
from netplug_core.cni.result import (
    CNIInterface,
    CNIResult,
    CNIRoute,
    IPConfig,
    parse_result,
    render_result,
)
from netplug_core.ipam.allocation.request import DNS
from netplug_core.testing.strategies import addresses, families, prefixes

NUMBERS = st.none() | st.integers(0, 2**32 - 1)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)

OLD = tuple(version for version in SUPPORTED_VERSIONS if version.result_format is ResultFormat.PER_FAMILY)
NEW = tuple(version for version in SUPPORTED_VERSIONS if version not in OLD)


@st.composite
def assigned(draw: st.DrawFn, interface_count: int) -> IPConfig:
    family = draw(families())
    positions = st.integers(0, interface_count - 1) if interface_count else st.nothing()
    return IPConfig(
        address=draw(addresses(family)),
        length=draw(st.integers(0, family.width)),
        gateway=draw(st.none() | addresses(family)),
        interface=draw(st.none() | positions),
    )


@st.composite
def routes(draw: st.DrawFn) -> CNIRoute:
    family = draw(families())
    return CNIRoute(
        destination=draw(prefixes(family=family)),
        gateway=draw(st.none() | addresses(family)),
        mtu=draw(NUMBERS),
        advmss=draw(NUMBERS),
        priority=draw(NUMBERS),
        table=draw(NUMBERS),
        scope=draw(NUMBERS),
    )


INTERFACES = st.builds(
    CNIInterface,
    name=NAMES,
    mac=WORDS,
    mtu=st.integers(0, 2**32 - 1),
    sandbox=WORDS,
    socket_path=WORDS,
    pci_id=WORDS,
)
TEXTS = st.lists(WORDS, max_size=2).map(tuple)
DNS_SETTINGS = st.builds(DNS, nameservers=TEXTS, domain=WORDS, search=TEXTS, options=TEXTS)


@st.composite
def results(draw: st.DrawFn, *, min_ips: int = 0) -> CNIResult:
    interfaces = tuple(draw(st.lists(INTERFACES, max_size=3)))
    return CNIResult(
        interfaces=interfaces,
        ips=tuple(draw(st.lists(assigned(len(interfaces)), min_size=min_ips, max_size=4))),
        routes=tuple(draw(st.lists(routes(), max_size=4))),
        dns=draw(DNS_SETTINGS),
    )


def reread(result: CNIResult, version: CNIVersion) -> CNIResult:
    document = json.loads(render_result(result, version.text))
    return parse_result(document, path="result", cni_version="1.1.0")


def without_details(result: CNIResult) -> CNIResult:
    return evolve(
        result,
        interfaces=tuple(evolve(i, mtu=0, socket_path="", pci_id="") for i in result.interfaces),
        routes=tuple(CNIRoute(destination=r.destination, gateway=r.gateway) for r in result.routes),
    )


def first_of_each_family(result: CNIResult) -> CNIResult:
    firsts: dict[Family, IPConfig] = {}
    for ip in result.ips:
        firsts.setdefault(ip.address.family, evolve(ip, interface=None))
    kept = without_details(result)
    return CNIResult(
        ips=tuple(firsts[family] for family in Family if family in firsts),
        routes=tuple(
            route
            for family in Family
            if family in firsts
            for route in kept.routes
            if route.destination.family is family
        ),
        dns=result.dns,
    )


@given(results())
def test_the_newest_shape_loses_nothing(result: CNIResult) -> None:
    assert reread(result, SUPPORTED_VERSIONS[-1]) == result


@given(results(), st.sampled_from(NEW))
def test_newer_shapes_lose_only_details(result: CNIResult, version: CNIVersion) -> None:
    expected = result if version.has_extended_fields else without_details(result)
    assert reread(result, version) == expected


@given(results(min_ips=1), st.sampled_from(OLD))
def test_the_oldest_shape_keeps_the_first_address_of_each_family(result: CNIResult, version: CNIVersion) -> None:
    assert reread(result, version) == first_of_each_family(result)


@given(results(min_ips=1), st.sampled_from(SUPPORTED_VERSIONS))
def test_rendering_is_stable(result: CNIResult, version: CNIVersion) -> None:
    once = reread(result, version)
    assert reread(once, version) == once
    assert render_result(once, version.text) == render_result(result, version.text)


@given(results(min_ips=1), st.sampled_from(SUPPORTED_VERSIONS))
def test_the_text_is_that_of_the_indenting_encoder(result: CNIResult, version: CNIVersion) -> None:
    text = render_result(result, version.text)
    assert text == json.dumps(json.loads(text), indent=4) + "\n"


def ends(result: CNIResult) -> list[tuple[str, CNIInterface | None]]:
    """Each address with the interface it is on."""
    return [(str(ip), None if ip.interface is None else result.interfaces[ip.interface]) for ip in result.ips]


@given(results(), results(), results())
def test_joining_keeps_everything_in_place(first: CNIResult, second: CNIResult, third: CNIResult) -> None:
    joined = first.chained_with(second)
    assert ends(joined) == ends(first) + ends(second)
    assert joined.routes == first.routes + second.routes
    assert joined.chained_with(third) == first.chained_with(second.chained_with(third))
    assert first.chained_with(CNIResult()) == CNIResult().chained_with(first) == first
