"""A Kubernetes API server of the tests' own: started on loopback beside an etcd, stopped again.

It has no controllers and no kubelet: namespaces, nodes and pods are what a test creates.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import trustme
from attrs import define, field
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.harness.servers.binaries import find_apiserver_binary, find_etcd_binary
from tests.harness.servers.ports import reserve_port

__all__ = ["ADMIN_TOKEN", "SERVICE_ADDRESS", "ApiServer", "RequestRefused", "start_api_server"]

ADMIN_TOKEN = "the-token-of-the-administrator"  # noqa: S105  # of a server that lives for one test run
SERVICE_ADDRESS = "10.96.0.1"
"""The address of the server's Service, for which its certificate is valid too."""

# Emergency stops, far above what a busy machine needs.
_READY_S = 300.0
_STOP_S = 120.0
_CREATED, _FORBIDDEN = 201, 403
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "users": ["system:apiserver"]}, {"level": "Metadata"}],
}


class RequestRefused(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"HTTP {code}: {body}")
        self.code = code
        """The HTTP status."""


@define
class ApiServer:
    """A running server, with an administrator's client that shares no code with what is tested."""

    program: str
    etcd: str
    folder: Path
    etcd_port: int
    port: int
    authority: trustme.CA
    disabled_admission: str
    _processes: list[subprocess.Popen[bytes]] = field(factory=list)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> str:
        """The certificate of the authority that signed the server's."""
        return str(self.folder / "ca.pem")

    def write_kubeconfig(self, token: str = ADMIN_TOKEN, *, name: str = "kubeconfig", port: int = 0) -> str:
        """A file that leads here with a token; through ``port`` of this machine, if there is one."""
        path, new = self.folder / name, self.folder / f"{name}.{threading.get_ident()}"
        user = {"token": token}
        cluster = {
            "server": f"https://127.0.0.1:{port or self.port}",
            "certificate-authority": self.ca_file,
        }
        new.write_text(
            json.dumps(
                {
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "test", "user": user}],
                }
            )
        )
        new.replace(path)  # another thread may be reading it
        return str(path)

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", user: str = ""
    ) -> object:
        """The administrator's request, or one that the administrator makes as another user; the answer's JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
        if user:
            headers["Impersonate-User"] = user
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  # https
        context = ssl.create_default_context(cafile=self.ca_file)
        try:
            with urllib.request.urlopen(request, context=context, timeout=_STOP_S) as reply:  # noqa: S310  # https
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:  # it is an open response: its connection stays open until it is closed
                raise RequestRefused(error.code, error.read().decode(errors="replace")) from None

    def get(self, path: str) -> Mapping[str, object]:
        """An object."""
        found = self.request("GET", path)
        assert isinstance(found, dict)
        return found

    def create(self, path: str, body: object) -> Mapping[str, object]:
        """A new object."""
        created = self.request("POST", path, body)
        assert isinstance(created, dict)
        return created

    def delete_collection(self, path: str) -> None:
        """Delete every object of a collection."""
        self.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def audited_requests(self, agent: str) -> list[tuple[str, str]]:
        """Every request so far whose user agent begins so: the verb and the resource, from the server's audit log."""
        found = []
        for event in self._audited_events(agent):
            target = event.get("objectRef") or {}
            resource = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
            found.append((str(event["verb"]), resource or str(event["requestURI"])))
        return found

    def audited_targets(self, agent: str) -> list[str]:
        """The path and query of each of these requests."""
        return [str(event["requestURI"]) for event in self._audited_events(agent)]

    def audited_lists(self, agent: str) -> list[str]:
        """The path and query of each list among them."""
        return [str(event["requestURI"]) for event in self._audited_events(agent) if event["verb"] == "list"]

    def audited_rights(self, user: str) -> set[tuple[str, str, str]]:
        """The rights that an account has used so far: API group, resource and verb of what was not refused.

        An apply that made an object has used the right to create it, too.
        """
        used = set()
        for event in self._events():
            target, code = event.get("objectRef") or {}, event.get("responseStatus", {}).get("code", 0)
            if event["user"].get("username") != user or "resource" not in target or code == _FORBIDDEN:
                continue
            resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            verbs = [event["verb"], *(["create"] if code == _CREATED else [])]
            used |= {(str(target.get("apiGroup", "")), resource, str(verb)) for verb in verbs}
        return used

    def _audited_events(self, agent: str) -> Iterator[dict[str, Any]]:
        return (event for event in self._events() if str(event.get("userAgent", "")).startswith(agent))

    def _events(self) -> Iterator[dict[str, Any]]:
        return (json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines())

    def start(self) -> None:
        """Start what is not running, and wait until it answers."""
        if not self._processes:
            self._processes.append(self._etcd())
        self._processes.append(self._apiserver())
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                self.request("GET", "/readyz?verbose")
            except ValueError:
                return  # the answer is text and no JSON, and comes with status 200 only when the server is ready
            except (OSError, RequestRefused) as error:
                if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                    log = (self.folder / "apiserver.log").read_text()[-2000:]
                    raise AssertionError(f"the API server does not come up: {error}\n{log}") from error
            time.sleep(0.1)

    def kill(self) -> None:
        """End the API server as a power cut does; its etcd stays."""
        process = self._processes.pop()
        process.kill()
        process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the API server."""
        self._processes[-1].send_signal(number)

    def stop(self) -> None:
        """End everything."""
        while self._processes:
            process = self._processes.pop()
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _etcd(self) -> subprocess.Popen[bytes]:
        url, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{reserve_port()}"
        arguments = [
            *("--data-dir", str(self.folder / "etcd"), "--log-outputs", "stderr", "--unsafe-no-fsync"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        ]
        if "unsafe-no-fsync" not in _output(self.etcd, "--help"):
            arguments.remove("--unsafe-no-fsync")
        return self._spawn("etcd.log", self.etcd, *arguments)

    def _apiserver(self) -> subprocess.Popen[bytes]:
        folder = self.folder
        return self._spawn(
            "apiserver.log",
            self.program,
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder / 'server.pem'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--client-ca-file={self.ca_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--disable-admission-plugins={self.disabled_admission}",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={folder / 'audit.json'}",
            f"--audit-log-path={folder / 'audit.log'}",
            "--audit-log-mode=blocking",
        )

    def _spawn(self, log: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.folder)


@contextmanager
def start_api_server(folder: Path, *, disabled_admission: str = "ServiceAccount") -> Iterator[ApiServer]:
    """A fresh server whose files are in that folder. Without controllers no pod could name an account."""
    authority = trustme.CA()
    server = ApiServer(
        find_apiserver_binary(),
        find_etcd_binary(),
        folder,
        reserve_port(),
        reserve_port(),
        authority,
        disabled_admission,
    )
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1", "localhost", SERVICE_ADDRESS)
    issued.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    issued.private_key_pem.write_to_path(str(folder / "server.key"))
    (folder / "audit.json").write_text(json.dumps(_AUDIT))
    (folder / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,1,"system:masters"\n')
    (folder / "accounts.key").write_bytes(_signing_key())
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.start()
        yield server


def _signing_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
