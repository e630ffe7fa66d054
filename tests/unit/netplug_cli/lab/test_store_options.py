"""What the options of ``lab up`` come to."""

import re
from pathlib import Path

import pytest

from netplug_cli.lab.model import ExternalServers, LabError, OwnServers, SqliteStore, StoreKind
from netplug_cli.lab.store_setup import StoreOptions, resolve_store
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess

SQLITE, ETCD, KUBERNETES = StoreKind.SQLITE, StoreKind.ETCD, StoreKind.KUBERNETES
NOTHING = DatastoreSettings()


def places(settings: DatastoreSettings) -> tuple[tuple[str, int], ...]:
    """As the real one answers: a place for each endpoint, or that of the cluster."""
    if settings.type == "kubernetes":
        return (("10.0.0.1", 6443),)
    return tuple((url.split("/")[2].rpartition(":")[0], 2379) for url in settings.etcd_endpoints)


@pytest.fixture
def programs(tmp_path: Path) -> str:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    return str(tmp_path)


def test_without_a_word_it_is_a_file() -> None:
    assert resolve_store(StoreOptions(kind=SQLITE), NOTHING, places) == SqliteStore()


def test_servers_of_its_own_are_the_programs_of_a_folder(programs: str) -> None:
    etcd, apiserver = f"{programs}/etcd", f"{programs}/kube-apiserver"
    assert resolve_store(StoreOptions(kind=ETCD, programs_dir=programs), NOTHING, places) == OwnServers(etcd=etcd)
    options = StoreOptions(kind=KUBERNETES, programs_dir=programs)
    assert resolve_store(options, NOTHING, places) == OwnServers(etcd=etcd, apiserver=apiserver)


def test_a_running_etcd_is_named_by_the_option_or_else_as_for_netplugctl() -> None:
    settings = DatastoreSettings(etcd_endpoints=("https://10.0.0.1:2379",), etcd_ca_cert_file="/ca.pem")
    assert resolve_store(StoreOptions(kind=ETCD), settings, places) == ExternalServers(
        kind=ETCD,
        environment=(("ETCD_ENDPOINTS", "https://10.0.0.1:2379"), ("ETCD_CA_CERT_FILE", "/ca.pem")),
        addresses=(("10.0.0.1", 2379),),
    )
    named = resolve_store(
        StoreOptions(kind=ETCD, urls=("http://10.0.0.2:2379", "http://10.0.0.3:2379")), settings, places
    )
    assert isinstance(named, ExternalServers)
    assert dict(named.environment)["ETCD_ENDPOINTS"] == "http://10.0.0.2:2379,http://10.0.0.3:2379"
    assert named.addresses == (("10.0.0.2", 2379), ("10.0.0.3", 2379))


def test_a_running_cluster_is_the_one_of_the_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    access = KubernetesAccess(kubeconfig="admin.conf")
    store = resolve_store(StoreOptions(kind=KUBERNETES), DatastoreSettings(kubernetes=access, api_group="g"), places)
    variables = (("KUBECONFIG", "/admin.conf"), ("NETPLUG_API_GROUP", "g"))
    assert store == ExternalServers(kind=KUBERNETES, environment=variables, addresses=(("10.0.0.1", 6443),))


@pytest.mark.parametrize(
    "options,settings,message",
    [
        (StoreOptions(kind=SQLITE, urls=("http://x:1",)), NOTHING, "a lab on sqlite has no server"),
        (StoreOptions(kind=SQLITE, programs_dir="/x"), NOTHING, "a lab on sqlite has no server"),
        (StoreOptions(kind=ETCD, urls=("http://x:1",), programs_dir="/x"), NOTHING, "give one of the two"),
        (StoreOptions(kind=ETCD, programs_dir="/nowhere"), NOTHING, "/nowhere/etcd is missing, or no program"),
        (StoreOptions(kind=ETCD, urls=("http://etcd.lan:1",)), NOTHING, "etcd.lan has to be an IP address"),
        (
            StoreOptions(kind=ETCD),
            DatastoreSettings(etcd_discovery_srv="x"),
            "cannot be given SRV records: --server URL",
        ),
        (StoreOptions(kind=ETCD), DatastoreSettings(etcd_password="s3cret"), "cannot be given a user and a password"),  # noqa: S106
        (StoreOptions(kind=ETCD), DatastoreSettings(etcd_key="s3cret"), "cannot be given texts in place of files"),
        (StoreOptions(kind=KUBERNETES), NOTHING, "which API server? KUBECONFIG names the file"),
        (StoreOptions(kind=KUBERNETES, urls=("https://x",)), NOTHING, "--server is for etcd: KUBECONFIG"),
        (
            StoreOptions(kind=KUBERNETES),
            DatastoreSettings(kubernetes=KubernetesAccess(token="s3cret")),  # noqa: S106
            "cannot be given an API root or a token: KUBECONFIG",
        ),
        (
            StoreOptions(kind=KUBERNETES),
            DatastoreSettings(kubernetes=KubernetesAccess(kubeconfig="/a:/b")),
            "cannot be given several kubeconfigs",
        ),
    ],
)
def test_what_the_plugins_of_a_lab_could_not_use_is_refused_with_advice(
    options: StoreOptions, settings: DatastoreSettings, message: str
) -> None:
    with pytest.raises(LabError, match=re.escape(message)) as refused:
        resolve_store(options, settings, places)
    assert "s3cret" not in str(refused.value)
