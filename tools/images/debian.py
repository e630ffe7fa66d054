"""Debian packages for an image: downloaded with apt by their names, and unpacked into a folder.

apt verifies them by the keys of this host, and they are those of the release that this host's apt is set up for. A
downloaded package is kept, and used again for as long as apt names the same file with the same SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from netplug_core.errors import Unavailable

__all__ = ["DebianPackage", "download_packages", "find_installed", "parse_uris", "read_package", "unpack_packages"]

_APT = ("apt-get", "-qq", "-o", "APT::Sandbox::User=root")
_URI = re.compile(r"^'[^']+' (\S+\.deb) \d+ SHA256:([0-9a-f]{64})$", re.MULTILINE)
_FIELD = re.compile(r"^(Package|Version|Architecture): (.+)$", re.MULTILINE)
_LICENSE = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
_DOC = "usr/share/doc"


@frozen(kw_only=True)
class DebianPackage:
    """A package: what its control file says, the whole of that file, and the package's own file with its SHA-256."""

    name: str
    version: str
    architecture: str
    control: str
    file: Path
    digest: str

    def find_licenses(self, root: Path) -> tuple[str, ...]:
        """The licences that its copyright file names, in Debian's short names; none if the file is plain text."""
        text = self.copyright_file(root).read_text(encoding="utf-8")
        if not text.startswith("Format:"):
            return ()
        return tuple(sorted(set(map(str.strip, _LICENSE.findall(text)))))

    def copyright_file(self, root: Path) -> Path:
        """Its copyright file in a folder into which packages were unpacked. It may be one of another package."""
        return root / _DOC / self.name / "copyright"


def download_packages(names: Sequence[str], cache: Path) -> tuple[DebianPackage, ...]:
    """The packages of some names, in this order, in files of the cache.

    Raises:
        Unavailable: apt has no such package, or cannot download it.
    """
    cache.mkdir(parents=True, exist_ok=True)
    listed = parse_uris(_apt("download", "--print-uris", *names))
    wanted = {name: entry for name in names for entry in listed.items() if entry[0].startswith(f"{name}_")}
    if missing := sorted(set(names) - set(wanted)):
        raise Unavailable("apt", f"it names no file for {', '.join(missing)}")
    for name, (file, digest) in wanted.items():
        if _digest(cache / file) != digest:
            _apt("download", name, folder=cache)
    return tuple(read_package(cache / file, digest) for file, digest in wanted.values())


def parse_uris(printed: str) -> dict[str, str]:
    """The names of the files that ``apt-get --print-uris`` prints, with their SHA-256."""
    return dict(_URI.findall(printed))


def read_package(file: Path, digest: str) -> DebianPackage:
    """The package in a file, which must have this SHA-256.

    Raises:
        Unavailable: it has another one.
    """
    if _digest(file) != digest:
        raise Unavailable(str(file), f"the SHA-256 {digest} is expected; remove the file, and run this again")
    control = _run(["dpkg-deb", "--field", str(file)])
    fields = dict(_FIELD.findall(control))
    return DebianPackage(
        name=fields["Package"],
        version=fields["Version"],
        architecture=fields["Architecture"],
        control=control,
        file=file,
        digest=digest,
    )


def find_installed(name: str) -> tuple[str, str] | None:
    """Version and architecture of a package of this host; None if it is not installed."""
    try:
        version, architecture = _run(["dpkg-query", "--show", "--showformat=${Version} ${Architecture}", name]).split()
    except (Unavailable, ValueError):
        return None
    return version, architecture


def unpack_packages(packages: Sequence[DebianPackage], root: Path) -> None:
    """Unpack the files of packages into a folder. Their maintainer scripts are not run."""
    root.mkdir(parents=True)
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package.file), str(root)])


def _apt(*arguments: str, folder: Path | None = None) -> str:
    return _run([*_APT, *arguments], folder, "; it needs Debian 12, and perhaps: apt-get update")


def _run(command: Sequence[str], folder: Path | None = None, hint: str = "") -> str:
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(command[0], f"{error.strerror}{hint}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Unavailable(command[0], f"{lines[0]}{hint}")
    return done.stdout


def _digest(file: Path) -> str:
    """The SHA-256 of a file; empty if there is none."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
