"""What an image is made of, as an SPDX 2.3 document in JSON: Debian packages, Python distributions, and netplug.

Licences stand there as the packages declare them. Debian names licences in its own short names, which are no SPDX
identifiers, so they are a comment; the texts are in the image.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import quote

from attrs import frozen

from tools.images.debian import DebianPackage
from tools.images.oci import format_time

__all__ = ["Component", "debian_component", "debian_purl", "python_component", "render_sbom"]

_NAMESPACE = "https://projectnetplug.org/spdx"
_UNKNOWN = "NOASSERTION"
_CLASSIFIER = "License :: OSI Approved :: "
# How distributions without a License-Expression spell it.
_SPELLINGS: Mapping[str, str] = {
    "MIT": "MIT",
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
}


@frozen(kw_only=True)
class Component:
    """A part of an image. ``purl`` is its package URL, ``license`` an SPDX expression, empty if it is not known.

    ``digest`` is the SHA-256 of the package's file, empty if there is none.
    """

    name: str
    version: str
    purl: str
    license: str = ""
    comment: str = ""
    digest: str = ""


def debian_component(package: DebianPackage, root: Path) -> Component:
    """A Debian package that is unpacked in a folder."""
    licenses = package.find_licenses(root)
    return Component(
        name=package.name,
        version=package.version,
        purl=debian_purl(package.name, package.version, package.architecture),
        comment=f"debian/copyright names: {', '.join(licenses)}" if licenses else "",
        digest=package.digest,
    )


def debian_purl(name: str, version: str, architecture: str) -> str:
    """The package URL of a package of Debian 12."""
    return f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro=debian-12"


def python_component(distribution: Distribution) -> Component:
    """A Python distribution, with the licence of its metadata."""
    metadata = distribution.metadata
    classifiers = [text.removeprefix(_CLASSIFIER) for text in metadata.get_all("Classifier") or []]
    spelled = [*classifiers, *(text.strip() for text in metadata.get_all("License") or [])]
    known = [_SPELLINGS[text] for text in spelled if text in _SPELLINGS]
    expressions: list[str] = metadata.get_all("License-Expression") or []
    return Component(
        name=distribution.name,
        version=distribution.version,
        purl=f"pkg:pypi/{distribution.name.lower().replace('_', '-')}@{quote(distribution.version)}",
        license=next(iter([*expressions, *known]), ""),
    )


def render_sbom(image: Component, parts: Sequence[Component], created: int) -> bytes:
    """The document about an image that has these parts. ``created`` is in seconds since the epoch.

    Its namespace is made of its content, so that two documents have one only if they are equal.
    """
    packages = [_package(part) for part in (image, *parts)]
    root = packages[0]["SPDXID"]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", root), *((root, "CONTAINS", one["SPDXID"]) for one in packages[1:])]
    relationships = [
        {"spdxElementId": source, "relationshipType": kind, "relatedSpdxElement": target}
        for source, kind, target in relations
    ]
    content = hashlib.sha256(json.dumps([packages, relationships]).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image.name}-{image.version}",
        "documentNamespace": f"{_NAMESPACE}/{quote(image.name, safe='')}-{image.version}-{content}",
        "creationInfo": {
            "created": format_time(created),
            "creators": ["Tool: netplug-tools.images"],
        },
        "packages": packages,
        "relationships": relationships,
    }
    return f"{json.dumps(document, indent=1)}\n".encode()


def _package(component: Component) -> dict[str, object]:
    kind = component.purl.removeprefix("pkg:").partition("/")[0]
    package: dict[str, object] = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", f"{kind}-{component.name}"),
        "name": component.name,
        "versionInfo": component.version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": component.license or _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.purl}
        ],
    }
    if component.comment:
        package["licenseComments"] = component.comment
    if component.digest:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": component.digest}]
    return package
