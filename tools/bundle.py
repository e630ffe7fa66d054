"""`python -m tools.bundle FOLDER` makes a bundle there: what a host without Python needs to run the standalone program.

It is made of what runs this command: the interpreter with the standard library, the shared libraries that both need
and the loader of those, and the packages of the plugin, all byte-compiled. `launch` and `client` are built with the C
compiler of this host. Tests, `netplugctl` and the official Kubernetes client, which only old forms of credentials
need, are left out. `netplug-install` copies a bundle to a host. `python -m tools.images` makes one of another
interpreter. Two bundles that are made of the same files are identical.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

import netplug_cli
from netplug_backends.host.executables import build_client
from netplug_core import __version__
from netplug_core.installation.bundle import CLIENT, LAUNCHER, LOCK, MANIFEST, Bundle, BundleFile, render_bundle

__all__ = [
    "DISTRIBUTIONS", "SKIPPED_OF_OURS", "Interpreter", "build_bundle", "compile_packages", "copy_packages",
    "with_requirements",
]  # fmt: skip

DISTRIBUTIONS = ("attrs", "cattrs", "pluggy", "pyroute2", "etcd3", "grpcio", "protobuf", "dnspython", "PyYAML")
"""What the packages of a bundle are taken from, with what these require."""

SKIPPED_OF_OURS = frozenset({"testing", "ctl", "lab", "manifests", "static"})
"""The rooms of our own packages that no bundle has."""

_OURS = ("netplug_core", "netplug_backends", "netplug_cli")
# Of the standard library: tests, and what no server process uses.
_SKIPPED = frozenset(
    {
        "__pycache__", "config", "ensurepip", "idlelib", "idle_test", "lib2to3", "pydoc_data", "site-packages",
        "dist-packages", "test", "tests", "tkinter", "turtledemo", "distutils", "venv",
        "sitecustomize.py",
    }
)  # fmt: skip
_SKIPPED_EXTENSIONS = re.compile(r"_(tkinter|curses|curses_panel|test|xxtest|ctypes_test|dbm|gdbm)|readline|nis|xx")
_LINKED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_LOADER = re.compile(r"(^|/)ld-[^/]*\.so[^/]*$|(^|/)ld-musl[^/]*$")
_START = """import gc, os, sys
gc.disable()
sys.argv.pop(0)
sys.path.append(os.path.join(os.path.dirname(__file__), "packages"))
from netplug_cli.wiring.cni import main
os._exit(main())
"""
_COMPILE = """import compileall, py_compile, sys
folder, shown = sys.argv[1:]
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
compileall.compile_dir(
    folder, quiet=2, ddir=None, stripdir=folder, prependdir=shown, invalidation_mode=mode, maxlevels=30
)
"""
_CACHE = """import sys
sys.path += sys.argv[1:]
from netplug_cli.cni.method_cache import write_cache
write_cache()
"""
# As tracebacks show it: the bundle runs from anywhere.
_SHOWN_FOLDER = "bundle"


@frozen
class Interpreter:
    """A Python of the same version as the one that runs this: its program and the folder of its standard library.

    ``lister`` is the command that prints which shared libraries the program after it is linked with, as ldd does.
    """

    program: Path
    library: Path
    lister: tuple[str, ...] = ("ldd",)


def build_bundle(folder: Path, interpreter: Interpreter | None = None) -> Bundle:
    """Make a bundle in a folder that does not exist, of this interpreter if no other is given."""
    python = interpreter or Interpreter(Path(os.path.realpath(sys.executable)), Path(sysconfig.get_path("stdlib")))
    folder.mkdir(parents=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = folder / "python" / "lib" / version
    _copy_tree(python.library, library, _SKIPPED)
    for file in (library / "lib-dynload").iterdir():
        file.unlink() if _SKIPPED_EXTENSIONS.match(file.name) else _strip(file)
    (folder / "python" / "bin").mkdir()
    copy_program(python.program, folder / "python" / "bin" / "python3")
    copy_packages(folder / "packages", DISTRIBUTIONS, SKIPPED_OF_OURS)
    _copy_libraries(folder, python)
    (folder / "start.py").write_text(_START)
    (folder / LOCK).touch()
    source = Path(netplug_cli.__file__).parent / "cni" / "static"
    build_client(source, folder / CLIENT)
    build_client(source, folder / LAUNCHER, "launch.c")
    compile_packages(folder, folder, [folder / "packages"], _SHOWN_FOLDER)
    bundle = Bundle(version=__version__, machine=platform.machine(), files=tuple(_describe(folder)))
    (folder / MANIFEST).write_bytes(render_bundle(bundle))
    return bundle


def _copy_tree(source: Path, target: Path, skipped: frozenset[str]) -> None:
    def ignore(_folder: str, names: list[str]) -> set[str]:
        return {
            name for name in names if name in skipped or name.startswith("config-") or name.endswith((".a", ".pyc"))
        }

    shutil.copytree(source, target, ignore=ignore)


def copy_packages(target: Path, distributions: Iterable[str], skipped: frozenset[str]) -> None:
    """Copy our packages without some of their rooms, and those of distributions with what they require."""
    for package in _OURS:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            sys.exit(f"tools.bundle: {package} is not installed here")
        _copy_tree(Path(spec.origin).parent, target / package, skipped | {"__pycache__"})
    for distribution in with_requirements(distributions):
        for file in distribution.files or ():
            source = Path(str(file.locate()))
            is_skipped = ".." in file.parts or {"tests", "test", "__pycache__"} & set(file.parts)
            if not is_skipped and source.suffix not in (".pyi", ".h", ".pxd", ".pyx"):
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / file)


def with_requirements(names: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """Distributions, and what they require, each once."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop().lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or another Python
        yield distribution
        required = [text for text in distribution.requires or () if "extra ==" not in text]
        waiting += [re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0] for text in required]


def _copy_libraries(folder: Path, python: Interpreter) -> None:
    """The shared libraries of every program and extension, and the loader that the interpreter names."""
    target = folder / "libraries"
    target.mkdir()
    found: dict[str, str] = {}
    programs = [folder / "python" / "bin" / "python3", *folder.rglob("*.so"), *folder.rglob("*.so.*")]
    for program in [python.program, *programs]:
        found |= find_libraries(program, python)
    loaders = [name for name in found if _LOADER.search(name)]
    if len(loaders) != 1:
        sys.exit(f"tools.bundle: one loader of shared libraries is expected, not {loaders}")
    for name, path in found.items():
        copy_program(Path(path), folder / "loader" if name in loaders else target / name)


def find_libraries(program: Path, python: Interpreter) -> dict[str, str]:
    """The shared libraries that a program or a library is linked with: their paths by their names."""
    listed = subprocess.run([*python.lister, program], capture_output=True, text=True, check=False).stdout
    if missing := _MISSING.findall(listed):
        sys.exit(f"tools.bundle: {program} is linked with {', '.join(missing)}, and there is no such library")
    return {os.path.basename(path): path for path in _LINKED.findall(listed)}


def copy_program(source: Path, target: Path) -> None:
    """Copy a program or a library, without debugging symbols."""
    shutil.copy(os.path.realpath(source), target)
    target.chmod(0o755)
    _strip(target)


def _strip(target: Path) -> None:
    """Leave out debugging symbols, if this host has ``strip``."""
    if shutil.which("strip") is not None:
        subprocess.run(["strip", "--strip-unneeded", target], capture_output=True, check=False)


def compile_packages(folder: Path, bundle: Path, paths: Sequence[Path], shown: str) -> None:
    """Byte-compile every module below a folder with the interpreter of a bundle. Tracebacks show ``shown`` for it.

    ``paths`` are the folders of packages that ours are imported from, to compile the methods of their classes.
    The bytecode is not compared with its source, whose time changes with a copy. The order of sets and the numbers in
    methods that attrs writes follow the hash seed, so that is fixed.
    """
    loading = [str(bundle / "loader"), "--inhibit-cache", "--library-path", str(bundle / "libraries")]
    python = [*loading, str(bundle / "python" / "bin" / "python3"), "-sSPB", "-c"]
    for command in ([_COMPILE, str(folder), shown], [_CACHE, *map(str, paths)]):
        subprocess.run([*python, *command], env={"PYTHONHASHSEED": "0"}, check=True)


def _describe(folder: Path) -> Iterator[BundleFile]:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            is_executable = os.access(file, os.X_OK) and file.suffix != ".py"
            file.chmod(0o755 if is_executable else 0o644)
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            yield BundleFile(str(file.relative_to(folder)), digest, is_executable)


def main() -> None:
    """Make the bundle that the command line asks for, and print how large it is."""
    parser = argparse.ArgumentParser(prog="python -m tools.bundle", description="Make a bundle for netplug-install.")
    parser.add_argument("folder", type=Path, help="a folder that does not exist")
    folder: Path = parser.parse_args().folder
    bundle = build_bundle(folder.absolute())
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{bundle.name}: {len(bundle.files)} files, {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
