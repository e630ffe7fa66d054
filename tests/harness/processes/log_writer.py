"""A process that writes lines to a rotated log: ``log_writer PATH NAME LINES LENGTH COUNT [KILLED_AT]``.

Line ``n`` is ``NAME-n`` and as many x as make up the length. For every third line the log is opened anew, as each call
of a runtime does. With a number behind, the process is killed before that step of its rotations: before it locks,
renames or removes a file for the n-th time. Prints ``reported`` for each problem of the log, and ``done`` at the end.
"""

from __future__ import annotations

import os
import signal
import sys

from netplug_backends.host.log_file import LogFile
from netplug_core.log import LogSettings

STEPS = {"fcntl.fcntl", "os.remove", "os.rename"}


def main() -> None:
    path, name, lines, length, count = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    if len(sys.argv) > 6:
        _kill_before(int(sys.argv[6]))
    settings = LogSettings(file_path=path, max_size_mb=1, max_count=count)
    log = LogFile(settings, _report)
    for number in range(lines):
        if number % 3 == 2:
            log.close()
            log = LogFile(settings, _report)
        log.append(f"{name}-{number} ".encode().ljust(length, b"x") + b"\n")
    sys.stdout.write("done\n")


def _report(problem: str, cause: Exception) -> None:
    sys.stdout.write(f"reported {problem}: {cause}\n")


def _kill_before(step: int) -> None:
    seen = 0

    def audit(event: str, _arguments: object) -> None:
        nonlocal seen
        seen += event in STEPS
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


if __name__ == "__main__":
    main()
