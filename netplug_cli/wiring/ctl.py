"""What the console script ``netplugctl`` calls, which is installed with and without the packages that the tool uses.

So nothing but the standard library is loaded here before it is known that they are there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

_PACKAGES = ("click", "rich", "yaml")


def main() -> None:
    """Run ``netplugctl``, or say in a line which extra brings what it lacks."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        sys.exit(f"netplugctl needs netplug[cli]: not installed here: {', '.join(missing)}")
    from netplug_cli.ctl.main import main as run

    run()
