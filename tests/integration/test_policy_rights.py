"""The account of the node process on a real API server: policy needs each right that the shipped role has for it.

That the role is enough is what the tests of a node with pods show, whose node process has this account.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.installing.manifests import node_role
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.clock import Deadline
from netplug_core.datastore.feed import Damage, follow
from netplug_core.datastore.view import View
from netplug_core.errors import Unauthorized
from netplug_core.policy.index import POLICY_KINDS
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_definitions, install_node_role, open_store

pytestmark = [pytest.mark.apiserver, pytest.mark.night]

_FOLLOW_S = 1.0  # a right that is missing shows at once
_OF_POLICY = {
    "globalnetworkpolicies", "globalnetworksets", "hostendpoints", "namespaces", "networkpolicies", "networksets",
    "nodeconfigurations", "pods", "serviceaccounts",
}  # fmt: skip


def rights() -> list[tuple[str, str]]:
    """Every verb on every resource that policy follows from. To get one shows nothing that a list does not show."""
    _account, _role, _role_binding, cluster_role, _binding = node_role()
    rules = cluster_role["rules"]
    assert isinstance(rules, list)
    found = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    return sorted((resource, verb) for resource, verb in found if resource in _OF_POLICY and verb != "get")


@pytest.fixture
def cluster(api_server: ApiServer) -> Iterator[ApiServer]:
    """A server with the definitions of both groups; the whole role at the end."""
    for mode in CrdMode:
        install_definitions(api_server, mode)
    yield api_server
    install_node_role(api_server)


def follow_policy(server: ApiServer, token: str, mode: CrdMode) -> View:
    """What the node process follows for policy, with the rights of a token."""
    clock = SystemClock()
    view = View(clock=clock, uncached_kinds=frozenset())
    with open_store(server, mode, kubeconfig=server.write_kubeconfig(token, name="node-account")) as store:
        follow(store, view, POLICY_KINDS, deadline=Deadline.after(clock, _FOLLOW_S), damage=Damage.PASSED_OVER)
    return view


@pytest.mark.parametrize("mode", CrdMode)
def test_the_shipped_rights_are_enough(cluster: ApiServer, mode: CrdMode) -> None:
    assert follow_policy(cluster, install_node_role(cluster), mode).has_listed(POLICY_KINDS)


@pytest.mark.parametrize("resource,verb", rights())
def test_each_right_is_needed_and_its_absence_named(cluster: ApiServer, resource: str, verb: str) -> None:
    token = install_node_role(cluster, without=(resource, verb))
    with pytest.raises(Unauthorized) as refusal:
        follow_policy(cluster, token, CrdMode.V1)
    assert f'cannot {verb} resource "{resource}"' in str(refusal.value)
    assert "a right is missing" in str(refusal.value)
