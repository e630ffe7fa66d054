"""The lines and tables that a person and a program see."""

from netplug_cli.lab.model import Lab, LabFolder, LabNetwork, LabPlan, OwnServers, Routing, new_lab
from netplug_cli.lab.report import (
    LabStatus,
    access_lines,
    matrix_lines,
    node_lines,
    pod_lines,
    problem_lines,
    status_table,
)
from netplug_core.addressing import Address
from netplug_core.dataplane.connectivity import Path, PathResult, Relation

ONE, SIX, TWO = Address.parse("10.0.0.1"), Address.parse("fd00::1"), Address.parse("10.0.0.2")
FOLDER = LabFolder("/f")


def path(source: str, target: str, address: Address, relation: Relation = Relation.SAME_NODE) -> Path:
    return Path(source=source, target=target, relation=relation, address=address)


def planned(routing: Routing | None = None, nodes: int = 2, store: OwnServers | None = None) -> Lab:
    network = None if routing is None else LabNetwork(node_count=nodes, routing=routing)
    plan = LabPlan(name="lab", pod_count=1 if network is None else nodes, network=network)
    return new_lab(plan if store is None else LabPlan(name="lab", pod_count=1, store=store, network=network), uid="u")


STATUS = LabStatus(
    missing=("pod-1: it was never attached",),
    names=("a", "b", "c"),
    results=(
        PathResult(path=path("a", "b", TWO), time_ms=0.51234),
        PathResult(path=path("b", "a", ONE), time_ms=1.0),
        PathResult(path=path("b", "a", SIX), failure="no answer"),
        PathResult(path=path("c", "a", ONE), time_ms=1.0),
        PathResult(path=path("c", "a", SIX), time_ms=1.0),
        PathResult(path=path("c", "b", TWO), failure="Network is unreachable"),
    ),
)


def test_a_cell_has_the_families_that_came_back() -> None:
    assert [line.split() for line in matrix_lines(STATUS)] == [
        ["FROM", "/", "TO", "a", "b", "c"],
        ["a", "-", "IPv4", "none"],
        ["b", "IPv4", "-", "none"],
        ["c", "IPv4+IPv6", "none", "-"],
    ]
    assert problem_lines(planned(), STATUS) == [
        "pod-1: it was never attached",
        "b to a over IPv6 (fd00::1): no answer",
        "c to b over IPv4 (10.0.0.2): Network is unreachable",
    ]


def test_what_explains_most_comes_first_and_not_every_path_is_said() -> None:
    """Twelve paths fail for one reason, and somebody has to see it."""
    failed = tuple(
        PathResult(path=path(f"pod-{number}", "pod-2", TWO, Relation.OTHER_NODE), failure="no answer")
        for number in range(12)
    )
    status = LabStatus(missing=(), results=failed, processes=(("node-1", "ended"), ("node-2", "it starts")))
    said = problem_lines(planned(Routing.NONE), status)
    assert said[:3] == [
        "the lab was made with --routing none: nothing carries packets of pods between its nodes",
        "node-2: it starts",
        "pod of another node: nothing answers over IPv4, on 12 paths",
    ]
    assert said[3] == "pod-0 to pod-2 over IPv4 (10.0.0.2): no answer"
    assert said[-1] == "and 2 more paths do not work: -o json has all of them"
    assert len(said) == 14
    assert problem_lines(planned(Routing.VXLAN), status)[1].startswith("pod of another node")
    assert problem_lines(planned(Routing.NONE), LabStatus(missing=(), processes=status.processes)) == [
        "node-2: it starts"
    ]


def test_a_pod_that_got_nothing_has_none() -> None:
    assert [line.split() for line in pod_lines(planned(), FOLDER)] == [
        ["POD", "ADDRESSES", "HOST", "INTERFACE", "NAMESPACE"],
        ["pod-1", "none", "none", "/f/netns/pod-1"],
    ]


def test_of_several_nodes_each_is_shown_and_pods_say_theirs() -> None:
    lab, status = (
        planned(Routing.VXLAN),
        LabStatus(missing=(), processes=(("node-1", "ready"), ("node-2", "it starts"))),
    )
    assert [line.split() for line in node_lines(lab, FOLDER, status)] == [
        ["NODE", "NAME", "ADDRESSES", "NODE", "PROCESS", "NAMESPACE"],
        ["node-1", "lab-node-1", "10.98.1.1,", "fd98:6e70:6c67:1::1", "ready", "/f/netns/node-1"],
        ["node-2", "lab-node-2", "10.98.1.2,", "fd98:6e70:6c67:1::2", "not", "ready", "/f/netns/node-2"],
    ]
    assert [line.split() for line in pod_lines(lab, FOLDER)] == [
        ["POD", "NODE", "ADDRESSES", "HOST", "INTERFACE", "NAMESPACE"],
        ["pod-1", "node-1", "none", "none", "/f/netns/pod-1"],
        ["pod-2", "node-2", "none", "none", "/f/netns/pod-2"],
    ]


def test_programs_get_every_path_and_every_part() -> None:
    table = status_table(planned(Routing.BGP), FOLDER, STATUS, ["a problem"])
    assert table.members == ("from", "to", "relation", "family", "address", "reached", "failure", "timeMs")
    assert table.rows[0] == ("a", "b", "pod of the same node", "IPv4", "10.0.0.2", True, "", 0.512)
    assert table.rows[2] == ("b", "a", "pod of the same node", "IPv6", "fd00::1", False, "no answer", None)
    assert (table.name, len(table.rows)) == ("paths", 6)
    facts = dict(table.facts)
    assert (facts["routing"], facts["problems"]) == ("bgp", ["a problem"])
    assert facts["nodes"] == [
        {
            "name": f"node-{number}",
            "registeredAs": f"lab-node-{number}",
            "addresses": [f"10.98.1.{number}", f"fd98:6e70:6c67:1::{number}"],
            "process": "",
            "namespace": f"/f/netns/node-{number}",
        }
        for number in (1, 2)
    ]
    assert status_table(planned(), FOLDER, STATUS, []).facts["routing"] is None


def test_a_store_that_is_inside_is_asked_there() -> None:
    store = OwnServers(etcd="/e")
    told = "DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://127.0.0.1:2379 netplugctl get ippools"
    assert access_lines(planned(store=store), FOLDER)[1] == f"  nsenter --net=/f/netns/node env {told}"
    assert access_lines(planned(Routing.VXLAN, store=store), FOLDER)[1:3] == [
        f"  nsenter --net=/f/netns/switch env {told}",
        "  netplugctl node routes --socket /f/run/node-1/node.sock",
    ]
