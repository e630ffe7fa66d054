"""The bundle: one folder with an interpreter, its libraries and the standalone program, for hosts without Python.

It runs from wherever it is. Its manifest lists every file, so that a copy can be compared with what was built, and
names the bundle: two bundles that differ have different names, whatever their version is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from attrs import frozen

from netplug_core.errors import ConfigurationError

__all__ = [
    "CLIENT", "COPIES", "LAUNCHER", "LOCK", "MANIFEST", "Bundle", "BundleFile", "find_place", "parse_bundle",
    "render_bundle",
]  # fmt: skip

COPIES: Final = ".netplug"
"""The folder of the copies on a host, in its folder for plugins."""

MANIFEST: Final = "manifest.json"
"""The file that lists the others. It is written last."""

CLIENT: Final = "client"
"""The static client of the node process."""

LAUNCHER: Final = "launch"
"""What executes the standalone program with the interpreter and the libraries of its own folder."""

LOCK: Final = "lock"
"""The file that a process has locked, shared, for as long as it runs from the bundle (flock(2))."""

_NEEDED: Final = (CLIENT, LAUNCHER, LOCK)
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME_DIGITS: Final = 12


@frozen
class BundleFile:
    """A file, by its path in the bundle: the SHA-256 of its content, and whether it may be executed."""

    path: str
    digest: str
    is_executable: bool


@frozen(kw_only=True)
class Bundle:
    """What a manifest says. ``machine`` is the architecture that it runs on; ``files`` are sorted by their paths."""

    version: str
    machine: str
    files: tuple[BundleFile, ...]

    @property
    def name(self) -> str:
        """The name of its folder on a host."""
        return f"{self.version}-{hashlib.sha256(render_bundle(self)).hexdigest()[:_NAME_DIGITS]}"


def render_bundle(bundle: Bundle) -> bytes:
    """The content of the manifest."""
    files = {file.path: {"sha256": file.digest, "executable": file.is_executable} for file in bundle.files}
    document = {"version": bundle.version, "machine": bundle.machine, "files": files}
    return f"{json.dumps(document, indent=1, sort_keys=True)}\n".encode()


def parse_bundle(content: bytes, where: str, machine: str) -> Bundle:
    """The bundle of a manifest, which must be for this architecture. ``where`` is its path.

    Raises:
        ConfigurationError: it is damaged, for another architecture, or lacks a file that every bundle has.
    """
    try:
        bundle = _read(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(where, "…", f"the manifest of a bundle is expected: {error!r}") from None
    if bundle.machine != machine:
        raise ConfigurationError(where, bundle.machine, f"this machine is {machine}; use the image for it")
    missing = [name for name in _NEEDED if all(file.path != name for file in bundle.files)]
    if missing:
        raise ConfigurationError(where, "…", f"the bundle has no {', '.join(missing)}")
    return bundle


def _read(document: dict[str, object]) -> Bundle:
    files = document["files"]
    if not isinstance(files, Mapping):
        raise TypeError("files")
    return Bundle(
        version=_matched(_WORD, document["version"]),
        machine=_matched(_WORD, document["machine"]),
        files=tuple(_read_file(path, found) for path, found in sorted(files.items())),
    )


def _read_file(path: str, found: dict[str, object]) -> BundleFile:
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(path)
    return BundleFile(path, _matched(_DIGEST, found["sha256"]), found["executable"] is True)


def _matched(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(value)
    return value


def find_place(bundle: Bundle, present: Collection[str], intact: Collection[str]) -> str:
    """The name of the folder for a bundle. ``present`` are all that are there, ``intact`` the copies of this bundle.

    A damaged copy may be in use, so it is not written to: beside it comes another one.
    """
    if intact:
        return min(intact)
    names = (f"{bundle.name}.{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([bundle.name], names) if name not in present)
