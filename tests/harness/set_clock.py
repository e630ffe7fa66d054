"""A clock of a real process that a test sets while it runs: the time of day; what deadlines go by is not changed.

``python -m tests.harness.set_clock FILE MODULE ARGUMENT...`` runs a module with the clock whose file that is. Another
one is only ``time.time_ns``, which netplug asks. Libraries in C have the time of the machine, as TLS for certificates,
and gRPC's Python part has to agree with its other part when a call ends: so ``time.time`` stays.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

from attrs import frozen

__all__ = ["SetClock"]

_OFFSET = struct.Struct("q")


@frozen
class SetClock:
    """The clock of a process: that of the machine, and what ``file`` says, in nanoseconds."""

    file: Path

    def __attrs_post_init__(self) -> None:
        self.set_by(0)

    def command(self, module: str, *arguments: str) -> list[str]:
        """What runs a module with this clock; in the folder of the checkout."""
        return [sys.executable, "-m", "tests.harness.set_clock", str(self.file), module, *arguments]

    def set_by(self, offset_ns: int) -> None:
        """Set it so much later than the clock of the machine; negative: earlier."""
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(_OFFSET.pack(offset_ns))


def _run(path: str, module: str, *arguments: str) -> None:
    with Path(path).open("rb") as file:
        shared = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    machine_ns = time.time_ns

    def now_ns() -> int:
        return machine_ns() + int(_OFFSET.unpack(shared)[0])

    time.time_ns = now_ns
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    _run(*sys.argv[1:])
