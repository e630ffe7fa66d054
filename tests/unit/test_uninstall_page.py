"""docs/uninstall.md: its pods are those that take off what an Installation without settings installs."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.harness.installations import resolved
from tools.images.build import REFERENCE
from tools.images.root import HELPERS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "uninstall.md"


def test_its_pods_have_the_image_and_the_folders_of_an_installation() -> None:
    (text,) = re.findall(r"<<'YAML'\n(.*?)YAML\n", PAGE.read_text(), re.DOTALL)
    pod: dict[str, Any] = yaml.safe_load(text)["spec"]["template"]["spec"]
    assert [one["image"] for one in (*pod["initContainers"], *pod["containers"])] == [REFERENCE] * 2
    installed = resolved()
    assert {one["hostPath"]["path"] for one in pod["volumes"]} == {installed.bin_dir, installed.conf_dir}


def test_it_names_the_helper_plugins_of_the_image() -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if "`portmap`" in line]
    assert re.findall(r"`([a-z-]+)`", line.partition(" in `")[0]) == list(HELPERS)
