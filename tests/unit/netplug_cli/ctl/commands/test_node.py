"""``node status`` and ``node address``: what is shown of a node process, and the exit status."""

import json
from pathlib import Path

import yaml
from attrs import evolve

from netplug_cli.node_status import (
    DifferenceStatus,
    NetworkStatus,
    NodeDatastore,
    PeerStatus,
    PolicyStatus,
    RouteStatus,
    encode_status,
)
from netplug_core.addressing import Address, InterfaceAddress
from netplug_core.clock import Deadline
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.node import Node, NodeBGP, NodeInterface, NodeSpec, node_key
from tests.harness.ctl import ToolHarness
from tests.harness.node_status import NODE_STATUS, REGISTRATION, node_process_with_status


def test_a_process_that_is_ready_is_shown(harness: ToolHarness, tmp_path: Path) -> None:
    stores = (
        NodeDatastore(name="sqlite", location="/var/lib/netplug/netplug.db", answered_s=75),
        NodeDatastore(name="etcdv3", location="https://etcd:2379", answered_s=3, failure="Unavailable"),
        NodeDatastore(name="kubernetes", location="https://api:6443"),
    )
    harness.clock.sleep(3601)
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, datastores=stores)) as path:
        assert harness.run_command("node", "status", "--socket", path) == 0
    assert harness.err == ""
    assert harness.out.splitlines() == [
        "Version:         3.33.0",
        "PID:             1742",
        "Socket:          /run/netplug/node.sock",
        "Started:         2026-01-01T00:00:00Z, 1h1s ago",
        "Ready:           yes",
        "Calls:           110 served, 2 of them failed; 1 refused as busy",
        "Now:             3 of 16 workers serve, 4 of 256 wait",
        "Release records: 5 wait",
        "",
        "DATASTORE    LOCATION                      ANSWERED",
        "sqlite       /var/lib/netplug/netplug.db   1m15s ago",
        "etcdv3       https://etcd:2379             3s ago; Unavailable",
        "kubernetes   https://api:6443              never",
    ]


def test_one_that_is_not_ready_is_a_failure(harness: ToolHarness, tmp_path: Path) -> None:
    problems = ("a thread has ended", "the process does not serve calls")
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, problems=problems)) as path:
        assert harness.run_command("node", "status", "--socket", path) == 1
    assert "Ready:           no: a thread has ended; the process does not serve calls\n" in harness.out
    assert harness.out.endswith("Release records: 5 wait\n")


def test_records_that_cannot_be_done_are_shown(harness: ToolHarness, tmp_path: Path) -> None:
    status = evolve(NODE_STATUS, foreign_records=500, damaged_records=2)
    with node_process_with_status(tmp_path / "node.sock", status) as path:
        assert harness.run_command("node", "status", "--socket", path) == 0
    assert harness.out.endswith("Release records: 5 wait; 500 of other datastores; 2 damaged\n")


def test_the_socket_may_come_from_the_variable_of_the_executables(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", NODE_STATUS) as path:
        harness.environ["NETPLUG_NODE_SOCKET"] = path
        assert harness.run_command("node", "status", "-o", "json") == 0
        assert json.loads(harness.out) == encode_status(NODE_STATUS)
        assert harness.run_command("node", "status", "-o", "yaml") == 0
        assert yaml.safe_load(harness.out) == encode_status(NODE_STATUS)


def test_where_none_answers_the_exit_status_is_one(harness: ToolHarness, tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    assert harness.run_command("node", "status", "--socket", str(path), "-o", "json") == 1
    alone = "netplug and netplug-ipam serve each call by themselves where none answers"
    assert harness.out == ""
    assert harness.err == f"netplugctl: no node process answers at {path}: No such file or directory; {alone}\n"


# --- addresses ------------------------------------------------------------------------------------------------------


def test_the_addresses_of_the_node_are_shown_with_how_they_were_chosen(harness: ToolHarness, tmp_path: Path) -> None:
    status = evolve(NODE_STATUS, registration=REGISTRATION)
    with node_process_with_status(tmp_path / "node.sock", status) as path:
        assert harness.run_command("node", "address", "--socket", path) == 0
        assert harness.out.splitlines() == [
            "Node:        worker-1",
            "MTU of pods: 1450",
            "IPv4:        10.240.0.11/24 (detected)",
            "  docker0: names with docker are of containers or networks of this machine",
            "  lo: the loopback interface",
            "  eth0 10.240.0.11/24: kept, as it is registered",
            "IPv6:        none",
            "  IPv6: not asked for",
        ]
        assert harness.run_command("node", "address", "--socket", path, "-o", "json") == 0
        assert json.loads(harness.out) == encode_status(status)["registration"]
        assert harness.run_command("node", "address", "--socket", path, "-o", "yaml") == 0
        assert yaml.safe_load(harness.out) == encode_status(status)["registration"]


def test_what_another_node_has_registered_is_read_from_the_datastore(harness: ToolHarness) -> None:
    bgp = NodeBGP(ipv4_address=InterfaceAddress.parse("10.240.0.12/24"))
    interfaces = (NodeInterface(name="eth0", addresses=(Address.parse("10.240.0.12"),)),)
    node = Node(metadata=Metadata(name="worker-2"), spec=NodeSpec(bgp=bgp, interfaces=interfaces))
    harness.store.commit([Create(node_key("worker-2"), node)], deadline=Deadline.after(harness.clock, 1))
    assert harness.run_command("node", "address", "worker-2") == 0
    assert harness.out.splitlines() == [
        "Node:        worker-2",
        "IPv4:        10.240.0.12/24",
        "  eth0 10.240.0.12: registered",
        "IPv6:        none",
        "How they were chosen is known on worker-2: netplugctl node address shows it there.",
    ]
    assert harness.run_command("node", "address", "worker-2", "-o", "json") == 0
    assert json.loads(harness.out) == {
        "node": "worker-2",
        "addresses": [
            {"family": "IPv4", "address": "10.240.0.12/24", "trace": ["eth0 10.240.0.12: registered"]},
            {"family": "IPv6", "address": "", "trace": []},
        ],
        "problems": [],
    }
    twin = evolve(node, metadata=Metadata(name="worker-3"))
    harness.store.commit([Create(node_key("worker-3"), twin)], deadline=Deadline.after(harness.clock, 1))
    assert harness.run_command("node", "address", "worker-2") == 1
    problem = "Problem:     two nodes have the same address: the node worker-3 has the address 10.240.0.12"
    assert problem in harness.out.splitlines()
    assert harness.run_command("node", "address", "worker-9") == 1
    assert harness.err == "netplugctl: no node 'worker-9' is registered in the datastore\n"


def test_a_problem_with_the_addresses_is_a_failure(harness: ToolHarness, tmp_path: Path) -> None:
    registration = evolve(REGISTRATION, problems=("the detected IPv4 address is not registered: the node n1 has it",))
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, registration=registration)) as path:
        assert harness.run_command("node", "address", "--socket", path) == 1
    assert "Problem:     the detected IPv4 address is not registered: the node n1 has it\n" in harness.out


def test_a_node_that_is_not_registered_has_none_to_show(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", NODE_STATUS) as path:
        assert harness.run_command("node", "address", "--socket", path) == 1
    assert harness.out == ""
    assert harness.err == f"netplugctl: the node process at {path} has registered no addresses; its log says why\n"


# --- routes ---------------------------------------------------------------------------------------------------------

NETWORK = NetworkStatus(
    nodes=3,
    tunnels=("vxlan.netplug 10.0.0.1",),
    routes=(
        RouteStatus(destination="10.0.0.64/26", way="via 10.0.0.65 dev vxlan.netplug", reason="a block of node b"),
        RouteStatus(destination="10.0.0.128/26", way="via 10.0.0.129 dev vxlan.netplug", reason="a block of node c"),
    ),
)


def test_the_routes_of_the_node_are_shown_with_what_they_follow_from(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, network=NETWORK)) as path:
        assert harness.run_command("node", "routes", "--socket", path) == 0
        assert harness.out.splitlines() == [
            "DESTINATION     WAY                                BECAUSE             PROGRAMMED",
            "10.0.0.64/26    via 10.0.0.65 dev vxlan.netplug    a block of node b",
            "10.0.0.128/26   via 10.0.0.129 dev vxlan.netplug   a block of node c",
        ]
        assert harness.run_command("node", "status", "--socket", path) == 0
    assert "Network:         3 nodes, 2 routes; vxlan.netplug 10.0.0.1\n" in harness.out


def test_the_sessions_of_bgp_are_shown(harness: ToolHarness, tmp_path: Path) -> None:
    peers = (
        PeerStatus(
            peer="node-b", address="192.0.2.2:179", as_number=64512, is_established=True, since="2026-11-28 11:54:29",
            state="Established",
        ),
        PeerStatus(peer="router", address="[fd00::1]:1790", as_number=65001, is_established=False, state="Active"),
    )  # fmt: skip
    network = evolve(NETWORK, peers=peers)
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, network=network)) as path:
        assert harness.run_command("node", "status", "--socket", path) == 0
        shown = [line.split() for line in harness.out.splitlines() if "179" in line or "PEER" in line]
        assert shown == [
            ["PEER", "ADDRESS", "AS", "ESTABLISHED", "SINCE", "STATE"],
            ["node-b", "192.0.2.2:179", "64512", "yes", "2026-11-28", "11:54:29", "Established"],
            ["router", "[fd00::1]:1790", "65001", "no", "Active"],
        ]
        assert harness.run_command("node", "status", "--socket", path, "-o", "json") == 0
        assert json.loads(harness.out)["network"]["peers"][1]["established"] is False


def test_one_route_is_asked_for_by_an_address(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, network=NETWORK)) as path:
        arguments = ("node", "routes", "--socket", path, "--why")
        assert harness.run_command(*arguments, "10.0.0.70", "-o", "json") == 0
        assert [each["destination"] for each in json.loads(harness.out)["routes"]] == ["10.0.0.64/26"]
        assert harness.run_command(*arguments, "10.9.0.0/24") == 0
        assert harness.out == ""
        assert harness.run_command(*arguments, "b", "-o", "yaml") == 1
    assert "an address or a CIDR is expected" in harness.err


def test_a_node_that_is_not_reached_and_a_route_that_is_missing_are_failures(
    harness: ToolHarness, tmp_path: Path
) -> None:
    lacking = evolve(NETWORK, routes=(evolve(NETWORK.routes[0], is_programmed=False),))
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, network=lacking)) as path:
        assert harness.run_command("node", "routes", "--socket", path) == 1
        assert harness.out.splitlines()[-1].endswith("not yet")
        assert harness.run_command("node", "status", "--socket", path) == 0
        assert "1 routes, 1 of them not programmed" in harness.out
    problems = tuple(f"there is no route to pods of node {number}: it has no IPv4 address" for number in range(7))
    network = evolve(NETWORK, problems=problems)
    with node_process_with_status(tmp_path / "node2.sock", evolve(NODE_STATUS, network=network)) as path:
        assert harness.run_command("node", "routes", "--socket", path) == 1
        assert harness.out.splitlines()[0] == f"Problem: {problems[0]}"
        assert harness.run_command("node", "status", "--socket", path) == 1
        assert f"Problem:         {problems[4]}\n" in harness.out
        assert "Problem:         2 more; netplugctl node routes shows all\n" in harness.out


def test_nothing_is_programmed_yet_or_by_another_program(harness: ToolHarness, tmp_path: Path) -> None:
    network = NetworkStatus(obstacle="routes to other nodes have not been programmed yet")
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, network=network)) as path:
        assert harness.run_command("node", "routes", "--socket", path) == 1
        assert harness.out == "Problem: routes to other nodes have not been programmed yet\n"
        assert harness.run_command("node", "status", "--socket", path) == 0
        assert "Network:" not in harness.out
    with node_process_with_status(tmp_path / "node2.sock", NODE_STATUS) as path:
        assert harness.run_command("node", "routes", "--socket", path) == 1
    assert "NETPLUG_NETWORKING_BACKEND is none" in harness.err


# --- policy -----------------------------------------------------------------------------------------------------------

POLICY = PolicyStatus(endpoints=3, host_endpoints=1, policies=2, sets=4, members=9, programmed=2)


def test_what_is_enforced_is_a_line_of_the_status(harness: ToolHarness, tmp_path: Path) -> None:
    problems = tuple(f"a part of a policy is not enforced as it stands: NetworkPolicy x/{n}" for n in range(7))
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, policy=POLICY)) as path:
        assert harness.run_command("node", "status", "--socket", path) == 0
    line = "Policy:          2 policies for 3 workload endpoints, 2 of them programmed and 1 host endpoints\n"
    assert line in harness.out
    policy = evolve(POLICY, host_endpoints=0, problems=problems, closed=("NetworkPolicy x/a",))
    with node_process_with_status(tmp_path / "node2.sock", evolve(NODE_STATUS, policy=policy)) as path:
        assert harness.run_command("node", "status", "--socket", path) == 1
    assert "2 policies for 3 workload endpoints, 2 of them programmed\n" in harness.out
    assert harness.out.count("Problem:") == 6
    assert harness.out.endswith("Problem:         2 more; netplugctl node status -o yaml shows all\n")


def test_an_obstacle_of_policy_is_why_the_process_is_not_ready(harness: ToolHarness, tmp_path: Path) -> None:
    status = evolve(NODE_STATUS, policy=PolicyStatus(obstacle="not yet"), problems=("not yet",))
    with node_process_with_status(tmp_path / "node.sock", status) as path:
        assert harness.run_command("node", "status", "--socket", path) == 1
        assert "Policy:" not in harness.out
        assert "Ready:           no: not yet\n" in harness.out
        assert harness.run_command("node", "policy", "check", "--socket", path) == 1
    assert harness.out == "Problem: not yet\n"


def test_the_kernel_is_compared_with_what_is_wanted(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", evolve(NODE_STATUS, policy=POLICY)) as path:
        assert harness.run_command("node", "policy", "check", "--socket", path) == 0
    assert harness.out == "The kernel has what is wanted: 2 policies for 3 workload endpoints.\n"
    differences = (DifferenceStatus(part="chain to-pod", difference="has other rules"),)
    policy = evolve(POLICY, differences=differences, closed=("NetworkPolicy x/a",))
    with node_process_with_status(tmp_path / "node2.sock", evolve(NODE_STATUS, policy=policy)) as path:
        assert harness.run_command("node", "policy", "check", "--socket", path) == 1
        assert harness.out.splitlines() == [
            "Problem: the kernel refuses NetworkPolicy x/a: it lets nothing pass",
            "PART           DIFFERENCE",
            "chain to-pod   has other rules",
        ]
        assert harness.run_command("node", "policy", "check", "--socket", path, "-o", "json") == 1
        assert json.loads(harness.out)["differences"] == [{"part": "chain to-pod", "difference": "has other rules"}]


def test_where_no_policy_is_enforced_there_is_nothing_to_compare(harness: ToolHarness, tmp_path: Path) -> None:
    with node_process_with_status(tmp_path / "node.sock", NODE_STATUS) as path:
        assert harness.run_command("node", "policy", "check", "--socket", path) == 1
    assert "NETPLUG_POLICY is not Enabled in its environment" in harness.err
