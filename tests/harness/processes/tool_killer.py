"""Runs ``netplugctl`` and kills it right after the n-th thing that it does to the world.

``tool_killer.py N LIST ARGUMENT…`` is called by ``test_lab``. N is 0 for never. LIST is a file that gets a line for
every effect, written before the process dies. An effect is the return of a function that changes something outside the
process: a file or folder that is made, renamed or removed, a namespace or a mount, a setting, a process that is
started (which goes on without us), a lock, a commit.
"""

import os
import signal
import sys
from types import FrameType

# C functions, and the Python functions around calls of the C library, which the profiler does not see.
EFFECTS = {"flock", "fork_exec", "fsync", "mkdir", "posix_spawn", "rename", "rmdir", "send", "unlink", "write"}
PYTHON_CALLS = {"_call", "commit"}


def main() -> None:
    from netplug_cli.ctl.main import run
    from netplug_cli.wiring.ctl import make_session

    number, path, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    seen = 0

    def count(frame: FrameType, event: str, function: object) -> None:
        nonlocal seen
        name = frame.f_code.co_name if event == "return" else getattr(function, "__name__", "")
        if not (name in PYTHON_CALLS if event == "return" else event == "c_return" and name in EFFECTS):
            return
        if not _is_lab_effect(frame):
            return
        seen += 1
        sys.setprofile(None)
        os.write(descriptor, f"{seen} {name} {frame.f_code.co_qualname} {frame.f_lineno}\n".encode())
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(count)

    sys.setprofile(count)
    status = run(argv, make_session)
    sys.setprofile(None)
    sys.exit(status)


def _is_lab_effect(frame: FrameType | None) -> bool:
    """Whether the lab is at work on something that lasts: imports, byte code and what YAML buffers do not count."""
    while frame is not None:
        name = frame.f_code.co_filename
        if "importlib" in name or "/yaml/" in name or name.endswith("compileall.py"):
            return False
        if "/netplug_cli/lab/" in name and not name.endswith("/lab/commands.py"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
