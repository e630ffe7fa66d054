"""The workload of a call: its names, its WorkloadEndpoint, the gates of its start, and its status file. Pure.

Every name of a workload is worked out here, once: handle, endpoint, interface, MAC. The endpoint's writes go into the
commit that assigns or releases its addresses: ``flows.cni`` hands them to an IPAM. The readiness gates that hold back
the ADD of a pod are URLs that have to answer; ``flows.cni.pods`` polls them.

The node process writes one status file for each endpoint whose policy the kernel has acknowledged, with everything that
was known at that time. An ADD that holds its pod back waits for it. The file is named after the endpoint, which a
restarted pod of the same name has too; so the content says whose it is, and a reader takes no other container's, and
none of an earlier boot, whose packet filter is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

from attrs import Factory, evolve, field, frozen

from netplug_core.addressing import Address, Family, Prefix
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.decoding.codecs import NONNEGATIVE_INTEGER, PREFIX, STRING, TIME
from netplug_core.decoding.tables import Decoder, ListOf, document_error, member
from netplug_core.errors import REDACTED, DecodeError, NetplugError, RequestError, Unavailable, quote
from netplug_core.ipam.allocation.request import Assignment
from netplug_core.ipam.model import Pairs, block_query, handle_query
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.names import (
    DEFAULT_INTERFACE,
    KUBERNETES_ORCHESTRATOR,
    HostInterfaceAlias,
    WorkloadEndpointIdentifiers,
    container_mac,
    endpoint_labels,
    endpoint_status_file_name,
    former_host_interface_name,
    handle_id,
    host_interface_alias,
    host_interface_name,
    orchestrator_of,
    workload_endpoint_name,
)
from netplug_core.orchestrator.model import ContainerPort, PodFacts
from netplug_core.records import Create, Delete, Get, Key, NeedMore, Snapshot, Update, Write
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.profile import pod_profiles
from netplug_core.resources.workloadendpoint import (
    IPNAT,
    WORKLOAD_ENDPOINT,
    EndpointPort,
    WorkloadEndpoint,
    WorkloadEndpointSpec,
)

__all__ = [
    "BOOT_ID_FILE", "DEFAULT_NAMESPACE", "GATES_S", "NO_OPTIONS", "PROBE_INTERVAL_S", "PROBE_S", "EndpointOptions",
    "EndpointStatus", "Gate", "GateNotReady", "NewObjectMetadata", "PodDetails", "PodReplaced", "ProbeResult",
    "WorkloadIdentity", "build_endpoint", "endpoint_delete", "endpoint_upsert", "find_difference",
    "find_former_container", "find_replaced", "gates_of", "has_endpoint", "parse_status", "pod_details", "redact_url",
    "render_status", "status_file_name", "status_file_of",
]  # fmt: skip


# --- endpoint --------------------------------------------------------------------------------------------------------


# --- pod -------------------------------------------------------------------------------------------------------------


_PROTOCOLS = ("TCP", "UDP", "SCTP")


@frozen(kw_only=True)
class PodDetails:
    """The part of an endpoint that is copied from its pod.

    ``profiles`` are those of the pod's namespace and service account.
    """

    labels: Labels = ()
    generate_name: str = ""
    service_account: str = ""
    ports: tuple[EndpointPort, ...] = ()
    profiles: tuple[str, ...] = ()


def pod_details(pod: PodFacts) -> PodDetails:
    """The part of a pod's endpoint that is copied from it.

    A port counts if it has a name or is a port of the host too, and if policy can match its protocol.
    """
    return PodDetails(
        labels=pod.labels,
        generate_name=pod.generate_name,
        service_account=pod.service_account,
        ports=tuple(_endpoint_port(port) for port in pod.ports if _counts(port)),
        profiles=pod_profiles(pod.namespace, pod.service_account),
    )


def _counts(port: ContainerPort) -> bool:
    is_meant = port.port != 0 and bool(port.name or port.host_port)
    return is_meant and port.protocol.upper() in _PROTOCOLS


def _endpoint_port(port: ContainerPort) -> EndpointPort:
    return EndpointPort(
        name=port.name,
        protocol=port.protocol.upper(),
        port=port.port,
        host_port=port.host_port,
        host_ip=port.host_ip,
    )


# --- endpoint --------------------------------------------------------------------------------------------------------


# --- identity --------------------------------------------------------------------------------------------------------


DEFAULT_NAMESPACE = "default"
"""The namespace of the endpoints of containers that no orchestrator named."""


def _orchestrator(of: WorkloadIdentity) -> str:
    return orchestrator_of(pod_namespace=of.pod_namespace, pod=of.pod)


def _namespace(of: WorkloadIdentity) -> str:
    return of.pod_namespace if of.is_pod else DEFAULT_NAMESPACE


def _handle(of: WorkloadIdentity) -> str:
    return handle_id(of.network, of.container_id, of.interface)


def _host_interface(of: WorkloadIdentity) -> str:
    return host_interface_name(
        pod_namespace=of.pod_namespace, pod=of.pod, container_id=of.container_id, ifname=of.interface
    )


def _host_interface_alias(of: WorkloadIdentity) -> HostInterfaceAlias:
    return host_interface_alias(
        network=of.network,
        container_id=of.container_id,
        ifname=of.interface,
        pod_namespace=of.pod_namespace,
        pod=of.pod,
    )


def _mac(of: WorkloadIdentity) -> str:
    return container_mac(of.handle)


def _endpoint_key(of: WorkloadIdentity) -> Key[WorkloadEndpoint]:
    name = workload_endpoint_name(
        WorkloadEndpointIdentifiers(
            node=of.node,
            orchestrator=of.orchestrator,
            pod=of.pod if of.is_pod else "",
            container_id=of.container_id,
            endpoint=of.interface,
        )
    )
    return WORKLOAD_ENDPOINT.key(of.namespace, name)


@frozen(kw_only=True)
class WorkloadIdentity:
    """One interface of one container on one network, with every name that follows from it, worked out once.

    ``pod`` and ``pod_namespace`` are empty unless the runtime named both; texts are as the runtime gave them.
    ``pod_uid`` is empty unless the runtime named it.
    ``orchestrator`` is ``k8s`` for a pod and ``cni`` for a container that no orchestrator named; ``namespace`` is that
    of the endpoint. The addresses are held under ``handle``; ``host_interface`` is the name of the host end, and
    ``host_interface_alias`` says whose it is. ``mac`` is the hardware address of the container's end, and
    ``endpoint_key`` is where the endpoint is stored.

    Raises:
        InvalidName: the endpoint has no name, because the node, the container or the interface is empty.
    """

    node: str
    network: str
    container_id: str
    interface: str
    pod: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    orchestrator: str = field(init=False, eq=False, default=Factory(_orchestrator, takes_self=True))
    namespace: str = field(init=False, eq=False, default=Factory(_namespace, takes_self=True))
    handle: str = field(init=False, eq=False, default=Factory(_handle, takes_self=True))
    host_interface: str = field(init=False, eq=False, default=Factory(_host_interface, takes_self=True))
    host_interface_alias: HostInterfaceAlias = field(
        init=False, eq=False, default=Factory(_host_interface_alias, takes_self=True)
    )
    mac: str = field(init=False, eq=False, default=Factory(_mac, takes_self=True))
    endpoint_key: Key[WorkloadEndpoint] = field(init=False, eq=False, default=Factory(_endpoint_key, takes_self=True))

    @property
    def former_host_interface(self) -> str:
        """The name of the host end if a version of netplug that wrote no aliases made it."""
        return former_host_interface_name(
            pod_namespace=self.pod_namespace, pod=self.pod, container_id=self.container_id, ifname=self.interface
        )

    @property
    def is_pod(self) -> bool:
        """Whether the runtime named a pod."""
        return self.orchestrator == KUBERNETES_ORCHESTRATOR

    @property
    def allocation_attributes(self) -> Pairs:
        """What is stored with the addresses, besides the node and the time: GC and DEL compare these."""
        pairs = [("container", self.container_id), ("interface", self.interface), ("network", self.network)]
        if self.is_pod:
            pairs += [("namespace", self.pod_namespace), ("pod", self.pod)]
        return tuple(sorted(pairs))


# --- endpoint --------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class NewObjectMetadata:
    """What a new endpoint gets once: its uid and its creation time."""

    uid: str
    creation_time_ns: int


@frozen(kw_only=True)
class EndpointOptions:
    """What a pod and its annotations, or an orchestrator of plain containers, say about the endpoint.

    ``mac`` replaces the one that follows from the handle. ``unmanaged`` addresses are held by no IPAM. ``floating_ips``
    stand for the endpoint's first address of their family. ``allowed_source_prefixes`` are those that it may send from.
    ``labels`` are those of a container without a pod. ``pod`` is None if the pod was not looked up; if it has no
    profiles, the one of the network counts.
    """

    mac: str = ""
    unmanaged: tuple[Address, ...] = ()
    floating_ips: tuple[Address, ...] = ()
    allowed_source_prefixes: tuple[str, ...] = ()
    labels: Labels = ()
    pod: PodDetails | None = None


NO_OPTIONS = EndpointOptions()
"""Those of a workload of which nothing is said, and of a pod that was not looked up."""


class PodReplaced(RequestError):
    """The pod that the runtime names was deleted, and another pod has its name now (code 4)."""


def find_replaced(workload: WorkloadIdentity, uid: str) -> PodReplaced | None:
    """The error if the pod with that uid is not the one that the runtime names; None if it names no uid."""
    if workload.pod_uid in ("", uid):
        return None
    return PodReplaced(
        f"pod {workload.namespace}/{workload.pod} has the uid {uid}, and K8S_POD_UID of CNI_ARGS names "
        f"{workload.pod_uid}: the pod to attach was deleted, and another one has its name"
    )


def has_endpoint(workload: WorkloadIdentity, storage: EndpointStorage) -> bool:
    """Whether a store has an endpoint for this interface; without one, the handle alone has its addresses."""
    return storage is EndpointStorage.RECORDS or not workload.is_pod or workload.interface == DEFAULT_INTERFACE


def build_endpoint(
    workload: WorkloadIdentity,
    assignment: Assignment,
    new_metadata: NewObjectMetadata,
    options: EndpointOptions = NO_OPTIONS,
) -> WorkloadEndpoint:
    """The endpoint of a workload that holds these addresses.

    Its profiles are those of its pod, else one that is named like its network.
    """
    pod = options.pod
    addresses = (*[assigned.address for assigned in assignment.addresses], *options.unmanaged)
    return WorkloadEndpoint(
        metadata=_metadata(workload, new_metadata, options),
        spec=WorkloadEndpointSpec(
            orchestrator=workload.orchestrator,
            node=workload.node,
            container_id=workload.container_id,
            pod=workload.pod if workload.is_pod else "",
            endpoint=workload.interface,
            service_account=pod.service_account if pod else "",
            addresses=addresses,
            ip_nats=tuple(_floating(options.floating_ips, addresses)) if options.floating_ips else (),
            profiles=(pod.profiles if pod else ()) or (workload.network,),
            interface_name=workload.host_interface,
            mac=options.mac or workload.mac,
            ports=pod.ports if pod else (),
            allowed_source_prefixes=options.allowed_source_prefixes,
        ),
    )


def _metadata(workload: WorkloadIdentity, new_metadata: NewObjectMetadata, options: EndpointOptions) -> Metadata:
    pod = options.pod
    created_ns = new_metadata.creation_time_ns
    return Metadata(
        name=workload.endpoint_key.name,
        namespace=workload.namespace,
        generate_name=pod.generate_name if pod else "",
        uid=new_metadata.uid,
        creation_time_ns=created_ns - created_ns % 1_000_000_000,  # stored in whole seconds
        labels=endpoint_labels(
            namespace=workload.namespace,
            orchestrator=workload.orchestrator,
            service_account=pod.service_account if pod else "",
            workload=pod.labels if pod else options.labels,
        ),
    )


def _floating(floating_ips: tuple[Address, ...], addresses: tuple[Address, ...]) -> Iterator[IPNAT]:
    for external in floating_ips:
        own = [address for address in addresses if address.family is external.family]
        yield from (IPNAT(internal=internal, external=external) for internal in own[:1])


def find_former_container(snapshot: Snapshot, workload: WorkloadIdentity) -> str:
    """The container that a workload's stored endpoint names, if it is another one; empty if there is none."""
    stored = snapshot.find(workload.endpoint_key)
    named = stored.value.spec.container_id if stored is not None else ""
    return "" if named == workload.container_id else named


def endpoint_upsert(
    workload: WorkloadIdentity,
    new_metadata: NewObjectMetadata,
    storage: EndpointStorage = EndpointStorage.RECORDS,
    options: EndpointOptions = NO_OPTIONS,
) -> EndpointWrites:
    """The endpoint's writes in an ADD: it is created, or updated to this container and its addresses.

    Without addresses, when a failed ADD is compensated, it is deleted as in a DEL. If the endpoint is a view of its
    pod, and that is not the pod that the runtime names, the ADD is late and is refused: the endpoint is that of another
    pod with the same name.
    """
    if not has_endpoint(workload, storage):
        return NO_ENDPOINT
    key, gone = workload.endpoint_key, endpoint_delete(workload)

    def writes(snapshot: Snapshot, assignment: Assignment | None) -> tuple[Write, ...] | NeedMore | NetplugError:
        if assignment is None:
            return gone.writes(snapshot, None)
        wanted = build_endpoint(workload, assignment, new_metadata, options)
        stored = snapshot.find(key)
        if stored is None:
            return (Create(key, wanted),)
        if storage is EndpointStorage.PODS and (replaced := find_replaced(workload, stored.value.metadata.uid)):
            return replaced
        # The pod was restarted, or this call is a repetition. The uid stays. Policy selects by labels, so one that the
        # pod lost goes; where the pod is not known, those that others added stay.
        former = () if options.pod else stored.value.metadata.labels
        metadata = evolve(
            stored.value.metadata,
            generate_name=wanted.metadata.generate_name,
            labels=_merge_labels(former, wanted.metadata.labels),
        )
        spec = evolve(wanted.spec, unknown_json=stored.value.spec.unknown_json)
        value = evolve(stored.value, metadata=metadata, spec=spec)
        return () if value == stored.value else (Update(key, value, stored.revision),)

    return EndpointWrites(queries=(Get(key),), writes=writes)


def endpoint_delete(workload: WorkloadIdentity, storage: EndpointStorage = EndpointStorage.RECORDS) -> EndpointWrites:
    """The endpoint's writes in a DEL: it is deleted if it is this container's; a restarted pod's endpoint stays.

    The name of an endpoint begins with its node. The node may have been renamed since the ADD, so the endpoint of every
    node that the attributes of the addresses name is looked for, besides that of the workload's.
    """
    if not has_endpoint(workload, storage):
        return NO_ENDPOINT
    configured = Get(workload.endpoint_key)

    def writes(snapshot: Snapshot, _assignment: Assignment | None) -> tuple[Write, ...] | NeedMore:
        nodes = sorted(_holding_nodes(snapshot, workload.handle) - {workload.node})
        queries = (configured, *[Get(evolve(workload, node=node).endpoint_key) for node in nodes])
        missing = tuple([query for query in queries if not snapshot.has(query)])
        if missing:
            return NeedMore(missing)
        found = [snapshot.find(query) for query in queries]
        return tuple(
            [
                Delete(stored.key, stored.revision)
                for stored in found
                if stored is not None and stored.value.spec.container_id == workload.container_id
            ]
        )

    return EndpointWrites(queries=(configured,), writes=writes)


def _holding_nodes(snapshot: Snapshot, handle: str) -> set[str]:
    """The nodes through which a handle holds addresses, as far as its blocks are read."""
    query = handle_query(handle)
    record = snapshot.find(query) if snapshot.has(query) else None
    blocks = [block_query(prefix) for prefix, _count in record.value.blocks] if record else []
    found = [record for block in blocks if snapshot.has(block) for record in snapshot.readable(block)]
    held = [allocation for block in found for allocation in block.value.held_by(handle)]
    return {allocation.attribute.owner_value("node") for allocation in held} - {""}


def _merge_labels(
    stored: tuple[tuple[str, str], ...], ours: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**dict(stored), **dict(ours)}.items()))


# --- gates -----------------------------------------------------------------------------------------------------------


GATES_S = 30.0
"""The most time that an ADD waits for all of its readiness gates."""

PROBE_S = 5.0
"""The most time that one probe of a gate takes."""

PROBE_INTERVAL_S = 5.0
"""The time from one probe of a gate to the next."""

_READY = range(200, 400)


@frozen
class Gate:
    """One readiness gate: its URL, and where the configuration has it."""

    url: str
    position: int

    def __str__(self) -> str:
        return f"readiness_gates[{self.position}] {redact_url(self.url)}"


def gates_of(urls: tuple[str, ...]) -> tuple[Gate, ...]:
    """The gates of a configuration, in their order."""
    return tuple(Gate(url, position) for position, url in enumerate(urls))


def redact_url(url: str) -> str:
    """A URL for people: its query, and all of it if a password may be in it, are left out."""
    if "@" in url:
        return REDACTED
    path, separator, _query = url.partition("?")
    return f"{path}{separator}{REDACTED}" if separator else path


@frozen(kw_only=True)
class ProbeResult:
    """What a GET of a gate's URL found: the status of the last reply, or the reason why there is none."""

    status: int = 0
    problem: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the gate is ready: a final status from 200 to 399, redirects having been followed."""
        return self.status in _READY

    def __str__(self) -> str:
        return self.problem or f"status {self.status}"


@frozen
class GateNotReady(Unavailable):
    """A readiness gate did not become ready in time (code 11); ``cause`` has its last answer."""


# --- status ----------------------------------------------------------------------------------------------------------


BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
"""The file in which the kernel has the id of this boot."""

_VERSION = 1


@frozen(kw_only=True)
class EndpointStatus:
    """The content of a status file: whose interface it is for which policy is programmed.

    ``endpoint`` is the resource, ``namespace/name``. The nets are the addresses of the interface, as prefixes of full
    length. ``boot_id`` is the boot of the machine for which this holds; ``programmed_at_ns`` is for people.
    """

    version: int = field(default=_VERSION, metadata=member("version", NONNEGATIVE_INTEGER, is_always_written=True))
    container_id: str = field(default="", metadata=member("containerID", STRING))
    endpoint: str = field(default="", metadata=member("endpoint", STRING))
    host_interface: str = field(default="", metadata=member("ifaceName", STRING))
    mac: str = field(default="", metadata=member("mac", STRING))
    ipv4_nets: tuple[Prefix, ...] = field(default=(), metadata=member("ipv4Nets", ListOf(PREFIX)))
    ipv6_nets: tuple[Prefix, ...] = field(default=(), metadata=member("ipv6Nets", ListOf(PREFIX)))
    boot_id: str = field(default="", metadata=member("bootID", STRING))
    programmed_at_ns: int | None = field(default=None, metadata=member("programmedAt", TIME))

    @classmethod
    def of(cls, endpoint: WorkloadEndpoint, *, boot_id: str, programmed_at_ns: int | None = None) -> EndpointStatus:
        """The status of an endpoint, as it is stored."""
        metadata, spec = endpoint.metadata, endpoint.spec
        return cls(
            container_id=spec.container_id,
            endpoint=f"{metadata.namespace}/{metadata.name}",
            host_interface=spec.interface_name,
            mac=spec.mac,
            ipv4_nets=_nets(spec.addresses, Family.IPV4),
            ipv6_nets=_nets(spec.addresses, Family.IPV6),
            boot_id=boot_id,
            programmed_at_ns=programmed_at_ns,
        )

    @classmethod
    def expected_by(cls, workload: WorkloadIdentity, addresses: tuple[Address, ...], *, boot_id: str) -> EndpointStatus:
        """What an ADD waits for: its own container on its own interface with those addresses, in this boot."""
        return cls(
            container_id=workload.container_id,
            endpoint=f"{workload.namespace}/{workload.endpoint_key.name}",
            host_interface=workload.host_interface,
            ipv4_nets=_nets(addresses, Family.IPV4),
            ipv6_nets=_nets(addresses, Family.IPV6),
            boot_id=boot_id,
        )

    def says_the_same(self, other: EndpointStatus) -> bool:
        """Whether two say the same, whenever it was that each became true."""
        return self == evolve(other, programmed_at_ns=self.programmed_at_ns)


def _nets(addresses: tuple[Address, ...], family: Family) -> tuple[Prefix, ...]:
    return tuple([Prefix(family, each.value, family.width) for each in addresses if each.family is family])


# --- names -----------------------------------------------------------------------------------------------------------


def status_file_name(endpoint: WorkloadEndpoint) -> str:
    """The name of the status file of an endpoint, as it is stored."""
    spec = endpoint.spec
    owner = f"{endpoint.metadata.namespace}/{spec.pod or spec.container_id}"
    return endpoint_status_file_name(spec.orchestrator, owner, spec.endpoint)


def status_file_of(workload: WorkloadIdentity) -> str:
    """The name of the status file of a workload's endpoint; the same as that of the endpoint itself."""
    owner = f"{workload.namespace}/{workload.pod if workload.is_pod else workload.container_id}"
    return endpoint_status_file_name(workload.orchestrator, owner, workload.interface)


# --- text ------------------------------------------------------------------------------------------------------------


def render_status(status: EndpointStatus) -> str:
    """The text of a status file; empty members are left out."""
    return json.dumps(_decoder().encode(status)) + "\n"


def parse_status(text: str) -> EndpointStatus:
    """What a status file says; members of a later release are passed over.

    Raises:
        NetplugError: it is not whole, or a member is not what it has to be.
    """
    try:
        return _decoder().decode(json.loads(text), EndpointStatus, "the file")
    except (ValueError, RecursionError):
        raise DecodeError("the file", "it is not whole, or not JSON") from None


def find_difference(text: str, expected: EndpointStatus) -> str:
    """Why a status file does not say that policy is programmed for what an ADD expects; empty if it does.

    The file of an earlier container of the pod, of an earlier attachment of the container, or of an earlier boot may
    still be there. Addresses are compared if the file has any.
    """
    try:
        found = parse_status(text)
    except NetplugError as error:
        return str(error)
    if found.host_interface != expected.host_interface:
        return f"it names the interface {quote(found.host_interface)}, and not {expected.host_interface}"
    if found.container_id != expected.container_id:
        return f"it names the container {quote(found.container_id)}"
    if found.boot_id != expected.boot_id:
        return "it was written before this machine was started again"
    nets = (*found.ipv4_nets, *found.ipv6_nets)
    missing = [net for net in (*expected.ipv4_nets, *expected.ipv6_nets) if nets and net not in nets]
    return f"it does not have the address {missing[0]}" if missing else ""


@cache
def _decoder() -> Decoder:
    return Decoder(document_error)
