"""The SBOM of an image: an SPDX document with every part, and what is known about it."""

from __future__ import annotations

import json
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from tools.images.debian import DebianPackage
from tools.images.sbom import Component, debian_component, python_component, render_sbom

IMAGE = Component(name="netplug-node", version="1.2.3", purl="pkg:oci/netplug-node@v1.2.3", license="Apache-2.0")
PARTS = [
    Component(name="libc6", version="2.36-9+deb12u1", purl="pkg:deb/debian/libc6@2.36-9%2Bdeb12u1", digest="ab"),
    Component(name="attrs", version="26.1.0", purl="pkg:pypi/attrs@26.1.0", license="MIT", comment="one"),
]


def document(parts: list[Component] = PARTS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render_sbom(IMAGE, parts, 1_700_000_000))
    return found


def test_the_document_is_one_of_spdx() -> None:
    found = document()
    assert (found["spdxVersion"], found["dataLicense"], found["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    assert found["creationInfo"] == {"created": "2023-11-14T22:13:20Z", "creators": ["Tool: netplug-tools.images"]}


def test_the_image_contains_every_part() -> None:
    found = document()
    identifiers = [package["SPDXID"] for package in found["packages"]]
    assert identifiers == ["SPDXRef-oci-netplug-node", "SPDXRef-deb-libc6", "SPDXRef-pypi-attrs"]
    assert [tuple(relation.values()) for relation in found["relationships"]] == [
        ("SPDXRef-DOCUMENT", "DESCRIBES", identifiers[0]),
        (identifiers[0], "CONTAINS", identifiers[1]),
        (identifiers[0], "CONTAINS", identifiers[2]),
    ]


def test_what_is_not_known_is_not_asserted() -> None:
    _, libc, attrs = document()["packages"]
    assert (libc["licenseDeclared"], attrs["licenseDeclared"]) == ("NOASSERTION", "MIT")
    assert (libc["checksums"], attrs["licenseComments"]) == ([{"algorithm": "SHA256", "checksumValue": "ab"}], "one")
    assert "licenseComments" not in libc
    assert "checksums" not in attrs
    assert [reference["referenceLocator"] for reference in libc["externalRefs"]] == [PARTS[0].purl]


def test_equal_content_has_one_namespace_and_other_content_another() -> None:
    assert document()["documentNamespace"] == document(list(PARTS))["documentNamespace"]
    assert document()["documentNamespace"] != document(PARTS[:1])["documentNamespace"]


@pytest.mark.parametrize("name, license", [("attrs", "MIT"), ("grpcio", "Apache-2.0"), ("rich", "MIT")])
def test_the_licence_of_a_distribution(name: str, license: str) -> None:  # noqa: A002  the field's name
    found = python_component(distribution(name))
    assert (found.name, found.license) == (name, license)
    assert found.purl == f"pkg:pypi/{name}@{found.version}"


@pytest.mark.parametrize("metadata, license", [
    ("License-Expression: BSD-2-Clause\nLicense: MIT", "BSD-2-Clause"),
    ("License: 3-Clause BSD License", "BSD-3-Clause"),
    ("Classifier: License :: OSI Approved :: Apache Software License", "Apache-2.0"),
    ("Classifier: License :: OSI Approved :: BSD License", ""),
    ("License: as you like", ""),
])  # fmt: skip
def test_licences_as_metadata_spell_them(tmp_path: Path, metadata: str, license: str) -> None:  # noqa: A002
    folder = tmp_path / "my_lib-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: my_lib\nVersion: 1.0\n{metadata}\n")
    (written,) = distributions(path=[str(tmp_path)])
    found = python_component(written)
    assert (found.license, found.purl) == (license, "pkg:pypi/my-lib@1.0")


def test_a_debian_package_has_its_digest_and_the_licences_that_debian_names(tmp_path: Path) -> None:
    package = DebianPackage(
        name="libstdc++6",
        version="1:12.2-1",
        architecture="amd64",
        control="",
        file=tmp_path / "x.deb",
        digest="cd",
    )
    copyright_file = package.copyright_file(tmp_path)
    copyright_file.parent.mkdir(parents=True)
    copyright_file.write_text("Format: x\nLicense: GPL-3+\n")
    found = debian_component(package, tmp_path)
    assert found.purl == "pkg:deb/debian/libstdc%2B%2B6@1%3A12.2-1?arch=amd64&distro=debian-12"
    assert (found.digest, found.comment) == ("cd", "debian/copyright names: GPL-3+")
