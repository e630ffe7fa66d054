"""Calls of another IPAM plugin, a program: the variables that it gets, and what its answer means.

``netplug_backends.delegate`` finds and runs the program. Nothing here runs anything. The program gets the network
configuration as the runtime sent it, so that is no concern of this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import ClassVar, Final

from attrs import frozen

from netplug_core.addressing import Address, Prefix, unusable_ranges
from netplug_core.cni.dispatch import CNICommand
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult, IPConfig, parse_result
from netplug_core.decoding.codecs import INTEGER, NONEMPTY_STRING, STRING
from netplug_core.decoding.tables import Decoder, Field, Table, cni_error
from netplug_core.errors import ConfigurationError, DecodeError, ErrorCode, NetplugError, excerpt, quote
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment
from netplug_core.ipam.model import Pairs

__all__ = [
    "IPAMPluginError", "IPAMPluginFailed", "IPAMPluginTimeout", "PluginOutput", "assignment_of", "is_unknown_command",
    "parse_answer", "plugin_environment", "require_no_loop",
]  # fmt: skip

_MARK: Final = "NETPLUG_DELEGATED"  # netplug runs as the IPAM plugin of itself
_IGNORE_UNKNOWN: Final = "IgnoreUnknown=1"
_ATTACHMENT: Final = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS")
_MAX_CODE: Final = 0xFFFFFFFF
# Old versions of the CNI project's plugins miss a container (3) before they look at the command.
_UNKNOWN: Final = (ErrorCode.INCOMPATIBLE_VERSION.number, 3, ErrorCode.BAD_REQUEST.number)


@frozen(kw_only=True)
class IPAMPluginError(NetplugError, error_code=ErrorCode.IPAM_PLUGIN_FAILED):
    """An error that another IPAM plugin reported. A runtime gets its code (160 if it is none), text and details."""

    next_step: ClassVar[str] = ""  # the text is the plugin's own

    plugin: str
    own_code: int
    message: str
    details: str = ""

    @property
    def reported_code(self) -> int:
        """The plugin's own code."""
        return self.own_code

    def __str__(self) -> str:
        return excerpt(self.message)


@frozen(kw_only=True)
class IPAMPluginFailed(NetplugError, error_code=ErrorCode.IPAM_PLUGIN_FAILED):
    """Another IPAM plugin cannot be executed, or its answer is none (code 160)."""

    plugin: str
    command: CNICommand
    problem: str
    details: str = ""

    def __str__(self) -> str:
        return f"the IPAM plugin {excerpt(self.plugin)}, {self.command.value}: {self.problem}"


@frozen(kw_only=True)
class IPAMPluginTimeout(NetplugError, error_code=ErrorCode.TRY_AGAIN):
    """Another IPAM plugin did not end by the deadline, and was killed with its processes (code 11)."""

    plugin: str
    command: CNICommand
    seconds: float

    def __str__(self) -> str:
        return (
            f"the IPAM plugin {excerpt(self.plugin)}, {self.command.value}: it did not end within {self.seconds:.1f} s"
            " and was killed"
        )


@frozen(kw_only=True)
class PluginOutput:
    """What a program wrote until it ended. ``status`` is negative if a signal ended it."""

    status: int
    stdout: bytes
    stderr: bytes = b""


# --- what the program gets ----------------------------------------------------------------------------------------


def require_no_loop(request: CNIRequest) -> None:
    """Return if this process is not itself run as an IPAM plugin by netplug.

    Raises:
        ConfigurationError: it is, so it would run itself again and again.
    """
    name = request.environ.get(_MARK)
    if name:
        raise ConfigurationError("network configuration.ipam.type", name, "that program is netplug itself")


def plugin_environment(request: CNIRequest, command: CNICommand, plugin: str, owner: Pairs = ()) -> dict[str, str]:
    """The variables for a program: those of the call, with this command.

    ``owner`` are the attributes of the attachment that the program is run for. If it is not that of the call, as in a
    GC, the variables name it: its network namespace is not known then, and CNI_ARGS names its pod. A DEL leaves out
    what it does not judge in CNI_ARGS either: the program would refuse it, and the container could not be removed.
    """
    environ = {**request.environ, "CNI_COMMAND": command.value, _MARK: plugin}
    attachment = dict(owner)
    is_delete = request.command is CNICommand.DEL
    arguments = _render_pairs(request.args.pairs) if is_delete else environ.get("CNI_ARGS", "")
    if owner and (attachment["container"], attachment["interface"]) != (request.container_id, request.ifname):
        for name in _ATTACHMENT:
            environ.pop(name, None)
        environ["CNI_CONTAINERID"], environ["CNI_IFNAME"] = attachment["container"], attachment["interface"]
        arguments = _render_pairs(
            (key, attachment[name])
            for key, name in (("K8S_POD_NAMESPACE", "namespace"), ("K8S_POD_NAME", "pod"))
            if name in attachment
        )
    # Programs that know no K8S_POD_NAME refuse it otherwise.
    environ["CNI_ARGS"] = f"{_IGNORE_UNKNOWN};{arguments}" if arguments else _IGNORE_UNKNOWN
    return environ


def _render_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return ";".join(f"{key}={value}" for key, value in pairs)


# --- what its answer means ----------------------------------------------------------------------------------------


def parse_answer(plugin: str, request: CNIRequest, command: CNICommand, output: PluginOutput) -> CNIResult:
    """The result that a program printed; an empty one for a command that has none.

    Raises:
        IPAMPluginError: the program reported an error.
        IPAMPluginFailed: it failed without one, or printed something else than a result.
    """

    def failed(problem: str) -> IPAMPluginFailed:
        return IPAMPluginFailed(plugin=plugin, command=command, problem=problem, details=_excerpt(output.stderr))

    document = _find_document(output.stdout)
    if (reported := _find_error(plugin, document)) is not None:
        raise reported
    if output.status != 0:
        raise failed(f"{_end(output)} and reported no error; {_shown(output)}")
    if command is not CNICommand.ADD:
        return CNIResult()
    if document is None:
        raise failed(f"its result is no JSON; {_shown(output)}")
    try:
        return parse_result(document, path="its result", cni_version=request.cni_version)
    except (DecodeError, ConfigurationError) as error:
        raise failed(str(error)) from None


def is_unknown_command(error: NetplugError) -> bool:
    """Whether a program says that it does not have STATUS or GC, or not in this version."""
    return isinstance(error, IPAMPluginError) and error.own_code in _UNKNOWN


def assignment_of(plugin: str, result: CNIResult) -> Assignment:
    """The addresses of a result, what it reaches, and how it resolves names. Gateways of routes are dropped.

    Raises:
        IPAMPluginFailed: there is no address, or one that no workload can have.
    """
    if not result.ips:
        raise _bad_result(plugin, "its result has no address")
    for ip in result.ips:
        for word, reserved in unusable_ranges(ip.address.host_prefix):
            raise _bad_result(plugin, f"its result has the address {ip}, and {reserved} is {word}")
    found: dict[Address, IPConfig] = {}
    for ip in result.ips:
        found.setdefault(ip.address, ip)
    return Assignment(
        addresses=tuple(
            AssignedAddress(address=ip.address, prefix=Prefix.at(ip.address, ip.length), gateway=ip.gateway)
            for ip in found.values()
        ),
        routes=tuple(dict.fromkeys(route.destination for route in result.routes)),
        dns=result.dns,
    )


def _bad_result(plugin: str, problem: str) -> IPAMPluginFailed:
    return IPAMPluginFailed(plugin=plugin, command=CNICommand.ADD, problem=problem)


@frozen(kw_only=True)
class _ErrorObject:
    """An error as the specification has it. Source: CNI specification, "Error"."""

    code: int
    message: str
    details: str = ""


@cache
def _decoder() -> Decoder:
    fields = {
        "code": Field("code", INTEGER, is_required=True),
        "message": Field("msg", NONEMPTY_STRING, is_required=True),
        "details": Field("details", STRING),
    }
    return Decoder(cni_error, tables=(Table(cls=_ErrorObject, fields=fields),))


def _find_document(stdout: bytes) -> object:
    try:
        document: object = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    return document


def _find_error(plugin: str, document: object) -> IPAMPluginError | None:
    """The error that a document is; a result has no code."""
    try:
        found = _decoder().decode(document, _ErrorObject, "")
    except (DecodeError, ConfigurationError):
        return None
    code = found.code if 0 < found.code <= _MAX_CODE else ErrorCode.IPAM_PLUGIN_FAILED.number
    return IPAMPluginError(plugin=plugin, own_code=code, message=found.message, details=excerpt(found.details))


def _end(output: PluginOutput) -> str:
    if output.status < 0:
        return f"it was ended by signal {-output.status}"
    return f"it ended with status {output.status}"


def _shown(output: PluginOutput) -> str:
    """What a program wrote, as a message shows it."""
    for name, text in (("standard output", output.stdout), ("standard error", output.stderr)):
        if text.strip():
            return f"its {name} begins with {quote(_excerpt(text))}"
    return "it wrote nothing"


def _excerpt(text: bytes) -> str:
    return excerpt(text[:1000].decode(errors="backslashreplace").strip())
