"""The calculation of policy for 20,000 endpoints and 1,000 selectors, beside json.loads of the same pods.

The first calculation takes stored endpoints and policies and ends with the delta that has every set with its members.
An event is a change of a label of one endpoint, with the delta that follows; the reference evaluates every selector for
that endpoint. Memory is what ``tracemalloc`` counts of an index, and what 10,000 changes add to it. The endpoints are
those of deployments, so many have the same labels; in a second run each has a label of its own.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from statistics import median

from attrs import evolve

from netplug_core.addressing import Address, Family
from netplug_core.names import endpoint_labels
from netplug_core.policy.index import PolicyIndex
from netplug_core.policy.model import PolicyDelta
from netplug_core.records import Key
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.kinds import Resource, key_of
from netplug_core.resources.networkpolicy import GlobalNetworkPolicy, GlobalNetworkPolicySpec
from netplug_core.resources.policyrule import EntityRule, PolicyRule, RuleAction
from netplug_core.resources.profile import Profile, ProfileSpec, pod_profiles
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.selectors import matches, parse

__all__ = ["measure"]

_ENDPOINTS, _SELECTORS, _NAMESPACES, _APPS = 20_000, 1_000, 100, 20
_LOCAL = 110
_EVENTS = 500
_CHANGES = 10_000
_FIRST_GOAL, _EVENT_GOAL, _MEMORY_GOAL_MB, _GROWTH_GOAL_MB = 2.0, 0.2, 60, 5
_ROUNDS = 5
_MB = 1e6

_Object = tuple[Key[object], object]


def measure(rounds: int) -> None:
    """Measure and print; at most a few rounds, since each calculates everything."""
    for is_unique in (False, True):
        _measure_shape(min(rounds, _ROUNDS), is_unique=is_unique)


def _measure_shape(rounds: int, *, is_unique: bool) -> None:
    objects, endpoints = _make_objects(is_unique=is_unique)
    texts = [_pod_text(endpoint) for endpoint in endpoints]
    first = [_ratio(lambda: _calculate(objects), lambda: _load(texts)) for _ in range(rounds)]
    index, delta = _calculate(objects)
    event_s, naive_s = _event_s(index, endpoints), _naive_s(endpoints)
    memory, growth = _measure_memory(objects, endpoints)
    members = sum(len(each.members) for each in delta.sets)
    shape = "a label of its own at each" if is_unique else f"{_NAMESPACES * _APPS} deployments"
    print(f"{_ENDPOINTS} endpoints ({shape}), {len(delta.sets)} sets, {members} members; medians\n")
    print(f"first calculation / json.loads of the pods {median(first):8.2f}     goal <= {_FIRST_GOAL}")
    print(f"one event                                  {event_s * 1e6:8.1f} us")
    print(f"  / every selector evaluated               {event_s / naive_s:8.3f}     goal <= {_EVENT_GOAL}")
    print(f"memory of the index                        {memory / _MB:8.1f} MB  goal <= {_MEMORY_GOAL_MB}")
    print(f"  and after {_CHANGES} changes more          {growth / _MB:8.1f} MB  goal <= {_GROWTH_GOAL_MB}\n")


def _make_objects(*, is_unique: bool) -> tuple[list[_Object], list[WorkloadEndpoint]]:
    profiles = [
        Profile(
            metadata=Metadata(name=pod_profiles(f"ns-{number}", "")[0]),
            spec=ProfileSpec(labels_to_apply=(("pcns.team", f"team-{number % 10}"),)),
        )
        for number in range(_NAMESPACES)
    ]
    endpoints = [_make_endpoint(number, is_unique=is_unique) for number in range(_ENDPOINTS)]
    rules = tuple(
        PolicyRule(action=RuleAction.ALLOW, source=EntityRule(selector=_selector_text(number)))
        for number in range(_SELECTORS)
    )
    policies = [
        GlobalNetworkPolicy(
            metadata=Metadata(name=f"policy-{number}"),
            spec=GlobalNetworkPolicySpec(selector="all()", ingress=rules[number::10]),
        )
        for number in range(10)
    ]
    objects: tuple[Resource, ...] = (*profiles, *endpoints, *policies)
    return [(key_of(each), each) for each in objects], endpoints


def _selector_text(number: int) -> str:
    """One of four shapes; all texts differ."""
    shape, place = number % 4, number // 4  # 250 of each shape
    namespace, app = place % _NAMESPACES, place // _NAMESPACES + place % 7
    return (
        f"projectnetplug.org/namespace == 'ns-{namespace}' && app == 'app-{app}'",
        f"pcns.team == 'team-{place % 10}' && app == 'app-{place // 10 % _APPS}' && track != 'new-{place // 200}'",
        f"app in {{'app-{app}', 'app-{app + 1}'}} && projectnetplug.org/namespace == 'ns-{namespace}'",
        f"projectnetplug.org/namespace == 'ns-{namespace}' && tier != 'tier-{app % 3}' && app != 'app-{app}'",
    )[shape]


def _make_endpoint(number: int, *, is_unique: bool) -> WorkloadEndpoint:
    namespace, app = f"ns-{number % _NAMESPACES}", number // _NAMESPACES % _APPS
    labels: Labels = (
        ("app", f"app-{app}"),
        ("pod-template-hash", f"{app:08x}"),
        ("tier", f"tier-{app % 3}"),
        ("track", "stable" if number % 3 else "canary"),
        *((("statefulset.kubernetes.io/pod-name", f"pod-{number}"),) if is_unique else ()),
    )
    return WorkloadEndpoint(
        metadata=Metadata(
            name=f"node--{number % 181}-k8s-pod--{number}-eth0",
            namespace=namespace,
            labels=endpoint_labels(namespace=namespace, orchestrator="k8s", workload=labels),
        ),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node="here" if number < _LOCAL else f"node-{number % 181}",
            endpoint="eth0",
            pod=f"pod-{number}",
            addresses=(Address(Family.IPV4, 0x0A000000 + number), Address(Family.IPV6, (0xFD << 120) + number)),
            profiles=pod_profiles(namespace, ""),
            interface_name=f"netp{number}" if number < _LOCAL else "",
        ),
    )


def _pod_text(endpoint: WorkloadEndpoint) -> str:
    """The Pod as the API server lists it: what every pod of a deployment has, without ``managedFields``."""
    metadata, spec, began = endpoint.metadata, endpoint.spec, "2026-01-01T00:00:00Z"
    token = {"name": "kube-api-access-x2x4b", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1",
            "fieldPath": "metadata.namespace"}}]}}]}}  # fmt: skip
    container = {"name": "main", "image": "registry.example/app:1", "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "terminationMessagePath":
        "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {"requests": {"cpu": "100m"}},
        "volumeMounts": [{"name": token["name"], "readOnly": True, "mountPath": "/var/run/secrets"}]}  # fmt: skip
    tolerations = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 300} for key in ("not-ready", "unreachable")]  # fmt: skip
    conditions = [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": began}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]  # fmt: skip
    running = {"name": "main", "ready": True, "restartCount": 0, "started": True, "image": container["image"],
        "imageID": f"sha256:{'0' * 64}", "containerID": f"containerd://{'0' * 64}", "lastState": {},
        "state": {"running": {"startedAt": began}}}  # fmt: skip
    addresses = [{"ip": str(each)} for each in spec.addresses]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-1", "uid": f"{spec.pod}-owner",
        "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    pod = {"metadata": {"name": spec.pod, "namespace": metadata.namespace, "uid": f"{spec.pod}-uid", "generateName":
        "app-", "resourceVersion": "1000", "creationTimestamp": began, "labels": dict(metadata.labels),
        "ownerReferences": [owner]}, "spec": {"nodeName": spec.node, "serviceAccountName": "default",
        "restartPolicy": "Always", "containers": [container], "dnsPolicy": "ClusterFirst", "volumes": [token],
        "schedulerName": "default-scheduler", "tolerations": tolerations, "enableServiceLinks": True}, "status":
        {"phase": "Running", "podIP": addresses[0]["ip"], "podIPs": addresses, "hostIP": "192.0.2.1", "conditions":
        conditions, "qosClass": "Burstable", "startTime": began, "containerStatuses": [running]}}  # fmt: skip
    return json.dumps(pod)


def _calculate(objects: list[_Object]) -> tuple[PolicyIndex, PolicyDelta]:
    index = PolicyIndex("here")
    for key, value in objects:
        index.apply(key, value)
    return index, index.take_delta()


def _load(texts: list[str]) -> list[object]:
    return [json.loads(text) for text in texts]


def _ratio(first: Callable[[], object], reference: Callable[[], object]) -> float:
    def took(act: Callable[[], object]) -> float:
        gc.collect()
        began = time.process_time()
        kept = act()
        took_s = time.process_time() - began
        del kept
        return took_s

    return took(first) / took(reference)


def _relabelled(endpoint: WorkloadEndpoint, value: str) -> WorkloadEndpoint:
    labels = {**dict(endpoint.metadata.labels), "track": value}
    return evolve(endpoint, metadata=evolve(endpoint.metadata, labels=tuple(sorted(labels.items()))))


def _event_s(index: PolicyIndex, endpoints: list[WorkloadEndpoint]) -> float:
    """The median of an event; the changes are made before, as a watch would bring them."""
    chosen = [endpoints[number * 7919 % len(endpoints)] for number in range(_EVENTS)]
    events = [(key_of(each), _relabelled(each, f"new-{number % 7}")) for number, each in enumerate(chosen)]
    took: list[float] = []
    for key, value in events:
        began = time.process_time()
        index.apply(key, value)
        index.take_delta()
        took.append(time.process_time() - began)
    for each in chosen:
        index.apply(key_of(each), each)
    index.take_delta()
    return median(took)


def _naive_s(endpoints: list[WorkloadEndpoint]) -> float:
    """The median of evaluating every selector for one endpoint."""
    selectors = [parse(_selector_text(number)) for number in range(_SELECTORS)]
    took: list[float] = []
    for number in range(20):
        labels = {**dict(endpoints[number * 7919 % len(endpoints)].metadata.labels), "pcns.team": "team-1"}
        began = time.process_time()
        found = [selector for selector in selectors if matches(selector, labels)]
        took.append(time.process_time() - began)
        del found
    return median(took)


def _measure_memory(objects: list[_Object], endpoints: list[WorkloadEndpoint]) -> tuple[int, int]:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index, delta = _calculate(objects)
    del delta
    gc.collect()
    first = tracemalloc.get_traced_memory()[0]
    for number in range(_CHANGES // 2):  # of each endpoint two: its label changes, and changes back
        endpoint = endpoints[number * 7919 % len(endpoints)]
        for value in (_relabelled(endpoint, f"new-{number % 7}"), endpoint):
            index.apply(key_of(endpoint), value)
            index.take_delta()
    gc.collect()
    last = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return first - before, last - first
