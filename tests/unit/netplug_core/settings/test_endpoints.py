"""URLs of members: valid and invalid ones."""

import pytest

from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import EtcdEndpoint, parse_endpoints

ACCEPTED = "give http://host:port or https://host:port, more of them after commas"


@pytest.mark.parametrize(
    "url,endpoint,target",
    [
        ("http://127.0.0.1:2379", EtcdEndpoint("http", "127.0.0.1", 2379), "127.0.0.1:2379"),
        (
            "https://etcd-0.example.org:4001/",
            EtcdEndpoint("https", "etcd-0.example.org", 4001),
            "etcd-0.example.org:4001",
        ),
        ("https://[fd00::1]:2379", EtcdEndpoint("https", "fd00::1", 2379), "[fd00::1]:2379"),
        ("https://[10.0.0.1]:2379", EtcdEndpoint("https", "10.0.0.1", 2379), "10.0.0.1:2379"),
        ("http://etcd", EtcdEndpoint("http", "etcd", 2379), "etcd:2379"),
        ("http://etcd.local.:2379", EtcdEndpoint("http", "etcd.local.", 2379), "etcd.local.:2379"),
        ("http://[::ffff:10.0.0.1]:1", EtcdEndpoint("http", "::ffff:10.0.0.1", 1), "[::ffff:10.0.0.1]:1"),
    ],
)
def test_a_url_names_a_member(url: str, endpoint: EtcdEndpoint, target: str) -> None:
    assert parse_endpoints([url]) == (endpoint,)
    assert endpoint.target == target
    assert str(endpoint) == f"{endpoint.scheme}://{target}"
    assert endpoint.is_secure == url.startswith("https")


def test_a_member_that_is_listed_twice_counts_once() -> None:
    assert parse_endpoints(["http://a:1", "http://b:2", "http://a:1/"]) == (
        EtcdEndpoint("http", "a", 1),
        EtcdEndpoint("http", "b", 2),
    )


@pytest.mark.parametrize(
    "url", ["", "a:1", "ftp://a:1", "unix:///run/etcd", "http://", "http://a:x", "http://a:70000", "http://a/path",
            "http://a?x=1", "http://a#x", "http://[fd00::1", "http://a:0", "http://a b:1", "http://a\tb:1", " http://a:1",
            "http://a:1\n", "http://a\u00a0b:1", "http://a..b:1", "http://.a:1", "http://.:1", "http://\ud800:1",
            f"http://{'a' * 64}:1"]
)  # fmt: skip
def test_an_invalid_member_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoints(["http://good:1", url])
    assert str(caught.value) == f"etcd_endpoints: {url!r} is not accepted; {ACCEPTED}"


def test_d14_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoints(["https://root:s3cret@a:1"])
    assert str(caught.value) == f"etcd_endpoints: '…' is not accepted; {ACCEPTED}"
    assert "s3cret" not in repr(caught.value)


@pytest.mark.parametrize("written", ["https://netplug:s3c,ret@10.0.0.1:2379", "http://a:1,https://netplug:,s3cret@b:2"])
def test_d14_no_part_of_a_password_with_a_comma_is_shown(written: str) -> None:
    """The list is split first, and only one part has the ``@``."""
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoints(written.split(","))
    assert str(caught.value) == f"etcd_endpoints: '…' is not accepted; {ACCEPTED}"


def test_the_setting_is_named_in_the_error() -> None:
    with pytest.raises(ConfigurationError, match=r"^etcd_authority: 'http://a b' is not accepted; give http"):
        parse_endpoints(["http://a b"], "etcd_authority")


def test_s16_no_endpoint_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no etcd endpoints specified"):
        parse_endpoints([])


@pytest.mark.parametrize(
    "host, has_name", [("etcd-1", True), ("127.0.0.1", False), ("[::1]", False), ("a.example.", True)]
)
def test_a_name_has_to_be_resolved(host: str, *, has_name: bool) -> None:
    (endpoint,) = parse_endpoints([f"http://{host}:2379"])
    assert endpoint.has_name is has_name
