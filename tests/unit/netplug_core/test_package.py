"""What the library offers at its top, and that importing it costs nothing."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import netplug_core

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "api.md")]
_HOMES = netplug_core._HOMES  # noqa: SLF001  the table is what is tested


@pytest.mark.parametrize("home, name", [(home, name) for home, names in _HOMES.items() for name in names])
def test_every_offered_name_is_the_one_of_its_module(home: str, name: str) -> None:
    offered = getattr(netplug_core, name)
    module = sys.modules[f"netplug_core.{home}"]
    assert offered is getattr(module, name)
    assert name in module.__all__


def test_the_table_and_the_offer_are_the_same() -> None:
    assert sorted(name for names in _HOMES.values() for name in names) == sorted(netplug_core.__all__)
    assert set(netplug_core.__all__) <= set(dir(netplug_core))


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module 'netplug_core' has no attribute 'nothing'$"):
        _ = netplug_core.nothing


@pytest.mark.parametrize("name", netplug_core.__all__)
def test_every_offered_name_is_on_a_hand_written_page(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", page.read_text()) for page in PAGES)


def test_the_release_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert re.fullmatch(r"\d+\.\d+\.\d+", netplug_core.__version__)
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "netplug_core/__init__.py"
    assert project["tool"]["towncrier"]["package"] == "netplug_core"


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import netplug_core; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-IS", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {script}"],
                            check=True, capture_output=True, text=True).stdout.split()  # fmt: skip
    assert loaded == ["__future__", "netplug_core"]
