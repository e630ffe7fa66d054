"""The systemd units of the node process: a socket and the service behind it.

``install host --node`` writes them with the path of the installed program, ``make manifests`` with an example's.
No line of the service needs a mount, network or UTS namespace of its own: it has to see those of the host, where
namespaces of pods, configured files and other IPAM plugins are.
"""

from __future__ import annotations

import re

from netplug_core.cni.node_socket import DEFAULT_SOCKET
from netplug_core.errors import ConfigurationError

__all__ = ["DEFAULT_PROGRAM", "OPTIONS_FILE", "SERVICE", "SOCKET", "UNITS", "render_units"]

SERVICE = "netplug-node.service"
SOCKET = "netplug-node.socket"

UNITS = (SOCKET, SERVICE)
"""The names of the units."""

DEFAULT_PROGRAM = "/opt/netplug/bin/netplug-node"
"""Where the program is if the package is installed as its documentation says."""

OPTIONS_FILE = "/etc/netplug/node.env"
"""Variables of the service, if the file exists. ``NETPLUG_NODE_OPTIONS`` are options of the program."""

_PLAIN_PATH = re.compile(r"/[\w/.+:@-]*", re.ASCII)

_SOCKET = """\
[Unit]
Description=Socket of the netplug node process

[Socket]
ListenStream={path}
SocketMode=0600
DirectoryMode=0755
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""

_SERVICE = """\
[Unit]
Description=netplug node process: serves the calls of the CNI plugins netplug and netplug-ipam
Requires={socket}
After={socket}
# It may fail for as long as it likes: what does not start now may start when a file has been put right.
StartLimitIntervalSec=0

[Service]
Type=notify
EnvironmentFile=-{options_file}
ExecStart={program} $NETPLUG_NODE_OPTIONS
Restart=always
RestartSec=1
# It ends the calls that it has begun, for at most 30 s, and so do IPAM plugins that it executes.
KillMode=mixed
TimeoutStopSec=45
WatchdogSec=60
# Pods get no network without it, and its memory does not grow with theirs.
OOMScoreAdjust=-900
LimitNOFILE=65536
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET
SystemCallArchitectures=native
CapabilityBoundingSet=~CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_SYS_BOOT CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_TIME

[Install]
WantedBy=multi-user.target
"""


def render_units(program: str) -> dict[str, str]:
    """The text of each unit by its name, for a program at an absolute path.

    Raises:
        ConfigurationError: the path has characters with a meaning of their own in a unit.
    """
    if not _PLAIN_PATH.fullmatch(program):
        raise ConfigurationError("program", program, "a path of letters, digits and /._+:@- is needed in a unit")
    return {
        SOCKET: _SOCKET.format(path=DEFAULT_SOCKET),
        SERVICE: _SERVICE.format(socket=SOCKET, options_file=OPTIONS_FILE, program=program),
    }
