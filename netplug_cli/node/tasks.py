"""What the node process does besides serving calls: its controllers, by name; ``packet_filter`` has one more.

- ``status folder``, ``registration``: the node's Node in the datastore, with its addresses and labels, and the files
  beside it
- ``release records``: records of DELs whose datastore was away are replayed
- ``helper plugins``: plugins that the configuration lists of the host name and that it lacks are reported
- ``conflict reports``: conflicts with other nodes or programs are Events of the node
- ``token of the plugin``: the token in the plugin's kubeconfig is renewed; the installer does it too

``netplug_cli.runtime`` runs them; ``netplug_cli.wiring`` opens what they act through.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager
from threading import Lock
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from netplug_cli.node_status import AddressStatus, RegistrationStatus
from netplug_core.clock import Clock, Deadline, format_time
from netplug_core.cni.plugins import REPORT_AGAIN_S, MissingPlugin
from netplug_core.cni.request import CNIRequest
from netplug_core.dataplane.routing import HostInterface
from netplug_core.datastore.protocol import CredentialsInUse
from netplug_core.datastore.view import View
from netplug_core.errors import NetplugError
from netplug_core.flows.cni.release_records import has_work, keep_house, locations_of, take_over
from netplug_core.flows.node import (
    HostNetwork,
    NodeHost,
    NodeWorld,
    SettledAddresses,
    copy_cluster_labels,
    find_on_host,
    publish_node_name,
    publish_pod_mtu,
    register_node,
    settle_addresses,
)
from netplug_core.flows.resources.cluster import NodeRelease, store_release
from netplug_core.flows.world import RecordCounts, RecordFiles
from netplug_core.installation.installer import RETRY_S, IssuedToken, refresh_delay_s
from netplug_core.log import Level, Log
from netplug_core.netconf.model import NetConf
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Source, Timing, Unfinished
from netplug_core.reconcile.registration import RegistrationSettings, find_relevant_interfaces, is_contested
from netplug_core.reconcile.tunnels import MTUInputs, settle_pod_mtu
from netplug_core.records import Kind
from netplug_core.resources.ippool import IPPOOL
from netplug_core.resources.node import NODE, node_key
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION
from netplug_core.settings.model import DatastoreSettings

__all__ = [
    "CONFLICTS_EVERY_S",
    "CONTEST_S",
    "CREDENTIALS_EVERY_S",
    "ENDPOINTS_CHANGED",
    "HOUSEKEEPING_S",
    "INTERFACES_CHANGED",
    "LONGEST_PAUSE_S",
    "LOOK_EVERY_S",
    "MAX_CONFIGURATIONS",
    "MAX_REPORTS",
    "NODE_REGISTERED",
    "PLUGINS_EVERY_S",
    "RELEASE_EVERY_S",
    "REPLAY_EVERY_S",
    "TRY_AGAIN_S",
    "ConflictReports",
    "HelperPlugins",
    "NodeRegistration",
    "RecordReplay",
    "TokenRefresh",
]  # fmt: skip


# --- helper plugins -----------------------------------------------------------------------------------------------

PLUGINS_EVERY_S = 10.0
"""The pause between two looks for missing plugins."""

_LACKING = "each start of a pod on this node fails, and gets an address first: a plugin is missing"

ReportPlugins: TypeAlias = Callable[[tuple[MissingPlugin, ...], Deadline], None]
"""Reports to the orchestrator which plugins are missing; none: that they are there again."""


@frozen
class _PluginLook:
    missing: tuple[MissingPlugin, ...]
    is_report_due: bool


@define(kw_only=True)
class HelperPlugins:
    """Reports the plugins that a runtime calls beside netplug, and that this host lacks.

    ``look`` says which they are. ``report`` is called when that changes, and again after ``REPORT_AGAIN_S`` as long
    as some are missing; None: there is no orchestrator to report to.
    """

    look: Callable[[], tuple[MissingPlugin, ...]]
    report: ReportPlugins | None
    clock: Clock
    missing: tuple[MissingPlugin, ...] = field(default=(), init=False)
    _reported: tuple[MissingPlugin, ...] = field(default=(), init=False)
    _report_at_s: float = field(default=0.0, init=False)

    def controller(self) -> Controller[_PluginLook, tuple[MissingPlugin, ...]]:
        """What looks, every :data:`PLUGINS_EVERY_S`."""
        return Controller(
            name="helper plugins",
            observe=self._observe,
            plan=_plan_report,
            act=self._report,
            failure="missing plugins cannot be reported to the orchestrator",
            recovered="no plugin is missing any more",
        )

    def _observe(self, _deadline: Deadline) -> _PluginLook:
        self.missing = self.look()
        is_due = bool(self.missing) and self.clock.monotonic() >= self._report_at_s
        return _PluginLook(self.missing, self.report is not None and (is_due or self.missing != self._reported))

    def _report(self, missing: tuple[MissingPlugin, ...], deadline: Deadline) -> None:
        if self.report is not None:
            self.report(missing, deadline)
        self._reported, self._report_at_s = missing, self.clock.monotonic() + REPORT_AGAIN_S


def _plan_report(found: _PluginLook) -> Plan[tuple[MissingPlugin, ...]]:
    problems = tuple(Problem(message=_LACKING, cause=str(each)) for each in found.missing)
    actions = (found.missing,) if found.is_report_due else ()
    return Plan(actions=actions, look_again_s=PLUGINS_EVERY_S, problems=problems)


# --- Events of conflicts ------------------------------------------------------------------------------------------

CONFLICTS_EVERY_S = 10.0
"""The pause between two looks for conflicts."""

MAX_REPORTS = 20
"""So many Events of conflicts are written in ``REPORT_AGAIN_S``, and no more."""


@define(kw_only=True)
class ConflictReports:
    """Writes Events of the node about what is in conflict with other nodes or programs, so that people hear of it.

    ``find_problems`` are all that are known; those with an Event count. It is written when the problem is new, and
    again after ``REPORT_AGAIN_S``, also where the problem comes and goes all the time.
    """

    find_problems: Callable[[], Iterable[Problem]]
    report: Callable[[Problem, Deadline], None]
    clock: Clock
    _reported_at: dict[Problem, float] = field(factory=dict, init=False)

    def controller(self) -> Controller[tuple[Problem, ...], Problem]:
        """What looks, every :data:`CONFLICTS_EVERY_S`."""
        return Controller(
            name="conflict reports",
            observe=self._find_due,
            plan=lambda due: Plan(actions=due, look_again_s=CONFLICTS_EVERY_S),
            act=self._report,
            failure="a conflict of the node cannot be reported to the orchestrator",
            timing=Timing(backoff=Backoff(first_s=CONFLICTS_EVERY_S, longest_s=LOOK_EVERY_S)),
        )

    def _find_due(self, _deadline: Deadline) -> tuple[Problem, ...]:
        now, known = self.clock.monotonic(), self._reported_at
        self._reported_at = {each: at for each, at in known.items() if now < at + REPORT_AGAIN_S}
        new = (each for each in self.find_problems() if each.event and each not in self._reported_at)
        return tuple(dict.fromkeys(new))[: MAX_REPORTS - len(self._reported_at)]

    def _report(self, problem: Problem, deadline: Deadline) -> None:
        self.report(problem, deadline)
        self._reported_at[problem] = self.clock.monotonic()


# --- registration -------------------------------------------------------------------------------------------------

LOOK_EVERY_S = 60.0
"""The pause between two looks at a Node that is registered, and the longest one after a failure."""

RELEASE_EVERY_S = 600.0
"""The pause between two looks at the release of the cluster."""

TRY_AGAIN_S = 5.0
"""The longest pause after a first failure; the pauses after the next ones are longer."""

CONTEST_S = 5.0
"""After so long it is looked whether another node has registered a new address of this one in the same instant."""

INTERFACES_CHANGED = Source("interfaces")
"""Interfaces or addresses of the node have changed: what is registered may have to follow."""

ENDPOINTS_CHANGED = Source("endpoints of the node")
"""A workload endpoint of the node has changed."""

NODE_REGISTERED = Source("registered node")
"""The node is registered, by a name that is known from now on."""

_FOLLOWED: tuple[Kind[object], ...] = (IPPOOL, NODE_CONFIGURATION)
_GATHER_CHANGES_S = 2.0  # an interface that comes up has its addresses a little later
_REPORT_S = 1.0  # what a pass has found to be wrong is reported by the next one

_REGISTRATION_TIMING = Timing(backoff=Backoff(first_s=TRY_AGAIN_S, longest_s=LOOK_EVERY_S), gather_s=_GATHER_CHANGES_S)


@frozen(kw_only=True)
class _Look:
    """What a pass of the registration sees. ``settings`` None: no datastore is configured.

    ``known`` are the pools and NodeConfigurations, if they are followed. ``due_s``: how long it is until the node is
    looked at again; 0: now.
    """

    settings: DatastoreSettings | None
    registration: RegistrationSettings = field(factory=RegistrationSettings)
    interfaces: tuple[HostInterface, ...] = ()
    known: MTUInputs | None = None
    due_s: float = 0.0
    problems: tuple[Problem, ...] = ()


def _do_nothing() -> None:
    pass


@define(kw_only=True)
class NodeRegistration:
    """Keeps the node registered: its Node in the datastore, with addresses and labels, and the files beside it.

    It needs a datastore of its own configuration, as there may be no call for a long time. ``names`` has the configured
    name of the node, and the paths of its files. ``read_datastore`` reads which datastore the node is registered in,
    with access to the orchestrator; None if none is configured. ``read_settings`` reads how it gets its addresses.
    ``open_world`` opens what a configuration names, with the rights and the release of this process. ``cluster_types``
    are the parts of the cluster's type that this process knows.
    ``poll_s``: how often the node is looked at when no interface changes. ``view`` follows
    pools and NodeConfigurations in the same datastore; None: they are read at each look.
    """

    names: NetConf
    read_datastore: Callable[[], DatastoreSettings | None]
    read_settings: Callable[[], RegistrationSettings]
    network: HostNetwork
    open_world: Callable[[NetConf], AbstractContextManager[NodeWorld]]
    host: NodeHost
    clock: Clock
    log: Log
    cluster_types: tuple[str, ...] = ()
    poll_s: float = LOOK_EVERY_S
    view: View | None = None
    on_registered: Callable[[], None] = field(default=_do_nothing, init=False)
    """Called when the name of the node is known, or is another one."""
    name: str | None = field(default=None, init=False)
    """The name by which the node is registered; None: not yet."""
    addresses: SettledAddresses | None = field(default=None, init=False)
    """What was registered last."""
    _has_new: bool = field(default=False, init=False)
    _next_release: float | None = field(default=None, init=False)
    _next_look: float = field(default=float("-inf"), init=False)
    _used: tuple[object, ...] = field(default=(), init=False)  # what the last look was with
    _registered: tuple[str, str] | None = field(default=None, init=False)  # what the log said last
    _logged: dict[str, str] = field(factory=dict, init=False)

    def controllers(self) -> tuple[Controller[None, None], Controller[_Look, _Look]]:
        """What keeps the folder of endpoint status files, and what keeps the node registered."""
        folder = Controller(
            name="status folder",
            observe=lambda _deadline: None,
            plan=lambda _state: Plan(actions=(None,), look_again_s=LOOK_EVERY_S),
            act=lambda _action, _deadline: self.host.make_public_folder(self.names.endpoint_status_dir),
            failure="the folder of endpoint status files cannot be made",
            timing=_REGISTRATION_TIMING,
        )
        registration = Controller(
            name="registration",
            observe=self._look,
            plan=_plan_registration,
            act=self._register,
            failure="the node is not registered",
            inputs=frozenset((INTERFACES_CHANGED, *_FOLLOWED)),
            timing=_REGISTRATION_TIMING,
        )
        return folder, registration

    def find_conflicts(self) -> tuple[Problem, ...]:
        """The addresses that other nodes have."""
        settled = self.addresses
        return () if settled is None else tuple(each.problem for each in settled.conflicts)

    def status(self) -> RegistrationStatus | None:
        """How the node is registered; None: it is not yet."""
        settled = self.addresses
        if settled is None:
            return None
        problems = (*(each.problem for each in settled.conflicts), *settled.problems)
        return RegistrationStatus(
            node=settled.node,
            pod_mtu=settled.pod_mtu,
            addresses=tuple(
                AddressStatus(
                    family=str(each.family),
                    address="" if each.address is None else str(each.address),
                    origin=each.origin_text,
                    trace=tuple(map(str, each.trace)),
                )
                for each in settled.addresses
            ),
            problems=tuple(f"{each.message}: {each.cause}" for each in problems),
        )

    def _look(self, _deadline: Deadline) -> _Look:
        settings = self.read_datastore()
        if settings is None:
            self.name = self._registered = self.addresses = None
            return _Look(settings=None)
        registration = self.read_settings()
        look = _Look(
            settings=settings,
            registration=registration,
            interfaces=self.network.find_interfaces(),
            known=self._find_known(),
            due_s=max(0.0, self._next_look - self.clock.monotonic()),
            problems=self.addresses.problems if self.addresses is not None else (),
        )
        return look if self._decisive(look) == self._used else evolve(look, due_s=0.0)

    def _find_known(self) -> MTUInputs | None:
        view = self.view
        if view is None or not view.has_listed(_FOLLOWED):
            return None
        return MTUInputs(
            pools=tuple(record.value for record in view.list(IPPOOL)),
            configurations=tuple(record.value for record in view.list(NODE_CONFIGURATION)),
        )

    def _decisive(self, look: _Look) -> tuple[object, ...]:
        """What lets the node be looked at, when it changes."""
        interfaces, mtu = find_relevant_interfaces(look.interfaces), None
        if self.name is not None and look.known is not None:
            mtu = settle_pod_mtu(self.name, look.interfaces, look.known, look.registration.mtu)
        return look.settings, look.registration, interfaces, mtu

    def _register(self, look: _Look, _deadline: Deadline) -> None:
        """Register the node, and do what needs the same datastore. Without its labels it is registered all the same."""
        settings = look.settings or self.names.datastore
        before, self._registered, self._used = self._registered, None, ()
        netconf = evolve(self.names, datastore=settings)
        with self.open_world(netconf) as world:
            name = register_node(world, netconf)
            problems = self._settle_addresses(world, netconf, look, name)
            publish_node_name(world, netconf, name)
            is_new, self.name, self._registered = name != self.name, name, (name, settings.type)
            if is_new:
                self.on_registered()
            if self._registered != before:
                self.log(Level.INFO, "the node is registered", node=name, datastore=settings.type)
            steps = (
                (
                    "the labels of the orchestrator's node are not copied",
                    lambda: self._copy_labels(world, netconf, name),
                ),
                ("the release of the cluster is not stored", lambda: self._store_release(world, name)),
            )
            problems += tuple(problem for failure, step in steps if (problem := _find_problem(failure, step)))
        if problems:
            raise Unfinished(problems)
        self._next_look = self.clock.monotonic() + (min(CONTEST_S, self.poll_s) if self._has_new else self.poll_s)
        self._used = self._decisive(look)

    def _settle_addresses(self, world: NodeWorld, netconf: NetConf, look: _Look, name: str) -> tuple[Problem, ...]:
        """Register the addresses, and return what kept that from being done.

        Raises:
            Unfinished: an address that is configured belongs to another node, and this one was not registered before.
        """
        failure = "the addresses of the node are not registered"
        problem = _find_problem(failure, lambda: self._settle(world, netconf, look, name))
        if problem is not None or self.addresses is None:
            return () if problem is None else (problem,)
        conflicts = self.addresses.conflicts
        problems = tuple(each.problem for each in conflicts)
        if self.name is None and any(each.is_configured for each in conflicts):
            raise Unfinished(problems)
        return problems

    def _settle(self, world: NodeWorld, netconf: NetConf, look: _Look, name: str) -> None:
        settings, found = find_on_host(world, self.network, look.registration, name)
        self.addresses = settled = settle_addresses(
            world, name, settings, found, known=look.known, is_contested=self._is_contested(name)
        )
        self._has_new = settled.has_new
        registered = {
            f"ipv{each.family.value}": str(each.address) for each in settled.addresses if each.address is not None
        }
        if registered != self._logged:
            self.log(Level.INFO, "the addresses of the node are registered", node=name, **registered)
            self._logged = registered
        if publish_pod_mtu(world, netconf, settled.pod_mtu):
            self.log(Level.INFO, "the MTU of pods is written", mtu=settled.pod_mtu, path=netconf.mtu_file)

    def _is_contested(self, name: str) -> bool:
        """Whether another node has an address of this one and keeps it, or may have registered it a moment ago."""
        if self._has_new:
            return True
        view = self.view
        own = None if view is None or not view.has_listed((NODE,)) else view.find(node_key(name))
        if view is None or own is None:
            return False
        return is_contested(own.value, (record.value for record in view.list(NODE)))

    def _copy_labels(self, world: NodeWorld, netconf: NetConf, name: str) -> None:
        if copy_cluster_labels(world, netconf, name):
            self.log(Level.INFO, "the labels of the orchestrator's node are copied", node=name)

    def _store_release(self, world: NodeWorld, name: str) -> None:
        """Store what the cluster is, as seen from here, and log a release that it runs from now on."""
        now = self.clock.monotonic()
        if self._next_release is not None and now < self._next_release:
            return
        own = NodeRelease(
            node=name, release=world.release, types=self.cluster_types, others=self._find_other_releases(name)
        )
        raised = store_release(world.datastore, own, pace=world.pace(), new_uid=world.host.new_uid)
        if raised:
            self.log(Level.INFO, "the cluster runs another release now", release=raised)
        self._next_release = now + RELEASE_EVERY_S

    def _find_other_releases(self, name: str) -> tuple[str, ...] | None:
        """The releases that other nodes have recorded, if the nodes are followed; this node may not be up to date."""
        view = self.view
        if view is None or not view.has_listed((NODE,)):
            return None
        return tuple(each.value.status.release for each in view.list(NODE) if each.key != node_key(name))


_NO_DATASTORE = Problem(message="the node is not registered: no datastore is configured for that", level=Level.INFO)


def _plan_registration(look: _Look) -> Plan[_Look]:
    if look.settings is None:
        return Plan(look_again_s=LOOK_EVERY_S, problems=(_NO_DATASTORE,))
    if look.due_s > 0.0:
        return Plan(look_again_s=look.due_s, problems=look.problems)
    return Plan(actions=(look,), look_again_s=_REPORT_S, problems=look.problems)


def _find_problem(failure: str, step: Callable[[], None]) -> Problem | None:
    """Do a step; what kept it from being done."""
    try:
        step()
    except (NetplugError, ImportError, OSError) as error:
        return Problem(message=failure, cause=str(error))
    return None


# --- release records ----------------------------------------------------------------------------------------------

REPLAY_EVERY_S = 10.0
"""The pause between two looks at the records."""

LONGEST_PAUSE_S = 600.0
"""The longest pause between two attempts for a datastore that stays away and that no call asks for."""

HOUSEKEEPING_S = 3600.0
"""How often is looked for records that cannot be done here."""

_FIRST_HOUSEKEEPING_S = 60.0  # by then calls have come with the configurations of this node

MAX_CONFIGURATIONS = 64
"""For how many configurations records are replayed; beyond that, the one that came longest ago is forgotten."""

Replay = Callable[[NetConf, CNIRequest | None], bool]
"""Replays the records of a configuration; whether its datastore did what it was asked."""


@define(eq=False)
class _Configuration:
    """A configuration that calls came with, and the last call, which another IPAM plugin is executed for."""

    netconf: NetConf
    request: CNIRequest | None
    pause_s: float = 0.0
    not_before_s: float = 0.0


@define(eq=False, repr=False)
class RecordReplay:
    """Replays release records every few seconds, for the configurations that calls came with.

    A DEL that finds its datastore away leaves a record on the node. No call of this process replays one: the controller
    here does, so that records cost no call any time. It opens a datastore only if there is a record that may be of it,
    and looks less and less often at one that stays away and that no call asks for. ``open_files`` opens a folder of
    records.
    """

    _replay: Replay
    _open_files: Callable[[str], RecordFiles]
    _clock: Clock = field(kw_only=True, alias="clock")
    _log: Log = field(kw_only=True, alias="log")
    # The one that came longest ago is the first.
    _known: dict[tuple[object, ...], _Configuration] = field(factory=dict, init=False)
    _keep_house_at_s: dict[str, float] = field(factory=dict, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def controller(self) -> Controller[tuple[_Configuration, ...], _Configuration]:
        """What replays. Each configuration has a pause of its own, so that one that fails delays no other one."""
        return Controller(
            name="release records",
            observe=self._find_due,
            plan=lambda due: Plan(actions=due, look_again_s=REPLAY_EVERY_S),
            act=self._replay_one,
            failure="release records could not be replayed",
            timing=Timing(backoff=Backoff(first_s=REPLAY_EVERY_S, longest_s=REPLAY_EVERY_S)),
        )

    def count(self) -> RecordCounts:
        """How many records wait in the folders of its configurations, ``own`` being those that it replays.

        Raises:
            OSError: a folder cannot be listed.
        """
        counts = [self._open_files(folder).count(locations) for folder, locations in self._locations().items()]
        return RecordCounts(
            own=sum(each.own for each in counts),
            foreign=sum(each.foreign for each in counts),
            damaged=sum(each.damaged for each in counts),
        )

    def note(self, netconf: NetConf, request: CNIRequest | None) -> None:
        """Replay the records of this configuration from now on."""
        key = (netconf.datastore, netconf.release_record_dir, netconf.ipam_lock_file, *locations_of(netconf))
        with self._lock:
            self._known.pop(key, None)
            if len(self._known) >= MAX_CONFIGURATIONS:
                del self._known[next(iter(self._known))]
            self._known[key] = _Configuration(netconf, request)

    def _find_due(self, _deadline: Deadline) -> tuple[_Configuration, ...]:
        """The configurations whose pause is over. The folders are put in order first."""
        for folder, locations in self._locations().items():
            files = self._open_files(folder)
            take_over(files, self._log)
            now_s = self._clock.monotonic()
            if now_s >= self._keep_house_at_s.setdefault(folder, now_s + _FIRST_HOUSEKEEPING_S):
                keep_house(files, locations, self._clock, self._log)
                self._keep_house_at_s[folder] = now_s + HOUSEKEEPING_S
        now_s = self._clock.monotonic()
        return tuple(known for known in self._configurations() if now_s >= known.not_before_s)

    def _replay_one(self, known: _Configuration, _deadline: Deadline) -> None:
        is_done = False
        try:
            files = self._open_files(known.netconf.release_record_dir)
            is_done = not has_work(files, known.netconf) or self._replay(known.netconf, known.request)
        finally:
            known.pause_s = 0.0 if is_done else min(LONGEST_PAUSE_S, max(REPLAY_EVERY_S, 2 * known.pause_s))
            known.not_before_s = self._clock.monotonic() + known.pause_s

    def _configurations(self) -> tuple[_Configuration, ...]:
        with self._lock:
            return tuple(self._known.values())

    def _locations(self) -> dict[str, frozenset[str]]:
        """The locations whose records are replayed, by folder."""
        found: dict[str, list[str]] = {}
        for known in self._configurations():
            found.setdefault(known.netconf.release_record_dir, []).extend(locations_of(known.netconf))
        return {folder: frozenset(locations) for folder, locations in found.items()}


# --- the plugin's token -------------------------------------------------------------------------------------------

CREDENTIALS_EVERY_S = 1.0
"""The pause between two looks at the process's own credentials. A change counts once two looks in a row see it."""


@frozen
class _Renewal:
    """The token is to be renewed; ``stamps`` are those of the process's own credentials by then."""

    stamps: Hashable


@define(kw_only=True)
class TokenRefresh:
    """Renews the plugin's token before it expires, and earlier when the process's own credentials change.

    A cluster that changes its signing key renews the tokens in pods, and those of before are accepted no more. So a
    change of the process's own token is a reason to renew the plugin's. If the process's own files cannot be looked at,
    the token is renewed by time alone.

    ``renew`` replaces the plugin's token. ``find_stamps`` is what changes with the process's own credentials.
    ``interval_s`` replaces a quarter of the time left as the pause. ``path`` is the file, for the log.
    """

    renew: Callable[[], IssuedToken]
    find_stamps: Callable[[], Hashable]
    path: str
    clock: Clock
    chance: Callable[[], float]
    log: Log
    interval_s: float | None = None
    _issued: IssuedToken | None = field(default=None, init=False)
    _next_at: float = field(default=float("-inf"), init=False)
    _used_stamps: Hashable = field(default=None, init=False)
    _seen_stamps: Hashable = field(default=None, init=False)

    def controller(self) -> Controller[_Renewal | None, _Renewal]:
        """What looks again and again."""
        return Controller(
            name="token of the plugin",
            observe=self._find_renewal,
            plan=lambda renewal: Plan(actions=(renewal,) if renewal else (), look_again_s=CREDENTIALS_EVERY_S),
            act=self._renew,
            failure="the plugin's token is not renewed",
            timing=Timing(backoff=Backoff(first_s=2 * RETRY_S, longest_s=2 * RETRY_S)),
        )

    def credentials_in_use(self) -> CredentialsInUse | None:
        """The plugin's; None as long as this process has written none."""
        issued = self._issued
        if issued is None:
            return None
        return CredentialsInUse(access="plugin", location=self.path, expires_ns=issued.expires_ns)

    def renew_now(self) -> None:
        """Renew the token. The next time is due as after a look.

        Raises:
            NetplugError: there is none.
            OSError: the file cannot be written.
        """
        stamps = self.find_stamps()
        self._replace(stamps)
        self._seen_stamps = stamps

    def _find_renewal(self, _deadline: Deadline) -> _Renewal | None:
        """The renewal that is due: it is time, or the process's own credentials have changed."""
        stamps = self.find_stamps()
        has_settled, self._seen_stamps = stamps == self._seen_stamps, stamps
        has_changed = stamps is not None and has_settled and stamps != self._used_stamps
        return _Renewal(stamps) if has_changed or self.clock.monotonic() >= self._next_at else None

    def _renew(self, renewal: _Renewal, _deadline: Deadline) -> None:
        self._replace(renewal.stamps)

    def _replace(self, stamps: Hashable) -> None:
        self._issued = issued = self.renew()
        self._used_stamps = stamps
        delay_s = refresh_delay_s(issued, now_ns=self.clock.now_ns(), interval_s=self.interval_s, chance=self.chance())
        self._next_at = self.clock.monotonic() + delay_s
        source = "the pod's own, as the server issues none" if issued.is_mounted else "issued"
        expires = format_time(issued.expires_ns)
        self.log(Level.INFO, "the plugin's token is renewed", path=self.path, expires=expires, token=source)
