"""Which settings a URL stands for, and how a URL that stands for none is refused without showing a password."""

from typing import Any

import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st

from netplug_core.settings.apiconfig import InvalidURL, datastore_settings_from_url, redact_url
from netplug_core.settings.model import DEFAULT_ETCD_ENDPOINT, DatastoreSettings


def changed(settings: DatastoreSettings) -> dict[str, Any]:
    """The settings that differ from the defaults."""
    names = (field.name for field in fields(DatastoreSettings))
    return {name: value for name in names if (value := getattr(settings, name)) != getattr(DatastoreSettings(), name)}


@pytest.mark.parametrize("url", ["memory:", "memory://", "memory:/", "MEMORY:"])
def test_memory_needs_nothing(url: str) -> None:
    assert changed(datastore_settings_from_url(url)) == {"type": "memory"}


@pytest.mark.parametrize("url, path", [
    ("sqlite:///var/lib/netplug.db", "/var/lib/netplug.db"), ("sqlite:/var/n.db", "/var/n.db"),
    ("sqlite:some/n.db", "some/n.db"), ("sqlite:///a%20b%3F.db", "/a b?.db"),
])  # fmt: skip
def test_sqlite_names_a_file(url: str, path: str) -> None:
    assert changed(datastore_settings_from_url(url)) == {"type": "sqlite", "sqlite_path": path}


@pytest.mark.parametrize("url, expected", [
    ("etcd://h:2379", {"etcd_endpoints": ("http://h:2379",)}),
    ("etcdv3://h", {"etcd_endpoints": ("http://h",)}),
    ("etcd://h:1,[fd00::1]:2/", {"etcd_endpoints": ("http://h:1", "http://[fd00::1]:2")}),
    ("etcd://root:p[10.0.0.9]@[10.0.0.1]:1,[10.0.0.2]",
     {"etcd_endpoints": ("http://10.0.0.1:1", "http://10.0.0.2"), "etcd_username": "root",
      "etcd_password": "p[10.0.0.9]"}),
    ("etcd://h?tls=true", {"etcd_endpoints": ("https://h",)}),
    ("etcd://h?tls=false&ca_cert_file=/ca", {"etcd_endpoints": ("http://h",), "etcd_ca_cert_file": "/ca"}),
    ("etcd://h?cert_file=/c&key_file=/k",
     {"etcd_endpoints": ("https://h",), "etcd_cert_file": "/c", "etcd_key_file": "/k"}),
    ("etcd://root:p%40ss%2Fw@h", {"etcd_endpoints": ("http://h",), "etcd_username": "root", "etcd_password": "p@ss/w"}),
    ("etcd:?discovery_srv=example.org", {"etcd_endpoints": (), "etcd_discovery_srv": "example.org"}),
])  # fmt: skip
def test_etcd_names_members_and_how_to_reach_them(url: str, expected: dict[str, object]) -> None:
    found = changed(datastore_settings_from_url(url))
    assert found.pop("etcd_endpoints_source") == "url"
    assert found == ({} if expected["etcd_endpoints"] == (DEFAULT_ETCD_ENDPOINT,) else expected)


@pytest.mark.parametrize("url, kubeconfig, context, api_group", [
    ("kubernetes:", "", "", ""), ("kubernetes:///home/me/config", "/home/me/config", "", ""),
    ("kubernetes:?context=prod&api_group=projectnetplug.org%2Fv3", "", "prod", "projectnetplug.org/v3"),
])  # fmt: skip
def test_kubernetes_names_a_kubeconfig(url: str, kubeconfig: str, context: str, api_group: str) -> None:
    settings = datastore_settings_from_url(url)
    assert settings.type == "kubernetes"
    assert (settings.kubernetes.kubeconfig, settings.kubernetes.context) == (kubeconfig, context)
    assert settings.api_group == api_group


@pytest.mark.parametrize("url, options", [
    ("journal:", {}),
    ("journal:///var/j.jsonl?fsync=no&mode=", {"path": "/var/j.jsonl", "fsync": "no", "mode": ""}),
    ("journal:j.jsonl", {"path": "j.jsonl"}),
    ("my-db+x.1://me:p%3Aw@host:5432/db",
     {"user": "me", "password": "p:w", "host": "host", "port": "5432", "path": "/db"}),
    ("db://[fd00::1]:5", {"host": "[fd00::1]", "port": "5"}),
    ("db://[fd00::1]", {"host": "[fd00::1]"}),
    ("db://a:1,b:2", {"host": "a:1,b:2"}),
])  # fmt: skip
def test_another_name_gets_the_parts_of_its_url_as_options(url: str, options: dict[str, str]) -> None:
    settings = datastore_settings_from_url(url)
    assert settings.type == url.partition(":")[0]
    assert settings.options == options
    assert set(changed(settings)) <= {"type", "options"}


@pytest.mark.parametrize("url, problem", [
    ("", "does not begin with the name of a datastore"),
    ("netplug.db", "does not begin with the name of a datastore"),
    ("memory", "does not begin with the name of a datastore"),
    ("memory:x", "it names a path; memory: is accepted"),
    ("memory://h", "it names a host"),
    ("memory:?a=b", "unknown option 'a'"),
    ("sqlite:", "it names no file"),
    ("sqlite:///", "it names no file"),
    ("sqlite://n.db", "it names a host; sqlite:///absolute/path"),
    ("sqlite:n.db?mode=ro", "unknown option 'mode'"),
    ("sqlite:a b", "a blank or an unprintable"),
    ("sqlite:a\tb", "a blank or an unprintable"),
    ("sqlite:///%00", "a control character is percent-encoded in it"),
    ("sqlite:a%0Ab", "a control character is percent-encoded in it"),
    ("kubernetes:///a%7F", "a control character is percent-encoded in it"),
    ("kubernetes:?context=a%00", "a control character is percent-encoded in its query"),
    ("mine://h/?a%1f=b", "a control character is percent-encoded in its query"),
    ("mine://h/%C2%85", "a control character is percent-encoded in it"),
    ("etcd://u%00:p@h", "a control character is percent-encoded in it"),
    ("etcd://h%00:2379", "a host or its port is missing or wrong"),
    ("etcd://a,%68:2379", "a host or its port is missing or wrong"),
    ("etcd://h:%31", "a host or its port is missing or wrong"),
    ("etcd:", "it names no host"),
    ("etcd://h/prefix", "it names a path"),
    ("etcd://h:x", "a host or its port is missing or wrong"),
    ("etcd://h:0", "a host or its port is missing or wrong"),
    ("etcd://h:1,:2", "a host or its port is missing or wrong"),
    ("etcd://h,", "a host or its port is missing or wrong"),
    ("etcd://h?discovery_srv=d", "it names hosts and discovery_srv"),
    ("etcd://h?tls=1", "tls is neither true nor false"),
    ("etcd://h?ssl=true", "unknown option 'ssl'"),
    ("etcd://h?tls", "its query is not a list of name=value"),
    ("etcd://h?tls=true&tls=false", "the option 'tls' is given twice"),
    ("etcd://h#x", "it has a fragment"),
    ("etcd://[h", "a host or its port is missing or wrong"),
    ("etcd://root:p?w=x@host", "it has an @ behind a ? or #"),
    ("kubernetes://host", "it names a host"),
    ("kubernetes:?token=x", "unknown option 'token'"),
    ("journal:/x?path=/y", "the option 'path' is a part of the URL too"),
])  # fmt: skip
def test_what_is_no_url_of_a_datastore_is_named(url: str, problem: str) -> None:
    with pytest.raises(InvalidURL) as refusal:
        datastore_settings_from_url(url)
    assert str(refusal.value).startswith(f"url: {redact_url(url)!r} is not accepted: ")
    assert problem in str(refusal.value)
    assert "accepted" in str(refusal.value).rpartition("; ")[2] or "once" in str(refusal.value)


@pytest.mark.parametrize("url, shown", [
    ("etcd://h:2379", "etcd://h:2379"), ("etcd://me:pw@h/x", "etcd://…@h/x"), ("etcd://me:p/w@h", "etcd://…@h"),
    ("etcd://me:p@w@h", "etcd://…@h"), ("etcd:me:pw@h", "etcd://…@h"), ("etcd://me:p?w@h", "etcd:…"),
    ("etcd://me:p#w@h", "etcd:…"), ("x://h?token=pw&a=b", "x://h?…"), ("x://h?token=p@w", "x:…"),
    ("x://h#pw", "x://h#…"), ("x://h?", "x://h?"), ("", ""), ("plain", "plain"),
])  # fmt: skip
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(st.text(alphabet="pw/?#@:&=%"))
def test_no_password_is_shown_whatever_characters_it_has(password: str) -> None:
    secret = f"S3CR3T{password}S3CR3T"
    for url in (f"etcd://root:{secret}@host:x", f"memory://{secret}@h", f"other:?token={secret}&token={secret}"):
        assert "S3CR3T" not in redact_url(url)
