"""The image of the nodes: its name, its time, its layers, and what keeps it from being built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netplug_cli.install import parse_arguments
from netplug_core import __version__
from netplug_core.errors import Unavailable
from netplug_core.installation.daemonset import render
from netplug_core.installation.settings import ClusterFacts
from tests.harness.installations import make_pool, read
from tools.images.build import REFERENCE, ROOT, Source, find_source
from tools.images.root import BUNDLE, HELPERS_FOLDER, PROGRAMS, find_machine, split_layers


def test_the_pods_of_the_nodes_run_what_is_in_it() -> None:
    rendered = render(read(), ClusterFacts(pools=(make_pool("10.0.0.0/16"),)), version=__version__).daemonset
    assert isinstance(rendered, dict)
    daemonset: dict[str, Any] = rendered
    pod = daemonset["spec"]["template"]["spec"]
    containers = (*pod["initContainers"], *pod["containers"])
    assert {container["image"] for container in containers} == {REFERENCE}
    assert {container["command"][0] for container in containers} == {"netplug-install", "netplug-node"}
    assert {container["command"][0] for container in containers} <= set(PROGRAMS)
    # The user of the image is not root.
    assert {container["securityContext"]["runAsUser"] for container in containers} == {0}


def test_the_installer_looks_where_the_image_has_bundle_and_helper_plugins() -> None:
    found = parse_arguments([])
    assert (found.bundle, found.plugins) == (f"/{BUNDLE}", f"/{HELPERS_FOLDER}")


def test_every_program_is_one_of_the_package() -> None:
    for module in PROGRAMS.values():
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_the_time_is_that_of_the_environment() -> None:
    assert find_source({"SOURCE_DATE_EPOCH": "1700000000"}).created == 1_700_000_000


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5"])
def test_another_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"SOURCE_DATE_EPOCH: '{text}' is not accepted"):
        find_source({"SOURCE_DATE_EPOCH": text})


def test_without_git_the_time_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH: '' is not accepted; without a commit, seconds"):
        find_source({})
    assert find_source({"SOURCE_DATE_EPOCH": "1"}) == Source(created=1, revision="")


def test_there_is_no_image_for_another_architecture() -> None:
    assert (find_machine("x86_64").name, find_machine("aarch64").name) == ("amd64", "arm64")
    with pytest.raises(Unavailable, match="one is made for x86_64 and aarch64, and this machine is riscv64"):
        find_machine("riscv64")


def test_what_changes_with_a_release_is_in_the_last_layer(tmp_path: Path) -> None:
    layers = (
        {
            "etc/passwd",
            "host",
            "opt/cni/bin/portmap",
            f"{BUNDLE}/loader",
            f"{BUNDLE}/python/lib/os.py",
            "usr/bin/python3",
        },
        {f"{BUNDLE}/packages/grpc/a.so", "opt/netplug/packages/click/a.py"},
        {
            *(f"{BUNDLE}/packages/netplug_core/a.py", "opt/netplug/packages/netplug_cli/a.py"),
            *(f"{BUNDLE}/manifest.json", f"{BUNDLE}/start.py", "usr/bin/netplug-node"),
        },
    )
    for path in set[str]().union(*layers) - {"host", "usr/bin/python3"}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "host").mkdir()
    (tmp_path / "usr/bin/python3").symlink_to("/nothing")
    assert tuple(map(set, split_layers(tmp_path))) == layers


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.images", "--output", str(tmp_path / "out")]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "now"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tools.images: SOURCE_DATE_EPOCH: 'now' is not accepted")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
