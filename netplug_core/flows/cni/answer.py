"""Answers one invocation from beginning to end: decode, load, open, run the flow, render.

The executables and the node process call :func:`answer`, so that a call is answered in one way only. This is the one
place where exceptions become the error object. A call is checked in this order: flags, variables, standard input, JSON,
name, version, command, namespace, network configuration. A command imports its own flow and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from types import ModuleType
from typing import NoReturn, TypeAlias

from netplug_core.cni.dispatch import (
    FLAGS,
    NEWEST_VERSION,
    RESUME_FLAG,
    TEST_FLAG,
    CNICommand,
    Invocation,
    Plugin,
    ProcessOutput,
    answer_at_once,
    read_stdin,
    reported_version,
)
from netplug_core.cni.errors import collect_secrets, describe_error, render_error
from netplug_core.cni.request import CNIRequest, decode_netconf, make_request, parse_environment
from netplug_core.cni.result import CNIResult, render_result
from netplug_core.errors import ConnectionTestFailed, NamespaceError, NetplugError, UsageError, excerpt
from netplug_core.flows.world import CNIWorld
from netplug_core.log import CallLog, Level, Log
from netplug_core.netconf.load import LoadPurpose, load
from netplug_core.netconf.model import NetConf

__all__ = ["FLOWS", "OpenWorld", "answer", "find_flow", "refuse", "run_invocation"]

OpenWorld: TypeAlias = Callable[[NetConf, Log, CNIRequest | None], AbstractContextManager[CNIWorld]]
"""Opens what a configuration names. Without a request, no other IPAM plugin is executed."""

Flow: TypeAlias = Callable[[CNIWorld, CNIRequest, NetConf], CNIResult | None]
"""Serves one command. Without a result, success prints nothing."""

FLOWS: Mapping[Plugin, Mapping[CNICommand, tuple[str, str]]] = {
    Plugin.MAIN: {
        CNICommand.ADD: ("add", "add"),
        CNICommand.DEL: ("delete", "delete"),
        CNICommand.CHECK: ("check", "check"),
        CNICommand.STATUS: ("status", "status"),
        CNICommand.GC: ("gc", "gc"),
    },
    Plugin.IPAM: {
        CNICommand.ADD: ("add", "assign_addresses"),
        CNICommand.DEL: ("delete", "release_addresses"),
        CNICommand.CHECK: ("check", "check_addresses"),
        CNICommand.STATUS: ("status", "status_addresses"),
        CNICommand.GC: ("gc", "collect"),
    },
}
"""Module and function of each command, as text: a process that serves one call imports one flow."""


def answer(
    invocation: Invocation, open_world: OpenWorld, *, log: CallLog, is_own_namespace: Callable[[str], bool]
) -> ProcessOutput:
    """The output for one call of a runtime. What was opened is closed.

    ``is_own_namespace`` is whether a path is the network namespace of this process; it is false for a path that cannot
    be opened.
    """
    plugin = invocation.identity.plugin

    def serve(request: CNIRequest) -> CNIResult | None:
        netconf = load(request.netconf_mapping, plugin, LoadPurpose.of(request.command))
        log.configure(netconf.log)
        log(Level.DEBUG, "call begins", command=request.command.value, container=request.container_id)
        with open_world(netconf, log, request if plugin is Plugin.MAIN else None) as world:
            return find_flow(plugin, request.command)(world, request, netconf)

    def test_connection(netconf_mapping: Mapping[str, object]) -> None:
        netconf = load(netconf_mapping, plugin, LoadPurpose.SETUP)
        log.configure(netconf.log)
        require_connection: Callable[[CNIWorld, NetConf], None] = _import("gc").require_connection
        with open_world(netconf, log, None) as world:
            require_connection(world, netconf)

    return run_invocation(
        invocation,
        serve=serve,
        test_connection=test_connection,
        is_own_namespace=is_own_namespace,
        log=lambda text: log(Level.ERROR, text),
    )


def refuse(invocation: Invocation, error: NetplugError, *, log: Log) -> ProcessOutput:
    """The output for a call that is not served, because of an error: nothing is opened, no namespace is looked at.

    A call that is wrong in itself gets its own error.
    """

    def fail(_call: object) -> NoReturn:
        raise error

    return run_invocation(
        invocation,
        serve=fail,
        test_connection=fail,
        is_own_namespace=lambda _path: False,
        log=lambda text: log(Level.ERROR, text),
    )


def run_invocation(
    invocation: Invocation,
    *,
    serve: Callable[[CNIRequest], CNIResult | None],
    test_connection: Callable[[Mapping[str, object]], None],
    is_own_namespace: Callable[[str], bool],
    log: Callable[[str], None],
) -> ProcessOutput:
    """The output for one call, whose request is handed to ``serve``. Every exception becomes the error object.

    ``test_connection`` gets the configuration of a call with the flag ``-t``. ``log`` writes the text of a call that
    failed, at the level of errors, and must not raise.
    """
    netconf: Mapping[str, object] = {}
    version = NEWEST_VERSION.text
    try:
        _refuse_unknown_flags(invocation.flags)
        output = answer_at_once(invocation)
        if output is not None:
            return output
        # The test of the connection is made by an installer, which has no container and sets no variables.
        environment = None if TEST_FLAG in invocation.flags else parse_environment(invocation.environ)
        text = read_stdin(invocation.stdin)
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
        result = serve(request)
        return ProcessOutput() if result is None else ProcessOutput(stdout=render_result(result, version))
    except Exception as error:  # noqa: BLE001  for any exception the runtime gets one error object
        failure = describe_error(error, secrets=collect_secrets(netconf))
        log(failure.log_text)
        return ProcessOutput(stdout=render_error(failure, version), exit_status=1)


def find_flow(plugin: Plugin, command: CNICommand) -> Flow:
    """The flow of a command, imported now."""
    module, name = FLOWS[plugin][command]
    flow: Flow = getattr(_import(module), name)
    return flow


def _import(module: str) -> ModuleType:
    return import_module(f"netplug_core.flows.cni.{module}")


def _refuse_unknown_flags(flags: tuple[str, ...]) -> None:
    unknown = [flag for flag in flags if flag not in FLAGS]
    if unknown:
        accepted = f"{', '.join(FLAGS)} are accepted"
        raise UsageError("failed to parse CLI flags", f'unknown argument "{excerpt(unknown[0])}"; {accepted}')


def _refuse_own_namespace(request: CNIRequest, is_own_namespace: Callable[[str], bool]) -> None:
    if request.command is CNICommand.ADD and not request.has_netns_override and is_own_namespace(request.netns):
        raise NamespaceError("plugin's netns and netns from CNI_NETNS should not be the same")


def _answer_test(
    netconf: Mapping[str, object], test_connection: Callable[[Mapping[str, object]], None]
) -> ProcessOutput:
    try:
        test_connection(netconf)
    except NetplugError as error:
        raise ConnectionTestFailed("data store connection failed", str(error)) from None
    return ProcessOutput()
