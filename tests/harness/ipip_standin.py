"""A stand-in for the kernel's IPIP device, which not every kernel has: a TUN device, and this program behind it.

It wraps each packet in protocol 4 for the gateway that the kernel's route to its destination has, as the device would,
and unwraps what arrives. So gateway, ``onlink``, source and MTU of routes are tested, and not the making of the device.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
from functools import cache

__all__ = ["main"]

_SET_INTERFACE, _TUN, _NO_HEADER = 0x400454CA, 0x0001, 0x1000
_IPIP, _LARGEST = 4, 65535
_DESTINATION = slice(16, 20)


@cache
def find_gateway(destination: str) -> str:
    """The gateway of the kernel's route to an address; empty without one."""
    done = subprocess.run(["ip", "-j", "route", "get", destination], capture_output=True, check=False)
    found = json.loads(done.stdout or "[]")
    return str(found[0].get("gateway", "")) if found else ""


def main(device: str) -> None:
    """Be the device, until the process is ended."""
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _SET_INTERFACE, struct.pack("16sH22x", device.encode(), _TUN | _NO_HEADER))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, _IPIP) as wrapped:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([tun, wrapped.fileno()], [], [])
            if tun in ready:
                inner = os.read(tun, _LARGEST)
                gateway = find_gateway(socket.inet_ntoa(inner[_DESTINATION])) if inner[0] >> 4 == _IPIP else ""
                if gateway:
                    wrapped.sendto(inner, (gateway, 0))
            if wrapped.fileno() in ready:
                outer = wrapped.recv(_LARGEST)
                os.write(tun, outer[(outer[0] & 15) * 4 :])


if __name__ == "__main__":
    main(sys.argv[1])
