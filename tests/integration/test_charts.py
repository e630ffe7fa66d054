"""The charts with a real helm, which reaches no cluster: what it makes of them, what it refuses, and what applies.

``tests/unit/tools/test_charts.py`` has what can be said without helm.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from netplug_backends.kubernetes.installing.manifests import (
    admission_objects,
    definitions,
    operator_definitions,
    protection_objects,
)
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.decoding.tables import find_text
from netplug_core.operator.state import ObjectRef
from tests.harness.charts import (
    CHARTS,
    COMPONENTS,
    DEFAULT_OUTPUT,
    OPERATOR,
    Helm,
    HelmRefused,
    by_name,
    operator_objects,
    read_objects,
)
from tests.harness.servers.binaries import find_helm
from tests.harness.servers.kube_apiserver import ApiServer, RequestRefused
from tests.harness.servers.kube_objects import install_definitions, install_operator_definitions, make_namespace
from tools.charts.files import DEFINITION_CHARTS

MUTATING = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
NEW, OLD = "--kube-version=1.36.0", "--kube-version=1.35.0"
OFF = tuple(f"--set={name}.enabled=false" for name in ("installation", "apiServer", "flowLogAPI", "flowLogViewer"))
INSTALLATION = ObjectRef("operator.projectnetplug.org/v1", "Installation", "default")
DEPLOYMENT = ObjectRef("apps/v1", "Deployment", "netplug-operator", "netplug-operator")
V3 = CHARTS / DEFINITION_CHARTS[CrdMode.V3]


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(find_helm(), tmp_path)


def asked(version: str) -> str:
    """That the API server has the kind in a version."""
    return f"--api-versions={MUTATING.format(version)}"


@pytest.mark.parametrize("chart", sorted(CHARTS.iterdir()), ids=lambda chart: chart.name)
def test_helm_finds_nothing_wrong(helm: Helm, chart: Path) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in helm.run("lint", "--strict", str(chart))


def test_the_recorded_output_is_that_of_helm(helm: Helm) -> None:
    """Record it anew by writing the text to the file."""
    assert helm.template_text(OPERATOR, NEW) == DEFAULT_OUTPUT.read_text()


@pytest.mark.parametrize("kubernetes", [NEW, OLD])
@pytest.mark.parametrize("manages_definitions", [True, False])
def test_check_80_the_chart_of_the_operator_is_the_manifest(
    helm: Helm, kubernetes: str, *, manages_definitions: bool
) -> None:
    """Of the values this one changes what the manifest has, and not what it installs."""
    option = f"--set=manageCRDs={str(manages_definitions).lower()}"
    wanted = operator_objects(manages_definitions=manages_definitions)
    assert helm.template(OPERATOR, kubernetes, option, *OFF) == wanted
    assert helm.template(OPERATOR, kubernetes, option) == wanted | COMPONENTS


@pytest.mark.parametrize("options", [(), (NEW,), (OLD,), (OLD, asked("v1"))])
@pytest.mark.parametrize("mode", list(CrdMode))
def test_the_charts_of_definitions_are_the_bundles(helm: Helm, mode: CrdMode, options: tuple[str, ...]) -> None:
    found = helm.template(CHARTS / DEFINITION_CHARTS[mode], *options)
    bundle = by_name(definition for _, definition in (*definitions(mode), *operator_definitions()))
    others = {ref: one for ref, one in found.items() if ref not in bundle}
    assert {ref: one for ref, one in found.items() if ref in bundle} == bundle
    protection = by_name(protection_objects())
    assert protection.keys() <= others.keys()
    assert all(
        find_text(others[ref], "metadata", "annotations", "helm.sh/resource-policy") == "keep" for ref in protection
    )
    assert len(others) == len(protection) + (len(list(admission_objects())) if mode is CrdMode.V3 else 0)


@pytest.mark.parametrize(
    "options, version",
    [
        ((OLD,), "v1beta1"),
        ((NEW,), "v1"),
        ((OLD, asked("v1")), "v1"),
        ((OLD, asked("v1"), asked("v1beta1")), "v1"),
        ((OLD, asked("v1beta1"), asked("v1alpha1")), "v1beta1"),
        ((OLD, asked("v1alpha1")), "v1alpha1"),
        ((OLD, "--api-versions=admissionregistration.k8s.io/v1"), "v1beta1"),
    ],
)
def test_checks_75_and_76_policies_have_the_best_version_that_the_cluster_has(
    helm: Helm, options: tuple[str, ...], version: str
) -> None:
    found = helm.template(V3, *options)
    wanted = by_name(admission_objects(version))
    assert {ref: one for ref, one in found.items() if ref in wanted} == wanted
    validating = [ref for ref in found if ref.kind.startswith("Validating")]
    assert [ref.api_version for ref in validating] == ["admissionregistration.k8s.io/v1"] * 4


def test_check_77_the_chart_of_the_operator_brings_four_resources_and_no_definitions(helm: Helm) -> None:
    found = helm.template(OPERATOR)
    assert {ref for ref in found if ref.api_version == INSTALLATION.api_version} == set(COMPONENTS)
    assert not any(ref.kind == "CustomResourceDefinition" for ref in found)
    assert container_of(found)["args"][0] == "--manage-crds=true"


@pytest.mark.parametrize("missing", ["caBundle", "cert", "key"])
def test_check_79_some_certificates_without_the_others_are_refused(helm: Helm, missing: str) -> None:
    given = [f"--set=certs.node.{name}=text" for name in ("caBundle", "cert", "key") if name != missing]
    with pytest.raises(HelmRefused, match=f"certs.node.{missing} is missing: set all of certs.node, or none"):
        helm.template(OPERATOR, *given)


def test_all_certificates_make_a_secret(helm: Helm) -> None:
    given = [f"--set=certs.node.{name}=the {name}" for name in ("caBundle", "cert", "key")]
    secret = helm.template(OPERATOR, *given)[ObjectRef("v1", "Secret", "netplug-node-certs", "netplug-operator")]
    texts = {"ca.crt": "the caBundle", "tls.crt": "the cert", "tls.key": "the key"}
    assert secret["data"] == {name: encoded(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    "option, place, problem",
    [
        ("--set-string=installation.netplugNetwork.mtu=large", "/installation/netplugNetwork/mtu", "got string"),
        ("--set=installation.netplugNetwork.colour=red", "/installation/netplugNetwork", "'colour' not allowed"),
        ("--set=flowLogAPI.metricsPort=0", "/flowLogAPI/metricsPort", "minimum"),
        ("--set=flowLogViewer.notifications=Perhaps", "/flowLogViewer/notifications", "one of 'Enabled', 'Disabled'"),
        ("--set=manageCRDs=perhaps", "/manageCRDs", "got string"),
        ("--set=colour=red", "''", "'colour' not allowed"),
    ],
)
def test_values_that_no_field_accepts_are_refused_by_their_path(
    helm: Helm, option: str, place: str, problem: str
) -> None:
    with pytest.raises(HelmRefused) as caught:
        helm.template(OPERATOR, option)
    assert place in str(caught.value)
    assert problem in str(caught.value)


def test_fields_of_the_resources_are_copied(helm: Helm, tmp_path: Path) -> None:
    network = {
        "bgp": "Disabled",
        "mtu": 1450,
        "ipPools": [{"cidr": "10.244.0.0/16", "encapsulation": "VXLAN", "blockSize": 26, "disableBGPExport": False}],
        "sysctl": [{"key": "net.core.somaxconn", "value": "1024"}],
    }
    spec = {"netplugNetwork": network, "registry": "example.org/", "nodeUpdateStrategy": {"type": "RollingUpdate"}}
    values = tmp_path / "values.yaml"
    given = {"installation": spec, "flowLogAPI": {"metricsPort": 9095}, "apiServer": {"enabled": False}}
    values.write_text(yaml.safe_dump(given))
    found = helm.template(OPERATOR, f"--values={values}")
    assert found[INSTALLATION]["spec"] == spec
    assert found[ObjectRef(INSTALLATION.api_version, "FlowLogAPI", "default")]["spec"] == {"metricsPort": 9095}
    assert not any(ref.kind == "APIServer" for ref in found)


def test_secrets_for_registries_are_made_and_named(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    given = {"imagePullSecrets": {"mine": "{}"}, "installation": {"imagePullSecrets": [{"name": "other"}]}}
    values.write_text(yaml.safe_dump(given))
    found = helm.template(OPERATOR, f"--values={values}")
    secret = found[ObjectRef("v1", "Secret", "mine", "netplug-operator")]
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert secret["data"] == {".dockerconfigjson": encoded("{}")}
    assert found[INSTALLATION]["spec"] == {"imagePullSecrets": [{"name": "other"}, {"name": "mine"}]}
    account = found[ObjectRef("v1", "ServiceAccount", "netplug-operator", "netplug-operator")]
    assert account["imagePullSecrets"] == [{"name": "mine"}]


def test_an_address_of_the_api_server_is_a_config_map_that_the_pod_reads(helm: Helm) -> None:
    found = helm.template(OPERATOR, "--set=kubernetesServiceEndpoint.host=10.0.0.1")
    (source,) = container_of(found)["envFrom"]
    place = ObjectRef("v1", "ConfigMap", source["configMapRef"]["name"], "netplug-operator")
    assert found[place]["data"] == {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def test_alerts_and_dashboard_are_those_that_are_shipped(helm: Helm) -> None:
    shipped = CHARTS.parent / "monitoring"
    rule = ObjectRef("monitoring.coreos.com/v1", "PrometheusRule", "netplug", "netplug-operator")
    board = ObjectRef("v1", "ConfigMap", "netplug-dashboard", "netplug-operator")
    assert not {rule, board} & helm.template(OPERATOR).keys()
    found = helm.template(OPERATOR, "--set=monitoring.rules.enabled=true", "--set=monitoring.dashboard.enabled=true")
    (wanted,) = read_objects((shipped / "prometheusrule.yaml").read_text())
    assert found[rule]["spec"] == wanted["spec"]
    data, metadata = cast("Any", found[board]["data"]), cast("Any", found[board]["metadata"])
    assert json.loads(data["netplug.json"]) == json.loads((shipped / "grafana-dashboard.json").read_text())
    assert metadata["labels"] == {"grafana_dashboard": "1"}


def test_settings_of_the_pod(helm: Helm, tmp_path: Path) -> None:
    terms = [{"matchExpressions": [{"key": "role", "operator": "Exists"}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    given = {
        "affinity": affinity,
        "dnsConfig": {"nameservers": ["10.0.0.2"]},
        "dnsPolicy": "None",
        "nodeSelector": None,
        "tolerations": [],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "additionalLabels": {"e": "f"},
        "operator": {"registry": "example.org/", "version": "v1"},
    }
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(given))
    found = helm.template(OPERATOR, f"--values={values}")
    deployment, pod = cast("Any", found[DEPLOYMENT]), cast("Any", pod_of(found))
    assert (pod["affinity"], pod["dnsConfig"], pod["dnsPolicy"]) == (affinity, {"nameservers": ["10.0.0.2"]}, "None")
    assert "tolerations" not in pod
    assert "nodeSelector" not in pod
    metadata = deployment["spec"]["template"]["metadata"]
    assert metadata == {"annotations": {"a": "b"}, "labels": {"k8s-app": "netplug-operator", "c": "d"}}
    assert deployment["metadata"]["labels"] == {"k8s-app": "netplug-operator", "e": "f"}
    assert deployment["spec"]["selector"]["matchLabels"] == {"k8s-app": "netplug-operator"}
    assert container_of(found)["image"] == "example.org/netplug/node:v1"


def test_before_the_operator_goes_a_job_deletes_the_installation(helm: Helm) -> None:
    every = by_name(read_objects(helm.template_text(OPERATOR)))
    hooks = {ref: one for ref, one in every.items() if ref not in helm.template(OPERATOR)}
    marks: list[Any] = [one["metadata"]["annotations"] for one in cast("Any", hooks.values())]
    assert {mark["helm.sh/hook"] for mark in marks} == {"pre-delete"}
    order = sorted(hooks, key=lambda ref: cast("Any", hooks[ref])["metadata"]["annotations"]["helm.sh/hook-weight"])
    assert [ref.kind for ref in order] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"]
    job = cast("Any", hooks[order[-1]])["spec"]["template"]["spec"]
    assert job["serviceAccountName"] == order[0].name
    assert job["containers"][0]["command"] == ["netplugctl", "uninstall", "cluster"]
    (rule,) = cast("Any", hooks[order[1]])["rules"]
    assert (rule["verbs"], rule["resourceNames"]) == (["get", "delete"], ["default", "overlay"])


def test_in_another_namespace_everything_of_the_operator_is_there(helm: Helm) -> None:
    text = helm.run("template", "netplug", str(OPERATOR), "--namespace", "elsewhere")
    namespaces = {ref.namespace for ref in by_name(read_objects(text))}
    assert namespaces == {"", "elsewhere", "kube-system"}
    assert "netplug-operator" not in {subject["namespace"] for subject in subjects(text)}


@pytest.mark.apiserver
def test_helm_installs_upgrades_and_uninstalls(api_server: ApiServer, tmp_path: Path) -> None:
    """Without the Job of the chart: the server runs no pods."""
    install_definitions(api_server, CrdMode.V1)
    install_operator_definitions(api_server)
    make_namespace(api_server, "kube-system")
    helm = Helm(find_helm(), tmp_path, api_server.write_kubeconfig())
    place, installation = "--namespace=netplug-operator", "/apis/operator.projectnetplug.org/v1/installations/default"
    helm.run("install", "netplug", str(OPERATOR), place, "--create-namespace")
    try:
        assert api_server.get(installation)["spec"] == {}
        change = "--set=installation.netplugNetwork.mtu=1400"
        helm.run("upgrade", "netplug", str(OPERATOR), place, change, "--set=apiServer.enabled=false")
        assert api_server.get(installation)["spec"] == {"netplugNetwork": {"mtu": 1400}}
        with pytest.raises(RequestRefused):
            api_server.get("/apis/operator.projectnetplug.org/v1/apiservers/default")
        refused = "--set=installation.netplugNetwork.sysctl[0].key=a"
        with pytest.raises(HelmRefused, match="missing property 'value'"):
            helm.run("upgrade", "netplug", str(OPERATOR), place, refused)
    finally:
        helm.run("uninstall", "netplug", place, "--no-hooks")
    with pytest.raises(RequestRefused):
        api_server.get(installation)


def subjects(text: str) -> list[Mapping[str, str]]:
    return [subject for one in cast("Any", read_objects(text)) for subject in one.get("subjects", [])]


def pod_of(found: Mapping[ObjectRef, object]) -> Mapping[str, Any]:
    return cast("Any", found[DEPLOYMENT])["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def container_of(found: Mapping[ObjectRef, object]) -> Mapping[str, Any]:
    (container,) = pod_of(found)["containers"]
    return cast("Mapping[str, Any]", container)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
