"""The README: its library example prints what stands below it, and its table of features is that of their page."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
FEATURES = README.parent / "docs" / "features.md"


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


def test_the_table_of_features_is_that_of_the_page() -> None:
    (table,) = re.findall(r"<!-- features: .*?-->\n(.*?)<!-- features: end -->", FEATURES.read_text(), re.DOTALL)
    linked = re.sub(r"\]\((#?)", lambda found: "](docs/features.md#" if found[1] else "](docs/", table)
    assert linked in README.read_text()


def test_it_is_short_enough_to_be_read_whole() -> None:
    assert len(README.read_text().splitlines()) <= 100
