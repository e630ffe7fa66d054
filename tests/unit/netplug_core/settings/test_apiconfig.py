"""The tool's settings: each key once in the environment and once in a file, and what is refused without being shown."""

from collections.abc import Callable

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.settings.apiconfig import (
    datastore_settings_from_environment,
    datastore_settings_from_file,
    has_datastore,
)
from netplug_core.settings.model import DEFAULT_ETCD_ENDPOINT, DatastoreSettings, KubernetesAccess

SECRET = "hunter2"  # noqa: S105  # planted, to be searched for
FILE = "/etc/netplug/netplugctl.cfg"
REQUESTS = "a whole number from 0 to 4294967295"
READABLE = "a text in UTF-8 without NUL is expected"
# Each key of the file, what it may say, and the same in the environment.
SAID: dict[str, tuple[object, str]] = {
    "datastoreType": ("kubernetes", "DATASTORE_TYPE"),
    "sqlitePath": ("/db", "SQLITE_PATH"),
    "etcdEndpoints": ("http://a, https://b:2,", "ETCD_ENDPOINTS"),
    "etcdUsername": ("u", "ETCD_USERNAME"),
    "etcdPassword": (SECRET, "ETCD_PASSWORD"),
    "etcdKeyFile": ("/k", "ETCD_KEY_FILE"),
    "etcdCertFile": ("/c", "ETCD_CERT_FILE"),
    "etcdCACertFile": ("/ca", "ETCD_CA_CERT_FILE"),
    "kubeconfig": ("/kc", "KUBECONFIG"),
    "k8sCurrentContext": ("test", "K8S_CURRENT_CONTEXT"),
    "k8sAPIEndpoint": ("https://api", "K8S_API_ENDPOINT"),
    "k8sAPIToken": (SECRET, "K8S_API_TOKEN"),
    "k8sKeyFile": ("/kk", "K8S_KEY_FILE"),
    "k8sCertFile": ("/kc.pem", "K8S_CERT_FILE"),
    "k8sCAFile": ("/kca", "K8S_CA_FILE"),
    "k8sInsecureSkipTLSVerify": (True, "K8S_INSECURE_SKIP_TLS_VERIFY"),
    "k8sClientQPS": (50, "K8S_CLIENT_QPS"),
    "k8sClientBurst": (90, "K8S_CLIENT_BURST"),
    "usePodCIDR": (True, "USE_POD_CIDR"),
    "netplugAPIGroup": ("projectnetplug.org", "NETPLUG_API_GROUP"),
    "annotationPrefix": ("example.org", "ANNOTATION_PREFIX"),
}
FILE_KEYS = (*SAID, "etcdKey", "etcdCert", "etcdCACert", "kubeconfigInline", "etcdDiscoverySrv", "datastoreOptions")
INLINE = {"etcdKey": SECRET, "etcdCert": SECRET, "etcdCACert": SECRET, "kubeconfigInline": SECRET}
MEANT = DatastoreSettings(
    type="kubernetes",
    sqlite_path="/db",
    etcd_endpoints=("http://a", "https://b:2"),
    etcd_username="u",
    etcd_password=SECRET,
    etcd_key_file="/k",
    etcd_cert_file="/c",
    etcd_ca_cert_file="/ca",
    kubernetes=KubernetesAccess(
        kubeconfig="/kc",
        context="test",
        api_root="https://api",
        token=SECRET,
        certificate="/kc.pem",
        key="/kk",
        certificate_authority="/kca",
        skips_tls_verification=True,
        uses_pod_cidr=True,
    ),
    api_group="projectnetplug.org",
    annotation_prefix="example.org",
    qps=50,
    burst=90,
)


def from_file(**spec: object) -> DatastoreSettings:
    mapping = {
        "kind": "NetplugAPIConfig",
        "apiVersion": "projectnetplug.org/v3",
        "metadata": {"name": "x"},
        "spec": spec,
    }
    return datastore_settings_from_file(mapping, source=FILE)


def from_environment(**environ: str) -> DatastoreSettings:
    return datastore_settings_from_environment(environ)


def test_every_key_of_a_file_arrives() -> None:
    found = from_file(**{key: value for key, (value, _) in SAID.items()})
    assert found == MEANT
    assert SECRET not in repr(found)


@pytest.mark.parametrize("prefix", ["", "NETPLUG_"])
def test_every_variable_arrives_with_and_without_the_prefix(prefix: str) -> None:
    found = from_environment(**{prefix + name: str(value) for value, name in SAID.values()}, HOME="/root")
    assert found == MEANT
    assert SECRET not in repr(found)


def test_a_variable_with_the_prefix_wins() -> None:
    found = from_environment(ETCD_USERNAME="other", NETPLUG_ETCD_USERNAME="ours", NETPLUG_ETCD_KEY_FILE="")
    assert found == DatastoreSettings(etcd_username="ours")


def test_what_takes_lines_is_in_files_only() -> None:
    found = from_file(**INLINE)
    assert (found.etcd_key, found.etcd_cert, found.etcd_ca_cert, found.kubernetes.kubeconfig_inline) == (SECRET,) * 4
    assert SECRET not in repr(found)
    names = ("ETCD_KEY", "ETCD_CERT", "ETCD_CA_CERT", "KUBECONFIG_INLINE", "NETPLUG_", "")
    assert from_environment(**dict.fromkeys(names, SECRET)) == DatastoreSettings()


def test_the_parts_of_one_endpoint_are_in_the_environment_only() -> None:
    assert from_environment(ETCD_AUTHORITY="a:1", ETCD_SCHEME="https").etcd_endpoints == ("https://a:1",)
    assert from_environment(ETCD_AUTHORITY="a:1").etcd_endpoints == ("http://a:1",)
    assert from_environment(ETCD_ENDPOINTS="http://a:1", ETCD_AUTHORITY="b:1").etcd_endpoints_source == "etcd_endpoints"
    assert from_environment(ETCD_AUTHORITY="a:1").etcd_endpoints_source == "environment.ETCD_AUTHORITY"
    assert from_environment(ETCD_AUTHORITY="a:1", NETPLUG_ETCD_SCHEME="https").etcd_endpoints_source == (
        "environment.NETPLUG_ETCD_SCHEME and environment.ETCD_AUTHORITY"
    )
    with pytest.raises(ConfigurationError, match="not recognized"):
        from_file(etcdAuthority="a:1")


@pytest.mark.parametrize("read", [from_file, from_environment])
def test_nothing_configured_is_etcd_on_this_machine(read: Callable[[], DatastoreSettings]) -> None:
    assert read() == DatastoreSettings()
    assert read().etcd_endpoints == (DEFAULT_ETCD_ENDPOINT,)


def test_members_found_through_srv_records_have_no_other_endpoint() -> None:
    assert from_file(etcdDiscoverySrv="b.org") == DatastoreSettings(etcd_endpoints=(), etcd_discovery_srv="b.org")


@pytest.mark.parametrize(
    "spec, type_",
    [
        ({"kubeconfig": "/kc"}, "kubernetes"),
        ({"kubeconfigInline": "{}"}, "kubernetes"),
        ({"k8sAPIEndpoint": "https://api"}, "kubernetes"),
        ({"kubeconfig": "/kc", "etcdEndpoints": "http://a"}, "etcdv3"),
        ({"kubeconfig": "/kc", "etcdDiscoverySrv": "b.org"}, "etcdv3"),
        ({"kubeconfig": "/kc", "etcdEndpoints": "http://a", "datastoreType": "kubernetes"}, "kubernetes"),
        ({"sqlitePath": "/db"}, "etcdv3"),
    ],
)
def test_where_no_store_is_named_it_is_the_one_that_the_rest_is_about(spec: dict[str, str], type_: str) -> None:
    assert from_file(**spec).type == type_
    variables = {SAID[key][1]: value for key, value in spec.items() if key in SAID}
    if len(variables) == len(spec):
        assert from_environment(**variables).type == type_


def test_a_kubeconfig_beside_an_endpoint_in_parts_is_not_the_store() -> None:
    assert from_environment(KUBECONFIG="/kc", ETCD_AUTHORITY="a:1").type == "etcdv3"


@pytest.mark.parametrize(
    "read, sentence",
    [
        (
            lambda: from_file(etcdEndpoints=f"http://u:{SECRET}@a", etcdDiscoverySrv="b.org"),
            (
                f"{FILE} $.spec.etcdDiscoverySrv: 'b.org' is not accepted; multiple discovery or bootstrap options "
                'specified, use either "etcdEndpoints" or "etcdDiscoverySrv"'
            ),
        ),
        (
            lambda: from_environment(ETCD_ENDPOINTS=f"http://u:{SECRET}@a", NETPLUG_ETCD_DISCOVERY_SRV="b.org"),
            (
                "environment.NETPLUG_ETCD_DISCOVERY_SRV: 'b.org' is not accepted; multiple discovery or bootstrap "
                'options specified, use either "ETCD_ENDPOINTS" or "NETPLUG_ETCD_DISCOVERY_SRV"'
            ),
        ),
        (
            lambda: from_environment(ANNOTATION_PREFIX="a b/c"),
            (
                "environment.ANNOTATION_PREFIX: 'a b/c' is not accepted; "
                "a DNS name such as cni.projectnetplug.org is expected"
            ),
        ),
        (
            lambda: from_environment(K8S_CLIENT_QPS="many"),
            f"environment.K8S_CLIENT_QPS: 'many' is not accepted; {REQUESTS} is expected",
        ),
        (
            lambda: from_environment(K8S_CLIENT_BURST="4294967296"),
            f"environment.K8S_CLIENT_BURST: '4294967296' is not accepted; {REQUESTS} is expected",
        ),
        (
            lambda: from_environment(K8S_CLIENT_QPS="9" * 5000),
            f"environment.K8S_CLIENT_QPS: '…' is not accepted; {REQUESTS} is expected",
        ),
        (
            lambda: from_environment(NETPLUG_ETCD_PASSWORD=f"{SECRET}\udce4"),
            f"environment.NETPLUG_ETCD_PASSWORD: '…' is not accepted; {READABLE}",
        ),
        (
            lambda: from_environment(USE_POD_CIDR="\udce4"),
            f"environment.USE_POD_CIDR: '…' is not accepted; {READABLE}",
        ),
        (lambda: from_file(etcdKey=f"{SECRET}\ud800"), f"{FILE} $.spec.etcdKey: '…' is not accepted; {READABLE}"),
        (lambda: from_file(etcdUsername="\udfff"), f"{FILE} $.spec.etcdUsername: '…' is not accepted; {READABLE}"),
        (lambda: from_file(sqlitePath="/a\0b"), f"{FILE} $.spec.sqlitePath: '…' is not accepted; {READABLE}"),
        (
            lambda: from_environment(USE_POD_CIDR="yes"),
            "environment.USE_POD_CIDR: 'yes' is not accepted; true or false is expected",
        ),
        (
            lambda: from_file(datastoretype="etcdv3", etcdPass=SECRET),
            (
                "field in document is not recognized or is in the wrong location: datastoretype, etcdPass @ "
                f"{FILE} $.spec; did you mean datastoreType? there are {', '.join(sorted(FILE_KEYS))}"
            ),
        ),
        (lambda: from_file(usePodCIDR="yes"), f"expected true or false @ {FILE} $.spec.usePodCIDR, found 'yes'"),
        (
            lambda: from_file(k8sClientQPS="5"),
            f"expected {REQUESTS} @ {FILE} $.spec.k8sClientQPS, found '5': it is a text; leave out the quotes",
        ),
        (lambda: from_file(k8sClientQPS=True), f"expected {REQUESTS} @ {FILE} $.spec.k8sClientQPS, found True"),
        (lambda: from_file(k8sClientBurst=-1), f"expected {REQUESTS} @ {FILE} $.spec.k8sClientBurst, found -1"),
        (
            lambda: from_file(k8sClientBurst=2**32),
            f"expected {REQUESTS} @ {FILE} $.spec.k8sClientBurst, found 4294967296",
        ),
        (lambda: from_file(etcdUsername=7), f"expected a text @ {FILE} $.spec.etcdUsername, found 7: put it in quotes"),
        (
            lambda: from_file(etcdPassword=[SECRET]),
            f"expected a text in quotes @ {FILE} $.spec.etcdPassword, found '…'",
        ),
        (
            lambda: from_file(etcdEndpoints=[f"http://u:{SECRET}@a"]),
            f"expected a text in quotes @ {FILE} $.spec.etcdEndpoints, found '…'",
        ),
    ],
)
def test_what_is_refused_is_named_and_no_secret_is_shown(read: Callable[[], DatastoreSettings], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read()
    assert str(refusal.value) == sentence
    assert SECRET not in repr(refusal.value)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"kind": "IPPool"}, f"expected 'NetplugAPIConfig' @ {FILE} $.kind, found 'IPPool'"),
        ({"kind": 7}, f"expected a text @ {FILE} $.kind, found 7: put it in quotes"),
        (
            {"apiVersion": "v1"},
            f"expected 'projectnetplug.org/v3' @ {FILE} $.apiVersion, found 'v1'",
        ),
        ({"spec": SECRET}, f"expected an object @ {FILE} $.spec, found '…'"),
        (
            {"etcdPassword": SECRET},
            (
                f"field in document is not recognized or is in the wrong location: etcdPassword @ {FILE} $; "
                "it belongs in spec; there are apiVersion, kind, metadata, spec"
            ),
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(change: dict[str, object], sentence: str) -> None:
    mapping = {"kind": "NetplugAPIConfig", "apiVersion": "projectnetplug.org/v3", **change}
    with pytest.raises(ConfigurationError) as refusal:
        datastore_settings_from_file(mapping, source=FILE)
    assert str(refusal.value) == sentence
    assert SECRET not in repr(refusal.value)


@pytest.mark.parametrize("kind", ["kubernetes", "sqlite"])
def test_how_to_reach_etcd_does_not_matter_beside_another_store(kind: str) -> None:
    both = {"etcdEndpoints": "http://a", "etcdDiscoverySrv": "b.org"}
    for found in (
        from_file(datastoreType=kind, **both),
        from_environment(DATASTORE_TYPE=kind, ETCD_ENDPOINTS="http://a", ETCD_DISCOVERY_SRV="b.org"),
    ):
        assert found == DatastoreSettings(type=kind, etcd_endpoints=("http://a",))


@pytest.mark.parametrize("most", ["4294967295", f"{'0' * 5000}4294967295"])
def test_a_number_goes_as_far_as_that_of_a_network_configuration(most: str) -> None:
    assert from_environment(K8S_CLIENT_QPS=most, K8S_CLIENT_BURST="000") == DatastoreSettings(qps=2**32 - 1)
    assert from_file(k8sClientQPS=2**32 - 1) == DatastoreSettings(qps=2**32 - 1)


def test_letters_of_any_language_are_a_text() -> None:
    assert from_environment(ETCD_PASSWORD="пароль🔑").etcd_password == "пароль🔑"  # noqa: S105, S106  # nobody's


def test_flags_and_numbers_that_are_empty_are_not_set() -> None:
    found = from_environment(USE_POD_CIDR="", K8S_CLIENT_QPS="", K8S_INSECURE_SKIP_TLS_VERIFY="0")
    assert found == DatastoreSettings()


OPTIONS = {"address": "journal.example:7", "token": SECRET, "empty": ""}


def test_options_are_for_a_backend_that_is_not_netplugs_own() -> None:
    text = f"address=journal.example%3A7&token={SECRET}&empty="
    for found in (
        from_file(datastoreType="journal", datastoreOptions=OPTIONS),
        from_environment(DATASTORE_TYPE="journal", DATASTORE_OPTIONS=text),
    ):
        assert found == DatastoreSettings(type="journal", options=OPTIONS)
        assert SECRET not in repr(found)
        assert hash(found) == hash(DatastoreSettings(type="journal"))


@pytest.mark.parametrize(
    "read, sentence",
    [
        (
            lambda: from_environment(DATASTORE_OPTIONS=SECRET),
            (
                "environment.DATASTORE_OPTIONS: '…' is not accepted; "
                "name=value&name=value is expected, as in the query of a URL"
            ),
        ),
        (
            lambda: from_environment(DATASTORE_OPTIONS="a=%00"),
            f"environment.DATASTORE_OPTIONS['a']: '…' is not accepted; {READABLE}",
        ),
        (
            lambda: from_file(datastoreOptions=SECRET),
            f"expected an object of texts @ {FILE} $.spec.datastoreOptions, found '…'",
        ),
        (
            lambda: from_file(datastoreOptions={"a": 1}),
            f"expected a text in quotes @ {FILE} $.spec.datastoreOptions['a'], found '…'",
        ),
    ],
)
def test_options_that_are_no_texts_are_refused(read: Callable[[], DatastoreSettings], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read()
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("name", ["DATASTORE_TYPE", "SQLITE_PATH", "ETCD_ENDPOINTS", "KUBECONFIG", "K8S_API_ENDPOINT"])
def test_an_environment_names_a_datastore_by_its_type_or_its_place(name: str) -> None:
    assert has_datastore({name: "x"})
    assert has_datastore({f"NETPLUG_{name}": "x"})
    assert not has_datastore({name: ""})


@pytest.mark.parametrize("name", ["PATH", "ETCD_PASSWORD", "K8S_CLIENT_QPS", "ANNOTATION_PREFIX", "NETPLUG_API_GROUP"])
def test_other_settings_alone_name_none(name: str) -> None:
    assert not has_datastore({name: "x"})
