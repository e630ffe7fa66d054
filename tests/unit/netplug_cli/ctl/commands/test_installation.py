"""``install validate`` and ``render``: Installations, judged and shown with no cluster in sight."""

import io
import json

import pytest
import yaml

from tests.harness.ctl import ToolHarness

HEAD = "apiVersion: operator.projectnetplug.org/v1\nkind: Installation\nmetadata: {name: %s}\nspec: %s\n"
QUIET = "{netplugNetwork: {bgp: Disabled, ipPools: []}}"
NO_POOL = "the IPAM Netplug needs a pool that serves pods, and the Installation creates none"
OTHER = "kind: Namespace\nmetadata: {name: a}\n"


def document(spec: str = QUIET, name: str = "default") -> str:
    return HEAD % (name, spec)


@pytest.fixture(autouse=True)
def _away(harness: ToolHarness) -> None:
    harness.is_unavailable = True


def validate(harness: ToolHarness, *documents: str, options: tuple[str, ...] = ()) -> int:
    file = harness.write_file("---\n".join(documents), "a.yaml")
    status = harness.run_command("install", "validate", "-f", file, *options)
    harness.out, harness.err = (text.replace(file, "a.yaml") for text in (harness.out, harness.err))
    return status


def test_a_valid_one(harness: ToolHarness) -> None:
    assert validate(harness, document()) == 0
    assert (harness.out, harness.err) == ("a.yaml#1 Installation(default): valid\n", "")
    assert harness.opened_settings == []


def test_warnings_count_if_asked_for(harness: ToolHarness) -> None:
    held = document("{netplugNetwork: {bgp: Disabled, ipPools: [], linuxPolicySetupTimeoutSeconds: 300}}")
    assert validate(harness, held) == 0
    assert harness.err == (
        "netplugctl: warning: a.yaml#1 Installation(default): spec.netplugNetwork.linuxPolicySetupTimeoutSeconds: "
        "more than 220 s; a runtime usually cancels the call of a pod after four minutes\n"
    )
    assert validate(harness, held, options=("--strict",)) == 3
    assert validate(harness, document(), options=("--strict",)) == 0


def test_every_problem_of_every_document_is_a_line(harness: ToolHarness) -> None:
    two = document("{netplugNetwork: {mtu: -1, bgp: Disabled, ipPools: [{cidr: x}]}}")
    assert validate(harness, document("{bgp: Enabled}"), OTHER, two) == 2
    assert harness.out == ""
    lines = [line.removeprefix("netplugctl: ") for line in harness.err.splitlines()]
    assert [line.partition(" is not")[0] for line in lines] == [
        "a.yaml#2: skipped; it is no Installation",
        "a.yaml:4:13 Installation(default): Unsupported: spec.bgp: 'bgp'",
        "a.yaml:12:30 Installation(default): OutOfRange: spec.netplugNetwork.mtu: -1",
        "a.yaml:12:66 Installation(default): Format: spec.netplugNetwork.ipPools[0].cidr: 'x'",
    ]


def test_components_beside_it_are_judged(harness: ToolHarness) -> None:
    component = "apiVersion: operator.projectnetplug.org/v1\nkind: FlowLogAPI\nmetadata: {name: default}\nspec: %s\n"
    assert validate(harness, document(), component % "{metricsPort: 9095}") == 0
    assert harness.err == (
        "netplugctl: warning: a.yaml#2 FlowLogAPI: nothing in this release collects flow logs; "
        "this object has no effect\n"
    )
    assert validate(harness, document(), component % "{metricsPort: 0}") == 2
    assert harness.err == (
        "netplugctl: a.yaml:9:21 FlowLogAPI(default): OutOfRange: spec.metricsPort: 0 is not accepted; "
        "expected a port from 1 to 65535\n"
    )


def test_an_overlay_is_checked_with_the_other_one(harness: ToolHarness) -> None:
    overlay = document("{netplugNetwork: {mtu: 9000}}", "overlay")
    assert validate(harness, document(), overlay) == 0
    assert harness.out == (
        "a.yaml#1 Installation(default): valid\na.yaml#2 Installation(overlay) over Installation(default): valid\n"
    )
    assert validate(harness, document(), document("{netplugNetwork: {mtu: -1}}", "overlay")) == 2
    assert (
        "a.yaml:9:30 Installation(overlay) over Installation(default): OutOfRange: spec.netplugNetwork.mtu: -1"
        in harness.err
    )
    assert validate(harness, overlay) == 2
    assert harness.err.endswith("Installation(overlay): one Installation(default) is needed beside it\n")
    assert validate(harness, document(), document("{cni: {type: x}}", "overlay")) == 2
    assert "a.yaml:9:20 Installation(overlay): Unsupported: spec.cni.type" in harness.err
    assert validate(harness, document("{cni: {type: x}}"), overlay) == 2
    assert harness.err.count("\n") == 1


def test_files_that_cannot_be_used(harness: ToolHarness) -> None:
    assert validate(harness, OTHER) == 2
    assert harness.err.endswith("netplugctl: there is no Installation in a.yaml\n")
    assert validate(harness, "kind: [") == 2
    assert "a.yaml" in harness.err
    assert harness.run_command("install", "validate") == 2
    assert "Give at least one file" in harness.err


def test_standard_input(harness: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(document()))
    assert harness.run_command("install", "validate", "-f", "-") == 0
    assert harness.out == "standard input#1 Installation(default): valid\n"


LISTED = "{netplugNetwork: {bgp: Disabled, ipPools: [{cidr: 10.1.0.0/16, encapsulation: VXLAN}]}}"


def render(harness: ToolHarness, *documents: str, options: tuple[str, ...] = ()) -> int:
    file = harness.write_file("---\n".join(documents), "a.yaml")
    return harness.run_command("install", "render", "-f", file, *options)


def test_render_prints_the_objects(harness: ToolHarness) -> None:
    assert render(harness, document(LISTED)) == 0
    *accounts, pool, config_map, daemonset, deployment = yaml.safe_load_all(harness.out)
    assert [(one["kind"], one["metadata"]["name"]) for one in accounts] == [
        ("Namespace", "netplug-system"),
        ("ServiceAccount", "netplug-cni-plugin"),
        ("ClusterRole", "netplug-cni-plugin"),
        ("ClusterRoleBinding", "netplug-cni-plugin"),
        ("ServiceAccount", "netplug-node"),
        ("Role", "netplug-node"),
        ("RoleBinding", "netplug-node"),
        ("ClusterRole", "netplug-node"),
        ("ClusterRoleBinding", "netplug-node"),
        ("ServiceAccount", "netplug-kube-controllers"),
        ("ClusterRole", "netplug-kube-controllers"),
        ("ClusterRoleBinding", "netplug-kube-controllers"),
        ("Role", "netplug-kube-controllers"),
        ("RoleBinding", "netplug-kube-controllers"),
    ]
    assert (deployment["kind"], deployment["metadata"]["name"]) == ("Deployment", "netplug-kube-controllers")
    assert (daemonset["kind"], daemonset["metadata"]["name"]) == ("DaemonSet", "netplug-node")
    assert (config_map["kind"], config_map["metadata"]["name"]) == ("ConfigMap", "cni-config")
    assert json.loads(config_map["data"]["config"])["name"] == "k8s-pod-network"
    assert pool["metadata"] == {
        "name": "default-ipv4-ippool",
        "labels": {"app.kubernetes.io/managed-by": "netplug-operator"},
    }
    assert (pool["spec"]["cidr"], pool["spec"]["vxlanMode"]) == ("10.1.0.0/16", "Always")


def test_render_prints_a_part(harness: ToolHarness) -> None:
    assert render(harness, document(LISTED), options=("--only", "conflist", "--crds", "v3")) == 0
    assert harness.out.startswith('{"cniVersion":"1.0.0","name":"k8s-pod-network"')
    assert '"netplug_api_group":"projectnetplug.org/v3"' in harness.out
    assert render(harness, document(LISTED), options=("--only", "environment")) == 0
    assert harness.out.startswith("CLUSTER_TYPE=k8s,operator\nDATASTORE_TYPE=kubernetes\n")
    assert "NETPLUG_API_GROUP" not in harness.out
    assert render(harness, document(LISTED), options=("--only", "pools")) == 0
    assert harness.run_command("validate", "-f", harness.write_file(harness.out)) == 0
    assert render(harness, document(LISTED), options=("--only", "daemonset")) == 0
    assert [one["kind"] for one in yaml.safe_load_all(harness.out)] == ["DaemonSet"]


def test_render_applies_the_overlay(harness: ToolHarness) -> None:
    overlay = document("{netplugNetwork: {mtu: 9000}}", "overlay")
    assert render(harness, document(LISTED), overlay, options=("--only", "conflist")) == 0
    assert '"mtu":9000' in harness.out


def test_render_refuses_what_validate_refuses(harness: ToolHarness) -> None:
    assert render(harness, document("{netplugNetwork: {mtu: -1}}")) == 2
    assert harness.out == ""
    assert "OutOfRange: spec.netplugNetwork.mtu" in harness.err
    assert render(harness, document(LISTED), document(LISTED)) == 2
    assert "Give one Installation, and one overlay of it at most." in harness.err


def test_render_says_why_nothing_is_installed_on_the_nodes(harness: ToolHarness) -> None:
    assert render(harness, document()) == 0
    assert (harness.out, harness.err) == ("", f"netplugctl: nothing is installed on the nodes: {NO_POOL}\n")
    assert render(harness, document(), options=("--only", "daemonset")) == 0
    assert (harness.out, harness.err) == ("", f"netplugctl: nothing is installed on the nodes: {NO_POOL}\n")
    assert render(harness, document("{cni: {type: AmazonVPC}}")) == 0
    assert harness.err == "netplugctl: nothing is installed on the nodes: the CNI plugin is AmazonVPC\n"
