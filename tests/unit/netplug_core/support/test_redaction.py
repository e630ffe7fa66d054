"""What is hidden in documents and texts, what stays, and where a secret that was seen is looked for."""

import base64

import pytest

from netplug_core.settings.model import SECRET_SETTINGS, SETTING_VARIABLES
from netplug_core.support import Redactor, is_secret_name

SECRET = "pl4nted secret/with=signs"  # noqa: S105  # searched for
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nshort\n-----END PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwb2QifQ.c2lnbmF0dXJl"  # noqa: S105  # likewise


@pytest.mark.parametrize(
    "name",
    [
        *sorted(SECRET_SETTINGS),
        "token", "k8s_auth_token", "K8S_API_TOKEN", "etcdPassword", "ETCD_PASSWORD", "client-key-data",
        "certificate-authority-data", "client-certificate-data", "x.io/api-key", "aws_secret_access_key",
        "Authorization",
        "kubectl.kubernetes.io/last-applied-configuration", "privateKey", "passphrase",
    ],
)  # fmt: skip
def test_names_whose_values_are_hidden(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["name", "key", "cidr", "etcdEndpoints", "etcdKeyFile", "kubeconfig", "nodeSelector"])
def test_names_whose_values_are_shown(name: str) -> None:
    assert not is_secret_name(name)


def test_the_settings_that_are_never_shown_are_secret_in_every_source() -> None:
    assert {"etcdPassword", "ETCD_PASSWORD", "etcdKey", "kubeconfigInline", "datastore_options"} <= SECRET_SETTINGS
    assert {"k8s_auth_token", "k8sAPIToken", "k8s_client_key"} <= SECRET_SETTINGS
    assert {"ETCD_ENDPOINTS", "KUBECONFIG", "K8S_API_TOKEN"} <= set(SETTING_VARIABLES)
    assert "" not in SECRET_SETTINGS | set(SETTING_VARIABLES)


def test_values_under_such_names_are_hidden_and_their_names_are_not() -> None:
    document = {
        "etcdPassword": SECRET,
        "datastoreOptions": {"path": SECRET, "flags": [SECRET, 12345], "empty": "", "on": True, "none": None},
        "env": [{"name": "API_TOKEN", "value": SECRET}, {"name": "LEVEL", "value": "info"}],
        "items": ({"cidr": "10.0.0.0/16", "blockSize": 26},),
    }
    assert Redactor().redact(document) == {
        "etcdPassword": "<hidden>",
        "datastoreOptions": {
            "path": "<hidden>", "flags": ["<hidden>", "<hidden>"], "empty": "", "on": True, "none": None
        },
        "env": [{"name": "API_TOKEN", "value": "<hidden>"}, {"name": "LEVEL", "value": "info"}],
        "items": [{"cidr": "10.0.0.0/16", "blockSize": 26}],
    }  # fmt: skip


@pytest.mark.parametrize(
    "text, shown",
    [
        ("http://root:pass@10.0.0.1:2379,http://b", "http://<hidden>@10.0.0.1:2379,http://b"),
        ("at https://u:p@ss@host/path?q", "at https://<hidden>@host/path?q"),
        (f"a {KEY} b", "a <hidden> b"),
        ("-----BEGIN CERTIFICATE-----\nMIIE", "<hidden>"),
        (f"sent {TOKEN}.", "sent <hidden>."),
        ("Authorization: Bearer abcdef123456", "Authorization: <hidden> <hidden>"),
        ("header bearer abcdef123456 sent", "header bearer <hidden> sent"),
        ("password=hunter2, next=1", "password=<hidden>, next=1"),
        ("token: 'two words' left", "token: <hidden> left"),
        ('msg="{\\"k8s_auth_token\\": \\"two words\\"}"', 'msg="{\\"k8s_auth_token\\": <hidden>}"'),
        ('{"token": "x", "a": 1}', '{"token": "<hidden>", "a": 1}'),
        ("[not json", "[not json"),
        ("[" * 100_000, "[" * 100_000),
        ("10.0.0.0/16 all() rack == 'r1' a@b", "10.0.0.0/16 all() rack == 'r1' a@b"),
        ("", ""),
    ],
)
def test_texts_are_searched_for_what_looks_like_a_secret(text: str, shown: str) -> None:
    redactor = Redactor()
    assert redactor.redact_text(text) == shown
    assert redactor.redact({"note": text}) == {"note": shown}


def test_a_name_may_hold_a_secret_too() -> None:
    assert Redactor().redact({"http://u:p@h": 1}) == {"http://<hidden>@h": 1}
    assert Redactor().redact({"password": {"http://u:p@h": "x"}}) == {"password": {"http://<hidden>@h": "<hidden>"}}


def test_a_secret_that_was_seen_is_hidden_wherever_else_it_is() -> None:
    redactor = Redactor()
    redactor.learn({"password": SECRET})
    forms = (
        SECRET,
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
        "pl4nted%20secret/with%3Dsigns",
        "pl4nted%20secret%2Fwith%3Dsigns",
    )
    for form in forms:
        assert redactor.hide_seen(f"a {form} b") == "a <hidden> b"
    assert redactor.hide_seen_in({SECRET: [f"x{SECRET}", 7, (SECRET,)]}) == {"<hidden>": ["x<hidden>", 7, ["<hidden>"]]}
    redactor.learn_text("another one")
    assert redactor.hide_seen("another one") == "<hidden>"


def test_of_several_lines_each_long_one_is_looked_for() -> None:
    redactor = Redactor()
    redactor.learn_text(KEY)
    assert redactor.hide_seen("MIIEvQIBADANBgkqhkiG9w0BAQEF and short") == "<hidden> and short"
    assert redactor.hide_seen("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_a_key_in_a_text_is_seen() -> None:
    redactor = Redactor()
    redactor.redact_text(f"x {KEY}")
    assert redactor.hide_seen("line MIIEvQIBADANBgkqhkiG9w0BAQEF") == "line <hidden>"


@pytest.mark.parametrize(
    "text", ["http://u:secret-1@h", "http://secret-1@h", "Bearer secret-1", '{"a": [{"token": "secret-1"}]}']
)
def test_what_a_text_has_is_seen(text: str) -> None:
    redactor = Redactor()
    redactor.redact_text(text)
    assert redactor.hide_seen("it is secret-1") == "it is <hidden>"
    redactor = Redactor()
    redactor.redact({"some.io/secret": text})
    assert redactor.hide_seen("it is secret-1") == "it is <hidden>"


def test_a_short_secret_is_hidden_only_where_it_stands() -> None:
    redactor = Redactor()
    assert redactor.redact({"password": "a"}) == {"password": "<hidden>"}
    assert redactor.hide_seen("a banana") == "a banana"


def test_the_longest_secret_is_hidden_first() -> None:
    redactor = Redactor()
    redactor.learn({"token": ["secret-1", "secret-1-and-more"]})
    assert redactor.hide_seen("secret-1-and-more") == "<hidden>"


def test_nothing_that_it_knows_is_in_its_own_text() -> None:
    redactor = Redactor()
    redactor.learn({"password": SECRET})
    redactor.hide_seen("")
    assert SECRET not in repr(redactor)
