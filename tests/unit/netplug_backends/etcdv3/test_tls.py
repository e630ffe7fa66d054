"""Keys and certificates: S-15, each error at opening; and changed files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netplug_backends.etcdv3.tls import Credentials, TlsMaterial
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import DatastoreSettings
from tests.harness.servers.certificates import Certificates, issue_certificates

PASSWORD = "not-to-be-seen"  # noqa: S105  # planted, to be searched for


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return issue_certificates(tmp_path)


def settings(**given: object) -> DatastoreSettings:
    texts = {name: str(value) for name, value in given.items()}
    return DatastoreSettings(**texts)  # type: ignore[arg-type]  # each of them is a text


def refused(**given: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Credentials(settings(**given))
    return str(caught.value)


def test_without_settings_there_is_nothing() -> None:
    assert Credentials(DatastoreSettings()).material() == TlsMaterial()


def test_a_pair_and_roots_are_read_from_files(certificates: Certificates) -> None:
    given = settings(
        etcd_key_file=certificates.key, etcd_cert_file=certificates.certificate, etcd_ca_cert_file=certificates.root
    )
    assert Credentials(given).material() == TlsMaterial(
        key=certificates.key.read_bytes(),
        certificate=certificates.certificate.read_bytes(),
        roots=certificates.root.read_bytes(),
    )


def test_roots_alone_are_enough(certificates: Certificates) -> None:
    assert Credentials(settings(etcd_ca_cert_file=certificates.root)).material().roots == certificates.root.read_bytes()


def test_trap_27_several_roots_with_comments_between_them(certificates: Certificates) -> None:
    both = "# Käse\n".encode() + certificates.other_root.read_bytes() + b"\nours:\n" + certificates.root.read_bytes()
    certificates.root.write_bytes(both)
    assert Credentials(settings(etcd_ca_cert_file=certificates.root)).material().roots == both


def test_s15_key_certificate_and_roots_may_be_inline(certificates: Certificates) -> None:
    inline = settings(
        etcd_key=certificates.key.read_text(),
        etcd_cert=certificates.certificate.read_text(),
        etcd_ca_cert=certificates.root.read_text(),
    )
    assert Credentials(inline).material() == TlsMaterial(
        key=certificates.key.read_bytes(),
        certificate=certificates.certificate.read_bytes(),
        roots=certificates.root.read_bytes(),
    )


@pytest.mark.parametrize("name", ["etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file"])
def test_s15_a_missing_empty_or_foreign_file_is_refused(name: str, certificates: Certificates, tmp_path: Path) -> None:
    files = {
        "etcd_key_file": certificates.key,
        "etcd_cert_file": certificates.certificate,
        "etcd_ca_cert_file": certificates.root,
    }
    path = tmp_path / "file"
    given = {**files, name: path}
    assert refused(**given) == f"{name}: '{path}' is not accepted; it cannot be read: No such file or directory"
    path.write_text(" \n")
    assert refused(**given) == f"{name}: '{path}' is not accepted; it is empty"
    path.write_text("no certificate")
    assert refused(**given) == f"{name}: '{path}' is not accepted; it holds no PEM text"


def test_s15_trap_26_half_of_a_pair_is_refused(certificates: Certificates) -> None:
    accepted = "is not accepted; a client has a key and a certificate: give both files, or neither"
    assert refused(etcd_key_file=certificates.key) == f"etcd_key_file: '{certificates.key}' {accepted}"
    assert (
        refused(etcd_cert_file=certificates.certificate) == f"etcd_cert_file: '{certificates.certificate}' {accepted}"
    )
    accepted = "is not accepted; a client has a key and a certificate: give both, or neither"
    assert refused(etcd_key=certificates.key.read_text()) == f"etcd: 'inline key' {accepted}"
    assert refused(etcd_cert=certificates.certificate.read_text()) == f"etcd: 'inline certificate' {accepted}"


def test_s15_inline_texts_together_with_files_are_refused(certificates: Certificates) -> None:
    text = "etcd: '…' is not accepted; Cannot mix inline certificate-key and certificate / key files"
    assert (
        refused(etcd_key="x", etcd_cert="y", etcd_key_file=certificates.key, etcd_cert_file=certificates.certificate)
        == text
    )
    assert refused(etcd_key="x", etcd_cert_file=certificates.certificate) == text
    assert refused(etcd_ca_cert="x", etcd_ca_cert_file=certificates.root) == text


def test_s15_texts_that_are_no_certificates_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    key, certificate = certificates.key.read_text(), certificates.certificate.read_text()
    pair = "is not accepted; key and certificate must be PEM texts without a passphrase, and belong together"
    assert refused(etcd_key=key, etcd_cert="x") == f"etcd: 'inline key and certificate' {pair}"
    assert refused(etcd_key=certificates.other_key.read_text(), etcd_cert=certificate) == (
        f"etcd: 'inline key and certificate' {pair}"
    )
    assert refused(etcd_key_file=certificates.other_key, etcd_cert_file=certificates.certificate) == (
        f"etcd_cert_file: '{certificates.certificate}' {pair}"
    )
    assert refused(etcd_ca_cert="x") == "etcd: 'inline CA certificate' is not accepted; it must hold PEM certificates"
    broken = tmp_path / "broken"
    broken.write_text("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n")
    assert refused(etcd_ca_cert_file=broken) == (
        f"etcd_ca_cert_file: '{broken}' is not accepted; it must hold PEM certificates"
    )


def test_s15_a_swapped_key_and_certificate_are_refused(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL reads them from one text in any order; with gRPC every call would fail."""
    assert refused(etcd_key_file=certificates.certificate, etcd_cert_file=certificates.key) == (
        f"etcd_key_file: '{certificates.certificate}' is not accepted; it holds no private key"
    )
    assert refused(etcd_key_file=certificates.key, etcd_cert_file=certificates.other_key) == (
        f"etcd_cert_file: '{certificates.other_key}' is not accepted; it holds no certificate"
    )
    assert refused(etcd_ca_cert_file=certificates.key) == (
        f"etcd_ca_cert_file: '{certificates.key}' is not accepted; it holds no certificate"
    )
    accepted = "is not accepted; key and certificate must be PEM texts without a passphrase, and belong together"
    assert refused(etcd_key=certificates.certificate.read_text(), etcd_cert=certificates.key.read_text()) == (
        f"etcd: 'inline key and certificate' {accepted}"
    )


def test_one_file_may_have_key_and_certificate(certificates: Certificates, tmp_path: Path) -> None:
    """Each is read from its own setting: another key beside the certificate is ignored."""
    both = tmp_path / "both"
    both.write_bytes(certificates.key.read_bytes() + certificates.certificate.read_bytes())
    assert Credentials(settings(etcd_key_file=both, etcd_cert_file=both)).material().key == both.read_bytes()
    both.write_bytes(certificates.other_key.read_bytes() + certificates.certificate.read_bytes())
    assert (
        Credentials(settings(etcd_key_file=certificates.key, etcd_cert_file=both)).material().key
        == certificates.key.read_bytes()
    )


@pytest.mark.parametrize("name", ["etcd_key_file", "etcd_cert_file", "etcd_ca_cert_file"])
def test_s15_a_path_that_no_file_can_have_is_refused(name: str, certificates: Certificates) -> None:
    files = {
        "etcd_key_file": certificates.key,
        "etcd_cert_file": certificates.certificate,
        "etcd_ca_cert_file": certificates.root,
    }
    assert refused(**{**files, name: "a\0b"}) == (
        f"{name}: 'a\\x00b' is not accepted; it cannot be read: embedded null byte"
    )


def test_files_are_read_again_when_they_change(certificates: Certificates) -> None:
    credentials = Credentials(settings(etcd_ca_cert_file=certificates.root))
    before = credentials.material()
    assert credentials.material() is before
    replace(certificates.root, certificates.other_root.read_bytes())
    after = credentials.material()
    assert after.roots == certificates.other_root.read_bytes()
    assert credentials.material() is after


def test_during_half_a_rotation_the_earlier_contents_stay_in_use(certificates: Certificates) -> None:
    """The key is new and the certificate still old; at the next call both may be new."""
    credentials = Credentials(settings(etcd_key_file=certificates.key, etcd_cert_file=certificates.certificate))
    before, key = credentials.material(), certificates.key.read_bytes()
    replace(certificates.key, certificates.other_key.read_bytes())
    assert credentials.material() is before
    certificates.key.unlink()
    assert credentials.material() is before
    replace(certificates.key, key)
    assert credentials.material() == before


def test_s15_an_inline_text_that_is_not_utf_8_is_refused(certificates: Certificates) -> None:
    """JSON can contain one: half of a surrogate pair."""
    key, certificate = certificates.key.read_text(), certificates.certificate.read_text()
    pair = "is not accepted; key and certificate must be PEM texts without a passphrase, and belong together"
    assert refused(etcd_key="\ud800", etcd_cert=certificate) == f"etcd: 'inline key and certificate' {pair}"
    assert refused(etcd_key=key, etcd_cert=f"\ud800{certificate[5:]}") == f"etcd: 'inline key and certificate' {pair}"
    assert refused(etcd_ca_cert="\ud800") == (
        "etcd: 'inline CA certificate' is not accepted; it must hold PEM certificates"
    )


@pytest.mark.parametrize("name,other", [("etcd_password", "etcd_username"), ("etcd_username", "etcd_password")])
def test_d14_a_user_that_is_not_utf_8_is_refused_and_not_shown(name: str, other: str) -> None:
    """So Python reads an environment in another encoding."""
    given = settings(**{name: os.fsdecode(b"p\xe4ss"), other: "u"})
    with pytest.raises(ConfigurationError) as caught:
        Credentials(given)
    assert str(caught.value) == f"{name}: '…' is not accepted; it must be text in UTF-8"
    assert "ss" not in f"{caught.value.__cause__!r}"


def test_a_user_counts_only_with_a_password() -> None:
    both = Credentials(settings(etcd_username="u", etcd_password=PASSWORD))
    assert (both.user, both.password) == ("u", PASSWORD)
    assert Credentials(settings(etcd_username="u")).user == ""
    assert Credentials(settings(etcd_password=PASSWORD)).password == ""


def test_d14_nothing_secret_is_shown(certificates: Certificates) -> None:
    given = settings(
        etcd_key=certificates.key.read_text(),
        etcd_cert=certificates.certificate.read_text(),
        etcd_username="u",
        etcd_password=PASSWORD,
    )
    credentials = Credentials(given)
    shown = f"{given!r} {credentials!r} {credentials.material()!r}"
    for secret in (PASSWORD, certificates.key.read_text().splitlines()[1], "PRIVATE"):
        assert secret not in shown


def replace(path: Path, data: bytes) -> None:
    """Replace a file by renaming a new one over it."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)
