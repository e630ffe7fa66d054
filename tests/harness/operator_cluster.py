"""A cluster in memory for the operator: objects with uids, fields that are applied, finalizers and deletions.

It does what the API server does with the requests of the operator (``tests/integration/test_cluster_objects.py`` holds
both to the same expectations). It can be told to end the operator at a write.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import cast

from attrs import define, evolve, field

from netplug_backends.kubernetes.installing.manifests import shipped_objects
from netplug_cli.operator.metrics import OperatorMetrics
from netplug_cli.operator.process import REST_S, Operator
from netplug_cli.operator.world import INSTALLATION, Actor, ComponentStatuses, Observer, Reporter
from netplug_cli.runtime.controllers import ControllerLoop
from netplug_core.clock import Deadline
from netplug_core.decoding.tables import find_text
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.installation.pools import PoolStep, pools_afterwards
from netplug_core.installation.settings import ClusterFacts
from netplug_core.operator.state import (
    DAEMONSET_REF,
    NAMESPACE_REF,
    ClusterMode,
    Json,
    ObjectRef,
    OperatorSettings,
    Shipped,
    ref_of,
)
from netplug_core.operator.status import STATUS_KIND
from netplug_core.resources.installation import KubernetesProvider
from netplug_core.resources.ippool import IPPool
from netplug_core.testing.clock import ManualClock
from tests.harness.installations import manifest
from tests.harness.node_server import Lines

__all__ = ["DEFINITION_KINDS", "SHIPPED", "VERSION", "Killed", "MemoryCluster", "MemoryPools", "make_loop", "settle"]

Object = dict[str, object]
VERSION = "1.2.3"


def _trimmed() -> Shipped:
    """The objects of the release; of definitions, only what names their objects, because all are copied often."""
    whole = shipped_objects()
    definitions = {
        mode: {plural: _names_of(definition) for plural, definition in found.items()}
        for mode, found in whole.definitions.items()
    }
    own = tuple(map(_names_of, whole.operator_definitions))
    return evolve(whole, definitions=definitions, operator_definitions=own)


def _names_of(definition: Json) -> Json:
    spec = cast("Mapping[str, object]", definition["spec"])
    return {**definition, "spec": {name: spec[name] for name in ("group", "names", "scope")}}


SHIPPED = _trimmed()
"""What a release brings."""

DEFINITION_KINDS = frozenset(
    {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
)
"""The kinds of the definitions, and of what keeps them."""

_REPEATING = ("replace Event ", f"apply {STATUS_KIND} ", f"delete {STATUS_KIND} ")
"""How writes begin that say again what a status says."""

_GROUPS = {"crd.projectnetplug.org": ClusterMode.V1, "projectnetplug.org": ClusterMode.V3}


class Killed(BaseException):
    """The operator ends here, as by SIGKILL."""


@define
class MemoryCluster:
    """See :class:`netplug_cli.operator.world.Cluster`.

    ``kill_in`` ends the operator at the write after so many, ``error`` is what every request raises. ``writes`` has
    each write that was done, but for those of ``events`` and of ``NetplugStatus``.
    """

    objects: dict[ObjectRef, Object] = field(factory=dict)
    pods: tuple[Json, ...] = ()
    provider: KubernetesProvider = KubernetesProvider.OTHER
    static_pods: tuple[Json, ...] = ()
    controller_pods: tuple[Json, ...] = ()
    writes: list[str] = field(factory=list)
    kill_in: int | None = None
    error: NetplugError | None = None
    refused: dict[str, NetplugError] = field(factory=dict)
    events: dict[ObjectRef, Object] = field(factory=dict)
    _applied: dict[tuple[ObjectRef, str], Object] = field(factory=dict)
    _count: int = 0

    # --- what the operator calls -----------------------------------------------------------------------------------

    def find(self, ref: ObjectRef, *, deadline: Deadline) -> Json | None:
        if self.error is not None:
            raise self.error
        found = self.events.get(ref) or self.objects.get(ref)
        return None if found is None else cast("Object", json.loads(json.dumps(found)))  # a fast copy

    def list_nodes(self, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        nodes = [found for ref, found in self.objects.items() if ref.kind == "Node"]
        labelled = (found for found in nodes if not label or find_text(found, "metadata", "labels", label))
        return tuple(copy.deepcopy(list(labelled)))

    def list_pods(self, namespace: str, label: str, *, deadline: Deadline) -> tuple[Json, ...]:
        if label == "k8s-app=netplug-kube-controllers":
            return self.controller_pods
        assert label == "k8s-app=netplug-node"
        return {"netplug-system": self.pods, "kube-system": self.static_pods}[namespace]

    def find_modes(self, *, deadline: Deadline) -> frozenset[ClusterMode]:
        groups = {self._spec(found).get("group") for ref, found in self._definitions()}
        return frozenset(mode for group, mode in _GROUPS.items() if group in groups)

    def find_resources(self, mode: ClusterMode, *, deadline: Deadline) -> frozenset[str]:
        specs = [self._spec(found) for _, found in self._definitions()]
        names = [cast("Mapping[str, str]", spec["names"]) for spec in specs if _GROUPS.get(str(spec["group"])) is mode]
        return frozenset(name["plural"] for name in names)

    def find_provider(self, *, deadline: Deadline) -> KubernetesProvider:
        return self.provider

    def apply(self, wanted: Json, *, deadline: Deadline, subresource: str = "") -> Json:
        ref = ref_of(wanted)
        self._begin_write(f"apply {ref}{subresource and f' {subresource}'}")
        found, uid = self.objects.get(ref), find_text(wanted, "metadata", "uid")
        if uid and uid != find_text(found, "metadata", "uid"):
            raise ConfigurationError(str(ref), uid, "the uid differs")
        before = copy.deepcopy(found)
        now = self.objects[ref] = found if found is not None else self._new(ref)
        _remove(now, self._applied.get((ref, subresource), {}), wanted)
        _merge(now, wanted)
        self._applied[ref, subresource] = copy.deepcopy(dict(wanted))
        if before is None or before.get("spec") != now.get("spec"):
            self._metadata(ref)["generation"] = cast("int", self._metadata(ref).get("generation", 0)) + 1
        self._end_deletion(ref)
        return copy.deepcopy(now)

    def delete(self, ref: ObjectRef, uid: str, *, deadline: Deadline) -> None:
        self._begin_write(f"delete {ref}")
        if find_text(self.objects.get(ref), "metadata", "uid") == uid:
            self.remove(ref)

    def replace(self, wanted: Json, *, deadline: Deadline) -> Json | None:
        ref = ref_of(wanted)
        self._begin_write(f"replace {ref}")
        if ref.kind == "Event":
            self.events[ref] = copy.deepcopy(dict(wanted))
            return wanted
        found = self.objects.get(ref)
        if find_text(wanted, "metadata", "resourceVersion") != find_text(found, "metadata", "resourceVersion"):
            return None
        self.objects[ref] = copy.deepcopy(dict(wanted))
        self._count += 1
        uid = find_text(found, "metadata", "uid") or f"u{self._count}"
        self._metadata(ref).update(uid=uid, resourceVersion=str(self._count))
        return self.objects[ref]

    # --- what others do --------------------------------------------------------------------------------------------

    def install(self, spec: object, *, name: str = "default") -> None:
        """Create an Installation, or change its spec."""
        document = manifest(spec, name=name)
        found = self.objects.get(ref_of(document))
        if found is None:
            found = self.objects[ref_of(document)] = self._new(ref_of(document))
        found["spec"] = copy.deepcopy(spec)
        metadata = self._metadata(ref_of(document))
        metadata["generation"] = cast("int", metadata.get("generation", 0)) + 1

    def create(self, ref: ObjectRef) -> None:
        """Create an object without settings."""
        self.objects[ref] = self._new(ref)

    def remove(self, ref: ObjectRef) -> None:
        """Delete an object: at once, or when its finalizers are gone. A namespace waits for what is in it."""
        if ref in self.objects:
            self._metadata(ref)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._end_deletion(ref)

    def end_namespace(self) -> None:
        """What the controller manager does."""
        if find_text(self.objects.get(NAMESPACE_REF), "metadata", "deletionTimestamp"):
            for ref in [ref for ref in self.objects if ref.namespace == NAMESPACE_REF.name]:
                del self.objects[ref]
            del self.objects[NAMESPACE_REF]

    def roll_out(self, *, nodes: int = 2, available: int | None = None) -> None:
        """What the controller manager does with the DaemonSet."""
        found = self.objects[DAEMONSET_REF]
        found["status"] = {
            "observedGeneration": self._metadata(DAEMONSET_REF)["generation"],
            "desiredNumberScheduled": nodes,
            "updatedNumberScheduled": nodes,
            "numberAvailable": nodes if available is None else available,
        }

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """Status, reason and message of each condition of the Installation."""
        status = cast("Mapping[str, list[dict[str, str]]]", self.objects[INSTALLATION].get("status", {}))
        return {one["type"]: (one["status"], one["reason"], one["message"]) for one in status.get("conditions", [])}

    def picture(self) -> dict[str, object]:
        """All objects without what differs from run to run."""
        return {str(ref): _without_identity(found) for ref, found in sorted(self.objects.items())}

    # --- inside ----------------------------------------------------------------------------------------------------

    def _definitions(self) -> Iterable[tuple[ObjectRef, Object]]:
        return [(ref, found) for ref, found in self.objects.items() if ref.kind == "CustomResourceDefinition"]

    @staticmethod
    def _spec(found: Object) -> Mapping[str, object]:
        return cast("Mapping[str, object]", found["spec"])

    def _metadata(self, ref: ObjectRef) -> Object:
        return cast("Object", self.objects[ref].setdefault("metadata", {}))

    def _begin_write(self, what: str) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                raise Killed
        if self.error is not None:
            raise self.error
        if what in self.refused:
            raise self.refused[what]
        if not what.startswith(_REPEATING):
            self.writes.append(what)

    def _new(self, ref: ObjectRef) -> Object:
        if ref.namespace == NAMESPACE_REF.name and (
            NAMESPACE_REF not in self.objects or "deletionTimestamp" in self._metadata(NAMESPACE_REF)
        ):
            raise Unavailable(str(ref), "its namespace does not exist, or is being deleted")
        self._count += 1
        return {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": ref.name, "uid": f"u{self._count}"}
            | ({"namespace": ref.namespace} if ref.namespace else {}),
        }

    def _end_deletion(self, ref: ObjectRef) -> None:
        metadata = self._metadata(ref)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and ref != NAMESPACE_REF:
            del self.objects[ref]
            self._applied = {key: value for key, value in self._applied.items() if key[0] != ref}


@define
class MemoryPools:
    """See :class:`netplug_cli.operator.world.Pools`."""

    cluster: MemoryCluster
    pools: tuple[IPPool, ...] = ()
    loss: str = ""
    is_locked: bool = False

    def find_loss(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[str, bool]:
        return self.loss, self.is_locked

    def lock(self, mode: ClusterMode, *, is_locked: bool) -> None:
        self.cluster._begin_write("lock" if is_locked else "unlock")  # noqa: SLF001  of one module
        self.is_locked = is_locked

    def read(self, mode: ClusterMode, *, deadline: Deadline) -> tuple[IPPool, ...]:
        return self.pools

    def change(self, mode: ClusterMode, step: PoolStep) -> None:
        self.cluster._begin_write(f"{step.action.value} pool {step.pool.metadata.name}")  # noqa: SLF001  of one module
        self.pools = pools_afterwards(ClusterFacts(pools=self.pools), [step])


def make_loop(
    cluster: MemoryCluster,
    pools: MemoryPools,
    *,
    settings: OperatorSettings | None = None,
    log: Lines | None = None,
    clock: ManualClock | None = None,
    is_leading: bool = True,
) -> DrivenOperator:
    """An operator that has just been started."""
    time, lines = clock or ManualClock(), log or Lines()
    observer = Observer(
        cluster=cluster,
        pools=pools,
        shipped=SHIPPED,
        settings=settings or OperatorSettings(version=VERSION),
        clock=time,
    )
    operator = Operator(
        observer=observer,
        actor=Actor(cluster=cluster, pools=pools, clock=time),
        reporter=Reporter(cluster=cluster, identity="operator-1", clock=time, log=lines),
        components=ComponentStatuses(cluster=cluster, clock=time, log=lines),
        metrics=OperatorMetrics(VERSION),
        is_leading=lambda: is_leading,
        clock=time,
        log=lines,
    )
    return DrivenOperator(operator, time, lines)


class DrivenOperator:
    """An operator without a thread. Its pauses have no jitter: those after failures are the longest ones."""

    def __init__(self, operator: Operator, clock: ManualClock, log: Lines) -> None:
        self.operator, self.metrics = operator, operator.metrics
        self._clock, self._passes = clock, 0
        self._loop = ControllerLoop(operator.controller(), clock, log, self._note_pass, chance=lambda: 1.0 - 1e-12)

    def _note_pass(self, name: str, is_failed: bool, seconds: float) -> None:  # noqa: FBT001  a ``NotePass``
        self._passes += 1
        self.operator.note_pass(name, is_failed, seconds)

    def look(self) -> float:
        """Let the next look come; the pause after it, in whole seconds."""
        before, pause_s = self._passes, self._loop.run_due()
        while self._passes == before:
            assert pause_s is not None
            self._clock.sleep(pause_s)
            pause_s = self._loop.run_due()
        assert pause_s is not None
        return round(pause_s / 1.1) if not self._loop.health.failures else round(pause_s)

    @property
    def has_failed(self) -> bool:
        """Whether the last look has left something to be tried again."""
        return bool(self._loop.health.failures)

    def wake(self) -> None:
        """Something has changed."""
        self._loop.wake()


def settle(loop: DrivenOperator, *, most: int = 50) -> float:
    """Look until nothing is left to do; the pause after the last look."""
    for _ in range(most):
        pause_s = loop.look()
        if pause_s != REST_S or loop.has_failed:
            return pause_s
    raise AssertionError("the operator does not come to rest")


_SETS = ("finalizers",)
"""Lists whose items have owners of their own."""

_ATOMIC = ("nodeSelector",)
"""Objects that have one owner, who names all of their members."""


def _merge(found: Object, wanted: Json) -> None:
    for name, value in wanted.items():
        below = found.get(name)
        if name in _SETS:
            found[name] = sorted({*cast("list[str]", below or []), *cast("list[str]", value)})
        elif isinstance(value, Mapping) and isinstance(below, dict) and name not in _ATOMIC:
            _merge(below, value)
        else:
            found[name] = copy.deepcopy(value)


def _remove(found: Object, before: Json, wanted: Json) -> None:
    """Remove what was applied before and is not applied now."""
    for name, value in before.items():
        if name in _SETS:
            kept = {*cast("list[str]", found.get(name, []))} - {*cast("list[str]", value)}
            found[name] = sorted(kept)
        elif name in _ATOMIC and name in wanted:
            continue
        elif name not in wanted and isinstance(value, Mapping) and isinstance(found.get(name), dict):
            _remove(cast("Object", found[name]), value, {})
            if not found[name]:
                del found[name]
        elif name not in wanted:
            found.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(found.get(name), dict):
            below = wanted[name]
            _remove(cast("Object", found[name]), value, below if isinstance(below, Mapping) else {})


def _without_identity(found: Object) -> object:
    metadata = {
        name: value
        for name, value in cast("Object", found["metadata"]).items()
        if name not in ("uid", "resourceVersion", "generation")
    }
    status = {name: value for name, value in cast("Object", found.get("status", {})).items() if name != "conditions"}
    return {**found, "metadata": metadata, "status": status}
