"""Composition root of the installer: the console script ``netplug-install`` calls ``main``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from netplug_backends.host.installing import HostFolders, ProgramsOfBundle, ProgramsOfEnvironment
from netplug_backends.host.machine import HostMachine, SystemClock
from netplug_backends.kubernetes.client.access import SERVICE_ACCOUNT_FOLDER
from netplug_cli.install import InstallArguments, Installer, Programs, parse_arguments
from netplug_cli.logs import Logger
from netplug_cli.runtime.signals import StopSignals
from netplug_cli.wiring.cni import open_log_file
from netplug_cli.wiring.node_process import find_token_refresh
from netplug_core.log import Level

__all__ = ["main", "run"]


def main() -> None:
    """Run ``netplug-install``."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str], account_folder: str = SERVICE_ACCOUNT_FOLDER) -> int:
    """Install netplug on a host, or remove it; return the exit status of the process.

    ``account_folder`` has the files of the pod's service account.
    """
    found = parse_arguments(arguments)
    log, machine = Logger("install", open_log_file), HostMachine()

    def report(line: str) -> None:
        log(Level.INFO, line)

    # Whatever renews the token on the node: what is installed here is kept fresh here.
    variables = {name: value for name, value in environ.items() if name != "NETPLUG_MANAGE_CNI"}
    with StopSignals() as signals:
        return Installer(
            arguments=found,
            environ=environ,
            host=HostFolders(report),
            programs=_programs(found, report),
            token=find_token_refresh(variables, log, account_folder=account_folder, conf_dir=found.conf_dir),
            find_text=machine.find_text,
            host_name=machine.host_name(),
            pod_token_file=f"{account_folder}/token",
            clock=SystemClock(),
            log=log,
            remove_network=partial(_remove_network, environ, report),
        ).run(signals.wakeup)


def _remove_network(environ: Mapping[str, str], report: Callable[[str], None]) -> None:
    # Loads what a node acts through, which an installation does not need.
    from netplug_cli.wiring.node_network import remove_network

    remove_network(environ, report)


def _programs(arguments: InstallArguments, report: Callable[[str], None]) -> Programs:
    if arguments.bundle:
        return ProgramsOfBundle(arguments.bundle, report)
    return ProgramsOfEnvironment(report, is_trusted=arguments.trusts_environment)
