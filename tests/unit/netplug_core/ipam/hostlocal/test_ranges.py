"""host-local: the ranges of a configuration, what is refused, and the order of their addresses."""

import pytest

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.ipam.hostlocal.settings import (
    SUBNET_ACCEPTED,
    RangeSet,
    load_settings,
    make_range_sets,
    require_one_set_per_family,
)

WHERE = "network configuration.ipam"
V4, V6 = Prefix.parse("10.10.0.0/24"), Prefix.parse("fd10::/64")


def make(*sets: list[dict[str, str]], pod_cidrs: tuple[Prefix, ...] = ()) -> tuple[RangeSet, ...]:
    return make_range_sets(load_settings({"ipam": {"ranges": list(sets)}}), "node-1", pod_cidrs)


def order(made: RangeSet, after: str = "") -> list[str]:
    return [str(address) for address, _range in made.candidates(Address.parse(after) if after else None)]


@pytest.mark.parametrize(
    "cidr,first,last,gateway",
    [
        ("10.0.0.0/29", "10.0.0.1", "10.0.0.6", "10.0.0.1"),
        ("10.0.0.0/30", "10.0.0.1", "10.0.0.2", "10.0.0.1"),
        ("fd00::/125", "fd00::1", "fd00::7", "fd00::1"),
    ],
)
def test_defaults(cidr: str, first: str, last: str, gateway: str) -> None:
    ((one,),) = (each.ranges for each in make([{"subnet": cidr}]))
    assert (str(one.first), str(one.last), str(one.gateway)) == (first, last, gateway)
    assert str(one) == f"{first}-{last}"


def test_the_order_is_a_ring_without_gateways() -> None:
    (made,) = make([{"subnet": "10.0.0.0/29", "rangeStart": "10.0.0.5"}, {"subnet": "10.0.1.0/30"}])
    assert order(made) == ["10.0.0.5", "10.0.0.6", "10.0.1.2"]
    assert order(made, "10.0.0.5") == ["10.0.0.6", "10.0.1.2", "10.0.0.5"]
    assert order(made, "10.0.1.2") == ["10.0.0.5", "10.0.0.6", "10.0.1.2"]
    assert order(made, "10.9.9.9") == order(made)
    assert str(made) == "10.0.0.5-10.0.0.6,10.0.1.1-10.0.1.2"
    assert made.family is Family.IPV4


def test_a_huge_range_is_never_listed() -> None:
    (made,) = make([{"subnet": "fd00::/32"}])
    assert str(next(made.candidates(None))[0]) == "fd00::2"


def test_what_lies_in_a_range() -> None:
    (made,) = make([{"subnet": "10.0.0.0/29", "rangeStart": "10.0.0.3"}])
    assert made.find_range(Address.parse("10.0.0.3")) == made.ranges[0]
    for outside in ("10.0.0.2", "10.0.0.7", "::a00:3"):
        assert made.find_range(Address.parse(outside)) is None


@pytest.mark.parametrize(
    "sets,text",
    [
        ((), "ranges: [] is not accepted; no IP ranges are specified; a subnet or a list of range sets is expected"),
        (([],), "ranges[0]: [] is not accepted; a range set with at least one range is expected"),
        (
            ([{}],),
            f"ranges[0][0].subnet: None is not accepted; {SUBNET_ACCEPTED}",
        ),
        (
            ([{"subnet": "10.0.0.0/31"}],),
            "ranges[0][0].subnet: '10.0.0.0/31' is not accepted; it has too few addresses; at most /30 is possible",
        ),
        (
            ([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.1"}],),
            "ranges[0][0].rangeStart: '10.0.1.1' is not accepted; an address of 10.0.0.0/24 is expected",
        ),
        (
            ([{"subnet": "10.0.0.0/24", "rangeEnd": "fd00::1"}],),
            "ranges[0][0].rangeEnd: 'fd00::1' is not accepted; an address of 10.0.0.0/24 is expected",
        ),
        (
            ([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}],),
            "ranges[0][0].rangeEnd: '10.0.0.8' is not accepted; an address of 10.0.0.0/24 from 10.0.0.9 on is expected",
        ),
        (
            ([{"subnet": "10.0.0.0/24", "gateway": "fd00::1"}],),
            "ranges[0][0].gateway: 'fd00::1' is not accepted; an IPv4 address is expected, as 10.0.0.0/24 is",
        ),
        (
            ([{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}],),
            "ranges[0][1].subnet: 'fd00::/64' is not accepted; a set is of one family, and its first range is IPv4",
        ),
        (
            ([{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/30"}],),
            "ranges[0][1]: '10.0.0.1-10.0.0.2' is not accepted; it overlaps another range of the same set",
        ),
        (
            ([{"subnet": "fd00::/64"}], [{"subnet": "10.0.0.0/30"}], [{"subnet": "10.0.0.0/24"}]),
            "ranges[2]: '10.0.0.1-10.0.0.254' is not accepted; range set 2 overlaps range set 1 (10.0.0.1-10.0.0.2)",
        ),
    ],
)
def test_what_is_refused(sets: tuple[list[dict[str, str]], ...], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(*sets)
    assert str(caught.value) == f"{WHERE}.{text}"


def test_one_subnet_may_have_several_ranges() -> None:
    (made,) = make(
        [
            {"subnet": "10.0.0.0/24", "rangeEnd": "10.0.0.3"},
            {"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.9"},
        ]
    )
    assert order(made) == ["10.0.0.2", "10.0.0.3", "10.0.0.9"]


def test_one_range_set_per_family() -> None:
    sets = [[{"subnet": "10.0.0.0/24"}], [{"subnet": "fd00::/64"}], [{"subnet": "fd01::/64"}]]
    settings = load_settings({"ipam": {"ranges": sets}})
    made = make_range_sets(settings)
    require_one_set_per_family(settings, made[:2])
    with pytest.raises(ConfigurationError) as caught:
        require_one_set_per_family(settings, made)
    assert str(caught.value) == (
        f"{WHERE}.ranges[2]: 'fd01::1-fd01::ffff:ffff:ffff:ffff' is not accepted;"
        " a result of this CNI version has one address of a family; leave one IPv6 range set"
    )


def test_the_pod_cidrs_of_the_node() -> None:
    made = make([{"subnet": "usePodCidr"}], [{"subnet": "usepodcidripv6"}], pod_cidrs=(V6, V4))
    assert [one.ranges[0].subnet for one in made] == [V4, V6]


@pytest.mark.parametrize(
    "name,cidrs,text",
    [
        (
            "usePodCidrIPv6",
            (V4,),
            "usePodCidrIPv6 found but there is no IPv6 CIDR configured: node node-1 has 10.10.0.0/24",
        ),
        (
            "usePodCidr",
            (V4, V6, Prefix.parse("10.11.0.0/24")),
            "ClusterCIDR contains two ranges of the same type: 10.10.0.0/24, 10.11.0.0/24",
        ),
    ],
)
def test_pod_cidrs_that_do_not_fit(name: str, cidrs: tuple[Prefix, ...], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make([{"subnet": name}], pod_cidrs=cidrs)
    assert str(caught.value) == f"{WHERE}.ranges[0][0].subnet: {name!r} is not accepted; {text}"


def test_a_node_without_a_pod_cidr_may_get_one_later() -> None:
    with pytest.raises(Unavailable, match="no podCidr for node node-1"):
        make([{"subnet": "usePodCidr"}])
