"""The versions of the CNI specification that netplug speaks: one row for each, and the rules of negotiation.

Called by ``request`` and ``dispatch`` (which version does this call use, may it have this command?) and by
``result`` (what does an answer look like there?). Whatever differs between versions is a column here; no
other module compares versions.
"""

from __future__ import annotations

import enum

from attrs import frozen

from netplug_core.errors import IncompatibleVersion

__all__ = [
    "NEWEST",
    "VERSIONS",
    "AddressShape",
    "Command",
    "SpecVersion",
    "find_version",
    "negotiate",
    "printed_version",
    "require_command",
]


class Command(enum.Enum):
    """What a runtime asks for: the value of CNI_COMMAND."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"


class AddressShape(enum.Enum):
    """How a result writes its addresses."""

    PER_FAMILY = "one address per family, under ip4 and ip6, each with its own routes"
    WITH_FAMILY = "a list, each entry with its IP version"
    PLAIN = "a list"


@frozen(kw_only=True)
class SpecVersion:
    """One version of the specification.

    ``has_details``: interfaces may carry mtu, socketPath and pciID, and routes mtu, advmss, priority, table
    and scope.
    """

    text: str
    commands: frozenset[Command]
    shape: AddressShape
    has_details: bool = False


_FIRST = frozenset({Command.ADD, Command.DEL, Command.VERSION})
_WITH_CHECK = _FIRST | {Command.CHECK}
_ALL = frozenset(Command)

VERSIONS = (
    SpecVersion(text="0.1.0", commands=_FIRST, shape=AddressShape.PER_FAMILY),
    SpecVersion(text="0.2.0", commands=_FIRST, shape=AddressShape.PER_FAMILY),
    SpecVersion(text="0.3.0", commands=_FIRST, shape=AddressShape.WITH_FAMILY),
    SpecVersion(text="0.3.1", commands=_FIRST, shape=AddressShape.WITH_FAMILY),
    SpecVersion(text="0.4.0", commands=_WITH_CHECK, shape=AddressShape.WITH_FAMILY),
    SpecVersion(text="1.0.0", commands=_WITH_CHECK, shape=AddressShape.PLAIN),
    SpecVersion(text="1.1.0", commands=_ALL, shape=AddressShape.PLAIN, has_details=True),
)
"""Every version supported, the oldest first. Source: CNI specification, "Released versions"."""

NEWEST = VERSIONS[-1]
"""What answers carry when nobody said which version to use."""

_BY_TEXT = {version.text: version for version in VERSIONS}

# A configuration from before there was a cniVersion is served as the first version; answers to it have always
# said 0.2.0, whose shape is the same.
_UNSTATED = VERSIONS[0]
_UNSTATED_PRINTED = "0.2.0"


def find_version(text: str) -> SpecVersion | None:
    """The row of a version, or None when it is not supported."""
    return _BY_TEXT.get(text)


def negotiate(asked: str) -> SpecVersion:
    """The version that serves a configuration; an empty ``cniVersion`` means it has none.

    Raises:
        IncompatibleVersion: it is not one of ours.
    """
    if not asked:
        return _UNSTATED
    version = find_version(asked)
    if version is None:
        supported = ", ".join(_BY_TEXT)
        raise IncompatibleVersion("incompatible CNI versions", f'config is "{asked}", plugin supports [{supported}]')
    return version


def require_command(version: SpecVersion, command: Command) -> None:
    """Refuse a command that a version does not have.

    Raises:
        IncompatibleVersion: naming the first version that has it.
    """
    if command in version.commands:
        return
    first = next(row.text for row in VERSIONS if command in row.commands)
    raise IncompatibleVersion(
        f"config version does not allow {command.value}",
        f'config is "{version.text}", {command.value} needs {first} or later',
    )


def printed_version(asked: object) -> str:
    """The ``cniVersion`` that an answer carries, whatever the configuration has under that key.

    A version is repeated even when it is not supported, so that the runtime recognises its own; what is no
    version at all is answered with the newest.
    """
    if asked is None or asked == "":
        return _UNSTATED_PRINTED
    if isinstance(asked, str) and _is_version(asked):
        return asked
    return NEWEST.text


def _is_version(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == len(NEWEST.text.split(".")) and all(_is_plain_number(part) for part in parts)


def _is_plain_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
