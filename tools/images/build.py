"""Builds the image of the nodes: an archive, and its SBOM beside it and in it.

The same checkout, Debian packages and C compiler make the same archive. The time of everything in it is
SOURCE_DATE_EPOCH, in seconds, or that of the last commit.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from netplug_core import __version__
from netplug_core.installation.settings import DEFAULT_IMAGE_PATH, DEFAULT_REGISTRY, NODE_IMAGE
from tools.bundle import DISTRIBUTIONS, with_requirements
from tools.images.debian import DebianPackage, download_packages, find_installed, unpack_packages
from tools.images.oci import Image, Layer, format_time, write_archive
from tools.images.root import (
    ACCOUNT,
    DEBIAN_PACKAGES,
    FURTHER_DISTRIBUTIONS,
    find_machine,
    make_root,
    split_layers,
)
from tools.images.sbom import Component, debian_component, debian_purl, python_component, render_sbom

__all__ = ["REFERENCE", "ROOT", "Built", "Source", "build_node_image", "describe_image", "find_source"]

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = f"{DEFAULT_REGISTRY}{DEFAULT_IMAGE_PATH}/{NODE_IMAGE}:v{__version__}"
"""The name of the image, as an Installation without settings has it."""

_NAME = f"netplug-{NODE_IMAGE}"
_SBOM = f"usr/share/sbom/{_NAME}.spdx.json"
_COMMENTS = ("Debian: interpreter, libraries, helper plugins", "Python packages of others", f"netplug {__version__}")
_C_LIBRARY = "libc6-dev"
_EPOCH = "SOURCE_DATE_EPOCH"


@frozen(kw_only=True)
class Source:
    """The time of everything in the image, in seconds since the epoch, and the commit; empty if it is not known."""

    created: int
    revision: str


@frozen(kw_only=True)
class Built:
    """An archive and its SBOM, and the digest of the image's manifest, by which a registry knows the image."""

    archive: Path
    sbom: Path
    digest: str


def build_node_image(output: Path, source: Source, cache: Path) -> Built:
    """Build the image into a folder; an archive and an SBOM that are there are replaced.

    Raises:
        Unavailable: a Debian package or a compiler is missing, or there are no images for this machine.
    """
    machine = find_machine()
    output.mkdir(parents=True, exist_ok=True)
    archive = output / f"{_NAME}-v{__version__}-{machine.name}.oci.tar"
    sbom = archive.with_name(archive.name.replace(".oci.tar", ".spdx.json"))
    packages = download_packages(DEBIAN_PACKAGES, cache)
    with tempfile.TemporaryDirectory(prefix="netplug-images-") as folder:
        debian, root = Path(folder) / "debian", Path(folder) / "root"
        unpack_packages(packages, debian)
        make_root(root, debian, packages, ROOT / "LICENSE")
        content = render_sbom(*_components(packages, debian), source.created)
        (root / _SBOM).parent.mkdir(parents=True)
        (root / _SBOM).write_bytes(content)
        layers = [Layer(*pair) for pair in zip(split_layers(root), _COMMENTS, strict=True)]
        manifest = write_archive(archive, root, layers, describe_image(source, machine.name))
    sbom.write_bytes(content)
    return Built(archive=archive, sbom=sbom, digest=manifest.digest)


def find_source(environ: Mapping[str, str]) -> Source:
    """The commit of this checkout, and its time unless the environment names one.

    Raises:
        ValueError: the environment names something else, or nothing where there is no git.
    """
    epoch = environ.get(_EPOCH) or _git("log", "-1", "--format=%ct")
    if not re.fullmatch(r"[0-9]{1,10}", epoch):
        raise ValueError(f"{_EPOCH}: {epoch!r} is not accepted; without a commit, seconds since 1970 are expected")
    return Source(created=int(epoch), revision=_git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"))


def _git(*arguments: str) -> str:
    """What git prints about this checkout; empty if this is none."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _components(packages: Sequence[DebianPackage], debian: Path) -> tuple[Component, list[Component]]:
    """The image, and what it is made of."""
    image = Component(name=_NAME, version=__version__, purl=f"pkg:oci/{_NAME}@v{__version__}", license="Apache-2.0")
    own = Component(name="netplug", version=__version__, purl=f"pkg:pypi/netplug@{__version__}", license="Apache-2.0")
    distributions = with_requirements([*DISTRIBUTIONS, *FURTHER_DISTRIBUTIONS])
    others = sorted(map(python_component, distributions), key=lambda part: part.name.lower())
    return image, [own, *(debian_component(package, debian) for package in packages), *_static_library(), *others]


def _static_library() -> list[Component]:
    """The C library that the two programs of the bundle in C have in them, if it is a package of this host."""
    found = find_installed(_C_LIBRARY)
    if found is None:
        return []
    comment = "linked statically into two programs: the static client and the launcher of the bundle"
    return [Component(name=_C_LIBRARY, version=found[0], purl=debian_purl(_C_LIBRARY, *found), comment=comment)]


def describe_image(source: Source, architecture: str) -> Image:
    """What the image says of itself."""
    labels = {
        "title": _NAME,
        "description": "netplug-node, netplug-install and netplugctl",
        "version": __version__,
        "created": format_time(source.created),
        "revision": source.revision,
        "url": "https://projectnetplug.org",
        "documentation": "https://projectnetplug.org/docs/images.md",
        "licenses": "Apache-2.0",
        "vendor": "The netplug maintainers",
    }
    return Image(
        reference=REFERENCE,
        architecture=architecture,
        created=source.created,
        user=ACCOUNT,
        environ={"PATH": "/usr/bin", "LANG": "C.UTF-8"},
        command=("netplugctl", "version", "--client"),
        labels={f"org.opencontainers.image.{name}": value for name, value in labels.items() if value},
    )
