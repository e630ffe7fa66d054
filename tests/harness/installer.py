"""A host as folders of a test, bundles with small programs, and ``netplug-install`` on it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from netplug_cli.wiring.install import run
from netplug_core.cni.node_socket import SOCKET_VARIABLE
from netplug_core.installation.bundle import MANIFEST, Bundle, BundleFile, render_bundle
from netplug_core.installation.installer import FILE_NAME
from tests.harness.node_process import ROOT
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["RUN", "InstalledHost", "Tree", "answer_of", "make_bundle", "make_host", "tree_of"]

RUN = "from netplug_cli.wiring.install import main; main()"
"""What Python runs as the console script does."""

_ANSWER = '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0"], "release": "%s"}'

Tree = dict[str, tuple[int, int, bytes]]
"""Mode, inode and content of what is below a folder; of a link the target, of a folder nothing."""


@frozen
class InstalledHost:
    """The folders of a host, and of an image and of what is mounted into its container, all below one folder."""

    root: Path
    environ: Mapping[str, str] = field(factory=dict)

    @property
    def bin_dir(self) -> Path:
        return self.root / "bin"

    @property
    def conf_dir(self) -> Path:
        return self.root / "net.d"

    @property
    def conflist(self) -> Path:
        return self.conf_dir / "10-netplug.conflist"

    @property
    def kubeconfig(self) -> Path:
        return self.conf_dir / FILE_NAME

    @property
    def tls(self) -> Path:
        return self.conf_dir / "netplug-tls"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def bundle(self) -> Path:
        return self.root / "image" / "bundle"

    @property
    def plugins(self) -> Path:
        return self.root / "image" / "plugins"

    @property
    def account(self) -> Path:
        return self.root / "account"

    @property
    def arguments(self) -> list[str]:
        """What names all of these folders."""
        return [
            *("--bin-dir", str(self.bin_dir), "--conf-dir", str(self.conf_dir)),
            *("--bundle", str(self.bundle), "--plugins", str(self.plugins)),
        ]

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The environment of the installer: it ends when it has installed, and knows the folders of this host."""
        own = {"SLEEP": "false", "CNI_NET_DIR": "/etc/cni/net.d", "TLS_ASSETS_DIR": str(self.secrets)}
        return {**own, "KUBERNETES_NODE_NAME": "node-1", **self.environ, **variables}

    def install(self, *arguments: str, **variables: str) -> int:
        """Run the installer in this process; its exit status."""
        return run([*self.arguments, *arguments], self.variables(variables), str(self.account))

    @property
    def log(self) -> Path:
        """The lines of the process that was started last."""
        return self.root / "install.log"

    def start(self, command: Sequence[str] = (), **variables: str) -> subprocess.Popen[bytes]:
        """Start the installer as a process, or a command that runs it with the arguments that follow."""
        whole = [*(command or (sys.executable, "-c", RUN)), *self.arguments]
        environ = {**os.environ, "PYTHONPATH": ROOT, **self.variables(variables)}
        with self.log.open("wb") as log:
            return subprocess.Popen(whole, env=environ, stderr=log, cwd=ROOT)

    def run_killed(self, number: int, *arguments: str, **variables: str) -> bool:
        """Run the installer as a process that is killed before an effect; False if it has fewer effects.

        Raises:
            AssertionError: it fails.
        """
        script = Path(__file__).with_name("processes") / "install_killer.py"
        command = [sys.executable, str(script), str(number), str(self.root), str(self.account), *arguments]
        status = self.start(command, **variables).wait(EMERGENCY_STOP_S)
        assert status in (0, -signal.SIGKILL), self.log.read_text()
        return status != 0

    def add_helper(self, name: str, content: str = "#!/bin/sh\n") -> None:
        """The image has a helper plugin."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        (self.plugins / name).write_text(content)
        (self.plugins / name).chmod(0o755)

    def mount_secrets(self, **files: str) -> None:
        """The image has certificates of etcd, as the kubelet mounts them: one link to all of them is replaced."""
        self.secrets.mkdir(exist_ok=True)
        new = self.secrets / f"..{len(list(self.secrets.iterdir()))}"
        new.mkdir()
        for name, text in files.items():
            (new / name.replace("_", "-")).write_text(text)
        (self.secrets / "..new").symlink_to(new.name)
        (self.secrets / "..new").rename(self.secrets / "..data")
        for file in new.iterdir():
            if not (self.secrets / file.name).is_symlink():
                (self.secrets / file.name).symlink_to(f"..data/{file.name}")


def make_host(folder: Path, release: str = "1.0.0") -> InstalledHost:
    """A host without netplug, and an image with a bundle and a helper plugin."""
    host = InstalledHost(folder)
    host.bin_dir.mkdir()
    host.add_helper("portmap")
    make_bundle(host.bundle, release)
    return host


def make_bundle(folder: Path, release: str, **scripts: str) -> Bundle:
    """A bundle of two shell scripts that answer VERSION with their release, or of others, by name."""
    for name in ("client", "launch"):
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        # The name of the variable is what tells the static client from programs of others.
        script = f"#!/bin/sh\n: {SOCKET_VARIABLE}\ntest -e \"${{0%/*}}\" && echo '{_ANSWER % release}'\n"
        (folder / name).write_text(scripts.get(name, script))
        (folder / name).chmod(0o755)
    (folder / "lib" / "data").write_text(release)
    (folder / "lock").touch()
    names = ("client", "launch", "lib/data", "lock")
    files = [BundleFile(name, _digest(folder / name), name in ("client", "launch")) for name in sorted(names)]
    bundle = Bundle(version=release, machine=platform.machine(), files=tuple(files))
    (folder / MANIFEST).write_bytes(render_bundle(bundle))
    return bundle


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def answer_of(program: Path) -> str:
    """The release that an executable answers with; empty if it does not answer VERSION."""
    done = subprocess.run(
        [program], env={"CNI_COMMAND": "VERSION"}, capture_output=True, text=True, check=False, timeout=EMERGENCY_STOP_S
    )
    found = re.search(r'"release": "(.*?)"', done.stdout)
    return found[1] if found else ""


def tree_of(folder: Path, *, has_inodes: bool = True) -> Tree:
    """Everything below a folder, with what tells whether it was written again."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino if has_inodes else 0, content)
    return found
