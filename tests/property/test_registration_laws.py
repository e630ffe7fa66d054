"""Laws of the address of a node.

The order of the interfaces does not matter. What is chosen is an address of the host that the method allows. Once it is
registered it is kept, whatever interfaces and addresses come, until it goes; and then one that is there is chosen.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.addressing import Family, InterfaceAddress, Prefix
from netplug_core.dataplane.routing import AddressState, HostAddress, HostInterface
from netplug_core.reconcile.registration import (
    ByInterface,
    ByPrefix,
    DetectionMethod,
    FirstFound,
    SkipInterface,
    choose_address,
)
from netplug_core.testing.strategies import families

NAMES = ("lo", "eth0", "eth1", "eth10", "ens3", "docker0", "netp12", "vxlan.netplug", "vip0")
TEXTS = {
    Family.IPV4: ("10.0.0.1/24", "10.0.0.2/32", "10.1.0.1/16", "169.254.0.1/16", "127.0.0.1/8", "192.0.2.1/24"),
    Family.IPV6: ("fd00::1/64", "fd00::2/128", "fd01::1/64", "fe80::1/64", "::1/128", "2001:db8::1/64"),
}
HELD = st.sampled_from([InterfaceAddress.parse(text) for texts in TEXTS.values() for text in texts])
ADDRESSES = st.builds(
    HostAddress,
    held=HELD,
    state=st.sampled_from(AddressState),
    is_secondary=st.booleans(),
    is_global=st.sampled_from([True, True, True, False]),
)
METHODS = st.sampled_from(
    [
        FirstFound(),
        ByInterface(("eth1",)),
        ByInterface(("docker", "^lo$")),
        SkipInterface(("eth0", "ens")),
        ByPrefix((Prefix.parse("10.0.0.0/16"), Prefix.parse("fd00::/16"))),
    ]
)


@st.composite
def hosts(draw: st.DrawFn) -> tuple[HostInterface, ...]:
    """Interfaces with names of their own, in any order, and addresses that no other one has."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    taken: set[InterfaceAddress] = set()
    found = []
    for index, name in enumerate(names, 1):
        listed = draw(st.lists(ADDRESSES, max_size=3, unique_by=lambda each: each.held))
        free = tuple(each for each in listed if each.held not in taken)
        taken.update(each.held for each in free)
        found.append(HostInterface(name=name, index=index, is_up=draw(st.booleans()), mtu=1500, addresses=free))
    return tuple(found)


@given(method=METHODS, family=families(), host=hosts(), registered=st.none() | HELD, data=st.data())
def test_the_order_of_the_interfaces_does_not_matter(
    method: DetectionMethod,
    family: Family,
    host: tuple[HostInterface, ...],
    registered: InterfaceAddress | None,
    data: st.DataObject,
) -> None:
    shuffled = data.draw(st.permutations(host))
    assert choose_address(method, family, shuffled, registered) == choose_address(method, family, host, registered)


@given(method=METHODS, family=families(), before=hosts(), after=hosts())
def test_a_registered_address_is_kept_until_it_goes(
    method: DetectionMethod, family: Family, before: tuple[HostInterface, ...], after: tuple[HostInterface, ...]
) -> None:
    first = choose_address(method, family, before, None).address
    if first is None:
        return
    assert any(each.held == first for interface in before for each in interface.addresses)
    assert first.address.family is family
    # The interface of the address stays; all others change.
    own = next(interface for interface in before if any(each.held == first for each in interface.addresses))
    others = tuple(
        evolve(
            each,
            index=each.index + 100,
            addresses=tuple(one for one in each.addresses if one.held.address != first.address),
        )
        for each in after
        if each.name != own.name
    )
    assert choose_address(method, family, (*others, own), first).address == first
    bare = evolve(own, addresses=tuple(each for each in own.addresses if each.held != first))
    second = choose_address(method, family, (*others, bare), first)
    assert second.address != first
    assert second.address == choose_address(method, family, (*others, bare), None).address
