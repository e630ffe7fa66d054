"""What is written when the plugin's token is renewed."""

import json

import pytest
from attrs import define, field

from netplug_core.clock import Deadline
from netplug_core.errors import Unavailable
from netplug_core.installation.installer import IssuedToken, PluginFile, renew_plugin_token
from netplug_core.testing.clock import ManualClock
from tests.harness.cni_node import FakeHost

PATH = "/etc/cni/net.d/netplug-kubeconfig"


@define
class Issuer:
    """An API server; ``away`` is why it does not answer."""

    server: str = "https://10.96.0.1:443"
    away: Exception | None = None
    accounts: list[str] = field(factory=list)

    def read_certificate_authority(self) -> bytes:
        return b"PEM"

    def issue(self, account: str, *, deadline: Deadline) -> IssuedToken:
        assert not deadline.has_passed
        if self.away is not None:
            raise self.away
        self.accounts.append(account)
        return IssuedToken(text=f"token-{len(self.accounts)}", expires_ns=5)


def renew(issuer: Issuer, host: FakeHost, *, skips_tls_verification: bool = False) -> IssuedToken:
    file = PluginFile(path=PATH, account="plugin", skips_tls_verification=skips_tls_verification)
    return renew_plugin_token(issuer, host, file, deadline=Deadline.after(ManualClock(), 10))


def document(host: FakeHost) -> dict[str, list[dict[str, dict[str, str]]]]:
    text = host.texts[PATH]
    assert isinstance(text, str)
    found: dict[str, list[dict[str, dict[str, str]]]] = json.loads(text)
    return found


def test_the_file_has_the_new_token_of_the_account() -> None:
    issuer, host = Issuer(), FakeHost()
    assert renew(issuer, host).text == "token-1"
    assert renew(issuer, host).text == "token-2"
    assert issuer.accounts == ["plugin", "plugin"]
    assert document(host)["users"][0]["user"] == {"token": "token-2"}
    cluster = {"server": "https://10.96.0.1:443", "certificate-authority-data": "UEVN"}
    assert document(host)["clusters"][0]["cluster"] == cluster


def test_a_server_that_is_not_to_be_verified_needs_no_authority() -> None:
    host = FakeHost()
    renew(Issuer(), host, skips_tls_verification=True)
    assert "certificate-authority-data" not in document(host)["clusters"][0]["cluster"]


def test_without_a_token_the_file_stays() -> None:
    host = FakeHost(texts={PATH: "before"})
    with pytest.raises(Unavailable):
        renew(Issuer(away=Unavailable("API", "away")), host)
    assert host.texts[PATH] == "before"


def test_a_folder_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        renew(Issuer(), FakeHost(unwritable={"/etc/cni/net.d"}))
