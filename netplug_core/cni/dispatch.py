"""One invocation of an executable, as values: its arguments, variables and input, and its output.

The executables and the node process make an :class:`Invocation`. VERSION, ``-v`` and the usage are answered here, and
load nothing else: runtimes call VERSION before every pod. ``netplug_core.flows.cni.call`` answers all others. The
versions of the specification are here too, and which commands each has.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping

from attrs import field, frozen

from netplug_core.errors import DecodeError, IncompatibleVersion, ReadError, excerpt

__all__ = [
    "FLAGS", "NEWEST_VERSION", "RESUME_FLAG", "SUPPORTED_VERSIONS", "TEST_FLAG", "CNICommand", "CNIVersion",
    "Invocation", "Plugin", "PluginIdentity", "ProcessOutput", "ResultFormat", "answer_at_once", "find_version",
    "negotiate_version", "plugin_from_argv0", "read_stdin", "reported_version", "require_command",
]  # fmt: skip


# --- versions --------------------------------------------------------------------------------------------------------


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


# --- dispatch --------------------------------------------------------------------------------------------------------


RESUME_FLAG = "--resume"
"""The argument of a call that another process began."""

TEST_FLAG = "-t"
"""The argument that tests the datastore of the configuration on standard input; no variable is looked at."""

_VERSION_FLAG = "-v"

FLAGS = (_VERSION_FLAG, TEST_FLAG, RESUME_FLAG)
"""The arguments that are accepted."""


class Plugin(enum.Enum):
    """The two executables, by the names that they are installed as."""

    MAIN = "netplug"
    IPAM = "netplug-ipam"

    @property
    def log_name(self) -> str:
        """How the lines of its log name it."""
        return "cni-plugin" if self is Plugin.MAIN else "ipam"


@frozen(kw_only=True)
class PluginIdentity:
    """Which of the two plugins runs, and its release, such as ``3.33.0``."""

    plugin: Plugin
    version: str


@frozen(kw_only=True)
class Invocation:
    """The arguments, variables and input of the process.

    ``flags`` are the arguments after argv[0]. ``stdin`` reads all of standard input, or raises OSError; it is called
    at most once.
    """

    identity: PluginIdentity
    flags: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(repr=False)
    stdin: Callable[[], str | bytes]


@frozen(kw_only=True)
class ProcessOutput:
    """The output of the process, and its exit status."""

    stdout: str = ""
    stderr: str = ""
    exit_status: int = 0


def plugin_from_argv0(argv0: str) -> Plugin:
    """The plugin that a file name means; any other name means the main plugin.

    ``-standalone`` after the name is that of the file which a client executes where no node process answers.
    """
    return Plugin.IPAM if argv0.rpartition("/")[2].removesuffix("-standalone") == Plugin.IPAM.value else Plugin.MAIN


def answer_at_once(invocation: Invocation) -> ProcessOutput | None:
    """The output for VERSION, ``-v`` and a call without any variable of CNI; None: the rest has to be judged first."""
    if any(flag not in FLAGS for flag in invocation.flags):
        return None
    if _VERSION_FLAG in invocation.flags:
        return ProcessOutput(stdout=f"{invocation.identity.version}\n")
    if TEST_FLAG in invocation.flags:
        return None
    if not any(name.startswith("CNI_") for name in invocation.environ):
        return ProcessOutput(stderr=_usage_text(invocation.identity))
    if invocation.environ.get("CNI_COMMAND") == CNICommand.VERSION.value:
        return ProcessOutput(stdout=_version_output(_requested_version(invocation.stdin)))
    return None


def _usage_text(identity: PluginIdentity) -> str:
    supported = ", ".join(version.text for version in SUPPORTED_VERSIONS)
    return (
        f"{identity.plugin.value} {identity.version}: a CNI plugin; container runtimes run it\n"
        f"CNI protocol versions supported: {supported}\n"
    )


def _version_output(cni_version: str) -> str:
    supported = [version.text for version in SUPPORTED_VERSIONS]
    return json.dumps({"cniVersion": cni_version, "supportedVersions": supported}, indent=4) + "\n"


def _requested_version(stdin: Callable[[], str | bytes]) -> str:
    # Old runtimes send no input with VERSION, so no input is no error here.
    try:
        document: object = json.loads(read_stdin(stdin))
    except (ReadError, DecodeError, ValueError, RecursionError):
        return NEWEST_VERSION.text
    version = document.get("cniVersion") if isinstance(document, dict) else None
    return version if isinstance(version, str) and find_version(version) else NEWEST_VERSION.text


def read_stdin(stdin: Callable[[], str | bytes]) -> str:
    """All of standard input.

    Raises:
        ReadError: it cannot be read.
        DecodeError: it is not UTF-8.
    """
    try:
        text = stdin()
    except OSError as error:
        raise ReadError(f"standard input cannot be read: {error}") from error
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("standard input", f"is not UTF-8: {error.reason} at byte {error.start}") from None
