"""docs/installation.md: its table is generated, its example is valid, and what it shows is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from netplug_core.decoding.tables import collect_members
from netplug_core.installation.document import ProblemClass, read_installation
from netplug_core.installation.rules import check
from netplug_core.resources.installation import InstallationSpec
from tools.images.root import HELPERS
from tools.installation import PAGE, render_page

TEXT = PAGE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_table_is_generated() -> None:
    assert render_page(TEXT) == TEXT, "python -m tools.installation writes it anew"


def test_the_plugins_of_others_are_those_of_the_image() -> None:
    effect = collect_members(InstallationSpec)["netplugNetwork.cni.installMode"].text
    assert effect == f"whether {', '.join(HELPERS[:-1])} and {HELPERS[-1]} are installed too"


def test_every_class_of_problems_is_explained() -> None:
    rows = re.findall(r"^\| (\w+) \|", TEXT.partition("| Class |")[2], re.MULTILINE)
    assert rows[: len(ProblemClass)] == [one.value for one in ProblemClass]


def test_what_is_shown_is_printed(tmp_path: Path) -> None:
    """The first script gets a wrong document; the second one prints what the example installs."""
    (example,), (checking, rendering) = blocks("yaml"), blocks("sh")
    assert check(read_installation(yaml.safe_load(example))).problems == ()
    (tmp_path / "installation.yaml").write_text(example)
    wrong, right = run(checking, tmp_path), run(rendering, tmp_path)
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", blocks("text")[0])
    assert (right.returncode, right.stdout, right.stderr) == (0, blocks("text")[1], "")


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=folder, env=environ)
