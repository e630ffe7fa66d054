"""The node process, its BIRD and the controllers as services of systemd: programs, units, and their removal."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from netplug_backends.host.atomic_files import OPEN_FILE_MODE, PROGRAM_MODE, find_file, remove_file
from netplug_backends.host.executables import (
    compile_package,
    install_file,
    last_error_line,
    readable_by_all,
    render_launcher,
)
from netplug_core.cni.node_socket import DEFAULT_SOCKET
from netplug_core.errors import ConfigurationError, Unavailable

__all__ = [
    "BIRD_SERVICE", "CONTROLLERS_SERVICE", "DEFAULT_PROGRAM", "OPTIONS_FILE", "PROGRAM", "SERVICE", "SOCKET", "UNITS",
    "install_node", "render_controllers_unit", "render_units", "uninstall_node",
]  # fmt: skip


# --- units -----------------------------------------------------------------------------------------------------------


SERVICE = "netplug-node.service"
SOCKET = "netplug-node.socket"
BIRD_SERVICE = "netplug-bird.service"

CONTROLLERS_SERVICE = "netplug-controllers.service"
"""The controllers, on one or two machines of a cluster without an orchestrator. ``install host`` installs none."""

UNITS = (SOCKET, SERVICE, BIRD_SERVICE)
"""The names of the units. The last one is never enabled: the node process starts it."""

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
Environment=NETPLUG_BGP_UNIT={bird}
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

_BIRD_SERVICE = """\
[Unit]
Description=BIRD of the netplug node process: speaks BGP with other nodes and with routers
# The node process starts it where BGP is needed, and has written its configuration before.
ConditionPathExists=/run/netplug/bird/bird.conf
StartLimitIntervalSec=0

[Service]
Type=forking
PIDFile=/run/netplug/bird/bird.pid
# Once it runs, -R is there: started again, it keeps its routes until its peers have announced theirs.
EnvironmentFile=-/run/netplug/bird/bird.env
ExecStart=/usr/sbin/bird -c /run/netplug/bird/bird.conf -s /run/netplug/bird/bird.ctl -P /run/netplug/bird/bird.pid \
  $BIRD_OPTIONS
# Peers keep the routes of this node meanwhile. SIGTERM would withdraw them all at once.
ExecStop=-/usr/sbin/birdc -s /run/netplug/bird/bird.ctl graceful restart
KillMode=process
KillSignal=SIGKILL
# The node process ends it with success where BGP is not needed any more.
Restart=on-failure
RestartSec=1
OOMScoreAdjust=-900
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW
"""


_CONTROLLERS = """\
[Unit]
Description=netplug controllers: keep the records of the cluster in order
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
# Nothing is copied: there is no orchestrator. A file with settings wins.
Environment=DATASTORE_TYPE=etcdv3 ENABLED_CONTROLLERS=node
EnvironmentFile=-/etc/netplug/controllers.env
ExecStart={program} $NETPLUG_CONTROLLERS_OPTIONS
Restart=always
RestartSec=5
# It finishes the write that it has begun, and lets the next one act.
KillMode=mixed
TimeoutStopSec=45
DynamicUser=yes
ProtectSystem=strict
ProtectHome=yes
PrivateDevices=yes
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
CapabilityBoundingSet=

[Install]
WantedBy=multi-user.target
"""


def render_controllers_unit(program: str) -> str:
    """The text of the unit of the controllers; errors are those of ``render_units``."""
    _require_plain(program)
    return _CONTROLLERS.format(program=program)


def render_units(program: str) -> dict[str, str]:
    """The text of each unit by its name, for a program at an absolute path.

    Raises:
        ConfigurationError: the path has characters with a meaning of their own in a unit.
    """
    _require_plain(program)
    return {
        SOCKET: _SOCKET.format(path=DEFAULT_SOCKET),
        SERVICE: _SERVICE.format(socket=SOCKET, bird=BIRD_SERVICE, options_file=OPTIONS_FILE, program=program),
        BIRD_SERVICE: _BIRD_SERVICE,
    }


def _require_plain(program: str) -> None:
    if not _PLAIN_PATH.fullmatch(program):
        raise ConfigurationError("program", program, "a path of letters, digits and /._+:@- is needed in a unit")


# --- node service ----------------------------------------------------------------------------------------------------


PROGRAM = "netplug-node"

_CALL = "from netplug_cli.wiring.node import main; main()"
_LIBRARY = "prometheus_client"  # of the node process alone; the others are compiled with the executables
_HEAD = "# Written by `netplugctl install host --node`; for changes of yours: systemctl edit.\n"
_RUNNING_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_TRIAL_TIMEOUT_S = 60.0
_ENABLED = (SOCKET, SERVICE)


def install_node(bin_dir: str, unit_dir: str, report: Callable[[str], None]) -> None:
    """Write the program and its units, and report what to run next.

    Raises:
        ConfigurationError: a unit of that name was not written by this, or a path cannot be used.
        Unavailable: a library is missing, a folder cannot be written, or the program does not run.
    """
    program = Path(bin_dir).absolute() / PROGRAM
    units = {Path(unit_dir) / name: _HEAD + text for name, text in render_units(str(program)).items()}
    for unit in units:
        if _find_text(unit) not in ("", None) and not _is_ours(unit):
            raise ConfigurationError("unit", str(unit), "it was not written by netplugctl; remove it first")
    with readable_by_all():
        compile_package(_LIBRARY, report)
        install_file(program, render_launcher(_CALL), PROGRAM_MODE, _find_problem)
        report(f"installed {program}")
        for unit, text in units.items():
            install_file(unit, text.encode(), OPEN_FILE_MODE)
            report(f"installed {unit}")
    names = " ".join(_ENABLED)
    where = "next" if _is_systemd_running() else "systemd does not run here; where it does"
    report(f"{where}: systemctl daemon-reload; systemctl enable {names}; systemctl restart {SERVICE}")


def uninstall_node(bin_dir: str, unit_dir: str, report: Callable[[str], None]) -> None:
    """Remove the program, its units and the links that enable them; what is not ours is kept and reported.

    Raises:
        Unavailable: a file cannot be removed.
    """
    program = Path(bin_dir) / PROGRAM
    _remove(program, report, is_ours=_CALL in (_find_text(program) or ""))
    units = [Path(unit_dir) / name for name in UNITS]
    removed = [_remove(unit, report, is_ours=_is_ours(unit)) for unit in units]
    if not any(removed):
        return
    for link in _enabling_links(Path(unit_dir)):
        _remove(link, report, is_ours=True)
    if _is_systemd_running():
        report(f"next: systemctl stop {' '.join(_ENABLED)}; systemctl daemon-reload")


def _find_problem(program: Path) -> str:
    """Why the program does not load what it needs; empty if it does."""
    try:
        process = subprocess.run(
            [program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_TRIAL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if process.returncode == 0 and PROGRAM.encode() in process.stdout else last_error_line(process)


def _is_ours(unit: Path) -> bool:
    return (_find_text(unit) or "").startswith(_HEAD)


def _is_systemd_running() -> bool:
    return os.path.isdir(_RUNNING_SYSTEMD)


def _find_text(file: Path) -> str | None:
    """The text of a file; None if there is none."""
    try:
        content = find_file(str(file))
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    return None if content is None else content.decode(errors="replace")


def _enabling_links(unit_dir: Path) -> Iterator[Path]:
    """The links that ``systemctl enable`` makes."""
    for name in UNITS:
        links = (folder / name for folder in sorted(unit_dir.glob("*.wants")))
        yield from (link for link in links if link.is_symlink())


def _remove(file: Path, report: Callable[[str], None], *, is_ours: bool) -> bool:
    """Remove a file of ours; whether it was there."""
    if not file.is_symlink() and not file.exists():
        return False
    if not is_ours:
        report(f"left alone, not written by netplugctl: {file}")
        return False
    try:
        remove_file(str(file))
    except OSError as error:
        raise Unavailable(str(file), error.strerror or str(error)) from error
    report(f"removed {file}")
    return True
