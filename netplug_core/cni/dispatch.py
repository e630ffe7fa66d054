"""One invocation from beginning to end: text in, text and an exit status out.

The executables pass the arguments, variables and input of the process, and print the output. This is the one place
where exceptions become the error object. A call is checked in this order: flags, variables, standard input, JSON,
name, version, command, namespace. VERSION and ``-v`` are answered first and load nothing else. ``-t`` tests the
datastore of the configuration on standard input; no variable is looked at. ``--resume`` says that another process began
the call and did not finish it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from attrs import field, frozen

from netplug_core.cni.versions import NEWEST_VERSION, SUPPORTED_VERSIONS, CNICommand, find_version, reported_version
from netplug_core.errors import (
    ConnectionTestFailed,
    DecodeError,
    NamespaceError,
    NetplugError,
    ReadError,
    UsageError,
    excerpt,
)

# Runtimes call VERSION before every pod, so what only the other commands need is imported with them.
if TYPE_CHECKING:
    from netplug_core.cni.request import CNIRequest
    from netplug_core.cni.result import CNIResult

__all__ = [
    "RESUME_FLAG",
    "ConnectionTest",
    "Handler",
    "Invocation",
    "Plugin",
    "PluginIdentity",
    "ProcessOutput",
    "plugin_from_argv0",
    "run_invocation",
]

Handler: TypeAlias = "Callable[[CNIRequest], CNIResult | None]"
"""Serves one command. Without a result, success prints nothing."""

ConnectionTest: TypeAlias = "Callable[[Mapping[str, object]], None]"
"""Returns if the datastore of a network configuration answers and is ready; otherwise raises."""

RESUME_FLAG = "--resume"
"""The argument of a call that another process began."""

_VERSION_FLAG, _TEST_FLAG = "-v", "-t"
_FLAGS = (_VERSION_FLAG, _TEST_FLAG, RESUME_FLAG)


class Plugin(enum.Enum):
    """The two executables, by the names that they are installed as."""

    MAIN = "netplug"
    IPAM = "netplug-ipam"


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


def run_invocation(
    invocation: Invocation,
    *,
    handlers: Mapping[CNICommand, Handler],
    is_own_namespace: Callable[[str], bool],
    test_connection: ConnectionTest,
    log: Callable[[str], None],
) -> ProcessOutput:
    """The output for an invocation. Exceptions of a handler become an error object.

    ``handlers`` has one entry for each command except VERSION. ``is_own_namespace`` is whether a path is the network
    namespace of this process; it is false for a path that cannot be opened. ``test_connection`` serves the flag
    ``-t``. ``log`` writes the text of a call that failed, at the level of errors, and must not raise.
    """
    netconf: Mapping[str, object] = {}
    version = NEWEST_VERSION.text
    try:
        output = _answer_without_request(invocation)
        if output is not None:
            return output
        from netplug_core.cni.request import decode_netconf, make_request, parse_environment

        # The test of the connection is made by an installer, which has no container and sets no variables.
        environment = None if _TEST_FLAG in invocation.flags else parse_environment(invocation.environ)
        text = _read_stdin(invocation.stdin)
        netconf = decode_netconf(text)
        version = reported_version(netconf.get("cniVersion"))
        if environment is None:
            return _answer_test(netconf, test_connection)
        request = make_request(
            environment,
            netconf_text=text,
            netconf_mapping=netconf,
            environ=invocation.environ,
            is_resumed=RESUME_FLAG in invocation.flags,
        )
        _refuse_own_namespace(request, is_own_namespace)
        return _success_output(handlers[request.command](request), version)
    except Exception as error:  # noqa: BLE001  for any exception the runtime gets one error object
        return _error_output(error, netconf_mapping=netconf, version=version, log=log)


def _answer_without_request(invocation: Invocation) -> ProcessOutput | None:
    unknown = [flag for flag in invocation.flags if flag not in _FLAGS]
    if unknown:
        accepted = f"{', '.join(_FLAGS)} are accepted"
        raise UsageError("failed to parse CLI flags", f'unknown argument "{excerpt(unknown[0])}"; {accepted}')
    if _VERSION_FLAG in invocation.flags:
        return ProcessOutput(stdout=f"{invocation.identity.version}\n")
    if _TEST_FLAG in invocation.flags:
        return None
    if not any(name.startswith("CNI_") for name in invocation.environ):
        return ProcessOutput(stderr=_usage_text(invocation.identity))
    if invocation.environ.get("CNI_COMMAND") == CNICommand.VERSION.value:
        return ProcessOutput(stdout=_version_output(_requested_version(invocation.stdin)))
    return None


def _answer_test(netconf: Mapping[str, object], test_connection: ConnectionTest) -> ProcessOutput:
    try:
        test_connection(netconf)
    except NetplugError as error:
        raise ConnectionTestFailed("data store connection failed", str(error)) from None
    return ProcessOutput()


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
        document: object = json.loads(_read_stdin(stdin))
    except (ReadError, DecodeError, ValueError, RecursionError):
        return NEWEST_VERSION.text
    version = document.get("cniVersion") if isinstance(document, dict) else None
    return version if isinstance(version, str) and find_version(version) else NEWEST_VERSION.text


def _read_stdin(stdin: Callable[[], str | bytes]) -> str:
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


def _refuse_own_namespace(request: CNIRequest, is_own_namespace: Callable[[str], bool]) -> None:
    if request.command is not CNICommand.ADD or request.has_netns_override:
        return
    if is_own_namespace(request.netns):
        raise NamespaceError("plugin's netns and netns from CNI_NETNS should not be the same")


def _success_output(result: CNIResult | None, version: str) -> ProcessOutput:
    if result is None:
        return ProcessOutput()
    from netplug_core.cni.result import render_result

    return ProcessOutput(stdout=render_result(result, version))


def _error_output(
    error: Exception, *, netconf_mapping: Mapping[str, object], version: str, log: Callable[[str], None]
) -> ProcessOutput:
    from netplug_core.cni.errors import collect_secrets, describe_error, render_error

    failure = describe_error(error, secrets=collect_secrets(netconf_mapping))
    log(failure.log_text)
    return ProcessOutput(stdout=render_error(failure, version), exit_status=1)
