"""Opens what the node process enforces policy through: its objects in the datastore, and the packet filter.

``netplug_cli.wiring.node`` runs the controllers that are made here, where ``NETPLUG_POLICY`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from threading import Lock

from attrs import define, evolve, field, frozen

from netplug_backends.host.endpoint_status import EndpointStatusFolder, read_boot_id
from netplug_backends.host.machine import SystemClock
from netplug_backends.linux.addresses import find_interfaces
from netplug_backends.linux.conntrack import LinuxConnections
from netplug_backends.linux.nftables import KeptNftables
from netplug_backends.linux.routing import LinuxKernelEvents
from netplug_cli.node.policy import (
    OBJECTS_CHANGED,
    PROFILES_MISSING,
    READ_EVERY_S,
    TABLE_CHANGED,
    WORKLOADS_CHANGED,
    NetworkProfiles,
    NodePolicy,
    obstacles_of,
    table_events_controller,
)
from netplug_cli.node.routing import kernel_events_controller
from netplug_cli.node.tasks import NodeRegistration
from netplug_cli.node_status import PolicyStatus
from netplug_cli.runtime.controllers import Reconciler, Runtime
from netplug_cli.runtime.feed import OpenDatastore, StoreFeed
from netplug_cli.wiring.node_network import NodeNetwork
from netplug_core.clock import Clock
from netplug_core.dataplane.filter import NO_OVERLAY, Overlay
from netplug_core.dataplane.packetfilter import ForeignChanges, RulesetEvents, find_missing
from netplug_core.dataplane.protocol import KernelError
from netplug_core.dataplane.routing import KernelEvents
from netplug_core.datastore.view import View
from netplug_core.errors import ConfigurationError
from netplug_core.keys import Kind
from netplug_core.log import Level, Log
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY
from netplug_core.policy.index import POLICY_KINDS
from netplug_core.policy.model import PolicySettings
from netplug_core.reconcile.controller import Problem, Source
from netplug_core.reconcile.nat import find_nat_facts, find_overlay
from netplug_core.reconcile.programming import KeptEndpoints
from netplug_core.resources.fields import Switch
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, EndpointToHostAction
from netplug_core.resources.workloadendpoint import WorkloadEndpoint
from netplug_core.workload import EndpointStatus, status_file_name

__all__ = ["POLICY_VARIABLE", "TO_HOST_VARIABLE", "PolicyEnforcement", "is_policy_enabled", "node_policy"]

POLICY_VARIABLE = "NETPLUG_POLICY"
"""Whether this process enforces policy: ``Enabled``, or as without the variable ``Disabled``."""

TO_HOST_VARIABLE = "NETPLUG_ENDPOINT_TO_HOST_ACTION"
"""What happens to packets of a pod to its own host, where no NodeConfiguration says it; without it they are dropped."""

_OVERLAY_KINDS: tuple[Kind[object], ...] = (NODE, IPPOOL, NODE_CONFIGURATION)
_STORED_KINDS = tuple(kind for kind in POLICY_KINDS if kind != KUBERNETES_NETWORK_POLICY)


def is_policy_enabled(environ: Mapping[str, str]) -> bool:
    """Whether this process enforces policy.

    Raises:
        ConfigurationError: the variable has another value. A process that passed it over would leave all pods open.
    """
    text = environ.get(POLICY_VARIABLE) or Switch.DISABLED.value
    try:
        return Switch(text) is Switch.ENABLED
    except ValueError:
        accepted = f"{Switch.ENABLED.value} or {Switch.DISABLED.value}"
        raise ConfigurationError(POLICY_VARIABLE, text, accepted) from None


def _read_settings(environ: Mapping[str, str]) -> PolicySettings:
    """The settings where no NodeConfiguration says anything else."""
    text = environ.get(TO_HOST_VARIABLE) or EndpointToHostAction.DROP.value
    try:
        return PolicySettings(endpoint_to_host=EndpointToHostAction(text))
    except ValueError:
        accepted = ", ".join(each.value for each in EndpointToHostAction)
        raise ConfigurationError(TO_HOST_VARIABLE, text, accepted) from None


@frozen
class PolicyEnforcement:
    """What enforces the policy of this node."""

    feed: StoreFeed
    policy: NodePolicy
    profiles: NetworkProfiles
    interfaces: KernelEvents
    table: RulesetEvents
    clock: Clock
    woken: list[Runtime]

    def controllers(self) -> tuple[Reconciler, ...]:
        """All of them."""
        interfaces = kernel_events_controller(self.interfaces, self._note_interface_change, clock=self.clock)
        failure = f"the kernel notifies of no interface; they are looked at every {READ_EVERY_S:g} s"
        return (
            self.feed.controller(),
            self.policy.controller(),
            self.profiles.controller(),
            evolve(interfaces, name="policy interfaces", failure=failure),
            table_events_controller(self.table, self._note_foreign_changes, clock=self.clock),
        )

    def status(self) -> PolicyStatus:
        """What is enforced."""
        return self.policy.status()

    def check(self) -> PolicyStatus:
        """The same, compared with what the kernel has."""
        return self.policy.check()

    def wake(self, tasks: Runtime) -> None:
        """Let changes of the datastore and of interfaces wake the controller."""
        self.feed.view.on_change = lambda _kind: tasks.wake(OBJECTS_CHANGED)
        self.woken.append(tasks)
        self.policy.on_missing = lambda: tasks.wake(PROFILES_MISSING)

    def note_attached(self, interface: str, container_id: str) -> None:
        """A call of this process has attached the interface of a workload for a container."""
        self.policy.note_attached(interface, container_id)
        self._wake(WORKLOADS_CHANGED)

    def note_detached(self, interface: str, container_id: str) -> None:
        """A call of this process has detached it."""
        self.policy.note_detached(interface, container_id)
        self._wake(WORKLOADS_CHANGED)

    def _note_interface_change(self) -> None:
        self.policy.note_interface_change()
        self._wake(WORKLOADS_CHANGED)

    def _note_foreign_changes(self, changes: ForeignChanges) -> None:
        if self.policy.note_foreign_changes(changes):
            self._wake(TABLE_CHANGED)

    def _wake(self, source: Source) -> None:
        for tasks in self.woken:
            tasks.wake(source)


@contextmanager
def node_policy(
    environ: Mapping[str, str],
    registration: NodeRegistration,
    open_datastore: OpenDatastore,
    log: Log,
    network: NodeNetwork | None,
) -> Iterator[PolicyEnforcement | None]:
    """What enforces policy on this node, as long as the context lasts; None where this process does not.

    ``registration`` knows the datastore of the node, its name, and where status files of endpoints are. ``network``
    makes the tunnels between nodes; None: another program does.

    Raises:
        ConfigurationError: the environment does not say whether it does.
    """
    if not is_policy_enabled(environ):
        yield None
        return
    clock = SystemClock()
    kept = KeptEndpoints(lambda: registration.name)
    view = View(clock=clock, uncached_kinds=frozenset(), guard=Lock(), keep=kept.keep)
    feed = StoreFeed(
        name="policy feed",
        what="the objects of policy",
        kinds=_STORED_KINDS,
        cluster_kinds=(KUBERNETES_NETWORK_POLICY,),
        view=view,
        read_datastore=registration.read_datastore,
        open_datastore=open_datastore,
        clock=clock,
    )
    folder = EndpointStatusFolder(registration.names.endpoint_status_dir)
    with (
        closing(feed),
        LinuxKernelEvents.open(follows_links=True) as interfaces,
        KeptNftables.open() as ruleset,
        ruleset.open_events() as table,
    ):
        policy = NodePolicy(
            view=view,
            find_kinds=lambda: feed.followed,
            find_name=lambda: registration.name,
            find_overlay=lambda: _find_overlay(network, registration.name),
            find_interfaces=find_interfaces,
            ruleset=ruleset,
            connections=LinuxConnections(),
            clock=clock,
            log=log,
            report=partial(_write_statuses, folder, clock, log),
            find_obstacles=_Obstacles(ruleset).find,
            usual=_read_settings(environ),
        )
        profiles = NetworkProfiles(policy=policy, find_datastore=lambda: feed.datastore, log=log)
        yield PolicyEnforcement(feed, policy, profiles, interfaces, table, clock, [])


@define(eq=False)
class _Obstacles:
    """What the kernel lacks, which is asked for until it lacks nothing, and which chains of others drop packets."""

    _ruleset: KeptNftables
    _has_everything: bool = field(default=False, init=False)

    def find(self) -> tuple[Problem, ...]:
        try:
            missing = () if self._has_everything else find_missing(self._ruleset)
            self._has_everything = not missing
            return obstacles_of(missing, self._ruleset.find_dropping_chains())
        except KernelError as error:
            message = "what other programs have in the packet filter is not known"
            return (Problem(message=message, cause=str(error)),)


def _write_statuses(
    folder: EndpointStatusFolder, clock: Clock, log: Log, endpoints: Iterable[WorkloadEndpoint]
) -> tuple[Problem, ...]:
    """Let the folder have the files of these endpoints and no other ones; what keeps that from being so."""
    message = "the status files of endpoints cannot be written: pods that wait for them start late"
    try:
        boot_id = read_boot_id()
    except OSError as error:
        return (Problem(message=message, cause=str(error)),)
    now_ns = clock.now_ns()
    wanted = {
        status_file_name(each): EndpointStatus.of(each, boot_id=boot_id, programmed_at_ns=now_ns) for each in endpoints
    }
    done = folder.make_equal(wanted)
    for name in done.written:
        log(Level.DEBUG, "policy is programmed for an endpoint", file=name)
    causes = (f"{name or folder.path}: {error.strerror or error}" for name, error in done.problems)
    return tuple(Problem(message=message, cause=each) for each in causes)


def _find_overlay(network: NodeNetwork | None, node: str | None) -> Overlay | None:
    """The wrapped packets that this node receives; None as long as that is not known."""
    if network is None:
        return NO_OVERLAY
    view = network.feed.view
    return find_overlay(find_nat_facts(view, node)) if node is not None and view.has_listed(_OVERLAY_KINDS) else None
