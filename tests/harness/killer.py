"""The command that runs an executable of ours and sends it a signal after one of its effects."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

__all__ = ["killer_command"]

_SCRIPT = Path(__file__).with_name("processes") / "plugin_killer.py"


def killer_command(
    executable: str, *, stop_at: int, effects_file: str, sent: signal.Signals = signal.SIGKILL
) -> tuple[str, ...]:
    """The command. ``stop_at`` is the number of the effect, from 1; 0 is never. Each effect is a line of the file."""
    return (sys.executable, "-IS", str(_SCRIPT), str(stop_at), effects_file, executable, sent.name)
