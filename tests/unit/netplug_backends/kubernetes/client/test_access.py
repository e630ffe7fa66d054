"""Sources of the access, when they are read again, and the text of each error; no error has a secret."""

import os
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem, TlsVerification
from netplug_core.errors import ConfigurationError
from netplug_core.settings.model import KubernetesAccess
from tests.harness.kubeconfigs import SECRET, kubeconfig, soon, source_of


def test_files_are_read_again_when_they_change_and_not_before(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    path = kubeconfig(tmp_path, {"tokenFile": "token"})
    (tmp_path / "ca.pem").write_text("one")
    source = AccessSource(KubernetesAccess(kubeconfig=str(path)), {})
    first = source.current(deadline=soon())
    assert first.token == "first"  # noqa: S105  # no real token
    assert source.current(deadline=soon()) is first
    token.write_text("the second")
    second = source.current(deadline=soon())
    assert second.token == "the second"  # noqa: S105  # the same
    (tmp_path / "ca.pem").write_text("another one")
    third = source.current(deadline=soon())
    assert third == second
    assert third is not second, "the content of a file is another one under the same name"
    source.invalidate(third)
    fourth = source.current(deadline=soon())
    assert fourth is not third, "whoever was refused wants everything read again"
    source.invalidate(third)
    assert source.current(deadline=soon()) is fourth, "somebody has done so since"


def test_the_access_stays_while_its_files_are_half_written(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"tokenFile": "token", "client-certificate": "c.pem", "client-key": "k.pem"})
    files = {tmp_path / name: name for name in ("token", "ca.pem", "c.pem", "k.pem")} | {path: path.read_text()}
    for file, text in files.items():
        file.write_text(text)
    source = source_of(path)
    source.current(deadline=soon())
    for file, text in files.items():
        before = source.current(deadline=soon())
        file.unlink()
        assert source.current(deadline=soon()) is before
        if file.suffix != ".pem":  # the connection checks those
            file.write_text("")
            assert source.current(deadline=soon()) is before
        file.write_text(text)
        after = source.current(deadline=soon())
        assert after == before
        assert after is not before, "it is looked at again"


def test_after_a_refusal_an_unusable_file_is_an_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": SECRET})
    source = source_of(path)
    refused = source.current(deadline=soon())
    path.write_text(path.read_text()[:50])
    source.invalidate(refused)
    with pytest.raises(ConfigurationError, match=str(path)):
        source.current(deadline=soon())


@pytest.fixture
def pair(tmp_path: Path) -> KubernetesAccess:
    """An API root with existing files."""
    for name in ("c.pem", "k.pem", "ca.pem"):
        (tmp_path / name).touch()
    return KubernetesAccess(
        api_root="https://api",
        token=SECRET,
        certificate=str(tmp_path / "c.pem"),
        key=str(tmp_path / "k.pem"),
        certificate_authority=str(tmp_path / "ca.pem"),
    )


def test_an_api_root_needs_no_kubeconfig(pair: KubernetesAccess) -> None:
    source = AccessSource(pair, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert source.current(deadline=soon()) == ApiAccess(
        server="https://api",
        token=SECRET,
        certificate_authority=Pem(path=pair.certificate_authority),
        certificate=Pem(path=pair.certificate),
        key=Pem(path=pair.key),
    )
    assert source.origin == "https://api"
    assert SECRET not in repr(source)


def test_a_certificate_without_its_key_is_refused(pair: KubernetesAccess) -> None:
    certificate, key = "k8s_client_certificate or K8S_CERT_FILE", "k8s_client_key or K8S_KEY_FILE"
    halves = ((evolve(pair, certificate=""), certificate, key), (evolve(pair, key=""), key, certificate))
    for settings, missing, present in halves:
        with pytest.raises(ConfigurationError) as refused:
            AccessSource(settings, {}).current(deadline=soon())
        assert str(refused.value) == f"{missing}: '' is not accepted; it is needed beside {present}"


@pytest.mark.parametrize("setting", ["certificate", "key", "certificate_authority"])
def test_a_missing_file_of_an_api_root_is_named(pair: KubernetesAccess, setting: str) -> None:
    os.unlink(getattr(pair, setting))
    with pytest.raises(ConfigurationError) as refused:
        AccessSource(pair, {}).current(deadline=soon())
    expected = f"file: {getattr(pair, setting)!r} is not accepted; it cannot be read: No such file or directory"
    assert str(refused.value) == expected


def test_a_kubeconfig_wins_over_an_api_root(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {})
    source = AccessSource(KubernetesAccess(kubeconfig=str(path), api_root="https://other"), {})
    assert source.current(deadline=soon()).server == "https://api:6443"
    assert source.origin == str(path)


def test_without_settings_the_users_kubeconfig_is_used(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    os.rename(kubeconfig(tmp_path, {"token": SECRET}, {"server": "https://api"}), tmp_path / ".kube" / "config")
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert source.current(deadline=soon()).token == SECRET


def test_a_missing_file_of_the_service_account_is_named(tmp_path: Path) -> None:
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert source.origin == "the pod's service account"
    with pytest.raises(
        ConfigurationError, match=r"serviceaccount/token' is not accepted; it cannot be read: No such file"
    ):
        source.current(deadline=soon())


@pytest.mark.parametrize("token", [f"{SECRET}\r\nX-Other: 1", f"{SECRET}ü", f"{SECRET}\0"])
def test_a_token_that_is_no_header_text_is_refused_and_not_shown(token: str) -> None:
    source = AccessSource(KubernetesAccess(api_root="https://api", token=token), {})
    with pytest.raises(ConfigurationError, match="the token of https://api: '…' is not accepted") as caught:
        source.current(deadline=soon())
    assert SECRET not in f"{caught.value!r} {source!r}"


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    source = AccessSource(KubernetesAccess(api_root=f"https://root:{SECRET}@api"), {})
    assert source.origin == "k8s_api_root"
    with pytest.raises(ConfigurationError, match=r"kubernetes API: '…' is not accepted; .* without user and password"):
        source.current(deadline=soon())
    assert SECRET not in repr(source)


def test_only_an_explicit_setting_skips_verification() -> None:
    for skips, expected in ((False, TlsVerification.REQUIRED), (True, TlsVerification.SKIPPED)):
        settings = KubernetesAccess(api_root="https://api", skips_tls_verification=skips)
        assert AccessSource(settings, {}).current(deadline=soon()).verification is expected


def test_without_any_access_the_error_names_the_settings(tmp_path: Path) -> None:
    source = AccessSource(KubernetesAccess(), {"HOME": str(tmp_path)})
    with pytest.raises(
        ConfigurationError,
        match=r"name a kubeconfig \(KUBECONFIG=FILE\) or k8s_api_root; /.*/.kube/config does not exist",
    ):
        source.current(deadline=soon())
