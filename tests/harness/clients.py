"""The clients of the node process as files on a host, each beside a program that stands for the standalone one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen

import netplug_cli
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = [
    "ClientResult",
    "InstalledClient",
    "StandaloneCall",
    "compile_client",
    "install_python_client",
    "install_static_client",
]

STANDALONE_STATUS = 7

# It stands for the composition root, and reports how it was called.
_RECORDER = f"""
import json, os, sys

def main(stdin=None, *, is_resumed=False):
    flags = sys.argv[1:]
    if "--resume" in flags:
        flags.remove("--resume")
        is_resumed = True
    try:
        text = os.fsdecode(sys.stdin.buffer.read() if stdin is None else stdin)
    except AttributeError:
        text = None
    name = os.path.basename(sys.argv[0]).removesuffix("-standalone")
    call = dict(name=name, flags=flags, is_resumed=is_resumed, stdin=text, environ=dict(os.environ))
    sys.stdout.write(json.dumps(call))
    sys.stdout.flush()
    return {STANDALONE_STATUS}
"""


@frozen(kw_only=True)
class StandaloneCall:
    """How the standalone program was called."""

    name: str = "netplug"
    flags: tuple[str, ...] = ()
    is_resumed: bool = False
    stdin: bytes | None
    environ: Mapping[bytes, bytes]


@frozen
class ClientResult:
    """How a call of a client ended."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def standalone_call(self) -> StandaloneCall:
        """The call of the standalone program, which this client went on to."""
        assert (self.status, self.stderr) == (STANDALONE_STATUS, b""), self
        found = json.loads(self.stdout)
        return StandaloneCall(
            name=found["name"],
            flags=tuple(found["flags"]),
            is_resumed=found["is_resumed"],
            stdin=None if found["stdin"] is None else _bytes_of(found["stdin"]),
            environ={_bytes_of(name): _bytes_of(value) for name, value in found["environ"].items()},
        )


@frozen
class InstalledClient:
    """A folder with the executables ``netplug`` and ``netplug-ipam`` of one client."""

    folder: Path

    def run(self, environ: Mapping[bytes, bytes], stdin: bytes, *flags: str, name: str = "netplug") -> ClientResult:
        """Call an executable as a runtime does."""
        done = subprocess.run(
            [self.folder / name, *flags],
            input=stdin,
            env=environ,
            capture_output=True,
            timeout=EMERGENCY_STOP_S,
            check=False,
        )
        return ClientResult(done.returncode, done.stdout, done.stderr)


def install_python_client(folder: Path, *, take_s: float, reply_s: float) -> InstalledClient:
    """The Python client, with these times."""
    libraries = make_libraries(folder / "lib")
    times = f"client.TAKE_S, client.REPLY_S = {take_s}, {reply_s}"
    for name in ("netplug", "netplug-ipam"):
        file = folder / name
        file.write_text(
            f"#!{sys.executable} -IS\nimport sys; sys.path.extend([{str(libraries)!r}])\n"
            f"from netplug_cli.cni import client; {times}; client.main()\n"
        )
        file.chmod(0o755)
    return InstalledClient(folder)


def install_static_client(folder: Path, *, take_s: float, reply_s: float) -> InstalledClient:
    """The static client, with these times and with checks of every access to memory."""
    libraries = make_libraries(folder / "lib")
    times = (f"-DTAKE_MS={int(take_s * 1000)}", f"-DREPLY_MS={int(reply_s * 1000)}")
    compile_client(folder / "netplug", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *times)
    shutil.copy(folder / "netplug", folder / "netplug-ipam")
    for name in ("netplug-standalone", "netplug-ipam-standalone"):
        file = folder / name
        file.write_text(
            f"#!{sys.executable} -IS\nimport os, sys; sys.path.extend([{str(libraries)!r}])\n"
            "from netplug_cli.wiring.cni import main; os._exit(main())\n"
        )
        file.chmod(0o755)
    return InstalledClient(folder)


def compile_client(target: Path, *flags: str) -> None:
    """Compile the static client; a warning is an error. Without a compiler, the test is skipped."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
    source = Path(netplug_cli.__file__).parent / "cni/static/netplug.c"
    subprocess.run(
        [compiler, "-std=c11", *warnings, *flags, "-o", target, source], check=True, timeout=EMERGENCY_STOP_S
    )


def make_libraries(folder: Path) -> Path:
    """A folder with the client's modules, and the program that reports how it was called."""
    package, ours = folder / "netplug_cli", Path(netplug_cli.__file__).parent
    (package / "cni").mkdir(parents=True)
    for name in ("__init__.py", "cni/__init__.py", "cni/client.py"):
        (package / name).symlink_to(ours / name)
    (package / "wiring").mkdir()
    (package / "wiring/__init__.py").write_text("")
    (package / "wiring/cni.py").write_text(_RECORDER)
    return folder


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
