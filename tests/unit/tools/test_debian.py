"""Debian packages of an image: what apt names is downloaded once, verified and unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from attrs import frozen

from netplug_core.errors import Unavailable
from tools.images.debian import download_packages, find_installed, parse_uris, read_package, unpack_packages

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg-deb")

CONTROL = "Package: libx1\nVersion: 1:2.0-1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: x\n"
COPYRIGHT = "Format: https://www.debian.org/doc/\n\nFiles: *\nLicense: MIT\n\nFiles: a\nLicense: GPL-2+\n text\n"
FILE = "libx1_1%3a2.0-1_all.deb"
# Answers as apt-get does, and counts downloads.
APT = """#!/bin/sh
case "$*" in
*unknown*) echo "E: Unable to locate package unknown" >&2; exit 100 ;;
*--print-uris*) echo "'http://deb.example/{file}' {file} 700 SHA256:{digest}" ;;
*) cp {package} {file}; echo >> {folder}/downloads ;;
esac
"""


@frozen
class Archive:
    """A package, and the folder of an apt that has it and no other."""

    folder: Path
    digest: str

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def downloads(self) -> int:
        counted = self.folder / "downloads"
        return len(counted.read_text().splitlines()) if counted.exists() else 0


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    tree, package = tmp_path / "tree", tmp_path / "libx1.deb"
    for path, text in {"DEBIAN/control": CONTROL, "usr/share/doc/libx1/copyright": COPYRIGHT, "usr/lib/x": "x"}.items():
        (tree / path).parent.mkdir(parents=True)
        (tree / path).write_text(text)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, package], check=True, capture_output=True)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(APT.format(file=FILE, digest=digest, package=package, folder=tmp_path))
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt.parent}:{os.environ['PATH']}")
    return Archive(tmp_path, digest)


def test_a_package_is_what_its_control_file_says(archive: Archive) -> None:
    (package,) = download_packages(["libx1"], archive.cache)
    assert (package.name, package.version, package.architecture) == ("libx1", "1:2.0-1", "all")
    assert (package.digest, package.file) == (archive.digest, archive.cache / FILE)
    assert package.control == CONTROL


def test_it_is_downloaded_once(archive: Archive) -> None:
    assert download_packages(["libx1"], archive.cache) == download_packages(["libx1"], archive.cache)
    assert archive.downloads == 1


def test_a_damaged_download_is_replaced(archive: Archive) -> None:
    archive.cache.mkdir()
    (archive.cache / FILE).write_bytes(b"half")
    (package,) = download_packages(["libx1"], archive.cache)
    assert (package.digest, archive.downloads) == (archive.digest, 1)


def test_a_file_with_another_digest_is_refused(archive: Archive) -> None:
    file = archive.folder / "libx1.deb"
    with pytest.raises(Unavailable, match=f"{file}.*the SHA-256 {'0' * 64} is expected; remove the file"):
        read_package(file, "0" * 64)


def test_what_apt_says_is_repeated_with_a_next_step(archive: Archive) -> None:
    with pytest.raises(Unavailable, match=r"Unable to locate package unknown; it needs Debian 12, .*apt-get update"):
        download_packages(["unknown"], archive.cache)


def test_a_package_without_a_file_is_named(archive: Archive) -> None:
    with pytest.raises(Unavailable, match="it names no file for libx2, libx3"):
        download_packages(["libx1", "libx3", "libx2"], archive.cache)
    assert archive.downloads == 0


def test_without_apt_it_says_so(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"apt-get.*No such file or directory"):
        download_packages(["libx1"], archive.cache)


def test_unpacked_files_and_licences(archive: Archive) -> None:
    packages, root = download_packages(["libx1"], archive.cache), archive.folder / "root"
    unpack_packages(packages, root)
    assert (root / "usr/lib/x").read_text() == "x"
    assert packages[0].find_licenses(root) == ("GPL-2+", "MIT")
    packages[0].copyright_file(root).write_text("This is free software.\nLicense: see below\n")
    assert packages[0].find_licenses(root) == ()


def test_only_lines_with_a_file_and_a_digest_are_read() -> None:
    lines = f"W: note\n'http://x/a' a_1_all.deb 3 SHA256:{'a' * 64}\n'http://x/b' b_1_all.deb 3 MD5Sum:00\n"
    assert parse_uris(lines) == {"a_1_all.deb": "a" * 64}


def test_a_package_of_this_host_has_a_version() -> None:
    found = find_installed("dpkg")
    assert found is not None
    assert found[0][0].isdigit()
    assert find_installed("no-such-package") is None
