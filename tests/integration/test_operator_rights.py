"""The published manifest of the operator on a real API server, and a life of the operator with just its account.

Nothing is refused in this life, and every right that is the operator's own is used. By night each right is taken away,
and a failure names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from netplug_backends.kubernetes.installing.manifests import lease_object, shipped_objects
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.ipam.model import Affinity, AffinityState, Attribute, Block, affinity_key, block_key, host_owner
from netplug_core.operator.deployment import given_rules, lease_rules, own_rules, render_operator
from netplug_core.operator.report import COMPONENT_REFS
from netplug_core.operator.state import CONTROLLERS_LEASE_REF
from netplug_core.records import Create
from tests.harness.controllers_process import CONTROLLERS_LEASE_PATH
from tests.harness.installations import network
from tests.harness.local_stores import IS_DEEP
from tests.harness.operator_process import (
    INSTALLATIONS,
    OPERATOR_PATHS,
    POOLS,
    OperatorCluster,
    OperatorProcess,
    condition,
    open_operator_cluster,
    text_at,
)
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    account_token,
    apply_object,
    make_namespace,
    open_store,
    without_right,
)
from tests.harness.servers.kube_objects import (
    delete_definition as remove_definition,
)
from tests.harness.static_nodes import STATIC_PATHS, StaticNodes, apply_static_manifest, is_converted
from tests.harness.waiting import deadline_in, wait_until

pytestmark = pytest.mark.apiserver

Object: TypeAlias = Mapping[str, object]
Right: TypeAlias = tuple[str, str, str]

SHIPPED = shipped_objects()
OBJECTS = tuple(render_operator(SHIPPED, image="example.org/netplug/node:v1.2.3"))
OWN = (*own_rules(SHIPPED, manages_definitions=True), *lease_rules())
USER = "system:serviceaccount:netplug-operator:netplug-operator"
OWN_GROUPS = {"crd.projectnetplug.org", "projectnetplug.org"}
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/installations.operator.projectnetplug.org"
PLAIN = {"encapsulation": "None", "natOutgoing": "Disabled"}
FIRST, SECOND = {"cidr": "10.244.0.0/16", **PLAIN}, {"cidr": "10.245.0.0/16", "name": "second", **PLAIN}
BLOCKS_OF_SECOND = (Prefix.parse("10.245.0.0/26"), Prefix.parse("10.245.0.64/26"))
NODES = ("rights-1",)
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
def cluster(api_server: ApiServer, tmp_path: Path) -> Iterator[OperatorCluster]:
    for namespace in ("default", "kube-system"):
        make_namespace(api_server, namespace)
    api_server.delete_collection(EVENTS)
    for one in OBJECTS:
        apply_object(api_server, one)
    with open_operator_cluster(api_server, tmp_path) as opened:
        try:
            yield opened
        finally:
            for path in STATIC_PATHS.values():
                opened.request("DELETE", path)
            StaticNodes(api_server, NODES).remove()
    for one in OBJECTS:
        apply_object(api_server, one)  # the whole roles again
    api_server.delete_collection("/apis/apps/v1/namespaces/netplug-operator/deployments")
    for ref in COMPONENT_REFS.values():
        opened.request("DELETE", f"/apis/{ref.api_version}/{ref.plural}")


def rights(rules: Iterable[Object]) -> set[Right]:
    """Each right of some rules; the two groups of netplug's resources count as one, because a cluster has one."""
    found = (cast("Mapping[str, Sequence[str]]", rule) for rule in rules)
    every = (product(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in found)
    return set(map(in_one_group, chain.from_iterable(every)))


def in_one_group(right: Right) -> Right:
    group, resource, verb = right
    return ("ours" if group in OWN_GROUPS else group, resource, verb)


def delete_definition(cluster: OperatorCluster) -> None:
    """The server knows Installations no more: it serves them for a moment after their definition has gone."""
    remove_definition(cluster.server, DEFINITION.rpartition("/")[2])
    wait_until(lambda: cluster.find(DEFINITION) is None, "the definition goes")
    wait_until(lambda: cluster.find(INSTALLATIONS) is None, "Installations are served no more")


def start(cluster: OperatorCluster) -> OperatorProcess:
    """An operator with the account of the manifest."""
    token = account_token(cluster.server, "netplug-operator", "netplug-operator")
    kubeconfig = cluster.server.write_kubeconfig(token, name="operator-account")
    return cluster.start(KUBECONFIG=kubeconfig, NAMESPACE="netplug-operator")


# --- a life -----------------------------------------------------------------------------------------------------------

Step: TypeAlias = tuple[Callable[[], object], Callable[[], object], str]
"""What is done, what happens then, and the same in words."""


def steps_of_a_life(cluster: OperatorCluster) -> Iterator[Step]:
    """From an empty cluster to one that is empty again, with a pool that comes, changes and goes with a block.

    Then a static manifest is installed there, and converted.
    """
    installation = f"{INSTALLATIONS}/default"

    def change(*pools: object) -> None:
        cluster.patch(installation, {"spec": network(ipPools=list(pools))})

    def is_ready() -> bool:
        return condition(cluster.installation(), "Ready").get("status") == "True"

    def has_objects() -> bool:
        return all(map(cluster.find, OPERATOR_PATHS.values()))

    def is_empty() -> bool:
        paths = [path for name, path in OPERATOR_PATHS.items() if name != "namespace"]
        left = [path for path in (*paths, CONTROLLERS_LEASE_PATH) if cluster.find(path)]
        return not left and not cluster.installation()

    yield (lambda: None), (lambda: cluster.find(INSTALLATIONS)), "the definitions are made"
    yield (lambda: cluster.install(network(ipPools=[FIRST, SECOND]))), has_objects, "everything is made"
    yield cluster.roll_out, is_ready, "it is ready"
    yield (lambda: create_components(cluster)), (lambda: have_status(cluster)), "each component has a status"
    yield (lambda: cluster.request("DELETE", OPERATOR_PATHS["plugin role"])), has_objects, "the role comes back"
    yield (lambda: claim_blocks(cluster)), (lambda: True), "a node has blocks"
    changed = {**SECOND, "natOutgoing": "Enabled"}
    yield (lambda: change(FIRST, changed)), (lambda: does_masquerade(cluster)), "the pool changes"
    yield (lambda: change(FIRST)), (lambda: "second" not in cluster.names(POOLS)), "the pool goes"
    yield (lambda: None), (lambda: is_ready_again(cluster)), "it is ready again"
    lease = lease_object(CONTROLLERS_LEASE_REF)
    yield (lambda: apply_object(cluster.server, lease)), (lambda: True), "the controllers have a Lease"
    yield (lambda: cluster.request("DELETE", installation)), is_empty, "everything goes"
    nodes = StaticNodes(cluster.server, NODES)
    yield (
        (lambda: install_static_manifest(cluster, nodes)),
        (lambda: is_converted(cluster, nodes)),
        "a manifest is converted",
    )


def install_static_manifest(cluster: OperatorCluster, nodes: StaticNodes) -> None:
    cluster.end_namespace()
    apply_static_manifest(cluster.server)
    nodes.make()
    cluster.install({})


def create_components(cluster: OperatorCluster) -> None:
    for kind, ref in COMPONENT_REFS.items():
        document = {"apiVersion": ref.api_version, "kind": kind.value, "metadata": {"name": ref.name}, "spec": {}}
        apply_object(cluster.server, document)


def have_status(cluster: OperatorCluster) -> bool:
    found = (cluster.find(f"/apis/{ref.api_version}/{ref.plural}/{ref.name}") for ref in COMPONENT_REFS.values())
    return all(condition(one, "Ready") for one in found)


def does_masquerade(cluster: OperatorCluster) -> bool:
    return text_at(cluster.find(f"{POOLS}/second"), "spec", "natOutgoing") == "True"


def claim_blocks(cluster: OperatorCluster) -> None:
    """Two blocks of the second pool that a node has claimed: one is empty, one has an address in use."""
    owner = host_owner("node-1")
    empty, used = (Block.new(prefix, owner=owner, now_ns=0) for prefix in BLOCKS_OF_SECOND)
    used = used.assign(used.free[:1], Attribute(handle="k8s-pod-network.web"))
    claim = Affinity(state=AffinityState.CONFIRMED)
    with open_store(cluster.server, CrdMode.V1) as store:
        for block in (empty, used):
            writes = [Create(affinity_key(owner, block.prefix), claim), Create(block_key(block.prefix), block)]
            store.commit(writes, deadline=deadline_in())


def is_ready_again(cluster: OperatorCluster) -> bool:
    """Whether the Event about it has come a second time."""
    found = cluster.server.get(EVENTS)["items"]
    assert isinstance(found, list)
    return any(event["reason"] == "AllObjectsAvailable" and event["count"] > 1 for event in found)


def live(cluster: OperatorCluster, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Go through a life, or to where it is over; whether that was before its end."""
    for act, happens, what in steps_of_a_life(cluster):
        act()
        wait_until(lambda: is_over() or bool(happens()), what)  # noqa: B023  # called within this round
        if is_over():
            return True
    return False


def test_the_manifest_is_applied_and_a_second_time_changes_nothing(cluster: OperatorCluster) -> None:
    first = [apply_object(cluster.server, one) for one in OBJECTS]
    assert [apply_object(cluster.server, one) for one in OBJECTS] == first


@pytest.mark.night
def test_with_its_account_it_does_everything_and_needs_every_right(cluster: OperatorCluster) -> None:
    delete_definition(cluster)
    before = cluster.server.audited_rights(USER)
    operator = start(cluster)
    assert live(cluster) is False
    assert operator.stop() == 0
    assert "[ERROR]" not in operator.lines
    assert "a watch fails" not in operator.lines
    used = set(map(in_one_group, cluster.server.audited_rights(USER) - before))
    assert rights(OWN) - used == set()


# --- without one right ------------------------------------------------------------------------------------------------

EVERY = sorted(
    {(of, verb) for _, of, verb in rights([*own_rules(SHIPPED, manages_definitions=True), *given_rules(SHIPPED)])}
)
IN_LEASES = sorted({(of, verb) for _, of, verb in rights(lease_rules())})
TRIED = [*EVERY, *IN_LEASES] if IS_DEEP else [("daemonsets", "watch"), ("pods/status", "patch"), ("leases", "update")]


@pytest.mark.parametrize("resource, verb", TRIED, ids=lambda part: part.replace("/", "-"))
def test_without_a_right_a_failure_names_it(cluster: OperatorCluster, resource: str, verb: str) -> None:
    delete_definition(cluster)
    for one in OBJECTS:
        if one["kind"] == "ClusterRole":
            apply_object(cluster.server, without_right(one, resource, verb))
    operator = start(cluster)
    words = (f'cannot {verb} resource "{resource}"', f'Resources:["{resource}"]')
    name = resource.partition("/")[0]
    names = (*words, f'cannot {verb} resource "{name}"')

    def is_named() -> bool:
        return any(text in operator.lines.replace("\\", "") for text in names)

    assert live(cluster, is_named), operator.lines
