"""The rows of the version table, and what negotiation makes of them."""

import pytest

from netplug_core.cni.dispatch import (
    NEWEST_VERSION,
    SUPPORTED_VERSIONS,
    CNICommand,
    ResultFormat,
    find_version,
    negotiate_version,
    reported_version,
    require_command,
)
from netplug_core.errors import IncompatibleVersion

TEXTS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


def test_every_released_version_has_one_row() -> None:
    assert tuple(version.text for version in SUPPORTED_VERSIONS) == TEXTS
    assert NEWEST_VERSION.text == "1.1.0"


@pytest.mark.parametrize("text", TEXTS)
def test_a_version_is_found_and_negotiated_by_its_text(text: str) -> None:
    assert negotiate_version(text) is find_version(text)
    assert negotiate_version(text).text == text


def test_an_unstated_version_is_served_as_the_first() -> None:
    assert negotiate_version("").text == "0.1.0"


@pytest.mark.parametrize("text", ["9.9.9", "1.0", "v1.0.0", "1.0.0 ", "banana"])
def test_an_unknown_version_is_refused_with_the_list(text: str) -> None:
    assert find_version(text) is None
    with pytest.raises(IncompatibleVersion) as refusal:
        negotiate_version(text)
    assert str(refusal.value) == "incompatible CNI versions"
    assert refusal.value.details == (
        f'config is "{text}", plugin supports [0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0]'
    )


@pytest.mark.parametrize(
    "command,first",
    [
        (CNICommand.ADD, "0.1.0"),
        (CNICommand.DEL, "0.1.0"),
        (CNICommand.VERSION, "0.1.0"),
        (CNICommand.CHECK, "0.4.0"),
        (CNICommand.GC, "1.1.0"),
        (CNICommand.STATUS, "1.1.0"),
    ],
)
def test_a_command_is_allowed_from_the_version_that_brought_it(command: CNICommand, first: str) -> None:
    for position, version in enumerate(SUPPORTED_VERSIONS):
        if position >= TEXTS.index(first):
            require_command(version, command)
            assert command in version.commands
            continue
        with pytest.raises(IncompatibleVersion) as refusal:
            require_command(version, command)
        assert str(refusal.value) == f"config version does not allow {command.value}"
        assert refusal.value.details == f'config is "{version.text}", {command.value} needs {first} or later'


def test_the_shape_of_addresses_changed_twice() -> None:
    shapes = [version.result_format for version in SUPPORTED_VERSIONS]
    assert shapes == [
        *[ResultFormat.PER_FAMILY] * 2,
        *[ResultFormat.LIST_WITH_VERSION] * 3,
        *[ResultFormat.LIST] * 2,
    ]


def test_only_the_newest_version_has_the_details() -> None:
    assert [version.text for version in SUPPORTED_VERSIONS if version.has_extended_fields] == ["1.1.0"]


@pytest.mark.parametrize(
    "asked,printed",
    [
        (None, "0.2.0"),
        ("", "0.2.0"),
        ("0.1.0", "0.1.0"),
        ("1.0.0", "1.0.0"),
        ("9.9.9", "9.9.9"),
        ("10.0.20", "10.0.20"),
        ("1.0", "1.1.0"),
        ("01.0.0", "1.1.0"),
        ("1..0", "1.1.0"),
        ("\u0661.0.0", "1.1.0"),
        ("banana", "1.1.0"),
        (1.0, "1.1.0"),
        ([], "1.1.0"),
    ],
)
def test_answers_repeat_whatever_is_a_version(asked: object, printed: str) -> None:
    assert reported_version(asked) == printed
