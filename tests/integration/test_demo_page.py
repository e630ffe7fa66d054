"""What the README and the page about the lab show of the demo is what the demo prints today, on each datastore.

Times, process ids and names that a hash makes are compared by their form, and so are addresses: whether a node's tunnel
or its first pod gets the first one of a block is decided by who is faster.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.harness.node import missing_requirement
from tests.harness.waiting import EMERGENCY_STOP_S

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

ROOT = Path(__file__).parents[2]
ELISION = "…"
VARIABLE = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\d+(?:\.\d+)? m?s\b", "TIME"),
    (r"\d+ms\b", "TIME"),
    (r"rtt min/avg/max/mdev = .*", "RTT"),
    (r"\(process(es)? [\d, ]+\)", "(process)"),
    (r"\bnetp[a-z2-7]{11}\b", "HOST-INTERFACE"),
    (r"\b10\.98\.\d+\.\d+\b", "IPV4"),
    (r"\bfd98:6e70:6c67:[0-9a-f:]+", "IPV6"),
)


def comparable(text: str) -> list[str]:
    """The lines of a text without what differs from run to run; those of one table of holders in one order."""
    for pattern, replacement in VARIABLE:
        text = re.sub(pattern, replacement, text)
    lines = text.splitlines()
    held = [number for number, line in enumerate(lines) if re.match(r"IPV[46] (lab|vxlan)", line)]
    for number, line in zip(held, sorted(lines[number] for number in held), strict=True):
        lines[number] = line
    return lines


def shown_in(page: str, first_line: str) -> list[str]:
    """The block of a page that begins with a line."""
    blocks = re.findall(r"^```text\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if re.match(first_line, block)]
    return comparable(found)


def run_demo(datastore: str) -> str:
    """What the demo prints, in namespaces of its own, so that a lab of this machine is not in its way."""
    demo = str(ROOT / "tools" / "demo")
    if datastore != "sqlite":
        subprocess.run([demo, "servers"], check=True, timeout=EMERGENCY_STOP_S)
    command = ("unshare", "--net", "--mount", demo, "inside")
    environ = os.environ | {"DATASTORE": datastore}
    done = subprocess.run(command, env=environ, capture_output=True, timeout=EMERGENCY_STOP_S, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_printed(output: str, shown: list[str]) -> None:
    """Require that each line that is shown was printed, in this order."""
    printed, position = comparable(output), 0
    for line in shown:
        if line != ELISION:
            assert line in printed[position:], f"not printed: {line}\n{output}"
            position = printed.index(line, position) + 1


def test_the_demo_prints_what_is_shown() -> None:
    """The page about the lab has every line, and the README some."""
    if reason := missing_requirement("ping"):
        pytest.skip(reason)
    output = run_demo("sqlite")
    assert comparable(output) == shown_in("docs/lab.md", r"==> netplugctl lab up --nodes 2\n")
    require_printed(output, shown_in("README.md", r"netplug-node-1 runs on lab-node-1"))


@pytest.mark.parametrize("datastore", ["etcdv3", "kubernetes"])
def test_what_is_different_on_servers(datastore: str) -> None:
    if reason := missing_requirement("ping"):
        pytest.skip(reason)
    shown = shown_in("docs/lab.md", rf"==> netplugctl lab up --nodes 2 --datastore {datastore} ")
    require_printed(run_demo(datastore), shown)
