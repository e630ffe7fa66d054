"""``support``: what those who help need to see of an installation."""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

import click
from attrs import frozen

from netplug_backends.host.atomic_files import read_part
from netplug_cli.ctl.commands.node import NoNodeProcess, ask_node
from netplug_cli.ctl.documents import STDIN, parse_text, read_configuration, render_json, render_yaml
from netplug_cli.ctl.editor import require_free, write_private_file
from netplug_cli.ctl.errors import InputError
from netplug_cli.ctl.session import Session, session_of
from netplug_cli.ctl.tables import (
    REPORT_OUTPUT,
    Cell,
    Column,
    Report,
    check_lines,
    print_report,
    text_cell,
    usage_lines,
)
from netplug_cli.formatting import print_error
from netplug_cli.node_status import encode_status
from netplug_core import __version__
from netplug_core.clock import SECOND_NS, Deadline, format_time
from netplug_core.cni.node_socket import DEFAULT_SOCKET, SOCKET_VARIABLE
from netplug_core.datastore.protocol import Datastore
from netplug_core.datastore.transaction import read_pages
from netplug_core.errors import ConfigurationError, NetplugError, NotServed, Unavailable
from netplug_core.flows.ipam.check import check_ipam
from netplug_core.flows.resources.cluster import find_cluster_information
from netplug_core.flows.resources.pools import read_utilization
from netplug_core.flows.resources.read import with_defaults
from netplug_core.records import Malformed
from netplug_core.resources.codec import to_mapping
from netplug_core.resources.kinds import KINDS, ResourceKind
from netplug_core.settings.model import SETTING_VARIABLES
from netplug_core.support import (
    Bundle,
    DocumentsPart,
    Limits,
    MissingPart,
    Part,
    PartState,
    Redactor,
    TextPart,
    assemble,
    is_secret_name,
)

__all__ = [
    "Machine", "ReadParts", "absent", "failed", "pack", "read_guarded", "read_store_parts", "support",
]  # fmt: skip


# --- parts -----------------------------------------------------------------------------------------------------------


# --- archive ---------------------------------------------------------------------------------------------------------


_MODE = 0o600


def pack(bundle: Bundle, folder: str, time_s: int) -> bytes:
    """The archive of a bundle, gzipped, whose files are in one folder. Its time is in seconds since the epoch."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in bundle.files:
            entry = tarfile.TarInfo(f"{folder}/{file.path}")
            entry.size, entry.mtime, entry.mode = len(file.content), time_s, _MODE
            archive.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()


# --- parts -----------------------------------------------------------------------------------------------------------


ReadParts = Callable[[], Iterable[Part]]
"""Reads the parts of one sort; it may raise, and then what it has given before is kept."""


def read_guarded(
    path: str, read: ReadParts, deadline: Deadline, *, passed_on: tuple[type[NetplugError], ...] = ()
) -> Iterator[Part]:
    """The parts that a function reads. If it fails, or no time is left, a missing part is called like the path.

    Errors of the types in ``passed_on`` are raised.
    """
    if deadline.has_passed:
        yield failed(path, "not read: the time is over")
        return
    try:
        yield from read()
    except passed_on:
        raise
    except NetplugError as error:
        yield failed(path, str(error))
    except OSError as error:
        yield failed(path, f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    except Exception as error:  # noqa: BLE001 - the person needs the other parts, of this mistake of ours too
        yield failed(path, f"internal error: {type(error).__name__}: {error}")


def absent(path: str, reason: str) -> MissingPart:
    """A part that this machine does not have."""
    return MissingPart(path=path, state=PartState.ABSENT, reason=reason)


def failed(path: str, reason: str) -> MissingPart:
    """A part that could not be read."""
    return MissingPart(path=path, state=PartState.FAILED, reason=reason)


# --- node parts ------------------------------------------------------------------------------------------------------


CLIENT, CONFIGURATION, STATUS, CONFLISTS, LOGS = (
    "client.yaml", "netplugctl.yaml", "node/status.yaml", "node/cni", "node/logs",
)  # fmt: skip

_SUFFIXES = (".conf", ".conflist", ".json")  # of the files that runtimes load
_PLUGINS = ("netplug", "netplug-ipam")
_MAX_FILES = 64
_FILE_LIMIT = _LOG_LIMIT = 2**20
_PREFIXES = ("NETPLUG_", "")


@frozen(kw_only=True)
class Machine:
    """This machine. ``configurations`` is the folder of network configurations.

    Files that only say how to be let in (kubeconfigs, keys) are read for what must be found nowhere in the bundle, and
    are no part of it themselves.
    """

    session: Session
    redactor: Redactor
    configurations: str

    def read_parts(self, deadline: Deadline) -> Iterator[Part]:
        """All parts of this machine."""
        secret = {name: text for name, text in self.session.environ.items() if is_secret_name(name)}
        self.redactor.learn(secret)
        yield from read_guarded(CLIENT, self._read_client, deadline)
        yield from read_guarded(CONFIGURATION, self._read_configuration, deadline)
        yield from read_guarded(STATUS, self._read_status, deadline)
        yield from read_guarded(CONFLISTS, partial(self._read_conflists, deadline), deadline)

    def _read_client(self) -> Iterator[Part]:
        document = {
            "version": f"v{__version__}",
            "python": platform.python_version(),
            "system": platform.platform(),
            "machine": platform.machine(),
        }
        yield DocumentsPart(path=CLIENT, documents=(document,))

    def _read_configuration(self) -> Iterator[Part]:
        session = self.session
        default = session.default_config_file
        file = session.options.config or (default if default and os.path.lexists(default) else "")
        if file:
            document = {"file": file, "content": read_configuration(file).mapping}
        else:
            names = (f"{prefix}{name}" for name in SETTING_VARIABLES for prefix in _PREFIXES)
            document = {"environment": {name: session.environ[name] for name in names if name in session.environ}}
        yield DocumentsPart(path=CONFIGURATION, documents=(document,))
        settings = session.settings()
        access = settings.kubernetes
        self._learn_documents(access.kubeconfig_inline, CONFIGURATION)
        self._learn_files(*access.kubeconfig.split(os.pathsep), access.key, settings.etcd_key_file)

    def _read_status(self) -> Iterator[Part]:
        try:
            status = ask_node(self.session.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
        except NoNodeProcess as error:
            yield absent(STATUS, str(error))
        else:
            yield DocumentsPart(path=STATUS, documents=(encode_status(status),))

    def _read_conflists(self, deadline: Deadline) -> Iterator[Part]:
        try:
            names = sorted(name for name in os.listdir(self.configurations) if name.endswith(_SUFFIXES))
        except FileNotFoundError:
            yield absent(CONFLISTS, f"there is no folder {self.configurations}")
            return
        if not names:
            yield absent(CONFLISTS, f"{self.configurations} has no network configuration")
        for name in names[:_MAX_FILES]:
            path = f"{CONFLISTS}/{_file_name(name)}"
            yield from read_guarded(path, partial(self._read_conflist, name, path, deadline), deadline)
        if len(names) > _MAX_FILES:
            yield failed(CONFLISTS, f"{len(names) - _MAX_FILES} further files were not read")

    def _read_conflist(self, name: str, path: str, deadline: Deadline) -> Iterator[Part]:
        file = f"{self.configurations}/{name}"
        found = read_part(file, _FILE_LIMIT)
        if b"netplug" not in found.content:
            yield absent(path, f"{file} is of another program")
            return
        try:
            document: object = json.loads(found.content)
        except (ValueError, RecursionError) as error:
            raise InputError(file, None, f"no JSON: {type(error).__name__}") from None
        plugins = _plugins_of(document)
        if not plugins:
            yield absent(path, f"{file} is of another program")
            return
        yield DocumentsPart(path=path, documents=(document,))
        for plugin in plugins:
            access = plugin.get("kubernetes")
            if isinstance(access, dict):
                self._learn_files(str(access.get("kubeconfig") or ""))
        for log in sorted({text for plugin in plugins for text in _log_files(plugin)}):
            place = f"{LOGS}/{_file_name(log.strip('/'))}"
            yield from read_guarded(place, partial(_read_log, log, place), deadline)

    def _learn_files(self, *paths: str) -> None:
        """Keep what is secret in some files, so that it is found wherever else it is."""
        for path in filter(None, paths):
            try:
                text = read_part(path, _FILE_LIMIT).content.decode("utf-8", "replace")
                if "-----BEGIN" in text and "apiVersion" not in text:
                    self.redactor.learn_text(text)
                else:
                    self._learn_documents(text, path)
            except OSError:
                continue  # no secret of it is known, and none of it is in the bundle

    def _learn_documents(self, text: str, name: str) -> None:
        try:
            for document in parse_text(text, name):
                self.redactor.learn(document)
        except ConfigurationError:
            self.redactor.learn_text(text)


def _read_log(log: str, path: str) -> Iterator[Part]:
    try:
        found = read_part(log, _LOG_LIMIT, is_end=True)
    except FileNotFoundError:
        yield absent(path, f"there is no {log} yet")
        return
    text = found.content.decode("utf-8", "backslashreplace")
    note = ""
    if found.size > len(found.content):
        text = text.partition("\n")[2]  # the first line is only a part of one
        note = f"the last {len(found.content)} of {found.size} bytes"
    yield TextPart(path=path, text=text, note=note)


def _plugins_of(document: object) -> list[Mapping[str, object]]:
    """The configurations of netplug in a network configuration, or in a list of them."""
    if not isinstance(document, dict):
        return []
    listed = document.get("plugins")
    members = [document, *(listed if isinstance(listed, list) else [])]
    plugins = [member for member in members if isinstance(member, dict)]
    return [plugin for plugin in plugins if {plugin.get("type"), _ipam_of(plugin).get("type")} & set(_PLUGINS)]


def _ipam_of(plugin: Mapping[str, object]) -> Mapping[str, object]:
    ipam = plugin.get("ipam")
    return ipam if isinstance(ipam, dict) else {}


def _log_files(plugin: Mapping[str, object]) -> Iterator[str]:
    for section in (plugin, _ipam_of(plugin)):
        path = section.get("log_file_path")
        if isinstance(path, str) and path.startswith("/"):
            yield path


def _file_name(text: str) -> str:
    """A text as the name of one file of the archive."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".") or "_"


# --- store parts -----------------------------------------------------------------------------------------------------


CLUSTER = "cluster.yaml"
SHOW, CHECK = "ipam/show.txt", "ipam/check.txt"

_MAX_DOCUMENTS = 10_000  # of a kind; the file of a kind has space for about as many

_ReadStore = Callable[[Datastore, Deadline], Iterator[Part]]


def read_store_parts(session: Session, deadline: Deadline) -> Iterator[Part]:
    """All parts of the datastore. If it does not answer, the rest of them says so, and it is not asked again."""
    of_kinds: list[tuple[str, _ReadStore]] = [(_path_of(row), partial(_read_resources, row)) for row in KINDS]
    waiting = [(CLUSTER, _read_cluster), *of_kinds, (SHOW, _read_show), (CHECK, _read_check)]
    try:
        with session.open_datastore_of_any_release() as store:
            while waiting:
                path, read = waiting[0]
                yield from read_guarded(path, partial(read, store, deadline), deadline, passed_on=(Unavailable,))
                del waiting[0]
    except NetplugError as error:
        yield from (failed(path, str(error)) for path, _read in waiting)


def _path_of(row: ResourceKind) -> str:
    return f"resources/{row.plural}.yaml"


def _read_cluster(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    cluster, description = find_cluster_information(store, deadline=deadline), store.description
    document = {
        "datastore": {"type": description.name, "location": description.location},
        "version": cluster.version,
        "type": cluster.cluster_type,
        "guid": cluster.cluster_guid,
        "datastoreReady": cluster.is_datastore_ready,
    }
    yield DocumentsPart(path=CLUSTER, documents=(document,))


def _read_resources(row: ResourceKind, store: Datastore, deadline: Deadline) -> Iterator[Part]:
    malformed: list[Malformed] = []
    try:
        found = with_defaults(row, read_pages(store, row.kind, deadline=deadline, malformed=malformed))
    except NotServed as error:  # others may be served: a cluster may have the definitions of an older release
        yield failed(_path_of(row), str(error))
        return
    shown = found[:_MAX_DOCUMENTS]
    documents = tuple(to_mapping(record.value, revision=record.revision) for record in shown)
    note = f"the first {len(shown)} of {len(found)} resources" if len(shown) < len(found) else ""
    yield DocumentsPart(path=_path_of(row), documents=documents, note=note)
    yield from (failed(f"{_path_of(row)}#{error.key}", str(error)) for error in malformed)


def _read_show(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    yield _lines(SHOW, usage_lines(read_utilization(store, deadline=deadline), shows_blocks=True))


def _read_check(store: Datastore, deadline: Deadline) -> Iterator[Part]:
    report = check_ipam(store, clock=deadline.clock, deadline=deadline)
    yield _lines(CHECK, check_lines(report, shows_repairs=True))


def _lines(path: str, lines: Iterable[str]) -> TextPart:
    return TextPart(path=path, text="".join(f"{line}\n" for line in lines))


# --- support ---------------------------------------------------------------------------------------------------------


_CONFIGURATIONS = "/etc/cni/net.d"
_DEFAULT_TIMEOUT_S = 60
_INCOMPLETE = 3
_PART_COLUMNS = tuple(Column("", name) for name in ("path", "state", "size", "reason"))


@click.group()
def support() -> None:
    """Collect what those who help need to see."""


@support.command(short_help="Write a file for those who help, without secrets.")
@click.option(
    "-f", "--filename", "file", metavar="FILE",
    help="The archive to write. Default: netplug-support-TIME.tar.gz in this folder.",
)  # fmt: skip
@click.option("--overwrite", "is_replacing", is_flag=True, help="Replace a FILE that exists.")
@click.option(
    "--cni-conf-dir", "configurations", metavar="DIR", default=_CONFIGURATIONS, show_default=True,
    help="The folder of network configurations.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1, 3600), metavar="SECONDS", default=_DEFAULT_TIMEOUT_S,
    show_default=True, help="How long to read. What is not read by then is left out.",
)  # fmt: skip
@REPORT_OUTPUT
@click.pass_context
def bundle(
    context: click.Context, *, file: str | None, is_replacing: bool, configurations: str, timeout_s: int, output: str
) -> int:
    """Write one .tar.gz with what those who help need to see, without passwords, tokens, keys and certificates.

    It has versions, the configuration, all resources, how full pools are, what ipam check finds, the network
    configurations of this machine, the end of the logs that they name, and the status of the node process. Its
    index.json says what became of each part. Nothing is changed. The exit status is 3 if a part could not be read.
    """
    session = session_of(context)
    now_ns = session.clock.now_ns()
    stamp = format_time(now_ns - now_ns % SECOND_NS)
    folder = f"netplug-support-{stamp.replace(':', '').replace('-', '')}"
    path = file or f"{folder}.tar.gz"
    if path == STDIN:
        raise click.UsageError("A bundle is written to a file; name one.")
    require_free(path, is_replacing=is_replacing)
    redactor, deadline = Redactor(), Deadline.after(session.clock, timeout_s)
    machine = Machine(session=session, redactor=redactor, configurations=configurations)
    parts = tuple(chain(machine.read_parts(deadline), read_store_parts(session, deadline)))
    made = assemble(
        parts,
        redactor,
        header={"created": stamp, "client": f"v{__version__}"},
        render=_render,
        limits=Limits(),
        deadline=deadline,
    )
    content = pack(made, folder, now_ns // SECOND_NS)
    write_private_file(path, (content,), is_replacing=is_replacing)
    _print_failures(made)
    shown = (f"wrote {path}: {len(made.files)} files, {len(content)} bytes",)
    rows = tuple(
        (text_cell(entry.path), text_cell(entry.state.value), Cell(entry.size, ""), text_cell(entry.reason))
        for entry in made.entries
    )
    facts = {"file": path, "bytes": len(content)}
    print_report(Report(_PART_COLUMNS, rows, name="parts", facts=facts, shown=shown), output)
    print_error("names, addresses, labels and annotations are in it as they are stored; look at it before you send it")
    return _INCOMPLETE if made.failed else 0


def _print_failures(made: Bundle) -> None:
    """Print what is missing, a line for each reason: a datastore that does not answer costs many parts."""
    paths: dict[str, list[str]] = {}
    for entry in made.failed:
        paths.setdefault(entry.reason, []).append(entry.path)
    for reason, missing in paths.items():
        print_error(f"not in the bundle: {', '.join(missing)}: {reason}")


def _render(path: str, document: object) -> str:
    """A document as its file has it: YAML, several of them after another, or JSON for a network configuration."""
    return f"---\n{render_yaml(document)}" if path.endswith(".yaml") else render_json(document)
