"""What settings open: the real store, the real machine, and who is refused until a later release."""

from pathlib import Path

import pytest

from netplug_backends.host.install import EXECUTABLES
from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_cli.wiring import backends
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from netplug_core.testing.clock import ManualClock


def say_nothing(level: Level, message: str, /, **fields: object) -> None:
    """A log for whom nothing matters."""


def test_a_world_is_this_machines(tmp_path: Path) -> None:
    path = tmp_path / "netplug.db"
    netconf = NetConf(datastore=DatastoreSettings(type="sqlite", sqlite_path=str(path)))
    with backends.open_cni_world(netconf, say_nothing) as world:
        assert isinstance(world.ipam, BlockIPAM)
        assert isinstance(world.ipam.datastore, SqliteDatastore)
        assert world.ipam.datastore.description.location == str(path)
        assert isinstance(world.dataplane, LinuxDataplane)
        assert isinstance(world.host, HostMachine)
        assert isinstance(world.clock, SystemClock)
        assert world.log is say_nothing
    assert not path.exists(), "opening touches nothing"


def test_a_world_is_opened_for_a_store_that_is_not_there_yet() -> None:
    """Who finds out is the first call, which has a deadline."""
    netconf = NetConf(datastore=DatastoreSettings(etcd_endpoints=("http://127.0.0.1:1",)))
    with backends.open_cni_world(netconf, say_nothing) as world:
        assert world.datastore.description.location == "http://127.0.0.1:1"


def test_check_24_an_unknown_datastore_is_refused() -> None:
    netconf = NetConf(datastore=DatastoreSettings(type="foo"))
    with (
        pytest.raises(
            ConfigurationError, match=r"^datastore_type: 'foo' is not accepted; registered: .*memory, sqlite$"
        ),
        backends.open_cni_world(netconf, say_nothing),
    ):
        raise AssertionError("it was opened")


def test_the_tool_opens_what_its_settings_name(tmp_path: Path) -> None:
    path = str(tmp_path / "netplug.db")
    with backends.open_datastore(DatastoreSettings(type="sqlite", sqlite_path=path)) as store:
        assert store.description.location == path


def test_a_simulation_gets_an_empty_store_of_its_own_in_its_own_time() -> None:
    clock = ManualClock()
    with backends.open_memory_datastore(clock) as store, backends.open_memory_datastore(clock) as other:
        assert store.description.name == "memory"
        assert store is not other
        deadline = Deadline.after(clock, 5)
        clock.sleep(5)
        with pytest.raises(Unavailable, match="deadline"):
            store.read([], deadline=deadline)


def test_removing_executables_that_are_not_there_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    backends.uninstall_executables(str(tmp_path), said.append)
    assert said == [f"not there: {tmp_path / name}" for name in EXECUTABLES]


def test_the_clock_is_the_machines() -> None:
    assert backends.system_clock().now_ns() > 1_700_000_000 * 10**9


@pytest.mark.parametrize(
    "settings,places",
    [
        (
            DatastoreSettings(etcd_endpoints=("http://10.0.0.1:1", "https://[fd00::1]")),
            (("10.0.0.1", 1), ("fd00::1", 2379)),
        ),
        (
            DatastoreSettings(type="kubernetes", kubernetes=KubernetesAccess(api_root="https://10.0.0.1")),
            (("10.0.0.1", 443),),
        ),
    ],
)
def test_the_lab_learns_where_servers_are(settings: DatastoreSettings, places: tuple[tuple[str, int], ...]) -> None:
    assert backends.server_addresses(settings) == places
