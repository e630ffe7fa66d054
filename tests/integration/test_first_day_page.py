"""The page of a first day: each command prints what it shows, one after the other on one datastore."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.harness.console_pages import comparable

PAGE = (Path(__file__).parents[2] / "docs" / "first-day.md").read_text()


def test_the_day_goes_as_the_page_says(tmp_path: Path, bin_dir: str) -> None:
    (preparation,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    shown = "".join(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL))
    commands = [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]
    assert len(commands) > 15
    script = "\n".join((preparation, *(f"echo '$ {line}'; {{ {line}; }} 2>&1 || true" for line in commands)))
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{bin_dir}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    wanted, found = comparable(shown, ran.stdout)
    assert (found, ran.stderr) == (wanted, "")
