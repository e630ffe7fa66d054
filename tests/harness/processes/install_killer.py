"""Runs ``netplug-install`` and kills it right before the n-th thing that it does to its host.

``install_killer.py N FOLDER ACCOUNT ARGUMENT …``: N counts from 1. An effect is a file that is opened for writing below
FOLDER, and any folder or link that is made, or name that is changed or removed. ACCOUNT is the folder of the pod's
service account.
"""

import os
import signal
import sys

from netplug_cli.wiring.install import run

EFFECTS = {"os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir"}


def main() -> None:
    number, folder, account, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    seen = 0

    def audit(event: str, details: tuple[object, ...]) -> None:
        nonlocal seen
        if event == "open":
            path, _mode, flags = details
            is_effect = isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY
            if not is_effect or not str(path).startswith(folder):
                return
        elif event not in EFFECTS:
            return
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.dont_write_bytecode = True
    sys.addaudithook(audit)
    sys.exit(run(arguments, os.environ, account))


if __name__ == "__main__":
    main()
