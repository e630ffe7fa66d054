"""The release stands in two places; they are the same."""

import tomllib
from pathlib import Path

from netplug_cli.release import RELEASE


def test_the_release_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["version"] == RELEASE
    assert project["tool"]["towncrier"]["version"] == RELEASE
