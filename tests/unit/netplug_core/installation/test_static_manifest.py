"""The pods and settings of static manifests, and the conflist that each of them leads to on a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netplug_core.installation.daemonset import POLICY_VARIABLES
from netplug_core.installation.installer import HostFacts, fill_conflist, read_installer_settings
from netplug_core.installation.static import TLS_FOLDER, Method, render_static, static_template
from tests.harness.netconf_loader import find_refusal

METHODS = pytest.mark.parametrize("method", list(Method))


def objects(method: Method) -> dict[str, Any]:
    """The objects by kind: there is one of each."""
    return {str(one["kind"]): one for one in render_static(method, version="1.2.3")}


def pod(method: Method) -> dict[str, Any]:
    found: dict[str, Any] = objects(method)["DaemonSet"]["spec"]["template"]["spec"]
    return found


def containers(method: Method) -> dict[str, Any]:
    found = pod(method)
    return {one["name"]: one for one in (*found.get("initContainers", ()), *found["containers"])}


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def conflist(method: Method) -> dict[str, Any]:
    """What the installer writes on a node with these variables."""
    environ = {"KUBERNETES_NODE_NAME": "node-1", "CNI_MTU": "0", "ETCD_ENDPOINTS": "https://10.0.0.1:2379"}
    certificates = frozenset({"etcd-ca", "etcd-cert", "etcd-key"})
    facts = HostFacts(host_name="host", certificates=certificates)
    filled = fill_conflist(static_template(method), "netplug-config", read_installer_settings(environ), facts)
    assert filled.unknown == ()
    found: dict[str, Any] = json.loads(filled.text)
    return found


COMMON = {
    "type": "netplug",
    "log_level": "INFO",
    "log_file_path": "/var/log/netplug/cni/cni.log",
    "nodename": "node-1",
    "policy": {"type": "k8s"},
    "policy_guard": True,
    "kubernetes": {"kubeconfig": "/etc/cni/net.d/netplug-kubeconfig"},
}
ETCD = {
    "etcd_endpoints": "https://10.0.0.1:2379",
    **{f"etcd_{part}_file": f"{TLS_FOLDER}/etcd-{part}" for part in ("key", "cert")},
    "etcd_ca_cert_file": f"{TLS_FOLDER}/etcd-ca",
}
KUBERNETES: dict[str, object] = {"datastore_type": "kubernetes"}
NODE_CIDR = {"type": "host-local", "subnet": "usePodCidr"}
FIRST_PLUGINS: dict[Method, dict[str, object]] = {
    Method.KDD: {**COMMON, **KUBERNETES, "mtu": 0, "ipam": {"type": "netplug-ipam"}},
    Method.KDD_FLANNEL: {**COMMON, **KUBERNETES, "mtu": 0, "ipam": NODE_CIDR},
    Method.KDD_POLICY_ONLY: {**COMMON, **KUBERNETES, "mtu": 1500, "ipam": NODE_CIDR},
    Method.ETCD: {**COMMON, **ETCD, "mtu": 0, "ipam": {"type": "netplug-ipam"}},
    Method.ETCD_FLANNEL: {"type": "flannel", "delegate": {**COMMON, **ETCD, "include_default_routes": True}},
}


@METHODS
def test_the_conflist_of_a_node(method: Method) -> None:
    """The templates M1 to M5 with their placeholders filled in."""
    found = conflist(method)
    assert found["cniVersion"] == "1.0.0"
    assert found["name"] == ("netplug-flannel" if method is Method.ETCD_FLANNEL else "k8s-pod-network")
    assert found["plugins"] == [
        FIRST_PLUGINS[method], {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
    ]  # fmt: skip


@METHODS
def test_the_plugin_accepts_its_configuration(method: Method) -> None:
    plugin = conflist(method)["plugins"][0]
    if "delegate" in plugin:  # flannel adds the addresses of the node
        plugin = {**plugin["delegate"], "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}}
    assert find_refusal({"cniVersion": "1.0.0", "name": "k8s-pod-network", **plugin}) is None


@METHODS
def test_with_etcd_the_installer_stays_beside_the_node_process(method: Method) -> None:
    """So READY shows up to 2, and certificates on the host are kept fresh."""
    found = pod(method)
    names = [one["name"] for one in found["containers"]]
    further = ["flannel"] if method.has_flannel else []
    assert names == ["netplug-node", *(["install-cni"] if method.has_etcd else []), *further]
    importer = ["upgrade-ipam"] if method is Method.KDD else []
    first = [] if method.has_etcd else ["install-cni", *importer]
    assert [one["name"] for one in found.get("initContainers", ())] == first
    assert variables(containers(method)["install-cni"])["SLEEP"] == str(method.has_etcd).lower()
    assert variables(containers(method)["netplug-node"])["NETPLUG_MANAGE_CNI"] == str(not method.has_etcd).lower()


def test_after_the_installer_the_addresses_of_host_local_are_imported_with_the_plugins_kubeconfig() -> None:
    found = containers(Method.KDD)["upgrade-ipam"]
    command = ["netplugctl", "ipam", "import-host-local", "--data-dir=/host/var/lib/cni/networks"]
    assert [*found["command"], *found["args"]] == command
    assert variables(found) == {
        "DATASTORE_TYPE": "kubernetes",
        "KUBECONFIG": "/host/etc/cni/net.d/netplug-kubeconfig",
        "KUBERNETES_NODE_NAME": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    }


@METHODS
def test_every_key_and_volume_that_is_used_exists(method: Method) -> None:
    """Check 69."""
    found = objects(method)
    data = found["ConfigMap"]["data"]
    used = {"net-conf.json"} if method is Method.KDD_FLANNEL else set()  # flannel reads it as a file
    for kind in {"DaemonSet", "Job"} & set(found):
        template = found[kind]["spec"]["template"]["spec"]
        every = [*template.get("initContainers", ()), *template["containers"]]
        mounted = {mount["name"] for container in every for mount in container["volumeMounts"]}
        assert {volume["name"] for volume in template["volumes"]} == mounted
        entries = [entry["valueFrom"] for container in every for entry in container["env"] if "valueFrom" in entry]
        references = [entry["configMapKeyRef"] for entry in entries if "configMapKeyRef" in entry]
        assert {reference["name"] for reference in references} == {"netplug-config"}
        used |= {reference["key"] for reference in references}
    assert used == set(data)


@METHODS
def test_where_the_objects_are(method: Method) -> None:
    found = objects(method)
    assert {one["metadata"]["namespace"] for one in found.values()} == {"kube-system"}
    assert set(found) == {
        "ConfigMap", "DaemonSet", "Deployment", "PodDisruptionBudget", *(["Secret"] if method.has_etcd else []),
        *(["Job"] if method is Method.ETCD_FLANNEL else []),
    }  # fmt: skip


@METHODS
def test_the_controllers_copy_where_the_datastore_is_an_etcd(method: Method) -> None:
    pod = objects(method)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    found = variables(container)
    if not method.has_etcd:
        assert (found["DATASTORE_TYPE"], found["ENABLED_CONTROLLERS"]) == ("kubernetes", "node")
        assert "volumes" not in pod
        return
    assert found["DATASTORE_TYPE"] == "etcdv3"
    assert found["ENABLED_CONTROLLERS"] == "policy,namespace,serviceaccount,workloadendpoint,node"
    assert found["ETCD_KEY_FILE"] == {"configMapKeyRef": {"name": "netplug-config", "key": "etcd_key"}}
    assert container["volumeMounts"] == [{"name": "etcd-certs", "mountPath": TLS_FOLDER}]
    # It is not root, and may read the keys by its group.
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    assert pod["volumes"][0]["secret"]["defaultMode"] == 0o440


def test_the_secret_has_no_data_so_that_applying_it_again_keeps_the_keys() -> None:
    assert objects(Method.ETCD)["Secret"] == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "netplug-etcd-secrets", "namespace": "kube-system"},
        "type": "Opaque",
    }


@pytest.mark.parametrize("method", [Method.ETCD, Method.ETCD_FLANNEL])
def test_a_certificate_has_one_path_in_every_container(method: Method) -> None:
    """The node process works in the file system of the host, where the installer puts them."""
    found = containers(method)
    mounts = {
        name: [mount["mountPath"] for mount in one["volumeMounts"] if mount["name"] == "etcd-certs"]
        for name, one in found.items()
    }
    assert mounts == {
        "netplug-node": [],
        "install-cni": ["/netplug-secrets"],
        **({"flannel": [TLS_FOLDER]} if method.has_flannel else {}),
    }
    assert variables(found["netplug-node"])["ETCD_CA_CERT_FILE"] == {
        "configMapKeyRef": {"name": "netplug-config", "key": "etcd_ca"}
    }


def test_the_network_of_flannel_is_in_a_file_or_in_etcd() -> None:
    assert containers(Method.KDD_FLANNEL)["flannel"]["args"] == ["--kube-subnet-mgr"]
    assert containers(Method.ETCD_FLANNEL)["flannel"]["args"] == []
    (container,) = objects(Method.ETCD_FLANNEL)["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["etcdctl", "put", "/coreos.com/network/config", "$(FLANNEL_NETWORK)"]


@METHODS
def test_a_node_with_the_controllers_can_be_emptied(method: Method) -> None:
    found = objects(method)
    budget, deployment = found["PodDisruptionBudget"]["spec"], found["Deployment"]["spec"]
    assert budget["maxUnavailable"] >= deployment["replicas"]
    assert budget["selector"] == deployment["selector"]


@METHODS
def test_policy_is_enforced_with_each_method(method: Method) -> None:
    """With an etcd, profiles and policies come from the controllers of the same manifest."""
    node = next(one for one in pod(method)["containers"] if one["name"] == "netplug-node")
    values = {one["name"]: one.get("value") for one in node["env"]}
    expected = {"NETPLUG_POLICY": "Enabled", "NETPLUG_ENDPOINT_TO_HOST_ACTION": "Accept"}
    assert {name: text for name, text in values.items() if name in POLICY_VARIABLES} == expected
    plugin = conflist(method)["plugins"][0]
    assert plugin.get("delegate", plugin)["policy_guard"] is True
    (controllers,) = objects(method)["Deployment"]["spec"]["template"]["spec"]["containers"]
    enabled = next(one["value"] for one in controllers["env"] if one["name"] == "ENABLED_CONTROLLERS")
    copying = {"policy", "namespace", "serviceaccount", "workloadendpoint"}
    assert (copying <= set(enabled.split(","))) is method.has_etcd
