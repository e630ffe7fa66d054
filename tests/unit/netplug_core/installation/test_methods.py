"""The settings of static manifests: what is accepted, and what is refused with which text."""

from __future__ import annotations

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.installation.static import (
    ETCD_PLACEHOLDER,
    TLS_FOLDER,
    TLS_KEYS,
    Method,
    configure,
    default_settings,
)

ENDPOINTS = {"etcd_endpoints": "https://10.0.0.1:2379,http://[fd00::1]:2379"}
CERTIFICATES = {key: f"{TLS_FOLDER}/{key.replace('_', '-')}" for key in TLS_KEYS}


@pytest.mark.parametrize("method", [method for method in Method if not method.has_etcd])
def test_on_the_orchestrators_datastore_nothing_has_to_be_set(method: Method) -> None:
    assert configure(method, {}) == default_settings(method)


@pytest.mark.parametrize("method", [Method.ETCD, Method.ETCD_FLANNEL])
@pytest.mark.parametrize("text", [None, "", ETCD_PLACEHOLDER, "http://<ETCD_IP>:2379", "10.0.0.1:2379", "http://a"])
def test_without_usable_endpoints_of_etcd_it_is_refused(method: Method, text: str | None) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        configure(method, {} if text is None else {"etcd_endpoints": text})
    shown = ETCD_PLACEHOLDER if text is None else text
    assert str(refusal.value) == (
        f"{method.value} --set etcd_endpoints: {shown!r} is not accepted; "
        "URLs with commas between, such as https://10.0.0.1:2379"
    )


def test_changes_replace_the_defaults() -> None:
    found = configure(Method.ETCD, {**ENDPOINTS, **CERTIFICATES, "veth_mtu": "1450"})
    assert found == {"veth_mtu": "1450", "netplug_backend": "bird", **ENDPOINTS, **CERTIFICATES}


@pytest.mark.parametrize("missing", TLS_KEYS)
def test_certificates_are_named_together(missing: str) -> None:
    given = {key: path for key, path in CERTIFICATES.items() if key != missing}
    with pytest.raises(ConfigurationError, match=f"--set {missing}: '' is not accepted; set all of etcd_ca, etcd_cert"):
        configure(Method.ETCD, {**ENDPOINTS, **given})


@pytest.mark.parametrize(
    "key, text, accepted",
    [
        ("veth_mtu", "auto", "a number of bytes up to 65535"),
        ("veth_mtu", "65536", "a number of bytes up to 65535"),
        ("flannel_iface", "eth 0", "the name of an interface"),
        ("masquerade", "yes", "true or false"),
        ("net-conf.json", "{", "a JSON object with Network and Backend"),
        ("net-conf.json", '{"Network": "10.0.0.0/8"}', "a JSON object with Network and Backend"),
        ("netplug_backend", "bird", "there is no such setting; veth_mtu, flannel_iface, masquerade, net-conf.json"),
        ("cni_network_config", "{}", "there is no such setting"),
    ],
)
def test_what_is_not_accepted_is_named(key: str, text: str, accepted: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        configure(Method.KDD_FLANNEL, {key: text})
    assert str(refusal.value).startswith(f"manifest-kdd-flannel --set {key}: ")
    assert accepted in str(refusal.value)


def test_the_greatest_mtu_is_accepted() -> None:
    assert configure(Method.KDD_FLANNEL, {"veth_mtu": "65535"})["veth_mtu"] == "65535"


def test_a_backend_is_one_of_two() -> None:
    assert configure(Method.KDD, {"netplug_backend": "vxlan"})["netplug_backend"] == "vxlan"
    with pytest.raises(ConfigurationError, match="bird or vxlan"):
        configure(Method.KDD, {"netplug_backend": "none"})
