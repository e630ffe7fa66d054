"""A node whose node process enforces the policies of a sqlite store, with two workloads and a machine outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve

from netplug_core.addressing import Family
from netplug_core.orchestrator.networkpolicy import read_network_policy
from netplug_core.policy.model import PolicyState
from netplug_core.policy.resolve import PolicyObject, PolicySnapshot, resolve
from netplug_core.records import Create, Delete, Get, Update, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.nodeconfiguration import EndpointToHostAction, NodeConfiguration, NodeConfigurationSpec
from netplug_core.resources.profile import Profile
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.workload import EndpointStatus, parse_status
from tests.harness.nat_scene import ADDRESSES, open_scene
from tests.harness.node import PEER_NAMESPACE, NetnsNode
from tests.harness.node_process import NodeProcess, start_node_process
from tests.harness.policies import allow, key_of, make_pod, make_profile
from tests.harness.policy_scene import PolicyScene
from tests.harness.waiting import deadline_in, is_eventually, wait_until

__all__ = [
    "GENERATED",
    "OUTSIDE",
    "WAYS",
    "PolicyNode",
    "enforce",
    "enforcing_variables",
    "kubernetes",
    "namespace_profile",
    "open_policy_node",
    "stored_pod",
]

OUTSIDE: Final = PEER_NAMESPACE

WAYS: Final = ("client web", "web client", "outside web", "web outside", "node web", "web node")
"""The ways between the workloads ``web`` and ``client``, the machine outside and the node."""

GENERATED: Final = NodeConfigurationSpec(endpoint_to_host_action=EndpointToHostAction.ACCEPT)
"""The settings of a node as generated configurations have them."""

_INTERFACES: Final = {"web": "netp5", "client": "netp6"}


def stored_pod(
    name: str,
    *,
    namespace: str = "x",
    labels: dict[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - attributes of many types
) -> WorkloadEndpoint:
    """The endpoint of the workload ``web`` or ``client``, in both families; its label ``app`` is its name."""
    own = [ADDRESSES[each] for each in Family]
    addresses = [each.web if name == "web" else each.client for each in own]
    given = {"interface_name": _INTERFACES.get(name, ""), "pod": name, **spec}
    pod = make_pod(name, *given.pop("texts", addresses), namespace=namespace, labels=labels or {"app": name}, **given)
    return evolve(pod, metadata=evolve(pod.metadata, name=f"here-k8s-{name}-eth0"))


def namespace_profile(name: str, **labels: str) -> Profile:
    """The profile of a namespace, which allows everything."""
    return make_profile(f"kns.{name}", allow(), **{f"pcns__{label}": value for label, value in labels.items()})


def enforcing_variables(node: NetnsNode) -> dict[str, str]:
    """The environment of a node process that enforces policy from the node's store, and does nothing else."""
    return {
        "DATASTORE_TYPE": "sqlite",
        "SQLITE_PATH": node.database,
        "NODENAME": "here",
        "NODENAME_FILE": node.file("nodename"),
        "MTU_FILE": node.file("mtu"),
        "ENDPOINT_STATUS_DIR": node.file("endpoint-status"),
        "NETPLUG_NETWORKING_BACKEND": "none",
        "NETPLUG_POLICY": "Enabled",
    }


def enforce(
    scene: PolicyScene,
    *objects: PolicyObject,
    web: WorkloadEndpoint | None = None,
    client: WorkloadEndpoint | None = None,
    node: NodeConfigurationSpec = GENERATED,
    attached: tuple[tuple[str, str], ...] = (),
) -> PolicyState:
    """Program what a node makes of objects, beside the two workloads and the profile of their namespace; return it."""
    usual = (
        NodeConfiguration(metadata=Metadata(name="default"), spec=node),
        namespace_profile("x"),
        web or stored_pod("web"),
        client or stored_pod("client"),
    )
    state = resolve(PolicySnapshot(node="here", objects=(*usual, *objects), attached=attached))
    scene.enforce(state)
    return state


def kubernetes(*ingress: Mapping[str, object], **spec: object) -> PolicyObject:
    """A policy of Kubernetes for the web."""
    found = {
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": list(ingress), **spec},
    }
    return read_network_policy(found, source="a test")


@define
class PolicyNode:
    """The node. ``process`` is its node process, if one runs."""

    scene: PolicyScene
    process: NodeProcess | None = None

    @property
    def node(self) -> NetnsNode:
        """The node."""
        return self.scene.node

    def put(self, *values: PolicyObject) -> None:
        """Store objects, in one commit, whatever is there."""
        self._commit(*((each, False) for each in values))

    def remove(self, *values: PolicyObject) -> None:
        """Delete objects."""
        self._commit(*((each, True) for each in values))

    def _commit(self, *changes: tuple[PolicyObject, bool]) -> None:
        with self.node.store.open() as store:
            keys = [key_of(value) for value, _ in changes]
            found = store.read([Get(key) for key in keys], deadline=deadline_in())
            writes: list[Write] = []
            for key, (value, is_removed) in zip(keys, changes, strict=True):
                record = found.find(key)
                if is_removed and record is not None:
                    writes.append(Delete(key, record.revision))
                elif not is_removed:
                    writes.append(Create(key, value) if record is None else Update(key, value, record.revision))
            store.commit(writes, deadline=deadline_in())

    def start(self, **variables: str) -> NodeProcess:
        """Start the node process; it listens when this returns."""
        self.process = start_node_process(self.node, environ=enforcing_variables(self.node) | variables)
        return self.process

    def kill(self) -> None:
        """End the node process at once; what it does by then is done, or not."""
        if self.process is not None:
            self.process.child.kill()
            self.process.wait()

    def process_lines(self) -> str:
        """What the node processes have written."""
        return "" if self.process is None else self.process.lines

    def wait_for_line(self, text: str, count: int = 1) -> None:
        """Wait until the log of the node process has a text, so often."""
        process = self.process
        assert process is not None
        wait_until(lambda: process.lines.count(text) >= count, f"the log says {text!r}: {process.lines}")

    def statuses(self) -> dict[str, EndpointStatus]:
        """The status files of endpoints, by their names."""
        folder = Path(self.node.file("endpoint-status"))
        if not folder.is_dir():
            return {}
        found = dict[str, EndpointStatus]()
        for each in folder.iterdir():
            with suppress(FileNotFoundError):  # removed since it was listed
                if each.name[0] != ".":
                    found[each.name] = parse_status(each.read_text())
        return found

    def nft(self, *arguments: str) -> str:
        """What a person does by hand."""
        return self.node.run("nft", *arguments)

    def is_open(self, way: str) -> bool:
        """Whether a packet comes that way, and its answer back."""
        at, sender, receiver = self.scene.nat.addresses, *way.split()
        to = {"web": at.web, "client": at.client, "outside": at.outside, "node": at.node}
        source = at.outside if sender == "outside" else ""
        return self.scene.passes(self._namespace(sender), to[receiver], self._namespace(receiver), source=source)

    def _namespace(self, name: str) -> str:
        nat = self.scene.nat
        return {"web": nat.web.name, "client": nat.client.name, "outside": OUTSIDE, "node": ""}[name]

    def wait_for(self, **expected: bool) -> None:
        """Wait until the ways are open that are not named; of those that are, with ``_`` for the space, as said."""
        wanted = {way: expected.get(way.replace(" ", "_"), True) for way in WAYS}
        found: dict[str, bool] = {}

        def is_so() -> bool:
            found.update({way: self.is_open(way) for way in WAYS})
            return found == wanted

        assert is_eventually(is_so), f"{found} are not as they should be: {wanted}"


@contextmanager
def open_policy_node(node: NetnsNode, family: Family) -> Iterator[PolicyNode]:
    """The scene in one family, with endpoints of both workloads and the host as generated configurations have it."""
    with open_scene(node, family) as nat:
        made = PolicyNode(PolicyScene(nat))
        made.put(
            NodeConfiguration(metadata=Metadata(name="default"), spec=GENERATED),
            namespace_profile("x"),
            stored_pod("web"),
            stored_pod("client"),
        )
        yield made
