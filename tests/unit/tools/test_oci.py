"""The archive of an image: what the OCI specification asks for, and the same bytes for the same content."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.images.oci import Image, Layer, write_archive

CREATED = 1_700_000_000
IMAGE = Image(
    reference="docker.io/netplug/node:v1.2.3",
    architecture="amd64",
    created=CREATED,
    user="65532:65532",
    environ={"PATH": "/usr/bin", "LANG": "C.UTF-8"},
    command=("netplugctl", "--help"),
    labels={"org.opencontainers.image.version": "1.2.3"},
)
LAYERS = [Layer(["usr/bin/netplug-node", "usr/bin/node", "tmp"], "programs"), Layer(["etc/passwd"], "accounts")]


def make_root(root: Path, *, umask: int = 0o022, time: int = 1_600_000_000) -> Path:
    """The files of an image, with permissions and times as a build leaves them."""
    before = os.umask(umask)
    try:
        for path in ("usr/bin", "etc", "tmp"):
            (root / path).mkdir(parents=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/nologin\n")
        (root / "usr/bin/netplug-node").write_text("#!/usr/bin/python3\n")
        (root / "usr/bin/netplug-node").chmod(0o777 & ~umask)
        (root / "usr/bin/node").symlink_to("netplug-node")
        (root / "tmp").chmod(0o1777)
    finally:
        os.umask(before)
    for made in root.rglob("*"):
        os.utime(made, (time, time), follow_symlinks=False)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "root")


def read(archive: Path) -> dict[str, bytes]:
    """The files of an archive."""
    with tarfile.open(archive) as tar:
        return {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name)) is not None}


class Read:
    """An archive, followed as a runtime follows it: from the index to the layers."""

    def __init__(self, archive: Path) -> None:
        self.files = read(archive)
        self.index = json.loads(self.files["index.json"])
        (self.entry,) = self.index["manifests"]
        self.manifest = json.loads(self.blob(self.entry))
        self.config = json.loads(self.blob(self.manifest["config"]))
        self.layers = [gzip.decompress(self.blob(layer)) for layer in self.manifest["layers"]]

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        """The content that a descriptor leads to; its digest and size are right."""
        algorithm, _, digest = descriptor["digest"].partition(":")
        content = self.files[f"blobs/{algorithm}/{digest}"]
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (digest, descriptor["size"])
        return content

    def entries(self, number: int) -> list[tarfile.TarInfo]:
        """The entries of a layer, in their order."""
        with tarfile.open(fileobj=io.BytesIO(self.layers[number])) as tar:
            return tar.getmembers()


@pytest.fixture
def archive(tmp_path: Path, root: Path) -> Read:
    write_archive(tmp_path / "image.tar", root, LAYERS, IMAGE)
    return Read(tmp_path / "image.tar")


def test_the_manifest_that_is_described_is_the_one_of_the_index(tmp_path: Path, root: Path) -> None:
    described = write_archive(tmp_path / "image.tar", root, LAYERS, IMAGE)
    found = Read(tmp_path / "image.tar")
    assert described.document == {name: found.entry[name] for name in ("mediaType", "digest", "size")}
    assert described.path in found.files


def test_the_layout_names_image_and_platform(archive: Read) -> None:
    assert json.loads(archive.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert archive.entry["platform"] == {"architecture": "amd64", "os": "linux"}
    assert archive.entry["annotations"]["io.containerd.image.name"] == IMAGE.reference
    assert archive.entry["annotations"]["org.opencontainers.image.ref.name"] == IMAGE.reference


def test_the_config_says_what_runs_and_who_it_is(archive: Read) -> None:
    assert archive.config["config"] == {
        "User": "65532:65532",
        "Env": ["LANG=C.UTF-8", "PATH=/usr/bin"],
        "Cmd": ["netplugctl", "--help"],
        "WorkingDir": "/",
        "Labels": {"org.opencontainers.image.version": "1.2.3"},
    }
    assert archive.config["created"] == "2023-11-14T22:13:20Z"
    assert archive.manifest["annotations"] == IMAGE.labels


def test_the_config_has_the_digest_of_each_layer_and_its_line_of_history(archive: Read) -> None:
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in archive.layers]
    assert archive.config["rootfs"] == {"type": "layers", "diff_ids": digests}
    assert [line["comment"] for line in archive.config["history"]] == ["programs", "accounts"]


def test_docker_finds_config_and_layers(archive: Read) -> None:
    (found,) = json.loads(archive.files["manifest.json"])
    assert found["RepoTags"] == [IMAGE.reference]
    assert json.loads(archive.files[found["Config"]]) == archive.config
    assert [gzip.decompress(archive.files[path]) for path in found["Layers"]] == archive.layers


def test_entries_are_sorted_and_belong_to_root(archive: Read) -> None:
    entries = archive.entries(0)
    assert [(entry.name, entry.mode) for entry in entries] == [
        ("tmp", 0o1777),
        ("usr", 0o755),
        ("usr/bin", 0o755),
        ("usr/bin/netplug-node", 0o755),
        ("usr/bin/node", 0o777),
    ]
    assert entries[-1].linkname == "netplug-node"
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {
        (0, 0, "", "", CREATED)
    }
    assert [(entry.name, entry.mode) for entry in archive.entries(1)] == [("etc", 0o755), ("etc/passwd", 0o644)]


def test_umask_times_and_the_order_of_paths_change_nothing(tmp_path: Path, root: Path) -> None:
    write_archive(tmp_path / "first.tar", root, LAYERS, IMAGE)
    other = make_root(tmp_path / "other", umask=0o077, time=1)
    layers = [Layer(list(reversed(layer.paths)), layer.comment) for layer in LAYERS]
    write_archive(tmp_path / "second.tar", other, layers, IMAGE)
    assert (tmp_path / "second.tar").read_bytes() == (tmp_path / "first.tar").read_bytes()


def test_another_content_is_another_image(tmp_path: Path, root: Path) -> None:
    first = write_archive(tmp_path / "image.tar", root, LAYERS, IMAGE)
    (root / "etc/passwd").write_text("")
    assert write_archive(tmp_path / "image.tar", root, LAYERS, IMAGE).digest != first.digest


def test_a_file_with_two_names_is_there_twice(tmp_path: Path, root: Path) -> None:
    os.link(root / "etc/passwd", root / "etc/group")
    write_archive(tmp_path / "image.tar", root, [Layer(["etc/group", "etc/passwd"], "")], IMAGE)
    entries = Read(tmp_path / "image.tar").entries(0)
    assert [(entry.isreg(), entry.size > 0) for entry in entries[1:]] == [(True, True)] * 2


def test_what_no_image_has_is_refused_and_the_archive_of_before_stays(tmp_path: Path, root: Path) -> None:
    target = tmp_path / "image.tar"
    write_archive(target, root, LAYERS, IMAGE)
    before = target.read_bytes()
    os.mkfifo(root / "run")
    with pytest.raises(ValueError, match=r"root/run: an image has files, folders and symbolic links"):
        write_archive(target, root, [Layer(["run"], "")], IMAGE)
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar", "root"]
