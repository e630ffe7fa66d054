"""``install render --method``: the published manifests, with settings of one's own."""

from pathlib import Path

import pytest
import yaml

import netplug_cli
from netplug_core.installation.static import Method
from tests.harness.ctl import ToolHarness

PUBLISHED = Path(netplug_cli.__file__).parent / "manifests" / "static"
ENDPOINTS = ("--set", "etcd_endpoints=https://10.0.0.1:2379")


@pytest.mark.parametrize("method", list(Method))
def test_it_prints_what_is_published_with_the_settings(harness: ToolHarness, method: Method) -> None:
    changes = ENDPOINTS if method.has_etcd else ()
    assert harness.run_command("install", "render", "--method", method.value, "--set", "veth_mtu=1400", *changes) == 0
    expected = (PUBLISHED / f"{method.value}.yaml").read_text().partition("\n")[2]
    expected = expected.replace("http://<ETCD_IP>:<ETCD_PORT>", "https://10.0.0.1:2379")
    assert harness.out == expected.replace("veth_mtu: '0'", "veth_mtu: '1400'")
    assert harness.err == ""


@pytest.mark.parametrize("method", [Method.ETCD, Method.ETCD_FLANNEL])
def test_without_endpoints_of_etcd_nothing_is_printed(harness: ToolHarness, method: Method) -> None:
    assert harness.run_command("install", "render", "--method", method.value) == 2
    assert harness.out == ""
    assert "etcd_endpoints: 'http://<ETCD_IP>:<ETCD_PORT>' is not accepted" in harness.err


def test_the_operator_is_printed_as_it_is_published(harness: ToolHarness) -> None:
    assert harness.run_command("install", "render", "--method", "operator") == 0
    assert harness.out == (PUBLISHED / "operator.yaml").read_text().partition("\n")[2]
    assert harness.err == ""


def test_definitions_can_be_left_out(harness: ToolHarness) -> None:
    assert harness.run_command("install", "render", "--method", "manifest-kdd", "--crds", "none") == 0
    kinds = [one["kind"] for one in yaml.safe_load_all(harness.out)]
    assert "CustomResourceDefinition" not in kinds
    assert "DaemonSet" in kinds


@pytest.mark.parametrize(
    "arguments, text",
    [
        (("--method", "manifest-kdd", "--crds", "v3"), "--method goes with --set and --crds none only"),
        (("--method", "manifest-kdd", "--only", "pools"), "--method goes with --set and --crds none only"),
        (("--set", "veth_mtu=1"), "--set and --crds none go with --method"),
        (("--crds", "none"), "--set and --crds none go with --method"),
        (("--method", "chart"), "'chart' is not one of 'manifest-kdd'"),
        (("--method", "operator", "--set", "veth_mtu=1"), "--method operator goes with no other option"),
        (("--method", "operator", "--crds", "v3"), "--method operator goes with no other option"),
    ],
)
def test_options_that_do_not_go_together(harness: ToolHarness, arguments: tuple[str, ...], text: str) -> None:
    assert harness.run_command("install", "render", *arguments) == 2
    assert text in harness.err
