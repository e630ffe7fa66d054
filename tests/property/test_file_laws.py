"""Laws of the files of a machine.

Whatever stands at a path that a configuration names, a reader answers: with a value or an error of its own.
Whatever stands beside a file that is written, nothing outside its folder changes.
"""

import os
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from netplug_backends.etcdv3.tls import Credentials
from netplug_backends.host.atomic_files import find_file, read_part
from netplug_backends.host.installing import HostFolders
from netplug_backends.host.log_file import LogFile
from netplug_backends.host.machine import FileLocks, HostMachine, SystemClock
from netplug_backends.host.placing import place_copy, place_file, place_link, remove_file, remove_leftovers
from netplug_backends.hostlocal.ipam import NetworkFiles
from netplug_backends.kubernetes.client.access import AccessSource
from netplug_backends.kubernetes.client.apiclient import tls_context
from netplug_backends.kubernetes.client.credentials import ApiAccess, Pem
from netplug_backends.sqlite.datastore import open_database
from netplug_cli.ctl.documents import read_documents
from netplug_cli.ctl.editor import write_open_file, write_private_file
from netplug_core.addressing import Address
from netplug_core.clock import Deadline, Pace
from netplug_core.errors import NetplugError
from netplug_core.installation.installer import CERTIFICATES
from netplug_core.ipam.hostlocal.reserve import BootRecord, Owner
from netplug_core.log import LogSettings
from netplug_core.settings.model import DatastoreSettings, KubernetesAccess
from tests.harness.example_counts import FILES

ANSWER_S = 60.0  # every answer comes at once; a reader that waits for another program never answers
ADDRESS = Address.parse("10.0.0.2")
HOST_LOCAL_NAMES = ("lock", "10.0.0.2", "last_reserved_ip.0", ".netplug-boot", ".netplug-new-10.0.0.2")
KINDS = ("pipe", "socket", "folder", "endless device", "no device", "dangling link", "loop", "huge", "bytes", "text")


def make(kind: str, path: Path) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(os.path.relpath(path))
        case "folder":
            (path / "inside").mkdir(parents=True)
        case "endless device" | "no device":
            path.symlink_to("/dev/zero" if kind == "endless device" else "/dev/null")
        case "dangling link" | "loop":
            path.symlink_to(path.name if kind == "loop" else "nothing-here")
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
        case "bytes":
            path.write_bytes(b"\xff\x00\xfe")
        case _:
            path.write_text("- text\n")


def pace(seconds: float = 5.0) -> Pace:
    return Pace(clock=SystemClock(), deadline=Deadline.after(SystemClock(), seconds), chance=lambda: 1.0)


# --- reading --------------------------------------------------------------------------------------------------------


def read_access(path: Path) -> None:
    AccessSource(KubernetesAccess(kubeconfig=str(path)), {}).current(deadline=pace().deadline)


def read_api_files(path: Path) -> None:
    for access in (
        ApiAccess(server="https://api", certificate_authority=Pem(path=str(path))),
        ApiAccess(server="https://api", certificate=Pem(path=str(path)), key=Pem(path=str(path))),
    ):
        with suppress(NetplugError):
            tls_context(access)


def read_etcd_files(path: Path) -> None:
    for settings in (
        DatastoreSettings(etcd_ca_cert_file=str(path)),
        DatastoreSettings(etcd_cert_file=str(path), etcd_key_file=str(path)),
    ):
        with suppress(NetplugError):
            Credentials(settings)


def read_conf_folder(path: Path) -> None:
    path.rename(path.with_name("05-x.conflist"))
    HostFolders(lambda _line: None).read_conf_folder(str(path.parent))


def read_certificates(path: Path) -> None:
    path.rename(path.with_name(CERTIFICATES[0]))
    HostFolders(lambda _line: None).read_certificates(str(path.parent))


def host_local(name: str) -> Callable[[Path], object]:
    """All that an ADD does with the folder of a network, where a name in it is what stands at the path."""

    def assign(path: Path) -> None:
        path.rename(path.with_name(name))
        files = NetworkFiles(str(path.parent))
        with files.locked(pace()):
            files.clean()
            files.read(1)
            files.note_last(0, ADDRESS)
            files.note_boot(BootRecord("this", frozenset()))
            files.create(ADDRESS, Owner("c1"))

    return assign


def append_log(path: Path) -> None:
    problems = list[str]()
    log = LogFile(LogSettings(file_path=str(path)), lambda problem, _error: problems.append(problem))
    log.append(b"line\n")
    log.close()


def lock(path: Path) -> None:
    held = FileLocks().try_lock(str(path), 0)
    if held is not None:
        held.release()


READERS: dict[str, Callable[[Path], object]] = {
    "a text of the machine": lambda path: HostMachine().find_text(str(path)),
    "a file": lambda path: find_file(str(path)),
    "a part of a file": lambda path: read_part(str(path), 100, is_end=True),
    "kubeconfig": read_access,
    "files of the API server": read_api_files,
    "files of etcd": read_etcd_files,
    "network configurations": read_conf_folder,
    "certificates": read_certificates,
    **{f"host-local {name}": host_local(name) for name in HOST_LOCAL_NAMES},
    "log": append_log,
    "lock": lock,
    "sqlite": lambda path: open_database(str(path), deadline=pace().deadline).close(),
    "program": lambda path: place_copy(str(path), str(path.with_name("copy")), keeps=False),
    "documents": lambda path: list(read_documents([str(path)])),
}


def answer_of(read: Callable[[Path], object], path: Path) -> str:
    """What a reader ends with; it is left alone if it does not end."""
    answers: Queue[str] = Queue()

    def ask() -> None:
        try:
            read(path)
        except (OSError, NetplugError, sqlite3.Error) as error:
            answers.put(type(error).__name__)
        except Exception as error:  # noqa: BLE001  the law is about it
            answers.put(f"unforeseen: {error!r}")
        else:
            answers.put("value")

    Thread(target=ask, daemon=True).start()
    return answers.get(timeout=ANSWER_S)


@FILES
@given(name=st.sampled_from(sorted(READERS)), kind=st.sampled_from(KINDS), is_linked=st.booleans())
@example(name="kubeconfig", kind="pipe", is_linked=False)
@example(name="network configurations", kind="pipe", is_linked=False)
@example(name="host-local lock", kind="pipe", is_linked=False)
def test_a_reader_answers_whatever_stands_at_its_path(name: str, kind: str, *, is_linked: bool) -> None:
    if name == "documents" and kind == "pipe":
        return  # a person may name one, and it is waited for
    if name == "program" and kind == "huge":
        return  # it is bounded, and the bound is a quarter of a GiB
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        make(kind, Path(folder) / "elsewhere" if is_linked else path)
        if is_linked:
            path.symlink_to("elsewhere")
        answer = answer_of(READERS[name], path)
    event(answer)
    assert not answer.startswith("unforeseen")


# --- writing --------------------------------------------------------------------------------------------------------


def write_host_local(path: Path) -> None:
    files = NetworkFiles(str(path.parent))
    with files.locked(pace()):
        files.clean()
        files.create(Address.parse(path.name), Owner("c1"))
        files.note_last(0, ADDRESS)
        files.note_boot(BootRecord("this", frozenset()))
        files.remove([path.name])


def write_log(path: Path) -> None:
    log = LogFile(LogSettings(file_path=str(path), max_size_mb=1), lambda _problem, _error: None)
    for _line in range(3):
        log.append(b"x" * 600_000)  # the second one rotates
    log.close()


def remove_all(path: Path) -> None:
    remove_file(str(path))
    remove_leftovers(str(path.parent))


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "token": ("netplug-kubeconfig", lambda path: HostMachine().replace_secret(str(path), "token")),
    "status": ("status", lambda path: HostMachine().publish(str(path), "text")),
    "configuration": ("10-netplug.conflist", lambda path: place_file(str(path), b"text", 0o600)),
    "link": ("current", lambda path: place_link(str(path), "nothing")),
    "removal": ("10-netplug.conflist", remove_all),
    "private file": ("report", lambda path: write_private_file(str(path), (b"1",), is_replacing=True)),
    "new file": ("report", lambda path: write_private_file(str(path), (b"1",), is_replacing=False)),
    "host-local": ("10.0.0.2", write_host_local),
    # A link at the path itself is followed: whoever configured it wants the file that it leads to.
    "open file": ("map.svg", lambda path: write_open_file(str(path), "text")),
    "log": ("cni.log", write_log),
}
FOLLOWING = ("open file", "log")


def neighbours_of(name: str) -> list[str]:
    """Names that a writer may use: its own, and those of files that it makes for a moment or beside it."""
    temporary = [f".{name}.new", f"{name}.tmp", f"{name}.new", f".{name}", f"{name}.lock", f".{name}.lock", f"{name}.1"]
    of_host_local = ["lock", "last_reserved_ip.0", ".netplug-boot", f".netplug-new-{name}", ".netplug-new-boot"]
    return [name, *temporary, *of_host_local, f".netplug-{'0' * 32}.new"]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a folder: kind, mode, and content or target."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content: bytes | str = b""
        if stat.S_ISREG(mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(mode):
            content = os.readlink(path)
        found[str(path.relative_to(folder))] = (mode, content)
    return found


@FILES
@given(st.data())
def test_a_writer_changes_nothing_outside_whatever_stands_beside_its_file(data: st.DataObject) -> None:
    writer = data.draw(st.sampled_from(sorted(WRITERS)))
    name, write = WRITERS[writer]
    names = neighbours_of(name)[1 if writer in FOLLOWING else 0 :]
    kinds = st.sampled_from(["file", "folder", "pipe", "nothing", "a pipe", "a folder", "a loop"])
    planted = data.draw(st.dictionaries(st.sampled_from(names), kinds, min_size=1))
    with tempfile.TemporaryDirectory() as root:
        inside, outside = Path(root) / "inside", Path(root) / "outside"
        inside.mkdir()
        (outside / "folder").mkdir(parents=True)
        for victim in (outside / "file", outside / "folder" / "file"):
            victim.write_text("victim")
            victim.chmod(0o640)
        os.mkfifo(outside / "pipe")
        for planted_name, kind in planted.items():
            match kind:
                case "a pipe" | "a folder" | "a loop":
                    make(kind.removeprefix("a "), inside / planted_name)
                case _:  # a link to what is outside, or to nothing there
                    (inside / planted_name).symlink_to(outside / kind)
        before = snapshot(outside)
        answer = answer_of(write, inside / name)
        event(f"{writer}: {answer}")
        assert not answer.startswith("unforeseen")
        assert snapshot(outside) == before


def test_a_link_at_the_former_temporary_name_of_the_token_leads_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("victim")
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d" / ".netplug-kubeconfig.new").symlink_to(victim)
    HostMachine().replace_secret(str(tmp_path / "net.d" / "netplug-kubeconfig"), "token")
    assert victim.read_text() == "victim"
    assert (tmp_path / "net.d" / "netplug-kubeconfig").read_text() == "token"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_made(tmp_path: Path, kind: str) -> None:
    make(kind, tmp_path / "file")
    assert os.path.lexists(tmp_path / "file")
