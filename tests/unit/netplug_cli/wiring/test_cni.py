"""The world of a CNI call: the configured datastore, this machine, and names that no backend has."""

import subprocess
import sys
from pathlib import Path

import pytest

from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.orchestrator import KubernetesOrchestrator
from netplug_backends.linux.dataplane import LinuxDataplane
from netplug_backends.sqlite.datastore import SqliteDatastore
from netplug_cli.wiring.cni import open_cni_world
from netplug_core.clock import Deadline
from netplug_core.errors import ConfigurationError, UnusableFile
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.log import Level
from netplug_core.netconf.model import NetConf
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess


def ignore_line(level: Level, message: str, /, **fields: object) -> None:
    """A log that writes nothing."""


def test_a_world_is_this_machines(tmp_path: Path) -> None:
    path = tmp_path / "netplug.db"
    netconf = NetConf(datastore=DatastoreSettings(type="sqlite", sqlite_path=str(path)))
    with open_cni_world(netconf, ignore_line) as world:
        assert isinstance(world.ipam, BlockIPAM)
        assert isinstance(world.ipam.datastore, SqliteDatastore)
        assert world.ipam.datastore.description.location == str(path)
        assert isinstance(world.dataplane, LinuxDataplane)
        assert isinstance(world.host, HostMachine)
        assert isinstance(world.clock, SystemClock)
        assert world.log is ignore_line
    assert not path.exists(), "opening touches nothing"


def test_a_world_is_opened_for_a_store_that_is_not_there_yet() -> None:
    """The first call reports it, within its deadline."""
    netconf = NetConf(datastore=DatastoreSettings(etcd_endpoints=("http://127.0.0.1:1",)))
    with open_cni_world(netconf, ignore_line) as world:
        assert world.datastore.description.location == "http://127.0.0.1:1"


def test_check_24_an_unknown_datastore_is_refused() -> None:
    netconf = NetConf(datastore=DatastoreSettings(type="foo"))
    with (
        pytest.raises(
            ConfigurationError, match=r"^datastore_type: 'foo' is not accepted; registered: .*memory, sqlite$"
        ),
        open_cni_world(netconf, ignore_line),
    ):
        raise AssertionError("it was opened")


def test_the_orchestrator_is_opened_where_the_configuration_says_how_to_reach_it() -> None:
    """A call opens it when it asks for a pod; nothing is sent before that."""
    with open_cni_world(NetConf(datastore=DatastoreSettings(type="memory")), ignore_line) as world:
        assert world.open_orchestrator is None
    access = KubernetesAccess(api_root="http://127.0.0.1:1")
    settings = DatastoreSettings(type="memory", kubernetes=access)
    with open_cni_world(NetConf(datastore=settings), ignore_line) as world:
        assert world.open_orchestrator is not None
        with world.open_orchestrator() as orchestrator:
            assert isinstance(orchestrator, KubernetesOrchestrator)


OPEN_WORLD = """
import sys

sys.path[:0] = sys.argv[1:3]
from netplug_cli.wiring.cni import open_cni_world
from netplug_core.netconf.model import load
from netplug_core.cni.dispatch import Plugin

netconf = load({"type": "netplug", "datastore_type": "sqlite", "sqlite_path": sys.argv[3],
                "ipam": {"type": "netplug-ipam"}}, Plugin.MAIN)
with open_cni_world(netconf, print) as world:
    print(world.datastore.description.name, "importlib.metadata" in sys.modules)
"""


def test_a_call_reads_no_entry_points(tmp_path: Path) -> None:
    root, packages = Path(__file__).parents[4], Path(sys.modules["attrs"].__file__ or "").parents[1]
    command = [sys.executable, "-IS", "-c", OPEN_WORLD, str(root), str(packages), str(tmp_path / "netplug.db")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("sqlite False\n", "")


def test_a_world_is_opened_although_a_file_of_the_datastore_is_gone() -> None:
    """A DEL cleans the node; whatever needs the datastore is told which file it is."""
    netconf = NetConf(datastore=DatastoreSettings(etcd_ca_cert_file="/nowhere.pem"))
    with open_cni_world(netconf, ignore_line) as world:
        deadline = Deadline.after(world.clock, 1)
        assert world.datastore.description.name == "etcdv3"
        for use in (
            lambda: world.datastore.read([], deadline=deadline),
            lambda: world.datastore.commit([], deadline=deadline),
            lambda: world.datastore.watch({}, deadline=deadline),
        ):
            with pytest.raises(UnusableFile, match=r"/nowhere\.pem"):
                use()
