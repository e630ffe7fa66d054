"""Processes whose libraries are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HIDDEN = """
import sys
sys.modules["prometheus_client"] = None
from netplug_cli.wiring.{module} import main
sys.argv = ["{program}"]
main()
"""


@pytest.mark.parametrize("module", ["controllers", "operator"])
def test_without_its_libraries_a_process_ends_with_one_line(module: str) -> None:
    program = f"netplug-{module}"
    script = _HIDDEN.format(module=module, program=program)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    line = f"{program} needs netplug[operator]: not installed here: prometheus_client\n"
    assert (found.returncode, found.stdout, found.stderr) == (1, "", line)
