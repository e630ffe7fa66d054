"""docs/images.md: where its image is for some settings, what is in it, and what a label is called."""

from __future__ import annotations

import re
import tomllib

import pytest

from netplug_core import __version__
from netplug_core.installation.settings import NODE_IMAGE, image_reference
from tests.harness.installations import resolved
from tools.images.build import ROOT, Source, describe_image
from tools.images.root import BUNDLE, HELPERS_FOLDER, PROGRAMS

PAGE = (ROOT / "docs" / "images.md").read_text()
ROWS: list[tuple[str, ...]] = re.findall(r"^\|(.*)\|(.*)\|(.*)\| `(.*/\S*node:.*)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[-1])
def test_the_reference_of_some_settings(row: tuple[str, ...]) -> None:
    names = ("registry", "imagePath", "imagePrefix")
    spec = {name: cell.strip(" `") for name, cell in zip(names, row, strict=False) if cell.strip()}
    assert image_reference(resolved(spec), NODE_IMAGE, __version__) == row[-1]


def test_the_page_has_settings() -> None:
    assert len(ROWS) == 4


def test_programs_and_folders_are_listed() -> None:
    contents = PAGE.partition("## Contents")[2].partition("## SBOM")[0]
    assert all(f"`/{path}`" in contents for path in (BUNDLE, HELPERS_FOLDER))
    assert all(name in contents for name in PROGRAMS)


def test_labels_are_listed() -> None:
    labels = describe_image(Source(created=1, revision="abc"), "amd64").labels
    (line,) = re.findall(r"^\*\*Labels\.\*\* `org\.opencontainers\.image\.` with (.*?) are in", PAGE, re.MULTILINE)
    assert {f"org.opencontainers.image.{name}" for name in re.findall(r"`(\w+)`", line)} == set(labels)


def test_whatever_a_distribution_starts_the_image_starts_too() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {name: f"{module}:main" for name, module in PROGRAMS.items()}
