"""Names to backends: the catalog first, then entry points; the error about an unknown name lists the known names."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from netplug_core.clock import Deadline
from netplug_core.dataplane.protocol import InterfacePresence
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ConfigurationError
from netplug_core.hookspecs import IPAMContext
from netplug_core.ipam.allocation.request import Released
from netplug_core.log import Level
from netplug_core.registry import ENTRY_POINT_GROUP, Catalog, Registry
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock
from netplug_core.testing.dataplane_checks import link_to

CATALOG: Catalog = {
    "datastore": {
        "memory": "netplug_backends.memory.hookimpls",
        "silent": "netplug_backends.memory.hookimpls",
        "sqlite": "netplug_backends.sqlite.hookimpls",
    },
    "ipam": {"netplug-ipam": "netplug_backends.blocks.hookimpls", "wrong": "netplug_backends.memory.hookimpls"},
    "dataplane": {"memory": "netplug_backends.memory.hookimpls"},
    "orchestrator": {
        "kubernetes": "netplug_backends.kubernetes.hookimpls",
        "wrong": "netplug_backends.kubernetes.hookimpls",
    },
}
SETTINGS = DatastoreSettings()
CLOCK = ManualClock()

FOREIGN = '''
"""A backend that is not netplug's."""

from contextlib import nullcontext

from netplug_backends.memory.datastore import MemoryDatastore
from netplug_core.hookspecs import BackendDescription, hookimpl


@hookimpl
def netplug_open_datastore(name, settings, clock):
    return nullcontext(MemoryDatastore(clock=clock)) if name == "foreign" else None


@hookimpl
def netplug_describe():
    return BackendDescription(version="1.0", names={"datastore": ("foreign",)})
'''


def context_of(store: Datastore) -> IPAMContext:
    return IPAMContext(datastore=store, clock=CLOCK, chance=lambda: 0.5)


def ignore_line(level: Level, message: str, /, **fields: object) -> None:
    """A log that writes nothing."""


@contextmanager
def distribution(folder: Path, value: str) -> Iterator[None]:
    """An installed distribution with one module and the entry point ``foreign``."""
    (folder / "foreign_backend.py").write_text(FOREIGN)
    info = folder / "foreign_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nforeign = {value}\nmemory = nowhere\n")
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("foreign_backend", None)


def test_the_catalogs_backends_open() -> None:
    registry = Registry(CATALOG)
    with (
        registry.open_datastore("memory", SETTINGS, CLOCK) as store,
        registry.open_ipam("netplug-ipam", context_of(store)) as ipam,
        registry.open_dataplane("memory", CLOCK, ignore_line) as dataplane,
    ):
        assert store.description.name == "memory"
        assert ipam.held("h", deadline=Deadline.after(CLOCK, 1)) == Released(addresses=())
        assert dataplane.find(link_to("/n")) is InterfacePresence.NAMESPACE_GONE


class NotedLookups(dict[str, str]):
    """A catalog's names; each that is looked up is noted."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self.noted: list[object] = []

    def get(self, name: object, default: object = None) -> object:  # type: ignore[override]
        self.noted.append(name)
        return super().get(name, default)  # type: ignore[call-overload]


def test_a_backend_that_is_registered_is_looked_for_no_more() -> None:
    datastores = NotedLookups(CATALOG["datastore"])
    registry = Registry({"datastore": datastores})
    for _call in range(3):
        with registry.open_datastore("memory", SETTINGS, CLOCK) as store:
            assert store.description.name == "memory"
    assert datastores.noted == ["memory"]


def test_an_orchestrator_opens_without_a_request() -> None:
    registry = Registry(CATALOG)
    with registry.open_orchestrator("kubernetes", SETTINGS, CLOCK) as orchestrator:
        assert callable(orchestrator.find_pod)
    with pytest.raises(ConfigurationError, match=r"^orchestrator: 'wrong' is not accepted; registered: kubernetes, "):
        registry.open_orchestrator("wrong", SETTINGS, CLOCK)


def test_one_registry_opens_many() -> None:
    registry = Registry(CATALOG)
    with registry.open_datastore("memory", SETTINGS, CLOCK) as one:
        pass
    with registry.open_datastore("sqlite", SETTINGS, CLOCK) as other:
        pass
    with registry.open_datastore("memory", SETTINGS, CLOCK) as again:
        pass
    assert [store.description.name for store in (one, other, again)] == ["memory", "sqlite", "memory"]
    assert one is not again


@pytest.mark.parametrize("value", ["foreign_backend", "foreign_backend:ignored"])
def test_an_entry_point_serves_a_name_that_the_catalog_lacks(tmp_path: Path, value: str) -> None:
    with (
        distribution(tmp_path, value),
        Registry(CATALOG).open_datastore("foreign", SETTINGS, CLOCK) as store,
    ):
        assert store.description.name == "memory"


def test_the_catalog_goes_before_entry_points(tmp_path: Path) -> None:
    with distribution(tmp_path, "foreign_backend"), Registry(CATALOG).open_datastore("memory", SETTINGS, CLOCK):
        assert "nowhere" not in sys.modules


def test_a_name_of_the_catalog_scans_nothing() -> None:
    scanned: list[object] = []

    class Finder:
        """A path finder that every scan for distributions calls."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            del name, path, target

        @staticmethod
        def find_distributions(context: object) -> Iterator[object]:
            scanned.append(context)
            return iter(())

    sys.meta_path.append(Finder)
    try:
        registry = Registry(CATALOG)
        with registry.open_datastore("memory", SETTINGS, CLOCK):
            assert scanned == []
        with pytest.raises(ConfigurationError):
            registry.open_datastore("unknown", SETTINGS, CLOCK)
        assert scanned
    finally:
        sys.meta_path.remove(Finder)


def test_check_24_the_error_about_an_unknown_datastore_lists_the_registered_names() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Registry(CATALOG).open_datastore("foo", SETTINGS, CLOCK)
    assert refusal.value.code == 7
    assert str(refusal.value) == "datastore_type: 'foo' is not accepted; registered: memory, silent, sqlite"


def test_the_errors_about_an_unknown_ipam_and_dataplane_list_theirs() -> None:
    registry = Registry(CATALOG)
    with registry.open_datastore("memory", SETTINGS, CLOCK) as store, pytest.raises(ConfigurationError) as refusal:
        registry.open_ipam("foo", context_of(store))
    assert str(refusal.value) == "ipam.type: 'foo' is not accepted; registered: netplug-ipam, wrong"
    with pytest.raises(ConfigurationError) as refusal:
        registry.open_dataplane("foo", CLOCK, ignore_line)
    assert str(refusal.value) == "dataplane_options.type: 'foo' is not accepted; registered: memory"


def test_a_backend_whose_hook_returns_none_is_refused() -> None:
    registry = Registry(CATALOG)
    with pytest.raises(ConfigurationError, match=r"^datastore_type: 'silent' is not accepted; registered: memory, "):
        registry.open_datastore("silent", SETTINGS, CLOCK)
    with (
        registry.open_datastore("memory", SETTINGS, CLOCK) as store,
        pytest.raises(ConfigurationError, match=r"^ipam\.type: 'wrong' is not accepted; registered: netplug-ipam, "),
    ):
        registry.open_ipam("wrong", context_of(store))


# --- without a catalog: every backend by its entry point ----------------------------------------------------------


def test_every_backend_is_found_by_its_entry_point(tmp_path: Path) -> None:
    registry = Registry()
    with distribution(tmp_path, "foreign_backend"):
        with registry.open_host() as host, registry.open_datastore("foreign", SETTINGS, host.clock) as foreign:
            assert foreign.description.name == "memory"
        with registry.open_datastore("memory", SETTINGS, CLOCK) as store:  # the distribution below claims this name too
            assert store.description.name == "memory"
            with registry.open_ipam("netplug-ipam", context_of(store)) as ipam:
                assert ipam.held("h", deadline=Deadline.after(CLOCK, 1)) == Released(addresses=())
        assert "nowhere" not in sys.modules


def test_the_names_that_are_offered_are_those_that_backends_describe(tmp_path: Path) -> None:
    assert Registry(CATALOG).names("datastore") == ("memory", "silent", "sqlite")
    assert Registry(CATALOG).names("host") == ()
    with distribution(tmp_path, "foreign_backend"):
        names = {interface: Registry().names(interface) for interface in (*CATALOG, "host")}
    assert names == {
        "datastore": ("etcdv3", "foreign", "kubernetes", "memory", "sqlite"),
        "ipam": ("delegate", "host-local", "netplug-ipam"),
        "dataplane": ("linux", "memory"),
        "orchestrator": ("kubernetes", "memory"),
        "host": ("host",),
    }


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    with (
        distribution(tmp_path, "no_such_module"),
        pytest.raises(ConfigurationError) as refusal,
        Registry(CATALOG).open_datastore("foreign", SETTINGS, CLOCK),
    ):
        pass
    assert str(refusal.value) == (
        "datastore_type: 'foreign' is not accepted; its module no_such_module cannot be imported: "
        "No module named 'no_such_module'"
    )
