"""`tools/demo servers`: it finds the servers' programs, or says in one sentence which one is missing."""

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
