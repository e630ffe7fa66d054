"""Writes an image as an archive: an OCI image layout in a tar file, which `docker load` reads too.

The same content makes the same bytes: entries are sorted and belong to root, their time is the image's, and modes are
0755 or 0644 whatever the umask was. Sources: the OCI image specification 1.1, layer, config, manifest and image layout.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from attrs import field, frozen

__all__ = ["Descriptor", "Image", "Layer", "format_time", "write_archive"]

_TYPE = "application/vnd.oci.image"
_BLOBS = "blobs/sha256"
_LEVEL = 6


@frozen
class Layer:
    """The paths of a layer, relative to the root of the image, and what its line in the image's history says.

    The folders above the paths belong to every layer that has something in them.
    """

    paths: Sequence[str]
    comment: str


@frozen(kw_only=True)
class Image:
    """What an image says of itself. ``created`` is in seconds since the epoch, and the time of every file too."""

    reference: str
    architecture: str
    created: int
    user: str
    environ: Mapping[str, str] = field(factory=dict)
    command: Sequence[str] = ()
    labels: Mapping[str, str] = field(factory=dict)


@frozen
class Descriptor:
    """A blob: its kind, its digest with the algorithm before it, and its size in bytes."""

    media_type: str
    digest: str
    size: int

    @property
    def path(self) -> str:
        """Where it is in the archive."""
        return f"{_BLOBS}/{self.digest.partition(':')[2]}"

    @property
    def document(self) -> dict[str, object]:
        """As the documents of an image refer to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def format_time(seconds: int) -> str:
    """A time since the epoch as RFC 3339 has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_archive(target: Path, root: Path, layers: Sequence[Layer], image: Image) -> Descriptor:
    """Write the archive of an image whose files are below ``root``, whole or not at all; its manifest is described.

    Raises:
        ValueError: a path is neither a file nor a folder nor a link.
    """
    new = target.with_name(f".{target.name}.new")
    try:
        with new.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            manifest = _Archive(archive, image.created).write(root, layers, image)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return manifest


@frozen
class _Archive:
    _archive: tarfile.TarFile
    _created: int

    def write(self, root: Path, layers: Sequence[Layer], image: Image) -> Descriptor:
        self._add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        written = [self._add_layer(root, layer) for layer in layers]
        config = self._add_json("config.v1+json", _config(image, layers, [plain for _blob, plain in written]))
        blobs = [blob for blob, _plain in written]
        manifest = self._add_json("manifest.v1+json", _manifest(config, blobs, image))
        names = {"io.containerd.image.name": image.reference, "org.opencontainers.image.ref.name": image.reference}
        platform = {"architecture": image.architecture, "os": "linux"}
        entry = {**manifest.document, "platform": platform, "annotations": names}
        self._add(
            "index.json", _json({"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [entry]})
        )
        docker = {"Config": config.path, "RepoTags": [image.reference], "Layers": [blob.path for blob in blobs]}
        self._add("manifest.json", _json([docker]))
        return manifest

    def _add_layer(self, root: Path, layer: Layer) -> tuple[Descriptor, str]:
        """The blob of a layer, and the digest of what is compressed in it."""
        with tempfile.TemporaryFile() as plain:
            with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for path in _with_folders(layer.paths):
                    _add_path(tar, root, path, self._created)
            plain.seek(0)
            digest = hashlib.file_digest(plain, "sha256").hexdigest()
            plain.seek(0)
            compressed = io.BytesIO()
            with gzip.GzipFile("", "wb", _LEVEL, compressed, mtime=0) as output:
                shutil.copyfileobj(plain, output)
        return self._add_blob("layer.v1.tar+gzip", compressed.getvalue()), f"sha256:{digest}"

    def _add_json(self, kind: str, document: object) -> Descriptor:
        return self._add_blob(kind, _json(document))

    def _add_blob(self, kind: str, content: bytes) -> Descriptor:
        blob = Descriptor(f"{_TYPE}.{kind}", f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
        self._add(blob.path, content)
        return blob

    def _add(self, path: str, content: bytes) -> None:
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode, entry.mtime = len(content), 0o644, self._created
        self._archive.addfile(entry, io.BytesIO(content))


def _with_folders(paths: Sequence[str]) -> list[str]:
    """Paths and the folders above them, sorted, so that a folder comes before what is in it."""
    above = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    return sorted({*paths, *above} - {"."})


def _add_path(tar: tarfile.TarFile, root: Path, path: str, time: int) -> None:
    file = root / path
    mode = file.lstat().st_mode
    entry = tarfile.TarInfo(path)
    entry.mtime = time
    if stat.S_ISLNK(mode):
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, os.readlink(file)
        tar.addfile(entry)
    elif stat.S_ISDIR(mode):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if mode & stat.S_ISVTX else 0o755
        tar.addfile(entry)
    elif stat.S_ISREG(mode):
        entry.size, entry.mode = file.stat().st_size, 0o755 if mode & stat.S_IXUSR else 0o644
        with file.open("rb") as content:
            tar.addfile(entry, content)
    else:
        raise ValueError(f"{file}: an image has files, folders and symbolic links, and nothing else")


def _config(image: Image, layers: Sequence[Layer], digests: Sequence[str]) -> dict[str, object]:
    return {
        "created": format_time(image.created),
        "architecture": image.architecture,
        "os": "linux",
        "config": {
            "User": image.user,
            "Env": [f"{name}={value}" for name, value in sorted(image.environ.items())],
            "Cmd": list(image.command),
            "WorkingDir": "/",
            "Labels": dict(image.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": list(digests)},
        "history": [{"created": format_time(image.created), "comment": layer.comment} for layer in layers],
    }


def _manifest(config: Descriptor, layers: Sequence[Descriptor], image: Image) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": config.document,
        "layers": [layer.document for layer in layers],
        "annotations": dict(image.labels),
    }


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()
