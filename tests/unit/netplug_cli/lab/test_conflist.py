"""The configuration list of a lab, and what a chain of plugins is handed because of one."""

import json

import pytest

from netplug_cli.lab.model import (
    ExternalServers,
    LabError,
    LabFolder,
    LabPlan,
    LabStore,
    OwnServers,
    StoreKind,
    new_lab,
    store_environment,
)
from netplug_cli.lab.runtime import Conflist, parse_conflist, render_conflist
from netplug_core.cni.dispatch import Plugin
from netplug_core.netconf.model import LoadPurpose, load
from netplug_core.settings.apiconfig import datastore_settings_from_environment


def test_the_plugin_accepts_it_and_touches_the_lab_folder_only() -> None:
    lab, folder = new_lab(LabPlan(name="lab", pod_count=1), uid="u"), LabFolder("/run/netplug-lab")
    conflist = parse_conflist(render_conflist(lab, lab.nodes[0], folder), "conflist")
    netconf = load(json.loads(conflist.request(0, "")), Plugin.MAIN, LoadPurpose.SETUP)
    assert netconf.unsupported is None
    assert netconf.nodename == "lab-node"
    assert netconf.datastore.type == "sqlite"
    assert (netconf.ipam.assign_ipv4, netconf.ipam.assign_ipv6) == (True, True)
    paths = (
        netconf.nodename_file,
        netconf.mtu_file,
        netconf.ipam_lock_file,
        netconf.release_record_dir,
        netconf.datastore.sqlite_path,
        netconf.log.file_path,
    )
    assert [path for path in paths if not path.startswith("/run/netplug-lab/")] == []


@pytest.mark.parametrize(
    "store,expected",
    [
        (OwnServers(etcd="/e"), {"etcd_endpoints": "http://127.0.0.1:2379"}),
        (OwnServers(etcd="/e", apiserver="/a"), {"kubernetes": {"kubeconfig": "/lab/conf/kubeconfig"}}),
        (
            ExternalServers(
                kind=StoreKind.ETCD,
                environment=(("ETCD_ENDPOINTS", "https://10.0.0.1:1"), ("ETCD_CA_CERT_FILE", "/ca")),
                addresses=(("10.0.0.1", 1),),
            ),
            {"etcd_endpoints": "https://10.0.0.1:1", "etcd_ca_cert_file": "/ca"},
        ),
    ],
)
def test_the_plugin_gets_the_labs_servers_as_netplugctl_does(store: LabStore, expected: dict[str, object]) -> None:
    """Both ways of saying it come to the same settings."""
    folder = LabFolder("/lab")
    lab = new_lab(LabPlan(name="lab", pod_count=1, store=store), uid="u")
    conflist = parse_conflist(render_conflist(lab, lab.nodes[0], folder), "conflist")
    assert dict(conflist.plugins[0]).items() >= {"datastore_type": store.kind.value, **expected}.items()
    netconf = load(json.loads(conflist.request(0, "")), Plugin.MAIN, LoadPurpose.SETUP)
    assert netconf.unsupported is None
    told = datastore_settings_from_environment(store_environment(store, folder))
    assert (netconf.datastore.type, netconf.datastore.etcd_endpoints) == (told.type, told.etcd_endpoints)
    assert netconf.datastore.kubernetes.kubeconfig == told.kubernetes.kubeconfig


def test_a_plugin_gets_its_own_object_with_name_version_and_the_result_before() -> None:
    conflist = Conflist(network="net", cni_version="1.0.0", plugins=({"type": "a"}, {"type": "b", "x": 1}))
    assert json.loads(conflist.request(0, "")) == {"name": "net", "cniVersion": "1.0.0", "type": "a"}
    assert json.loads(conflist.request(1, '{"ips": []}')) == {
        "name": "net",
        "cniVersion": "1.0.0",
        "type": "b",
        "x": 1,
        "prevResult": {"ips": []},
    }


@pytest.mark.parametrize("text", ["", "{}", '{"name": "n"}', '{"name": "n", "cniVersion": "1.0.0", "plugins": 3}'])
def test_what_is_no_configuration_list(text: str) -> None:
    with pytest.raises(LabError, match="conflist"):
        parse_conflist(text, "conflist")
