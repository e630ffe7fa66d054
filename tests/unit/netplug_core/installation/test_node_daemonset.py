"""The pods of the nodes, and how each field of an Installation reaches them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from netplug_core.installation.daemonset import CONFIG_HASH, render, render_environment
from netplug_core.installation.settings import ClusterFacts
from tests.harness.installations import make_pool, network, read, resolved


def daemonset(spec: Mapping[str, object] | None = None, *, api_group: str = "") -> dict[str, Any]:
    facts = ClusterFacts(pools=(make_pool("10.0.0.0/16"),))
    found = render(read(spec), facts, version="1.2.3", api_group=api_group).daemonset
    assert isinstance(found, dict)
    return found


def pod(spec: Mapping[str, object] | None = None, *, api_group: str = "") -> dict[str, Any]:
    found: dict[str, Any] = daemonset(spec, api_group=api_group)["spec"]["template"]["spec"]
    return found


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def test_what_runs_on_a_node() -> None:
    found = pod()
    (installer,), (node,) = found["initContainers"], found["containers"]
    assert (installer["name"], installer["command"]) == ("install-cni", ["netplug-install"])
    assert (node["name"], node["command"]) == ("netplug-node", ["netplug-node"])
    assert installer["image"] == node["image"] == "docker.io/netplug/node:v1.2.3"
    assert variables(installer) == {
        "CNI_CONF_NAME": "10-netplug.conflist",
        "CNI_NET_DIR": "/etc/cni/net.d",
        "SLEEP": "false",
    }
    expected = render_environment(resolved(pools=(make_pool("10.0.0.0/16"),)))
    assert variables(node) == {
        **expected,
        "CNI_BIN_DIR": "/opt/cni/bin",
        "CNI_NET_DIR": "/etc/cni/net.d",
        "KUBECONFIG": "/etc/cni/net.d/netplug-kubeconfig",
    }
    assert found["hostNetwork"] is True
    assert found["tolerations"] == [{"operator": "Exists"}]


def test_every_mount_has_its_volume() -> None:
    found = pod()
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in found["volumes"]}
    mounts = {
        mount["name"]: mount["mountPath"]
        for container in (*found["initContainers"], *found["containers"])
        for mount in container["volumeMounts"]
    }
    assert volumes == {"host-root": "/", "cni-bin-dir": "/opt/cni/bin", "cni-net-dir": "/etc/cni/net.d"}
    assert mounts == {
        "host-root": "/host",
        "cni-bin-dir": "/host/opt/cni/bin",
        "cni-net-dir": "/host/etc/cni/net.d",
    }


def test_what_pods_may_do_on_the_host() -> None:
    """What the page about security says: both containers may do everything, in the host's network alone."""
    found = pod()
    privileged = {"privileged": True, "runAsUser": 0, "runAsGroup": 0}
    assert [one["securityContext"] for one in (*found["initContainers"], *found["containers"])] == [privileged] * 2
    assert found["serviceAccountName"] == "netplug-node"
    assert not {"hostPID", "hostIPC", "shareProcessNamespace", "securityContext"} & found.keys()


def test_probes_ask_the_port_that_is_served() -> None:
    (node,) = pod()["containers"]
    assert node["args"] == ["--host-root=/host", "--metrics-port=9470"]
    asked = {name: node[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {one["port"] for one in asked.values()} == {9470}
    assert {name: one["path"] for name, one in asked.items()} == {
        "startupProbe": "/livez",
        "readinessProbe": "/readyz",
        "livenessProbe": "/livez",
    }


@pytest.mark.parametrize("spec, reference", [
    ({"registry": "reg.example/", "imagePath": "team/net", "imagePrefix": "x-"}, "reg.example/team/net/x-node:v1.2.3"),
    ({"registry": "UseDefault", "imagePath": "UseDefault"}, "docker.io/netplug/node:v1.2.3"),
    ({"imagePath": "/team/"}, "docker.io/team/node:v1.2.3"),
])  # fmt: skip
def test_where_images_are(spec: dict[str, object], reference: str) -> None:
    assert pod(spec)["containers"][0]["image"] == reference


def test_how_images_are_pulled() -> None:
    found = pod({"imagePullPolicy": "Always", "imagePullSecrets": [{"name": "a"}, {"name": "b"}]})
    assert found["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert [one["imagePullPolicy"] for one in (*found["initContainers"], *found["containers"])] == ["Always", "Always"]
    assert "imagePullSecrets" not in pod()


def test_the_folders_of_the_host() -> None:
    found = pod({"cni": {"binDir": "/srv/bin", "confDir": "/srv/net.d"}})
    assert {volume["hostPath"]["path"] for volume in found["volumes"]} == {"/", "/srv/bin", "/srv/net.d"}
    assert variables(found["initContainers"][0])["CNI_NET_DIR"] == "/srv/net.d"
    assert variables(found["containers"][0])["CNI_BIN_DIR"] == "/srv/bin"
    assert variables(found["containers"][0])["KUBECONFIG"] == "/srv/net.d/netplug-kubeconfig"


def test_only_the_own_plugins() -> None:
    (installer,) = pod({"cni": {"installMode": "NetplugOnly"}})["initContainers"]
    assert variables(installer)["SKIP_CNI_BINARIES"] == "bandwidth,flannel,host-local,loopback,portmap,tuning"


def test_the_group_of_the_crds_reaches_both_containers() -> None:
    found = pod(api_group="projectnetplug.org/v3")
    groups = [variables(one)["NETPLUG_API_GROUP"] for one in (*found["initContainers"], *found["containers"])]
    assert groups == ["projectnetplug.org/v3"] * 2


def test_how_many_nodes_are_updated_at_a_time() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}}
    assert daemonset({"nodeUpdateStrategy": strategy})["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "20%", "maxSurge": 0},
    }


@pytest.mark.parametrize("provider, label, value", [
    ("AKS", "type", "virtual-kubelet"), ("EKS", "eks.amazonaws.com/compute-type", "fargate"),
])  # fmt: skip
def test_nodes_that_are_none_are_left_out(provider: str, label: str, value: str) -> None:
    found = pod({"kubernetesProvider": provider, "cni": {"type": "Netplug", "ipam": {"type": "Netplug"}}})
    required = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": label, "operator": "NotIn", "values": [value]}]}
    ]
    assert "affinity" not in pod()


def test_another_conflist_replaces_the_pods() -> None:
    def hash_of(spec: Mapping[str, object] | None) -> str:
        found: str = daemonset(spec)["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]
        return found

    assert hash_of(None) == hash_of(None) != hash_of(network(hostPorts="Disabled"))


def test_nothing_is_installed_for_the_plugin_of_another() -> None:
    found = render(read({"cni": {"type": "AmazonVPC"}}), ClusterFacts(), version="1.2.3")
    assert found.daemonset is None
    assert found.namespace["metadata"] == {
        "name": "netplug-system",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }


def test_the_resources_of_the_node_process_can_be_set() -> None:
    (node,) = pod({"nodeResources": {"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}}})["containers"]
    assert node["resources"] == {"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}}
    (node,) = pod({"nodeResources": {"limits": {"memory": "1Gi"}}})["containers"]
    assert node["resources"] == {"limits": {"memory": "1Gi"}}
    (node,) = pod()["containers"]
    assert node["resources"] == {"requests": {"cpu": "100m", "memory": "96Mi"}}
