"""One invocation from beginning to end: decode, load, open, run the flow, render; and what the flows share.

They share node, workload, link and wanted addresses of a call, and the addresses themselves.

The executables and the node process call :func:`answer`, so that a call is answered in one way only. It is the one
place where exceptions become the error object. A call is checked in this order: flags, variables, standard input, JSON,
name, version, command, namespace, network configuration. A command imports its own flow and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from attrs import evolve, frozen

from netplug_core.addressing import Family, Prefix
from netplug_core.clock import Deadline
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
from netplug_core.cni.request import CNIRequest, decode_netconf, make_request, parse_environment
from netplug_core.cni.result import (
    CNIResult,
    collect_secrets,
    describe_error,
    parse_resolv_conf,
    render_error,
    render_result,
)
from netplug_core.dataplane.plan import find_mtu_problem
from netplug_core.dataplane.protocol import Forwarding, Link
from netplug_core.errors import (
    AllocationError,
    ConfigurationError,
    ConnectionTestFailed,
    ErrorCode,
    NamespaceError,
    NetplugError,
    Unavailable,
    UsageError,
    excerpt,
)
from netplug_core.flows.world import CNIWorld, Host, HostWorld
from netplug_core.ipam.allocation.request import (
    DNS,
    NO_DNS,
    Assignment,
    AssignRequest,
    Attachment,
    Automatic,
    LinkLayer,
    Released,
    ReleaseRequest,
    Shortfall,
    Specific,
    Wanted,
)
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.locks import DEL_LOCK_S, HOST_LOCK_S
from netplug_core.log import CallLog, Level, Log
from netplug_core.names import KUBERNETES_ORCHESTRATOR, require_node_name
from netplug_core.netconf.model import (
    HOST_LOCAL_IPAM,
    MAX_MTU,
    LoadPurpose,
    NetConf,
    Requested,
    RuntimeParameters,
    load,
)
from netplug_core.netconf.precedence import find_requested
from netplug_core.resources.fields import Labels
from netplug_core.resources.ippool import AllowedUse
from netplug_core.workload import NO_OPTIONS, EndpointOptions, WorkloadIdentity, endpoint_delete

if TYPE_CHECKING:
    from netplug_core.workload import PodDetails

__all__ = [
    "ASSIGN_S", "FLOWS", "RELEASE_S", "REMOVE_S", "AddressRequest", "AttachmentCall", "FoundPod", "NoAddressWanted",
    "OpenWorld", "answer", "assign", "assign_request_of", "attachment_lock", "find_flow", "link_between", "link_of",
    "machine_file", "machine_identity", "mtu_of", "node_of", "node_of_delete", "open_call", "refuse", "release",
    "release_after_failure", "remove_interface", "requested_of", "require_mtu", "require_nodename_file",
    "require_own_nodename_file", "require_supported", "routes_of", "run_invocation", "wanted_of", "workload_of",
]  # fmt: skip


# --- answer ----------------------------------------------------------------------------------------------------------


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
        CNICommand.GC: ("status", "gc"),
    },
    Plugin.IPAM: {
        CNICommand.ADD: ("add", "assign_addresses"),
        CNICommand.DEL: ("delete", "release_addresses"),
        CNICommand.CHECK: ("check", "check_addresses"),
        CNICommand.STATUS: ("status", "status_addresses"),
        CNICommand.GC: ("status", "collect"),
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
        require_connection: Callable[[CNIWorld, NetConf], None] = _import("status").require_connection
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


# --- call ------------------------------------------------------------------------------------------------------------


ASSIGN_S = 60.0
"""The most time that an assignment takes, apart from waiting for the host's lock."""

RELEASE_S = 10.0
"""The most time that a release takes."""

REMOVE_S = 20.0
"""The most time that the removal of an interface may take; some kernels hang on it."""

_NO_PARAMETERS = RuntimeParameters()
_NOTHING_REQUESTED = Requested()
_UNSET_MACHINE_NAMES = ("localhost", "(none)")  # what the kernel and installers call a machine without a name


class NoAddressWanted(AllocationError, error_code=ErrorCode.NO_ADDRESS_WANTED):
    """The configuration switches both families off, so there is nothing to assign (code 110)."""

    def __str__(self) -> str:
        return (
            'the configuration asks for no address: ipam.assign_ipv4 and ipam.assign_ipv6 are both "false"; '
            'set at least one to "true"'
        )


@frozen(kw_only=True)
class AddressRequest:
    """What an ADD asks for: the addresses to assign, and what pod and annotations say about its endpoint.

    ``names_addresses``: an annotation of the pod names the addresses to assign.
    """

    assign: AssignRequest
    options: EndpointOptions = NO_OPTIONS
    names_addresses: bool = False


@frozen(kw_only=True)
class FoundPod:
    """All annotations of a pod and of its namespace, the namespace's labels, and what the endpoint gets of the pod.

    ``details`` is None if the annotations are those that the runtime sent.
    """

    annotations: Labels
    namespace_annotations: Labels = ()
    namespace_labels: Labels = ()
    details: PodDetails | None = None


@frozen(kw_only=True)
class AttachmentCall:
    """One CNI command about one attachment. ``link`` has no MTU: ADD and CHECK set it.

    ``is_resumed``: another process began the call, and may have done a part of it or all.
    """

    netconf: NetConf
    workload: WorkloadIdentity
    link: Link
    is_resumed: bool = False

    @property
    def fields(self) -> dict[str, object]:
        """The call's identity, for log lines."""
        return {
            "container": self.workload.container_id,
            "interface": self.workload.interface,
            "network": self.workload.network,
            "node": self.workload.node,
        }


def open_call(request: CNIRequest, netconf: NetConf, node: str) -> AttachmentCall:
    """The call of a request on a node, with the names of the attachment."""
    workload = workload_of(request, node)
    settings = netconf.container_settings
    link = evolve(
        link_between(workload, request.netns),
        queues=netconf.num_queues,
        forwarding=Forwarding.ENABLED if settings.allow_ip_forwarding else Forwarding.DISABLED,
        routes=routes_of(netconf, netconf.ipam.routes),
    )
    return AttachmentCall(netconf=netconf, workload=workload, link=link, is_resumed=request.is_resumed)


def routes_of(netconf: NetConf, routes: tuple[Prefix, ...]) -> tuple[Prefix, ...] | None:
    """What a container reaches if an IPAM names these destinations; None for everything."""
    if not routes:
        return None
    defaults = tuple(Prefix(family, 0, 0) for family in Family) if netconf.include_default_routes else ()
    return (*defaults, *routes)


def link_between(workload: WorkloadIdentity, namespace: str) -> Link:
    """The link of a workload, whose namespace has that path (empty: not known), with the kernel's defaults."""
    return Link(
        namespace=namespace,
        name=workload.interface,
        host_name=workload.host_interface,
        alias=workload.host_interface_alias,
        former_host_name=workload.former_host_interface,
    )


def workload_of(request: CNIRequest, node: str) -> WorkloadIdentity:
    """The workload of a request."""
    is_pod = request.orchestrator == KUBERNETES_ORCHESTRATOR
    return WorkloadIdentity(
        node=node,
        network=request.network,
        container_id=request.container_id,
        interface=request.ifname,
        pod=request.args.pod_name if is_pod else "",
        pod_namespace=request.args.pod_namespace if is_pod else "",
        pod_uid=request.args.pod_uid if is_pod else "",
    )


def attachment_lock(world: CNIWorld, workload: WorkloadIdentity, *, wait_s: float) -> AbstractContextManager[bool]:
    """Keep other calls from the attachment of a workload; false if nothing can be locked on this machine.

    Raises:
        AttachmentBusy: another call has held the lock all the time.
    """
    return world.locks.attachment_lock(workload.network, workload.container_id, workload.interface, wait_s=wait_s)


def node_of(world: HostWorld, netconf: NetConf) -> str:
    """The name that this node is registered under: the first of four that is not empty.

    These are ``nodename``, the node-name file, ``hostname``, and the machine's name in lower case. A file that cannot
    be opened is logged and skipped: a later source may still name the node.

    Raises:
        ConfigurationError: it is no name of a node. Or only the machine's name is known, and it is one that many
            machines have: two nodes of one name would release each other's addresses.
        Unavailable: another machine wrote the file, and the node process of this one has not yet.
    """
    node, source = _find_configured_node(world, netconf)
    if node:
        return require_node_name(source, node)
    node = _machine_name(world)
    if node in _UNSET_MACHINE_NAMES or node.startswith("localhost."):
        accepted = "many machines have that name; set nodename to the name that this node is registered under"
        raise ConfigurationError(_MACHINE_NAME, node, accepted)
    return require_node_name(_MACHINE_NAME, node)


def node_of_delete(world: HostWorld, netconf: NetConf) -> str:
    """The node of a DEL whose attachment holds nothing; else the attributes of its addresses name the node.

    No name is refused: the interface has to go in any case.
    """
    try:
        return _find_configured_node(world, netconf)[0] or _machine_name(world)
    except Unavailable:
        return _machine_name(world)


def _machine_name(world: HostWorld) -> str:
    return world.host.host_name().strip().lower()


def _find_configured_node(world: HostWorld, netconf: NetConf) -> tuple[str, str]:
    """The name that a person or the node process has set, and where; empty if there is none.

    Raises:
        Unavailable: another machine wrote the file.
    """
    if netconf.nodename:
        return netconf.nodename, "nodename"
    text = None
    try:
        text = world.host.find_text(netconf.nodename_file)
    except OSError as error:
        world.log(Level.WARNING, "the node-name file cannot be read", path=netconf.nodename_file, cause=str(error))
    in_file = (text or "").strip()
    if in_file:
        require_own_nodename_file(world, netconf)
        return in_file, netconf.nodename_file
    if netconf.hostname:
        world.log(Level.WARNING, "the key hostname is deprecated; use nodename", hostname=netconf.hostname)
    return netconf.hostname, "hostname"


# --- the machine that wrote the node-name file ----------------------------------------------------------------------

_MACHINE_NAME = "the name of the machine"
_MACHINE_FILES = {
    "boot-id": "/proc/sys/kernel/random/boot_id",
    "machine-id": "/etc/machine-id",
    "product-uuid": "/sys/class/dmi/id/product_uuid",
}


def machine_file(netconf: NetConf) -> str:
    """The file beside the node-name file that says which machine wrote both."""
    return f"{netconf.nodename_file}.machine"


def machine_identity(host: Host) -> str:
    """What identifies this machine, one value on each line; a value that it does not have is missing.

    The first line changes with each boot. The others stay; where a virtual machine or an image was copied, at least one
    of them is another one, as the hypervisor gives each machine its own product uuid.
    """
    found = {name: _find_line(host, path) for name, path in _MACHINE_FILES.items()}
    return "".join(f"{name}={value}\n" for name, value in found.items() if value)


def require_own_nodename_file(world: HostWorld, netconf: NetConf) -> None:
    """Return if this machine wrote the node-name file, or if it is not known which machine did.

    A file without another one beside it is a person's, or one of an older release.

    Raises:
        Unavailable: another machine wrote it; the file came with a copied disk.
    """
    written, own = _find_text(world.host, machine_file(netconf)), machine_identity(world.host)
    if written is None or not own or _is_same_machine(_values(written), _values(own)):
        return
    raise Unavailable(
        netconf.nodename_file,
        "another machine wrote it, or this one before it was started again; the node process writes it when it has"
        " registered this node: check that it is running, or set nodename",
    )


def _is_same_machine(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    same = {name for name in _MACHINE_FILES if name in one and one[name] == other.get(name)}
    return "boot-id" in same or {"machine-id", "product-uuid"} <= same


def _values(text: str) -> Mapping[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _find_line(host: Host, path: str) -> str:
    return (_find_text(host, path) or "").strip()


def _find_text(host: Host, path: str) -> str | None:
    """The content of a file; None also if it cannot be read."""
    try:
        return host.find_text(path)
    except OSError:
        return None


def require_supported(world: CNIWorld, netconf: NetConf) -> None:
    """Return if every setting works; keys that are ignored or deprecated are logged.

    Raises:
        ConfigurationError: a setting does not work.
    """
    if netconf.unsupported is not None:
        raise evolve(netconf.unsupported)  # a value of its own: other calls have the same configuration
    if netconf.ignored_keys:
        text = f"etcd's keys are ignored: the datastore is {netconf.datastore.type}"
        world.log(Level.WARNING, text, keys=", ".join(netconf.ignored_keys))
    for key, instead in netconf.deprecated_keys:
        world.log(Level.WARNING, f"the key {key} is deprecated; use {instead}")


def require_nodename_file(world: CNIWorld, netconf: NetConf) -> None:
    """Return if the node-name file exists or is optional; the node process writes it when it is ready.

    Raises:
        Unavailable: it does not exist yet, or came from another machine.
    """
    if netconf.nodename_file_optional:
        return
    try:
        text = world.host.find_text(netconf.nodename_file)
    except OSError as error:
        raise Unavailable(netconf.nodename_file, str(error)) from error
    if text is None:
        raise Unavailable(
            netconf.nodename_file,
            "no such file or directory: check that the netplug node process is running and has mounted its directory",
        )
    require_own_nodename_file(world, netconf)


def require_mtu(world: CNIWorld, netconf: NetConf, families: Iterable[Family]) -> None:
    """Return if links of the configured MTU can carry these families.

    Raises:
        ConfigurationError: it is too small; the key or the file that has it is named.
    """
    mtu = mtu_of(world, netconf)
    if problem := find_mtu_problem(mtu, families):
        where = "network configuration.mtu" if netconf.mtu else f"MTU file {netconf.mtu_file}"
        raise ConfigurationError(where, mtu, problem)


def link_of(world: CNIWorld, call: AttachmentCall) -> Link:
    """The link of the call with the MTU of a new interface."""
    return evolve(call.link, mtu=mtu_of(world, call.netconf))


def dns_of(world: CNIWorld, netconf: NetConf) -> DNS:
    """The settings of the file that the configuration names, for the result.

    Raises:
        ConfigurationError: it cannot be read.
    """
    path = netconf.ipam.resolv_conf
    if not path:
        return NO_DNS

    try:
        text = world.host.find_text(path)
    except OSError as error:
        raise ConfigurationError("network configuration.ipam.resolvConf", path, str(error)) from error
    if text is None:
        raise ConfigurationError("network configuration.ipam.resolvConf", path, "a file that exists is expected")
    return parse_resolv_conf(text)


def mtu_of(world: CNIWorld, netconf: NetConf) -> int:
    """The MTU of new interfaces: the configured one, else the MTU file's, else the kernel's (0).

    The file is checked even if the configuration names an MTU, so that a broken file is noticed.

    Raises:
        ConfigurationError: the file is not a number, or missing though the configuration requires it.
    """
    where = f"failed to read MTU file {netconf.mtu_file}"
    try:
        text = world.host.find_text(netconf.mtu_file)
    except OSError as error:
        raise ConfigurationError(where, str(error), "a readable file with one number is expected") from error
    if text is None:
        if netconf.require_mtu_file:
            raise ConfigurationError(where, "no such file", "require_mtu_file is true: it must exist")
        return netconf.mtu
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_MTU))
    if not is_number or int(digits) > MAX_MTU:
        raise ConfigurationError(where, text[:40], f"one number up to {MAX_MTU} is expected, such as 1450")
    return netconf.mtu or int(digits)


def requested_of(request: CNIRequest, netconf: NetConf, *, has_interface: bool) -> Requested:
    """What the caller asks for by CNI_ARGS, ``runtimeConfig`` and ``args.cni``; a MAC only if there is an interface.

    Raises:
        RequestError, ConfigurationError: it contradicts itself, or is no MAC.
    """
    if request.args.address is None and not request.args.mac and netconf.runtime == _NO_PARAMETERS:
        return _NOTHING_REQUESTED

    return find_requested(request.args, netconf, has_interface=has_interface)


def assign_request_of(
    workload: WorkloadIdentity, wanted: tuple[Wanted, ...], link_layer: LinkLayer = LinkLayer.L3
) -> AssignRequest:
    """The addresses that an ADD asks for, all or none."""
    return AssignRequest(
        handle=workload.handle,
        node=workload.node,
        wanted=wanted,
        owner=workload.allocation_attributes,
        link_layer=link_layer,
        use=AllowedUse.WORKLOAD,
        shortfall=Shortfall.REFUSE,
    )


def wanted_of(netconf: NetConf, requested: Requested = _NOTHING_REQUESTED) -> tuple[Wanted, ...]:
    """One address of each family that the configuration switches on, or only the addresses that the caller asks for.

    With host-local or another plugin, only ``IP`` of CNI_ARGS is named: what else there is, they know.

    Raises:
        NoAddressWanted: the configuration switches no family on.
    """
    if requested.addresses:
        return tuple(Specific(address=one.address) for one in requested.addresses)
    if netconf.ipam.type == HOST_LOCAL_IPAM or netconf.ipam.is_delegated:
        return ()
    families = (
        (netconf.ipam.assign_ipv4, Family.IPV4, netconf.ipam.ipv4_pools),
        (netconf.ipam.assign_ipv6, Family.IPV6, netconf.ipam.ipv6_pools),
    )
    wanted = tuple(Automatic(family=family, pools=pools) for is_on, family, pools in families if is_on)
    if not wanted:
        raise NoAddressWanted
    return wanted


def assign(world: CNIWorld, request: AssignRequest, endpoint: EndpointWrites) -> Assignment:
    """Assign addresses and store the endpoint.

    Raises:
        AllocationError: they cannot be assigned.
        Unavailable, ContentionExhausted: not now.
    """
    return world.ipam.assign(request, endpoint, deadline=Deadline.after(world.clock, HOST_LOCK_S + ASSIGN_S))


def release(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites) -> Released:
    """Release what a handle holds and delete the endpoint."""
    return world.ipam.release(request, endpoint, deadline=Deadline.after(world.clock, RELEASE_S))


def remove_interface(world: CNIWorld, link: Link) -> None:
    """Remove an attachment's interface, if its alias says that it is this attachment's."""
    world.dataplane.remove(link, deadline=Deadline.after(world.clock, REMOVE_S))


def detach_by_host_end(
    world: CNIWorld, workload: WorkloadIdentity, wanted: ReleaseRequest, *, has_interface: bool, deadline: Deadline
) -> Released:
    """Detach a workload whose network namespace is not known; the name and the alias of its host end are.

    The interface goes first, as in every DEL: it would still answer for the addresses. ``has_interface``: whether
    interface and endpoint are netplug's too, or the addresses alone. The caller holds the attachment's lock.
    """
    endpoint = NO_ENDPOINT
    if has_interface:
        world.dataplane.remove(link_between(workload, ""), deadline=deadline)
        endpoint = endpoint_delete(workload, world.datastore.description.endpoints)
    return world.ipam.release(wanted, endpoint, deadline=deadline)


def detach_found(
    world: CNIWorld, workload: WorkloadIdentity, found: Attachment, *, has_interface: bool = True
) -> Released:
    """Detach an attachment that holds addresses and is not there any more, under its lock.

    Its addresses are released by their numbers too: no handle may lead to them.

    Raises:
        AttachmentBusy: another call is at work on the attachment.
    """
    owner = workload.allocation_attributes
    wanted = ReleaseRequest(handle=found.handle, node=workload.node, addresses=found.addresses, owner=owner)
    with attachment_lock(world, workload, wait_s=DEL_LOCK_S):
        deadline = Deadline.after(world.clock, REMOVE_S + RELEASE_S)
        return detach_by_host_end(world, workload, wanted, has_interface=has_interface, deadline=deadline)


def release_after_failure(world: CNIWorld, request: ReleaseRequest, endpoint: EndpointWrites) -> None:
    """Release an assignment because a later step failed, with a deadline of its own; a failure is only logged.

    The caller has to see the error of the later step. The runtime's DEL releases what is left.
    """
    try:
        release(world, request, endpoint)
    except NetplugError as error:
        world.log(Level.WARNING, "addresses could not be given back", handle=request.handle, cause=str(error))
