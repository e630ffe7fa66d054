"""``install host`` with real files of root and of others: what it makes, and from where it refuses to install."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netplug_backends.host.executables import EXECUTABLES, Client, install
from netplug_backends.host.requirements import Environment, remove_open_caches, require_trusted
from netplug_core.errors import ConfigurationError, Unavailable
from tests.harness.local_stores import IS_DEEP
from tests.harness.umask import UMASKS, modes_below, under_umask
from tests.harness.waiting import EMERGENCY_STOP_S

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of several users")

ALICE = 54_321
"""The id of a user whom the machine does not know by name."""


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment that only root may write: a link to an interpreter, its settings, and a library."""
    tmp_path.chmod(0o755)
    for folder in ("usr/bin", "env/bin", "env/lib/package/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("usr/bin/python3", "env/pyvenv.cfg", "env/lib/package/module.py", "env/lib/.hidden"):
        (tmp_path / file).write_text("")
    (tmp_path / "env/bin/python").symlink_to("../../usr/bin/python3")
    return Environment(
        interpreter=str(tmp_path / "env/bin/python"),
        settings=(str(tmp_path / "env/bin/pyvenv.cfg"), str(tmp_path / "env/pyvenv.cfg")),
        libraries=(str(tmp_path / "env/lib"),),
    )


def test_what_only_root_may_write_is_trusted(environment: Environment) -> None:
    require_trusted(environment)


EVERY_PART = [
    *("", "usr", "usr/bin", "usr/bin/python3", "env", "env/bin", "env/pyvenv.cfg", "env/lib"),
    *("env/lib/package", "env/lib/package/module.py", "env/lib/package/__pycache__"),
]


@pytest.mark.parametrize("part", EVERY_PART)
@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757])
def test_a_part_that_others_may_write_is_refused(
    environment: Environment, tmp_path: Path, part: str, mode: int
) -> None:
    (tmp_path / part).chmod(mode)
    with pytest.raises(ConfigurationError) as refusal:
        require_trusted(environment)
    assert str(refusal.value) == (
        f"installing environment: '{tmp_path / part}' is not accepted; it belongs to root (0) and has mode {mode:04o}, "
        "and a user who may write it becomes root with the next pod; make it root's and writable by root alone "
        "(chown root, chmod go-w), or use --trust-environment"
    )


@pytest.mark.parametrize("part", [*EVERY_PART, "env/bin/python"])
def test_a_part_that_belongs_to_another_user_is_refused(environment: Environment, tmp_path: Path, part: str) -> None:
    os.chown(tmp_path / part, ALICE, -1, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match=r"it belongs to user 54321 and has mode 0"):
        require_trusted(environment)


def test_a_sticky_folder_is_accepted_above_but_not_as_a_library(environment: Environment, tmp_path: Path) -> None:
    """In /tmp nobody can replace what belongs to root, but everybody can add a module."""
    tmp_path.chmod(0o1777)
    require_trusted(environment)
    (tmp_path / "env/lib").chmod(0o1777)
    with pytest.raises(ConfigurationError, match="env/lib' is not accepted"):
        require_trusted(environment)


def test_a_link_of_a_library_leads_to_files_of_root_alone(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "env/lib/linked").symlink_to(tmp_path / "elsewhere/linked.py")
    require_trusted(environment)  # it leads nowhere
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/linked.py").write_text("")
    require_trusted(environment)
    (tmp_path / "elsewhere").chmod(0o777)
    with pytest.raises(ConfigurationError, match="/elsewhere' is not accepted"):
        require_trusted(environment)


def test_what_python_never_imports_is_not_looked_at(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "env/lib/.hidden").chmod(0o666)
    (tmp_path / "env/lib/site-packages").mkdir(mode=0o777)
    (tmp_path / "env/lib/site-packages").chmod(0o777)
    require_trusted(environment)


def test_a_missing_library_is_named(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "env/lib/package/module.py").unlink()
    (tmp_path / "env/lib/package/__pycache__").rmdir()
    (tmp_path / "env/lib/package").rmdir()
    (tmp_path / "env/lib/.hidden").unlink()
    (tmp_path / "env/lib").rmdir()
    with pytest.raises(Unavailable, match="env/lib: No such file"):
        require_trusted(environment)


def test_bytecode_in_an_open_folder_is_removed(environment: Environment, tmp_path: Path) -> None:
    """A Python that was started with umask 0 makes its folders of bytecode so that everybody may write there."""
    cache = tmp_path / "env/lib/package/__pycache__"
    (cache / "module.pyc").write_text("planted")
    remove_open_caches([str(tmp_path / "env/lib/package")])
    assert cache.exists(), "only root may write this one"
    cache.chmod(0o777)
    remove_open_caches([str(tmp_path / "env/lib/package")])
    assert not cache.exists()
    require_trusted(environment)


@pytest.mark.parametrize("umask", UMASKS if IS_DEEP else UMASKS[-1:])
def test_every_file_and_folder_has_its_mode_under_every_umask(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    with under_umask(umask):
        install(str(tmp_path / "opt/cni/bin"), lambda _line: None, Client.PYTHON)
        assert os.umask(umask) == umask, "it is as it was"
    modes = modes_below(tmp_path)
    assert {mode for path, mode in modes.items() if path.endswith((".pyc", ".methods"))} == {0o644}
    assert {mode for path, mode in modes.items() if not path.endswith((".pyc", ".methods"))} == {0o755}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def install_from(tmp_path: Path) -> Run:
    """Runs ``install host`` in an environment of its own, which has the libraries of this one."""
    folder = tmp_path / "venv"
    tmp_path.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=EMERGENCY_STOP_S)
    libraries = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    (libraries / "ours.pth").write_text("".join(f"{path}\n" for path in sys.path if path))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = (folder / "bin" / "python", "-m", "netplug_cli.wiring.ctl", "install", "host", "--client", "python")
        return subprocess.run(
            [*command, "--bin-dir", str(tmp_path / "bin"), *options],
            capture_output=True, text=True, check=False, timeout=EMERGENCY_STOP_S,
            env={"PATH": os.environ["PATH"], "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")},
        )  # fmt: skip

    return run


def test_an_environment_that_others_may_write_is_refused_unless_it_is_trusted(
    install_from: Run, tmp_path: Path
) -> None:
    (tmp_path / "venv").chmod(0o777)
    refused = install_from()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"'{tmp_path}/venv' is not accepted; it belongs to root (0) and has mode 0777" in refused.stderr
    assert "--trust-environment" in refused.stderr
    assert not (tmp_path / "bin").exists()
    trusted = install_from("--trust-environment")
    assert (trusted.returncode, trusted.stderr.count("\n")) == (1, 1)
    assert trusted.stderr.startswith(
        f"netplugctl: loopback is not in {tmp_path}/bin: containerd starts no pod without it;"
    )
    assert sorted(os.listdir(tmp_path / "bin")) == sorted(EXECUTABLES)


def test_an_environment_of_root_is_installed(install_from: Run, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/loopback").write_text("")
    (tmp_path / "bin/loopback").chmod(0o755)
    done = install_from()
    assert (done.returncode, done.stderr) == (0, "")
