"""What a setting is that the document leaves out; later steps see what earlier ones decided."""

import pytest

from netplug_core.installation.document import CNIType, IPAMType
from netplug_core.installation.settings import find_size
from netplug_core.resources.installation import (
    AddressDetection,
    ImagePullPolicy,
    InstallMode,
    KubernetesProvider,
    LinuxDataplane,
    LogSeverity,
    MultiInterfaceMode,
    NodeUpdate,
    PodInterfaceType,
    SpecVersion,
    Switch,
)
from tests.harness.installations import judge, make_pool, network, resolved

FIRST_FOUND = AddressDetection(is_first_found=True)


def test_an_empty_document_on_a_new_cluster() -> None:
    found = resolved()
    assert (found.provider, found.cni, found.ipam) == (KubernetesProvider.OTHER, CNIType.NETPLUG, IPAMType.NETPLUG)
    assert (found.spec_version, found.bin_dir, found.conf_dir) == (SpecVersion.AUTO, "/opt/cni/bin", "/etc/cni/net.d")
    assert (found.install_mode, found.dataplane, found.bgp) == (
        InstallMode.ALL,
        LinuxDataplane.IPTABLES,
        Switch.ENABLED,
    )
    assert (found.mtu, found.policy_setup_timeout_s) == (0, 0)
    assert (found.ipv4_detection, found.ipv6_detection) == (None, None)
    assert (found.host_ports, found.container_ip_forwarding) == (Switch.ENABLED, Switch.DISABLED)
    assert (found.multi_interface_mode, found.pod_interface_type) == (MultiInterfaceMode.NONE, PodInterfaceType.VETH)
    assert (found.log.severity, found.log.max_size_mib) == (LogSeverity.INFO, 100)
    assert (found.log.max_age_days, found.log.max_count) == (30, 10)
    assert (found.control_plane_replicas, found.node_update, found.sysctls) == (2, NodeUpdate(), ())
    assert (found.registry, found.image_path, found.image_prefix) == ("", "", "")
    assert found.image_pull_policy is ImagePullPolicy.IF_NOT_PRESENT
    assert not found.lists_pools


@pytest.mark.parametrize("provider, cni, ipam, bgp", [
    ("AKS", CNIType.AZURE_VNET, IPAMType.AZURE_VNET, Switch.DISABLED),
    ("EKS", CNIType.AMAZON_VPC, IPAMType.AMAZON_VPC, Switch.DISABLED),
    ("GKE", CNIType.GKE, IPAMType.HOST_LOCAL, Switch.DISABLED),
    ("RKE2", CNIType.NETPLUG, IPAMType.NETPLUG, Switch.ENABLED),
])  # fmt: skip
def test_the_provider_decides_the_plugin_and_the_plugin_its_ipam(
    provider: str, cni: CNIType, ipam: IPAMType, bgp: Switch
) -> None:
    declared = resolved({"kubernetesProvider": provider})
    detected = resolved(provider=KubernetesProvider(provider))
    assert declared == detected
    assert (declared.cni, declared.ipam, declared.bgp) == (cni, ipam, bgp)


def test_other_plugins_have_no_settings_of_netplugs_own() -> None:
    found = resolved({"cni": {"type": "AmazonVPC"}})
    assert (found.spec_version, found.host_ports, found.multi_interface_mode) == (None, None, None)
    assert not found.is_netplug
    assert found.pools == ()


def test_check_25_host_ports_may_be_disabled_with_another_plugin() -> None:
    spec = {**network(hostPorts="Disabled"), "cni": {"type": "AmazonVPC"}}
    assert resolved(spec).host_ports is Switch.DISABLED


def test_a_daemon_set_of_the_provider_decides_unless_a_plugin_is_declared() -> None:
    assert resolved(has_aws_node=True).cni is CNIType.AMAZON_VPC
    assert resolved({"cni": {"type": "Netplug"}}, has_aws_node=True).cni is CNIType.NETPLUG


def test_netplug_on_eks_has_no_bgp() -> None:
    found = resolved({"cni": {"type": "Netplug"}, "kubernetesProvider": "EKS"})
    assert found.bgp is Switch.DISABLED
    assert [str(one.pool.spec.prefix) for one in found.pools] == ["172.16.0.0/16"]


@pytest.mark.parametrize("provider, bin_dir, conf_dir", [
    ("GKE", "/home/kubernetes/bin", "/etc/cni/net.d"),
    ("OpenShift", "/var/lib/cni/bin", "/var/run/multus/cni/net.d"),
])  # fmt: skip
def test_the_folders_of_a_provider(provider: str, bin_dir: str, conf_dir: str) -> None:
    found = resolved({"kubernetesProvider": provider})
    assert (found.bin_dir, found.conf_dir) == (bin_dir, conf_dir)


@pytest.mark.parametrize("provider, detection", [
    ("", FIRST_FOUND),
    ("DockerEnterprise", AddressDetection(skip_interface="^br-.*")),
    ("EKS", AddressDetection(can_reach="8.8.8.8")),
])  # fmt: skip
def test_a_pool_of_the_cluster_decides_that_an_address_is_needed(provider: str, detection: AddressDetection) -> None:
    pools = (make_pool("10.0.0.0/16"), make_pool("fd00::/48", name="six"))
    found = resolved({"kubernetesProvider": provider}, pools=pools)
    assert (found.ipv4_detection, found.ipv6_detection) == (detection, FIRST_FOUND)


def test_bpf_needs_an_address_and_a_method_of_the_document_stays() -> None:
    assert resolved(network(linuxDataplane="BPF")).ipv4_detection == FIRST_FOUND
    own = network(nodeAddressAutodetectionV4={"interface": "eth.*"}, nodeAddressAutodetectionV6={"cidrs": ["fd00::/8"]})
    found = resolved(own, pools=(make_pool("10.0.0.0/16"),))
    assert found.ipv4_detection == AddressDetection(interface="eth.*")
    assert found.ipv6_detection == AddressDetection(cidrs=("fd00::/8",))


def test_settings_of_the_document_stay() -> None:
    spec = {
        **network(mtu=1450, containerIPForwarding="Enabled", linuxPolicySetupTimeoutSeconds=15),
        "registry": "registry.example/",
        "imagePath": "UseDefault",
        "controlPlaneReplicas": 1,
        "controlPlaneNodeSelector": {"kubernetes.io/os": "linux", "role": "control"},
        "logging": {"cni": {"logFileMaxSize": "1.5Gi", "logFileMaxAgeDays": 5}},
        "nodeUpdateStrategy": {"rollingUpdate": {"maxUnavailable": "10%"}},
        "imagePullSecrets": [{"name": "a"}],
    }
    found = resolved(spec)
    assert (found.mtu, found.policy_setup_timeout_s) == (1450, 15)
    assert found.container_ip_forwarding is Switch.ENABLED
    assert (found.registry, found.image_path, found.control_plane_replicas) == ("registry.example/", "", 1)
    assert (found.log.max_size_mib, found.log.max_age_days) == (1536, 5)
    assert found.node_update.rolling_update.max_unavailable == "10%"


@pytest.mark.parametrize("text, size", [
    ("100Mi", 100 * 2**20), ("1Ki", 1024), ("0.5Ki", 512), ("2Ei", 2**61), ("100M", None), ("Mi", None), ("-1Mi", None),
    ("", None), ("1 Mi", None), ("\u0661Mi", None),
])  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert find_size(text) == size


def test_a_document_with_wrong_numbers_can_be_resolved() -> None:
    checked = judge({"logging": {"cni": {"logFileMaxSize": "x"}}, **network(mtu=-1)})
    assert len(checked.problems) == 2
    assert checked.resolved is not None
    assert checked.resolved.log.max_size_mib == 100
