"""``netplugctl install validate`` and ``render``: an Installation, judged and shown without a cluster.

``render --method`` shows a static manifest instead, with the settings of ``--set``, or that of the operator. What the
cluster of the kubeconfig is, if there is one, is found here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from netplug_cli.ctl.arguments import FILES
from netplug_cli.ctl.documents import Document, read_documents, render_yaml
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import session_of
from netplug_cli.ctl.tables import REPORT_OUTPUT, Column, Report, print_report, text_cell
from netplug_cli.ctl.yaml_documents import (
    OPERATOR_MANIFEST,
    STATIC_FOLDER,
    read_shipped,
    render_manifest,
)
from netplug_cli.formatting import print_error
from netplug_core import __version__
from netplug_core.errors import ConfigurationError, NetplugError, Unauthorized
from netplug_core.installation.cluster import ClusterInventory, FieldConflict
from netplug_core.installation.components import find_component_kind, read_component, unserved_text
from netplug_core.installation.controllers import controllers_of
from netplug_core.installation.daemonset import RenderedInstallation
from netplug_core.installation.daemonset import render as render_installation
from netplug_core.installation.document import (
    InstallationDocument,
    InvalidInstallation,
    find_selection_problems,
    is_installation,
    overlaid,
    read_installation,
)
from netplug_core.installation.rules import CheckedInstallation, check, check_in_cluster, facts_of
from netplug_core.installation.settings import ClusterFacts
from netplug_core.installation.static import Method, configure
from netplug_core.names import API_VERSION
from netplug_core.records import List, Record
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.installation import INSTALLATION_KIND, INSTALLATION_NAME
from netplug_core.resources.ippool import IPPOOL, IPPool

if TYPE_CHECKING:
    from netplug_cli.ctl.session import Session
    from netplug_core.installation.cluster import Cluster

__all__ = [
    "ACCOUNTS", "API_GROUPS", "INVALID", "CheckedFiles", "FoundCluster", "advice_on", "check_files", "explained",
    "find_cluster", "read_pools", "render", "static_objects", "validate",
]  # fmt: skip


# --- found cluster ---------------------------------------------------------------------------------------------------


_FORBIDDEN = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')


@frozen(kw_only=True)
class FoundCluster:
    """A cluster, and the facts that follow from it."""

    inventory: ClusterInventory
    facts: ClusterFacts
    revisions: Mapping[str, str]
    """The revision of each pool, by its name."""

    def check(self, document: InstallationDocument) -> CheckedInstallation:
        """Judge a document for this cluster."""
        return check_in_cluster(document, self.facts, self.inventory)


def find_cluster(session: Session, cluster: Cluster) -> FoundCluster:
    """What a cluster has. ``session`` is one for clusters.

    Raises:
        Unavailable: the server does not answer, or a right is missing.
    """
    inventory = cluster.read_inventory(deadline=session.deadline())
    pools = read_pools(session) if inventory.has_pools else ()
    return FoundCluster(
        inventory=inventory,
        facts=facts_of(inventory, tuple(record.value for record in pools)),
        revisions={record.key.name: record.revision for record in pools},
    )


def read_pools(session: Session) -> tuple[Record[IPPool], ...]:
    """The pools of the session's datastore; errors are those of ``Session.open_datastore``."""
    with session.open_datastore() as store:
        query = List(IPPOOL)
        return store.read([query], deadline=session.deadline()).list(query)


def advice_on(error: NetplugError) -> str:
    """What a person can do about an error of the API server, to follow its text; empty if that says it already."""
    if isinstance(error, FieldConflict):
        return " with --force-conflicts"
    found = _FORBIDDEN.search(str(error)) if isinstance(error, Unauthorized) else None
    if found is None:
        return ""
    resource = ".".join(filter(None, (found["resource"], found["group"])))
    return f"; grant the user the verb {found['verb']} on {resource}"


@contextmanager
def explained() -> Iterator[None]:
    """Adds what a person can do to the error of a right that is missing."""
    try:
        yield
    except Unauthorized as error:
        raise evolve(error, cause=f"{error.cause}{advice_on(error)}") from error


# --- installation ----------------------------------------------------------------------------------------------------


INVALID = 2
"""The exit status if a rule is broken."""

_WARNED = 3
_PARTS = ("conflist", "pools", "environment", "daemonset")
ACCOUNTS = ("rbac/cni-plugin.yaml", "rbac/node.yaml", "rbac/controllers.yaml")
"""The shipped files with the accounts and their rights."""

API_GROUPS = {"v1": "", "v3": API_VERSION}
"""The API group in what is rendered, by the version of the cluster's CRDs."""

_NO_DEFINITIONS = "none"
_OPERATOR = "operator"


@click.command()
@FILES
@click.option("--strict", "is_strict", is_flag=True, help=f"End with status {_WARNED} if there are only warnings.")
@click.option("--cluster", "is_in_cluster", is_flag=True, help="Check them for the cluster of the kubeconfig too.")
@REPORT_OUTPUT
@click.pass_context
def validate(
    context: click.Context, files: tuple[str, ...], *, is_strict: bool, is_in_cluster: bool, output: str
) -> int:
    """Check the Installations of some files by every rule that needs no cluster, or with --cluster by all rules.

    Without --cluster, the cluster is taken as a new one. With an Installation named overlay, default is also checked
    with its settings. The exit status is 2 if a rule is broken. Each problem and each warning is a line on standard
    error.
    """
    if not is_in_cluster:
        checked = check_files(files)
    else:
        session = session_of(context).for_cluster()
        with session.open_cluster() as cluster, explained():
            found = find_cluster(session, cluster)
        checked = check_files(files, found.check)
    print_report(_validation_report(checked), output)
    if not checked.is_valid:
        return INVALID
    return _WARNED if is_strict and any(one.warnings for one in checked.all) else 0


_VALIDATION_COLUMNS = tuple(Column("", name) for name in ("installation", "severity", "text"))


def _validation_report(checked: CheckedFiles) -> Report:
    """What was found, a row each; the text has those that are valid, if all are, since the rest was printed."""
    found = [("", "problem", text) for text in checked.unreadable]
    for one in checked.all:
        found += ((one.document.where, "problem", str(problem)) for problem in one.problems)
        found += ((one.document.where, "warning", str(warning)) for warning in one.warnings)
    documents = [{"installation": one.document.where, "valid": not one.problems} for one in checked.all]
    shown = tuple(f"{one.document.where}: valid" for one in checked.all) if checked.is_valid else ()
    rows = tuple(tuple(map(text_cell, row)) for row in found)
    facts = {"valid": checked.is_valid, "installations": documents}
    return Report(_VALIDATION_COLUMNS, rows, name="findings", facts=facts, shown=shown)


@click.command()
@FILES
@click.option(
    "--only",
    "part",
    type=click.Choice(_PARTS),
    help="Print only the text of the conflist, the IPPools, the environment of the container on the nodes, or the "
    "DaemonSet.",
)
@click.option(
    "--crds",
    "mode",
    type=click.Choice((*API_GROUPS, _NO_DEFINITIONS)),
    default="v1",
    show_default=True,
    help="The cluster's CRDs; none leaves them out of a static manifest.",
)
@click.option(
    "--method",
    "method_name",
    type=click.Choice([*(method.value for method in Method), _OPERATOR]),
    help="Print a static manifest, for a cluster without an operator, or that of the operator; and no Installation.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of a static manifest; may be repeated."
)
def render(
    files: tuple[str, ...], part: str | None, mode: str, method_name: str | None, changes: tuple[str, ...]
) -> int:
    """Print what an Installation installs in a new cluster, as YAML: namespace, accounts, DaemonSet, IPPools.

    The CRDs are not printed. Problems and warnings are those of validate. With --method, print a static manifest, CRDs
    included; its settings are the keys of the ConfigMap netplug-config. The manifest of the operator has neither CRDs,
    which it applies itself, nor settings. The exit status is 2 if a rule is broken or a setting is refused; nothing is
    printed then.
    """
    if method_name == _OPERATOR:
        if files or part or changes or mode == "v3":
            raise click.UsageError(f"--method {method_name} goes with no other option.")
        click.echo(render_manifest(read_shipped(OPERATOR_MANIFEST)), nl=False)
        return 0
    if method_name is not None:
        if files or part or mode == "v3":
            raise click.UsageError("--method goes with --set and --crds none only.")
        return _render_static(Method(method_name), changes, has_definitions=mode != _NO_DEFINITIONS)
    if changes or mode == _NO_DEFINITIONS:
        raise click.UsageError("--set and --crds none go with --method.")
    checked = check_files(files)
    if not checked.is_valid:
        return INVALID
    document = checked.document
    rendered = render_installation(document, ClusterFacts(), version=__version__, api_group=API_GROUPS[mode])
    if rendered.no_conflist_reason and part in (None, "conflist", "daemonset"):
        print_error(f"nothing is installed on the nodes: {rendered.no_conflist_reason}")
    click.echo(_format(rendered, part), nl=False)
    return 0


def _render_static(method: Method, changes: Sequence[str], *, has_definitions: bool) -> int:
    """Print a published manifest with other settings."""
    objects = static_objects(method, changes)
    if objects is None:
        return INVALID
    shown = [found for found in objects if has_definitions or found["kind"] != "CustomResourceDefinition"]
    click.echo(render_manifest(shown), nl=False)
    return 0


def static_objects(method: Method, changes: Sequence[str]) -> Sequence[Mapping[str, object]] | None:
    """A published manifest with other settings; None if one is wrong, which is printed then."""
    pairs = {key: value for key, _, value in (change.partition("=") for change in changes)}
    try:
        settings = configure(method, pairs)
    except ConfigurationError as error:
        print_error(str(error))
        return None
    return [
        {**found, "data": {**_data_of(found), **settings}} if found["kind"] == "ConfigMap" else found
        for found in read_shipped(f"{STATIC_FOLDER}/{method.value}.yaml")
    ]


def _data_of(config_map: Mapping[str, object]) -> Mapping[str, object]:
    data = config_map["data"]
    return data if isinstance(data, Mapping) else {}


def _format(rendered: RenderedInstallation, part: str | None) -> str:
    pools = [to_mapping(pool) for pool in rendered.pools]
    match part:
        case "conflist":
            return "" if rendered.conflist is None else f"{rendered.conflist}\n"
        case "environment":
            return "".join(f"{name}={value}\n" for name, value in rendered.environment.items())
        case "pools":
            return _documents(pools)
        case "daemonset":
            return _documents([] if rendered.daemonset is None else [rendered.daemonset])
    if rendered.daemonset is None or rendered.config_map is None:
        return _documents(pools)
    accounts = [document for name in ACCOUNTS for document in read_shipped(name)]
    last = (rendered.config_map, rendered.daemonset, controllers_of(rendered))
    return _documents([rendered.namespace, *accounts, *pools, *last])


def _documents(objects: Sequence[object]) -> str:
    return "---\n".join(map(render_yaml, objects))


@frozen(kw_only=True)
class CheckedFiles:
    """The Installations of some files: those named default, and each with an overlay.

    ``unreadable`` has what cannot be read or put together, as texts.
    """

    defaults: tuple[CheckedInstallation, ...]
    overlaid: tuple[CheckedInstallation, ...]
    unreadable: tuple[str, ...]

    @property
    def all(self) -> tuple[CheckedInstallation, ...]:
        """Everything that was judged."""
        return (*self.defaults, *self.overlaid)

    @property
    def is_valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.unreadable and not any(one.problems for one in self.all)

    @property
    def document(self) -> InstallationDocument:
        """The one Installation, with its overlay if there is one.

        Raises:
            UsageError: there are several.
        """
        if len(self.defaults) != 1 or len(self.overlaid) > 1:
            raise click.UsageError("Give one Installation, and one overlay of it at most.")
        return self.all[-1].document


def check_files(
    files: Sequence[str], judge: Callable[[InstallationDocument], CheckedInstallation] = check
) -> CheckedFiles:
    """The Installations of some files, judged; problems and warnings are printed."""
    if not files:
        raise click.UsageError("Give at least one file: -f FILE.")
    places = dict[str, Document]()
    documents, unreadable = _read_installations(files, places)
    defaults = [one for one in documents if one.installation.metadata.name == INSTALLATION_NAME]
    whole = list[InstallationDocument]()
    for overlay in (one for one in documents if one not in defaults):
        unselectable = tuple(find_selection_problems(overlay))
        if unselectable:
            unreadable += (_text_with_place(problem, places) for problem in unselectable)
        elif len(defaults) != 1:
            unreadable.append(f"{overlay.where}: one {INSTALLATION_KIND}({INSTALLATION_NAME}) is needed beside it")
        elif not any(find_selection_problems(defaults[0])):
            whole.append(overlaid(defaults[0], overlay))
    checked = CheckedFiles(
        defaults=tuple(map(judge, defaults)), overlaid=tuple(map(judge, whole)), unreadable=tuple(unreadable)
    )
    for line in (*checked.unreadable, *_lines(checked.all, places)):
        print_error(line)
    return checked


def _read_installations(
    files: Sequence[str], places: dict[str, Document]
) -> tuple[list[InstallationDocument], list[str]]:
    """The Installations of some files, and what cannot be read; ``places`` gets each document under its source."""
    documents, problems = list[InstallationDocument](), list[str]()
    try:
        for document in read_documents(files):
            component = find_component_kind(document.mapping)
            if component is None and not is_installation(document.mapping):
                print_error(f"{document.source}: skipped; it is no {INSTALLATION_KIND}")
                continue
            places[document.source] = document
            try:
                if component is None:
                    documents.append(read_installation(document.mapping, source=document.source))
                else:
                    read_component(component, document.mapping, source=document.source)
                    print_error(f"warning: {document.source} {component.value}: {unserved_text(component)}")
            except ConfigurationError as error:
                problems.append(_text_with_place(error, places))
    except InputError as error:
        problems.append(str(error))
    if not documents and not problems:
        problems.append(f"there is no {INSTALLATION_KIND} in {', '.join(files)}")
    return documents, problems


def _text_with_place(error: ConfigurationError, places: Mapping[str, Document]) -> str:
    """The text of a problem, with the line and column of its field where the document is one of a file."""
    source = next((one for one in places if f"{error.where} ".startswith(f"{one} ")), "")
    if not isinstance(error, InvalidInstallation) or not source:
        return str(error)
    place = places[source].find_place(error.paths[0])
    return str(evolve(error, where=f"{place}{error.where.removeprefix(source)}"))


def _lines(checked: Sequence[CheckedInstallation], places: Mapping[str, Document]) -> Iterator[str]:
    """Every problem and every warning."""
    for one in checked:
        yield from (_text_with_place(problem, places) for problem in one.problems)
        yield from (f"warning: {warning}" for warning in one.warnings)
