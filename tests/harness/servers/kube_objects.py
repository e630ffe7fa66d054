"""What the tests put into an API server: definitions, namespaces, nodes and pods; and stores opened on it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.installing.manifests import (
    ALLOW_DELETION,
    definitions,
    node_role,
    operator_definitions,
    plugin_role,
)
from netplug_backends.kubernetes.layout import KIND_MAPPINGS, KindMapping
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.clock import Clock
from netplug_core.ipam.model import AFFINITY, HANDLE, Affinity, AffinityState, Handle
from netplug_core.records import Key
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from netplug_core.settings.model import KubernetesAccess
from netplug_core.testing.datastore_harness import Samples
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.waiting import EMERGENCY_STOP_S, wait_until

__all__ = [
    "SAMPLES",
    "account_token",
    "apply_object",
    "delete_custom_objects",
    "delete_definition",
    "install_definitions",
    "install_node_role",
    "install_operator_definitions",
    "install_role",
    "make_namespace",
    "make_node",
    "make_pod",
    "open_client",
    "open_store",
    "without_right",
]

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROLES = "/apis/rbac.authorization.k8s.io/v1"


def _sample(key: Key[object], number: int) -> object:
    if key.kind == AFFINITY:
        return Affinity(
            state=AffinityState.CONFIRMED, unknown_json=json.dumps({"number": number}, separators=(",", ":"))
        )
    return Handle(blocks=((Prefix.parse("10.0.0.0/26"), number + 1),))


_CLAIMS = (
    ("host", "green", "ipv4", "10.0.0.0/26"),
    ("host", "green", "ipv4", "10.0.0.64/26"),
    ("host", "green-house", "ipv4", "10.0.0.0/26"),
    ("virtual", "green", "ipv6", "fd00::/122"),
)

SAMPLES = Samples(
    keys=(*(AFFINITY.key(*path) for path in _CLAIMS), HANDLE.key("k8s-pod-network.Big"), HANDLE.key("k8s.small")),
    value=_sample,
)
"""Records of ours: the server keeps nothing that has no definition."""


def open_client(server: ApiServer, *, kubeconfig: str = "", clock: Clock | None = None) -> ApiClient:
    """A client with the administrator's rights, or with those of a kubeconfig."""
    settings = KubernetesAccess(kubeconfig=kubeconfig or server.write_kubeconfig())
    time_ = clock or SystemClock()
    return ApiClient(
        AccessSource(settings, {}), clock=time_, rate_limiter=RateLimiter(clock=time_, qps=10_000, burst=10_000)
    )


@contextmanager
def open_store(server: ApiServer, mode: CrdMode | None, *, kubeconfig: str = "") -> Iterator[KubernetesDatastore]:
    """A store on the server, closed at the end; what is in it stays."""
    store = KubernetesDatastore(open_client(server, kubeconfig=kubeconfig), mode=mode)
    try:
        yield store
    finally:
        store.close()


def install_definitions(server: ApiServer, mode: CrdMode) -> None:
    """Install the shipped definitions of a group and wait until the server serves them."""
    _apply_definitions(server, [definition for _plural, definition in definitions(mode)])
    for sort in KIND_MAPPINGS.values():
        _wait_served(server, f"/apis/{mode.value}/{sort.plural[mode]}")


def install_operator_definitions(server: ApiServer) -> None:
    """Install the shipped definitions of the operator's kinds and wait until the server serves them."""
    _apply_definitions(server, [definition for _plural, definition in operator_definitions()])
    for plural, _definition in operator_definitions():
        _wait_served(server, f"/apis/{INSTALLATION_API_VERSION}/{plural}")


def _apply_definitions(server: ApiServer, found: Sequence[Mapping[str, object]]) -> None:
    for definition in found:
        target = f"{_DEFINITIONS}/{_name(definition)}?fieldManager=tests&force=true"
        server.request("PATCH", target, definition, content_type="application/apply-patch+yaml")
    for definition in found:
        _wait_established(server, _name(definition))


def delete_definition(server: ApiServer, name: str) -> None:
    """Delete a definition, which may not exist, and which a policy of this server may keep."""
    change = {"metadata": {"annotations": {ALLOW_DELETION: ""}}}
    try:
        server.request("PATCH", f"{_DEFINITIONS}/{name}", change, content_type="application/merge-patch+json")
        server.request("DELETE", f"{_DEFINITIONS}/{name}")
    except RequestRefused as error:
        if error.code != 404:
            raise


@contextmanager
def without_definition(server: ApiServer, mode: CrdMode, plural: str) -> Iterator[None]:
    """An empty cluster with the shipped definitions of a group but one; all are there at the end."""
    install_definitions(server, mode)
    delete_custom_objects(server, mode)
    delete_definition(server, f"{plural}.{mode.group}")
    wait_until(lambda: not _is_served(server, f"/apis/{mode.value}/{plural}"), f"{plural} are not served any more")
    try:
        yield
    finally:
        install_definitions(server, mode)


def delete_custom_objects(server: ApiServer, mode: CrdMode) -> None:
    """Delete every custom object of a group, and every pod: no block would hold the addresses of one any more."""
    for sort in KIND_MAPPINGS.values():
        for namespace in _namespaces_of(server, mode, sort):
            server.delete_collection(f"/apis/{mode.value}{namespace}/{sort.plural[mode]}")
    pods = server.get("/api/v1/pods")["items"]
    assert isinstance(pods, list)
    for metadata in (pod["metadata"] for pod in pods):
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        server.request("DELETE", f"{path}?gracePeriodSeconds=0")


def _namespaces_of(server: ApiServer, mode: CrdMode, sort: KindMapping) -> list[str]:
    """The paths of the namespaces that have objects of a kind; an empty one of a kind without namespaces."""
    if not sort.is_namespaced:
        return [""]
    items = server.get(f"/apis/{mode.value}/{sort.plural[mode]}")["items"]
    assert isinstance(items, list)
    return sorted({f"/namespaces/{item['metadata']['namespace']}" for item in items})


def apply_object(server: ApiServer, body: Mapping[str, object]) -> str:
    """Apply an object as kubectl does on the server; its uid and its revision afterwards.

    The server writes the status of a definition by itself, so the revision of one is that of its spec.
    """
    api_version, kind = str(body["apiVersion"]), str(body["kind"])
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    namespace = _find_name(body, "namespace")
    folder = f"{root}{f'/namespaces/{namespace}' if namespace else ''}/{kind.lower()}s"
    target = f"{folder}/{_name(body)}?fieldManager=tests&fieldValidation=Strict&force=true"
    stored = server.request("PATCH", target, body, content_type="application/apply-patch+yaml")
    assert isinstance(stored, dict)
    metadata = stored["metadata"]
    revision = "generation" if kind == "CustomResourceDefinition" else "resourceVersion"
    return f"{metadata['uid']}/{metadata[revision]}"


def install_role(
    server: ApiServer,
    *,
    without: tuple[str, str] | None = None,
    objects: Sequence[Mapping[str, object]] = plugin_role(),
) -> str:
    """Install an account and its role, the shipped one of the plugin; the account's token.

    ``without`` leaves out a verb on a resource. The rights count when it returns.
    """
    account, whole, binding = objects
    namespace = make_namespace(server, _name(account, "namespace"))
    role = whole if without is None else without_right(whole, *without)
    for path, body in (
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", account),
        (f"{_ROLES}/clusterroles", role),
        (f"{_ROLES}/clusterrolebindings", binding),
    ):
        target = f"{path}/{_name(body)}?fieldManager=tests&force=true"
        server.request("PATCH", target, body, content_type="application/apply-patch+yaml")
    user = f"system:serviceaccount:{namespace}:{_name(account)}"
    wait_until(lambda: _rights_of(server, user) & _rights(whole) == _rights(role), "the server knows the role")
    return account_token(server, namespace, _name(account))


def install_node_role(server: ApiServer, *, without: tuple[str, str] | None = None, stores_release: bool = True) -> str:
    """Install the account of the node process and its roles, as a manifest has them; the account's token."""
    account, role, role_binding, cluster_role, binding = node_role(stores_release=stores_release)
    token = install_role(server, without=without, objects=(account, cluster_role, binding))
    for each in (role, role_binding):
        apply_object(server, each)
    return token


def _rights_of(server: ApiServer, user: str) -> set[tuple[str, str, str]]:
    """What a user may do: API group, resource and verb. The server learns of roles a moment after they are stored."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "any"}}
    reply = server.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review, user=user)
    assert isinstance(reply, dict)
    return _rights({"rules": reply["status"]["resourceRules"]})


def _rights(role: Mapping[str, object]) -> set[tuple[str, str, str]]:
    rules = role["rules"]
    assert isinstance(rules, list)
    return {right for rule in rules for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])}


def account_token(server: ApiServer, namespace: str, name: str) -> str:
    """A token of an account that is there."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    reply = server.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
    status = reply["status"]
    assert isinstance(status, dict)
    return str(status["token"])


def make_namespace(server: ApiServer, name: str, **metadata: object) -> str:
    """A namespace; one that is there stays."""
    _create_if_absent(server, "/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
    return name


def make_node(server: ApiServer, name: str, **metadata: object) -> str:
    """A node; one that is there stays."""
    _create_if_absent(server, "/api/v1/nodes", {"metadata": {"name": name, **metadata}})
    return name


def make_pod(
    server: ApiServer,
    namespace: str,
    name: str,
    *,
    node: str,
    ports: Mapping[str, int] | None = None,
    **metadata: object,
) -> Mapping[str, object]:
    """A pod that is scheduled to a node; it runs nowhere. ``ports`` are named ports of UDP, in place of one of TCP."""
    listed: list[dict[str, object]] = [{"name": "http", "containerPort": 80}]
    if ports is not None:
        listed = [{"name": each, "containerPort": port, "protocol": "UDP"} for each, port in ports.items()]
    container = {"name": "main", "image": "none", "ports": listed}
    body = {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node, "containers": [container], "serviceAccountName": "web"},
    }
    return server.create(f"/api/v1/namespaces/{namespace}/pods", body)


def _create_if_absent(server: ApiServer, path: str, body: object) -> None:
    try:
        server.create(path, body)
    except RequestRefused as error:
        if error.code != 409:  # it exists
            raise


def without_right(role: Mapping[str, object], resource: str, verb: str) -> Mapping[str, object]:
    """A role without one verb on one resource, whichever of its rules give it."""
    rules = role["rules"]
    assert isinstance(rules, list)
    return {**role, "rules": [part for rule in rules for part in _without_verb(rule, resource, verb)]}


def _without_verb(rule: Mapping[str, list[str]], resource: str, verb: str) -> Iterator[dict[str, object]]:
    """A rule without one verb on one resource."""
    if resource not in rule["resources"] or verb not in rule["verbs"]:
        yield dict(rule)
        return
    others = [name for name in rule["resources"] if name != resource]
    verbs = [name for name in rule["verbs"] if name != verb]
    if others:
        yield {**rule, "resources": others}
    if verbs:
        yield {**rule, "resources": [resource], "verbs": verbs}


def _name(body: Mapping[str, object], member: str = "name") -> str:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata[member])


def _find_name(body: Mapping[str, object], member: str) -> str:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata.get(member, ""))


def _wait_established(server: ApiServer, name: str) -> None:
    deadline = time.monotonic() + EMERGENCY_STOP_S
    while time.monotonic() < deadline:
        status = server.get(f"{_DEFINITIONS}/{name}").get("status")
        conditions = (status.get("conditions") if isinstance(status, dict) else None) or ()  # null at first
        found = {condition["type"]: condition for condition in conditions}
        assert found.get("NamesAccepted", {}).get("status") != "False", found
        assert found.get("NonStructuralSchema", {}).get("status") != "True", found
        if found.get("Established", {}).get("status") == "True":
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} is not established")


def _wait_served(server: ApiServer, path: str) -> None:
    wait_until(lambda: _is_served(server, path), f"{path} is served")


def _is_served(server: ApiServer, path: str) -> bool:
    try:
        server.get(path)
    except RequestRefused:
        return False
    return True
