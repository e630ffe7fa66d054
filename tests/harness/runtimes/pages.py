"""Runs a page of the documentation as written: every shell block in one shell, and what each must print.

A ``text`` block right after a ``sh`` block is what that one prints. Names and numbers that differ from run to run are
compared by their form.
"""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from tests.harness.node import NetnsNode

__all__ = ["PageStep", "read_page", "run_page"]

_DOCS = Path(__file__).parents[3]
_BLOCK = re.compile(r"```sh\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
_MARK = "==> step "
_LONGEST_S = "600"

# What differs from run to run, and what stands for it in both texts.
_VARIABLE = (
    (r"\bnetp[a-z2-7]{11}\b", "HOST-INTERFACE"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b(?:10\.65|192\.168)\.\d+\.\d+(?:/\d+)?", "IPV4"),
    (r"\bfd65:[0-9a-f:]+(?:/\d+)?", "IPV6"),
    (r"\b[0-9a-f]{64}\b", "CONTAINER"),
    (r"\bweb-[0-9a-f]{6,10}-[0-9a-z]{5}\b", "POD"),
    (r"time=[0-9.]+ ms", "time=TIME"),
    (r"(?m)\brtt min/avg/max.*$", "rtt"),
    (r"(?m) +$", ""),
    (r"[-+]{20,}", "LINE"),
    (r" {2,}", " "),
)


@frozen
class PageStep:
    """One shell block, the heading above it, and what it prints; None if the page does not say."""

    section: str
    script: str
    shown: str | None


def read_page(name: str) -> list[PageStep]:
    """The steps of a page, in order."""
    first, *others = re.split(r"(?m)^## (.+)\n", (_DOCS / name).read_text())
    return [
        PageStep(section, script, shown or None)
        for section, text in [("", first), *zip(others[::2], others[1::2], strict=True)]
        for script, shown in _BLOCK.findall(text)
    ]


def run_page(node: NetnsNode, steps: list[PageStep], *, path: str) -> None:
    """Run steps in one shell on the node, and compare what each prints with what the page shows."""
    script = "".join(f"echo '{_MARK}{number}'\n{step.script}" for number, step in enumerate(steps))
    done = node.run_unchecked("timeout", _LONGEST_S, "bash", "-ec", script, env={"PATH": path})
    printed = re.split(rf"(?m)^{_MARK}\d+\n", done.stdout)[1:]
    assert done.returncode == 0, f"the step {len(printed)} fails: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    for step, text in zip(steps, printed, strict=True):
        if step.shown is not None:
            assert _comparable(text) == _comparable(step.shown), f"of {step.script}:\n{text}"


def _comparable(text: str) -> str:
    for pattern, replacement in _VARIABLE:
        text = re.sub(pattern, replacement, text)
    return text.strip("\n")
