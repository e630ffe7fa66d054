"""An image with busybox, made here, so that no test asks a registry.

It is an OCI image layout in a tar file, which containerd and podman import. Source: the OCI image specification.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BUSYBOX", "IMAGE", "make_image"]

BUSYBOX = "/bin/busybox"
"""Debian's static busybox (the package busybox-static)."""

IMAGE = "localhost/netplug/busybox:1"

_MEDIA_TYPE = "application/vnd.oci.image"
_FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var")
# The first process of a container gets no signal that it has no handler for, and runtimes wait for it to end.
_PAUSE = "#!/bin/sh\ntrap 'exit 0' TERM\nwhile :; do sleep 3600 & wait $!; done\n"


def make_image(path: Path, name: str = IMAGE, programs: Mapping[str, bytes] | None = None) -> Path:
    """Write the image; its main program waits until it is asked to end. ``programs`` are further ones by path."""
    layer = _layer(programs or {})
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Cmd": ["/bin/pause"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    described = _described(config, "config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA_TYPE}.manifest.v1+json",
        "config": described[0],
        "layers": [{"mediaType": f"{_MEDIA_TYPE}.layer.v1.tar", "digest": _digest(layer), "size": len(layer)}],
    }
    index = _described(manifest, "manifest.v1+json")
    names = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [{**index[0], "annotations": names}]}))
        for blob in (layer, described[1], index[1]):
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    return path


def _layer(programs: Mapping[str, bytes]) -> bytes:
    listed = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True, timeout=60)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", Path(BUSYBOX).read_bytes(), 0o755)
        for name in sorted({*listed.stdout.split()} - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        _add(tar, "bin/pause", _PAUSE.encode(), 0o755)
        for path, data in programs.items():
            _add(tar, path, data, 0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def _described(document: object, kind: str) -> tuple[dict[str, object], bytes]:
    text = _json(document)
    return {"mediaType": f"{_MEDIA_TYPE}.{kind}", "digest": _digest(text), "size": len(text)}, text


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
