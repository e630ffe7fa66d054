"""The CNI plugin and its IPAM are the same whichever way they are spelled."""

import pytest

from netplug_core.installation.document import CNIType, IPAMType, Selected, read_installation, select
from netplug_core.installation.rules import check
from netplug_core.resources.installation import InstallMode, SpecVersion
from tests.harness.installations import manifest, network, read


@pytest.mark.parametrize("spec, path", [
    ({"cni": {"ipam": {"type": "HostLocal"}}}, "spec.cni.ipam.type"),
    (network(cni={"ipam": {"type": "hostLocal"}}), "spec.netplugNetwork.cni.ipam.type"),  # check 19
    ({"cni": {"ipam": {"plugin": "HostLocal"}}}, "spec.cni.ipam.plugin"),  # check 14
    (network(cni={"ipam": {"plugin": "HOSTLOCAL"}}), "spec.netplugNetwork.cni.ipam.plugin"),
    (
        {"cni": {"ipam": {"type": "HostLocal", "plugin": "hostlocal"}}, **network(cni={"ipam": {"type": "HostLocal"}})},
        "spec.cni.ipam.type",
    ),  # check 16
])  # fmt: skip
def test_every_spelling_of_the_ipam(spec: dict[str, object], path: str) -> None:
    checked = check(read(spec))
    assert checked.problems == ()
    assert select(checked.document).ipam == Selected(path, IPAMType.HOST_LOCAL)


def test_check_17_the_capitalised_spelling_is_read_with_a_warning() -> None:
    document = read_installation({**manifest(), "spec": None, "Spec": {"CNI": {"IPAM": {"Plugin": "HostLocal"}}}})
    assert select(document).ipam == Selected("Spec.CNI.IPAM.Plugin", IPAMType.HOST_LOCAL)
    checked = check(document)
    assert checked.problems == ()
    assert "Installation(default): Spec.CNI.IPAM.Plugin: an API server drops a field with this letter case" in (
        checked.warnings
    )


def test_a_capitalised_value_that_is_no_text_names_no_ipam() -> None:
    document = read_installation(manifest(Spec={"CNI": {"IPAM": {"Plugin": 7}, "Type": "gke"}}))
    assert select(document).cni == Selected("Spec.CNI.Type", CNIType.GKE)
    (problem,) = check(document).problems
    assert problem.paths == ("Spec.CNI.IPAM.Plugin",)


def test_the_other_settings_stand_at_either_place() -> None:
    spec = {"cni": {"binDir": "/b", "installMode": "NetplugOnly"}, **network(cni={"specVersion": "0.4.0"})}
    selection = select(read(spec))
    assert selection.bin_dir == Selected("spec.cni.binDir", "/b")
    assert selection.install_mode == Selected("spec.cni.installMode", InstallMode.NETPLUG_ONLY)
    assert selection.spec_version == Selected("spec.netplugNetwork.cni.specVersion", SpecVersion.V0_4_0)
    assert selection.conf_dir == Selected("spec.cni.confDir", None)


def test_an_empty_text_sets_nothing() -> None:
    selection = select(read({"cni": {"type": "", "ipam": {"type": ""}, "confDir": ""}}))
    assert (selection.cni.value, selection.ipam.value, selection.conf_dir.value) == (None, None, None)
