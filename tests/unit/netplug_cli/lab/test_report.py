"""The tables that a person sees."""

from netplug_cli.lab.model import LabFolder, LabPlan, OwnServers, new_lab
from netplug_cli.lab.report import (
    LabStatus,
    ProbePath,
    ProbePeer,
    ReachabilityMatrix,
    access_lines,
    list_probe_paths,
    matrix_lines,
    pod_lines,
    problem_lines,
)
from netplug_core.addressing import Address

ONE, SIX, TWO = Address.parse("10.0.0.1"), Address.parse("fd00::1"), Address.parse("10.0.0.2")
HOSTS = (
    ProbePeer(name="a", netns="/a", addresses=(ONE, SIX)),
    ProbePeer(name="b", netns="/b", addresses=(TWO,)),
    ProbePeer(name="c", netns="/c", addresses=()),
)


def test_every_host_should_reach_every_address_of_the_others() -> None:
    assert list_probe_paths(HOSTS) == (
        ProbePath("a", "b", TWO),
        ProbePath("b", "a", ONE),
        ProbePath("b", "a", SIX),
        ProbePath("c", "a", ONE),
        ProbePath("c", "a", SIX),
        ProbePath("c", "b", TWO),
    )


def test_a_cell_has_the_families_that_came_back() -> None:
    problems = ((ProbePath("b", "a", SIX), "no answer"), (ProbePath("c", "b", TWO), "Network is unreachable"))
    matrix = ReachabilityMatrix(names=("a", "b", "c"), paths=list_probe_paths(HOSTS), failures=problems)
    assert [line.split() for line in matrix_lines(matrix)] == [
        ["FROM", "/", "TO", "a", "b", "c"],
        ["a", "-", "IPv4", "none"],
        ["b", "IPv4", "-", "none"],
        ["c", "IPv4+IPv6", "none", "-"],
    ]
    seen = LabStatus(missing=("pod-1: it was never attached",), matrix=matrix)
    assert problem_lines(seen) == [
        "pod-1: it was never attached",
        "b to a over IPv6 (fd00::1): no answer",
        "c to b over IPv4 (10.0.0.2): Network is unreachable",
    ]


def test_a_pod_that_got_nothing_has_none() -> None:
    lines = pod_lines(new_lab(LabPlan(name="lab", pod_count=1), uid="u"), LabFolder("/f"))
    assert [line.split() for line in lines] == [
        ["POD", "ADDRESSES", "HOST", "INTERFACE", "NAMESPACE"],
        ["pod-1", "none", "none", "/f/netns/pod-1"],
    ]


def test_a_store_that_is_inside_the_node_is_asked_there() -> None:
    lab = new_lab(LabPlan(name="lab", pod_count=1, store=OwnServers(etcd="/e")), uid="u")
    told = "DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://127.0.0.1:2379 netplugctl get ippools"
    assert access_lines(lab, LabFolder("/f"))[1] == f"  nsenter --net=/f/netns/node env {told}"
