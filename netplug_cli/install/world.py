"""What the installer acts through. ``netplug_backends.host.installing`` has the host, and ``wiring`` connects them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from netplug_cli.runtime.controllers import Reconciler
from netplug_core.installation.installer import BinFolder, ConfFolder, CopyProgram, WriteFile

__all__ = ["InstallHost", "PluginToken", "Programs", "Stamps"]

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
