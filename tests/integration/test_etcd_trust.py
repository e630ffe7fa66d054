"""Who trusts whom: mutual TLS with right and wrong papers, and users with rights; each failure with its text.

D14: every failing case is one whose output is searched for what must not be seen.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from netplug_backends.etcdv3.datastore import EtcdDatastore
from netplug_backends.host.machine import SystemClock
from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError, Unauthorized, Unavailable
from netplug_core.records import Create, Get, OutcomeUnknown, Revision, Update
from netplug_core.resources.ippool import IPPOOL
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.datastore_harness import SAMPLE_CODEC
from tests.harness.servers.certificates import Certificates
from tests.harness.servers.etcd import EtcdCluster, ServerTLS, make_client, start_etcd
from tests.harness.servers.etcd_admin import enable_users
from tests.harness.waiting import EMERGENCY_STOP_S, MARGIN_S

pytestmark = pytest.mark.etcd

CLOCK = SystemClock()
KEY = IPPOOL.key("main")
PASSWORD = "not-to-be-seen"  # noqa: S105  # planted, to be searched for
REFUSED_US = "the server does not accept the client's certificate, or its absence"
NOT_TRUSTED = "the server's certificate is not trusted: "


def store_of(etcd: EtcdCluster, settings: DatastoreSettings) -> EtcdDatastore:
    return EtcdDatastore(make_client(etcd, clock=CLOCK, settings=settings), codec=SAMPLE_CODEC)


def assert_usable(store: EtcdDatastore) -> None:
    """What is written is read."""
    deadline = Deadline.after(CLOCK, 60.0)
    record = store.read([Get(KEY)], deadline=deadline).find(KEY)
    value = "a" if record is None else f"{record.value}b"
    store.commit([Create(KEY, value) if record is None else Update(KEY, value, record.revision)], deadline=deadline)
    written = store.read([Get(KEY)], deadline=deadline).find(KEY)
    assert written is not None
    assert str(written.value) == value


def failures(etcd: EtcdCluster, settings: DatastoreSettings) -> list[NetplugError]:
    """What a read and a commit fail with; neither may have been sent."""
    caught: list[NetplugError] = []
    with closing(store_of(etcd, settings)) as store:
        for call in (
            lambda: store.read([Get(KEY)], deadline=Deadline.after(CLOCK, 60.0)),
            lambda: store.commit([Create(KEY, "a")], deadline=Deadline.after(CLOCK, 60.0)),
        ):
            with pytest.raises(Unavailable) as error:
                call()
            assert not isinstance(error.value, OutcomeUnknown)
            caught.append(error.value)
    return caught


def shown(error: BaseException) -> str:
    """Everything that a log could show of an error."""
    return f"{error} {error!r} {''.join(traceback.format_exception(error))}"


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def right(certificates: Certificates) -> DatastoreSettings:
    return DatastoreSettings(
        etcd_key_file=str(certificates.key),
        etcd_cert_file=str(certificates.certificate),
        etcd_ca_cert_file=str(certificates.root),
    )


def test_the_right_certificates_are_accepted(
    etcd_with_client_certificates: EtcdCluster, right: DatastoreSettings
) -> None:
    with closing(store_of(etcd_with_client_certificates, right)) as store:
        assert_usable(store)
        assert_usable(store)


def test_s15_the_right_inline_certificates_are_accepted(
    etcd_with_client_certificates: EtcdCluster, certificates: Certificates
) -> None:
    inline = DatastoreSettings(
        etcd_key=certificates.key.read_text(),
        etcd_cert=certificates.certificate.read_text(),
        etcd_ca_cert=certificates.root.read_text(),
    )
    with closing(store_of(etcd_with_client_certificates, inline)) as store:
        assert_usable(store)


def test_trap_27_every_root_in_the_file_is_trusted(
    etcd_with_client_certificates: EtcdCluster, right: DatastoreSettings, certificates: Certificates
) -> None:
    for name, roots in (
        ("a", (certificates.other_root, certificates.root)),
        ("b", (certificates.root, certificates.other_root)),
    ):
        both = certificates.root.with_name(f"both-{name}.crt")
        both.write_bytes(b"".join(root.read_bytes() for root in roots))
        with closing(store_of(etcd_with_client_certificates, evolve(right, etcd_ca_cert_file=str(both)))) as store:
            assert_usable(store)


def test_a_server_of_another_root_is_not_trusted(
    etcd_with_client_certificates: EtcdCluster, right: DatastoreSettings, certificates: Certificates
) -> None:
    for error in failures(etcd_with_client_certificates, evolve(right, etcd_ca_cert_file=str(certificates.other_root))):
        assert str(error).startswith(f"etcd: {etcd_with_client_certificates.endpoints[0]}: {NOT_TRUSTED}"), error
        assert not isinstance(error, Unauthorized)


def test_a_server_that_is_called_something_else_is_not_trusted(
    right: DatastoreSettings, certificates: Certificates
) -> None:
    """Its certificate is of the right root, and not for 127.0.0.1."""
    with start_etcd(tls=ServerTLS(cert_file=str(certificates.certificate), key_file=str(certificates.key))) as other:
        for error in failures(other, right):
            assert f"{NOT_TRUSTED}it is not for this address" in str(error), error


def test_without_a_root_this_machines_are_trusted_and_not_the_server(
    etcd_with_client_certificates: EtcdCluster, right: DatastoreSettings
) -> None:
    for error in failures(etcd_with_client_certificates, evolve(right, etcd_ca_cert_file="")):
        assert NOT_TRUSTED in str(error)


@pytest.mark.parametrize("which", ["missing", "of another root", "expired"])
def test_a_client_with_the_wrong_certificate_is_refused(
    etcd_with_client_certificates: EtcdCluster, right: DatastoreSettings, certificates: Certificates, which: str
) -> None:
    key, certificate = {
        "missing": ("", ""),
        "of another root": (str(certificates.other_key), str(certificates.other_certificate)),
        "expired": (str(certificates.expired_key), str(certificates.expired_certificate)),
    }[which]
    for error in failures(etcd_with_client_certificates, evolve(right, etcd_key_file=key, etcd_cert_file=certificate)):
        assert isinstance(error, Unauthorized), error
        assert REFUSED_US in str(error)
        if key:
            assert Path(key).read_text().splitlines()[1] not in shown(error)


def test_the_error_of_a_client_without_tls_names_the_server(etcd_with_client_certificates: EtcdCluster) -> None:
    plain = EtcdCluster("http", etcd_with_client_certificates.host, etcd_with_client_certificates.members)
    for error in failures(plain, DatastoreSettings()):
        assert str(error).startswith(f"etcd: {plain.endpoints[0]}: ")
        assert str(error).endswith("; does the server speak TLS? Then write https")


def test_the_error_of_a_client_with_tls_says_that_the_server_seems_to_have_none(right: DatastoreSettings) -> None:
    with start_etcd() as plain:
        for error in failures(EtcdCluster("https", plain.host, plain.members), right):
            assert "the TLS handshake was not answered; does the server speak TLS?" in str(error)


def test_trap_27_rotated_certificates_are_used_without_a_restart(
    etcd_with_client_certificates: EtcdCluster, certificates: Certificates, tmp_path: Path
) -> None:
    """From expired to right ones under the eyes of one store; half of a rotation changes nothing."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    key.write_bytes(certificates.expired_key.read_bytes())
    certificate.write_bytes(certificates.expired_certificate.read_bytes())
    rotating = DatastoreSettings(
        etcd_key_file=str(key), etcd_cert_file=str(certificate), etcd_ca_cert_file=str(certificates.root)
    )
    with closing(store_of(etcd_with_client_certificates, rotating)) as store:
        with pytest.raises(Unauthorized):
            assert_usable(store)
        rotate(key, certificates.key.read_bytes())
        with pytest.raises(Unauthorized):
            assert_usable(store)
        rotate(certificate, certificates.certificate.read_bytes())
        assert_usable(store)


def test_many_rotations_under_writers_end_no_call_and_print_nothing(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of gRPC's looks at a connection a little longer than the call that began with it lasts."""
    problems: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: problems.append(told.exc_value))
    root = tmp_path / "root"
    root.write_bytes(certificates.root.read_bytes())
    is_over = threading.Event()
    with (
        start_etcd() as plain,
        closing(store_of(plain, DatastoreSettings(etcd_ca_cert_file=str(root)))) as store,
        ThreadPoolExecutor(8) as writers,
    ):
        counts = [0] * 8

        def write(number: int) -> None:
            key = IPPOOL.key(f"pool-{number}")
            (revision,) = store.commit([Create(key, "0")], deadline=Deadline.after(CLOCK, 60.0))
            while not is_over.is_set():
                update = Update(key, str(counts[number]), revision)
                (revision,) = store.commit([update], deadline=Deadline.after(CLOCK, 60.0))
                counts[number] += 1

        calls = [writers.submit(write, number) for number in range(len(counts))]
        stop, rotations = Deadline.after(CLOCK, EMERGENCY_STOP_S), 0
        try:
            while (rotations < 60 or min(counts) <= 10) and not any(call.done() for call in calls):
                assert not stop.has_passed, counts
                rotate(root, (certificates.other_root, certificates.root)[rotations % 2].read_bytes())
                rotations += 1
                CLOCK.sleep(0.03)
        finally:
            is_over.set()
        for call in calls:
            call.result()
        assert min(counts) > 10
    CLOCK.sleep(0.3)
    assert problems == []


def test_the_roots_of_the_file_are_trusted_and_no_others(
    etcd_with_client_certificates: EtcdCluster,
    right: DatastoreSettings,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This machine's are for who names none."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.root))
    with closing(store_of(etcd_with_client_certificates, evolve(right, etcd_ca_cert_file=""))) as store:
        assert_usable(store)
    for error in failures(etcd_with_client_certificates, evolve(right, etcd_ca_cert_file=str(certificates.other_root))):
        assert NOT_TRUSTED in str(error)


def rotate(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


# --- users -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_users() -> Iterator[EtcdCluster]:
    """A cluster with users whose tokens live for a second."""
    with start_etcd(extra=("--auth-token-ttl", "1")) as opened:
        enable_users(opened, PASSWORD)
        yield opened


def user(name: str, password: str = PASSWORD) -> DatastoreSettings:
    return DatastoreSettings(etcd_username=name, etcd_password=password)


def test_a_user_with_its_rights_reads_and_writes(with_users: EtcdCluster) -> None:
    with closing(store_of(with_users, user("netplug"))) as store:
        assert_usable(store)


def test_a_token_that_ran_out_is_renewed(with_users: EtcdCluster) -> None:
    with closing(store_of(with_users, user("netplug"))) as store:
        assert_usable(store)
        CLOCK.sleep(3.5)
        assert_usable(store)
        start = store.read([Get(KEY)], deadline=Deadline.after(CLOCK, 60.0)).revisions
        assert list(store.watch(start, deadline=Deadline.after(CLOCK, 0.5))) == []


def test_a_user_without_the_right_to_write_is_refused(with_users: EtcdCluster) -> None:
    with closing(store_of(with_users, user("reader"))) as store:
        store.read([Get(KEY)], deadline=Deadline.after(CLOCK, 60.0))
        with pytest.raises(Unauthorized, match="permission denied") as caught:
            store.commit([Create(IPPOOL.key("other"), "a")], deadline=Deadline.after(CLOCK, 60.0))
    assert PASSWORD not in shown(caught.value)


@pytest.mark.parametrize(
    "settings,text",
    [
        (user("netplug", "wrong-" + PASSWORD), "authentication failed, invalid user ID or password"),
        (user("nobody"), "authentication failed, invalid user ID or password"),
        (user("certificate"), "password was given for no password user"),
        (DatastoreSettings(), "user name is empty"),
        (DatastoreSettings(etcd_username="netplug"), "user name is empty"),
    ],
)
def test_trap_25_an_unknown_user_is_refused_at_once(
    with_users: EtcdCluster, settings: DatastoreSettings, text: str
) -> None:
    started = CLOCK.monotonic()
    for error in failures(with_users, settings):
        assert isinstance(error, Unauthorized)
        assert text in str(error)
        assert PASSWORD not in shown(error)
    assert CLOCK.monotonic() - started < 2 * MARGIN_S


def test_a_watch_without_the_right_to_read_is_refused(with_users: EtcdCluster) -> None:
    with closing(store_of(with_users, DatastoreSettings())) as store, pytest.raises(Unauthorized):
        list(store.watch({IPPOOL: Revision("1")}, deadline=Deadline.after(CLOCK, 60.0)))


def test_a_user_where_the_cluster_knows_none_changes_nothing() -> None:
    with start_etcd() as plain, closing(store_of(plain, user("netplug"))) as store:
        assert_usable(store)
        enable_users(plain, PASSWORD)
        assert_usable(store)
