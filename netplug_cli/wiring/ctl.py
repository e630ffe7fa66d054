"""Composition root of ``netplugctl``; the installed console script calls ``main``.

The script is installed with and without the packages that the tool needs. So only the standard library is imported
here until it is known that they are installed.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from netplug_cli.ctl.session import Session
    from netplug_core.clock import Clock
    from netplug_core.datastore.protocol import Datastore
    from netplug_core.flows.ipam.host_local_import import HostLocalFolder
    from netplug_core.installation.cluster import Cluster
    from netplug_core.settings.model import DatastoreSettings

__all__ = ["main", "make_session", "run_command"]

_PACKAGES = ("click", "rich", "yaml")
_NO_COMMAND = ("-h", "--help", "--version")  # these load no value class, so they need none of their methods
_COLLECT_AFTER = 100_000  # new objects; Python's 700 make garbage collection 40 % of a check of 250,000 addresses


def main() -> None:
    """Run ``netplugctl`` and end this process with its exit status."""
    status = None
    with suppress(KeyboardInterrupt):  # before a command runs, or after it
        status = run_command(sys.argv[1:])
    from netplug_cli.ctl.main import INTERRUPTED, end_process

    end_process(INTERRUPTED if status is None else status)


def run_command(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status.

    Raises:
        SystemExit: packages are missing; its text says in one line which extra brings them.
    """
    gc.set_threshold(_COLLECT_AFTER, 50, 100)
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        sys.exit(f"netplugctl needs netplug[cli]: not installed here: {', '.join(missing)}")
    from netplug_cli.ctl.global_options import COMPLETE_VARIABLE
    from netplug_cli.ctl.main import run

    if argv and argv[-1] in _NO_COMMAND:
        return run(argv, make_session)
    if os.environ.get(COMPLETE_VARIABLE):
        return run(argv, _make_session_for_words)
    from netplug_cli.cni.method_cache import keep_compiled

    store_compiled = keep_compiled()
    try:
        return run(argv, make_session)
    finally:
        store_compiled()


@cache
def _make_session_for_words() -> Session:
    """The session of a shell that asks for words; most answers need none, and so no value class and its methods."""
    import atexit

    from netplug_cli.cni.method_cache import keep_compiled

    atexit.register(keep_compiled())
    return make_session()


def make_session() -> Session:
    """A run of the tool on this machine."""
    from netplug_backends.host.machine import HostMachine, SystemClock
    from netplug_cli.ctl.session import DEFAULT_CONFIG_FILE, Session
    from netplug_cli.wiring.backends import open_datastore

    return Session(
        environ=os.environ,
        open_backend=open_datastore,
        open_memory_datastore=_open_memory_datastore,
        open_backend_of_cluster=_open_cluster,
        require_trusted_environment=_require_trusted_environment,
        install_executables=_install_executables,
        uninstall_executables=_uninstall_executables,
        install_node=_install_node,
        uninstall_node=_uninstall_node,
        remove_network=_remove_network,
        find_host_problems=_find_host_problems,
        find_missing_plugins=_find_missing_plugins,
        open_host_local_folder=_open_host_local_folder,
        clock=_visible(SystemClock()),
        chance=_chance,
        new_uid=HostMachine().new_uid,
        default_config_file=DEFAULT_CONFIG_FILE,
    )


def _chance() -> float:
    import random  # only who waits for another writer draws

    return random.random()  # noqa: S311  # it spreads retries


def _visible(clock: Clock) -> Clock:
    """The clock; on a terminal long waits are shown."""
    if not sys.stderr.isatty():
        return clock
    from netplug_cli.ctl.reading import VisibleClock

    return VisibleClock(clock)


def _open_memory_datastore(clock: Clock) -> AbstractContextManager[Datastore]:
    from netplug_cli.wiring.backends import open_registry
    from netplug_core.settings.model import DatastoreSettings

    return open_registry().open_datastore("memory", DatastoreSettings(type="memory"), clock)


def _open_cluster(settings: DatastoreSettings) -> AbstractContextManager[Cluster]:
    from netplug_backends.host.machine import SystemClock
    from netplug_backends.kubernetes.installing.cluster import open_cluster

    return open_cluster(settings, SystemClock())


def _require_trusted_environment() -> None:
    from netplug_backends.host.executables import require_trusted_environment

    require_trusted_environment()


def _install_executables(bin_dir: str, client: str, report: Callable[[str], None]) -> None:
    from netplug_backends.host.executables import Client, install

    install(bin_dir, report, Client(client))


def _uninstall_executables(bin_dir: str, report: Callable[[str], None]) -> None:
    from netplug_backends.host.executables import uninstall

    uninstall(bin_dir, report)


def _install_node(bin_dir: str, unit_dir: str, report: Callable[[str], None]) -> None:
    from netplug_backends.bird.process import find_bird_problem
    from netplug_backends.host.services import install_node
    from netplug_backends.linux.nftables import find_problem

    install_node(bin_dir, unit_dir, report)
    if problem := find_problem():
        report(f"warning: the node process programs no packet filter: {problem}")
    if problem := find_bird_problem(unit_dir):
        report(f"warning: {problem}")


def _uninstall_node(bin_dir: str, unit_dir: str, report: Callable[[str], None]) -> None:
    from netplug_backends.host.services import uninstall_node

    uninstall_node(bin_dir, unit_dir, report)


def _remove_network(report: Callable[[str], None]) -> None:
    from netplug_cli.wiring.node_network import remove_network

    remove_network(os.environ, report)


def _find_host_problems(bin_dir: str) -> tuple[str, ...]:
    from netplug_backends.host.requirements import find_host_problems

    return find_host_problems(os.path.abspath(bin_dir))


def _find_missing_plugins(bin_dir: str) -> tuple[str, ...]:
    from netplug_backends.host.requirements import find_missing_plugins

    return find_missing_plugins(os.path.abspath(bin_dir))


def _open_host_local_folder(path: str) -> HostLocalFolder:
    from netplug_backends.hostlocal.ipam import NetworkFiles

    return NetworkFiles(path)


if __name__ == "__main__":
    main()
