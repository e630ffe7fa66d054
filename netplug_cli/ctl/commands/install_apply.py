"""``netplugctl install apply``: netplug is installed in a cluster without an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from attrs import define, field, frozen

from netplug_cli.ctl.commands.found_cluster import advice_on, explained, find_cluster
from netplug_cli.ctl.commands.install_status import await_rollout
from netplug_cli.ctl.commands.installation import ACCOUNTS, API_GROUPS, INVALID, check_files, static_objects
from netplug_cli.ctl.commands.options import FILES
from netplug_cli.ctl.manifests import CRD_BUNDLES, PROTECTION_MANIFEST, read_shipped
from netplug_cli.ctl.session import session_of
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.errors import NetplugError, Unavailable
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.pool_step import change_pool
from netplug_core.installation.cluster import ApplyEffect, Cluster, FieldConflict, Ownership, Writing
from netplug_core.installation.cluster_rules import find_obstacle
from netplug_core.installation.methods import Method
from netplug_core.installation.pool_plan import PoolAction, PoolStep
from netplug_core.installation.render import SYSTEM_NAMESPACE
from netplug_core.installation.render import render as render_installation
from netplug_core.installation.static_manifest import STATIC_NAMESPACE
from netplug_core.resources.installation import OPERATOR_GROUP

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.installation.cluster import ClusterInventory

__all__ = ["apply"]

_CONFLICT, _TIMED_OUT = 4, 5
_NEW_MODE = "v1"
_DEFINITION = "CustomResourceDefinition"
_POLL_S = 0.2
_SERVED_S = 60.0
_DEFAULT_WAIT_S = 600

Json = Mapping[str, object]


class _ApplyOptions(TypedDict):
    """The options of ``install apply`` as click hands them over."""

    method_name: str | None
    changes: tuple[str, ...]
    is_trial: bool
    is_forced: bool
    is_awaited: bool
    timeout_s: int


@click.command()
@FILES
@click.option(
    "--method",
    "method_name",
    type=click.Choice([method.value for method in Method]),
    help="Install a static manifest, and no Installation.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of a static manifest; may be repeated."
)
@click.option("--dry-run", "is_trial", is_flag=True, help="Let the API server judge every object; store none.")
@click.option("--force-conflicts", "is_forced", is_flag=True, help="Take over fields that another manager has set.")
@click.option("--wait", "is_awaited", is_flag=True, help="Return when netplug works on every node.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1),
    default=_DEFAULT_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long --wait waits.",
)
@click.pass_context
def apply(context: click.Context, files: tuple[str, ...], **options: Unpack[_ApplyOptions]) -> int:
    """Install netplug in the cluster of the kubeconfig, which has no operator: as an Installation says, or by a method.

    The Installation is checked as by validate --cluster first. Definitions, accounts, pools, configuration and
    DaemonSet are applied on the server in this order, a line each. The first error ends it; the same command completes
    it. A static manifest has no pools.
    """
    method_name, changes = options["method_name"], options["changes"]
    if bool(files) == bool(method_name) or (changes and not method_name):
        raise click.UsageError("Give the file of an Installation, -f FILE, or --method, which --set goes with.")
    session = session_of(context).for_cluster()
    with session.open_cluster() as cluster:
        applying = _Applying(
            session=session,
            cluster=cluster,
            ownership=Ownership.TAKEN if options["is_forced"] else Ownership.RESPECTED,
            writing=Writing.TRIED if options["is_trial"] else Writing.STORED,
        )
        steps = applying.steps_of_method(Method(method_name), changes) if method_name else applying.steps_of(files)
        if steps is None:
            return INVALID
        done = applying.run(steps)
        if done or options["is_trial"] or not options["is_awaited"]:
            return done
        deadline = Deadline.after(session.clock, options["timeout_s"])
        return 0 if await_rollout(session, cluster, deadline) else _TIMED_OUT


@frozen
class _Step:
    """One object: its name for a person, and what applies it and says what happened."""

    label: str
    act: Callable[[], str]


@define(kw_only=True)
class _Applying:
    """One run of the command."""

    session: Session
    cluster: Cluster
    ownership: Ownership
    writing: Writing
    _missing_namespaces: set[object] = field(factory=set)

    def steps_of(self, files: Sequence[str]) -> Sequence[_Step] | None:
        """Everything that is applied for an Installation; None if something is wrong, which is printed then."""
        with explained():
            found = find_cluster(self.session, self.cluster)
        checked = check_files(files, found.check)
        if not checked.is_valid or _is_refused(found.inventory, SYSTEM_NAMESPACE):
            return None
        mode = found.inventory.crd_mode or _NEW_MODE
        document = checked.document
        rendered = render_installation(document, found.facts, version=__version__, api_group=API_GROUPS[mode])
        if rendered.daemonset is None or rendered.config_map is None:
            print_error(f"nothing would be installed on the nodes: {rendered.no_conflist_reason}")
            return None
        accounts = [wanted for name in ACCOUNTS for wanted in read_shipped(name)]
        pool_step = partial(self._pool_step, revisions=found.revisions)
        pools = [step for step in rendered.steps if step.action is not PoolAction.LEAVE]
        return [
            self._object_step(rendered.namespace),
            *self._definition_steps(read_shipped(CRD_BUNDLES[mode]), mode),
            *map(self._object_step, accounts),
            *(pool_step(step) for step in pools if step.action is not PoolAction.DELETE),
            *map(self._object_step, (rendered.config_map, rendered.daemonset)),
            *(pool_step(step) for step in pools if step.action is PoolAction.DELETE),  # takes long
        ]

    def steps_of_method(self, method: Method, changes: Sequence[str]) -> Sequence[_Step] | None:
        """Everything that a static manifest has; None if something is wrong, which is printed then."""
        objects = static_objects(method, changes)
        if objects is None:
            return None
        with explained():
            inventory = self.cluster.read_inventory(deadline=self.session.deadline())
        definitions = [wanted for wanted in objects if wanted["kind"] == _DEFINITION]
        if _is_refused(inventory, STATIC_NAMESPACE, _NEW_MODE if definitions else ""):
            return None
        return [
            *self._definition_steps(definitions, _NEW_MODE),
            *map(self._object_step, (wanted for wanted in objects if wanted["kind"] != _DEFINITION)),
        ]

    def run(self, steps: Sequence[_Step]) -> int:
        """Take all steps until one fails; return the exit status."""
        for index, step in enumerate(steps):
            try:
                effect = step.act()
            except KeyboardInterrupt:
                _print_rest(steps, index)
                raise
            except NetplugError as error:
                print_error(f"{step.label} cannot be applied: {error}{advice_on(error)}")
                _print_rest(steps, index)
                return _CONFLICT if isinstance(error, FieldConflict) else 1
            click.echo(f"{step.label} {effect}{'' if self.writing is Writing.STORED else ' (dry run)'}")
        return 0

    def _definition_steps(self, definitions: Sequence[Json], mode: str) -> Iterator[_Step]:
        """What keeps the definitions, they themselves, and after them that their objects can be stored."""
        if definitions:
            yield from map(self._object_step, (*read_shipped(PROTECTION_MANIFEST), *definitions))
        if definitions and self.writing is Writing.STORED:
            yield _Step("definitions", partial(self._await_definitions, definitions, mode))

    def _object_step(self, wanted: Json) -> _Step:
        return _Step(_label(wanted), partial(self._apply_object, wanted))

    def _pool_step(self, step: PoolStep, revisions: Mapping[str, str]) -> _Step:
        revision = revisions.get(step.pool.metadata.name, "")
        return _Step(str(step.pool.key), partial(self._apply_pool, step, revision))

    def _apply_object(self, wanted: Json) -> str:
        if _name(wanted, "namespace") in self._missing_namespaces:
            return "would be created with its namespace"
        deadline = self.session.deadline()
        effect = self.cluster.apply(wanted, ownership=self.ownership, writing=self.writing, deadline=deadline)
        if wanted["kind"] == "Namespace" and effect is ApplyEffect.CREATED and self.writing is Writing.TRIED:
            self._missing_namespaces.add(_name(wanted))
        return effect.value

    def _await_definitions(self, definitions: Sequence[Json], mode: str) -> str:
        names = (_name(one).partition(".") for one in definitions)
        wanted = {plural for plural, _, group in names if group != OPERATOR_GROUP}
        deadline = Deadline.after(self.session.clock, _SERVED_S)
        while missing := wanted - self.cluster.find_resources(mode, deadline=deadline):
            if deadline.has_passed:
                raise Unavailable("the API server", f"it does not serve {', '.join(sorted(missing))} yet")
            self.session.clock.sleep(_POLL_S)
        return "served"

    def _apply_pool(self, step: PoolStep, revision: str) -> str:
        if self.writing is Writing.TRIED:
            return f"{step.action.value}: {step.reason}"
        session = self.session
        with session.open_datastore() as store:
            ensure_initialized(store, pace=session.pace(), new_uid=session.new_uid)
            return _write_pool(session, store, step, revision)


def _is_refused(inventory: ClusterInventory, namespace: str, definitions: str = "") -> bool:
    """Whether something is in the way, which is printed then."""
    obstacle = find_obstacle(inventory, namespace, definitions)
    if obstacle:
        print_error(f"nothing is applied: {obstacle}")
    return bool(obstacle)


def _print_rest(steps: Sequence[_Step], index: int) -> None:
    rest = ", ".join(each.label for each in steps[index:])
    print_error(f"{index} of {len(steps)} are done; not done: {rest}; the same command continues")


def _write_pool(session: Session, store: Datastore, step: PoolStep, revision: str) -> str:
    outcome = change_pool(store, step, revision=revision, pace=session.pace(), new_uid=session.new_uid)
    for warning in outcome.warnings:
        print_error(f"warning: {warning}")
    return outcome.effect.value


def _label(wanted: Json) -> str:
    place = "/".join(filter(None, (_name(wanted, "namespace"), _name(wanted))))
    return f"{wanted['kind']}({place})"


def _name(wanted: Json, member: str = "name") -> str:
    metadata = wanted["metadata"]
    return str(metadata.get(member) or "") if isinstance(metadata, Mapping) else ""
