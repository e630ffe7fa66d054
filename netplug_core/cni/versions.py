"""The versions of the CNI specification that netplug speaks: one row for each, and the rules of negotiation.

Called by ``request`` and ``dispatch`` (which version does this call use, may it have this command?) and by
``result`` (what does an answer look like there?). Whatever differs between versions is a column here; no
other module compares versions.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import IncompatibleVersion, excerpt

__all__ = [
    "NEWEST_VERSION", "SUPPORTED_VERSIONS", "CNICommand", "CNIVersion", "ResultFormat", "find_version",
    "negotiate_version", "reported_version", "require_command",
]  # fmt: skip


class CNICommand(enum.Enum):
    """The command of a call: the value of CNI_COMMAND."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"

    __hash__ = object.__hash__  # without a call of the function that enum has


class ResultFormat(enum.Enum):
    """How a result writes its addresses."""

    PER_FAMILY = "one address per family, under ip4 and ip6, each with its own routes"
    LIST_WITH_VERSION = "a list, each entry with its IP version"
    LIST = "a list"


@frozen(kw_only=True)
class CNIVersion:
    """One version of the specification.

    ``has_extended_fields``: interfaces may carry mtu, socketPath and pciID, and routes mtu, advmss, priority, table
    and scope.
    """

    text: str
    commands: frozenset[CNICommand]
    result_format: ResultFormat
    has_extended_fields: bool = False


_BASE_COMMANDS = frozenset({CNICommand.ADD, CNICommand.DEL, CNICommand.VERSION})
_COMMANDS_WITH_CHECK = _BASE_COMMANDS | {CNICommand.CHECK}
_ALL_COMMANDS = frozenset(CNICommand)

SUPPORTED_VERSIONS = (
    CNIVersion(text="0.1.0", commands=_BASE_COMMANDS, result_format=ResultFormat.PER_FAMILY),
    CNIVersion(text="0.2.0", commands=_BASE_COMMANDS, result_format=ResultFormat.PER_FAMILY),
    CNIVersion(text="0.3.0", commands=_BASE_COMMANDS, result_format=ResultFormat.LIST_WITH_VERSION),
    CNIVersion(text="0.3.1", commands=_BASE_COMMANDS, result_format=ResultFormat.LIST_WITH_VERSION),
    CNIVersion(text="0.4.0", commands=_COMMANDS_WITH_CHECK, result_format=ResultFormat.LIST_WITH_VERSION),
    CNIVersion(text="1.0.0", commands=_COMMANDS_WITH_CHECK, result_format=ResultFormat.LIST),
    CNIVersion(text="1.1.0", commands=_ALL_COMMANDS, result_format=ResultFormat.LIST, has_extended_fields=True),
)
"""Every version supported, the oldest first. Source: CNI specification, "Released versions"."""

NEWEST_VERSION = SUPPORTED_VERSIONS[-1]
"""The version of an answer if the configuration names none."""

_BY_TEXT = {version.text: version for version in SUPPORTED_VERSIONS}

# A configuration without a cniVersion is served as the first version. Answers to it have always said 0.2.0, which
# has the same shape.
_VERSION_WHEN_ABSENT = SUPPORTED_VERSIONS[0]
_REPORTED_WHEN_ABSENT = "0.2.0"


def find_version(text: str) -> CNIVersion | None:
    """The row of a version, or None when it is not supported."""
    return _BY_TEXT.get(text)


def negotiate_version(requested: str) -> CNIVersion:
    """The version that serves a configuration; an empty ``cniVersion`` means it has none.

    Raises:
        IncompatibleVersion: it is not one of ours.
    """
    if not requested:
        return _VERSION_WHEN_ABSENT
    version = find_version(requested)
    if version is None:
        supported = ", ".join(_BY_TEXT)
        raise IncompatibleVersion(
            "incompatible CNI versions", f'config is "{excerpt(requested)}", plugin supports [{supported}]'
        )
    return version


def require_command(version: CNIVersion, command: CNICommand) -> None:
    """Refuse a command that a version does not have.

    Raises:
        IncompatibleVersion: naming the first version that has it.
    """
    if command in version.commands:
        return
    first = next(row.text for row in SUPPORTED_VERSIONS if command in row.commands)
    raise IncompatibleVersion(
        f"config version does not allow {command.value}",
        f'config is "{version.text}", {command.value} needs {first} or later',
    )


def reported_version(configured: object) -> str:
    """The ``cniVersion`` that an answer carries, even if the value under that key is not a version.

    A version is repeated even when it is not supported, so that the runtime recognises its own; what is no
    version at all is answered with the newest.
    """
    if configured is None or configured == "":
        return _REPORTED_WHEN_ABSENT
    if isinstance(configured, str) and (configured in _BY_TEXT or _is_version(configured)):
        return configured
    return NEWEST_VERSION.text


def _is_version(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == len(NEWEST_VERSION.text.split(".")) and all(_is_plain_number(part) for part in parts)


def _is_plain_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
