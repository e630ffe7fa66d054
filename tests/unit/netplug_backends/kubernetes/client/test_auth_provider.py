"""Identity providers, through the ``kubernetes`` package: by the deadline, and without files that stay."""

import base64
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import certifi
import pytest

from netplug_backends.kubernetes.client.credentials import Pem
from netplug_core.errors import Unavailable
from tests.harness.kubeconfigs import (
    SECRET,
    access,
    error_of,
    kubeconfig,
    refusal,
    soon,
)
from tests.harness.waiting import MARGIN_S


def identity(expires_s: float) -> str:
    """An unsigned token of an identity provider."""
    parts = ({"alg": "none"}, {"exp": int(time.time() + expires_s)}, {"sub": SECRET})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def provider(**config: object) -> dict[str, object]:
    return {"auth-provider": {"name": "oidc", "config": {"idp-issuer-url": "https://127.0.0.1:1", **config}}}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for the package's temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_provider_gives_a_token_without_a_file(tmp_path: Path, temporary: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    token = identity(3600)
    user = provider(**{"id-token": token, "idp-certificate-authority-data": data})
    user |= {"client-certificate-data": data, "client-key-data": data}
    cluster: dict[str, object] = {"server": "https://api", "certificate-authority-data": data}
    found = access(kubeconfig(tmp_path, user, cluster))
    assert (found.token, found.server) == (token, "https://api")
    assert (found.certificate_authority, found.certificate, found.key) == (Pem(data=b"PEM"),) * 3
    assert list(temporary.iterdir()) == []


def test_a_token_wins_over_a_provider(tmp_path: Path) -> None:
    assert access(kubeconfig(tmp_path, provider() | {"token": SECRET})).token == SECRET


@pytest.mark.parametrize(
    "user",
    [
        {"auth-provider": {"name": "azure"}},
        {"auth-provider": {"name": "oidc"}},
        provider(**{"id-token": SECRET}),
    ],
)
def test_a_provider_that_gives_nothing_is_refused(tmp_path: Path, user: dict[str, object]) -> None:
    path = kubeconfig(tmp_path, user)
    expected = f"{path} users[u].auth-provider: '…' is not accepted; the provider gives no credentials"
    assert refusal(path) == expected


def test_an_invalid_certificate_authority_is_refused(tmp_path: Path) -> None:
    text = refusal(kubeconfig(tmp_path, provider(**{"idp-certificate-authority-data": f"{SECRET}!"})))
    assert text.endswith("auth-provider.config.idp-certificate-authority-data: '…' is not accepted; base64 is expected")


def test_the_certificate_of_a_provider_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an authority in the kubeconfig, the package would not verify it and still send its secrets."""
    (tmp_path / "idp.pem").write_text("certificates")
    seen: list[str] = []

    def load(document: dict[str, Any], **_: object) -> None:
        path = document["users"][0]["user"]["auth-provider"]["config"]["idp-certificate-authority"]
        seen.append(Path(path).read_text())

    monkeypatch.setattr("netplug_backends.kubernetes.client.exec_plugin.load_kube_config_from_dict", load)
    refusal(kubeconfig(tmp_path, provider()))
    refusal(kubeconfig(tmp_path, provider(**{"idp-certificate-authority": "idp.pem"})))
    assert seen == [Path(certifi.where()).read_text(), "certificates"]


def test_a_configuration_error_of_the_package_is_shown(tmp_path: Path) -> None:
    text = refusal(kubeconfig(tmp_path, provider()))
    assert (
        "users[u].auth-provider: '…' is not accepted; its credentials cannot be had: Invalid kube-config file" in text
    )


def test_the_output_of_a_providers_failed_command_is_not_shown(tmp_path: Path) -> None:
    command = tmp_path / "login"
    command.write_text(f"#!/bin/sh\necho '{SECRET}' >&2\nexit 3\n")
    command.chmod(0o700)
    config = {"cmd-path": str(command), "cmd-args": SECRET}
    text = refusal(kubeconfig(tmp_path, {"auth-provider": {"name": "gcp", "config": config}}))
    assert text.endswith("its credentials cannot be had: cmd-path: process returned 3")


def test_d14_a_provider_that_hangs_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    command = tmp_path / "login"
    command.write_text("#!/bin/sh\nexec sleep 60\n")
    command.chmod(0o700)
    path = kubeconfig(tmp_path, {"auth-provider": {"name": "gcp", "config": {"cmd-path": str(command)}}})
    access_began = time.monotonic()
    error = error_of(path, deadline=soon(0.5))
    assert time.monotonic() - access_began < 0.5 + MARGIN_S
    assert isinstance(error, Unavailable)
    said, _, seconds = str(error).rpartition(" within ")
    assert said == f"{path} users[u].auth-provider: the provider gave no credentials"
    assert seconds in {f"0.{tenths} s" for tenths in range(6)}  # what is left of the deadline when the provider starts


def test_a_provider_that_is_down_is_tried_again_later(tmp_path: Path, temporary: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    config = {"id-token": identity(-3600), "idp-certificate-authority-data": data}
    error = error_of(kubeconfig(tmp_path, provider(**config)), deadline=soon(20))
    assert isinstance(error, Unavailable)
    assert "users[u].auth-provider: the provider gave no credentials: " in str(error)
    assert list(temporary.iterdir()) == []


def test_without_the_package_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "netplug_backends.kubernetes.client.exec_plugin", raising=False)
    for module in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, module)
    "api".encode("idna")  # loads the codec: Python would remember for ever that it is not found
    monkeypatch.setattr(sys, "path", [])
    path = kubeconfig(tmp_path, provider())
    assert refusal(path) == (
        f"{path} users[u].auth-provider: '…' is not accepted; "
        "the package kubernetes is not installed; netplug[kubernetes] brings it"
    )
