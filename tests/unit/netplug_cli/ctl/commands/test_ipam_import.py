"""``ipam import-host-local``: what becomes of each file, what is stored, and how it exits."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.memory.datastore import MemoryDatastore, MemoryMode
from netplug_core.addressing import Address
from netplug_core.clock import SECOND_NS, Deadline
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.datastore.transaction import read_pages
from netplug_core.ipam.model import BLOCK, Block
from netplug_core.orchestrator.model import POD, PodFacts, PodNetwork, PodPhase
from netplug_core.records import Create
from netplug_core.resources.fields import Metadata
from netplug_core.resources.ippool import AssignmentMode
from netplug_core.resources.node import Node, node_key
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.faults import LostReply, LostRequest
from tests.harness.ctl import ToolHarness

NETWORK = "k8s-pod-network"
WEB = "10.65.1.5: assigned to the pod shop/web"
MANUAL = (
    "10.65.1.5 of the pod shop/web stays: IPPool(main).spec.assignmentMode: 'Automatic' is not accepted; "
    "set Manual until every node has imported its addresses: another pod could get one of them"
)


class SleepingClock(ManualClock):
    """A clock during whose first sleep something happens."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._acts = [act]

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds >= 1 and self._acts:
            self._acts.pop()()


class HostLocalNode:
    """A node with files of host-local, in a cluster whose pods the datastore shows."""

    def __init__(self, tool: ToolHarness, folder: Path) -> None:
        self.tool, self.folder = tool, folder / "networks" / NETWORK
        self.folder.mkdir(parents=True)

    def hold(self, address: str, text: str, *, age_s: int = 3600) -> None:
        path, at = self.folder / address, self.tool.clock.now_ns() - age_s * SECOND_NS
        path.write_bytes(text.encode())
        os.utime(path, ns=(at, at))

    def add_pod(
        self,
        name: str,
        *addresses: str,
        node: str = "a",
        network: PodNetwork = PodNetwork.OWN,
        phase: PodPhase = PodPhase.RUNNING,
    ) -> None:
        held = tuple(map(Address.parse, addresses))
        facts = PodFacts(namespace="shop", name=name, uid=name, node=node, network=network, phase=phase, addresses=held)
        self.tool.store_records(Create(POD.key("shop", name), facts))

    def run(self, *argv: str) -> int:
        data = ("--data-dir", str(self.folder.parent))
        return self.tool.run_command("ipam", "import-host-local", *data, "--node", "a", *argv)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"lock"}

    def held(self) -> dict[str, str]:
        """The handle of each address that is assigned."""
        held = (one for block in self.blocks() for one in block.held() if not one.is_cooling)
        return {str(one.address): one.attribute.handle or "" for one in held}

    def blocks(self) -> list[Block]:
        deadline = Deadline.after(self.tool.clock, 5)
        return [record.value for record in read_pages(self.tool.store, BLOCK, deadline=deadline)]

    def owner(self, address: str) -> dict[str, str]:
        (found,) = (one.attribute for block in self.blocks() for one in block.held() if str(one.address) == address)
        return {name: found.owner_value(name) for name in ("node", "namespace", "pod", "container", "interface")}


@pytest.fixture(params=MemoryMode)
def node(request: pytest.FixtureRequest, harness: ToolHarness, tmp_path: Path) -> HostLocalNode:
    harness.store = MemoryDatastore(request.param, clock=harness.clock)
    harness.store.description = evolve(harness.store.description, endpoints=EndpointStorage.PODS)
    manual = "assignmentMode: Manual"
    file = harness.write_pools(("main", "10.65.0.0/16"), ("six", "fd65::/64"), spec=manual)
    assert harness.run_command("create", "-f", file) == 0
    harness.store_records(Create(node_key("a"), Node(metadata=Metadata(name="a"))))
    made = HostLocalNode(harness, tmp_path)
    made.hold("10.65.1.5", "c1\r\neth0")
    made.add_pod("web", "10.65.1.5")
    return made


def set_mode(node: HostLocalNode, mode: AssignmentMode) -> None:
    assert (
        node.tool.run_command("patch", "ippool", "main", "-p", f'{{"spec": {{"assignmentMode": "{mode.value}"}}}}') == 0
    )


def test_an_address_is_the_pods_and_its_file_goes(node: HostLocalNode) -> None:
    assert node.run() == 0
    assert (node.tool.out.splitlines(), node.tool.err) == ([WEB], "")
    assert node.held() == {"10.65.1.5": f"{NETWORK}.c1"}
    owner = {"node": "a", "namespace": "shop", "pod": "web", "container": "c1", "interface": "eth0"}
    assert node.owner("10.65.1.5") == owner
    assert node.files() == set()
    assert node.tool.run_command("ipam", "release", "--handle", f"{NETWORK}.c1", "--force") == 0
    assert node.held() == {}


def test_both_families_and_further_interfaces(node: HostLocalNode) -> None:
    node.hold("fd65::5", "c1\r\neth0")
    node.hold("10.65.1.6", "c1\r\nnet1")
    node.hold("10.65.1.7", "c2")  # an old version named no interface
    node.add_pod("db", "10.65.1.7")
    node.add_pod("cache", "10.65.1.6", "fd65::5")
    assert node.run() == 0
    assert node.files() == set()
    handles = node.held()
    assert (handles["10.65.1.5"], handles["fd65::5"]) == (f"{NETWORK}.c1", f"{NETWORK}.c1")
    assert handles["10.65.1.7"] == f"{NETWORK}.c2"
    assert node.owner("10.65.1.6")["interface"] == "net1"


def test_without_files_no_datastore_is_asked(node: HostLocalNode) -> None:
    (node.folder / "10.65.1.5").unlink()
    (node.folder / "last_reserved_ip.0").write_text("10.65.1.5")
    node.tool.is_unavailable = True
    assert node.run() == 0
    assert node.tool.out == "host-local holds no address of k8s-pod-network on this node\n"
    assert node.run("--network", "other") == 0
    assert node.files() == {"last_reserved_ip.0"}


def test_a_pool_that_assigns_automatically_is_refused(node: HostLocalNode) -> None:
    set_mode(node, AssignmentMode.AUTOMATIC)
    assert node.run() == 1
    assert (node.tool.out, node.tool.err) == ("", f"netplugctl: {MANUAL}\n")
    assert (node.held(), node.files()) == ({}, {"10.65.1.5"})


def test_what_an_interrupted_run_left_is_completed_in_any_mode(node: HostLocalNode) -> None:
    assert node.run() == 0
    node.hold("10.65.1.5", "c1\r\neth0")
    set_mode(node, AssignmentMode.AUTOMATIC)
    assert node.run() == 0
    assert (node.held(), node.files()) == ({"10.65.1.5": f"{NETWORK}.c1"}, set())


@pytest.mark.parametrize("fault", [LostRequest(), LostReply()], ids=lambda fault: type(fault).__name__)
def test_a_commit_whose_outcome_is_unknown_is_made_or_not(node: HostLocalNode, fault: LostRequest | LostReply) -> None:
    node.tool.faults = {1: fault}
    status = node.run()
    assert node.files() == (set() if status == 0 else {"10.65.1.5"})
    node.tool.faults = {}
    assert node.run() == 0
    assert (node.held(), node.files()) == ({"10.65.1.5": f"{NETWORK}.c1"}, set())


def test_an_address_outside_the_pools_and_another_pods_stay(node: HostLocalNode) -> None:
    node.hold("10.70.0.1", "c3\r\neth0")
    node.add_pod("far", "10.70.0.1")
    assert node.run() == 1
    stays = "10.70.0.1 of the pod shop/far stays: The provided IP address is not in a configured pool: 10.70.0.1; pools"
    assert node.tool.err.startswith(f"netplugctl: {stays}")
    node.hold("10.65.1.5", "c9\r\neth0")
    assert node.run() == 1
    assert "10.65.1.5 of the pod shop/web stays: " in node.tool.err
    assert node.held() == {"10.65.1.5": f"{NETWORK}.c1"}
    assert node.files() == {"10.65.1.5", "10.70.0.1"}


@pytest.mark.parametrize(
    "network,phase",
    [(PodNetwork.HOST, PodPhase.RUNNING), (PodNetwork.OWN, PodPhase.SUCCEEDED)],
    ids=["of the host's network", "that has ended"],
)
def test_a_file_that_no_pod_needs_is_removed(node: HostLocalNode, network: PodNetwork, phase: PodPhase) -> None:
    node.hold("10.65.1.8", "c4\r\neth0")
    node.add_pod("other", "10.65.1.8", network=network, phase=phase)
    assert node.run() == 0
    assert node.tool.out.splitlines() == [WEB, "10.65.1.8: no pod has it; its file is removed"]
    assert (set(node.held()), node.files()) == ({"10.65.1.5"}, set())


def test_a_wrong_name_of_the_node_removes_nothing(node: HostLocalNode) -> None:
    data = ("--data-dir", str(node.folder.parent))
    assert node.tool.run_command("ipam", "import-host-local", *data, "--node", "tyop") == 1
    assert "the node: 'tyop' is not accepted; there is none of that name" in node.tool.err
    node.tool.store_records(Create(node_key("b"), Node(metadata=Metadata(name="b"))))
    assert node.tool.run_command("ipam", "import-host-local", *data, "--node", "b") == 0
    assert node.tool.err == "netplugctl: 10.65.1.5: a pod of another node has it; its file stays\n"
    assert (node.held(), node.files()) == ({}, {"10.65.1.5"})


def test_a_young_file_waits_for_its_pod(node: HostLocalNode) -> None:
    """A pod shows its address some seconds after its container has it."""
    clock = SleepingClock(lambda: node.add_pod("late", "10.65.1.9"))
    node.tool.clock = clock
    node.hold("10.65.1.9", "c5\r\neth0", age_s=2)
    node.hold("10.65.1.10", "c6\r\neth0", age_s=2)
    began = clock.monotonic()
    assert node.run() == 0
    assert node.tool.out.splitlines()[:3] == [WEB, "10.65.1.9: no pod has it yet", "10.65.1.10: no pod has it yet"]
    assert "10.65.1.9: assigned to the pod shop/late" in node.tool.out
    assert node.tool.out.endswith("10.65.1.10: no pod has it; its file is removed\n")
    assert 58 <= clock.monotonic() - began <= 70
    assert (set(node.held()), node.files()) == ({"10.65.1.5", "10.65.1.9"}, set())


def test_a_file_that_names_no_container_stays(node: HostLocalNode) -> None:
    node.hold("10.65.1.11", "of the printer")
    node.hold("10.65.1.12", "")
    node.add_pod("odd", "10.65.1.12")
    assert node.run() == 0
    lines = [line.partition(": its file names no container")[0] for line in node.tool.err.splitlines()]
    assert set(lines) == {"netplugctl: 10.65.1.11", "netplugctl: 10.65.1.12"}
    assert (set(node.held()), node.files()) == ({"10.65.1.5"}, {"10.65.1.11", "10.65.1.12"})


def test_a_dry_run_changes_nothing(node: HostLocalNode) -> None:
    node.hold("10.65.1.8", "c4\r\neth0")
    assert node.run("--dry-run") == 0
    assert node.tool.out.splitlines() == [
        "10.65.1.5: would be assigned to the pod shop/web",
        "10.65.1.8: no pod has it; its file would be removed",
    ]
    assert (node.held(), node.files()) == ({}, {"10.65.1.5", "10.65.1.8"})
    set_mode(node, AssignmentMode.AUTOMATIC)
    assert node.run("--dry-run") == 1
    assert MANUAL in node.tool.err


def test_a_datastore_that_shows_no_pods_is_refused(node: HostLocalNode) -> None:
    node.tool.store.description = evolve(node.tool.store.description, endpoints=EndpointStorage.RECORDS)
    assert node.run() == 1
    assert "datastore: 'memory' is not accepted; it does not show pods; drain the node" in node.tool.err
    assert node.files() == {"10.65.1.5"}


def test_the_name_of_the_node_is_needed(node: HostLocalNode) -> None:
    data = ("--data-dir", str(node.folder.parent))
    assert node.tool.run_command("ipam", "import-host-local", *data) == 2
    assert "Give --node NAME, or set KUBERNETES_NODE_NAME." in node.tool.err
    node.tool.environ["KUBERNETES_NODE_NAME"] = "a"
    assert node.tool.run_command("ipam", "import-host-local", *data) == 0
    assert node.held() == {"10.65.1.5": f"{NETWORK}.c1"}
