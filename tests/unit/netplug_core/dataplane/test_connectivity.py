"""Who has to reach whom, and what is said of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from netplug_core.addressing import Address, Family
from netplug_core.dataplane.connectivity import (
    NODE_PORT,
    SERVER_PORT,
    ConnectivityTest,
    Path,
    PathResult,
    Peer,
    PeerKind,
    Relation,
    RunningPod,
    UsableNode,
    asked_peers,
    asking_pod,
    find_gaps,
    list_paths,
    outside_peer,
    reached_families,
    read_answers,
    server_documents,
)
from netplug_core.decoding.tables import find_member
from netplug_core.errors import ConfigurationError

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


# --- the pods of a cluster --------------------------------------------------------------------------------------------


TEST = ConnectivityTest(namespace="ns", image="node:v1", program="print()")
NODES = (UsableNode(name="n1", addresses=(ONE, SIX)), UsableNode(name="n2", addresses=(THREE,)))


def container_of(pod: Mapping[str, object]) -> Mapping[str, Any]:
    containers = find_member(pod, "spec", "containers")
    assert isinstance(containers, list)
    assert len(containers) == 1
    container: Mapping[str, Any] = containers[0]
    return container


def test_a_pod_of_each_node_answers_and_a_service_has_them_all() -> None:
    service, first, second = server_documents(TEST, NODES)
    assert find_member(service, "spec", "ipFamilyPolicy") == "PreferDualStack"
    assert [find_member(pod, "spec", "nodeName") for pod in (first, second)] == ["n1", "n2"]
    assert find_member(service, "spec", "selector") == find_member(first, "metadata", "labels")
    container = container_of(first)
    assert container["command"] == ["python3", "-c", "print()", "serve", str(SERVER_PORT)]


def test_pods_may_be_made_where_only_restricted_ones_are() -> None:
    pod = server_documents(TEST, NODES)[1]
    assert find_member(pod, "spec", "securityContext", "runAsNonRoot") is True
    assert find_member(pod, "spec", "automountServiceAccountToken") is False
    container = container_of(pod)
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_pods_ask_pods_nodes_the_service_and_outside() -> None:
    servers = [
        RunningPod(name="server-2", node="n2", phase="Running", addresses=(THREE,)),
        RunningPod(name="server-1", node="n1", phase="Running", addresses=(TWO,)),
    ]
    outside, port = outside_peer("192.0.2.1:443")
    peers = asked_peers(NODES, servers, (TWO,), [outside])
    assert [peer.name for peer in peers] == ["server-1", "server-2", "n1", "n2", "answering", "192.0.2.1:443"]
    assert "answering" not in [peer.name for peer in asked_peers(NODES, servers, (), ())]
    asking = Peer(name="client-1", kind=PeerKind.POD, node="n1", addresses=(TWO,))
    paths = [path for path in list_paths((asking, *peers), {PeerKind.POD}) if path.source == "client-1"]
    pod = asking_pod(TEST, 1, NODES[0], paths, {outside.name: port})
    assert (find_member(pod, "metadata", "name"), find_member(pod, "spec", "nodeName")) == ("client-1", "n1")
    container = container_of(pod)
    assert json.loads(container["command"][-1]) == [
        [str(TWO), SERVER_PORT, "echo"],
        [str(THREE), SERVER_PORT, "echo"],
        [str(ONE), NODE_PORT, "any"],
        [str(THREE), NODE_PORT, "any"],
        [str(TWO), SERVER_PORT, "echo"],
        ["192.0.2.1", 443, "any"],
    ]


@pytest.mark.parametrize(
    "text, address, port", [("10.0.0.1:80", "10.0.0.1", 80), ("[fd00::1]:65535", "fd00::1", 65535)]
)
def test_what_is_outside_has_an_address_and_a_port(text: str, address: str, port: int) -> None:
    peer = Peer(name=text, kind=PeerKind.OUTSIDE, addresses=(Address.parse(address),))
    assert outside_peer(text) == (peer, port)


@pytest.mark.parametrize("text", ["10.0.0.1", "example.com:80", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x", ""])
def test_anything_else_outside_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--outside"):
        outside_peer(text)


WAYS = (path("client-1", "a", Relation.SAME_NODE, ONE), path("client-1", "b", Relation.OTHER_NODE, TWO))


def client(message: str = "", phase: str = "Succeeded", problem: str = "") -> RunningPod:
    return RunningPod(name="client-1", node="n1", phase=phase, message=message, problem=problem)


def test_answers_are_times_or_why_there_are_none() -> None:
    assert read_answers(client('[1.5,"no answer"]'), WAYS) == (
        PathResult(path=WAYS[0], time_ms=1.5),
        PathResult(path=WAYS[1], failure="no answer"),
    )


@pytest.mark.parametrize(
    "pod, failure",
    [
        (client("Traceback"), "client-1 does not say: Traceback"),
        (client("[1]"), "client-1 does not say: [1]"),
        (client("{}"), "client-1 does not say: {}"),
        (client(phase="Failed"), "client-1 does not say, as its phase is Failed"),
        (client(phase=""), "client-1 does not say, as its phase is unknown"),
        (client(phase="Failed", problem="evicted"), "evicted"),
    ],
)
def test_a_pod_that_says_nothing_of_use_has_reached_nobody(pod: RunningPod, failure: str) -> None:
    assert [one.failure for one in read_answers(pod, WAYS)] == [failure, failure]


def test_the_state_of_a_pod() -> None:
    assert RunningPod(name="s", node="n", phase="Running", addresses=(ONE,)).is_serving
    assert not RunningPod(name="s", node="n", phase="Running").is_serving
    assert not RunningPod(name="s", node="n", phase="Pending", addresses=(ONE,)).is_serving
    assert [client(phase=phase).has_ended for phase in ("Succeeded", "Failed", "Running")] == [True, True, False]
