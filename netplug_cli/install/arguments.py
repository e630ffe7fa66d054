"""The command line of the installer: where things are. What is installed is said by the environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from attrs import frozen

__all__ = ["InstallArguments", "parse_arguments"]

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
