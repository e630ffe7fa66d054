"""The interface of a dataplane: it applies plans, verifies them and removes attachments.

Backends implement :class:`Dataplane`; flows call it with plans that ``plan`` made. The values here say what should
exist, not how the kernel is configured. ``netplug_core.testing.dataplane_checks`` tests every implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

from attrs import frozen

from netplug_core.addressing import Address, Family, InterfaceAddress, Prefix
from netplug_core.clock import Deadline
from netplug_core.errors import DataplaneError, ErrorCode
from netplug_core.names import DEFAULT_INTERFACE, HostInterfaceAlias

__all__ = [
    "NO_NAMESPACES", "OWN_NAMESPACE", "AttachmentPlan", "Dataplane", "DataplaneTimeout",
    "Difference", "FamilyNotSupported", "Forwarding", "HostInterfaceTaken", "InterfacePlan",
    "InterfacePresence", "KernelError", "Link", "LinkExists", "Neighbour", "NodeProblem", "NodeSettings",
    "PlannedRoute", "RouteConflict", "RouteProtocol", "RouteScope", "RouteTable", "Sysctl",
    "SysctlRequirement",
]  # fmt: skip


# --- protocol --------------------------------------------------------------------------------------------------------


OWN_NAMESPACE = "/proc/thread-self/ns/net"
"""The path of the calling thread's own network namespace."""

NO_NAMESPACES: Mapping[str, int] = {}
"""No descriptors of namespaces: each is opened by its path."""


class Forwarding(enum.Enum):
    """Whether a container's namespace may forward packets between its interfaces."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class InterfacePresence(enum.Enum):
    """What was found in a namespace.

    - ``ABSENT``: no interface of the name
    - ``OWN``: the attachment's interface, finished or not: its peer has the name and the alias of the host end
    - ``FOREIGN``: another interface of the name
    - ``NAMESPACE_GONE``: no such namespace
    """

    ABSENT = "absent"
    OWN = "own"
    FOREIGN = "foreign"
    NAMESPACE_GONE = "namespace gone"


class SysctlRequirement(enum.Enum):
    """What is asked of a setting.

    - ``REQUIRED``: the attachment fails without it, and CHECK compares it
    - ``INITIAL``: the attachment fails without it; a chained plugin may change it afterwards, so CHECK does not compare
    - ``OPTIONAL``: a warning is logged if it cannot be made, and CHECK does not compare
    """

    REQUIRED = "required"
    INITIAL = "initial"
    OPTIONAL = "wanted"


class RouteScope(enum.Enum):
    """How far the destinations of a route are: on the link itself, or behind a gateway (IPv6 knows only that)."""

    LINK = "link"
    GLOBAL = "global"


class RouteTable(enum.Enum):
    """Where a route is: in the main table, or in the table of its own interface, whose number is 100 and the index."""

    MAIN = "main"
    INTERFACE = "interface"


class RouteProtocol(enum.IntEnum):
    """Who put a route into a table, as the kernel keeps it.

    ``BOOT`` marks routes inside a container, ``NETPLUG`` every route in a table of the host.
    """

    BOOT = 3
    NETPLUG = 78


@frozen
class NodeProblem:
    """A setting of the whole node that a dataplane finds and does not change; ``command`` changes it.

    ``limits_workloads``: workloads do not reach all that they should; otherwise they reach more.
    """

    message: str
    command: str
    limits_workloads: bool

    def __str__(self) -> str:
        return f"{self.message}; run: {self.command}"


class NodeSettings(Protocol):
    """The kernel's settings of this node, by their paths below ``/proc/sys``."""

    def find(self, path: str) -> str | None:
        """The value on the host; None if the kernel does not have the setting."""
        ...

    def find_in_new_namespace(self, path: str) -> str | None:
        """The value in a network namespace that is made now."""
        ...

    def is_changeable(self, path: str) -> bool:
        """Whether a setting of an attachment at that path can be changed."""
        ...


@frozen(kw_only=True)
class Link:
    """Where and how a workload is attached, apart from its addresses.

    ``namespace`` is a path; empty means that the runtime named none. ``name`` is the interface in it, ``host_name``
    its peer on the host. ``alias`` says whose the host end is, and it alone does: names can collide, and a namespace's
    path can be another container's by now. ``former_host_name`` is the host end's name if a version of netplug without
    aliases made it; empty if there was none. ``mtu`` 0 leaves the kernel's default. ``routes`` are the destinations
    that the container reaches through this link; None means everything, in the families that it has addresses of.
    """

    namespace: str
    name: str
    host_name: str
    alias: HostInterfaceAlias
    former_host_name: str = ""
    mtu: int = 0
    queues: int = 1
    forwarding: Forwarding = Forwarding.DISABLED
    routes: tuple[Prefix, ...] | None = None

    @property
    def has_own_table(self) -> bool:
        """Whether traffic from the interface's addresses has a routing table of its own.

        The first interface does not need one: the main table's routes lead over it. From any other one, answers would
        leave over the first interface, and the host drops what has an address of another interface.
        """
        return self.name != DEFAULT_INTERFACE

    def is_host_end(self, alias: str) -> bool:
        """Whether an interface with that alias is this attachment's host end."""
        found = HostInterfaceAlias.parse(alias)
        return found is not None and found.attachment == self.alias.attachment

    def is_pair(self, alias: str) -> bool:
        """Whether an interface with that alias is this attachment's host end, and the same workload's."""
        return HostInterfaceAlias.parse(alias) == self.alias

    def is_of_workload(self, alias: str) -> bool:
        """Whether an interface with that alias is the same workload's: of this container, or of a former one."""
        found = HostInterfaceAlias.parse(alias)
        return found is not None and found.workload == self.alias.workload


@frozen(kw_only=True)
class Sysctl:
    """A kernel setting: its path below ``/proc/sys`` (names of interfaces may contain dots) and its value.

    ``also_accepted`` are other values that CHECK takes for as good. A setting that has its value is not written: where
    ``/proc/sys`` is read-only, that is enough.
    """

    path: str
    value: str
    also_accepted: tuple[str, ...] = ()
    requirement: SysctlRequirement = SysctlRequirement.REQUIRED

    def __str__(self) -> str:
        return f"{self.path} = {self.value}"


@frozen
class Neighbour:
    """A permanent entry of the neighbour table: the MAC behind an address."""

    address: Address
    mac: str

    def __str__(self) -> str:
        return f"{self.address} at {self.mac}"


@frozen(kw_only=True)
class PlannedRoute:
    """A route over one end of the link. ``metric`` 0 leaves the kernel's default (none; 1024 for IPv6)."""

    destination: Prefix
    gateway: Address | None = None
    scope: RouteScope
    protocol: RouteProtocol
    metric: int = 0
    table: RouteTable = RouteTable.MAIN

    def __str__(self) -> str:
        via = f" via {self.gateway}" if self.gateway else ""
        where = ", table of the interface" if self.table is RouteTable.INTERFACE else ""
        return f"{self.destination}{via} (protocol {self.protocol.value}{where})"


@frozen(kw_only=True)
class InterfacePlan:
    """What must be true of one end of the link, in the order in which it is made true.

    ``sysctls`` hold before the link comes up; addresses, neighbours and routes follow once it is up. ``source_rules``
    are the addresses from which traffic uses the interface's own table.
    """

    name: str
    mac: str
    sysctls: tuple[Sysctl, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[PlannedRoute, ...] = ()
    addresses: tuple[InterfaceAddress, ...] = ()
    source_rules: tuple[Address, ...] = ()


@frozen(kw_only=True)
class AttachmentPlan:
    """One attachment: a pair of interfaces, one end in the container's namespace and one on the host."""

    link: Link
    container: InterfacePlan
    host: InterfacePlan

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that the container has addresses of, IPv4 first."""
        present = {held.address.family for held in self.container.addresses}
        return tuple(family for family in Family if family in present)

    @property
    def mtu(self) -> int:
        """The MTU of both ends; 0 leaves the kernel's default."""
        return self.link.mtu

    @property
    def container_routes(self) -> tuple[PlannedRoute, ...]:
        """The routes of the main table that the container sends through a gateway: what a result reports."""
        return tuple(
            route for route in self.container.routes if route.gateway is not None and route.table is RouteTable.MAIN
        )


@frozen
class Difference:
    """One thing that is not as planned."""

    subject: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.found}"


class Dataplane(Protocol):
    """Who programs the node for one attachment at a time."""

    def find(self, link: Link) -> InterfacePresence:
        """Which interface of the name is in the namespace; ``NAMESPACE_GONE`` when the path is not a namespace.

        Raises:
            KernelError: the namespace cannot be looked into.
        """
        ...

    def has_host_end(self, link: Link) -> bool:
        """Whether the host has this attachment's end, whatever became of its namespace.

        It is the interface of the link's host name with this attachment's alias. An interface of the former host name
        without an alias may be it.

        Raises:
            KernelError: the kernel would not say.
        """
        ...

    def apply(self, plan: AttachmentPlan, *, deadline: Deadline) -> None:
        """Make the plan true; what is true already stays as it is, so it may be repeated.

        A host interface of the planned name is removed first if its alias says that it is the same workload's. When it
        fails, what this call made is gone again.

        Raises:
            NamespaceNotFound: the namespace does not exist.
            LinkExists: the container has an interface of that name which is not this attachment's.
            HostInterfaceTaken: the host has an interface of the planned name which is not this workload's.
            RouteConflict: another interface of the host has the route to one of the addresses.
            KernelError: anything else that the kernel would not do.
            DataplaneTimeout: the deadline passed.
        """
        ...

    def verify(self, plan: AttachmentPlan, *, deadline: Deadline) -> tuple[Difference, ...]:
        """What is not as planned, in the order of the plan; empty when all is. Changes nothing.

        A fresh attachment is given up to a second to settle.

        Raises:
            KernelError: the kernel would not say.
        """
        ...

    def remove(self, link: Link, *, deadline: Deadline) -> None:
        """Remove the host end whose alias is this attachment's, and with it its peer and the host's routes over it.

        It is looked for by its name, and as the peer of the interface in the namespace. Nothing else is removed: not
        the interface of the workload's next container, and none in a namespace that is another container's by now. An
        interface that is gone is a success; so is a namespace that is gone or cannot be entered.

        An interface that a version of netplug without aliases made is removed if it is the peer of the interface in the
        namespace and has its former name and no alias.

        Raises:
            KernelError: the kernel would not remove it.
            DataplaneTimeout: it took longer than 20 seconds, or than the deadline allows.
        """
        ...

    def is_own_namespace(self, path: str) -> bool:
        """Whether the path is the network namespace that this program runs in; false for what cannot be opened."""
        ...

    def find_node_problems(self, families: tuple[Family, ...]) -> tuple[NodeProblem, ...]:
        """What the node's own settings keep workloads with addresses of these families from; changes nothing."""
        ...

    def find_obstacles(self, families: tuple[Family, ...], forwarding: Forwarding) -> tuple[str, ...]:
        """Why no workload with addresses of these families can be attached, in sentences; changes nothing."""
        ...


@frozen
class LinkExists(DataplaneError, error_code=ErrorCode.LINK_EXISTS):
    """The container has an interface of that name which is not this attachment (code 121)."""

    name: str
    namespace: str

    def __str__(self) -> str:
        return f"the namespace {self.namespace} already has an interface {self.name!r}; CNI_IFNAME must be a free name"


@frozen
class HostInterfaceTaken(DataplaneError, error_code=ErrorCode.HOST_INTERFACE_TAKEN):
    """The host has an interface of the planned name that is not this workload's (code 125); ``alias`` may be empty."""

    name: str
    alias: str

    def __str__(self) -> str:
        return (
            f"the host already has an interface {self.name!r} that is not this workload's: its alias is {self.alias!r};"
            " remove or rename that interface"
        )


@frozen
class RouteConflict(DataplaneError, error_code=ErrorCode.ROUTE_CONFLICT):
    """The host reaches one of the addresses through another interface (code 122)."""

    destination: Prefix
    interface: str
    owner: str

    def __str__(self) -> str:
        return (
            f"the host route to {self.destination} cannot be given to the interface {self.interface!r}:"
            f" it belongs to the interface {self.owner!r}; remove that route or use another address"
        )


@frozen
class KernelError(DataplaneError, error_code=ErrorCode.KERNEL_REFUSED):
    """The kernel would not do something (code 123).

    ``operation`` names it with its object, ``reason`` is the kernel's answer.
    """

    operation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}"


@frozen
class FamilyNotSupported(DataplaneError, error_code=ErrorCode.KERNEL_REFUSED):
    """The kernel has no addresses of a family that a workload has (code 123)."""

    family: Family

    def __str__(self) -> str:
        return (
            f"{self.family} is asked for, and the kernel of this node has no {self.family}: it was started without"
            f" (ipv6.disable=1); start it with {self.family}, or switch that family off"
        )


@frozen
class DataplaneTimeout(DataplaneError, error_code=ErrorCode.KERNEL_TIMEOUT):
    """Something was not done when its time was up (code 124)."""

    operation: str

    def __str__(self) -> str:
        return f"timed out {self.operation}"
