"""What the installer does: it reads and checks everything, then changes the host step by step, then stays if asked to.

``netplug_core.installation.installer`` has the order. A failure is one line and a status; what has been done until then
stays, because a host without the last step is as it was for the container runtime.
"""

from __future__ import annotations

import argparse
import select
import socket
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol, TypeAlias, assert_never

from attrs import define, field, frozen

from netplug_cli.runtime.controllers import Reconciler, Runtime
from netplug_core.clock import Clock, Deadline
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.installation.installer import (
    BUILT_IN,
    BinFolder,
    ConfFolder,
    Conflist,
    CopyProgram,
    HostFacts,
    InstallerSettings,
    InstallPrograms,
    NoWritableFolder,
    RemoveFile,
    RenewKubeconfig,
    Step,
    WriteFile,
    fill_conflist,
    find_warnings,
    helper_names,
    plan_install,
    plan_removal,
    plan_tls,
    read_installer_settings,
    require_filled,
    usable_folders,
)
from netplug_core.log import Level, Log
from netplug_core.reconcile.controller import Backoff, Controller, Plan, Problem, Timing, Unfinished

__all__ = [
    "LOOK_EVERY_S", "CertificateRefresh", "InstallArguments", "InstallHost", "Installer", "PluginToken", "Programs",
    "Stamps", "parse_arguments",
]  # fmt: skip


# --- the command line ------------------------------------------------------------------------------------------------

_BIN_DIRS = ("/host/opt/cni/bin", "/host/secondary-bin-dir")
_CONF_DIR = "/host/etc/cni/net.d"
_PLUGINS = "/opt/cni/bin"
_BUNDLE = "/opt/netplug/bundle"


@frozen(kw_only=True)
class InstallArguments:
    """The folders of the host as this process sees them, and those of the image.

    ``bundle`` is empty if the executables run in the environment of this process. ``trusts_environment``:
    users other than root may write it. ``removes``: netplug is taken off the host.
    """

    bin_dirs: tuple[str, ...]
    conf_dir: str
    plugins: str
    bundle: str
    trusts_environment: bool
    removes: bool


def parse_arguments(arguments: Sequence[str]) -> InstallArguments:
    """The arguments; a mistake ends the process with status 2."""
    parser = argparse.ArgumentParser(
        prog="netplug-install",
        description="Put the executables, the kubeconfig and the network configuration of netplug onto a host.",
    )
    _add_folders(parser)
    parser.add_argument(
        "--environment",
        action="store_true",
        help="no bundle: install executables that run in the Python environment of this program, on this host",
    )
    parser.add_argument(
        "--trust-environment",
        action="store_true",
        help="install from an environment that a user other than root may write",
    )
    parser.add_argument("--uninstall", action="store_true", help="take netplug off the host")
    found = parser.parse_args(arguments)
    return InstallArguments(
        bin_dirs=tuple(found.bin_dir or _BIN_DIRS),
        conf_dir=found.conf_dir,
        plugins=found.plugins,
        bundle="" if found.environment else found.bundle,
        trusts_environment=found.trust_environment,
        removes=found.uninstall,
    )


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bin-dir",
        action="append",
        metavar="DIR",
        help=f"the host's folder for plugins; more than one may be named (default: {' and '.join(_BIN_DIRS)})",
    )
    parser.add_argument(
        "--conf-dir",
        default=_CONF_DIR,
        metavar="DIR",
        help="the host's folder for network configurations (default: %(default)s)",
    )
    parser.add_argument(
        "--plugins", default=_PLUGINS, metavar="DIR", help="copy the helper plugins in DIR, too (default: %(default)s)"
    )
    parser.add_argument(
        "--bundle",
        default=_BUNDLE,
        metavar="DIR",
        help="install the interpreter, the libraries and the executables in DIR (default: %(default)s)",
    )


# --- certificates ----------------------------------------------------------------------------------------------------


LOOK_EVERY_S = 0.5
"""The pause between two looks at certificates."""

_NOT_COPIED = "the certificates of etcd are not copied"


@frozen
class _Copy:
    """The certificates have changed to these stamps, and are to be copied."""

    stamps: Hashable


@define(kw_only=True)
class CertificateRefresh:
    """``copy`` copies all that differ. ``find_stamps`` is what changes with them; ``copied`` was found before a copy.

    The kubelet changes all of them at once, by replacing one link. A change counts once two looks in a row see it.
    """

    copy: Callable[[], None]
    find_stamps: Callable[[], Hashable]
    copied: Hashable
    _seen: Hashable = field(default=None, init=False)

    def controller(self) -> Controller[_Copy | None, _Copy]:
        """What copies the certificates if they have changed; the next look tries again what failed."""
        return Controller(
            name="certificates of etcd",
            observe=self._find_change,
            plan=lambda change: Plan(actions=(change,) if change else (), look_again_s=LOOK_EVERY_S),
            act=self._copy,
            failure=_NOT_COPIED,
            timing=Timing(backoff=Backoff(first_s=LOOK_EVERY_S, longest_s=10 * LOOK_EVERY_S)),
        )

    def _find_change(self, _deadline: Deadline) -> _Copy | None:
        stamps = self.find_stamps()
        has_settled, self._seen = stamps == self._seen, stamps
        return _Copy(stamps) if has_settled and stamps != self.copied else None

    def _copy(self, change: _Copy, _deadline: Deadline) -> None:
        try:
            self.copy()
        except OSError as error:
            raise Unfinished((Problem(message=_NOT_COPIED, cause=str(error), level=Level.ERROR),)) from error
        self.copied = change.stamps


# --- world -----------------------------------------------------------------------------------------------------------


Stamps: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, modification time, size and inode of files: they change with the content."""


class InstallHost(Protocol):
    """The folders of the host, and what is mounted. Every method may raise ``OSError``."""

    def lock(self, conf_dir: str) -> AbstractContextManager[None]:
        """No other installer of this host meanwhile. The folder is made if it is missing."""
        ...

    def find_bin_folder(self, path: str) -> BinFolder:
        """A folder for plugins, perhaps a missing one."""
        ...

    def read_conf_folder(self, path: str) -> ConfFolder:
        """The network configurations in a folder."""
        ...

    def read_certificates(self, folder: str) -> Mapping[str, bytes]:
        """The certificates of etcd that are in a folder, by name."""
        ...

    def find_stamps(self, folder: str) -> Stamps:
        """What changes with these certificates."""
        ...

    def list_programs(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder that may be executed."""
        ...

    def copy_program(self, step: CopyProgram) -> None:
        """Copy a helper plugin."""
        ...

    def write_file(self, step: WriteFile) -> None:
        """Write a file, whole or not at all."""
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file that may be missing."""
        ...

    def remove_programs(self, bin_dir: str) -> bool:
        """Remove our executables; whether nothing is left of what they execute."""
        ...


class Programs(Protocol):
    """The executables of ours, from a bundle or from an environment."""

    def check(self) -> None:
        """Return if they can be installed on this host, as far as can be seen beforehand.

        Raises:
            ConfigurationError, Unavailable, OSError: they cannot.
        """
        ...

    def install(self, bin_dir: str) -> None:
        """Put them into a folder for plugins; they are there as a whole, and run, or those of before stay.

        Raises:
            ConfigurationError, Unavailable, OSError: they cannot be installed.
        """
        ...


class PluginToken(Protocol):
    """What renews the token in the plugin's kubeconfig."""

    def renew_now(self) -> None:
        """Renew it.

        Raises:
            NetplugError: there is no token.
            OSError: the kubeconfig cannot be written.
        """
        ...

    def controller(self) -> Reconciler:
        """What renews it whenever it is time."""
        ...


# --- process ---------------------------------------------------------------------------------------------------------


OK: Final = 0
NOT_ACCEPTED: Final = 2
NOT_WRITABLE: Final = 3
NO_TOKEN: Final = 4
FAILED: Final = 5


class _Failed(Exception):
    """The installation ends with this status; ``cause`` says why."""

    def __init__(self, status: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.status = status


@frozen(kw_only=True)
class _Found:
    """Everything that was read before the host is changed."""

    settings: InstallerSettings
    conflist: Conflist
    certificates: Mapping[str, bytes]
    stamps: Stamps


@define(kw_only=True)
class Installer:
    """``token`` is None outside a pod. ``find_text`` is the content of a file, None if it does not exist.

    ``pod_token_file`` is the file with the pod's own token, and ``host_name`` the machine's name. ``remove_network``
    removes what connects the host with other nodes.
    """

    arguments: InstallArguments
    environ: Mapping[str, str]
    host: InstallHost
    programs: Programs
    token: PluginToken | None
    find_text: Callable[[str], str | None]
    host_name: str
    pod_token_file: str
    clock: Clock
    log: Log
    remove_network: Callable[[], None] = lambda: None

    def run(self, wakeup: socket.socket) -> int:
        """Install or uninstall, and stay until ``wakeup`` is readable if the settings say so; the exit status."""
        try:
            if self.arguments.removes:
                return self._uninstall()
            found = self._install()
        except _Failed as failure:
            self.log(Level.ERROR, str(failure))
            return failure.status
        if found.settings.stays:
            self._stay(found, wakeup)
        return OK

    # --- installation --------------------------------------------------------------------------------------------

    def _install(self) -> _Found:
        with _failing(NOT_ACCEPTED):
            found = self._read()
            self.programs.check()
        with _failing(FAILED), self.host.lock(self.arguments.conf_dir):
            for step in self._plan(found):
                self._do(step)
        self.log(Level.INFO, "netplug is installed", configuration=found.settings.conf_name)
        return found

    def _read(self) -> _Found:
        settings = read_installer_settings(self.environ)
        stamps = self.host.find_stamps(settings.tls_assets_dir)  # before the content: a change in between is seen
        certificates = self.host.read_certificates(settings.tls_assets_dir)
        facts = HostFacts(
            host_name=self.host_name,
            certificates=frozenset(certificates),
            token=(self.find_text(self.pod_token_file) or "").strip(),
        )
        template, source = self._template(settings)
        conflist = fill_conflist(template, source, settings, facts)
        require_filled(conflist, source)
        return _Found(settings=settings, conflist=conflist, certificates=certificates, stamps=stamps)

    def _template(self, settings: InstallerSettings) -> tuple[str, str]:
        """The text of the template and its name; an empty text for the built-in one."""
        if not settings.template_file:
            return settings.template, "CNI_NETWORK_CONFIG" if settings.template else BUILT_IN
        text = self.find_text(settings.template_file)
        if not text:
            problem = "it does not exist" if text is None else "it is empty"
            raise ConfigurationError("CNI_NETWORK_CONFIG_FILE", settings.template_file, problem)
        return text, settings.template_file

    def _plan(self, found: _Found) -> tuple[Step, ...]:
        settings, conf = found.settings, self.host.read_conf_folder(self.arguments.conf_dir)
        with _failing(NOT_WRITABLE):
            folders = usable_folders(map(self.host.find_bin_folder, self.arguments.bin_dirs), settings)
        for warning in find_warnings(settings, conf, found.certificates):
            self.log(Level.WARNING, warning)
        plugins = self.arguments.plugins
        helpers = {name: f"{plugins}/{name}" for name in helper_names(self.host.list_programs(plugins), settings)}
        with _failing(NOT_ACCEPTED):
            return plan_install(
                settings,
                found.conflist,
                bin_folders=folders,
                conf=conf,
                helpers=helpers,
                certificates=found.certificates,
            )

    def _do(self, step: Step) -> None:
        match step:
            case InstallPrograms():
                self.programs.install(step.bin_dir)
            case CopyProgram():
                self.host.copy_program(step)
            case WriteFile():
                self.host.write_file(step)
            case RemoveFile():
                self.host.remove_file(step.path)
            case RenewKubeconfig():
                self._renew_kubeconfig()
            case _:
                assert_never(step)

    def _renew_kubeconfig(self) -> None:
        if self.token is None:
            self.log(Level.INFO, "no kubeconfig is written, as this is no pod with a service account")
            return
        try:
            self.token.renew_now()
        except NetplugError as error:
            raise _Failed(NO_TOKEN, error) from error

    # --- what follows --------------------------------------------------------------------------------------------

    def _stay(self, found: _Found, wakeup: socket.socket) -> None:
        """Keep the copies of certificates and the kubeconfig fresh, until ``wakeup`` is readable."""
        certificates = CertificateRefresh(
            copy=lambda: self._copy_certificates(found.settings),
            find_stamps=lambda: self.host.find_stamps(found.settings.tls_assets_dir),
            copied=found.stamps,
        )
        token = () if self.token is None else (self.token.controller(),)
        runtime = Runtime((certificates.controller(), *token), clock=self.clock, log=self.log)
        runtime.start()
        select.select([wakeup], [], [])
        runtime.stop()

    def _copy_certificates(self, settings: InstallerSettings) -> None:
        for step in plan_tls(self.arguments.conf_dir, self.host.read_certificates(settings.tls_assets_dir)):
            self._do(step)

    def _uninstall(self) -> int:
        with _failing(NOT_ACCEPTED):
            settings = read_installer_settings(self.environ)
        with _failing(FAILED), self.host.lock(self.arguments.conf_dir):
            conf = self.host.read_conf_folder(self.arguments.conf_dir)
            for step in plan_removal(settings, conf):
                self._do(step)
            gone = [self.host.remove_programs(bin_dir) for bin_dir in self.arguments.bin_dirs]
            self.remove_network()
        if all(gone):
            self.log(Level.INFO, "netplug is uninstalled")
            return OK
        self.log(Level.ERROR, "calls still run from the files that are left; run it again")
        return FAILED


@contextmanager
def _failing(status: int) -> Iterator[None]:
    """Errors in here end the installation with a status; those that have one already keep it."""
    try:
        yield
    except NoWritableFolder as error:
        raise _Failed(NOT_WRITABLE, error) from error
    except (NetplugError, OSError) as error:
        raise _Failed(status, error) from error
