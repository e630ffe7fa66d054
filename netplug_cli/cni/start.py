"""The entry point that launchers of releases up to 3.33.0 name; they stay on a host until they are written again."""

from __future__ import annotations

from importlib import import_module

__all__ = ["start"]


def start() -> int:
    """Serve one call of a runtime; return the exit status of the process."""
    # By name: the file on the host selects the composition root, this room does not depend on it.
    status: int = import_module("netplug_cli.wiring.cni").main()
    return status
