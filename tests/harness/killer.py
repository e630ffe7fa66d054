"""The command that runs an executable of ours and sends it a signal after one of its effects."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

__all__ = ["killer_command", "node_process_killer"]

_NODE_PROCESS = Path(__file__).parents[2] / "netplug_cli" / "wiring" / "node.py"
_SCRIPT = Path(__file__).with_name("processes") / "plugin_killer.py"


def killer_command(
    executable: str, *, stop_at: int, effects_file: str, sent: signal.Signals = signal.SIGKILL
) -> tuple[str, ...]:
    """The command. ``stop_at`` is the number of the effect, from 1; 0 is never. Each effect is a line of the file."""
    return (sys.executable, "-IS", str(_SCRIPT), str(stop_at), effects_file, executable, sent.name)


def node_process_killer(*, stop_at: int, effects_file: str) -> tuple[str, ...]:
    """What Python runs as a node process that is killed after the effect of that number; see ``killer_command``."""
    return (str(_SCRIPT), str(stop_at), effects_file, str(_NODE_PROCESS), signal.SIGKILL.name)
