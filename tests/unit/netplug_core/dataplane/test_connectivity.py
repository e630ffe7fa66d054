"""Who has to reach whom, and what is said of it."""

from netplug_core.addressing import Address, Family
from netplug_core.dataplane.connectivity import (
    Path,
    PathResult,
    Peer,
    PeerKind,
    Relation,
    find_gaps,
    list_paths,
    reached_families,
)

ONE, SIX, TWO, THREE = (Address.parse(text) for text in ("10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3"))
PEERS = (
    Peer(name="n1", kind=PeerKind.NODE, node="n1", addresses=(ONE, SIX)),
    Peer(name="p1", kind=PeerKind.POD, node="n1", addresses=(TWO,)),
    Peer(name="p2", kind=PeerKind.POD, node="n2", addresses=(THREE,)),
    Peer(name="p3", kind=PeerKind.POD, node="n1"),
)


def path(source: str, target: str, relation: Relation, address: Address) -> Path:
    return Path(source=source, target=target, relation=relation, address=address)


def test_each_peer_has_a_path_to_each_address_of_the_others_that_it_has_the_family_of() -> None:
    assert list_paths(PEERS) == (
        path("n1", "p1", Relation.SAME_NODE, TWO),
        path("n1", "p2", Relation.OTHER_NODE, THREE),
        path("p1", "n1", Relation.OWN_NODE, ONE),
        path("p1", "p2", Relation.OTHER_NODE, THREE),
        path("p2", "n1", Relation.FOREIGN_NODE, ONE),
        path("p2", "p1", Relation.OTHER_NODE, TWO),
    )


def test_only_some_kinds_send() -> None:
    others = (
        Peer(name="dns", kind=PeerKind.SERVICE, addresses=(THREE,)),
        Peer(name="internet", kind=PeerKind.OUTSIDE, addresses=(ONE,)),
    )
    assert list_paths((PEERS[1], *others), {PeerKind.POD}) == (
        path("p1", "dns", Relation.SERVICE, THREE),
        path("p1", "internet", Relation.OUTSIDE, ONE),
    )


def test_a_path_says_its_ends_and_its_family() -> None:
    found = path("p1", "n1", Relation.OWN_NODE, SIX)
    assert (str(found), found.family) == ("p1 to n1 over IPv6 (fd00::1)", Family.IPV6)


def test_families_that_reached() -> None:
    ways = (
        path("a", "b", Relation.SAME_NODE, ONE),
        path("a", "b", Relation.SAME_NODE, SIX),
        path("b", "a", Relation.SAME_NODE, TWO),
    )
    results = (
        PathResult(path=ways[0], time_ms=0.5),
        PathResult(path=ways[1], time_ms=0.5),
        PathResult(path=ways[2], failure="no answer"),
    )
    assert reached_families(results) == {("a", "b"): (Family.IPV4, Family.IPV6)}


def test_a_relation_that_never_works_is_one_sentence() -> None:
    far = [path(name, "p2", Relation.OTHER_NODE, THREE) for name in "abc"]
    near = [path(name, "p1", Relation.SAME_NODE, TWO) for name in "ab"]
    alone = path("a", "n1", Relation.OWN_NODE, SIX)
    results = (
        *(PathResult(path=each, failure="no answer") for each in far),
        PathResult(path=near[0], failure="no answer"),
        PathResult(path=near[1], time_ms=1.0),
        PathResult(path=alone, failure="no answer"),
    )
    assert find_gaps(results) == ("pod of another node: nothing answers over IPv4, on 3 paths",)
