"""The static manifests on a real API server: each is complete, and applying it a second time changes nothing.

The rights that the manifests for etcd give the plugin are those that it uses, each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from netplug_backends.kubernetes.installing.manifests import etcd_plugin_role, static_manifest
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_core.errors import Unauthorized
from netplug_core.installation.static import Method
from tests.harness.kube_workloads import NAMESPACE, NODE
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import apply_object, install_role, make_namespace, make_node, open_client
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.apiserver

ETCD_ROLE = etcd_plugin_role("kube-system")
LOOKUPS: dict[str, Callable[[KubernetesOrchestrator], object]] = {
    "pods": lambda orchestrator: orchestrator.find_pod(NAMESPACE, "none", deadline=deadline_in()),
    "namespaces": lambda orchestrator: orchestrator.find_namespace(NAMESPACE, deadline=deadline_in()),
    "nodes": lambda orchestrator: orchestrator.find_node(NODE, deadline=deadline_in()),
}
"""What the plugin asks the orchestrator for, by the resource."""


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> Iterator[ApiServer]:
    for namespace in ("kube-system", NAMESPACE):
        make_namespace(api_server, namespace)
    make_node(api_server, NODE)
    yield api_server
    api_server.delete_collection("/apis/apps/v1/namespaces/kube-system/daemonsets")


@pytest.mark.parametrize("method", list(Method))
def test_a_manifest_is_applied_and_a_second_time_changes_nothing(server: ApiServer, method: Method) -> None:
    objects = list(static_manifest(method, version="1.2.3"))
    first = [apply_object(server, one) for one in objects]
    assert [apply_object(server, one) for one in objects] == first


def test_the_rights_with_etcd_are_enough(server: ApiServer) -> None:
    orchestrator = KubernetesOrchestrator(open_client(server, kubeconfig=_kubeconfig(server)))
    found = {resource: look_up(orchestrator) is None for resource, look_up in LOOKUPS.items()}
    orchestrator.close()
    assert found == {"pods": True, "namespaces": False, "nodes": False}


@pytest.mark.parametrize("resource", sorted(LOOKUPS))
def test_each_right_with_etcd_is_needed_and_its_absence_named(server: ApiServer, resource: str) -> None:
    kubeconfig = _kubeconfig(server, without=(resource, "get"))
    orchestrator = KubernetesOrchestrator(open_client(server, kubeconfig=kubeconfig))
    with pytest.raises(Unauthorized) as refusal:
        LOOKUPS[resource](orchestrator)
    orchestrator.close()
    assert f'cannot get resource "{resource}"' in str(refusal.value)


def test_the_tried_rights_are_all_that_the_role_has() -> None:
    rules = ETCD_ROLE[1]["rules"]
    assert isinstance(rules, list)
    granted = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert granted == {(resource, "get") for resource in LOOKUPS}


def _kubeconfig(server: ApiServer, *, without: tuple[str, str] | None = None) -> str:
    return server.write_kubeconfig(install_role(server, without=without, objects=ETCD_ROLE), name="etcd-plugin")
