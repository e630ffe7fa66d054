"""docs/installation.md: its table is generated, its example is valid, and what it shows is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from netplug_core.installation.check import check
from netplug_core.installation.document import read_installation
from netplug_core.installation.problems import ProblemClass
from tools.installation import PAGE, render_page

TEXT = PAGE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_table_is_generated() -> None:
    assert render_page(TEXT) == TEXT, "python -m tools.installation writes it anew"


def test_every_class_of_problems_is_explained() -> None:
    rows = re.findall(r"^\| (\w+) \|", TEXT.partition("| Class |")[2], re.MULTILINE)
    assert rows[: len(ProblemClass)] == [one.value for one in ProblemClass]


def test_the_example_is_valid() -> None:
    (example,) = blocks("yaml")
    assert check(read_installation(yaml.safe_load(example))).problems == ()


def test_what_is_shown_is_printed(tmp_path: Path) -> None:
    (script,), (shown,) = blocks("sh"), blocks("text")
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path, env=environ)
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", shown)
