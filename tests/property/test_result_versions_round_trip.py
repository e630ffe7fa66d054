"""Laws of results in the shapes of all versions.

1. The newest shape loses nothing: what is rendered and read again is the same result.
2. A version from 0.3.0 on loses the details that it has no members for, and nothing else.
3. The oldest shape keeps the first address of each family and the routes of those families, and name resolution.
4. In every version, what survived once survives again: rendering is stable.
5. Joining results keeps everything, leaves every address with its interface, and is associative.
"""

import json

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Family
from netplug_core.cni.result import (
    DNS,
    AssignedAddress,
    Interface,
    Result,
    Route,
    parse_result,
    render_result,
)
from netplug_core.cni.versions import VERSIONS, AddressShape, SpecVersion
from netplug_core.testing.strategies import addresses, families, prefixes

NUMBERS = st.none() | st.integers(0, 2**32 - 1)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)

OLD = tuple(version for version in VERSIONS if version.shape is AddressShape.PER_FAMILY)
NEW = tuple(version for version in VERSIONS if version not in OLD)


@st.composite
def assigned(draw: st.DrawFn, interface_count: int) -> AssignedAddress:
    family = draw(families())
    positions = st.integers(0, interface_count - 1) if interface_count else st.nothing()
    return AssignedAddress(
        address=draw(addresses(family)),
        length=draw(st.integers(0, family.width)),
        gateway=draw(st.none() | addresses(family)),
        interface=draw(st.none() | positions),
    )


@st.composite
def routes(draw: st.DrawFn) -> Route:
    family = draw(families())
    return Route(
        destination=draw(prefixes(family=family)),
        gateway=draw(st.none() | addresses(family)),
        mtu=draw(NUMBERS),
        advmss=draw(NUMBERS),
        priority=draw(NUMBERS),
        table=draw(NUMBERS),
        scope=draw(NUMBERS),
    )


INTERFACES = st.builds(
    Interface,
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
def results(draw: st.DrawFn, *, min_ips: int = 0) -> Result:
    interfaces = tuple(draw(st.lists(INTERFACES, max_size=3)))
    return Result(
        interfaces=interfaces,
        ips=tuple(draw(st.lists(assigned(len(interfaces)), min_size=min_ips, max_size=4))),
        routes=tuple(draw(st.lists(routes(), max_size=4))),
        dns=draw(DNS_SETTINGS),
    )


def reread(result: Result, version: SpecVersion) -> Result:
    document = json.loads(render_result(result, version.text))
    return parse_result(document, where="result", cni_version="1.1.0")


def without_details(result: Result) -> Result:
    return evolve(
        result,
        interfaces=tuple(evolve(i, mtu=0, socket_path="", pci_id="") for i in result.interfaces),
        routes=tuple(Route(destination=r.destination, gateway=r.gateway) for r in result.routes),
    )


def first_of_each_family(result: Result) -> Result:
    firsts: dict[Family, AssignedAddress] = {}
    for ip in result.ips:
        firsts.setdefault(ip.address.family, evolve(ip, interface=None))
    kept = without_details(result)
    return Result(
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
def test_the_newest_shape_loses_nothing(result: Result) -> None:
    assert reread(result, VERSIONS[-1]) == result


@given(results(), st.sampled_from(NEW))
def test_newer_shapes_lose_only_details(result: Result, version: SpecVersion) -> None:
    expected = result if version.has_details else without_details(result)
    assert reread(result, version) == expected


@given(results(min_ips=1), st.sampled_from(OLD))
def test_the_oldest_shape_keeps_the_first_address_of_each_family(result: Result, version: SpecVersion) -> None:
    assert reread(result, version) == first_of_each_family(result)


@given(results(min_ips=1), st.sampled_from(VERSIONS))
def test_rendering_is_stable(result: Result, version: SpecVersion) -> None:
    once = reread(result, version)
    assert reread(once, version) == once
    assert render_result(once, version.text) == render_result(result, version.text)


def ends(result: Result) -> list[tuple[str, Interface | None]]:
    """Each address with the interface it is on."""
    return [(str(ip), None if ip.interface is None else result.interfaces[ip.interface]) for ip in result.ips]


@given(results(), results(), results())
def test_joining_keeps_everything_in_place(first: Result, second: Result, third: Result) -> None:
    joined = first.followed_by(second)
    assert ends(joined) == ends(first) + ends(second)
    assert joined.routes == first.routes + second.routes
    assert joined.followed_by(third) == first.followed_by(second.followed_by(third))
    assert first.followed_by(Result()) == Result().followed_by(first) == first
