"""``install`` and ``uninstall``: on a host, in a cluster, and the state of an installation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from attrs import define, evolve, field, frozen

from netplug_cli.ctl.arguments import FILES, format_key
from netplug_cli.ctl.commands.installation import (
    ACCOUNTS,
    API_GROUPS,
    INVALID,
    advice_on,
    check_files,
    explained,
    find_cluster,
    read_pools,
    render,
    static_objects,
    validate,
)
from netplug_cli.ctl.commands.node import NoNodeProcess, OddNodeProcess, ask_node
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import (
    REPORT_OUTPUT,
    STEP_OUTPUT,
    TABLE_OUTPUT,
    Column,
    Report,
    StepReport,
    print_report,
    report_steps,
    text_cell,
)
from netplug_cli.ctl.yaml_documents import CRD_BUNDLES, PROTECTION_MANIFEST, read_shipped
from netplug_cli.formatting import print_error
from netplug_cli.progress import show_progress
from netplug_core import __version__
from netplug_core.clock import Deadline
from netplug_core.cni.node_socket import DEFAULT_SOCKET, SOCKET_VARIABLE
from netplug_core.errors import ConfigurationError, NetplugError, Unavailable
from netplug_core.flows.resources.cluster import ensure_initialized
from netplug_core.flows.resources.drain import change_pool
from netplug_core.installation.cluster import (
    ApplyEffect,
    Cluster,
    Condition,
    FieldConflict,
    Ownership,
    PoolsFound,
    Status,
    Writing,
    judge,
)
from netplug_core.installation.controllers import controllers_of
from netplug_core.installation.daemonset import SYSTEM_NAMESPACE
from netplug_core.installation.daemonset import render as render_installation
from netplug_core.installation.pools import PoolAction, PoolStep
from netplug_core.installation.rules import find_obstacle
from netplug_core.installation.static import STATIC_NAMESPACE, Method
from netplug_core.reconcile.lease import TRUSTED_S, is_recent
from netplug_core.resources.installation import OPERATOR_GROUP
from netplug_core.settings.model import ETCD_DATASTORE

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.installation.cluster import Cluster, ClusterInventory, ClusterState, OperatorState

__all__ = [
    "apply", "await_rollout", "install", "status", "uninstall", "uninstall_cluster",
]  # fmt: skip


# --- install status --------------------------------------------------------------------------------------------------


_STATUSES = {Condition.AVAILABLE: 0, Condition.LIMITED: 0, Condition.PROGRESSING: 6, Condition.DEGRADED: 7}
_COLUMNS = (Column("WHAT", "name"), Column("CONDITION", "condition"), Column("DETAIL", "detail"))
_POLL_S = 1.0


@click.command()
@TABLE_OUTPUT
@click.pass_context
def status(context: click.Context, output: str) -> int:
    """Show whether netplug works in the cluster of the kubeconfig, and what to do if not.

    The exit status is 0 if everything does, or is limited by its settings; 6 if it is on its way, and 7 if something
    has to be done.
    """
    session = session_of(context)
    with session.for_cluster().open_cluster() as cluster, explained():
        found = _read_status(session, cluster)
    rows = tuple(
        (text_cell(check.name), text_cell(check.condition.value), text_cell(check.detail)) for check in found.checks
    )
    print_report(Report(_COLUMNS, rows, name="checks", facts={"condition": found.condition.value}), output)
    return _STATUSES[found.condition]


def await_rollout(session: Session, cluster: Cluster, report: StepReport, deadline: Deadline) -> bool:
    """Wait until everything is available; print what is not when the deadline has passed."""
    with show_progress("parts that are available", 0, session.clock, deadline) as progress:
        while True:
            found = _read_status(session, cluster)
            if _STATUSES[found.condition] == 0 or deadline.has_passed:
                break
            late = sum(_STATUSES[check.condition] != 0 for check in found.checks)
            progress.update(len(found.checks) - late, total=len(found.checks))
            session.clock.sleep(min(_POLL_S, deadline.remaining_s))
    if _STATUSES[found.condition] == 0:
        report.add("netplug works on every node")
        return True
    for check in found.checks:
        if _STATUSES[check.condition] != 0:
            print_error(f"{check.name}: {check.condition.value}: {check.detail}")
    return False


def _read_status(session: Session, cluster: Cluster) -> Status:
    state = cluster.read_state(deadline=session.deadline())
    if state.operator.holder:
        state = evolve(state, operator=_watch_lease(session, cluster, state.operator))
    return judge(state, _find_pools(session, state))


def _watch_lease(session: Session, cluster: Cluster, first: OperatorState) -> OperatorState:
    """Whether the Lease is renewed. The clocks of machines differ: one that looks old counts as old if it stays so."""
    if is_recent(first.renewed, session.clock.now_ns()):
        return first
    deadline, found = Deadline.after(session.clock, TRUSTED_S), first
    while not deadline.has_passed:
        session.clock.sleep(min(_POLL_S, deadline.remaining_s))
        found = cluster.read_operator(deadline=session.deadline())
        if (found.holder, found.renewed) != (first.holder, first.renewed):
            return found
    return evolve(found, is_renewed=False)


def _find_pools(session: Session, state: ClusterState) -> PoolsFound:
    """The pools that the DaemonSet's pods use: in the API server, or in the etcd that the tool's own settings name."""
    has_etcd = any(one.datastore == ETCD_DATASTORE for one in state.daemonsets)
    if not has_etcd and not state.crd_mode:
        return PoolsFound()
    try:
        if has_etcd and session.settings().type != ETCD_DATASTORE:
            raise ConfigurationError("DATASTORE_TYPE", session.settings().type, "the pools are in etcd; name it")
        found = read_pools(session if has_etcd else session.for_cluster())
        return PoolsFound(pools=tuple(record.value for record in found))
    except NetplugError as error:
        return PoolsFound(failure=str(error))


# --- install apply ---------------------------------------------------------------------------------------------------


_CONFLICT, _TIMED_OUT = 4, 5
_NEW_MODE = "v1"
_DEFINITION = "CustomResourceDefinition"
_APPLY_POLL_S = 0.2
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
    output: str


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
@STEP_OUTPUT
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
    with session.open_cluster() as cluster, report_steps(options["output"]) as report:
        applying = _Applying(
            session=session,
            cluster=cluster,
            report=report,
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
        return 0 if await_rollout(session, cluster, report, deadline) else _TIMED_OUT


@frozen
class _Step:
    """One object: its name for a person and for other commands, and what applies it and says what happened."""

    label: str
    name: str
    act: Callable[[], str]


@define(kw_only=True)
class _Applying:
    """One run of the command."""

    session: Session
    cluster: Cluster
    report: StepReport
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
        pods = (rendered.daemonset, controllers_of(rendered))
        if rendered.config_map is None:
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
            *(self._object_step(one) for one in (rendered.config_map, *pods) if one is not None),
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
            self.report.add(f"{step.label} {effect}{'' if self.writing is Writing.STORED else ' (dry run)'}", step.name)
        return 0

    def _definition_steps(self, definitions: Sequence[Json], mode: str) -> Iterator[_Step]:
        """What keeps the definitions, they themselves, and after them that their objects can be stored."""
        if definitions:
            yield from map(self._object_step, (*read_shipped(PROTECTION_MANIFEST), *definitions))
        if definitions and self.writing is Writing.STORED:
            yield _Step("definitions", "", partial(self._await_definitions, definitions, mode))

    def _object_step(self, wanted: Json) -> _Step:
        name = f"{str(wanted['kind']).lower()}/{_name(wanted)}"
        return _Step(_label(wanted), name, partial(self._apply_object, wanted))

    def _pool_step(self, step: PoolStep, revisions: Mapping[str, str]) -> _Step:
        revision = revisions.get(step.pool.metadata.name, "")
        return _Step(str(step.pool.key), format_key(step.pool.key), partial(self._apply_pool, step, revision))

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
            self.session.clock.sleep(_APPLY_POLL_S)
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


# --- uninstall cluster -----------------------------------------------------------------------------------------------


_REMOVAL_POLL_S = 0.5
_REMOVAL_WAIT_S = 300


@click.command("cluster")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1),
    default=_REMOVAL_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the operator.",
)
@STEP_OUTPUT
@click.pass_context
def uninstall_cluster(context: click.Context, timeout_s: int, output: str) -> None:
    """Delete the Installation of the cluster of the kubeconfig, and wait until the operator has removed everything.

    What an Installation named overlay and the objects APIServer, FlowLogAPI and FlowLogViewer say goes with it. The
    definitions, the pools and all data stay. Repeated, it goes on.
    """
    session = session_of(context).for_cluster()
    deadline = Deadline.after(session.clock, timeout_s)
    with session.open_cluster() as cluster, explained(), report_steps(output) as steps:
        left = before = cluster.remove_installation(deadline=session.deadline())
        for name in before:
            kind, _, own_name = name.partition(" ")
            steps.add(f"{name} is being deleted", f"{kind.lower()}/{own_name}")
        with show_progress("objects removed", len(before), session.clock, deadline) as progress:
            while left:
                if deadline.has_passed:
                    raise click.ClickException(
                        f"{', '.join(left)}: still there after {timeout_s} s; the operator removes what it has "
                        "installed first: see whether it runs, and what it logs"
                    )
                progress.update(len(before) - len(left))
                session.clock.sleep(min(_REMOVAL_POLL_S, deadline.remaining_s))
                left = cluster.remove_installation(deadline=session.deadline())
        steps.add("there is no Installation any more" if before else "there is no Installation")


# --- install ---------------------------------------------------------------------------------------------------------


_UNIT_DIR = click.option(
    "--unit-dir",
    default="/etc/systemd/system",
    show_default=True,
    metavar="DIR",
    help="Where systemd looks for the units of the node process.",
)


@click.group()
def install() -> None:
    """Put netplug onto a machine or into a cluster, and show whether it works there."""


for command in (validate, render, apply, status):
    install.add_command(command)


class _HostOptions(TypedDict):
    """The options of ``install host`` as click hands them over."""

    client: str | None
    has_node: bool
    trust_environment: bool
    without_helpers: bool
    output: str


@install.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@click.option(
    "--client",
    type=click.Choice(("static", "python")),
    help="The client of the node process: static is built with the C compiler of this host, if it was not built before."
    " Without this option: static if it was built, otherwise python.",
)
@click.option("--node", "has_node", is_flag=True, help="Install the node process too, with its systemd units.")
@_UNIT_DIR
@click.option(
    "--trust-environment", is_flag=True, help="Install from an environment that a user other than root may write."
)
@click.option(
    "--without-helpers",
    is_flag=True,
    help="Only warn of a plugin without which no pod starts, as in an image that gets it later.",
)
@REPORT_OUTPUT
def install_host(bin_dir: str, unit_dir: str, **options: Unpack[_HostOptions]) -> None:
    """Write the executables netplug and netplug-ipam into DIR, and say what else this machine lacks.

    Everything is installed, and the exit status is 1, if loopback is missing, or a plugin that a configuration list in
    /etc/cni/net.d chains with netplug.
    """
    context = click.get_current_context()
    session, is_whole = session_of(context), True
    with report_steps(options["output"]) as steps:
        try:
            if not options["trust_environment"]:
                session.require_trusted_environment()
            session.install_executables(bin_dir, options["client"] or "built", steps.add)
            if options["has_node"]:
                session.install_node(bin_dir, unit_dir, steps.add)
            for problem in session.find_host_problems(bin_dir):
                steps.add(f"warning: {problem}")
            missing = session.find_missing_plugins(bin_dir)
        except NetplugError as error:
            raise click.ClickException(str(error)) from error
        for problem in missing:
            if options["without_helpers"]:
                steps.add(f"warning: {problem}")
            else:
                print_error(problem)
                is_whole = False
    if not is_whole:
        context.exit(1)


@click.group()
def uninstall() -> None:
    """Take netplug off a machine, or out of a cluster."""


uninstall.add_command(uninstall_cluster)


@uninstall.command("host")
@click.option("--bin-dir", required=True, metavar="DIR", help="The runtime's plugin folder, such as /opt/cni/bin.")
@_UNIT_DIR
@REPORT_OUTPUT
@click.pass_context
def uninstall_host(context: click.Context, bin_dir: str, unit_dir: str, output: str) -> None:
    """Remove the executables netplug and netplug-ipam from DIR, and the node process with its systemd units.

    Then BIRD is ended, and routes to other nodes, tunnels and the packet filter are removed. A node process that still
    runs would make them again: they stay then, and the exit status is 1. Pods keep their interfaces.
    """
    session = session_of(context)
    try:
        with report_steps(output) as steps:
            session.uninstall_executables(bin_dir, steps.add)
            session.uninstall_node(bin_dir, unit_dir, steps.add)
            running = _find_node_process(session)
            if running is None:
                session.remove_network(steps.add)
    except NetplugError as error:
        raise click.ClickException(str(error)) from error
    if running is not None:
        print_error(f"a node process still runs, {running}, so its routes are left; stop it, and repeat this command")
        context.exit(1)


def _find_node_process(session: Session) -> str | None:
    """Which node process runs on this machine; None if none does."""
    try:
        return f"process {ask_node(session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET).pid}"
    except NoNodeProcess:
        return None
    except OddNodeProcess as odd:
        return str(odd)
