"""BIRD passes the suite of BGP daemons, and takes every configuration that is rendered."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.bird.render import render
from netplug_core.testing.bgp_checks import BGP_CHECKS, BgpCheck
from tests.harness.bgp import PLANS
from tests.harness.bird import BirdHarness, find_bird, open_bird_nodes

pytestmark = pytest.mark.netns


@pytest.fixture
def harness() -> Iterator[BirdHarness]:
    with open_bird_nodes(2) as nodes:
        made = BirdHarness(nodes)
        yield made
        made.close()


@pytest.mark.parametrize("check", BGP_CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: BgpCheck, harness: BirdHarness) -> None:
    check(harness)


@pytest.mark.parametrize("name", PLANS)
def test_every_rendered_configuration_is_one(name: str, tmp_path: Path) -> None:
    file = tmp_path / "bird.conf"
    file.write_text(render(PLANS[name], log_file=f"{tmp_path}/bird.log"))
    parsed = subprocess.run([find_bird(), "-p", "-c", str(file)], check=False, capture_output=True, text=True)
    assert (parsed.returncode, parsed.stderr) == (0, "")
