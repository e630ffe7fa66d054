"""The walk of docs/draining.md: each command prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "draining.md").read_text()
END = "exit status "


def shown() -> list[str]:
    """The lines of all examples."""
    examples: list[str] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    return [line for example in examples for line in example.splitlines()]


def script() -> str:
    """The preparation of the page, then each of its commands, with its exit status if the page shows one."""
    (preparation,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    commands = [line.removeprefix("$ ") for line in shown() if line.startswith("$ ")]
    runs = (f"echo '$ {line}'; {{ {line}; }} 2>&1; echo {END}$?" for line in commands)
    return "\n".join((preparation, *runs))


def test_the_walk_of_the_page_prints_what_it_shows(tmp_path: Path, bin_dir: str) -> None:
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{bin_dir}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", script()], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    printed = ran.stdout.splitlines()
    assert f"{END}3" in printed
    quiet = (f"{END}0", f"{END}1")  # shown where the page says so: a DEL prints nothing, so that grep finds nothing
    expected = [line for line in shown() if line not in quiet]
    assert [line for line in printed if line not in quiet] == expected
