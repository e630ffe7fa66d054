"""What the kernel of a node says of its routes, addresses and interfaces while a test does something."""

from __future__ import annotations

import os
import select
import subprocess
from typing import Self

from attrs import define, field

from tests.harness.node import NetnsNode

__all__ = ["Monitor"]


@define
class Monitor:
    """What ``ip monitor`` shows of a node, from the start on: lines that contain a text, of routes or other objects."""

    node: NetnsNode
    containing: str = ""
    objects: tuple[str, ...] = ("route",)
    _process: subprocess.Popen[bytes] = field(init=False)
    _marks: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        command = ["nsenter", "--target", str(self.node.pid), "--net", "ip", "monitor", *self.objects]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._lines_before_mark()  # from now on it listens
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()

    def seen(self) -> list[str]:
        """The events since the last look."""
        return [line for line in self._lines_before_mark() if self.containing in line]

    def _lines_before_mark(self) -> list[str]:
        """What was shown until a route appears that is made now. It is made until it is seen: nobody may listen yet."""
        assert self._process.stdout is not None
        self._marks += 1
        mark, text = f"198.18.0.{self._marks}", ""
        while f"blackhole {mark}" not in text:
            for verb in ("replace", "delete"):
                self.node.run("ip", "route", verb, "blackhole", f"{mark}/32", "table", "4711")
            while select.select([self._process.stdout], [], [], 0.1)[0]:
                text += os.read(self._process.stdout.fileno(), 1 << 16).decode()
        return [line for line in text.splitlines() if mark not in line]
