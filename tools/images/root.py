"""The files of the image `node`: the root directory of its containers, in a folder.

There is one interpreter in it, that of the bundle. What else is executed in a container finds the loader and the
libraries at the usual paths, which are links into the bundle. There is no shell and no package manager.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from netplug_core.errors import Unavailable
from tools.bundle import Interpreter, build_bundle, compile_packages, copy_packages, copy_program, find_libraries
from tools.images.debian import DebianPackage

__all__ = [
    "ACCOUNT", "BUNDLE", "DEBIAN_PACKAGES", "FURTHER_DISTRIBUTIONS", "HELPERS", "HELPERS_FOLDER", "PROGRAMS",
    "Machine", "find_machine", "make_root", "split_layers",
]  # fmt: skip

DEBIAN_PACKAGES = (
    "base-files", "ca-certificates", "containernetworking-plugins",
    "libc6", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib",
    "gcc-12-base", "libbz2-1.0", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libsqlite3-0",
    "libssl3", "libstdc++6", "libuuid1", "zlib1g",
    "libnftables1", "libgmp10", "libjansson4", "libmnl0", "libnftnl11", "libxtables12",
    "bird2", "libcom-err2", "libgcrypt20", "libgpg-error0", "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1",
    "libkrb5-3", "libkrb5support0", "libssh-gcrypt-4",
)  # fmt: skip
"""Release, certificates and helper plugins; the interpreter; the libraries that it and the packages are linked with;
what the node process programs the packet filter with; the BGP daemon that it starts.
"""

_DAEMON = "usr/sbin/bird"
"""What the node process starts to speak BGP."""

_LOADED_BY_NAME = "libnftables.so.1"
"""A library that no program is linked with: the node process loads it."""

FURTHER_DISTRIBUTIONS = ("click", "rich", "prometheus_client")
"""What the programs of containers need beside the distributions of the bundle."""

ACCOUNT = "65532:65532"
"""User and group of a container that does not ask for others."""

HELPERS = ("bandwidth", "host-local", "loopback", "portmap", "tuning")
"""The plugins of others that `netplug-install` copies to a host."""

_PYTHON_VERSION = (3, 11)
_PACKAGES = "opt/netplug/packages"
BUNDLE = "opt/netplug/bundle"
"""What `netplug-install` copies to a host."""

HELPERS_FOLDER = "opt/cni/bin"
"""The helper plugins, which it copies, too."""

PROGRAMS = {
    "netplug-node": "netplug_cli.wiring.node",
    "netplug-install": "netplug_cli.wiring.install",
    "netplugctl": "netplug_cli.wiring.ctl",
    "netplug-operator": "netplug_cli.wiring.operator",
    "netplug-controllers": "netplug_cli.wiring.controllers",
}
"""What is executed in a container, by name, and the module whose `main` that is."""

_PROGRAM = """#!/usr/bin/python3 -IS
import sys
sys.path += ["/opt/netplug/packages", "/opt/netplug/bundle/packages"]
from {module} import main
main()
"""
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/nologin\nnetplug:x:65532:65532:netplug:/:/nologin\n",
    "etc/group": "root:x:0:\nnetplug:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_LINKS = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "etc/os-release": "../usr/lib/os-release",
    "usr/bin/python3": f"/{BUNDLE}/python/bin/python3",
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    "usr/lib/ssl/certs": "/etc/ssl/certs",
}
_DEBIAN, _PYTHON, _OWN = "debian", "python", "own"
_FOLDERS = ("dev", "host", "proc", "run", "sys", "usr/lib64", "var/tmp")
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


@frozen(kw_only=True)
class Machine:
    """An architecture: its name in images and in Debian, and where Debian has its loader and its libraries."""

    name: str
    loader: str
    libraries: str


_MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(name="amd64", loader="lib64/ld-linux-x86-64.so.2", libraries="x86_64-linux-gnu"),
    "aarch64": Machine(name="arm64", loader="lib/ld-linux-aarch64.so.1", libraries="aarch64-linux-gnu"),
}


def find_machine(name: str = platform.machine()) -> Machine:
    """The architecture with this name of the kernel.

    Raises:
        Unavailable: no image is made for it.
    """
    if name not in _MACHINES:
        raise Unavailable("an image", f"one is made for {' and '.join(_MACHINES)}, and this machine is {name}")
    return _MACHINES[name]


def make_root(root: Path, debian: Path, packages: Sequence[DebianPackage], license_file: Path) -> None:
    """Make the files of the image below ``root``, of the packages that are unpacked in ``debian``."""
    machine = find_machine()
    if sys.version_info[:2] != _PYTHON_VERSION:
        raise Unavailable(
            "an image", f"it is made by the Python of Debian 12, 3.11; this is {platform.python_version()}"
        )
    build_bundle(root / BUNDLE, _interpreter(debian, machine))
    further = root / _PACKAGES
    copy_packages(further, FURTHER_DISTRIBUTIONS, frozenset({"testing", "static"}))
    compile_packages(further, root / BUNDLE, [further, root / BUNDLE / "packages"], "packages")
    _make_base(root, machine)
    _copy_of_debian(root, debian, packages)
    _copy_loaded_library(root, debian, machine)
    _copy_daemon(root, debian, machine)
    _write(root / "usr/share/doc/netplug/copyright", license_file.read_text())
    for name, module in PROGRAMS.items():
        _write(root / "usr/bin" / name, _PROGRAM.format(module=module))
        (root / "usr/bin" / name).chmod(0o755)


def split_layers(root: Path) -> tuple[list[str], list[str], list[str]]:
    """The paths of Debian, of other Python packages, and of netplug: what changes seldom comes first."""
    layers: dict[str, list[str]] = {_DEBIAN: [], _PYTHON: [], _OWN: []}
    for file in root.rglob("*"):
        if file.is_symlink() or not file.is_dir() or not any(file.iterdir()):
            path = str(file.relative_to(root))
            layers[_layer_of(path)].append(path)
    return layers[_DEBIAN], layers[_PYTHON], layers[_OWN]


def _layer_of(path: str) -> str:
    """The manifest of the bundle names every file of it, so it changes with netplug."""
    if path.startswith(tuple(f"{BUNDLE}/{name}" for name in ("python/", "libraries/", "loader"))):
        return _DEBIAN
    _, is_package, name = path.partition("/packages/")
    if is_package:
        return _OWN if name.startswith("netplug_") else _PYTHON
    return _OWN if "netplug" in path else _DEBIAN


def _interpreter(debian: Path, machine: Machine) -> Interpreter:
    libraries = [str(debian / folder / machine.libraries) for folder in ("lib", "usr/lib")]
    loader = str(debian / libraries[0] / Path(machine.loader).name)
    lister = (loader, "--inhibit-cache", "--library-path", ":".join(libraries), "--list")
    return Interpreter(debian / "usr/bin/python3.11", debian / "usr/lib/python3.11", lister)


def _make_base(root: Path, machine: Machine) -> None:
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for path, text in _FILES.items():
        _write(root / path, text)
    loader, libraries = f"usr/{machine.loader}", f"usr/lib/{machine.libraries}"
    links = {**_LINKS, loader: f"/{BUNDLE}/loader", libraries: f"/{BUNDLE}/libraries"}
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)


def _copy_of_debian(root: Path, debian: Path, packages: Sequence[DebianPackage]) -> None:
    for path in ("usr/lib/os-release", *(f"usr/lib/cni/{name}" for name in HELPERS)):
        target = root / path.replace("usr/lib/cni", HELPERS_FOLDER)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(debian / path, target)
    certificates = sorted((debian / "usr/share/ca-certificates").rglob("*.crt"))
    _write(root / _CERTIFICATES, "".join(file.read_text() for file in certificates))
    shutil.copytree(debian / "usr/share/common-licenses", root / "usr/share/common-licenses", symlinks=True)
    for package in packages:
        # Scanners of images read this folder where there is no dpkg.
        _write(root / "var/lib/dpkg/status.d" / package.name, package.control)
        _write(root / "usr/share/doc" / package.name / "copyright", package.copyright_file(debian).read_text())


def _copy_loaded_library(root: Path, debian: Path, machine: Machine) -> None:
    """Put the library, and those that it is linked with and the bundle has not, where the loader looks by itself."""
    library = debian / "usr/lib" / machine.libraries / _LOADED_BY_NAME
    _copy_libraries(root, {**find_libraries(library, _interpreter(debian, machine)), _LOADED_BY_NAME: library}, machine)


def _copy_daemon(root: Path, debian: Path, machine: Machine) -> None:
    """Put BIRD where the node process looks for it. Its package would start it on a machine that it is installed on."""
    _copy_libraries(root, find_libraries(debian / _DAEMON, _interpreter(debian, machine)), machine)
    (root / _DAEMON).parent.mkdir()
    copy_program(debian / _DAEMON, root / _DAEMON)


def _copy_libraries(root: Path, linked: Mapping[str, str | Path], machine: Machine) -> None:
    of_bundle = {file.name for file in (root / BUNDLE / "libraries").iterdir()}
    loader = Path(machine.loader).name
    for name, path in linked.items():
        if name not in of_bundle and name != loader:
            copy_program(Path(path), root / "usr/lib" / name)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
