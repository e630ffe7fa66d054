"""What the installer does: it reads and checks everything, then changes the host step by step, then stays if asked to.

``netplug_core.installation.installer`` has the order. A failure is one line and a status; what has been done until then
stays, because a host without the last step is as it was for the container runtime.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, assert_never

from attrs import define, frozen

from netplug_cli.install.arguments import InstallArguments
from netplug_cli.install.certificates import CertificateRefresh
from netplug_cli.install.world import InstallHost, PluginToken, Programs, Stamps
from netplug_cli.runtime.controllers import Runtime
from netplug_core.clock import Clock
from netplug_core.errors import ConfigurationError, NetplugError
from netplug_core.installation.installer import (
    BUILT_IN,
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

__all__ = ["Installer"]

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

    ``pod_token_file`` is the file with the pod's own token, and ``host_name`` the machine's name.
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
