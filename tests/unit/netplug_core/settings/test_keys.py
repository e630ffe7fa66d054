"""Which datastore a network configuration means: etcd's three ways of being named, and Kubernetes access."""

import pytest

from netplug_core.decoding.tables import Decoder, cni_error
from netplug_core.errors import ConfigurationError, DecodeError
from netplug_core.settings.model import (
    DEFAULT_ETCD_ENDPOINT,
    DatastoreSettings,
    KubernetesAccess,
    netconf_path,
    netconf_tables,
    refuse_endpoints_beside_srv,
)

TOKEN, PASSWORD = "t0ken", "passw0rd"


def settings(**keys: object) -> DatastoreSettings:
    return read(keys, is_strict=True)


def read(keys: dict[str, object], *, is_strict: bool) -> DatastoreSettings:
    decoder = Decoder(cni_error, tables=netconf_tables(is_strict=is_strict))
    return decoder.decode(keys, DatastoreSettings, "network configuration")


def test_nothing_configured_is_etcd_on_this_machine() -> None:
    assert settings() == DatastoreSettings()
    assert settings().etcd_endpoints == (DEFAULT_ETCD_ENDPOINT,) == ("http://127.0.0.1:2379",)


@pytest.mark.parametrize(
    "keys,endpoints",
    [
        ({"etcd_endpoints": "http://a:1, https://b:2,,"}, ("http://a:1", "https://b:2")),
        ({"etcd_endpoints": "http://a:1", "etcd_authority": "dead:1"}, ("http://a:1",)),
        ({"etcd_discovery_srv": "example.org"}, ()),
        ({"etcd_authority": "10.0.0.1:2379"}, ("http://10.0.0.1:2379",)),
        ({"etcd_authority": "10.0.0.1:2379", "etcd_scheme": "https"}, ("https://10.0.0.1:2379",)),
        ({"etcd_scheme": "https"}, ("https://127.0.0.1:2379",)),
        ({"etcd_endpoints": ""}, (DEFAULT_ETCD_ENDPOINT,)),
    ],
)
def test_check_25_endpoints_go_before_srv_before_the_deprecated_pair(
    keys: dict[str, object], endpoints: tuple[str, ...]
) -> None:
    assert settings(**keys).etcd_endpoints == endpoints


@pytest.mark.parametrize(
    "keys,named",
    [
        ({}, "etcd_endpoints"),
        ({"etcd_endpoints": "http://a:1", "etcd_authority": "b:1"}, "etcd_endpoints"),
        ({"etcd_authority": "a:1"}, "etcd_authority"),
        ({"etcd_scheme": "https"}, "etcd_scheme"),
        ({"etcd_scheme": "https", "etcd_authority": "a:1"}, "etcd_scheme and etcd_authority"),
    ],
)
def test_what_people_set_to_say_the_endpoints_is_known(keys: dict[str, object], named: str) -> None:
    """A refusal names it."""
    assert settings(**keys).etcd_endpoints_source == named


def test_check_24_endpoints_and_srv_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        settings(etcd_endpoints=f"http://u:{PASSWORD}@a", etcd_discovery_srv="b.org")
    assert str(refusal.value) == (
        "network configuration.etcd_discovery_srv: 'b.org' is not accepted; multiple discovery or bootstrap options "
        'specified, use either "etcd_endpoints" or "etcd_discovery_srv"'
    )


def test_a_password_in_place_of_a_domain_is_not_shown() -> None:
    url = f"https://u:{PASSWORD}@b.org"
    with pytest.raises(ConfigurationError) as refusal:
        settings(etcd_endpoints="http://a", etcd_discovery_srv=url)
    assert PASSWORD not in repr(refusal.value)
    assert PASSWORD not in repr(settings(etcd_discovery_srv=url))


@pytest.mark.parametrize("kind", ["kubernetes", "sqlite"])
def test_how_to_reach_etcd_does_not_matter_beside_another_store(kind: str) -> None:
    found = settings(datastore_type=kind, etcd_endpoints="http://a", etcd_discovery_srv="b.org")
    assert (found.type, found.etcd_endpoints, found.etcd_discovery_srv) == (kind, ("http://a",), "")


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_relative_path_would_be_another_file_for_each_folder_that_a_runtime_starts_in(*, is_strict: bool) -> None:
    """A teardown would even make one there, and find that nothing is held."""
    with pytest.raises(ConfigurationError) as refusal:
        read({"datastore_type": "sqlite", "sqlite_path": "netplug.db"}, is_strict=is_strict)
    assert str(refusal.value) == (
        "network configuration.sqlite_path: 'netplug.db' is not accepted; an absolute path is expected"
    )


def test_a_teardown_lets_the_endpoints_win() -> None:
    found = read({"etcd_endpoints": "http://a", "etcd_discovery_srv": "b.org"}, is_strict=False)
    assert (found.etcd_endpoints, found.etcd_discovery_srv) == (("http://a",), "")


def test_every_key_arrives() -> None:
    keys = {
        "datastore_type": "kubernetes",
        "sqlite_path": "/db",
        "etcd_key_file": "/k",
        "etcd_cert_file": "/c",
        "etcd_ca_cert_file": "/ca",
        "netplug_api_group": "projectnetplug.org/v3",
        "annotation_prefix": "example.org",
        "qps": 7,
        "burst": 8,
        "kubernetes": {"kubeconfig": "/kc", "k8s_api_root": "https://api", "node_name": "n"},
    }
    assert settings(**keys) == DatastoreSettings(
        type="kubernetes",
        sqlite_path="/db",
        etcd_key_file="/k",
        etcd_cert_file="/c",
        etcd_ca_cert_file="/ca",
        api_group="projectnetplug.org/v3",
        annotation_prefix="example.org",
        qps=7,
        burst=8,
        kubernetes=KubernetesAccess(kubeconfig="/kc", api_root="https://api", node_name="n"),
    )


def test_a_url_that_may_hold_a_password_is_not_shown() -> None:
    shown = repr(settings(etcd_endpoints="http://root:s3cret@a:1", kubernetes={"k8s_api_root": "https://u:s3cret@b"}))
    assert "s3cret" not in shown
    plain = repr(settings(etcd_endpoints="http://a:1", kubernetes={"k8s_api_root": "https://b"}))
    assert "etcd_endpoints=('http://a:1',)" in plain
    assert "api_root='https://b'" in plain


def test_deprecated_keys_of_the_policy_fill_gaps() -> None:
    policy = {
        "k8s_api_root": "https://old:6443/api/v1/",
        "k8s_auth_token": TOKEN,
        "k8s_client_certificate": "/c",
        "k8s_client_key": "/k",
        "k8s_certificate_authority": "/ca",
    }
    filled = KubernetesAccess(
        api_root="https://old:6443", token=TOKEN, certificate="/c", key="/k", certificate_authority="/ca"
    )
    assert settings(policy=policy).kubernetes == filled
    assert settings(policy=policy, kubernetes={"k8s_api_root": "https://new"}).kubernetes.api_root == "https://new"


@pytest.mark.parametrize(
    "key,value", [("etcd_endpoints", []), ("datastore_type", 1), ("sqlite_path", 7), ("kubernetes", "x")]
)
def test_wrong_types_are_refused(key: str, value: object) -> None:
    with pytest.raises(DecodeError, match=f"^network configuration.{key}: must be "):
        settings(**{key: value})


def test_options_are_an_object_of_texts() -> None:
    found = settings(datastore_type="journal", datastore_options={"address": "a", "token": TOKEN})
    assert found.options == {"address": "a", "token": TOKEN}
    assert TOKEN not in repr(found)
    with pytest.raises(DecodeError, match=r"^network configuration.datastore_options\['a'\]: must be a string$"):
        settings(datastore_options={"a": 1})


@pytest.mark.parametrize(
    "variable, path",
    [
        ("ETCD_ENDPOINTS", ("etcd_endpoints",)),
        ("KUBECONFIG", ("kubernetes", "kubeconfig")),
        ("NETPLUG_API_GROUP", ("netplug_api_group",)),
    ],
)
def test_a_variable_has_its_place_in_a_network_configuration(variable: str, path: tuple[str, ...]) -> None:
    assert netconf_path(variable) == path


def test_endpoints_beside_a_domain_are_refused_where_the_store_is_opened() -> None:
    with pytest.raises(ConfigurationError, match='use either "etcdEndpoints" or "etcdDiscoverySrv"'):
        refuse_endpoints_beside_srv(("http://a:1",), "b.org", "etcd_discovery_srv")
    refuse_endpoints_beside_srv((), "b.org", "etcd_discovery_srv")
    refuse_endpoints_beside_srv(("http://a:1",), "", "etcd_discovery_srv")
