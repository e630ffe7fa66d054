"""What is copied from Kubernetes to a datastore of netplug's own, where nodes find everything for policy.

- a namespace becomes the profile ``kns.NAME``, a service account the profile ``ksa.NAMESPACE.NAME``
- a NetworkPolicy of Kubernetes becomes the NetworkPolicy ``knp.default.NAME`` of its namespace
- the labels and the service account of a pod go to its endpoints, which calls of the plugin make and delete
- the labels of a node of Kubernetes go to the Nodes that name it

Names say what is a copy: nothing else is ever touched. A copy follows from the present state of its source alone, so
that it does not matter how often, and by how many processes, it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, Protocol, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from netplug_core.addressing import Address
from netplug_core.datastore.view import START, Mark, View
from netplug_core.errors import narrow
from netplug_core.names import KUBERNETES_ORCHESTRATOR, MAX_NAME_LENGTH, endpoint_labels
from netplug_core.orchestrator.model import (
    KUBERNETES_NODE,
    NAMESPACE,
    POD,
    SERVICE_ACCOUNT,
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodNetwork,
    ServiceAccountFacts,
)
from netplug_core.orchestrator.networkpolicy import KUBERNETES_NETWORK_POLICY, KubernetesNetworkPolicy
from netplug_core.policy.convert import copied_spec
from netplug_core.reconcile.controller import Problem
from netplug_core.reconcile.nodes import follow_cluster_node, orchestrator_name
from netplug_core.records import Create, Delete, Key, Kind, Malformed, Record, Update
from netplug_core.resources.fields import Labels, Metadata
from netplug_core.resources.networkpolicy import COPIED_POLICY_PREFIX, NETWORK_POLICY, NetworkPolicy
from netplug_core.resources.node import NODE, Node
from netplug_core.resources.profile import (
    NAMESPACE_PROFILE_PREFIX,
    PROFILE,
    SERVICE_ACCOUNT_PROFILE_PREFIX,
    Profile,
    account_spec,
    namespace_spec,
)
from netplug_core.resources.workloadendpoint import WORKLOAD_ENDPOINT, WorkloadEndpoint

__all__ = [
    "COPIED_KINDS", "COPY_KINDS", "MOST_A_PASS", "NODE_LABELS", "CopyChange", "CopyRules", "CopyWork",
    "FollowingCopies", "KeptParts", "NamedCopies", "account_copies", "endpoint_copies", "namespace_copies",
    "node_label_copies", "policy_copies",
]  # fmt: skip

COPIED_KINDS: Final[tuple[Kind[object], ...]] = (NAMESPACE, SERVICE_ACCOUNT, KUBERNETES_NETWORK_POLICY, POD)
"""What is copied."""

COPY_KINDS: Final[tuple[Kind[object], ...]] = (PROFILE, NETWORK_POLICY, WORKLOAD_ENDPOINT)
"""What the copies are among."""

_MOST_SHARED: Final = 65_536

NODE_LABELS: Final = "node labels"
"""The name of the controller that copies labels of nodes; ``syncLabels`` among the settings of nodes is its switch."""

_Write: TypeAlias = Create[object] | Update[object] | Delete[object]


@frozen(kw_only=True)
class CopyChange:
    """What one copy needs; ``write`` None: nothing. ``problems`` say what is left out of it.

    ``gone`` is the source of a copy that is deleted: it has to be looked for once more before, because a list may be
    out of date.
    """

    write: _Write | None = None
    gone: Key[object] | None = None
    problems: tuple[Problem, ...] = ()


class CopyRules(Protocol):
    """How the objects of one kind are copied. ``name`` is that of its controller in the settings."""

    @property
    def name(self) -> str:
        """The name of the controller."""
        ...

    @property
    def source(self) -> Kind[object]:
        """What is copied."""
        ...

    @property
    def target(self) -> Kind[object]:
        """What the copies are."""
        ...

    def note(self, target: Key[object], stored: Record[object] | None) -> None:
        """Take notice of a record among the copies before it is asked for."""
        ...

    def clear(self) -> None:
        """Forget what was noted."""
        ...

    def targets_of(self, source: Key[object]) -> Iterable[Key[object]]:
        """The copies that follow from an object, whether they exist or not."""
        ...

    def find_problem(self, source: Key[object]) -> Problem | None:
        """Why an object cannot be copied, whatever is in it; None: it can, or there is nothing to copy it to."""
        ...

    def find_source(self, target: Key[object], stored: Record[object] | None) -> Key[object] | None:
        """The object that a record is a copy of; None: it is none."""
        ...

    def find_change(
        self, target: Key[object], source: Record[object] | None, stored: Record[object] | None
    ) -> CopyChange:
        """What makes a record the copy of its source; it has one."""
        ...


# --- copies by name ---------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class NamedCopies:
    """Copies whose names follow from those of their sources, and that come and go with them."""

    name: str
    source: Kind[object]
    target: Kind[object]
    find_target: Callable[[Key[object]], Key[object] | None]
    find_original: Callable[[Key[object]], Key[object] | None]
    make: Callable[[Metadata, object], tuple[Profile | NetworkPolicy | None, tuple[Problem, ...]]]

    def note(self, target: Key[object], stored: Record[object] | None) -> None:
        """Names say everything."""

    def clear(self) -> None:
        """Nothing is remembered."""

    def targets_of(self, source: Key[object]) -> Iterable[Key[object]]:
        """The one copy; none if it would have no valid name."""
        found = self.find_target(source)
        return () if found is None else (found,)

    def find_problem(self, source: Key[object]) -> Problem | None:
        """Its copy would have a name that is too long. A policy that is not copied isolates no pod."""
        if self.find_target(source) is not None:
            return None
        cause = f"the name of the copy would have more than {MAX_NAME_LENGTH} characters; give it a shorter one"
        return Problem(message=f"{source} is not copied, so nodes do not know it", cause=cause)

    def find_source(self, target: Key[object], stored: Record[object] | None) -> Key[object] | None:
        """The object of that name."""
        del stored
        return self.find_original(target)

    def find_change(
        self, target: Key[object], source: Record[object] | None, stored: Record[object] | None
    ) -> CopyChange:
        """Create, restore or delete the copy. What else a copy has beside its spec, such as labels, stays."""
        wanted: Profile | NetworkPolicy | None = None
        problems: tuple[Problem, ...] = ()
        if source is not None:
            namespace = target.path[0] if len(target.path) > 1 else ""
            wanted, problems = self.make(Metadata(name=target.name, namespace=namespace), source.value)
        if wanted is None:
            if stored is None:
                return CopyChange(problems=problems)
            gone = self.find_original(target) if source is None else None
            return CopyChange(write=Delete(target, stored.revision), gone=gone, problems=problems)
        if stored is None:
            return CopyChange(write=Create(target, wanted), problems=problems)
        found = narrow(stored.value, type(wanted))
        if found.spec == wanted.spec:
            return CopyChange(problems=problems)
        restored = evolve(wanted, metadata=found.metadata, unknown_json=found.unknown_json)
        return CopyChange(write=Update(target, restored, stored.revision), problems=problems)


def _profile_target(name: str) -> Key[object] | None:
    return PROFILE.key(name) if len(name) <= MAX_NAME_LENGTH else None


def _of_account(target: Key[object]) -> Key[object] | None:
    """The service account of a profile. The name of a namespace has no dot."""
    namespace, _, name = target.name.removeprefix(SERVICE_ACCOUNT_PROFILE_PREFIX).partition(".")
    is_copy = target.name.startswith(SERVICE_ACCOUNT_PROFILE_PREFIX) and bool(namespace and name)
    return SERVICE_ACCOUNT.key(namespace, name) if is_copy else None


def _of_namespace(target: Key[object]) -> Key[object] | None:
    name = target.name.removeprefix(NAMESPACE_PROFILE_PREFIX)
    return NAMESPACE.key(name) if target.name.startswith(NAMESPACE_PROFILE_PREFIX) and name else None


def _of_policy(target: Key[object]) -> Key[object] | None:
    name = target.name.removeprefix(COPIED_POLICY_PREFIX)
    is_copy = target.name.startswith(COPIED_POLICY_PREFIX) and bool(name)
    return KUBERNETES_NETWORK_POLICY.key(target.path[0], name) if is_copy else None


def _policy_target(source: Key[object]) -> Key[object] | None:
    name = f"{COPIED_POLICY_PREFIX}{source.name}"
    return NETWORK_POLICY.key(source.path[0], name) if len(name) <= MAX_NAME_LENGTH else None


def _make_namespace_profile(metadata: Metadata, source: object) -> tuple[Profile, tuple[Problem, ...]]:
    facts = narrow(source, NamespaceFacts)
    return Profile(metadata=metadata, spec=namespace_spec(facts.name, facts.labels)), ()


def _make_account_profile(metadata: Metadata, source: object) -> tuple[Profile, tuple[Problem, ...]]:
    facts = narrow(source, ServiceAccountFacts)
    return Profile(metadata=metadata, spec=account_spec(facts.name, facts.labels)), ()


def _make_policy(metadata: Metadata, source: object) -> tuple[NetworkPolicy | None, tuple[Problem, ...]]:
    policy = narrow(source, KubernetesNetworkPolicy)
    spec, found = copied_spec(policy)
    problems = tuple(Problem(message=f"{each.subject} is copied in part", cause=each.text) for each in found)
    return None if spec is None else NetworkPolicy(metadata=metadata, spec=spec), problems


def namespace_copies() -> NamedCopies:
    """A profile for each namespace."""
    return NamedCopies(
        name="namespace",
        source=NAMESPACE,
        target=PROFILE,
        find_target=lambda source: _profile_target(f"{NAMESPACE_PROFILE_PREFIX}{source.name}"),
        find_original=_of_namespace,
        make=_make_namespace_profile,
    )


def account_copies() -> NamedCopies:
    """A profile for each service account."""
    return NamedCopies(
        name="serviceaccount",
        source=SERVICE_ACCOUNT,
        target=PROFILE,
        find_target=lambda source: _profile_target(f"{SERVICE_ACCOUNT_PROFILE_PREFIX}{source.path[0]}.{source.name}"),
        find_original=_of_account,
        make=_make_account_profile,
    )


def policy_copies() -> NamedCopies:
    """A policy of netplug for each NetworkPolicy of Kubernetes."""
    return NamedCopies(
        name="policy",
        source=KUBERNETES_NETWORK_POLICY,
        target=NETWORK_POLICY,
        find_target=_policy_target,
        find_original=_of_policy,
        make=_make_policy,
    )


# --- labels of what has records already -------------------------------------------------------------------------------


@define(eq=False, kw_only=True)
class FollowingCopies:
    """Records that follow the objects which they name, and that are neither made nor deleted.

    ``find_followed`` finds the object that a record names; ``follow`` gives a record what its object has now, and
    returns the same one if it has that.
    """

    name: str
    source: Kind[object]
    target: Kind[object]
    find_followed: Callable[[object], Key[object] | None]
    follow: Callable[[object, object], object]
    # An object finds its records without a look at all of them.
    _objects: dict[Key[object], Key[object]] = field(factory=dict, init=False)
    _records: dict[Key[object], set[Key[object]]] = field(factory=dict, init=False)

    def note(self, target: Key[object], stored: Record[object] | None) -> None:
        """Remember which object a record names."""
        followed, former = self.find_source(target, stored), self._objects.get(target)
        if former == followed:
            return
        if former is not None:
            del self._objects[target]
            self._records[former].discard(target)
            if not self._records[former]:
                del self._records[former]
        if followed is not None:
            self._objects[target] = followed
            self._records.setdefault(followed, set()).add(target)

    def clear(self) -> None:
        """Forget which records there are."""
        self._objects.clear()
        self._records.clear()

    def targets_of(self, source: Key[object]) -> Iterable[Key[object]]:
        """The records that name an object."""
        return tuple(self._records.get(source, ()))

    def find_problem(self, source: Key[object]) -> Problem | None:
        """The records are there already."""
        del source
        return None

    def find_source(self, target: Key[object], stored: Record[object] | None) -> Key[object] | None:
        """The object that a record names; None: it names none, or the record is gone."""
        del target
        return None if stored is None else self.find_followed(stored.value)

    def find_change(
        self, target: Key[object], source: Record[object] | None, stored: Record[object] | None
    ) -> CopyChange:
        """Bring a record to what its object is now; one whose object is gone is left alone."""
        if source is None or stored is None:
            return CopyChange()
        try:
            changed = self.follow(stored.value, source.value)
        except Malformed as error:
            message = f"the labels of {source.key.name} are not copied to {target}"
            return CopyChange(problems=(Problem(message=message, cause=str(error)),))
        is_same = changed is stored.value or changed == stored.value
        return CopyChange() if is_same else CopyChange(write=Update(target, changed, stored.revision))


def endpoint_copies() -> FollowingCopies:
    """The labels and the service account of pods, at their endpoints.

    Left alone are those of a pod that is gone or finished, or that uses the network of its node.
    """
    return FollowingCopies(
        name="workloadendpoint",
        source=POD,
        target=WORKLOAD_ENDPOINT,
        find_followed=_pod_of,
        follow=_follow_pod,
    )


def node_label_copies() -> FollowingCopies:
    """The labels of nodes of Kubernetes, at the Nodes that name them.

    Left alone is a Node that names none, or one that is gone. Its own labels stay, below those that are copied.
    """
    return FollowingCopies(
        name=NODE_LABELS,
        source=KUBERNETES_NODE,
        target=NODE,
        find_followed=_node_of,
        follow=lambda stored, source: follow_cluster_node(narrow(stored, Node), narrow(source, NodeFacts)),
    )


def _pod_of(stored: object) -> Key[object] | None:
    """The pod of an endpoint; None if it is that of a container without a pod."""
    endpoint = narrow(stored, WorkloadEndpoint)
    is_pod = endpoint.spec.orchestrator == KUBERNETES_ORCHESTRATOR and bool(endpoint.spec.pod)
    return POD.key(endpoint.metadata.namespace, endpoint.spec.pod) if is_pod else None


def _node_of(stored: object) -> Key[object] | None:
    name = orchestrator_name(narrow(stored, Node))
    return KUBERNETES_NODE.key(name) if name else None


def _follow_pod(stored: object, source: object) -> WorkloadEndpoint:
    """An endpoint as the call of the plugin would write it now."""
    endpoint, pod = narrow(stored, WorkloadEndpoint), narrow(source, PodFacts)
    if pod.network is PodNetwork.HOST or pod.is_terminated:
        return endpoint
    labels, account = _endpoint_labels(pod.namespace, pod.service_account, pod.labels), pod.service_account
    if (endpoint.metadata.labels, endpoint.spec.service_account) == (labels, account):
        return endpoint
    metadata, spec = evolve(endpoint.metadata, labels=labels), evolve(endpoint.spec, service_account=account)
    return evolve(endpoint, metadata=metadata, spec=spec)


@lru_cache(maxsize=_MOST_SHARED)  # many pods have equal labels
def _endpoint_labels(namespace: str, service_account: str, labels: Labels) -> Labels:
    """Those that the call of the plugin would give an endpoint: all are of its pod, or of netplug."""
    return endpoint_labels(
        namespace=namespace, orchestrator=KUBERNETES_ORCHESTRATOR, service_account=service_account, workload=labels
    )


# --- what is kept ----------------------------------------------------------------------------------------------------


_V = TypeVar("_V")


@define(eq=False)
class KeptParts:
    """What is kept of pods, endpoints and nodes: of what is copied only that, and what many have alike only once.

    A large cluster has some 100,000 of each. ``find_addresses`` finds what is kept of a pod's addresses, for the
    collector.
    """

    find_addresses: Callable[[PodFacts], tuple[Address, ...]]
    _shared: dict[object, object] = field(factory=dict, init=False)

    def keep(self, value: object) -> object:
        """What is kept of a value."""
        if isinstance(value, PodFacts):
            return self._keep_pod(value)
        if isinstance(value, NodeFacts):
            return NodeFacts(name=value.name, uid="", labels=value.labels)
        return self._keep_endpoint(value) if isinstance(value, WorkloadEndpoint) else value

    def _keep_pod(self, pod: PodFacts) -> PodFacts:
        return PodFacts(
            namespace=self._share(pod.namespace),
            name=pod.name,
            uid="",
            labels=self._share(pod.labels),
            service_account=self._share(pod.service_account),
            network=pod.network,
            phase=pod.phase,
            addresses=self.find_addresses(pod),
        )

    def _keep_endpoint(self, endpoint: WorkloadEndpoint) -> WorkloadEndpoint:
        metadata, spec = endpoint.metadata, endpoint.spec
        return evolve(
            endpoint,
            metadata=evolve(
                metadata,
                namespace=self._share(metadata.namespace),
                labels=self._share(metadata.labels),
                annotations=self._share(metadata.annotations),
            ),
            spec=evolve(
                spec,
                orchestrator=self._share(spec.orchestrator),
                node=self._share(spec.node),
                endpoint=self._share(spec.endpoint),
                service_account=self._share(spec.service_account),
                profiles=self._share(spec.profiles),
                mac=self._share(spec.mac),
                ports=self._share(spec.ports),
            ),
        )

    def _share(self, part: _V) -> _V:
        """The first of all equal ones. After many different ones it begins anew."""
        if len(self._shared) >= _MOST_SHARED:
            self._shared.clear()
        return narrow(self._shared.setdefault(part, part), type(part))


# --- what has to be looked at -----------------------------------------------------------------------------------------


MOST_A_PASS: Final = 500
"""How many copies one pass looks at. The next one follows at once, and sees what has changed meanwhile."""


@define(eq=False)
class CopyWork:
    """What has to be looked at, by what has changed in two views. It costs the same for a change, whatever they hold.

    What is taken waits again behind all others until it is done, so that one copy that fails for ever holds back none.
    """

    rules: CopyRules
    _waiting: dict[Key[object], None] = field(factory=dict, init=False)
    _problems: dict[Key[object], tuple[Problem, ...]] = field(factory=dict, init=False)
    _source_mark: Mark = field(default=START, init=False)
    _copy_mark: Mark = field(default=START, init=False)
    _is_behind: bool = field(default=False, init=False)

    @property
    def is_behind(self) -> bool:
        """Whether there is more to look at than the last look has taken."""
        return self._is_behind

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be copied, of all that was looked at."""
        return tuple(problem for _, found in sorted(self._problems.items()) for problem in found)

    def look_at_everything(self) -> None:
        """Begin anew, as if nothing had been seen yet."""
        self._waiting.clear()
        self._problems.clear()
        self.rules.clear()
        self._source_mark = self._copy_mark = START

    def look(self, sources: View, copies: View) -> tuple[CopyChange, ...]:
        """The next changes to make. Both kinds were listed."""
        source_mark, changed = sources.changes_since(self._source_mark)
        copy_mark, changed_copies = copies.changes_since(self._copy_mark)
        for key in self._keys_of(self.rules.target, copies, changed_copies):
            stored = copies.find(key)
            self.rules.note(key, stored)
            if self.rules.find_source(key, stored) is not None:
                self._waiting.setdefault(key)
        if changed is None:
            self._problems = {key: found for key, found in self._problems.items() if key.kind != self.rules.source}
        for key in self._keys_of(self.rules.source, sources, changed):
            self._note_source(key, sources)
        self._source_mark, self._copy_mark = source_mark, copy_mark
        self._is_behind = len(self._waiting) > MOST_A_PASS
        return tuple(self._take(sources, copies))

    def _note_source(self, key: Key[object], sources: View) -> None:
        problem = self.rules.find_problem(key) if sources.find(key) is not None else None
        self._problems.pop(key, None)
        if problem is not None:
            self._problems[key] = (problem,)
        for target in self.rules.targets_of(key):
            self._waiting.setdefault(target)

    def done(self, key: Key[object]) -> None:
        """A change is made; what others do meanwhile is seen by the next look."""
        self._waiting.pop(key, None)

    @staticmethod
    def _keys_of(kind: Kind[object], view: View, changed: frozenset[Key[object]] | None) -> Iterable[Key[object]]:
        if changed is None:
            return [record.key for record in view.list(kind)]
        return [key for key in changed if key.kind == kind]

    def _take(self, sources: View, copies: View) -> Iterator[CopyChange]:
        for key in list(islice(self._waiting, MOST_A_PASS)):
            del self._waiting[key]
            stored = copies.find(key)
            origin = self.rules.find_source(key, stored)
            self._problems.pop(key, None)
            if origin is None:
                continue
            if sources.is_unreadable(origin):
                # Without its copy, what a policy isolates would be open.
                cause = "it cannot be read; its copy stays as it is until it can"
                self._problems[key] = (Problem(message=f"{origin} is not copied", cause=cause),)
                continue
            change = self.rules.find_change(key, sources.find(origin), stored)
            if change.problems:
                self._problems[key] = change.problems
            if change.write is not None:
                self._waiting[key] = None
                yield change
