"""The fingerprint of a datastore: equal for the same datastore, whatever lets us in; another for any other."""

import pytest
from attrs import evolve

from netplug_core.settings.model import DatastoreSettings, KubernetesAccess, shown_settings

SAME = (
    (
        DatastoreSettings(etcd_endpoints=("http://a:2379", "http://b:2379"), etcd_cert_file="/old.pem"),
        DatastoreSettings(etcd_endpoints=("http://b:2379", "http://a:2379"), etcd_username="root", qps=5),
    ),
    (
        DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(kubeconfig="/kubeconfig")),
        DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(kubeconfig="/kubeconfig", node_name="n")),
    ),
    (DatastoreSettings(type="sqlite"), DatastoreSettings(type="sqlite", etcd_endpoints=("http://a:2379",))),
    (
        DatastoreSettings(type="of-somebody", options={"a": "1", "b": "2"}),
        DatastoreSettings(type="of-somebody", options={"b": "2", "a": "1"}),
    ),
)
OTHER = (
    DatastoreSettings(),
    DatastoreSettings(etcd_endpoints=("http://a:2379",)),
    DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="example.org"),
    DatastoreSettings(type="sqlite"),
    DatastoreSettings(type="sqlite", sqlite_path="/other.db"),
    DatastoreSettings(type="kubernetes"),
    DatastoreSettings(type="kubernetes", api_group="example.org"),
    DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(api_root="https://a:6443")),
    DatastoreSettings(type="of-somebody"),
    DatastoreSettings(type="of-somebody", options={"a": "1"}),
)


@pytest.mark.parametrize("one, other", SAME)
def test_the_same_datastore_has_one_fingerprint(one: DatastoreSettings, other: DatastoreSettings) -> None:
    assert one.fingerprint == other.fingerprint
    assert len(one.fingerprint) == 16


def test_any_other_has_another() -> None:
    assert len({settings.fingerprint for settings in OTHER}) == len(OTHER)
    assert evolve(OTHER[1]).fingerprint == OTHER[1].fingerprint


def test_settings_are_shown_by_their_names_and_secrets_are_not() -> None:
    assert shown_settings(DatastoreSettings()) == (("datastoreType", "etcdv3"),)
    settings = DatastoreSettings(
        type="kubernetes",
        etcd_endpoints=("https://a:2379", "https://u:pw@b:2379"),
        etcd_password="pw",  # noqa: S106 - planted
        kubernetes=KubernetesAccess(kubeconfig="/kc", token="t", uses_pod_cidr=True, node_name="n"),  # noqa: S106
        qps=5,
        options={"a": "b"},
    )
    assert shown_settings(settings) == (
        ("datastoreType", "kubernetes"),
        ("etcdEndpoints", "…"),
        ("etcdPassword", "…"),
        ("k8sClientQPS", "5"),
        ("datastoreOptions", "…"),
        ("kubeconfig", "/kc"),
        ("k8sAPIToken", "…"),
        ("usePodCIDR", "True"),
    )
