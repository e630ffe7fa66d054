"""How a connection is to be secured, and what cannot be a server, a certificate or a key. No secret is shown."""

import ssl
from pathlib import Path

import pytest
import trustme

from netplug_backends.kubernetes.credentials import Access, Pem, Verification
from netplug_backends.kubernetes.transport import tls_context
from netplug_core.errors import ConfigurationError

AUTHORITY = trustme.CA()


def refusal(access: Access) -> str:
    with pytest.raises(ConfigurationError) as refused:
        tls_context(access)
    return str(refused.value)


@pytest.mark.parametrize(
    "server",
    [
        "",
        "api",
        "ftp://api",
        "https://",
        "https://api:x",
        "https://api:99999",
        "https://a:0",
        "https://a..b",
        "https://u@a",
    ],
)
def test_an_address_that_is_no_url_is_refused(server: str) -> None:
    assert "a URL such as https://host:6443 is expected" in refusal(Access(server=server))


def test_plain_http_needs_no_context() -> None:
    assert tls_context(Access(server="http://api")) is None


def test_only_the_configured_authorities_are_trusted_and_all_of_them(tmp_path: Path) -> None:
    both = tmp_path / "ca.pem"
    both.write_bytes(AUTHORITY.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
    for authority in (Pem(path=str(both)), Pem(data=both.read_bytes())):
        context = tls_context(Access(server="https://api", authority=authority))
        assert context is not None
        assert len(context.get_ca_certs()) == 2
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_verification_is_skipped_on_an_explicit_wish() -> None:
    context = tls_context(Access(server="https://api", verification=Verification.SKIPPED))
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_a_certificate_and_its_key_are_taken_from_files_and_from_texts(tmp_path: Path) -> None:
    issued = AUTHORITY.issue_cert("somebody.example")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    for pair in (
        (Pem(path=str(certificate)), Pem(path=str(key))),
        (Pem(data=certificate.read_bytes()), Pem(data=key.read_bytes())),
    ):
        assert tls_context(Access(server="https://api", certificate=pair[0], key=pair[1])) is not None


def test_what_cannot_be_used_is_named_without_its_content(tmp_path: Path) -> None:
    """Trap 26: empty files, another certificate's key, no certificates at all."""
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.write_text("")
    issued, other = AUTHORITY.issue_cert("a.example"), AUTHORITY.issue_cert("b.example")
    certificate, key = Pem(data=issued.cert_chain_pems[0].bytes()), Pem(data=other.private_key_pem.bytes())
    cases = (
        (Access(server="https://api", authority=Pem(path=str(empty))), str(empty)),
        (Access(server="https://api", authority=Pem(path=str(missing))), str(missing)),
        (Access(server="https://api", authority=Pem(data=b"\xff")), "certificate-authority-data"),
        (Access(server="https://api", authority=Pem(data=b"none")), "certificate-authority-data"),
        (
            Access(server="https://api", certificate=certificate, key=key),
            "client-certificate-data with client-key-data",
        ),
        (Access(server="https://api", certificate=Pem(path=str(empty)), key=key), f"{empty} with client-key-data"),
    )
    for access, where in cases:
        text = refusal(access)
        assert text.startswith(where), text
        assert "PEM is expected" in text or "in PEM are expected" in text
        assert "PRIVATE" not in text
