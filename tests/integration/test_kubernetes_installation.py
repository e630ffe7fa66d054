"""An Installation and what it renders, on a real API server.

The definition accepts what the core accepts, and refuses what a schema can. The rendered objects are complete.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from netplug_backends.kubernetes.installing.manifests import node_role, plugin_role
from netplug_core.installation.daemonset import render
from netplug_core.installation.document import read_installation
from netplug_core.installation.rules import check
from netplug_core.installation.settings import ClusterFacts
from netplug_core.resources.installation import INSTALLATION_API_VERSION
from tests.harness.installations import manifest, network
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import install_operator_definitions
from tests.harness.wrong_installations import V4, WRONG_DOCUMENTS, WRONG_SPECS

pytestmark = pytest.mark.apiserver

PATH = f"/apis/{INSTALLATION_API_VERSION}/installations"
DETECTION = "spec.netplugNetwork.nodeAddressAutodetectionV4"
REFUSED_BY_THE_SERVER = {
    "spec.cni.type",
    "spec.netplugNetwork.cni.ipam.type",
    "spec.cni.ipam.plugin",
    "spec.cni.ipam.type and spec.cni.ipam.plugin",
    "spec.cni.type and spec.netplugNetwork.cni.type",
    "spec.cni.binDir and spec.netplugNetwork.cni.binDir",
    "spec.cni.specVersion and spec.netplugNetwork.cni.specVersion",
    "spec.netplugNetwork.ipPools",
    f"{DETECTION}.firstFound and {DETECTION}.canReach",
}
"""Of the broken rules: names of no plugin, contradicting spellings and methods, and too long a list."""

GOOD: list[dict[str, object]] = [
    manifest(),
    manifest(network(mtu=9000), name="overlay"),
    manifest({
        "cni": {"type": "netplug", "ipam": {"plugin": "HOSTLOCAL"}},
        **network(cni={"ipam": {"type": "HostLocal"}}),
    }),
    manifest(network(
        ipPools=[
            {"cidr": V4, "name": "a", "encapsulation": "VXLAN", "natOutgoing": "Disabled", "nodeSelector": "all()"},
            {"cidr": "fd00::/48", "blockSize": 122, "allowedUses": ["LoadBalancer"], "assignmentMode": "Manual"},
        ],
        nodeAddressAutodetectionV4={"kubernetes": "NodeInternalIP"},
        nodeAddressAutodetectionV6={"firstFound": False, "cidrs": ["fd00::/8"]},
        sysctl=[{"key": "net.ipv4.tcp_keepalive_time", "value": "40"}],
        linuxPolicySetupTimeoutSeconds=2**31 - 1,
    )),
    manifest({
        "cni": {"binDir": "", "specVersion": "0.3.1"},
        **network(cni={"binDir": "/b", "specVersion": "0.3.1"}),
        "kubernetesProvider": "",
        "nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
        "imagePullSecrets": [{"name": "a"}],
        "controlPlaneNodeSelector": {"a": "b"},
    }),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    install_operator_definitions(api_server)
    return api_server


def find_refusal(server: ApiServer, document: Mapping[str, object]) -> str:
    """What the server says against a document; empty if it accepts it."""
    try:
        server.create(f"{PATH}?dryRun=All&fieldValidation=Strict", document)
    except RequestRefused as error:
        if error.code not in (400, 422):
            raise
        return str(error)
    return ""


@pytest.mark.parametrize("document", GOOD)
def test_both_accept(server: ApiServer, document: dict[str, object]) -> None:
    assert check(read_installation(document)).problems == ()
    assert find_refusal(server, document) == ""


def test_a_patch_that_adds_a_second_method_is_refused(server: ApiServer) -> None:
    """V13: each method alone is right."""
    server.create(PATH, manifest(network(nodeAddressAutodetectionV4={"firstFound": True})))
    try:
        with pytest.raises(RequestRefused, match="one method is expected"):
            server.request(
                "PATCH",
                f"{PATH}/default",
                {"spec": network(nodeAddressAutodetectionV4={"canReach": "8.8.8.8"})},
                content_type="application/merge-patch+json",
            )
    finally:
        server.request("DELETE", f"{PATH}/default")


@pytest.mark.parametrize("document, problem_class, path, _text", WRONG_DOCUMENTS)
def test_the_server_refuses_what_cannot_be_read(
    server: ApiServer, document: dict[str, object], problem_class: str, path: str, _text: str
) -> None:
    assert find_refusal(server, document), (problem_class, path)


@pytest.mark.parametrize("spec, problem_class, path, _text", WRONG_SPECS)
def test_the_server_refuses_what_one_object_shows(
    server: ApiServer, spec: dict[str, object], problem_class: str, path: str, _text: str
) -> None:
    is_of_the_schema = path in REFUSED_BY_THE_SERVER and problem_class != "Incompatible"
    assert bool(find_refusal(server, manifest(spec))) == is_of_the_schema


FOLDERS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/netplug-system/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/netplug-system/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/netplug-system/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/netplug-system/rolebindings",
    "DaemonSet": "/apis/apps/v1/namespaces/netplug-system/daemonsets",
}
EVERYTHING = {
    **network(ipPools=[{"cidr": V4, "encapsulation": "VXLAN"}], bgp="Disabled", mtu=1400, hostPorts="Disabled"),
    "imagePullSecrets": [{"name": "a"}],
    "nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
    "cni": {"type": "Netplug", "installMode": "NetplugOnly", "binDir": "/b"},
    "kubernetesProvider": "AKS",
}


@pytest.mark.parametrize("spec", [network(ipPools=[{"cidr": V4, "encapsulation": "VXLAN"}]), EVERYTHING])
def test_what_is_rendered_is_applied_and_a_second_time_changes_nothing(
    server: ApiServer, spec: dict[str, object]
) -> None:
    found = render(
        read_installation(manifest(spec)), ClusterFacts(), version="1.2.3", api_group="projectnetplug.org/v3"
    )
    objects = [found.namespace, *plugin_role(), *node_role(), found.config_map, found.daemonset]

    def apply() -> list[str]:
        """The revisions of the objects after they have been applied."""
        revisions = list[str]()
        for one in objects:
            assert one is not None
            metadata = one["metadata"]
            assert isinstance(metadata, dict)
            target = f"{FOLDERS[str(one['kind'])]}/{metadata['name']}?fieldManager=tests&fieldValidation=Strict"
            stored = server.request("PATCH", target, one, content_type="application/apply-patch+yaml")
            assert isinstance(stored, dict)
            revisions.append(stored["metadata"]["resourceVersion"])
        return revisions

    assert apply() == apply()
