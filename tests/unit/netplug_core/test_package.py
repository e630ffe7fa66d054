"""What the library offers at its top, and that importing it costs nothing."""

import subprocess
import sys

import pytest

import netplug_core


@pytest.mark.parametrize("name", netplug_core.__all__)
def test_every_offered_name_is_there(name: str) -> None:
    found = getattr(netplug_core, name)
    home = sys.modules[f"netplug_core.{netplug_core._HOMES[name]}"]  # noqa: SLF001  its table is what is tested
    assert found is getattr(home, name)
    assert name in home.__all__


def test_the_table_and_the_offer_are_the_same() -> None:
    assert sorted(netplug_core._HOMES) == sorted(netplug_core.__all__)  # noqa: SLF001  the same


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"^module 'netplug_core' has no attribute 'nothing'$"):
        _ = netplug_core.nothing


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import netplug_core; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in loaded if name.split(".")[0] in {"netplug_core", "attr", "pluggy"}] == ["netplug_core"]
