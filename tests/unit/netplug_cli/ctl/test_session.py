"""What a command acts through: the settings that count, the version check, and what is logged of the store."""

from pathlib import Path

import pytest
from attrs import evolve

from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import GlobalOptions, Session, VersionCheck
from netplug_cli.wiring.backends import open_datastore
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.resources.cluster import VersionMismatch, ensure_initialized
from netplug_core.settings.model import DatastoreSettings
from tests.harness.ctl import ToolHarness

SECRET = "hunter2"  # noqa: S105 - planted, to be searched for


@pytest.fixture
def session(harness: ToolHarness) -> Session:
    return evolve(
        harness.make_session(), environ={"ETCD_PASSWORD": SECRET, "KUBECONFIG": "/kc"}, default_config_file=""
    )


def upgrade(session: Session, version: str) -> None:
    with session.open_datastore_of_any_release() as store:
        ensure_initialized(store, pace=session.pace(), new_uid=session.new_uid, recorded=(version,))


def test_a_session_shows_no_secret(session: Session) -> None:
    assert SECRET not in repr(session)
    assert SECRET not in repr(session.settings())


def test_a_context_option_goes_before_the_configured_one(session: Session) -> None:
    environ = {**session.environ, "K8S_CURRENT_CONTEXT": "configured"}
    assert evolve(session, environ=environ).settings().kubernetes.context == "configured"
    requests = GlobalOptions(context="wished")
    found = evolve(session, environ=environ, options=requests).settings()
    assert (found.kubernetes.context, found.kubernetes.kubeconfig, found.type) == ("wished", "/kc", "kubernetes")


def test_a_newer_clusters_store_is_opened_only_with_the_option(session: Session, harness: ToolHarness) -> None:
    upgrade(session, "v3.99.0")
    with pytest.raises(VersionMismatch, match=r"^version mismatch"), session.open_datastore():
        raise AssertionError("it was opened")
    with evolve(session, options=GlobalOptions(version_check=VersionCheck.SKIPPED)).open_datastore() as store:
        assert store is harness.store
    with session.open_datastore_of_any_release() as store:
        assert store is harness.store


def test_a_session_on_another_environment_forgets_every_other_place(session: Session, tmp_path: Path) -> None:
    """A lab's store must never be the one that the machine is configured for."""
    usual = tmp_path / "usual"
    usual.write_text("no configuration at all")
    told = evolve(
        session, default_config_file=str(usual), options=GlobalOptions(config=str(usual), context="x", log_level="info")
    )
    environ = {"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": "/lab"}
    assert told.with_environment(environ).settings() == DatastoreSettings(type="sqlite", sqlite_path="/lab")
    assert told.with_environment(environ).options == GlobalOptions(log_level="info")


@pytest.mark.parametrize(
    "level, lines",
    [
        ("panic", []),
        ("info", ["netplugctl: datastore memory: this process"]),
        (
            "debug",
            [
                "netplugctl: datastore memory: this process",
                "netplugctl: read ClusterInformation(default) in 0.0 ms",
            ],
        ),
    ],
)
def test_log_lines_of_the_store_are_optional(
    session: Session, level: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with evolve(session, options=GlobalOptions(log_level=level)).open_datastore():
        pass
    assert capsys.readouterr().err.splitlines() == lines


def test_a_memory_datastore_is_refused(session: Session) -> None:
    """It would end with the command, so a pool that was created there would be gone, and the command said "created"."""
    memory = evolve(session, environ={"DATASTORE_TYPE": "memory"})
    with pytest.raises(ConfigurationError, match=r"^datastore: 'memory' is not accepted; it ends with this command"):
        memory.open_datastore().__enter__()


def test_a_missing_file_is_refused_unless_the_command_creates(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "lib" / "netplug.db"
    on_sqlite = evolve(
        session, environ={"DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(path)}, open_backend=open_datastore
    )
    with pytest.raises(ConfigurationError) as refusal, on_sqlite.open_datastore():
        raise AssertionError("it was opened")
    assert str(refusal.value) == (
        f"sqlite_path: '{path}' is not accepted; "
        "no such file; netplugctl create, netplugctl apply and the plugin make it"
    )
    assert not path.parent.exists()
    with evolve(on_sqlite, is_dry_run=True).for_creation().open_datastore():
        assert not path.parent.exists()
    with on_sqlite.for_creation().open_datastore():
        assert path.exists()
    with on_sqlite.open_datastore():
        pass


@pytest.mark.parametrize(
    "environ, is_said",
    [
        ({}, True),
        ({"KUBECONFIG": "/kc"}, False),
        ({"ETCD_ENDPOINTS": "http://127.0.0.2:2379"}, False),
        ({"ETCD_ENDPOINTS": "http://127.0.0.1:2379"}, False),
        ({"DATASTORE_TYPE": "sqlite"}, False),
    ],
)
def test_where_nothing_is_configured_the_error_says_what_to_set(
    session: Session, environ: dict[str, str], *, is_said: bool
) -> None:
    cause = "http://127.0.0.1:2379: Connection refused"
    with (
        pytest.raises(InputError if is_said else Unavailable) as raised,
        evolve(session, environ=environ).open_datastore_of_any_release() as store,
    ):
        raise Unavailable("etcd", cause)
    assert store is not None
    told = "no datastore is configured: set DATASTORE_TYPE=sqlite, or DATASTORE_TYPE=kubernetes and KUBECONFIG=FILE, "
    assert str(raised.value).startswith(told) is is_said
