"""What the README shows is true: its library example runs, and prints what stands below it."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_library_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    (example,) = blocks("python")
    file = tmp_path / "example.py"
    file.write_text(example)
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout
    assert ran.stdout in blocks("text")


def test_the_library_example_is_short_enough_to_read() -> None:
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
