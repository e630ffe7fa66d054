"""The objects that policies depend on, from a store that has all kinds of them, and from one that has not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError
from netplug_core.flows.resources.policies import PolicyObjects, read_policy_objects
from netplug_core.orchestrator.model import PodName
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.records import Create, NotSupported, Query, Snapshot
from netplug_core.testing.faults import FaultyDatastore
from tests.harness.policies import key_of, make_pod, make_policy, make_profile
from tests.harness.resources import ResourceHarness

OBJECTS = (make_profile("kns.x"), make_policy("a"), make_pod("b", pod="web"), make_pod("a", pod="web"))


class WithoutKubernetes(FaultyDatastore):
    """A store that has no policies of Kubernetes."""

    def read(self, queries: Sequence[Query], *, deadline: Deadline) -> Snapshot:
        for query in queries:
            if query.kind == KUBERNETES_NETWORK_POLICY:
                raise NotSupported("storing", query.kind, "etcd keeps others")
        return super().read(queries, deadline=deadline)


def test_every_kind_is_read_that_the_store_has(harness: ResourceHarness) -> None:
    kubernetes = KubernetesNetworkPolicy(namespace="x", name="k")
    for each in (*OBJECTS, kubernetes):
        harness.put(Create(key_of(each), each))
    found = read_policy_objects(harness.store, deadline=harness.deadline)
    assert set(found.values) == {*OBJECTS, kubernetes}
    without = WithoutKubernetes(harness.store, {})
    assert set(read_policy_objects(without, deadline=harness.deadline).values) == {*OBJECTS}


def test_a_pod_has_the_endpoint_of_its_first_interface() -> None:
    objects = PolicyObjects(OBJECTS)
    assert objects.get_endpoint(PodName("x", "web")).metadata.name == "a"
    with pytest.raises(ConfigurationError, match="'y/web' is not accepted; a pod with a workload endpoint"):
        objects.get_endpoint(PodName("y", "web"))
