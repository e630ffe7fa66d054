"""Runs ``netplugctl`` and kills it right after the n-th write: ``migration_killer.py N LIST ARGUMENT…``.

N is 0 for never. LIST is a file that gets a line for every write, before the process dies. A write is the return of a
function that changes what is stored, labels a node, or writes a file for the user.
"""

import os
import signal
import sys
from types import FrameType

WRITES = {"commit", "label_node", "write_private_file"}
LAYERS = ("/netplug_backends/", "/netplug_cli/ctl/editor.py")  # others of that name only pass a write on


def main() -> None:
    from netplug_cli.ctl.main import run
    from netplug_cli.wiring.ctl import make_session

    number, path, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    seen = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        code = frame.f_code
        if event != "return" or code.co_name not in WRITES or not any(each in code.co_filename for each in LAYERS):
            return
        if argument is None and code.co_name == "commit":
            return  # it raised: nothing was written
        seen += 1
        os.write(descriptor, f"{seen} {code.co_qualname}\n".encode())
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    status = run(argv, make_session)
    sys.setprofile(None)
    sys.exit(status)


if __name__ == "__main__":
    main()
