"""What the node process says to systemd when that has started it as a service of type notify.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

from netplug_core.log import Level, Log

__all__ = ["ServiceManager"]

_MICROSECONDS = 1_000_000


class ServiceManager:
    """A service manager that listens at ``address``; nothing is sent to an empty one.

    ``watchdog_s``: it kills a process that has not said for so many seconds that it lives; None: it does not.
    """

    def __init__(self, address: str, watchdog_s: float | None, log: Log) -> None:
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._log = log
        self._cause = ""

    @classmethod
    def find(cls, environ: MutableMapping[str, str], log: Log) -> ServiceManager:
        """The one that the environment names. Its variables are removed, so that no program of a call gets them."""
        address, microseconds = environ.pop("NOTIFY_SOCKET", ""), environ.pop("WATCHDOG_USEC", "")
        is_mine = environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_number = microseconds.isascii() and microseconds.isdigit() and int(microseconds) > 0
        watchdog_s = int(microseconds) / _MICROSECONDS if address and is_number and is_mine else None
        return cls(address, watchdog_s, log)

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def notify(self, *assignments: str) -> None:
        """Send assignments, such as ``READY=1``. A failure is logged once, until it is another one."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(0)
                sender.connect(self._address)
                sender.send("\n".join(assignments).encode())
        except OSError as error:
            cause = error.strerror or str(error)
            if cause != self._cause:
                self._log(Level.WARNING, "the service manager cannot be notified", cause=cause)
            self._cause = cause
        else:
            self._cause = ""
