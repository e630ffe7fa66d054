"""What a host lacks for BIRD, in words."""

from pathlib import Path

import pytest

from netplug_backends.bird import process
from netplug_backends.bird.process import find_bird_problem


@pytest.fixture
def bird(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a host has BIRD, if it has it."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(process, "_FOLDERS", str(tmp_path))
    return tmp_path / "bird"


def test_a_host_without_bird(bird: Path, tmp_path: Path) -> None:
    assert find_bird_problem(str(tmp_path)) == (
        "BIRD is not on this host, and the node speaks BGP through it where a pool has no VXLAN, or a BGPPeer names "
        "the node; run: apt-get install bird2 && systemctl disable --now bird"
    )
    bird.touch(mode=0o755)
    assert find_bird_problem(str(tmp_path)) == ""


def test_one_that_starts_by_itself(bird: Path, tmp_path: Path) -> None:
    bird.touch(mode=0o755)
    wants = tmp_path / "multi-user.target.wants"
    wants.mkdir()
    (wants / "bird.service").symlink_to("/lib/systemd/system/bird.service")
    assert find_bird_problem(str(tmp_path)) == (
        "Debian's BIRD starts by itself on this host, and netplug starts none beside it; "
        "run: systemctl disable --now bird"
    )
