"""The provider, by what the clusters of each show."""

from __future__ import annotations

import pytest

from netplug_core.operator.state import Json, detect_provider
from netplug_core.resources.installation import KubernetesProvider


def node(*, version: str = "v1.34.1", identity: str = "", **labels: str) -> Json:
    return {
        "metadata": {"labels": {"kubernetes.io/os": "linux", **labels}},
        "spec": {"providerID": identity},
        "status": {"nodeInfo": {"kubeletVersion": version}},
    }


NODES = [
    (node(), ""),
    (node(identity="aws:///eu-central-1a/i-0abc"), ""),  # a cluster of one's own on the machines of a cloud
    (node(**{"eks.amazonaws.com/nodegroup": "workers"}), "EKS"),
    (node(version="v1.31.2-eks-7f9249a", identity="aws:///eu-central-1a/i-0abc"), "EKS"),
    (node(**{"cloud.google.com/gke-nodepool": "default-pool"}), "GKE"),
    (node(version="v1.31.1-gke.1846000"), "GKE"),
    (node(**{"kubernetes.azure.com/cluster": "MC_group_name"}), "AKS"),
    (node(version="v1.30.4+rke2r1"), "RKE2"),
    (node(version="v1.30.4+k3s1"), ""),
    (node(**{"com.docker.ucp.collection": "shared"}), "DockerEnterprise"),
    (node(**{"run.tanzu.vmware.com/tkr": "v1.28.8"}), "TKG"),
    (node(identity="kind://docker/kind/kind-control-plane"), "Kind"),
]


@pytest.mark.parametrize("found, provider", NODES)
def test_a_node_shows_it(found: Json, provider: str) -> None:
    assert detect_provider(["apps", "batch"], found).value == provider


def test_each_provider_can_be_detected() -> None:
    by_node = {detect_provider([], found) for found, _ in NODES}
    assert {*by_node, detect_provider(["config.openshift.io"], None)} == set(KubernetesProvider)


def test_the_api_decides_before_the_nodes() -> None:
    on_amazon = node(**{"eks.amazonaws.com/nodegroup": "workers"})
    assert detect_provider(["apps", "config.openshift.io"], on_amazon) is KubernetesProvider.OPENSHIFT


@pytest.mark.parametrize("found", [None, {}, {"metadata": {"labels": None}}, {"metadata": {"labels": ["x"]}}])
def test_without_nodes_nothing_is_known(found: Json | None) -> None:
    assert detect_provider([], found) is KubernetesProvider.OTHER
