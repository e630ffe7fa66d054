"""Every name in the catalog is one that its module opens, and no other."""

import ast
import importlib
import importlib.util
import tomllib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest

from netplug_cli.wiring.backends import CATALOG
from netplug_core import __version__
from netplug_core.cni.request import CNIRequest, decode_netconf, make_request, parse_environment
from netplug_core.hookspecs import BackendDescription, BgpContext, IPAMContext
from netplug_core.log import Level
from netplug_core.registry import Registry
from netplug_core.settings.model import DatastoreSettings
from netplug_core.testing.clock import ManualClock

CLOCK = ManualClock()
ENTRIES = [(interface, name) for interface, names in CATALOG.items() for name in names]
MODULES = sorted({module for names in CATALOG.values() for module in names.values()})


def ignore_line(level: Level, message: str, /, **fields: object) -> None:
    """A log that writes nothing."""


def a_request() -> CNIRequest:
    """A call of a runtime."""
    environment = parse_environment({"CNI_COMMAND": "STATUS", "CNI_PATH": "/opt/cni/bin"})
    text = '{"cniVersion": "1.1.0", "name": "net1", "type": "netplug", "ipam": {"type": "static"}}'
    return make_request(environment, netconf_text=text, netconf_mapping=decode_netconf(text))


def open_backend(interface: str, name: str, settings: DatastoreSettings) -> AbstractContextManager[object]:
    registry = Registry(CATALOG)
    if interface == "datastore":
        return registry.open_datastore(name, settings, CLOCK)
    if interface == "dataplane":
        return registry.open_dataplane(name, CLOCK, ignore_line)
    if interface == "orchestrator":
        return registry.open_orchestrator(name, settings, CLOCK)
    if interface == "host":
        return registry.open_host(name)
    if interface == "bgp":
        folder = f"{Path(settings.sqlite_path).parent}/bgp"
        bgp = BgpContext(folder=folder, clock=CLOCK, log=ignore_line, count_routes=lambda: 0, remove_routes=lambda: 0)
        return registry.open_bgp(name, bgp)
    with registry.open_datastore("memory", settings, CLOCK) as store:
        context = IPAMContext(datastore=store, clock=CLOCK, chance=lambda: 0.5, request=a_request())
        return registry.open_ipam(name, context)


@pytest.mark.parametrize("interface,name", ENTRIES)
def test_a_name_opens(interface: str, name: str, tmp_path: Path) -> None:
    with open_backend(interface, name, DatastoreSettings(sqlite_path=str(tmp_path / "netplug.db"))) as backend:
        assert backend is not None
    assert list(tmp_path.iterdir()) == [], "nothing is created before the first call"


@pytest.mark.parametrize("interface,name", ENTRIES)
def test_a_module_answers_to_its_own_name_only(interface: str, name: str) -> None:
    module = importlib.import_module(CATALOG[interface][name])
    hook = getattr(module, f"netplug_open_{interface}")
    given = {"settings": DatastoreSettings(), "clock": CLOCK, "log": ignore_line, "context": None, "namespaces": {}}
    wanted = hook.__code__.co_varnames[1 : hook.__code__.co_argcount]
    assert cast("object", hook("another", **{key: given[key] for key in wanted})) is None
    assert f"netplug_open_{interface}" in module.__all__


@pytest.mark.parametrize("module", MODULES)
def test_registering_imports_no_client(module: str) -> None:
    """Outside its hooks a module of hooks imports nothing but the standard library and the core."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.module.split(".")[0] in {"__future__", "collections", "contextlib", "typing", "netplug_core"}
        assert not isinstance(node, ast.Import)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_describes_what_the_catalog_says_of_it(module: str) -> None:
    description: BackendDescription = importlib.import_module(module).netplug_describe()
    assert description.version == __version__
    assert {(interface, name) for interface, names in description.names.items() for name in names} == {
        (interface, name) for interface, name in ENTRIES if CATALOG[interface][name] == module
    }


def test_the_entry_points_of_the_distribution_are_the_catalog() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["netplug.backends"] == {
        name: CATALOG[interface][name] for interface, name in ENTRIES
    }
