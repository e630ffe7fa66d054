"""What docs/testing.md shows is true: its examples run, and it lists every strategy."""

import re
import subprocess
import sys
from pathlib import Path

from netplug_core.testing import strategies

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
QUICK = """\
from hypothesis import HealthCheck, settings

settings.register_profile("quick", deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
settings.load_profile("quick")
"""


def test_every_example_is_a_complete_test_module(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    (tmp_path / "conftest.py").write_text(QUICK)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert len(examples) == 1
    assert "1 passed" in ran.stdout, ran.stdout


def test_every_strategy_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(strategies.__all__)
