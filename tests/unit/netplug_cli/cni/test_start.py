"""Launchers of earlier releases, which stay on a host after the packages have been upgraded."""

import subprocess
import sys

from tests.harness.waiting import EMERGENCY_STOP_S

EARLIER = "from netplug_cli.cni.start import start; import os; os._exit(start())"


def test_a_launcher_of_an_earlier_release_still_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLIER],
        env={"CNI_COMMAND": "VERSION"},
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "supportedVersions" in done.stdout
