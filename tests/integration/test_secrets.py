"""D14: whatever is wrong with tokens, certificates, users or passwords, no output tells one of them.

Every failing case of both production stores is run in this process, where its errors and everything that it has made
are looked at. All of them by night, and every third by day, are also run as the tool, and as the plugin with its log
at its longest.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
import yaml
from attrs import evolve
from cryptography.hazmat.primitives import serialization

from netplug_backends.kubernetes.names import CrdMode
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.local_stores import IS_DEEP
from tests.harness.planted_secrets import (
    FailingSettings,
    key_lines,
    output_in_process,
    output_of_plugin,
    output_of_tool,
)
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.etcd import EtcdCluster, start_etcd
from tests.harness.servers.etcd_admin import enable_users
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import install_definitions, make_namespace

pytestmark = [pytest.mark.apiserver, pytest.mark.etcd]

_TOKEN = "planted-t0ken.nobody-may-see"  # noqa: S105  # searched for
_PASSWORD = "planted-passw0rd"  # noqa: S105  # likewise


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def kubernetes(**access: str) -> DatastoreSettings:
    return DatastoreSettings(
        type="kubernetes",
        api_group="crd.projectnetplug.org",
        kubernetes=KubernetesAccess(**access),  # type: ignore[arg-type] # texts all
    )


def poor_token(server: ApiServer) -> str:
    """A token that the server knows, of an account without any right."""
    namespace = make_namespace(server, "poor")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    server.create(path, {"metadata": {"name": "poor"}})
    made = server.create(f"{path}/poor/token", {"spec": {}})["status"]
    assert isinstance(made, dict)
    return str(made["token"])


class Kubeconfigs:
    """Kubeconfigs that lead to a server with one thing or another wrong."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._pattern = json.loads(Path(server.write_kubeconfig(name="secrets")).read_text())
        self._folder = folder
        self._count = 0

    def text(self, user: dict[str, object], **cluster: object) -> str:
        document = json.loads(json.dumps(self._pattern))
        document["users"][0]["user"] = user
        document["clusters"][0]["cluster"] |= cluster
        return yaml.safe_dump(document)

    def file(self, user: dict[str, object], **cluster: object) -> str:
        return self.written(self.text(user, **cluster))

    def written(self, text: str) -> str:
        self._count += 1
        path = self._folder / f"kubeconfig-{self._count}"
        path.write_text(text)
        return str(path)


def of_tokens(server: ApiServer, folder: Path) -> Iterator[FailingSettings]:
    files = Kubeconfigs(server, folder)
    known = poor_token(server)
    (folder / "lines").write_text(f"{_TOKEN}\nX-Other: {_PASSWORD}")
    (folder / "binary").write_bytes(_TOKEN.encode() + b"\xff\xfe")
    (folder / "login").write_text(f"#!/bin/sh\necho '{_TOKEN}'\necho not {_PASSWORD} >&2\nexit 3\n")
    (folder / "login").chmod(0o700)
    half: dict[str, object] = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    half |= {"status": {"clientKeyData": _TOKEN}}
    (folder / "half").write_text(f"#!/bin/sh\necho '{json.dumps(half)}'\n")
    (folder / "half").chmod(0o700)
    provider = {"name": "gcp", "config": {"cmd-path": str(folder / "login"), "cmd-args": _PASSWORD}}
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}
    root, ca = server.url, server.ca_file
    stranger = folder / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    url_with_password = server.url.replace("://", f"://root:{_PASSWORD}@")
    texts = {
        "unknown token in a kubeconfig": kubernetes(kubeconfig=files.file({"token": _TOKEN})),
        "unknown token beside an API root": kubernetes(api_root=root, certificate_authority=ca, token=_TOKEN),
        "token in two lines": kubernetes(kubeconfig=files.file({"tokenFile": str(folder / "lines")})),
        "token that is no text": kubernetes(kubeconfig=files.file({"tokenFile": str(folder / "binary")})),
        "token that is a list": kubernetes(kubeconfig=files.file({"token": [_TOKEN]})),
        "token with a letter that no header holds": kubernetes(api_root=root, token=f"{_TOKEN}ü"),
        "token with a line break": kubernetes(api_root=root, token=f"{_TOKEN}\r\nX: {_PASSWORD}"),
        "server that nobody vouches for": kubernetes(api_root=root, certificate_authority=str(stranger), token=_TOKEN),
        "server by another name": kubernetes(kubeconfig=files.file({"token": _TOKEN}, **{"tls-server-name": "other"})),
        "server that is away": kubernetes(api_root="https://127.0.0.1:1", token=_TOKEN),
        "server that is asked in plain": kubernetes(api_root=root.replace("https", "http"), token=_TOKEN),
        "server with a password": kubernetes(api_root=url_with_password, token=_TOKEN),
        "cluster with a password": kubernetes(kubeconfig=files.file({"token": _TOKEN}, server=url_with_password)),
        "server that is none": kubernetes(api_root=f"root:{_PASSWORD}@nowhere", token=_TOKEN),
        "user with a password": kubernetes(kubeconfig=files.file({"username": "u", "password": _PASSWORD})),
        "file that is no YAML": kubernetes(kubeconfig=files.written(f"users: [{{user: {{token: {_TOKEN}")),
        "text that is no YAML": kubernetes(kubeconfig_inline=f"token: {_TOKEN}\n  password: {_PASSWORD}: x"),
        "text with an unknown token": kubernetes(kubeconfig_inline=files.text({"token": _TOKEN})),
        "program that fails": kubernetes(kubeconfig=files.file({"exec": program})),
        "program that gives half a pair": kubernetes(kubeconfig=files.file({"exec": {**program, "command": "./half"}})),
        "provider whose command fails": kubernetes(kubeconfig=files.file({"auth-provider": provider})),
    }
    for name, settings in texts.items():
        yield FailingSettings(name=name, settings=settings, secrets=(_TOKEN, _PASSWORD))
    settings = kubernetes(kubeconfig=files.file({"token": known}))
    yield FailingSettings(name="token without a right", settings=settings, secrets=(known,))


def of_client_certificates(server: ApiServer, certificates: Certificates, folder: Path) -> Iterator[FailingSettings]:
    files = Kubeconfigs(server, folder)
    right = server.authority.issue_cert("somebody", organization_name="system:masters")
    good = folder / "good.crt"
    good.write_bytes(right.cert_chain_pems[0].bytes())
    locked = folder / "locked.key"
    locked.write_bytes(encrypted(certificates.key))
    key = certificates.key.read_text()
    data = base64.b64encode(key.encode()).decode()
    pairs = {
        "of another root": (certificates.other_certificate, certificates.other_key),
        "expired": (certificates.expired_certificate, certificates.expired_key),
        "with another's key": (good, certificates.key),
        "in place of the key": (certificates.key, certificates.key),
        "with a locked key": (certificates.certificate, locked),
        "that is missing": (folder / "nowhere", certificates.key),
    }
    for name, (certificate, secret) in pairs.items():
        settings = kubernetes(
            api_root=server.url, certificate_authority=server.ca_file, certificate=str(certificate), key=str(secret)
        )
        yield FailingSettings(name=f"certificate {name}", settings=settings, secrets=key_lines(secret.read_text()))
    users: dict[str, dict[str, object]] = {
        "key without a certificate": {"client-key-data": data},
        "key that is no base64": {"client-certificate": str(good), "client-key-data": f"{data}!"},
        "key of another": {"client-certificate": str(good), "client-key-data": data},
        "key in place of its base64": {"client-certificate": str(good), "client-key-data": key},
    }
    for name, user in users.items():
        secrets = (*key_lines(key), data)
        yield FailingSettings(name=name, settings=kubernetes(kubeconfig=files.file(user)), secrets=secrets)
        yield FailingSettings(
            name=f"{name}, in a text", settings=kubernetes(kubeconfig_inline=files.text(user)), secrets=secrets
        )


# --- etcd ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_users() -> Iterator[EtcdCluster]:
    """A cluster with users."""
    with start_etcd() as opened:
        enable_users(opened, _PASSWORD)
        yield opened


def of_users(etcd: EtcdCluster) -> Iterator[FailingSettings]:
    wrong = f"wrong-{_PASSWORD}"
    plain = DatastoreSettings(etcd_endpoints=etcd.endpoints)
    url = etcd.endpoints[0].replace("://", f"://root:{_PASSWORD}@")
    texts = {
        "wrong password": evolve(plain, etcd_username="netplug", etcd_password=wrong),
        "unknown user": evolve(plain, etcd_username="nobody", etcd_password=_PASSWORD),
        "user who may not write": evolve(plain, etcd_username="reader", etcd_password=_PASSWORD),
        "password without a user": evolve(plain, etcd_password=_PASSWORD),
        "password in an endpoint": evolve(plain, etcd_endpoints=(url,)),
        "user of a cluster that is away": evolve(
            plain, etcd_endpoints=("http://127.0.0.1:1",), etcd_username="netplug", etcd_password=_PASSWORD
        ),
    }
    for name, settings in texts.items():
        yield FailingSettings(name=name, settings=settings, secrets=(wrong, _PASSWORD))


def of_certificates(etcd: EtcdCluster, certificates: Certificates, folder: Path) -> Iterator[FailingSettings]:
    right = DatastoreSettings(
        etcd_endpoints=etcd.endpoints,
        etcd_key_file=str(certificates.key),
        etcd_cert_file=str(certificates.certificate),
        etcd_ca_cert_file=str(certificates.root),
    )
    key, certificate = certificates.key.read_text(), certificates.certificate.read_text()
    locked = folder / "locked.pem"
    locked.write_bytes(encrypted(certificates.key))
    bare = evolve(right, etcd_key_file="", etcd_cert_file="")
    texts = {
        "another root": evolve(right, etcd_ca_cert_file=str(certificates.other_root)),
        "no root": evolve(right, etcd_ca_cert_file=""),
        "key for a root": evolve(right, etcd_ca_cert_file=str(certificates.key)),
        "certificate of another root": evolve(
            right, etcd_key_file=str(certificates.other_key), etcd_cert_file=str(certificates.other_certificate)
        ),
        "expired certificate": evolve(
            right, etcd_key_file=str(certificates.expired_key), etcd_cert_file=str(certificates.expired_certificate)
        ),
        "key of another": evolve(right, etcd_key_file=str(certificates.other_key)),
        "key without a certificate": evolve(right, etcd_cert_file=""),
        "key in place of the certificate": evolve(right, etcd_cert_file=str(certificates.key)),
        "locked key": evolve(right, etcd_key_file=str(locked)),
        "inline key without a certificate": evolve(bare, etcd_key=key),
        "inline key for a certificate": evolve(bare, etcd_key=key, etcd_cert=key),
        "inline key for a root": evolve(bare, etcd_key=key, etcd_cert=certificate, etcd_ca_cert=key),
        "inline and files": evolve(right, etcd_key=key, etcd_cert=certificate),
        "inline key cut short": evolve(
            bare, etcd_key=key[: len(key) // 2], etcd_cert=certificate, etcd_ca_cert_file=""
        ),
        "inline key of another": evolve(bare, etcd_key=certificates.other_key.read_text(), etcd_cert=certificate),
    }
    lines = (path.read_text() for path in (certificates.key, certificates.other_key, certificates.expired_key, locked))
    secrets = tuple(line for text in lines for line in key_lines(text))
    for name, settings in texts.items():
        yield FailingSettings(name=name, settings=settings, secrets=secrets)


def encrypted(path: Path) -> bytes:
    """The key of a file behind a password."""
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    lock = serialization.BestAvailableEncryption(_PASSWORD.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


PROGRAMS_AT_ONCE = 4

# --- all of them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cases(
    api_server: ApiServer,
    etcd_with_client_certificates: EtcdCluster,
    with_users: EtcdCluster,
    certificates: Certificates,
    tmp_path: Path,
) -> tuple[FailingSettings, ...]:
    """Every failing case of both stores."""
    install_definitions(api_server, CrdMode.V1)
    return (
        *of_tokens(api_server, tmp_path),
        *of_client_certificates(api_server, certificates, tmp_path),
        *of_users(with_users),
        *of_certificates(etcd_with_client_certificates, certificates, tmp_path),
    )


def output_of_programs(case: FailingSettings, folder: Path) -> tuple[str, str]:
    """All that the tool and the plugin print."""
    folder.mkdir()
    return output_of_tool(case), output_of_plugin(case, folder)


# grpc's own thread may find its channel closed, and says so where nobody asked it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_d14_no_failing_case_of_either_store_shows_a_secret(
    cases: tuple[FailingSettings, ...],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Check 36, with every other secret; the plugin's log is at DEBUG, on standard error and in a file."""
    caplog.set_level(logging.DEBUG)
    run_as_programs = cases if IS_DEEP else cases[::3]
    folders = [tmp_path / f"case-{number}" for number in range(len(run_as_programs))]
    for case in cases:
        errors, told = output_in_process(case)
        assert errors, f"{case.name}: it works"
        printed = capfd.readouterr()
        told += caplog.text + printed.out + printed.err
        caplog.clear()
        assert not case.find_leaked_secrets(told), f"{case.name}: {told}"
    with ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:  # they wait for servers that are away
        outputs = pool.map(output_of_programs, run_as_programs, folders)
        for case, texts in zip(run_as_programs, outputs, strict=True):
            for text in texts:
                assert text, case.name
                assert not case.find_leaked_secrets(text), f"{case.name}: {text}"
                assert "Traceback" not in text, case.name
    assert len(cases) > 40
