"""The page that shows how to write a backend is true: its files install, pass the suite, and do what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "backends" / "your-own.md").read_text()
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))

# Few and short examples: that the page's code works, not how well; its reader runs Hypothesis' usual hundred.
QUICK = """\
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick", deadline=None, max_examples=20, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page in a folder, and beside them, in ``site``, what ``pip install .`` makes of them."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "tests" / "conftest.py").write_text(QUICK)
    target = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--target", "site", "."]
    ran = run(folder, sys.executable, "-m", "pip", "install", "-q", *target)
    assert ran.returncode == 0, ran.stderr
    return folder


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command with the installed project, and with the programs of this environment."""
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "site"),
        "PYTEST_ADDOPTS": "",  # the options of this run are not those of the page's reader
    }
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)


# In the example without its lock: a commit that finds others beside it waits until a second one has judged too. The
# commits of run_together all wait for each other before they begin, so none of them has ended by then.
MEET = """

_judged: dict[str, set[int]] = {}


def _meet(path: str) -> None:
    if threading.active_count() <= 4:
        return
    judged = _judged.setdefault(path, set())
    judged.add(threading.get_ident())
    emergency = time.monotonic() + 60
    while len(judged) < 2 and time.monotonic() < emergency:
        time.sleep(0.001)
"""


def test_the_example_passes_the_conformance_suite(project: Path) -> None:
    ran = run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "tests")
    assert re.search(r"^\d+ passed", ran.stdout, re.MULTILINE), ran.stdout
    assert ran.returncode == 0


def test_the_example_without_its_lock_fails_as_the_page_says(project: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(project, broken)
    store = broken / "netplug_journal" / "store.py"
    text = store.read_text()
    assert text.count("fcntl.flock(file, how | fcntl.LOCK_NB)") == 1
    assert text.count("before = len(self._changes)") == 1
    text = text.replace("fcntl.flock(file, how | fcntl.LOCK_NB)", "None")
    text = text.replace("before = len(self._changes)", "_meet(self._path); before = len(self._changes)")
    store.write_text(text.replace("import fcntl\n", "import fcntl\nimport threading\nimport time\n", 1) + MEET)
    ran = run(
        broken,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        ".",
        "-k",
        "runTest and Conf",
    )
    assert re.search(r"[234] of 4 threads created it: Fruit\(green/apple\); a commit must judge and write", ran.stdout)
    assert ran.returncode == 1


def test_the_example_does_what_the_page_shows(project: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    ran = run(project, "bash", "-ec", script)
    assert ran.stderr == ""
    assert [line.rstrip() for line in ran.stdout.splitlines()] == shown.splitlines()


def test_the_example_is_typed_and_formatted_as_our_own_code(project: Path) -> None:
    config = Path(__file__).parents[2] / "pyproject.toml"
    for command in (("ruff", "check"), ("ruff", "format", "--diff"), ("mypy", "--strict", "--config-file", os.devnull)):
        where = ("--config", str(config), "--no-cache") if command[0] == "ruff" else ("--no-incremental",)
        ran = run(project, sys.executable, "-m", *command, *where, "netplug_journal")
        assert ran.returncode == 0, ran.stdout
