"""The objects that policies depend on, read at once: for the commands that say what policies do. Read only."""

from __future__ import annotations

from attrs import frozen

from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ConfigurationError
from netplug_core.orchestrator.model import PodName
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.policy.resolve import PolicyObject
from netplug_core.records import NotSupported
from netplug_core.resources.workloadendpoint import WorkloadEndpoint

__all__ = ["PolicyObjects", "read_policy_objects"]


@frozen
class PolicyObjects:
    """All objects that policies depend on."""

    values: tuple[PolicyObject, ...]

    def get_endpoint(self, pod: PodName) -> WorkloadEndpoint:
        """The endpoint of a pod; of several, that of its first interface.

        Raises:
            ConfigurationError: the pod has none.
        """
        found = (
            each
            for each in self.values
            if isinstance(each, WorkloadEndpoint)
            and each.metadata.namespace == pod.namespace
            and pod.name in (each.spec.pod, each.spec.workload)
        )
        endpoint = min(found, key=lambda each: each.metadata.name, default=None)
        if endpoint is None:
            raise ConfigurationError("pod", str(pod), "a pod with a workload endpoint is expected: one on a node")
        return endpoint


def read_policy_objects(store: Datastore, *, deadline: Deadline) -> PolicyObjects:
    """Everything that is stored of it. A kind that the store does not have has no objects.

    Raises:
        Unavailable: the store does not answer.
    """
    found: list[PolicyObject] = []
    for kind in POLICY_KINDS:
        try:
            records = read_pages(store, kind, (), deadline=deadline)
            found += [record.value for record in records if isinstance(record.value, PolicyObject)]
        except NotSupported:
            continue  # etcd has no policies of Kubernetes: a controller copies them
    return PolicyObjects(tuple(found))
