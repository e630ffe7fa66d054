"""What a node enforces, from changes of objects: the same as ``resolve``, at the cost of what has changed.

The controller of the node process applies each change of an object as it comes, in any order and as often as it
likes; then it takes what follows from all of them together. An index never looks back: what it says depends on the
objects as they are, not on how they became so.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import define, field

from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.policy.convert import (
    PolicyDefinition,
    ProfileDefinition,
    define_missing_profile,
    define_policy,
    define_profile,
    define_unreadable_policy,
)
from netplug_core.policy.labelindex import LabelIndex
from netplug_core.policy.model import (
    ActiveHostEndpoint,
    ActivePolicy,
    ActiveProfile,
    EndpointId,
    LocalEndpoint,
    PolicyDelta,
    PolicyId,
    PolicyProblem,
    PolicySettings,
)
from netplug_core.policy.resolve import (
    Interfaces,
    LocalObject,
    PolicyObject,
    StoredPolicy,
    choose_host_endpoints,
    choose_workload,
    host_value,
    is_interface_name,
    local_problems,
    policy_id_of,
    settings_of,
    unreadable_problems,
    used_policy,
    used_profile,
    workload_value,
)
from netplug_core.policy.sets import (
    PeerId,
    PeerObject,
    SetIndex,
    network_set_problems,
    peer_id,
    peer_of,
    shared_address_problems,
)
from netplug_core.records import Key, Kind
from netplug_core.resources.hostendpoint import HOST_ENDPOINT, HostEndpoint
from netplug_core.resources.networkpolicy import (
    GLOBAL_NETWORK_POLICY,
    GLOBAL_NETWORK_SET,
    NETWORK_POLICY,
    NETWORK_SET,
    GlobalNetworkPolicy,
    GlobalNetworkSet,
    NetworkPolicy,
    NetworkSet,
    SetOfNetworks,
)
from netplug_core.resources.nodeconfiguration import NODE_CONFIGURATION, NodeConfiguration
from netplug_core.resources.profile import DEFAULT_ALLOW_PROFILE, PROFILE, Profile
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = ["POLICY_KINDS", "PolicyIndex"]

POLICY_KINDS: Final[tuple[Kind[object], ...]] = (
    NODE_CONFIGURATION,
    PROFILE,
    NETWORK_POLICY,
    GLOBAL_NETWORK_POLICY,
    KUBERNETES_NETWORK_POLICY,
    NETWORK_SET,
    GLOBAL_NETWORK_SET,
    HOST_ENDPOINT,
    WORKLOAD_ENDPOINT,
)
"""The kinds that an index wants to hear of; of another one it takes no notice."""

_User: TypeAlias = PolicyId | str
"""A policy, or a profile by its name."""

_CLASSES: Final[Mapping[str, type[PolicyObject]]] = {
    NODE_CONFIGURATION.name: NodeConfiguration,
    PROFILE.name: Profile,
    NETWORK_POLICY.name: NetworkPolicy,
    GLOBAL_NETWORK_POLICY.name: GlobalNetworkPolicy,
    KUBERNETES_NETWORK_POLICY.name: KubernetesNetworkPolicy,
    NETWORK_SET.name: NetworkSet,
    GLOBAL_NETWORK_SET.name: GlobalNetworkSet,
    HOST_ENDPOINT.name: HostEndpoint,
    WORKLOAD_ENDPOINT.name: WorkloadEndpoint,
}

K = TypeVar("K", PolicyId, EndpointId, str)
V = TypeVar("V")


@define(eq=False)
class _Published(Generic[K, V]):
    """The values of one sort that were handed out, by identity, and those that have changed since."""

    values: dict[K, V] = field(factory=dict)
    changed: dict[K, V] = field(factory=dict)
    removed: dict[K, None] = field(factory=dict)

    def put(self, identity: K, value: V | None) -> None:
        """This is the value now; None: there is none."""
        former = self.values.get(identity)
        if former == value:
            return
        if value is None:
            del self.values[identity]
            self.changed.pop(identity, None)
            self.removed[identity] = None
        else:
            self.values[identity] = self.changed[identity] = value

    def take(self) -> tuple[tuple[V, ...], tuple[K, ...]]:
        """The changed values and the removed identities, sorted."""
        taken = tuple(self.changed[each] for each in sorted(self.changed)), tuple(sorted(self.removed))
        self.changed, self.removed = {}, {}
        return taken


@define(eq=False)
class PolicyIndex:
    """The objects that count for the policies of a node. Its first delta is the change from an empty state.

    ``usual`` are the settings where no NodeConfiguration says anything else.
    """

    node: str
    usual: PolicySettings = field(factory=PolicySettings)
    _sets: SetIndex[_User] = field(factory=SetIndex, init=False)
    _local: LabelIndex[PeerId, PolicyId] = field(init=False)

    # Objects.
    _policies: dict[PolicyId, PolicyDefinition] = field(factory=dict, init=False)
    _profiles: dict[str, Profile] = field(factory=dict, init=False)
    _configurations: dict[str, NodeConfiguration] = field(factory=dict, init=False)
    _workloads: dict[PeerId, WorkloadEndpoint] = field(factory=dict, init=False)  # of this node, as those below
    _workloads_by_interface: dict[str, dict[PeerId, None]] = field(factory=dict, init=False)
    _hosts: dict[PeerId, HostEndpoint] = field(factory=dict, init=False)
    _set_problems: dict[PeerId, tuple[PolicyProblem, ...]] = field(factory=dict, init=False)  # of all network sets
    _unreadable: dict[Key[object], None] = field(factory=dict, init=False)  # of all kinds
    _attached: dict[str, str] = field(factory=dict, init=False)
    _interfaces: Interfaces = field(default=(), init=False)

    # What follows from them, as far as it is settled.
    _enforced: dict[PeerId, tuple[LocalObject, str]] = field(factory=dict, init=False)  # with the interface
    _profile_users: dict[str, dict[PeerId, None]] = field(factory=dict, init=False)
    _used: dict[_User, PolicyDefinition | ProfileDefinition] = field(factory=dict, init=False)
    _settings: PolicySettings = field(factory=PolicySettings, init=False)
    _problems: tuple[PolicyProblem, ...] = field(default=(), init=False)
    _active_policies: _Published[PolicyId, ActivePolicy] = field(factory=_Published[PolicyId, ActivePolicy], init=False)
    _active_profiles: _Published[str, ActiveProfile] = field(factory=_Published[str, ActiveProfile], init=False)
    _endpoints: _Published[EndpointId, LocalEndpoint] = field(factory=_Published[EndpointId, LocalEndpoint], init=False)
    _host_endpoints: _Published[str, ActiveHostEndpoint] = field(
        factory=_Published[str, ActiveHostEndpoint], init=False
    )

    # What is not settled yet.
    _changed_interfaces: dict[str, None] = field(factory=dict, init=False)
    _changed_endpoints: dict[PeerId, None] = field(factory=dict, init=False)
    _changed_users: dict[_User, None] = field(factory=dict, init=False)
    _have_hosts_changed: bool = field(default=False, init=False)
    _have_settings_changed: bool = field(default=True, init=False)
    _may_have_problems_changed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._local = LabelIndex(self._before)
        self._apply_profile((DEFAULT_ALLOW_PROFILE.key.name,), DEFAULT_ALLOW_PROFILE.value)

    # --- changes ------------------------------------------------------------------------------------------------------

    def apply(self, key: Key[object], value: object | None) -> None:
        """An object is new, has changed, or does not exist (None). It may be as it was, or never have existed.

        A value that is none of its kind stands for one that cannot be read: what it may deny is denied.
        """
        name, path = key.kind.name, key.path
        if name not in _CLASSES or key == DEFAULT_ALLOW_PROFILE.key:
            return
        is_unreadable = value is not None and not isinstance(value, _CLASSES[name])
        self._note_unreadable(key, is_unreadable=is_unreadable)
        identity, known = policy_id_of(key), None if is_unreadable else value
        if identity is not None:
            definition = define_policy(known) if isinstance(known, StoredPolicy) else None
            self._apply_policy(identity, define_unreadable_policy(identity) if is_unreadable else definition)
        elif name == PROFILE.name:
            self._apply_profile(path, known if isinstance(known, Profile) else None)
        elif name == NODE_CONFIGURATION.name:
            self._apply_configuration(path, known if isinstance(known, NodeConfiguration) else None)
        else:
            self._apply_peer((name, *path), known if isinstance(known, PeerObject) else None)

    def set_attached(self, interface: str, container_id: str | None) -> None:
        """The process has attached an interface for a container; None: it has detached it."""
        if container_id is None:
            self._attached.pop(interface, None)
        else:
            self._attached[interface] = container_id
        self._changed_interfaces[interface] = None

    def set_interfaces(self, interfaces: Interfaces) -> None:
        """The interfaces of the node that are not those of workloads, with their addresses."""
        self._interfaces = interfaces
        self._have_hosts_changed = True

    def _note_unreadable(self, key: Key[object], *, is_unreadable: bool) -> None:
        if is_unreadable is (key in self._unreadable):
            return
        if is_unreadable:
            self._unreadable[key] = None
        else:
            del self._unreadable[key]
        self._may_have_problems_changed = True

    def _apply_policy(self, identity: PolicyId, definition: PolicyDefinition | None) -> None:
        former = self._policies.get(identity)
        if former == definition:
            return
        if former is not None and self._local.has_selector(identity):
            self._local.remove_selector(identity)
        if definition is None:
            del self._policies[identity]
        else:
            self._policies[identity] = definition
            if definition.directions:
                self._local.add_selector(identity, definition.selector)
        self._changed_users[identity] = None
        self._may_have_problems_changed = True

    def _apply_profile(self, path: tuple[str, ...], value: Profile | None) -> None:
        (name,) = path
        if value is None:
            self._profiles.pop(name, None)
        else:
            self._profiles[name] = value
        labels = () if value is None else value.spec.labels_to_apply
        self._local.set_parent(name, labels)
        self._sets.set_profile_labels(name, labels)
        self._changed_users[name] = None

    def _apply_configuration(self, path: tuple[str, ...], value: NodeConfiguration | None) -> None:
        (name,) = path
        if value is None:
            self._configurations.pop(name, None)
        else:
            self._configurations[name] = value
        self._have_settings_changed = True

    def _apply_peer(self, identity: PeerId, value: PeerObject | None) -> None:
        self._sets.set_peer(identity, None if value is None else peer_of(value, self.node))
        if identity[0] == WORKLOAD_ENDPOINT.name:
            self._apply_workload(identity, value if isinstance(value, WorkloadEndpoint) else None)
        elif identity[0] == HOST_ENDPOINT.name:
            self._apply_host(identity, value if isinstance(value, HostEndpoint) else None)
        else:
            networks = value if isinstance(value, SetOfNetworks) else None
            problems = () if networks is None else tuple(network_set_problems(networks))
            self._may_have_problems_changed |= problems != self._set_problems.pop(identity, ())
            if problems:
                self._set_problems[identity] = problems

    def _apply_workload(self, identity: PeerId, value: WorkloadEndpoint | None) -> None:
        former = self._workloads.get(identity)
        endpoint = value if value is not None and value.spec.node == self.node else None
        if former == endpoint:
            return
        if former is not None:
            del self._workloads[identity]
            interface = former.spec.interface_name
            del self._workloads_by_interface[interface][identity]
            self._changed_interfaces[interface] = None
        if endpoint is not None:
            interface = endpoint.spec.interface_name
            self._workloads[identity] = endpoint
            self._workloads_by_interface.setdefault(interface, {})[identity] = None
            self._changed_interfaces[interface] = None

    def _apply_host(self, identity: PeerId, value: HostEndpoint | None) -> None:
        former = self._hosts.pop(identity, None)
        if value is not None and value.spec.node == self.node:
            self._hosts[identity] = value
        has_changed = former is not self._hosts.get(identity)
        self._have_hosts_changed |= has_changed
        self._may_have_problems_changed |= has_changed

    # --- what follows from them ---------------------------------------------------------------------------------------

    def take_delta(self) -> PolicyDelta:
        """What has changed of the state since the last time."""
        settings = self._settle_settings()
        self._settle_workloads()
        if self._have_hosts_changed:
            self._settle_hosts()
        self._settle_endpoints()
        self._settle_users()
        sets = self._sets.take()
        policies, removed_policies = self._active_policies.take()
        profiles, removed_profiles = self._active_profiles.take()
        endpoints, removed_endpoints = self._endpoints.take()
        host_endpoints, removed_host_endpoints = self._host_endpoints.take()
        return PolicyDelta(
            settings=settings,
            policies=policies,
            removed_policies=removed_policies,
            profiles=profiles,
            removed_profiles=removed_profiles,
            sets=sets.new,
            member_changes=sets.members,
            removed_sets=sets.removed,
            endpoints=endpoints,
            removed_endpoints=removed_endpoints,
            host_endpoints=host_endpoints,
            removed_host_endpoints=removed_host_endpoints,
            problems=self._settle_problems(),
        )

    def _before(self, item: PeerId, policy: PolicyId) -> None:
        """A policy begins or ceases to apply to an endpoint of the node."""
        self._changed_endpoints[item] = None
        self._changed_users[policy] = None

    def _settle_settings(self) -> PolicySettings | None:
        """The settings; None if they are what they were."""
        if not self._have_settings_changed:
            return None
        self._have_settings_changed = False
        unreadable = [each.name for each in self._unreadable if each.kind == NODE_CONFIGURATION]
        settings = settings_of(self._configurations.values(), self.node, self.usual, unreadable=unreadable)
        if settings == self._settings:
            return None
        self._settings = settings
        self._changed_endpoints.update(dict.fromkeys(self._enforced))
        self._may_have_problems_changed = True
        return settings

    def _settle_workloads(self) -> None:
        """Find the endpoint that counts on each interface."""
        if not self._changed_interfaces:
            return
        chosen: dict[PeerId, WorkloadEndpoint] = {}
        for interface in self._changed_interfaces:
            candidates = self._workloads_by_interface.get(interface)
            if candidates and is_interface_name(interface):
                found = (self._workloads[each] for each in candidates)
                endpoint = choose_workload(found, self._attached.get(interface))
                chosen.update(() if endpoint is None else ((peer_id(endpoint), endpoint),))
            if not candidates:
                self._workloads_by_interface.pop(interface, None)
            self._may_have_problems_changed = True
        former = {
            identity
            for identity, (endpoint, interface) in self._enforced.items()
            if interface in self._changed_interfaces and isinstance(endpoint, WorkloadEndpoint)
        }
        for identity in former - chosen.keys():
            self._enforce(identity, None, "")
        for identity, endpoint in chosen.items():
            self._enforce(identity, endpoint, endpoint.spec.interface_name)
        self._changed_interfaces.clear()

    def _settle_hosts(self) -> None:
        """Find the host endpoint that governs each interface."""
        self._have_hosts_changed = False
        chosen = {
            peer_id(endpoint): (endpoint, interface)
            for interface, endpoint in choose_host_endpoints(self._hosts.values(), self._interfaces)
        }
        former = [each for each, (endpoint, _) in self._enforced.items() if isinstance(endpoint, HostEndpoint)]
        for identity in former:
            if identity not in chosen:
                self._enforce(identity, None, "")
        for identity, (endpoint, interface) in chosen.items():
            self._enforce(identity, endpoint, interface)

    def _enforce(self, identity: PeerId, endpoint: LocalObject | None, interface: str) -> None:
        """Policies apply to an endpoint, on an interface; None: they do not any more."""
        former = self._enforced.pop(identity, None)
        for name in () if former is None else dict.fromkeys(former[0].spec.profiles):
            users = self._profile_users[name]
            users.pop(identity, None)
            if not users:
                del self._profile_users[name]
            self._changed_users[name] = None
        if endpoint is None:
            self._local.remove_item(identity)
        else:
            self._enforced[identity] = endpoint, interface
            for name in endpoint.spec.profiles:
                self._profile_users.setdefault(name, {})[identity] = None
                self._changed_users[name] = None
            self._local.set_item(identity, endpoint.metadata.labels, endpoint.spec.profiles)
        self._changed_endpoints[identity] = None

    def _settle_endpoints(self) -> None:
        for identity in self._changed_endpoints:
            endpoint, interface = self._enforced.get(identity, (None, ""))
            applying = sorted(
                (self._policies[each] for each in self._local.selectors_of(identity)), key=lambda each: each.rank
            )
            if identity[0] == WORKLOAD_ENDPOINT.name:
                workload = endpoint if isinstance(endpoint, WorkloadEndpoint) else None
                value = None if workload is None else workload_value(workload, applying, self._settings)
                self._endpoints.put(EndpointId(*identity[1:]), value)
            else:
                host = endpoint if isinstance(endpoint, HostEndpoint) else None
                governing = None if host is None else host_value(host, interface, applying)
                self._host_endpoints.put(identity[-1], governing)
        self._changed_endpoints.clear()

    # --- policies and profiles ----------------------------------------------------------------------------------------

    def _settle_users(self) -> None:
        """Find the policies and profiles that are in use, and the sets that their rules name."""
        for user in self._changed_users:
            former, definition = self._used.pop(user, None), self._definition_in_use(user)
            kept = frozenset(() if definition is None else (each.id for each in definition.sets))
            if definition is not None:
                self._used[user] = definition
                self._sets.require(user, definition.sets)
            if former is not None:
                self._sets.release(user, (each for each in former.sets if each.id not in kept))
            self._may_have_problems_changed |= former != definition
        for user in (*self._changed_users, *self._sets.users_of_replaced()):
            used = self._used.get(user)
            names = {each.id: self._sets.used_id(each.id) for each in (() if used is None else used.sets)}
            if isinstance(user, PolicyId):
                self._active_policies.put(
                    user, used_policy(used, names) if isinstance(used, PolicyDefinition) else None
                )
            else:
                value = used_profile(used, names) if isinstance(used, ProfileDefinition) else None
                self._active_profiles.put(user, value)
        self._changed_users.clear()

    def _definition_in_use(self, user: _User) -> PolicyDefinition | ProfileDefinition | None:
        if isinstance(user, PolicyId):
            is_used = self._local.has_selector(user) and self._local.has_matches(user)
            return self._policies[user] if is_used else None
        if user not in self._profile_users:
            return None
        return define_profile(self._profiles[user]) if user in self._profiles else define_missing_profile(user)

    def _settle_problems(self) -> tuple[PolicyProblem, ...] | None:
        """The problems; None if they are what they were."""
        if not (self._may_have_problems_changed or self._sets.has_shared_changed):
            return None
        self._may_have_problems_changed = self._sets.has_shared_changed = False
        found = {problem for each in self._used.values() for problem in each.problems}
        found.update(problem for each in self._policies.values() if not each.directions for problem in each.problems)
        local = chain[LocalObject](self._workloads.values(), self._hosts.values())
        found.update(problem for each in local for problem in local_problems(each, self._settings))
        found.update(problem for each in self._unreadable for problem in unreadable_problems(each))
        found.update(problem for each in self._set_problems.values() for problem in each)
        found.update(shared_address_problems(self._sets.shared_addresses()))
        problems = tuple(sorted(found))
        if problems == self._problems:
            return None
        self._problems = problems
        return problems
