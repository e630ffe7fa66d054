"""The image of the nodes, built from this checkout, with a time and a commit that are the same in every run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.images.build import ROOT, Built, Source, build_node_image

__all__ = ["SOURCE", "build_image"]

SOURCE = Source(created=1_700_000_000, revision="test")


def build_image(folder: Path) -> Built:
    """Build it into a folder, which takes minutes; the test is skipped if this machine cannot."""
    if shutil.which("cc") is None or shutil.which("apt-get") is None:
        pytest.skip("needs a C compiler and Debian's apt-get: apt-get install gcc libc6-dev")
    return build_node_image(folder, SOURCE, ROOT / ".cache" / "debian")
