"""Where the node process and its clients meet. What the bytes on the socket mean is in ``wire``.

Nothing is imported here: a process that restarts listens before it loads its libraries. The two clients of the
executables repeat both texts (``netplug_cli.cni``), because they import nothing.
"""

from __future__ import annotations

__all__ = ["DEFAULT_SOCKET", "SOCKET_VARIABLE"]

DEFAULT_SOCKET = "/run/netplug/node.sock"
"""Where the node process listens, and where clients look for it."""

SOCKET_VARIABLE = "NETPLUG_NODE_SOCKET"
"""The variable that names another socket to a client. Empty: no node process is asked."""
