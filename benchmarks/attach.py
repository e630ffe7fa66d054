"""ADD and DEL of netplug beside ``ptp`` with ``host-local``, interleaved round by round.

Run as root; everything happens in network and mount namespaces of its own, which end with the process. A third row is
a process that only imports the libraries that netplug's configuration names: what Python itself asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Sample, Series, report, run

_INSIDE = "NETPLUG_BENCHMARK_INSIDE"
_DEBIAN_PLUGINS = "/usr/lib/cni"
_LIBRARIES = "import attrs, cattrs, pluggy, json, sqlite3"
_WARMUP = 3


def measure(rounds: int) -> None:
    """Measure that many rounds and print.

    Raises:
        SystemExit: something that it takes is missing, or a plugin failed.
    """
    if os.geteuid() != 0:
        raise SystemExit("attach needs root: it makes network namespaces")
    if not Path(_DEBIAN_PLUGINS, "ptp").exists():
        raise SystemExit("ptp is missing: apt-get install containernetworking-plugins")
    if _INSIDE not in os.environ:
        command = ["unshare", "--net", "--mount", sys.executable, "-m", "benchmarks.attach", str(rounds)]
        if subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode:
            raise SystemExit("attach did not come to its end")
        return
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        series = _measure(Path(folder), rounds)
    print(f"{rounds} rounds after {_WARMUP} to warm up, interleaved; reference: ptp + host-local\n")
    print(report(series))


def _prepare(folder: Path) -> None:
    """A host of its own: forwarding on, namespaces kept under a private /run, the plugin and a pool in place."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    tool = [sys.executable, "-m", "netplug_cli.ctl.main"]
    environ = {**os.environ, "DATASTORE_TYPE": "sqlite", "SQLITE_PATH": str(folder / "store.db")}
    manifest = "apiVersion: projectnetplug.org/v3\nkind: IPPool\nmetadata: {name: bench}\nspec: {cidr: 10.97.0.0/20}\n"
    subprocess.run([*tool, "install", "host", "--bin-dir", str(folder / "bin")], env=environ, check=True)
    subprocess.run([*tool, "create", "-f", "-"], input=manifest, text=True, env=environ, check=True)


def _configurations(folder: Path) -> dict[str, tuple[Path, dict[str, object]]]:
    """Name to executable and network configuration, the reference first."""
    ours: dict[str, object] = {
        "cniVersion": "1.0.0",
        "name": "bench",
        "type": "netplug",
        "nodename": "bench",
        "datastore_type": "sqlite",
        "sqlite_path": str(folder / "store.db"),
        "log_level": "ERROR",
        "ipam_lock_file": str(folder / "ipam.lock"),
        "ipam": {"type": "netplug-ipam"},
    }
    reference: dict[str, object] = {
        "cniVersion": "1.0.0",
        "name": "reference",
        "type": "ptp",
        "ipam": {"type": "host-local", "subnet": "10.96.0.0/20", "dataDir": str(folder / "host-local")},
    }
    return {
        "ptp + host-local": (Path(_DEBIAN_PLUGINS, "ptp"), reference),
        "netplug, sqlite": (folder / "bin" / "netplug", ours),
    }


def _measure(folder: Path, rounds: int) -> list[Series]:
    configurations = _configurations(folder)
    found = {(name, verb): Series(name, verb) for name in configurations for verb in ("ADD", "DEL")}
    imports = Series("python, imports only", "ADD")
    for number in range(_WARMUP + rounds):
        for name, (executable, conf) in configurations.items():
            for verb, sample in _attach(executable, conf, f"c{number}"):
                if number >= _WARMUP:
                    found[name, verb].samples.append(sample)
        sample = run([sys.executable, "-IS", "-c", _with_libraries()], b"", {})
        if number >= _WARMUP:
            imports.samples.append(sample)
    return [*found.values(), imports]


def _with_libraries() -> str:
    folders = [path for path in sys.path if path.endswith("site-packages")]
    return f"import sys; sys.path.extend({folders!r}); {_LIBRARIES}"


def _attach(executable: Path, conf: dict[str, object], container: str) -> Iterator[tuple[str, Sample]]:
    """One ADD and one DEL in a namespace of their own.

    Raises:
        SystemExit: the plugin failed; a benchmark of failures would be a lie.
    """
    with _namespace(container) as path:
        environ = {
            "CNI_CONTAINERID": container,
            "CNI_NETNS": path,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": f"{executable.parent}:{_DEBIAN_PLUGINS}",
            "PATH": os.environ["PATH"],
        }
        for verb in ("ADD", "DEL"):
            sample = run([str(executable)], json.dumps(conf).encode(), {**environ, "CNI_COMMAND": verb})
            if sample.status:
                raise SystemExit(f"{executable.name} {verb} failed: {sample.output}")
            yield verb, sample


@contextmanager
def _namespace(name: str) -> Iterator[str]:
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


if __name__ == "__main__":
    measure(int(sys.argv[1]))
