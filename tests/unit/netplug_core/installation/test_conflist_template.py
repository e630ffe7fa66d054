"""Templates and their placeholders: numbers of install-and-upgrade.md, section 21, where a check has one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.errors import ConfigurationError
from netplug_core.installation.installer import (
    CERTIFICATES,
    HostFacts,
    fill_conflist,
    is_ours,
    read_installer_settings,
    require_filled,
)

FACTS = HostFacts(host_name="Node-7.example")


def fill(template: str, facts: HostFacts = FACTS, **environ: str) -> str:
    return fill_conflist(template, "CNI_NETWORK_CONFIG", read_installer_settings(environ), facts).text


def with_member(text: str) -> str:
    return f'{{"type": "netplug", "a": {text}}}'


def test_the_built_in_template() -> None:
    found = json.loads(fill(""))
    assert found["name"] == "k8s-pod-network"
    assert found["plugins"] == [
        {
            "type": "netplug",
            "log_level": "info",
            "log_file_path": "/var/log/netplug/cni/cni.log",
            "log_file_max_size": 100,
            "log_file_max_age": 30,
            "log_file_max_count": 10,
            "datastore_type": "kubernetes",
            "nodename": "node-7.example",
            "mtu": 1500,
            "ipam": {"type": "netplug-ipam"},
            "policy": {"type": "k8s"},
            "kubernetes": {"kubeconfig": "/etc/cni/net.d/netplug-kubeconfig"},
        },
        {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
    ]


def test_the_built_in_template_for_etcd_has_what_is_there() -> None:
    facts = HostFacts(host_name="n", certificates=frozenset({"etcd-cert"}))
    plugin = json.loads(fill("", facts, DATASTORE_TYPE="etcdv3", ETCD_ENDPOINTS="https://10.0.0.1:2379"))["plugins"][0]
    assert plugin["datastore_type"] == "etcdv3"
    assert {name: value for name, value in plugin.items() if name.startswith("etcd")} == {
        "etcd_endpoints": "https://10.0.0.1:2379",
        "etcd_cert_file": "/etc/cni/net.d/netplug-tls/etcd-cert",
    }


@given(st.text().filter(lambda text: text and not text.startswith("localhost")))
def test_50_a_value_in_quotes_is_kept_whatever_is_in_it(name: str) -> None:
    found = fill(with_member('"<__KUBERNETES_NODE_NAME__> \\" __CNI_MTU__"'), KUBERNETES_NODE_NAME=name)
    assert json.loads(found)["a"] == f'<{name}> " 1500'


def test_a_value_is_not_filled_in_again() -> None:
    found = fill(with_member('"__KUBERNETES_NODE_NAME__"'), KUBERNETES_NODE_NAME="__CNI_MTU__")
    assert json.loads(found)["a"] == "__CNI_MTU__"


@pytest.mark.parametrize("value", ["0", "1500", "-1", "1.5e3", "true", "false"])
def test_a_bare_placeholder_is_a_literal(value: str) -> None:
    assert json.loads(fill(with_member("__CNI_MTU__"), CNI_MTU=value))["a"] == json.loads(value)


@pytest.mark.parametrize("value", ["abc", "1,2", "01", '"x"', "null", "1 "])
def test_49_another_bare_value_is_refused_by_its_variable(value: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        fill(with_member("__CNI_MTU__"), CNI_MTU=value)
    accepted = "is not accepted; CNI_NETWORK_CONFIG uses it as a number, or as true or false"
    assert str(refusal.value) == f"CNI_MTU: {value!r} {accepted}"


@pytest.mark.parametrize("template", ['{"a": ', "", " ", "[]", '{"type": "netplug"} x', "__NOT_KNOWN__", "[" * 100_000])
def test_47_a_template_that_is_no_json_is_refused_without_its_text(template: str) -> None:
    facts = HostFacts(host_name="n", token="s3cret")  # noqa: S106  # searched for
    with pytest.raises(ConfigurationError) as refusal:
        fill(template + '"__SERVICEACCOUNT_TOKEN__"', facts)
    assert str(refusal.value).startswith("CNI_NETWORK_CONFIG: '…' is not accepted; ")
    assert "s3cret" not in str(refusal.value)
    assert "TOKEN" not in str(refusal.value)


def test_a_configuration_without_our_plugin_is_refused() -> None:
    with pytest.raises(ConfigurationError, match='a JSON object with a plugin of type "netplug" is expected'):
        fill('{"name": "n", "type": "bridge"}')


def test_a_configuration_that_delegates_to_us_is_ours() -> None:
    assert is_ours(fill('{"name": "n", "plugins": [{"type": "flannel", "delegate": {"type" : "netplug"}}]}'))
    assert is_ours('{"type": "bridge", "ipam": {"type": "netplug-ipam"}}')
    assert not is_ours('{"name": "netplug", "type": "bridge"}')
    assert not is_ours("")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "localhost.localdomain"])
def test_the_name_of_every_machine_is_no_name_of_a_node(name: str) -> None:
    facts = HostFacts(host_name=name)
    with pytest.raises(ConfigurationError) as refusal:
        fill("", facts)
    assert str(refusal.value).startswith(f"KUBERNETES_NODE_NAME: '{name.lower()}' is not accepted; ")
    assert fill(with_member("1"), facts) == with_member("1"), "nothing uses it"


def test_unknown_placeholders_stay_and_are_reported_once() -> None:
    template = with_member('["__A_B__", __C__, "__A_B__ __d__ ____"]').replace("__C__", '"__C__"')
    found = fill_conflist(template, "x", read_installer_settings({}), FACTS)
    assert found.text == template
    assert found.unknown == ("__A_B__", "__C__")
    with pytest.raises(ConfigurationError) as refusal:
        require_filled(found, "x")
    assert str(refusal.value).startswith("x: '__A_B__, __C__' is not accepted; it has no value: set a variable")


def test_a_variable_that_no_shell_filled_in_is_a_placeholder_too() -> None:
    template = with_member('["${HOSTNAME}", "$5", "${}", "__CNI_MTU__"]')
    found = fill_conflist(template, "x", read_installer_settings({"CNI_MTU": "${NOT_SEARCHED}"}), FACTS)
    assert found.unknown == ("${HOSTNAME}",)
    require_filled(fill_conflist("", "x", read_installer_settings({}), FACTS), "x")


@pytest.mark.parametrize("mounted", [(), ("etcd-cert",), CERTIFICATES])
def test_57_a_certificate_that_is_not_mounted_has_no_path(mounted: tuple[str, ...]) -> None:
    facts = HostFacts(host_name="n", certificates=frozenset(mounted))
    text = with_member('["__ETCD_CA_CERT_FILE__", "__ETCD_CERT_FILE__", "__ETCD_KEY_FILE__"]')
    expected = [f"/run/net.d/netplug-tls/{name}" if name in mounted else "" for name in CERTIFICATES]
    assert json.loads(fill(text, facts, CNI_NET_DIR="/run/net.d"))["a"] == expected


def test_tokens_are_not_shown() -> None:
    facts = HostFacts(host_name="n", token="s3cret")  # noqa: S106  # searched for
    found = fill_conflist(with_member('"__SERVICEACCOUNT_TOKEN__"'), "x", read_installer_settings({}), facts)
    assert json.loads(found.text)["a"] == "s3cret"
    assert "s3cret" not in repr(found) + repr(facts)
