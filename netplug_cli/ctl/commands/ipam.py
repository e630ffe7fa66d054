"""``ipam``: addresses shown, released, collected, imported, and pools split; from the command line or from a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypedDict, Unpack, assert_never

import click
from attrs import evolve

from netplug_cli.ctl.arguments import FORCE, TRUTH, format_key, parse_cidr
from netplug_cli.ctl.commands.explain import explain
from netplug_cli.ctl.commands.ipam_check import ipam_check
from netplug_cli.ctl.commands.ipam_map import ipam_map
from netplug_cli.ctl.completion import complete_addresses, complete_blocks, complete_pools
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.reading import count_reads
from netplug_cli.ctl.reports import collection_report, read_leaks
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import (
    REPORT_OUTPUT,
    STEP_OUTPUT,
    Report,
    StepReport,
    address_report,
    borrowed_report,
    configuration_report,
    pool_report,
    print_report,
    report_steps,
    usage_report,
)
from netplug_cli.formatting import escape_unprintable, format_duration, parse_duration, print_error
from netplug_core import __version__
from netplug_core.addressing import Address, Prefix
from netplug_core.clock import Deadline
from netplug_core.datastore.protocol import Datastore
from netplug_core.errors import ContentionExhausted
from netplug_core.flows.ipam.addresses import EndpointCheck, HeldRelease, ReleaseResult, release_held
from netplug_core.flows.ipam.check import settle_s
from netplug_core.flows.ipam.collect import Collector, DatastoreLookup, TickMode, read_cluster, read_view, tick
from netplug_core.flows.ipam.explain import find_addresses_of_handle
from netplug_core.flows.ipam.host_local_import import ImportReport, ImportRequest, import_host_local
from netplug_core.flows.ipam.leaks import (
    HandleResult,
    LeakRelease,
    ReleasePlan,
    plan_release,
    release_handle,
    release_planned_addresses,
    require_usable,
)
from netplug_core.flows.ipam.service import BlockIPAM
from netplug_core.flows.resources.delete import Risk, delete_damaged_block
from netplug_core.flows.resources.drain import SplitPlan, WantedSplit, plan_split, split
from netplug_core.flows.resources.pools import find_address, find_ipam_configuration, read_utilization
from netplug_core.flows.resources.write import configure_ipam
from netplug_core.ipam.gc.candidates import CollectionReport, CollectorSettings, ScanHistory
from netplug_core.ipam.hostlocal.settings import DEFAULT_DATA_FOLDER
from netplug_core.ipam.model import block_key
from netplug_core.ipam.reporting.usage import HandleRef, PoolUsage, borrowed
from netplug_core.log import Level
from netplug_core.records import Malformed
from netplug_core.resources.ippool import IPAM_CONFIGURATION_KEY, IPAMConfigurationSpec, ippool_key

__all__ = [
    "ipam", "ipam_collect", "ipam_import_host_local", "ipam_release", "ipam_split", "parse_address",
    "release_from_reports", "say_that_it_waits",
]  # fmt: skip


# --- ipam collect ----------------------------------------------------------------------------------------------------


_TIMEOUT_S = 600.0
_MIN_WAIT_S = 120  # longer than an ADD takes on any store


@click.command("collect", short_help="Look for what is abandoned once, as the garbage collector does.")
@click.option("--apply", "is_applied", is_flag=True, help="Free and delete it. Without it nothing is changed.")
@click.option(
    "--wait", "wait_s", type=parse_duration, metavar="DURATION",
    help="Take it as the grace period, such as 15m: look again until it has passed. At least 2m.  [default: one look]",
)  # fmt: skip
@REPORT_OUTPUT
@click.pass_context
def ipam_collect(context: click.Context, *, is_applied: bool, wait_s: int | None, output: str) -> int:
    """Look for leaked addresses, and for unused handles, affinities and blocks, and say what would be done.

    In one look, only the addresses of nodes that are gone and expired cooldowns are due. Everything else is a
    candidate: it is due when it looks abandoned for the grace period, which --wait waits for. Before an address is
    freed, its pod is looked up once more. Where the datastore shows no pods, no address is judged. Nothing is done
    while the datastore is locked. The exit status is 1 if it is, or if something could not be done.
    """
    if wait_s is not None and wait_s < _MIN_WAIT_S:
        raise click.BadParameter("a grace period of at least 2m is expected", param_hint="--wait")
    session = session_of(context)
    with session.open_datastore() as store:
        report = _collect(session, store, wait_s, TickMode.ACT if is_applied else TickMode.LOOK)
    if report.idle is not None:
        raise InputError("ipam collect", None, f"nothing is collected: {report.idle.value}")
    for problem in (*map(str, report.failures), *map(str, report.unreadable)):
        print_error(escape_unprintable(problem))
    print_report(collection_report(report, is_applied=is_applied), output)
    return 1 if report.failures or report.unreadable else 0


def _collect(session: Session, store: Datastore, wait_s: int | None, mode: TickMode) -> CollectionReport:
    """Look once, or over the grace period about as often as the collector does; only the last look acts."""
    settings = CollectorSettings(tick_s=_TIMEOUT_S)
    history = ScanHistory()
    if wait_s is not None:
        settings = CollectorSettings(grace_s=wait_s, tick_s=_TIMEOUT_S)
        print_error(f"looking again until the grace period of {format_duration(wait_s)} has passed")
        for _half in range(2):
            history, report = _tick(session, store, settings, history, TickMode.LOOK)
            if report.idle is not None:
                return report
            session.clock.sleep(wait_s / 2)
    return _tick(session, store, settings, history, mode)[1]


def _tick(
    session: Session, store: Datastore, settings: CollectorSettings, history: ScanHistory, mode: TickMode
) -> tuple[ScanHistory, CollectionReport]:
    clock = session.clock
    deadline = Deadline.after(clock, _TIMEOUT_S)
    # Blocks before pods: a pod that comes between is taken for one that was there.
    with count_reads(store, clock) as counted:
        view = read_view(counted, None, now_ns=clock.now_ns(), deadline=deadline)
        view = evolve(view, cluster=read_cluster(counted, deadline=deadline))
    collector = Collector(
        store=store,
        live_lookup=DatastoreLookup(store),
        clock=clock,
        chance=session.chance,
        log=_no_log,
        settings=settings,
        mode=mode,
    )
    return tick(collector, view, history)


def _no_log(_level: Level, _message: str, /, **_fields: object) -> None:
    """The report says what a log would."""


# --- ipam split ------------------------------------------------------------------------------------------------------


@click.command("split", short_help="Replace a pool by pools of equal parts of its range.")
@click.argument("count", type=int, metavar="N")
@click.option("--cidr", type=parse_cidr, metavar="CIDR", help="The pool with this CIDR.")
@click.option("--name", default="", metavar="NAME", shell_complete=complete_pools, help="The pool of this name.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
@STEP_OUTPUT
@click.pass_context
def ipam_split(
    context: click.Context, *, count: int, cidr: Prefix | None, name: str, is_dry_run: bool, output: str
) -> int:
    """Replace a pool by N pools, each with an equal part of its range and the same settings and labels.

    N is a power of 2. The parts of the pool NAME are called split-NAME-0, split-NAME-1 and so on. The datastore has to
    be locked (datastore migrate lock). Blocks and addresses stay as they are. A run that was interrupted is run again
    with the same options, before the datastore is unlocked.
    """
    if bool(name) is (cidr is not None):
        raise click.UsageError("Give --cidr CIDR or --name NAME.")
    session = session_of(context)
    with session.open_datastore() as store, report_steps(output) as steps:
        plan = plan_split(store, WantedSplit(count=count, name=name, prefix=cidr), deadline=session.deadline())
        if plan.old is None:
            steps.add(f"{ippool_key(plan.name)} is split into {count} pools already")
            return 0
        if is_dry_run:
            _add_plan(steps, plan)
            return 0
        for key, result in split(store, plan, pace=session.pace, new_uid=session.new_uid):
            steps.add(f"{key} {result}", format_key(key))
        steps.add(f"Successfully split {ippool_key(plan.name)} into {count} pools")
    print_error(f"network configurations and annotations that name the pool {plan.name} have to name its parts")
    return 0


def _add_plan(steps: StepReport, plan: SplitPlan) -> None:
    for part in plan.parts:
        state = "is created already" if part.metadata.name in plan.created else "would be created"
        steps.add(f"{part.key} {state}: {part.spec.prefix}", format_key(part.key))
    old = ippool_key(plan.name)
    steps.add(f"{old} would be deleted; its blocks would stay as they are", format_key(old))


# --- ipam from report ------------------------------------------------------------------------------------------------


_REPORT_TIMEOUT_S = 3600.0
_REPORT_EVERY = 10_000


def release_from_reports(
    session: Session, files: Sequence[str], steps: StepReport, *, is_forced: bool, is_dry_run: bool
) -> int:
    """Release what every one of some reports calls leaked; the exit status."""
    reports = [read_leaks(file) for file in files]
    deadline = Deadline.after(session.clock, _REPORT_TIMEOUT_S)
    with session.open_datastore() as store:
        version = f"v{__version__}"
        require_usable(store, reports, version=version, is_forced=is_forced, deadline=deadline)
        wait_s = 0.0 if is_dry_run else settle_s(store)
        plan = plan_release(store, reports, deadline=deadline, before_look=partial(_settle, session, wait_s))
        _print_kept(plan)
        is_clean = all(each.is_due for each in plan.addresses)
        if is_dry_run:
            _add_release_plan(steps, plan)
        else:
            _release_addresses(session, store, plan, steps)
            is_clean &= _release_handles(session, store, plan.handles, steps)
    return 0 if is_clean else 1


def say_that_it_waits(wait_s: float) -> None:
    """Say on standard error why a release does not begin yet."""
    print_error(f"waiting {wait_s:g} s, until every ADD that is running has stored its endpoint")


def _settle(session: Session, wait_s: float) -> None:
    if wait_s:
        say_that_it_waits(wait_s)
        session.clock.sleep(wait_s)


def _print_kept(plan: ReleasePlan) -> None:
    """Say which addresses of the reports are not released, and why."""
    if plan.outdated:
        print_error(f"addresses that are not assigned any more as the reports say: {plan.outdated}")
    for each in plan.addresses:
        if not each.is_due:
            print_error(escape_unprintable(f"{each.ref.address} is not released: {each.use.text or 'it cools down'}"))


def _add_release_plan(steps: StepReport, plan: ReleasePlan) -> None:
    due = [each for each in plan.addresses if each.is_due]
    for each in due:
        steps.add(_line(each), str(each.ref.address))
    for handle in plan.handles:
        steps.add(f"would release handle {handle.id}, if it is unchanged", handle.id)
    steps.add(f"Would release {len(due)} IPs and at most {len(plan.handles)} handles")


def _line(each: LeakRelease) -> str:
    handle = f"of handle {each.ref.handle}" if each.ref.handle else "without a handle"
    return f"would release {each.ref.address} {handle}: {each.use.text}"


def _release_addresses(session: Session, store: Datastore, plan: ReleasePlan, steps: StepReport) -> None:
    released, printed = list[Address](), 0
    try:
        for addresses in release_planned_addresses(store, plan, pace=session.pace):
            released += addresses
            if len(released) - printed >= _REPORT_EVERY:
                printed = len(released)
                print_error(f"{printed} addresses are released")
    finally:  # also if the datastore stops answering: what is released stays so
        if released:
            steps.add_all(f"Released {len(released)} IPs successfully", ((str(one), "released") for one in released))


def _release_handles(session: Session, store: Datastore, handles: Iterable[HandleRef], steps: StepReport) -> bool:
    """Release handles, and say how many; whether there was no error."""
    released, skipped, errors = list[str](), 0, 0
    try:
        for handle in handles:
            try:
                result = release_handle(store, handle, pace=session.pace())
            except (Malformed, ContentionExhausted) as error:
                errors += 1
                print_error(escape_unprintable(f"handle {handle.id} is not released: {error}"))
                continue
            released += [handle.id] if result is HandleResult.RELEASED else []
            skipped += result is HandleResult.SKIPPED
    finally:
        line = f"Released {len(released)} handles; {skipped} skipped; {errors} errors."
        steps.add_all(line, ((one, "released") for one in released))
    return not errors


# --- ipam release ----------------------------------------------------------------------------------------------------


def parse_address(text: str) -> Address:
    """The value of an option, with an error of the command line if it is no address."""
    try:
        return Address.parse(text)
    except ValueError:
        raise click.BadParameter(f"invalid IP address: {text!r}") from None


class _ReleaseOptions(TypedDict):
    """The options of ``ipam release`` as click hands them over."""

    addresses: tuple[Address, ...]
    handle: str | None
    reports: tuple[str, ...]
    is_forced: bool
    is_dry_run: bool
    output: str


@click.command("release", short_help="Free addresses whose workloads are gone.")
@click.option(
    "--ip",
    "addresses",
    type=parse_address,
    multiple=True,
    metavar="ADDRESS",
    shell_complete=complete_addresses,
    help="An address; can be repeated.",
)
@click.option("--handle", metavar="HANDLE", help="Every address that this handle holds.")
@click.option(
    "--from-report", "reports", multiple=True, metavar="FILE",
    help="What this report of ipam check calls leaked; if repeated, what every one does. - is standard input.",
)  # fmt: skip
@click.option(
    "--force", "is_forced", is_flag=True,
    help="Release it though a workload endpoint has it; with --from-report: though the datastore is not locked, or the "
    "report is old.",
)  # fmt: skip
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --from-report: say what it would release.")
@STEP_OUTPUT
@click.pass_context
def ipam_release(context: click.Context, **options: Unpack[_ReleaseOptions]) -> int:
    """Free addresses whose workloads are gone, and whose DEL never came.

    Nothing is freed that a workload endpoint has, since the workload would share it with the next one. Without
    --force, it waits 90 seconds on Kubernetes, until every ADD that is running has stored its endpoint. The exit status
    is 1 if an address stays held, or was not assigned.

    --from-report frees what ipam check -o found to be leaked, and is still as it was. The datastore has to be locked
    (datastore migrate lock), and a report written since; --force goes on without both, and with a report of another
    release. An address that is assigned again, or that is in use by now, stays also with --force, which does not
    shorten the wait here.
    """
    addresses, handle, reports = options["addresses"], options["handle"], options["reports"]
    if [bool(addresses), handle is not None, bool(reports)].count(True) != 1:
        raise click.UsageError("Give --ip ADDRESS, --handle HANDLE or --from-report FILE.")
    if options["is_dry_run"] and not reports:
        raise click.UsageError("--dry-run is for --from-report.")
    session, is_forced = session_of(context), options["is_forced"]
    with report_steps(options["output"]) as steps:
        if not reports:
            return _release(session, addresses, handle, steps, is_forced=is_forced)
        return release_from_reports(session, reports, steps, is_forced=is_forced, is_dry_run=options["is_dry_run"])


def _release(
    session: Session, addresses: tuple[Address, ...], handle: str | None, steps: StepReport, *, is_forced: bool
) -> int:
    """Release addresses, or those of a handle, as they are found; the exit status."""
    deadline = Deadline.after(session.clock, _TIMEOUT_S)
    check = EndpointCheck.SKIPPED if is_forced else EndpointCheck.REFUSED
    with session.open_datastore() as store:
        if handle is not None:
            held = find_addresses_of_handle(store, handle, deadline=deadline)
            addresses = held.addresses
            for problem in held.problems:
                print_error(problem)
            if not addresses:
                print_error(f"no address is held by the handle {handle}")
                return 1
        pace = evolve(session.pace(), deadline=deadline)
        done = release_held(store, addresses, check, pace=pace, before_wait=say_that_it_waits)
    for one in done:
        if one.result is ReleaseResult.RELEASED:
            steps.add(_released_line(one), str(one.address))
        else:
            click.echo(_released_line(one), err=True)
    return 0 if all(one.result is ReleaseResult.RELEASED for one in done) else 1


def _released_line(one: HeldRelease) -> str:
    match one.result:
        case ReleaseResult.RELEASED:
            return f"Successfully released IP address {one.address}"
        case ReleaseResult.NOT_ASSIGNED:
            return f"netplugctl: {one.address} is not assigned"
        case ReleaseResult.COOLING:
            return f"netplugctl: {one.address} is released already, and cooling down"
        case ReleaseResult.IN_USE:
            way = "delete the workload, or its endpoint if the workload is gone; or use --force"
            return escape_unprintable(f"netplugctl: {one.address} is not released: {one.endpoint} has it; {way}")
        case ReleaseResult.CHANGED:
            return f"netplugctl: {one.address} is not released: {one.result.value}"
        case result:
            assert_never(result)


# --- ipam import -----------------------------------------------------------------------------------------------------


_NODE_VARIABLE = "KUBERNETES_NODE_NAME"
_LOOK_AGAIN_S = 5.0


@click.command("import-host-local", short_help="Give the addresses that host-local holds on this node to netplug-ipam.")
@click.option("--node", default="", metavar="NAME", help=f"This node's name.  [default: {_NODE_VARIABLE}]")
@click.option(
    "--network", default="k8s-pod-network", show_default=True, metavar="NAME", help="The network: a folder of files."
)
@click.option(
    "--data-dir", default=DEFAULT_DATA_FOLDER, show_default=True, metavar="DIR", help="The folder of all networks."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
@STEP_OUTPUT
@click.pass_context
def ipam_import_host_local(
    context: click.Context, *, node: str, network: str, data_dir: str, is_dry_run: bool, output: str
) -> int:
    """Assign the addresses that host-local holds on this node to their pods, and remove its files.

    The plugin's configuration names netplug-ipam already, and the pools of the addresses have the assignmentMode
    Manual, until it was run on every node. An address is the pod's that shows it. A file of a container without a pod
    is removed; while it is younger than a minute, the pod may come to show the address, so it is looked at again.
    Only with the datastore kubernetes. The exit status is 1 if an address could not be imported; run it again.
    """
    session = session_of(context, is_dry_run=is_dry_run)
    name = node or session.environ.get(_NODE_VARIABLE, "")
    if not name:
        raise click.UsageError(f"Give --node NAME, or set {_NODE_VARIABLE}.")
    request = ImportRequest(node=name, network=network, keeps_files=is_dry_run)
    folder = session.open_host_local_folder(os.path.join(data_dir, network))
    if not folder.read().files:
        with report_steps(output) as steps:
            steps.add(f"host-local holds no address of {network} on this node")
        return 0
    with session.open_datastore() as store, report_steps(output) as steps:
        ipam = BlockIPAM(datastore=store, clock=session.clock, chance=session.chance)
        while True:
            report = import_host_local(ipam, folder, request, new_pace=session.pace)
            _add_imported(steps, report, is_dry_run=is_dry_run)
            if report.refused or is_dry_run or not (report.plan.young or report.plan.imported or report.plan.gone):
                return 1 if report.refused else 0
            session.clock.sleep(_LOOK_AGAIN_S)


def _add_imported(steps: StepReport, report: ImportReport, *, is_dry_run: bool) -> None:
    would = "would be " if is_dry_run else ""
    for attachment in report.imported:
        for address in attachment.addresses:
            steps.add(f"{address}: {would}assigned to the pod {attachment.pod}", str(address))
    for one in report.plan.gone:
        steps.add(f"{one.address}: no pod has it; its file {'would be' if is_dry_run else 'is'} removed")
    for one in report.plan.young:
        steps.add(f"{one.address}: no pod has it yet")
    for one in report.plan.elsewhere:
        print_error(f"{one.address}: a pod of another node has it; its file stays")
    for one in report.plan.unnamed:
        print_error(f"{one.address}: its file names no container and stays; an IPReservation keeps the address")
    for attachment, error in report.refused:
        addresses = ", ".join(map(str, attachment.addresses))
        print_error(escape_unprintable(f"{addresses} of the pod {attachment.pod} stays: {error}"))


# --- ipam ------------------------------------------------------------------------------------------------------------


def _parse_block(text: str) -> Prefix:
    try:
        return Prefix.parse(text)
    except ValueError:
        raise click.BadParameter(f"invalid CIDR of a block: {text!r}") from None


@click.group()
def ipam() -> None:
    """Show, check and configure IP address management."""


ipam.add_command(explain)
ipam.add_command(ipam_check)
ipam.add_command(ipam_collect)
ipam.add_command(ipam_map)
ipam.add_command(ipam_release)
ipam.add_command(ipam_split)
ipam.add_command(ipam_import_host_local)


class _ShowOptions(TypedDict):
    """What is shown."""

    shows_blocks: bool
    shows_borrowed: bool
    shows_configuration: bool
    address: Address | None


@ipam.command(short_help="Show how full pools are, and who has which address.")
@click.argument("pools", nargs=-1, metavar="[POOL]...", shell_complete=complete_pools)
@click.option(
    "--show-blocks", "shows_blocks", is_flag=True, help="Show each block too, then a line for each address held."
)
@click.option("--show-borrowed", "shows_borrowed", is_flag=True, help="Show the addresses that nodes borrow instead.")
@click.option("--show-configuration", "shows_configuration", is_flag=True, help="Show the IPAM configuration instead.")
@click.option(
    "--ip", "address", type=parse_address, metavar="ADDRESS", shell_complete=complete_addresses,
    help="Say who has one address instead.",
)  # fmt: skip
@REPORT_OUTPUT
@click.pass_context
def show(context: click.Context, *, pools: tuple[str, ...], output: str, **shown: Unpack[_ShowOptions]) -> int:
    """Show how full each POOL is, by name or CIDR; without one, how full all are.

    With --show-blocks a line for each address that is held follows: the address, its handle (- for none), and what is
    known of its owner as name=value. In JSON and YAML, pools, blocks and addresses are lists; CSV has the addresses.
    """
    shows_blocks, address = shown["shows_blocks"], shown["address"]
    shows_borrowed, shows_configuration = shown["shows_borrowed"], shown["shows_configuration"]
    selections = (bool(pools) or shows_blocks, shows_borrowed, shows_configuration, address is not None)
    if sum(selections) > 1:
        raise click.UsageError(
            "Use only one of these at a time: pools and --show-blocks, --show-borrowed, --show-configuration, or --ip."
        )
    session = session_of(context)
    if address is not None:
        report = _address(session, address)
    elif shows_configuration:
        report = _configuration(session)
    elif shows_borrowed:
        report = _borrowed(session)
    elif shows_blocks:
        report = usage_report(_usages(session, pools))
    else:
        report = pool_report(_usages(session, pools))
    print_report(report, output)
    return 0


@ipam.command(short_help="Change the IPAM configuration.")
@click.option(
    "--strictaffinity",
    "--strict-affinity",
    "is_affinity_strict",
    type=TRUTH,
    help="Whether a node may use its own blocks only.",
)
@click.option(
    "--max-blocks-per-host",
    "max_blocks",
    type=click.IntRange(0),
    metavar="N",
    help="How many blocks a node may claim; 0: no limit.",
)
@click.option(
    "--ip-cooldown-seconds",
    "cooldown_s",
    type=click.IntRange(0),
    metavar="N",
    help="The cooldown: how long a released address is not assigned again.",
)
@STEP_OUTPUT
@click.pass_context
def configure(
    context: click.Context,
    *,
    is_affinity_strict: bool | None,
    max_blocks: int | None,
    cooldown_s: int | None,
    output: str,
) -> int:
    """Change the IPAM configuration; settings that are not given stay as they are."""
    if is_affinity_strict is None and max_blocks is None and cooldown_s is None:
        raise click.UsageError("Give at least one setting.")

    def change(spec: IPAMConfigurationSpec) -> IPAMConfigurationSpec:
        return evolve(
            spec,
            is_affinity_strict=spec.is_affinity_strict if is_affinity_strict is None else is_affinity_strict,
            max_blocks_per_host=spec.max_blocks_per_host if max_blocks is None else max_blocks,
            cooldown_s=spec.cooldown_s if cooldown_s is None else cooldown_s,
        )

    session = session_of(context)
    with session.open_datastore() as store:
        configure_ipam(store, change, pace=session.pace(), new_uid=session.new_uid)
    _print_settings(
        output,
        ("StrictAffinity", None if is_affinity_strict is None else str(is_affinity_strict).lower()),
        ("MaxBlocksPerHost", max_blocks),
        ("IPCooldownSeconds", cooldown_s),
    )
    return 0


def _print_settings(output: str, *settings: tuple[str, object]) -> None:
    """Print the settings that were changed; with ``-o name`` the resource that has them, once."""
    lines = [f"Successfully set {name} to: {value}" for name, value in settings if value is not None]
    with report_steps(output) as steps:
        for number, line in enumerate(lines):
            steps.add(line, format_key(IPAM_CONFIGURATION_KEY) if not number or output != "name" else "")


@ipam.command("delete-block", short_help="Delete a damaged block.")
@click.argument("block", type=_parse_block, metavar="CIDR", shell_complete=complete_blocks)
@FORCE
@STEP_OUTPUT
@click.pass_context
def delete_block(context: click.Context, *, block: Prefix, is_forced: bool, output: str) -> int:
    """Delete the damaged block with that CIDR.

    It is refused while a handle or a workload endpoint says that an address of the block is in use.
    """
    session = session_of(context)
    risk = Risk.ACCEPTED if is_forced else Risk.REFUSED
    with session.open_datastore() as store, report_steps(output) as steps:
        warnings = delete_damaged_block(store, block, risk, pace=session.pace())
        steps.add(f"{block_key(block)} deleted", str(block))
    for warning in warnings:
        print_error(f"warning: {warning}")
    return 0


def _usages(session: Session, pools: tuple[str, ...]) -> Sequence[PoolUsage]:
    with session.open_datastore() as store:
        usages = read_utilization(store, pools, deadline=session.deadline())
    if not usages:
        print_error("no IPPool found")
    return usages


def _borrowed(session: Session) -> Report:
    with session.open_datastore() as store:
        usages = read_utilization(store, deadline=session.deadline())
    return borrowed_report(borrowed(usage.block for pool in usages for usage in pool.blocks))


def _configuration(session: Session) -> Report:
    with session.open_datastore() as store:
        return configuration_report(find_ipam_configuration(store, deadline=session.deadline()))


def _address(session: Session, address: Address) -> Report:
    with session.open_datastore() as store:
        return address_report(find_address(store, address, pace=session.pace()))
