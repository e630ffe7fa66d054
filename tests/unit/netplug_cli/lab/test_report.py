"""The tables that a person sees."""

from netplug_cli.lab.inspection import Look
from netplug_cli.lab.model import Plan, planned
from netplug_cli.lab.paths import Folder
from netplug_cli.lab.reachability import Crossing, Host, Matrix, find_crossings
from netplug_cli.lab.report import matrix_lines, pod_lines, problem_lines, way_in_lines
from netplug_cli.lab.stores import OwnServers
from netplug_core.addressing import Address

ONE, SIX, TWO = Address.parse("10.0.0.1"), Address.parse("fd00::1"), Address.parse("10.0.0.2")
HOSTS = (
    Host(name="a", netns="/a", addresses=(ONE, SIX)),
    Host(name="b", netns="/b", addresses=(TWO,)),
    Host(name="c", netns="/c", addresses=()),
)


def test_every_host_should_reach_every_address_of_the_others() -> None:
    assert find_crossings(HOSTS) == (
        Crossing("a", "b", TWO),
        Crossing("b", "a", ONE),
        Crossing("b", "a", SIX),
        Crossing("c", "a", ONE),
        Crossing("c", "a", SIX),
        Crossing("c", "b", TWO),
    )


def test_a_cell_has_the_families_that_came_back() -> None:
    problems = ((Crossing("b", "a", SIX), "no answer"), (Crossing("c", "b", TWO), "Network is unreachable"))
    matrix = Matrix(names=("a", "b", "c"), crossings=find_crossings(HOSTS), problems=problems)
    assert [line.split() for line in matrix_lines(matrix)] == [
        ["FROM", "/", "TO", "a", "b", "c"],
        ["a", "-", "IPv4", "none"],
        ["b", "IPv4", "-", "none"],
        ["c", "IPv4+IPv6", "none", "-"],
    ]
    seen = Look(
        lab=planned(Plan(name="lab", pod_count=1), uid="u"), missing=("pod-1: it was never attached",), matrix=matrix
    )
    assert problem_lines(seen) == [
        "pod-1: it was never attached",
        "b to a over IPv6 (fd00::1): no answer",
        "c to b over IPv4 (10.0.0.2): Network is unreachable",
    ]


def test_a_pod_that_got_nothing_has_none() -> None:
    lines = pod_lines(planned(Plan(name="lab", pod_count=1), uid="u"), Folder("/f"))
    assert [line.split() for line in lines] == [
        ["POD", "ADDRESSES", "HOST", "INTERFACE", "NAMESPACE"],
        ["pod-1", "none", "none", "/f/netns/pod-1"],
    ]


def test_a_store_that_is_inside_the_node_is_asked_there() -> None:
    lab = planned(Plan(name="lab", pod_count=1, store=OwnServers(etcd="/e")), uid="u")
    told = "DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://127.0.0.1:2379 netplugctl get ippools"
    assert way_in_lines(lab, Folder("/f"))[1] == f"  nsenter --net=/f/netns/node env {told}"
