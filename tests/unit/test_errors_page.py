"""The page of error codes is what the table of codes and their meanings make."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import netplug_backends
import netplug_cli
import netplug_core
from netplug_core.errors import ErrorCode, NetplugError
from tools.errors import PAGE, render_page


def test_the_page_is_generated() -> None:
    assert PAGE.read_text() == render_page(), "python -m tools.errors writes it anew"


def test_a_number_and_an_identifier_stand_once_in_the_table() -> None:
    identifiers = [code.identifier for code in ErrorCode if code.identifier]
    assert len(set(identifiers)) == len(identifiers)
    numbers = [code.number for code in ErrorCode]
    assert numbers == sorted(set(numbers))


def error_classes(base: type[NetplugError] = NetplugError) -> Iterator[type[NetplugError]]:
    for below in base.__subclasses__():
        yield below
        yield from error_classes(below)


def test_every_error_has_its_code_from_the_table() -> None:
    """An error class that sets a number by itself has no row, and so no place on the page."""
    for package in (netplug_core, netplug_backends, netplug_cli):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            if ".testing" not in found.name:
                import_module(found.name)
    classes = list(error_classes())
    assert len(classes) > len(ErrorCode)
    for each in classes:
        if isinstance(vars(each).get("code"), int):
            assert (each.code, each.identifier) == (each.error_code.number, each.error_code.identifier), each
            assert "error_code" in vars(each), each
