"""The environment ``/opt/netplug`` of the quick starts: what ``pip install '.[host]'`` installs, without a network.

The packages are those of the environment that runs the tests.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.node import NetnsNode

__all__ = ["ENVIRONMENT", "make_environment", "mount_environment"]

ENVIRONMENT = "/opt/netplug"

# Everything of the extra ``host``, and of the datastore etcdv3, with what it needs itself.
_PACKAGES = (
    "attr", "attrs", "cattr", "cattrs", "pluggy", "pyroute2", "click", "rich", "markdown_it", "mdurl", "pygments",
    "yaml", "typing_extensions", "etcd3", "grpc", "google", "dns", "tenacity", "six",
    "netplug_core", "netplug_backends", "netplug_cli",
)  # fmt: skip
_TOOL = f"#!{ENVIRONMENT}/bin/python\nfrom netplug_cli.wiring.ctl import main\nmain()\n"


def make_environment(folder: Path) -> Path:
    """An environment that works where ``mount_environment`` puts it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=300)
    libraries = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        for place in spec.submodule_search_locations or ():
            shutil.copytree(place, libraries / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        if spec.submodule_search_locations is None:
            assert spec.origin is not None, name
            shutil.copy(spec.origin, libraries)
    _allow_everybody_to_read(folder)
    tool = folder / "bin" / "netplugctl"
    tool.write_text(_TOOL)
    tool.chmod(0o755)
    return folder


def mount_environment(node: NetnsNode, folder: Path) -> None:
    """Put the environment where the pages have it."""
    node.run("sh", "-ec", f"mkdir -p {ENVIRONMENT}; mount --bind {folder} {ENVIRONMENT}")


def _allow_everybody_to_read(folder: Path) -> None:
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    folder.chmod(0o755)
