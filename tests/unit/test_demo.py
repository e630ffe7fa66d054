"""`tools/demo`: it finds the servers' programs, or says which one is missing; the lab goes, or is kept."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "tools" / "demo"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script, an etcd in its PATH, and a `tools/servers` that makes nothing."""
    for program in ("tools/servers", "programs/etcd"):
        path = tmp_path / "checkout" / program
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    shutil.copy(DEMO, tmp_path / "checkout" / "tools")
    return tmp_path / "checkout"


def found(checkout: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{checkout / 'programs'}:{os.environ['PATH']}"}
    command = [str(checkout / "tools" / "demo"), "servers"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_without_an_api_server_it_says_so_and_links_nothing(checkout: Path, folder: str) -> None:
    if folder == "empty":
        (checkout / ".cache" / "servers").mkdir(parents=True)
    refused = found(checkout)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "error: .cache/servers has no kube-apiserver: make it with tools/servers\n"
    assert sorted(path.name for path in (checkout / ".cache" / "demo").iterdir()) == ["etcd"]


def test_the_newest_api_server_is_taken_also_from_a_folder_that_is_a_link(checkout: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for version in ("v1.9.0", "v1.36.3", "v1.35.4"):
        (shared / f"kube-apiserver-{version}").touch()
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / "servers").symlink_to(shared)
    done = found(checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (checkout / ".cache" / "demo" / "kube-apiserver").resolve() == shared / "kube-apiserver-v1.36.3"


@pytest.mark.parametrize(
    "keep, commands",
    [("", ["lab up --nodes 2", "lab status", "lab down"]), ("1", ["lab up --nodes 2", "lab status"])],
)
def test_the_lab_is_taken_down_unless_it_is_to_be_kept(checkout: Path, keep: str, commands: list[str]) -> None:
    """With programs that only say what they are called with: as root, in namespaces that can be made."""
    tool = checkout / ".venv" / "bin" / "netplugctl"
    for path, text in (
        (tool, "#!/bin/sh\n"),
        (checkout / "programs" / "unshare", "#!/bin/sh\n"),
        (checkout / "programs" / "id", "#!/bin/sh\necho 0\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    environ = {"PATH": f"{checkout / 'programs'}:{os.environ['PATH']}", "KEEP": keep}
    done = subprocess.run([checkout / "tools" / "demo"], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, "")
    called = [
        line.partition("netplugctl ")[2] for line in done.stdout.splitlines() if line.startswith("==> netplugctl")
    ]
    assert called == commands
    assert (f"{tool} lab down takes it down" in done.stdout) is bool(keep)
