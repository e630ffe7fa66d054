"""The Makefile: it lists what it has, says what a missing server means, and lint hides no tool behind another."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness.servers import binaries

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def made(folder: Path, *arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """What `make` says in a folder; nothing of a make that runs these tests reaches it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", "-f", str(MAKEFILE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ | {"CI": ci})


def test_help_lists_every_target_for_people(tmp_path: Path) -> None:
    (targets,) = re.findall(r"^\.PHONY: (help .*)$", MAKEFILE.read_text(), re.MULTILINE)
    listed = [name for line in made(tmp_path, "help").stdout.splitlines() for name in line[:14].split()]
    assert sorted(listed) == sorted(targets.split())


@pytest.mark.parametrize("target", ["test", "integration"])
@pytest.mark.parametrize(
    "ci, outcome",
    [
        ("", "are skipped"),
        ("false", "are skipped"),
        ("true", "fail: CI=true allows no skip"),
        ("True", "fail: CI=True allows no skip"),
        ("1", "fail: CI=1 allows no skip"),
    ],
)
def test_where_a_server_cannot_be_made_it_says_what_becomes_of_the_tests(
    tmp_path: Path, target: str, ci: str, outcome: str
) -> None:
    assert f"'tests that need what is missing {outcome}'" in made(tmp_path, "-n", target, ci=ci).stdout


def test_what_needs_a_server_waits_while_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_SERVERS", tmp_path)
    building = subprocess.Popen(
        ["flock", str(tmp_path / ".lock"), "sh", "-c", "echo locked; read go; touch etcd-new; chmod +x etcd-new"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert building.stdin is not None
    assert building.stdout is not None
    assert building.stdout.readline() == "locked\n"
    monkeypatch.setenv("NETPLUG_ETCD", "etcd-new")
    with ThreadPoolExecutor() as pool:
        found = pool.submit(binaries.find_etcd_binary)
        building.communicate("go\n")
        assert found.result() == str(tmp_path / "etcd-new")


@pytest.mark.parametrize("code", [0, 1])
def test_the_tests_run_beside_the_build_and_their_outcome_counts(checkout: Path, code: int) -> None:
    """Also where no server could be made."""
    for name, exit_code in (("tools/servers", 1), (".venv/bin/python", code)):
        (checkout / name).write_text(f"#!/bin/sh\necho ran {name}\nexit {exit_code}\n")
        (checkout / name).chmod(0o700)
    ended = made(checkout, "integration")
    assert ended.returncode == 2 * code
    assert {"ran tools/servers", "ran .venv/bin/python"} <= set(ended.stdout.splitlines())


STEPS = ["ruff format --check .", "ruff check .", "mypy --strict", "pyright", "lint-imports", "python -m sphinx"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with tools that say that they ran, and succeed unless a file with their name and `.fails` is there."""
    linters = ("ruff", "mypy", "pyright", "lint-imports", "python")
    programs = ["tools/prepare", *(f".venv/bin/{name}" for name in linters)]
    for program in programs:
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "ran {path.name} $*"\ntest ! -e {path.name}.fails\n')
        path.chmod(0o700)
    shutil.copy(MAKEFILE, tmp_path)
    return tmp_path


def ran(said: str) -> list[str]:
    return [step for step in STEPS if f"\nran {step}" in said]


def test_lint_runs_its_six_tools(checkout: Path) -> None:
    linted = made(checkout, "lint")
    assert (linted.returncode, ran(linted.stdout)) == (0, STEPS)


@pytest.mark.parametrize("tool", ["ruff", "mypy", "pyright", "lint-imports", "python"])
def test_lint_runs_all_of_them_when_one_fails_and_fails_at_the_end(checkout: Path, tool: str) -> None:
    (checkout / f"{tool}.fails").touch()
    linted = made(checkout, "lint")
    assert (linted.returncode, ran(linted.stdout)) == (2, STEPS)


def test_lint_runs_nothing_where_nothing_could_be_prepared(checkout: Path) -> None:
    (checkout / "prepare.fails").touch()
    linted = made(checkout, "lint")
    assert (linted.returncode, ran(linted.stdout)) == (2, [])
