"""The folder of a lab: who owns it, what is in it, and the record by which it is taken down."""

from __future__ import annotations

import enum
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import assert_never

from attrs import define, evolve, frozen

from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    is_unfinished,
    make_folder,
    read_file,
    remove_file,
    remove_leftovers,
    replace_file,
)
from netplug_cli.lab.model import (
    CNI_VERSION,
    MAX_NODES,
    NODE_NETNS,
    ExternalServers,
    Lab,
    LabError,
    LabFolder,
    LabNetwork,
    LabPod,
    LabStore,
    OwnServers,
    Routing,
    SqliteStore,
    StoreKind,
)
from netplug_core.clock import Clock, Deadline
from netplug_core.cni.result import parse_result
from netplug_core.decoding.codecs import (
    BOOLEAN,
    INTEGER,
    NONEMPTY_STRING,
    OBJECT,
    STRING,
    STRING_MAP,
    Codec,
    Unreadable,
    checked,
    enum_codec,
)
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error
from netplug_core.errors import ConfigurationError, DecodeError

__all__ = [
    "LockMode", "LockedFolder", "attached_pod", "default_folder", "find_lab", "find_other_labs", "is_present",
    "lock_folder", "lock_new_folder", "parse_lab", "render_lab",
]  # fmt: skip


# --- record ----------------------------------------------------------------------------------------------------------


def render_lab(lab: Lab) -> str:
    """The text of the record."""
    pods = [
        {"name": pod.name, "node": pod.node, "result": json.loads(pod.add_output) if pod.add_output else None}
        for pod in lab.pods
    ]
    network = lab.network
    document = {
        "name": lab.name,
        "uid": lab.uid,
        "isComplete": lab.is_complete,
        "store": _store_mapping(lab.store),
        "network": network and {"nodes": network.node_count, "routing": network.routing.value},
        "pods": pods,
    }
    return json.dumps(document, indent=2) + "\n"


def parse_lab(text: str, where: str) -> Lab:
    """The lab that a record describes; ``where`` begins the messages.

    Raises:
        LabError: the text is not a record of a lab.
    """
    try:
        record = _decoder().decode(json.loads(text), _Record, where)
        pods = tuple(pod.parsed(f"{where}.pods[{position}]") for position, pod in enumerate(record.pods))
        lab = Lab(
            name=record.name,
            uid=record.uid,
            store=record.store.parsed,
            network=record.network,
            is_complete=record.is_complete,
            pods=pods,
        )
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    except (DecodeError, ConfigurationError) as error:
        raise LabError(f"not the record of a lab: {error}") from error
    strays = {pod.node for pod in pods} - {node.netns for node in lab.nodes}
    if strays:
        raise LabError(f"not the record of a lab: {where}: it has pods, but no node {', '.join(sorted(strays))}")
    return lab


def attached_pod(pod: LabPod, add_output: str) -> LabPod:
    """The pod once its ADD has printed that result.

    Raises:
        LabError: it is not a CNI result.
    """
    try:
        document: object = json.loads(add_output)
        result = parse_result(document, path="result", cni_version=CNI_VERSION)
    except (ValueError, RecursionError, DecodeError) as error:
        raise LabError(f"{pod.name}: the plugin's answer is no result: {error}") from error
    return evolve(pod, add_output=json.dumps(document), result=result)


def _store_mapping(store: LabStore) -> Mapping[str, object]:
    match store:
        case SqliteStore():
            return {"datastore": store.kind.value}
        case OwnServers():
            return {"datastore": store.kind.value, "etcd": store.etcd, "kube-apiserver": store.apiserver}
        case ExternalServers():
            addresses = [{"host": host, "port": port} for host, port in store.addresses]
            return {"datastore": store.kind.value, "variables": dict(store.environment), "places": addresses}
    assert_never(store)


# --- the record's JSON ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Server:
    host: str
    port: int = 0


@frozen(kw_only=True)
class _Store:
    """Where the lab's data is. Each kind of store has its own members."""

    kind: StoreKind
    variables: tuple[tuple[str, str], ...] | None = None
    addresses: tuple[_Server, ...] = ()
    etcd: str = ""
    apiserver: str = ""

    @property
    def parsed(self) -> LabStore:
        if self.variables is not None:
            addresses = tuple((one.host, one.port) for one in self.addresses)
            return ExternalServers(kind=self.kind, environment=self.variables, addresses=addresses)
        if self.kind is StoreKind.SQLITE:
            return SqliteStore()
        return OwnServers(etcd=self.etcd, apiserver=self.apiserver)


@frozen(kw_only=True)
class _Pod:
    name: str
    node: str = NODE_NETNS
    result: Mapping[str, object] | None = None

    def parsed(self, where: str) -> LabPod:
        pod = LabPod(name=self.name, node=self.node)
        if self.result is None:
            return pod
        result = parse_result(self.result, path=f"{where}.result", cni_version=CNI_VERSION)
        return evolve(pod, add_output=json.dumps(self.result), result=result)


@frozen(kw_only=True)
class _Record:
    name: str
    uid: str
    store: _Store
    network: LabNetwork | None = None
    is_complete: bool = False
    pods: tuple[_Pod, ...] = ()


def _read_store_kind(value: object) -> StoreKind:
    name = NONEMPTY_STRING.decode(value)
    try:
        return StoreKind(name)
    except ValueError:
        raise ValueError(f"{name!r} is none that a lab can be on") from None


def _read_variables(value: object) -> tuple[tuple[str, str], ...]:
    texts = STRING_MAP.decode(value)
    return tuple((name, texts[name]) for name in OBJECT.decode(value))  # in the order of the file


def _is_node_count(number: int) -> bool:
    return 1 <= number <= MAX_NODES


def _finish_store(values: dict[str, object], _: object) -> dict[str, object]:
    if "variables" not in values and values["kind"] is not StoreKind.SQLITE and not values.get("etcd"):
        raise Unreadable("is missing or empty", path=".etcd")
    return values


@cache
def _decoder() -> Decoder:
    record = {
        "name": Field("name", NONEMPTY_STRING),
        "uid": Field("uid", NONEMPTY_STRING),
        "store": Field("store", _Store),
        "network": Field("network", LabNetwork),
        "is_complete": Field("isComplete", BOOLEAN),
        "pods": Field("pods", ListOf(_Pod)),
    }
    store = {
        "kind": Field("datastore", Codec(_read_store_kind)),
        "variables": Field("variables", Codec(_read_variables)),
        "addresses": Field("places", ListOf(_Server)),
        "etcd": Field("etcd", STRING),
        "apiserver": Field("kube-apiserver", STRING),
    }
    count = checked(INTEGER, _is_node_count, f"1 to {MAX_NODES}", is_empty_accepted=False)
    network = {
        "node_count": Field("nodes", count),
        "routing": Field("routing", enum_codec(Routing)),
    }
    pod = {
        "name": Field("name", NONEMPTY_STRING),
        "node": Field("node", NONEMPTY_STRING),
        "result": Field("result", OBJECT),
    }
    tables = (
        Table(cls=_Record, fields=record),
        Table(cls=_Store, fields=store, finish=_finish_store),
        Table(cls=_Server, fields={"host": Field("host", NONEMPTY_STRING), "port": Field("port", INTEGER)}),
        Table(cls=_Pod, fields=pod),
        Table(cls=LabNetwork, fields=network),
    )
    return Decoder(cni_error, tables=tables)


# --- folder ----------------------------------------------------------------------------------------------------------


_PREFIX = "netplug-"
_LOCK_TIMEOUT_S = 90.0
_POLL_S = 0.05


@define
class LockedFolder:
    """A folder that this command has locked. Plugins inherit ``descriptor``."""

    folder: LabFolder
    descriptor: int

    def write_lab(self, lab: Lab) -> None:
        """Write the record to the disk, completely or not at all."""
        replace_file(self.folder.record_file, render_lab(lab), OPEN_FILE_MODE)

    def make_subfolders(self, lab: Lab) -> None:
        """Make the folders inside."""
        own = (folder for node in lab.nodes for folder in self.folder.node_files(node.netns).folders)
        for part in (*self.folder.subfolders, *own):
            make_folder(part)

    def clear(self) -> tuple[str, ...]:
        """Remove everything of the lab, the record last; return the names of foreign files, which stay."""
        for part in self.folder.subfolders:
            with suppress(FileNotFoundError):
                shutil.rmtree(part)
        remove_leftovers(self.folder.path)
        remove_file(self.folder.record_file)
        return tuple(sorted(os.listdir(self.folder.path)))

    def remove(self) -> tuple[str, ...]:
        """Clear the folder and remove it; return the names of foreign files, with which it stays."""
        foreign = self.clear()
        try:
            os.rmdir(self.folder.path)
        except OSError as error:
            # EBUSY: a file system is mounted on the empty folder.
            if error.errno not in {errno.ENOTEMPTY, errno.EBUSY}:
                raise
        return foreign


class LockMode(enum.Enum):
    """Whether other commands may use the folder at the same time."""

    EXCLUSIVE = fcntl.LOCK_EX
    SHARED = fcntl.LOCK_SH


def is_present(folder: LabFolder) -> bool:
    """Whether the folder exists and belongs to this user."""
    try:
        found = os.lstat(folder.path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def find_lab(folder: LabFolder) -> Lab | None:
    """The lab in a folder; None if the folder is empty.

    Raises:
        LabError: the folder holds something else.
    """
    try:
        return parse_lab(read_file(folder.record_file).decode(), folder.record_file)
    except FileNotFoundError:
        others = sorted(name for name in os.listdir(folder.path) if not is_unfinished(name))
    if others:
        raise LabError(f"{folder.path} holds no lab but {', '.join(others)}; choose another folder with --dir")
    return None


def default_folder(name: str, environ: Mapping[str, str]) -> LabFolder:
    """The folder of the lab with that name; if there is none, the first folder that can be made."""
    bases = _base_folders(environ)
    folders = [LabFolder(os.path.join(base, f"{_PREFIX}{name}")) for base in bases]
    writable = [folder for folder, base in zip(folders, bases, strict=True) if os.access(base, os.W_OK)]
    present = [folder for folder in folders if is_present(folder)]
    return next(iter((*present, *writable, *folders)))


def find_other_labs(folder: LabFolder, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the labs of this user in the usual folders, without the one of a folder."""
    names = set[str]()
    for base in _base_folders(environ):
        with suppress(OSError):
            names.update(
                entry.name.removeprefix(_PREFIX)
                for entry in os.scandir(base)
                if entry.name.startswith(_PREFIX)
                and entry.path != folder.path
                and is_present(LabFolder(entry.path))
                and os.path.exists(LabFolder(entry.path).record_file)
            )
    return tuple(sorted(names))


def _base_folders(environ: Mapping[str, str]) -> list[str]:
    # Not the folder of the tempfile module: the module writes a file to find it, which a kill could leave there.
    candidates = ("/run", environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR") or "/tmp")  # noqa: S108 - owner checked
    return [os.path.realpath(base) for base in candidates if base]


@contextmanager
def lock_folder(
    folder: LabFolder, mode: LockMode, *, clock: Clock, report: Callable[[str], None]
) -> Iterator[LockedFolder | None]:
    """The folder, locked until the block ends; None if it does not exist.

    Raises:
        LabError: it belongs to another user, or another command keeps the lock too long.
    """
    deadline = Deadline.after(clock, _LOCK_TIMEOUT_S)
    while True:
        descriptor = _open(folder)
        if descriptor is None:
            yield None
            return
        try:
            _lock(descriptor, mode, folder, deadline, report)
            # The previous holder may have removed the folder between opening and locking.
            if _is_same_folder(descriptor, folder.path):
                yield LockedFolder(folder, descriptor)
                return
        finally:
            os.close(descriptor)


@contextmanager
def lock_new_folder(folder: LabFolder, *, clock: Clock, report: Callable[[str], None]) -> Iterator[LockedFolder]:
    """The folder, made if it does not exist, locked until the block ends.

    Raises:
        LabError: it cannot be made, or as for :func:`lock_folder`.
    """
    while True:
        try:
            os.mkdir(folder.path, 0o700)
        except FileExistsError:
            pass  # its owner and its content are checked under its lock
        except OSError as error:
            raise LabError(f"{folder.path} cannot be made: {error.strerror}; choose a folder with --dir") from error
        with lock_folder(folder, LockMode.EXCLUSIVE, clock=clock, report=report) as locked:
            if locked is not None:
                yield locked
                return


def _open(folder: LabFolder) -> int | None:
    try:
        descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{folder.path}: {error.strerror}; choose another folder with --dir") from error
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise LabError(f"{folder.path} belongs to another user; choose another folder with --dir")
    return descriptor


def _lock(
    descriptor: int, mode: LockMode, folder: LabFolder, deadline: Deadline, report: Callable[[str], None]
) -> None:
    has_reported = False
    while True:
        try:
            fcntl.flock(descriptor, mode.value | fcntl.LOCK_NB)
        except BlockingIOError:
            if deadline.has_passed:
                raise LabError(
                    f"{folder.path}: another command has been at work there for {_LOCK_TIMEOUT_S:g} s"
                ) from None
            if not has_reported:
                report(f"another command is at work in {folder.path}: waiting for it to end")
            has_reported = True
            deadline.clock.sleep(_POLL_S)
        else:
            return


def _is_same_folder(descriptor: int, path: str) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    locked = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (locked.st_dev, locked.st_ino)
