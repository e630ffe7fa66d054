"""One module opens and writes files, ``netplug_backends.host.atomic_files``; every other call has its reason here."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
THE_MODULE = "netplug_backends/host/atomic_files.py"

# What opens a file, or makes or renames one. What removes one or lists a folder follows no link and waits for nothing.
FUNCTIONS = {
    "builtins": {"open"},
    "io": {"open", "open_code", "FileIO"},
    "os": {"open", "fdopen", "rename", "renames", "replace", "link", "symlink", "mknod", "mkfifo", "truncate"},
    "posix": {"open", "rename", "replace", "link", "symlink", "mknod", "mkfifo", "truncate"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "make_archive", "unpack_archive"},
    "tempfile": {"mkstemp", "mkdtemp", "TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory"},
    "tarfile": {"open"},
    "gzip": {"open"},
    "sqlite3": {"connect"},
    "handlers": {"RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler"},
    "logging": {"FileHandler"},
}  # fmt: skip
# Of a pathlib.Path, or of a library that opens a path itself.
METHODS = {
    "read_text", "read_bytes", "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "load_cert_chain",
    "load_verify_locations", "create_default_context",
}  # fmt: skip

NAMES = {"open", "write_to_textfile", *FUNCTIONS["handlers"]}

REASONS = {
    ("netplug_backends/etcdv3/tls.py", "load_cert_chain"): "a memory file with what was read",
    ("netplug_backends/etcdv3/tls.py", "load_verify_locations"): "a text, not a path",
    ("netplug_backends/host/executables.py", "os.rename"): "a folder that is whole, inside one of ours",
    ("netplug_backends/host/executables.py", "tempfile.TemporaryDirectory"): "a new folder for a compiler",
    ("netplug_backends/host/log_file.py", "RotatingFileHandler"): "it renames the log, and opens nothing (delay)",
    ("netplug_backends/host/placing.py", "os.rename"): "a folder that is being removed",
    ("netplug_backends/host/probes.py", "create_default_context"): "the authorities of the system",
    ("netplug_backends/host/placing.py", "os.open"): "a namespace of the kernel, below the host's /proc",
    ("netplug_backends/host/release_records.py", "os.rename"): "a whole record, from one folder of ours to another",
    ("netplug_backends/kubernetes/client/apiclient.py", "create_default_context"): "a memory file with what was read",
    ("netplug_backends/kubernetes/client/apiclient.py", "load_cert_chain"): "memory files with what was read",
    ("netplug_backends/linux/netns.py", "os.open"): "a namespace, which is no regular file; it never waits",
    ("netplug_backends/linux/attachment.py", "os.open"): "settings of the kernel, below /proc/sys",
    ("netplug_backends/sqlite/datastore.py", "os.mknod"): "makes a file and opens none: closing would drop locks",
    ("netplug_backends/sqlite/datastore.py", "sqlite3.connect"): "what is no regular file is refused before",
    ("netplug_cli/cni/method_cache.py", "open"): "a file of the installation, as Python reads its own bytecode",
    ("netplug_cli/cni/client.py", "posix.open"): "a namespace; the client imports nothing of ours, and never waits",
    ("netplug_cli/ctl/yaml_documents.py", "read_text"): "a file of the package",
    ("netplug_cli/ctl/commands/support.py", "tarfile.open"): "an archive in memory",
    ("netplug_cli/lab/folder.py", "os.open"): "a folder, whose owner is judged on the descriptor",
    ("netplug_cli/lab/pod_program.py", "open"): "the file of a pod's last words; the pod has nothing of ours",
    ("netplug_cli/lab/report.py", "os.open"): "/dev/null",
    ("netplug_cli/ctl/main.py", "os.open"): "the null device, in place of a standard output that is closed",
    (
        "netplug_cli/wiring/node_network.py",
        "os.open",
    ): "a folder of the pod, which stays reachable from the host's root",
}


def calls_of(source: str) -> Iterator[str]:
    """The calls in a source that open, make or rename a file, by what is called."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in NAMES:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if name in FUNCTIONS.get(
                module, ()
            ):
                yield f"{module}.{name}"
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
                yield name
            case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str()), *_]):
                yield "Path.open"
            case ast.ImportFrom(module=module, names=names) if module in FUNCTIONS:
                yield from (f"from {module} import {one.name}" for one in names if one.name in FUNCTIONS[module])
            case _:
                pass


def test_every_other_call_that_opens_or_makes_a_file_has_a_reason() -> None:
    found = Counter[tuple[str, str]]()
    for package in ("netplug_backends", "netplug_cli"):
        for path in (ROOT / package).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name != THE_MODULE:
                found.update((name, call) for call in calls_of(path.read_text()))
    assert set(found) - set(REASONS) == set()
    assert set(REASONS) - set(found) == set()


def test_the_calls_are_found() -> None:
    source = (
        "import os, tempfile\nfrom os import rename\nopen('a')\nos.open('a', 0)\nPath('a').read_text()\n"
        "path.open('w')\nNetlinkSocket.open()\ntempfile.mkstemp()\nlogging.handlers.RotatingFileHandler\n"
    )
    assert sorted(calls_of(source)) == [
        "Path.open", "from os import rename", "open", "os.open", "read_text", "tempfile.mkstemp"
    ]  # fmt: skip
