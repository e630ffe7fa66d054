"""The page about the library is true: it is one script, typed as our own code is, and prints what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
PIECES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
CUT = "--- the next piece"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The pieces as a reader puts them together, with a line between what one and the next print."""
    path = tmp_path / "example.py"
    path.write_text(f"print({CUT!r})\n".join(piece for piece, _ in PIECES))
    return path


def test_each_piece_prints_what_stands_below_it(script: Path) -> None:
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.split(f"{CUT}\n") == [printed for _, printed in PIECES]


def test_no_piece_is_without_its_output() -> None:
    assert len(PIECES) == len(re.findall(r"```python\n", PAGE)) > 0


def test_the_script_is_typed(script: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file", os.devnull, str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=script.parent)
    assert ran.returncode == 0, ran.stdout
