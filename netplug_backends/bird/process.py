"""The process of BIRD: its start, its files, and the ways in which it ends.

BIRD runs in a session of its own, or as a service of systemd, and outlives the process that started it, so that
forwarding goes on while that one is replaced. Everything of it is in one folder: configuration, socket, log, and the
marker. Where the marker is, routes of the protocol ``bird`` in the kernel are ours: BIRD is started with ``-R``, and
keeps them until its peers have announced theirs again. Without ``-R`` it deletes all of them; so where there is no
marker, there must not be any, and no other program may listen where BIRD would.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field

from netplug_backends.bird.control import BirdSocket
from netplug_backends.bird.render import render
from netplug_backends.host.atomic_files import (
    OPEN_FILE_MODE,
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    find_file,
    make_folder,
    remove_file,
    replace_file,
)
from netplug_core.addressing import Address, Family
from netplug_core.clock import Clock, Deadline
from netplug_core.dataplane.bgp import BgpPlan, BgpRefused, BgpStatus, ForeignBgpDaemon
from netplug_core.errors import ConfigurationError, Unavailable
from netplug_core.log import Level, Log
from netplug_core.resources.bgp import BindMode

__all__ = ["CONFIGURATION", "MARKER", "SOCKET", "BirdDaemon", "find_bird_problem"]

CONFIGURATION: Final = "bird.conf"
SOCKET: Final = "bird.ctl"
MARKER: Final = "marker"
"""Files in the folder of a BIRD."""

_LOG: Final = "bird.log"
_PID: Final = "bird.pid"

_OPTIONS: Final = "bird.env"  # of BIRD, for its unit

_EXECUTABLE: Final = "bird"
_MANAGER: Final = "systemctl"
_FOLDERS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
_RESTART: Final = "-R"
_MAX_SOCKET_PATH: Final = 107  # bytes; sun_path of the kernel, with a last NUL
_MAX_BYTES: Final = 1 << 26
_POLL_S: Final = 0.01
_START_S: Final = 10.0
_END_S: Final = 10.0

_FAMILIES: Final = {Family.IPV4: socket.AF_INET, Family.IPV6: socket.AF_INET6}
_ANY: Final = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104  # BIRD listens there unless bindMode says else
_ADVICE: Final = "stop it, or let BGPConfiguration have another listenPort, or bindMode NodeIP"
_TURN_OFF: Final = "systemctl disable --now bird"
_BIRD_ADVICE: Final = f"stop it; that of Debian's package, which starts by itself: {_TURN_OFF}"
_ROUTES_ADVICE: Final = "stop that BIRD, and remove its routes with: ip route flush proto bird"
_INSTALLED_BY: Final = "apt-get install bird2"
_NEEDED_WHERE: Final = "the node speaks BGP through it where a pool has no VXLAN, or a BGPPeer names the node"
_WANTED_BY: Final = ("multi-user.target", "network-online.target")


@define(kw_only=True)
class BirdDaemon:
    """See :class:`~netplug_core.dataplane.bgp.BgpDaemon`.

    ``count_routes`` says how many routes of the protocol ``bird`` the kernel's main table has, and ``remove_routes``
    removes them, and says how many there were. ``executable`` is the program; empty: that of ``PATH``. ``unit`` is the
    service of systemd that runs it in this folder; empty: there is none, and it is started here.
    """

    folder: str
    clock: Clock
    log: Log
    count_routes: Callable[[], int]
    remove_routes: Callable[[], int]
    executable: str = ""
    unit: str = ""
    _socket: BirdSocket = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._socket = BirdSocket(self._path(SOCKET))

    def find_status(self, *, deadline: Deadline) -> BgpStatus | None:
        """What BIRD says; None: it does not run."""
        if not self._socket.is_listening(deadline=deadline):
            return None
        return self._socket.read_status(deadline=deadline)

    def apply(self, plan: BgpPlan, *, deadline: Deadline) -> bool:
        """Let BIRD do what the plan says; an equal configuration is not read again."""
        content = render(plan, log_file=self._path(_LOG)).encode()
        if not self._socket.is_listening(deadline=deadline):
            self._start(plan, content, deadline)
            return True
        if find_file(self._path(CONFIGURATION), _MAX_BYTES) == content:
            return False
        self._write_configuration(content, lambda file: self._configure(file, deadline))
        self._write_marker()
        return True

    def _configure(self, file: str, deadline: Deadline) -> None:
        """Before the file is in its place: what is there is what BIRD has."""
        self._socket.check(file, deadline=deadline)
        self._socket.configure(file, deadline=deadline)

    def pause(self, *, deadline: Deadline) -> None:
        """End BIRD so that its routes stay, here and at the peers."""
        self._end("graceful restart", deadline)

    def stop(self, *, deadline: Deadline) -> None:
        """Withdraw everything, and end BIRD."""
        status = self.find_status(deadline=deadline)
        if status is not None:
            names = [one.name for one in status.sessions] + ["gateways4", "gateways6"]
            self._socket.ask(*(f'disable "{name}"' for name in names), deadline=deadline)
            # BIRD itself leaves routes in the kernel when it ends.
            self._wait(lambda: self.count_routes() == 0, deadline.capped(_END_S), "its routes stay in the kernel")
            self._end("down", deadline)
        elif find_file(self._path(MARKER)) is not None:
            count = self.remove_routes()
            self.log(Level.INFO, "routes of a BGP daemon that runs no more are removed", count=count)
        for name in (CONFIGURATION, _LOG, f"{_LOG}.1", _PID, _OPTIONS, SOCKET, MARKER):
            remove_file(self._path(name))

    # --- start and end ------------------------------------------------------------------------------------------------

    def _start(self, plan: BgpPlan, content: bytes, deadline: Deadline) -> None:
        program = self._program()
        if len(os.fsencode(self._socket.path)) > _MAX_SOCKET_PATH:
            accepted = f"a path of at most {_MAX_SOCKET_PATH} bytes is expected"
            raise ConfigurationError("the socket of bird", self._socket.path, accepted)
        is_first = find_file(self._path(MARKER)) is None
        if is_first:
            self._require_no_other(plan)
        make_folder(self.folder, PRIVATE_FOLDER_MODE)
        self._write_configuration(content, lambda file: self._parse(program, file, deadline))
        self._write_marker()
        options = () if is_first else (_RESTART,)
        failure = self._start_unit(options, deadline) if self.unit else self._start_here(program, options, deadline)
        if failure:
            if is_first:
                remove_file(self._path(MARKER))
            raise Unavailable(_EXECUTABLE, failure)
        # It listens before it goes into the background, so what connects now is answered.
        if not self._socket.is_listening(deadline=deadline.capped(_START_S)):
            raise Unavailable(_EXECUTABLE, "it does not answer after its start")
        self.log(Level.INFO, "the BGP daemon is started", is_restart=not is_first)

    def _start_here(self, program: str, options: Sequence[str], deadline: Deadline) -> str:
        """Run it in the background; return what it says if it fails."""
        files = ("-c", self._path(CONFIGURATION), "-s", self._socket.path, "-P", self._path(_PID))
        return self._run([program, *files, *options], deadline)

    def _start_unit(self, options: Sequence[str], deadline: Deadline) -> str:
        """Let systemd run it, now and whenever it has failed; return what systemd says if it cannot."""
        self._write_options(options)
        failure = self._run([_MANAGER, "start", self.unit], deadline)
        if not failure:
            self._write_options((_RESTART,))
        return failure

    def _write_options(self, options: Sequence[str]) -> None:
        replace_file(self._path(_OPTIONS), f"BIRD_OPTIONS={' '.join(options)}\n", OPEN_FILE_MODE)

    def _parse(self, program: str, file: str, deadline: Deadline) -> None:
        refusal = self._run([program, "-p", "-c", file], deadline)
        if refusal:
            raise BgpRefused(refusal)

    def _end(self, command: str, deadline: Deadline) -> None:
        if self._socket.is_listening(deadline=deadline):
            self._socket.end(command, deadline=deadline.capped(_END_S))

    def _wait(self, is_so: Callable[[], bool], deadline: Deadline, problem: str) -> None:
        while not is_so():
            if deadline.has_passed:
                raise Unavailable(_EXECUTABLE, problem)
            self.clock.sleep(_POLL_S)

    def _run(self, command: Sequence[str], deadline: Deadline) -> str:
        """Run the program; return what it says if it fails. BIRD goes into the background by itself."""
        try:
            ended = subprocess.run(
                command,
                check=False,
                capture_output=True,
                cwd="/",
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                timeout=max(_POLL_S, deadline.capped(_START_S).remaining_s),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(_EXECUTABLE, str(error)) from error
        if ended.returncode == 0:
            return ""
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {ended.returncode}"

    def _program(self) -> str:
        found = self.executable or _find_program()
        if found is None:
            raise ConfigurationError("the BGP daemon", _EXECUTABLE, "the program is not on this host: install bird2")
        return found

    # --- others -------------------------------------------------------------------------------------------------------

    def _require_no_other(self, plan: BgpPlan) -> None:
        """No other daemon speaks BGP here: BIRD would delete the routes of another one, and could not listen."""
        for family in Family:
            own = plan.find_address(family)
            listener = None if own is None else self._find_listener(own, plan)
            if listener is not None:
                raise ForeignBgpDaemon(f"another program listens on {listener}", _ADVICE)
        other = _find_other_bird()
        if other is not None:
            raise ForeignBgpDaemon(f"another BIRD runs here, process {other}", _BIRD_ADVICE)
        count = self.count_routes()
        if count:
            raise ForeignBgpDaemon(f"the main table has {count} routes of the protocol bird", _ROUTES_ADVICE)

    def _find_listener(self, own: Address, plan: BgpPlan) -> str | None:
        """Where another program listens that BIRD would listen on too; None: there is none."""
        host = str(own) if plan.bind_mode is BindMode.NODE_IP else _ANY[own.family]
        with socket.socket(_FAMILIES[own.family], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if own.family is Family.IPV6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((host, plan.listen_port))
                probe.listen(1)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return f"port {plan.listen_port} of {host}"
                raise Unavailable(_EXECUTABLE, f"port {plan.listen_port} of {host}: {error.strerror}") from error
        return None

    # --- files --------------------------------------------------------------------------------------------------------

    def _write_configuration(self, content: bytes, check: Callable[[str], None]) -> None:
        """Put a configuration into its place once BIRD has taken it; the errors are those of ``check``."""
        try:
            replace_file(self._path(CONFIGURATION), content, PRIVATE_FILE_MODE, check)
        except BgpRefused as refusal:
            # BIRD names the new file, whose name changes each time, in front of the line.
            raise BgpRefused(re.sub(r"\S*/\.netplug-\w+\.new", CONFIGURATION, refusal.text)) from None

    def _write_marker(self) -> None:
        path = self._path(MARKER)
        if find_file(path) is None:
            replace_file(path, "routes of the protocol bird are netplug's\n", OPEN_FILE_MODE)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def find_bird_problem(unit_dir: str) -> str:
    """Why BIRD could not be started on this host, with what to do; empty if nothing is in its way.

    ``unit_dir`` has the units of systemd.
    """
    if _find_program() is None:
        return f"BIRD is not on this host, and {_NEEDED_WHERE}; run: {_INSTALLED_BY} && {_TURN_OFF}"
    if any(os.path.lexists(f"{unit_dir}/{folder}.wants/bird.service") for folder in _WANTED_BY):
        return f"Debian's BIRD starts by itself on this host, and netplug starts none beside it; run: {_TURN_OFF}"
    return ""


def _find_program() -> str | None:
    return shutil.which(_EXECUTABLE) or shutil.which(_EXECUTABLE, path=_FOLDERS)


def _find_other_bird() -> int | None:
    """A process called ``bird`` in the network namespace of this thread, if one can be seen."""
    own = os.stat("/proc/thread-self/ns/net")
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            comm = find_file(f"/proc/{name}/comm")
            if comm == b"bird\n" and os.path.samestat(os.stat(f"/proc/{name}/ns/net"), own):
                return int(name)
        except OSError:  # it has ended, or is hidden
            continue
    return None
