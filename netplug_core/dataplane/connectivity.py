"""Who has to reach whom, and what was found: values of ``lab status`` and ``connectivity test``.

Others send the packets: the lab inside its namespaces, and pods of a cluster. What these pods are, and what they say,
stands here too: on each node one that answers and one that asks, in a namespace of their own.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from attrs import frozen

from netplug_core.addressing import Address, Family
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, excerpt
from netplug_core.names import RESOURCE_DOMAIN

__all__ = [
    "NODE_PORT", "RESULT_VARIABLE", "SERVER_PORT", "TEST_LABEL", "TEST_SERVICE", "ClusterPods", "ConnectivityTest",
    "Path", "PathResult", "Peer", "PeerKind", "Relation", "RunningPod", "UsableNode", "asked_peers", "asking_pod",
    "find_gaps", "list_paths", "outside_peer", "reached_families", "read_answers", "server_documents",
]  # fmt: skip


class PeerKind(enum.Enum):
    """What is at an end of a path."""

    POD = "pod"
    NODE = "node"
    SERVICE = "service"
    OUTSIDE = "outside"


class Relation(enum.Enum):
    """What the end of a path is, seen from its start."""

    SAME_NODE = "pod of the same node"
    OTHER_NODE = "pod of another node"
    OWN_NODE = "its own node"
    FOREIGN_NODE = "another node"
    SERVICE = "service"
    OUTSIDE = "outside"


@frozen(kw_only=True)
class Peer:
    """Something that can be reached. ``node`` is the node of a pod, and of a node itself; others have none."""

    name: str
    kind: PeerKind
    node: str = ""
    addresses: tuple[Address, ...] = ()


@frozen(kw_only=True)
class Path:
    """A way that packets take there and back: from a peer to one address of another one."""

    source: str
    target: str
    relation: Relation
    address: Address

    @property
    def family(self) -> Family:
        """The family of the packets."""
        return self.address.family

    def __str__(self) -> str:
        return f"{self.source} to {self.target} over {self.family} ({self.address})"


@frozen(kw_only=True)
class PathResult:
    """What was found of a path: why it does not work, or, where ``failure`` is empty, how long an answer took."""

    path: Path
    failure: str = ""
    time_ms: float | None = None


def list_paths(peers: Sequence[Peer], sources: Collection[PeerKind] = frozenset(PeerKind)) -> tuple[Path, ...]:
    """Every path from each peer of those kinds to each address of every other peer.

    Two peers that share no family have no path.
    """
    return tuple(
        Path(source=source.name, target=target.name, relation=_relation(source, target), address=address)
        for source in peers
        if source.kind in sources
        for target in peers
        if target is not source
        for address in _reachable(source, target)
    )


def reached_families(results: Iterable[PathResult]) -> dict[tuple[str, str], tuple[Family, ...]]:
    """For each source and target, the families over which answers came; no entry where none did."""
    found: dict[tuple[str, str], tuple[Family, ...]] = {}
    for result in results:
        if not result.failure:
            pair = result.path.source, result.path.target
            found[pair] = (*found.get(pair, ()), result.path.family)
    return found


def find_gaps(results: Sequence[PathResult]) -> tuple[str, ...]:
    """Which relations work over a family on no path at all, a sentence each: that has one cause, not many."""
    return tuple(_gaps(results))


def _gaps(results: Sequence[PathResult]) -> Iterator[str]:
    for relation in Relation:
        for family in Family:
            among = [one for one in results if one.path.relation is relation and one.path.family is family]
            if len(among) > 1 and all(one.failure for one in among):
                yield f"{relation.value}: nothing answers over {family}, on {len(among)} paths"


def _reachable(source: Peer, target: Peer) -> Iterator[Address]:
    own = {address.family for address in source.addresses}
    return (address for address in target.addresses if address.family in own)


def _relation(source: Peer, target: Peer) -> Relation:
    is_same_node = source.node == target.node
    match target.kind:
        case PeerKind.POD:
            return Relation.SAME_NODE if is_same_node else Relation.OTHER_NODE
        case PeerKind.NODE:
            return Relation.OWN_NODE if is_same_node else Relation.FOREIGN_NODE
        case PeerKind.SERVICE:
            return Relation.SERVICE
        case _:
            return Relation.OUTSIDE


# --- the pods of a cluster --------------------------------------------------------------------------------------------


Json = Mapping[str, object]

TEST_LABEL: Final = f"{RESOURCE_DOMAIN}/connectivity-test"
"""The label of everything that a test makes, its namespace included; its value is the part that a pod has."""

SERVER_PORT: Final = 8080
"""Where the pods that answer listen."""

NODE_PORT: Final = 10250
"""The port of nodes that is asked, kubelet's; that it refuses is an answer too."""

TEST_SERVICE: Final = "answering"
"""The name of the service of a test."""

RESULT_VARIABLE: Final = "RESULT_FILE"
"""The variable with the file that a pod writes its answers to; Kubernetes shows it in the pod's status."""

_RESULT_FILE = "/dev/termination-log"
_LIFETIME_S = 900  # a pod that is not removed ends by itself
_UNPRIVILEGED_USER = 65_534
_ECHO, _ANY_ANSWER = "echo", "any"


@frozen(kw_only=True)
class ConnectivityTest:
    """What a test makes: pods with an ``image`` that has Python, which run a ``program``, in a ``namespace``."""

    namespace: str
    image: str
    program: str


@frozen(kw_only=True)
class UsableNode:
    """A node that takes pods."""

    name: str
    addresses: tuple[Address, ...]


@frozen(kw_only=True)
class RunningPod:
    """A pod of a test. ``message`` is what it wrote before it ended; ``problem`` is why it does not run."""

    name: str
    node: str
    phase: str
    addresses: tuple[Address, ...] = ()
    message: str = ""
    problem: str = ""

    @property
    def is_serving(self) -> bool:
        """Whether it runs, and has addresses."""
        return self.phase == "Running" and bool(self.addresses)

    @property
    def has_ended(self) -> bool:
        """Whether it has done its work, or failed."""
        return self.phase in ("Succeeded", "Failed")


class ClusterPods(Protocol):
    """The nodes and pods of a cluster, as a test needs them. Each method raises Unavailable or ConfigurationError."""

    def find_image(self, *, deadline: Deadline) -> str:
        """The image of netplug's own pods on the nodes; empty if there are none."""
        ...

    def list_nodes(self, *, deadline: Deadline) -> tuple[UsableNode, ...]:
        """The nodes that run Linux, are ready and take pods, by their names."""
        ...

    def make_namespace(self, name: str, *, deadline: Deadline) -> None:
        """Make the namespace of a test; what an interrupted test left of it is removed first.

        Raises:
            ConfigurationError: it exists, and no test has made it; or it is not gone in time.
        """
        ...

    def make(self, document: Json, *, deadline: Deadline) -> None:
        """Make an object."""
        ...

    def list_pods(self, namespace: str, *, deadline: Deadline) -> tuple[RunningPod, ...]:
        """The pods of a test."""
        ...

    def find_service_addresses(self, namespace: str, name: str, *, deadline: Deadline) -> tuple[Address, ...]:
        """The addresses of a service."""
        ...

    def remove_namespace(self, name: str, *, deadline: Deadline) -> None:
        """Begin to remove the namespace of a test with all that is in it."""
        ...


def server_documents(test: ConnectivityTest, nodes: Sequence[UsableNode]) -> tuple[Json, ...]:
    """A pod for each node that answers, and a service of all of them."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": TEST_SERVICE, "namespace": test.namespace, "labels": {TEST_LABEL: "server"}},
        "spec": {
            "selector": {TEST_LABEL: "server"},
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [{"port": SERVER_PORT, "targetPort": SERVER_PORT, "protocol": "TCP"}],
        },
    }
    serve = ("serve", str(SERVER_PORT))
    pods = (_pod(test, f"server-{number}", node, "server", serve) for number, node in enumerate(nodes, start=1))
    return (service, *pods)


def asked_peers(
    nodes: Sequence[UsableNode], servers: Iterable[RunningPod], service: Sequence[Address], outside: Sequence[Peer]
) -> tuple[Peer, ...]:
    """What the pods of a test ask: the pods that answer, the nodes, the service, and what is outside."""
    return (
        *(
            Peer(name=pod.name, kind=PeerKind.POD, node=pod.node, addresses=pod.addresses)
            for pod in sorted(servers, key=lambda pod: pod.name)
        ),
        *(Peer(name=node.name, kind=PeerKind.NODE, node=node.name, addresses=node.addresses) for node in nodes),
        *([Peer(name=TEST_SERVICE, kind=PeerKind.SERVICE, addresses=tuple(service))] if service else []),
        *outside,
    )


def outside_peer(text: str) -> tuple[Peer, int]:
    """What is outside, of the form ``ADDRESS:PORT`` or ``[ADDRESS]:PORT``, and the port.

    Raises:
        ConfigurationError: it is not of that form.
    """
    host, _, port = text.rpartition(":")
    try:
        address = Address.parse(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise ConfigurationError("--outside", text, "ADDRESS:PORT is expected, of IPv6 [ADDRESS]:PORT") from None
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ConfigurationError("--outside", text, "a port between 1 and 65535 is expected behind the last colon")
    return Peer(name=text, kind=PeerKind.OUTSIDE, addresses=(address,)), int(port)


def asking_pod(
    test: ConnectivityTest, number: int, node: UsableNode, paths: Sequence[Path], ports: Mapping[str, int]
) -> Json:
    """The pod of a node that asks along paths; ``ports`` are those of peers outside, by their names."""
    questions = [_question(path, ports) for path in paths]
    return _pod(test, f"client-{number}", node, "client", ["ask", json.dumps(questions, separators=(",", ":"))])


def read_answers(pod: RunningPod, paths: Sequence[Path]) -> tuple[PathResult, ...]:
    """What a pod has found of its paths. One that says nothing of use found nothing, and why is said for each path."""
    try:
        answers = json.loads(pod.message)
    except ValueError:
        answers = None
    if not isinstance(answers, list) or len(answers) != len(paths):
        said = f": {excerpt(pod.message)}" if pod.message else f", as its phase is {pod.phase or 'unknown'}"
        answers = [pod.problem or f"{pod.name} does not say{said}"] * len(paths)
    return tuple(
        PathResult(path=path, time_ms=float(answer))
        if isinstance(answer, int | float)
        else PathResult(path=path, failure=excerpt(str(answer)))
        for path, answer in zip(paths, answers, strict=True)
    )


def _question(path: Path, ports: Mapping[str, int]) -> list[str | int]:
    match path.relation:
        case Relation.OWN_NODE | Relation.FOREIGN_NODE:
            return [str(path.address), NODE_PORT, _ANY_ANSWER]
        case Relation.OUTSIDE:
            return [str(path.address), ports[path.target], _ANY_ANSWER]
        case _:
            return [str(path.address), SERVER_PORT, _ECHO]


def _pod(test: ConnectivityTest, name: str, node: UsableNode, part: str, arguments: Sequence[str]) -> Json:
    """A pod on one node that needs no right: it may be made where only restricted pods are."""
    container = {
        "name": "main",
        "image": test.image,
        "command": ["python3", "-c", test.program, *arguments],
        "env": [{"name": RESULT_VARIABLE, "value": _RESULT_FILE}],
        "terminationMessagePath": _RESULT_FILE,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": test.namespace, "labels": {TEST_LABEL: part}},
        "spec": {
            "nodeName": node.name,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFETIME_S,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _UNPRIVILEGED_USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
