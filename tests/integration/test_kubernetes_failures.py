"""Credentials that change, servers that go away, lists that are long and histories that are short."""

from __future__ import annotations

import base64
import json
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest
import trustme
from attrs import define, evolve, field
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from netplug_backends.host.machine import SystemClock
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import ApiClient, RateLimiter
from netplug_backends.kubernetes.datastore import KubernetesDatastore
from netplug_backends.kubernetes.names import CrdMode
from netplug_core.addressing import Prefix
from netplug_core.errors import ConfigurationError, NetplugError, Unauthorized, Unavailable
from netplug_core.ipam.model import HANDLE, Handle, handle_key
from netplug_core.records import (
    CommitError,
    Create,
    Delete,
    Get,
    Key,
    List,
    OutcomeUnknown,
    Record,
    Revision,
    Update,
    WatchExpired,
)
from netplug_core.settings.model import KubernetesAccess
from tests.harness.local_stores import IS_DEEP
from tests.harness.servers.kube_apiserver import ApiServer
from tests.harness.servers.kube_objects import (
    delete_custom_objects,
    install_definitions,
    install_role,
    make_namespace,
    open_store,
)
from tests.harness.waiting import EMERGENCY_STOP_S, deadline_in

pytestmark = pytest.mark.apiserver

_BLOCK = Prefix.parse("10.65.0.0/26")
_NUMBERS = count()
_KILLS = 2 if IS_DEEP else 1
_LEEWAY_S = 60  # for which the server takes a token that is over
_SECRET = "s3cret-token"  # noqa: S105  # planted, and searched for


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    """A server with definitions."""
    install_definitions(api_server, CrdMode.V1)
    delete_custom_objects(api_server, CrdMode.V1)
    return api_server


def opened(access: KubernetesAccess) -> KubernetesDatastore:
    clock = SystemClock()
    client = ApiClient(
        AccessSource(access, {}), clock=clock, rate_limiter=RateLimiter(clock=clock, qps=1000, burst=1000)
    )
    return KubernetesDatastore(client, mode=CrdMode.V1)


def account_token(server: ApiServer, name: str) -> str:
    """The token of a fresh account that may do what the administrator may."""
    namespace = make_namespace(server, "accounts")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    server.create(path, {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": f"test-{name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    server.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    made = server.create(f"{path}/{name}/token", {"spec": {}})["status"]
    assert isinstance(made, dict)
    return str(made["token"])


def test_a_token_that_stops_being_good_is_read_again_and_once(server: ApiServer, tmp_path: Path) -> None:
    first, second = (account_token(server, f"a{next(_NUMBERS)}") for _ in range(2))
    token_file = tmp_path / "token"
    token_file.write_text(first)
    kubeconfig = tmp_path / "kubeconfig"
    document = json.loads(Path(server.write_kubeconfig(name="pattern")).read_text())
    document["users"] = [{"name": "test", "user": {"tokenFile": "token"}}]
    kubeconfig.write_text(json.dumps(document))
    store = opened(KubernetesAccess(kubeconfig=str(kubeconfig)))
    query = List(HANDLE)
    store.read([query], deadline=deadline_in())
    account = json.loads(_payload(first))["kubernetes.io"]["serviceaccount"]["name"]
    server.request("DELETE", f"/api/v1/namespaces/accounts/serviceaccounts/{account}")
    with pytest.raises(Unauthorized) as refusal:
        _until_refused(store)
    assert str(kubeconfig) in str(refusal.value)
    assert first not in f"{refusal.value} {refusal.value!r}"
    token_file.write_text(second)
    assert store.read([query], deadline=deadline_in()).list(query) == ()
    store.close()


def test_a_token_that_expires_in_mid_run_ends_it_unless_its_file_was_renewed(server: ApiServer, tmp_path: Path) -> None:
    """Two writers begin with the same token; one is given another before it is over."""
    lasting = account_token(server, f"a{next(_NUMBERS)}")
    renewed, forgotten = tmp_path / "renewed", tmp_path / "forgotten"
    stores = []
    for file in (renewed, forgotten):
        file.write_text(short_lived(server, lasting, seconds=3))
        stores.append(opened(KubernetesAccess(kubeconfig=str(kubeconfig_of(server, tmp_path, file)))))
    lucky, unlucky = stores
    key, number = handle_key(f"net.rotated{next(_NUMBERS)}"), 1
    (revision,) = lucky.commit([Create(key, Handle(blocks=((_BLOCK, number),)))], deadline=deadline_in())
    renewed.write_text(lasting)
    refused: Unauthorized | None = None
    patience = deadline_in(30)  # the server remembers for some seconds that a token was good
    while refused is None and not patience.has_passed:
        number += 1
        (revision,) = lucky.commit([Update(key, Handle(blocks=((_BLOCK, number),)), revision)], deadline=deadline_in())
        try:
            unlucky.commit([Update(key, Handle(blocks=((_BLOCK, number),)), Revision("u/1"))], deadline=deadline_in())
        except CommitError:
            threading.Event().wait(0.1)
        except Unauthorized as error:
            refused = error
    assert refused is not None
    assert f"credentials of {tmp_path / 'kubeconfig-forgotten'}" in str(refused)
    assert forgotten.read_text() not in f"{refused} {refused!r}"
    forgotten.write_text(lasting)
    (revision,) = unlucky.commit(
        [Update(key, Handle(blocks=((_BLOCK, number + 1),)), revision)], deadline=deadline_in()
    )
    lucky.commit([Delete(key, revision)], deadline=deadline_in())
    for store in stores:
        store.close()


def kubeconfig_of(server: ApiServer, folder: Path, token_file: Path) -> Path:
    """A kubeconfig whose token is in a file."""
    path = folder / f"kubeconfig-{token_file.name}"
    document = json.loads(Path(server.write_kubeconfig(name="pattern")).read_text())
    document["users"] = [{"name": "test", "user": {"tokenFile": str(token_file)}}]
    path.write_text(json.dumps(document))
    return path


def short_lived(server: ApiServer, token: str, *, seconds: int) -> str:
    """The token with another end, signed as the server signs; it gives none itself for less than ten minutes."""
    now = int(time.time())
    head, _, _ = token.partition(".")
    claims = json.loads(_payload(token)) | {"iat": now - 600, "nbf": now - 600, "exp": now + seconds - _LEEWAY_S}
    signed = f"{head}.{_unpadded(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key((server.folder / "accounts.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{signed}.{_unpadded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _payload(token: str) -> str:
    middle = token.split(".")[1]
    return base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)).decode()


def _until_refused(store: KubernetesDatastore) -> None:
    # The server remembers for some seconds that a token was good.
    deadline = deadline_in(20)
    while not deadline.has_passed:
        store.read([List(HANDLE)], deadline=deadline_in())


def test_a_client_certificate_is_a_credential_too(server: ApiServer, tmp_path: Path) -> None:
    issued = server.authority.issue_cert("somebody.example", common_name="somebody", organization_name="system:masters")
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    access = KubernetesAccess(
        api_root=server.url, certificate=str(certificate), key=str(key), certificate_authority=server.ca_file
    )
    store = opened(access)
    assert store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE)) == ()
    store.close()
    nobody = opened(evolve(access, certificate="", key=""))
    with pytest.raises(Unauthorized):
        nobody.read([List(HANDLE)], deadline=deadline_in())
    nobody.close()


def test_a_client_certificate_may_be_a_programs(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used without a file of its own, which nobody would remove after the plugin."""
    issued = server.authority.issue_cert("somebody.example", common_name="somebody", organization_name="system:masters")
    status = {
        "clientCertificateData": issued.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": issued.private_key_pem.bytes().decode(),
    }
    head = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    (tmp_path / "answer").write_text(json.dumps({**head, "status": status}))
    program = {"apiVersion": head["apiVersion"], "command": "cat", "args": [str(tmp_path / "answer")]}
    document = json.loads(Path(server.write_kubeconfig(name="program")).read_text())
    document["users"][0]["user"] = {"exec": program}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    store = opened(KubernetesAccess(kubeconfig=str(tmp_path / "kubeconfig")))
    assert store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE)) == ()
    assert list(folder.iterdir()) == []
    store.close()


def test_a_certificate_that_is_half_renewed_does_not_stop_calls(server: ApiServer, tmp_path: Path) -> None:
    """Two files cannot be replaced at one moment; who has a connection goes on with the old pair meanwhile."""
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    access = KubernetesAccess(
        api_root=server.url, certificate=str(certificate), key=str(key), certificate_authority=server.ca_file
    )

    def issued() -> trustme.LeafCert:
        return server.authority.issue_cert("a.example", common_name="somebody", organization_name="system:masters")

    def ask(store: KubernetesDatastore) -> None:
        assert store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE)) == ()

    first, second = issued(), issued()
    first.cert_chain_pems[0].write_to_path(str(certificate))
    first.private_key_pem.write_to_path(str(key))
    store = opened(access)
    ask(store)
    second.cert_chain_pems[0].write_to_path(str(certificate))
    ask(store)
    newcomer = opened(access)
    with pytest.raises(ConfigurationError, match="a certificate and its key in PEM are expected"):
        ask(newcomer)
    second.private_key_pem.write_to_path(str(key))
    for each in (store, newcomer):
        ask(each)
        each.close()


def test_a_server_that_nobody_vouches_for_is_not_trusted(server: ApiServer, tmp_path: Path) -> None:
    stranger = tmp_path / "ca.pem"
    type(server.authority)().cert_pem.write_to_path(str(stranger))
    store = opened(KubernetesAccess(api_root=server.url, certificate_authority=str(stranger), token=_SECRET))
    with pytest.raises(Unavailable, match="its certificate is not trusted") as refusal:
        store.read([List(HANDLE)], deadline=deadline_in())
    assert _SECRET not in f"{refusal.value} {refusal.value!r} {store!r}"
    # Two roots in one file are both trusted.
    both = tmp_path / "both.pem"
    both.write_text(stranger.read_text() + Path(server.ca_file).read_text())
    store = opened(KubernetesAccess(api_root=server.url, certificate_authority=str(both)))
    with pytest.raises(Unauthorized):
        store.read([List(HANDLE)], deadline=deadline_in())
    store.close()


def test_a_watch_without_the_right_names_it(server: ApiServer) -> None:
    kubeconfig = server.write_kubeconfig(install_role(server), name="plugin")
    with open_store(server, CrdMode.V1, kubeconfig=kubeconfig) as store:
        with pytest.raises(Unauthorized, match='cannot watch resource "ipamhandles"'):
            list(store.watch({HANDLE: Revision("1")}, deadline=deadline_in()))
        assert store.read([Get(handle_key("h"))], deadline=deadline_in()).find(handle_key("h")) is None


@pytest.fixture
def many_handles(server: ApiServer) -> Iterator[int]:
    """More handles than fit on two pages."""
    delete_custom_objects(server, CrdMode.V1)
    count, writers = 1201, 4
    with ExitStack() as stack, ThreadPoolExecutor(writers) as pool:
        stores = [
            stack.enter_context(closing(opened(KubernetesAccess(kubeconfig=server.write_kubeconfig()))))
            for _ in range(writers)
        ]
        list(pool.map(create_handles, stores, (range(first, count, writers) for first in range(writers))))
        yield count
    delete_custom_objects(server, CrdMode.V1)


def create_handles(store: KubernetesDatastore, numbers: Iterable[int]) -> None:
    for number in numbers:
        write = Create(handle_key(f"net.c{number:05}"), Handle(blocks=((_BLOCK, number + 1),)))
        store.commit([write], deadline=deadline_in())


def test_a_long_list_is_read_in_pages_of_five_hundred(server: ApiServer, many_handles: int) -> None:
    before = len(server.audited_requests("netplug/"))
    with open_store(server, CrdMode.V1) as store:
        snapshot = store.read([List(HANDLE)], deadline=deadline_in())
    found = snapshot.list(List(HANDLE))
    assert [record.value.blocks[0][1] for record in found] == list(range(1, many_handles + 1))
    assert server.audited_requests("netplug/")[before:] == [("list", "ipamhandles")] * 3


def test_a_watch_from_a_forgotten_revision_says_so(server: ApiServer) -> None:
    """Trap 20: 410 is an explicit restart."""
    with open_store(server, CrdMode.V1) as store:
        for revision in (Revision("1"), Revision("")):
            with pytest.raises(WatchExpired) as refusal:
                list(store.watch({HANDLE: revision}, deadline=deadline_in()))
            assert refusal.value.revision == revision


@define
class Increments:
    """How the increments of one counter ended, told by several threads."""

    confirmed: int = 0
    unknown: int = 0
    refused: int = 0
    changed: threading.Condition = field(factory=threading.Condition)

    def add(self, *, confirmed: int = 0, unknown: int = 0, refused: int = 0) -> None:
        """Note one increment."""
        with self.changed:
            self.confirmed += confirmed
            self.unknown += unknown
            self.refused += refused
            self.changed.notify_all()

    def wait_for_confirmed(self, count: int) -> None:
        """Return once so many are confirmed."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.confirmed >= count, EMERGENCY_STOP_S), self


def increment_until(stopped: threading.Event, server: ApiServer, key: Key[Handle], increments: Increments) -> None:
    with closing(opened(KubernetesAccess(kubeconfig=server.write_kubeconfig()))) as writer:
        while not stopped.is_set():
            try:
                record = writer.read([Get(key)], deadline=deadline_in(1)).find(key)
                assert record is not None
                value = record.value.with_count(_BLOCK, record.value.count(_BLOCK) + 1)
                writer.commit([Update(key, value, record.revision)], deadline=deadline_in(1))
                increments.add(confirmed=1)
            except OutcomeUnknown:
                increments.add(unknown=1)
            except (CommitError, Unavailable):
                increments.add(refused=1)
                stopped.wait(0.01)


def test_a_server_that_dies_under_load_loses_nothing_and_does_nothing_twice(server: ApiServer) -> None:
    """Four writers count in one record; every answer is a success, a lost race, or unknown and settled by reading."""
    key = handle_key(f"net.counter{next(_NUMBERS)}")
    with open_store(server, CrdMode.V1) as store:
        store.commit([Create(key, Handle(blocks=((_BLOCK, 1),)))], deadline=deadline_in())
    stopped, increments = threading.Event(), Increments()
    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        stack.callback(stopped.set)
        writers = [pool.submit(increment_until, stopped, server, key, increments) for _ in range(4)]
        for kill in range(1, _KILLS + 1):
            increments.wait_for_confirmed(35 * kill)
            server.kill()
            server.start()
        increments.wait_for_confirmed(35 * (_KILLS + 1))
    for writer in writers:
        writer.result()
    with open_store(server, CrdMode.V1) as store:
        record = store.read([Get(key)], deadline=deadline_in()).find(key)
    assert record is not None
    counted = record.value.count(_BLOCK) - 1
    assert increments.confirmed <= counted <= increments.confirmed + increments.unknown
    assert increments.refused > 0, "the writers noticed that the server was away"


@pytest.mark.parametrize("number", [1, 2000])
def test_plain_http_to_a_server_with_tls_is_reported(server: ApiServer, number: int) -> None:
    """A small request is answered before the connection is reset, a large one is not."""
    store = opened(KubernetesAccess(api_root=server.url.replace("https:", "http:")))
    large = Handle(blocks=tuple((Prefix.parse(f"10.{n // 250}.{n % 250}.0/26"), 1) for n in range(number)))
    with pytest.raises(NetplugError, match=r"HTTP request to an HTTPS server|Then write https"):
        store.commit([Create(handle_key("net.plain"), large)], deadline=deadline_in())
    store.close()


def test_a_deleted_record_that_finalizers_hold_is_gone_and_makes_room_once_they_are(server: ApiServer) -> None:
    key, path = handle_key("net.held"), "/apis/crd.projectnetplug.org/v1/ipamhandles/net.held"
    merge = "application/merge-patch+json"
    one, two = (Handle(blocks=((_BLOCK, number),)) for number in (1, 2))
    with open_store(server, CrdMode.V1) as store:
        store.commit([Create(key, one)], deadline=deadline_in())
        server.request("PATCH", path, {"metadata": {"finalizers": ["a.example/x"]}}, content_type=merge)
        record = store.read([Get(key)], deadline=deadline_in()).find(key)
        assert record is not None
        start = dict(store.read([List(HANDLE)], deadline=deadline_in()).revisions)
        store.commit([Delete(key, record.revision)], deadline=deadline_in())
        assert store.read([Get(key)], deadline=deadline_in()).find(key) is None
        assert key not in {found.key for found in store.read([List(HANDLE)], deadline=deadline_in()).list(List(HANDLE))}
        change = next(change for change in store.watch(start, deadline=deadline_in()) if change.key == key)
        assert change.value is None
        with pytest.raises(Unavailable, match=r"net\.held was deleted, and finalizers hold it: a\.example/x"):
            store.commit([Create(key, two)], deadline=deadline_in())
        server.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=merge)
        (revision,) = store.commit([Create(key, two)], deadline=deadline_in())
        assert store.read([Get(key)], deadline=deadline_in()).find(key) == Record(key, two, revision)
