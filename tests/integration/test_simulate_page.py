"""The examples of docs/simulate.md, by night: each simulation prints what the page shows, whatever the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
FIRST, STRICT, OWN = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SHOWN, LARGER, REFUSED, _LIBRARY = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
POOL = """\
apiVersion: projectnetplug.org/v3
kind: IPPool
metadata: {name: main}
spec: {cidr: 10.244.0.0/16}
"""


def printed(folder: Path, script: str) -> str:
    """What a script prints, on a datastore in the folder."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = os.environ | {"PATH": path, "DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(folder / "netplug.db")}
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True, cwd=folder, env=environ)
    return done.stdout


def test_the_first_question_and_its_answer(tmp_path: Path) -> None:
    assert printed(tmp_path, FIRST) == SHOWN


def test_more_nodes_than_pairs_of_blocks(tmp_path: Path) -> None:
    lines = printed(tmp_path, FIRST.replace("--nodes 500", "--nodes 600")).splitlines()
    assert [line for line in lines if line in LARGER.splitlines()] == LARGER.splitlines()


def test_strict_affinity_refuses(tmp_path: Path) -> None:
    (configuration,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "strict.yaml").write_text(configuration)
    lines = printed(tmp_path, STRICT).splitlines()
    assert [line for line in lines if line in REFUSED.splitlines()] == REFUSED.splitlines()


def test_the_resources_of_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    printed(tmp_path, "netplugctl create -f pool.yaml")
    script = OWN.replace("--nodes 500 --pods-per-node 80", "--nodes 5 --pods-per-node 8 --steps 2")
    assert "It holds: every pod got its addresses, 40 have them at the end." in printed(tmp_path, script)
