"""A test of connectivity by pods of a cluster: made, awaited, asked, and removed whatever happens.

Two pods on each node are in a namespace of their own: one answers, and one asks the answering ones, the nodes, a
service, and what is outside. What each has found stands in its status, so that no right is needed but to make pods.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from attrs import frozen

from netplug_backends.host.atomic_files import read_file
from netplug_cli.lab.world import Progress
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.connectivity import (
    TEST_SERVICE,
    ClusterPods,
    ConnectivityTest,
    Path,
    PathResult,
    Peer,
    PeerKind,
    RunningPod,
    UsableNode,
    asked_peers,
    asking_pod,
    list_paths,
    outside_peer,
    read_answers,
    server_documents,
)
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = ["PodTest", "ask_by_pods"]

_POLL_S = 0.5
_REMOVAL_S = 30.0
_PROGRAM = os.path.join(os.path.dirname(__file__), "pod_program.py")


@frozen(kw_only=True)
class PodTest:
    """What is tested, and how: on how many nodes at most, and for how long each step is awaited.

    ``image`` is that of the pods; empty for the one of netplug's own pods. ``outside`` are addresses with ports.
    """

    namespace: str
    image: str = ""
    node_count: int = 3
    outside: tuple[str, ...] = ()
    timeout_s: float = 120.0


def ask_by_pods(pods: ClusterPods, wanted: PodTest, *, clock: Clock, progress: Progress) -> tuple[PathResult, ...]:
    """What pods of a cluster reach. The namespace with them is removed at the end, also after Ctrl-C.

    Raises:
        ConfigurationError: no node takes pods, no image is known, or the namespace is no test's.
        Unavailable: the server does not answer, or pods do not run in time; the text says why each does not.
    """
    outside = [outside_peer(text) for text in wanted.outside]
    ports = {peer.name: port for peer, port in outside}

    def deadline() -> Deadline:
        return Deadline.after(clock, wanted.timeout_s)

    nodes = pods.list_nodes(deadline=deadline())[: wanted.node_count]
    if not nodes:
        raise ConfigurationError("the cluster", "", "no node with Linux is ready and takes pods")
    test = ConnectivityTest(namespace=wanted.namespace, image=_image(pods, wanted, deadline()), program=_program())
    with _namespace(pods, test.namespace, clock, progress, wanted.timeout_s):
        with progress.waiting(f"pods that answer, of {test.image}", len(nodes), clock, deadline()) as show:
            for document in server_documents(test, nodes):
                pods.make(document, deadline=deadline())
            awaited = _Awaited("server-", lambda pod: pod.is_serving, show)
            servers = _await(pods, test.namespace, awaited, clock, deadline())
        service = pods.find_service_addresses(test.namespace, TEST_SERVICE, deadline=deadline())
        peers = asked_peers(nodes, servers, service, [peer for peer, _ in outside])
        questions = dict(_questions(nodes, servers, peers))
        count = sum(map(len, questions.values()))
        with progress.waiting(f"pods that have asked, along {count} paths", len(nodes), clock, deadline()) as show:
            for number, node in enumerate(nodes, start=1):
                document = asking_pod(test, number, node, questions[f"client-{number}"], ports)
                pods.make(document, deadline=deadline())
            awaited = _Awaited("client-", lambda pod: pod.has_ended, show)
            clients = _await(pods, test.namespace, awaited, clock, deadline())
    return tuple(result for pod in clients for result in read_answers(pod, questions[pod.name]))


def _image(pods: ClusterPods, wanted: PodTest, deadline: Deadline) -> str:
    image = wanted.image or pods.find_image(deadline=deadline)
    if not image:
        raise ConfigurationError("--image", "", "netplug has no pods here whose image could be taken; name one")
    return image


def _program() -> str:
    return read_file(_PROGRAM).decode()


def _questions(
    nodes: Sequence[UsableNode], servers: Sequence[RunningPod], peers: Sequence[Peer]
) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """The paths of each asking pod. It has addresses of the families that the answering pod of its node has."""
    families = {pod.node: pod.addresses for pod in servers}
    for number, node in enumerate(nodes, start=1):
        name = f"client-{number}"
        asking = Peer(name=name, kind=PeerKind.POD, node=node.name, addresses=families.get(node.name, ()))
        yield name, tuple(path for path in list_paths((asking, *peers), {PeerKind.POD}) if path.source == name)


@contextmanager
def _namespace(pods: ClusterPods, name: str, clock: Clock, progress: Progress, timeout_s: float) -> Iterator[None]:
    pods.make_namespace(name, deadline=Deadline.after(clock, timeout_s))
    try:
        yield
    finally:
        pods.remove_namespace(name, deadline=Deadline.after(clock, _REMOVAL_S))
        progress.info(f"namespace {name} is being removed")


@frozen
class _Awaited:
    """The pods of a part, how each has to be, and what shows how many are."""

    prefix: str
    is_done: Callable[[RunningPod], bool]
    show: Callable[[int], None]


def _await(
    pods: ClusterPods, namespace: str, awaited: _Awaited, clock: Clock, deadline: Deadline
) -> tuple[RunningPod, ...]:
    """The pods of a part, when each is as it has to be."""
    while True:
        found = [pod for pod in pods.list_pods(namespace, deadline=deadline) if pod.name.startswith(awaited.prefix)]
        late = [pod for pod in found if not awaited.is_done(pod)]
        if not late:
            return tuple(sorted(found, key=lambda pod: pod.name))
        ended = [pod for pod in late if pod.has_ended]
        if ended or deadline.has_passed:
            raise Unavailable("the pods of the test", "; ".join(_states(ended or late)))
        awaited.show(len(found) - len(late))
        clock.sleep(_POLL_S)


def _states(pods: Iterable[RunningPod]) -> Iterator[str]:
    for pod in pods:
        why = pod.problem or pod.message or ("it has no address yet" if pod.phase == "Running" else "")
        yield f"{pod.name} on {pod.node} is {pod.phase or 'unknown'}{f': {why}' if why else ''}"
