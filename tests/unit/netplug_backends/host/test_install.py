"""The executables on a host: their content, that they answer, and foreign files."""

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netplug_backends.host.executables import (
    EXECUTABLES,
    SHEBANG_LIMIT,
    STANDALONE,
    Client,
    Installed,
    install,
    uninstall,
)
from netplug_core import __version__
from netplug_core.errors import ConfigurationError, Unavailable
from tests.harness.waiting import EMERGENCY_STOP_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("opt") / "cni" / "bin"


@pytest.fixture(scope="module")
def reports() -> list[str]:
    return []


@pytest.fixture(scope="module", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bytecode cache of its own, shared by the module's tests, because compiling takes a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "pycache_prefix", str(tmp_path_factory.mktemp("bytecode")))
        yield Path(str(sys.pycache_prefix))


@pytest.fixture(scope="module")
def installed(bytecode: Path, folder: Path, reports: list[str]) -> Installed:
    return install(str(folder), reports.append, Client.PYTHON)


def test_two_files_are_written(installed: Installed, folder: Path, reports: list[str]) -> None:
    assert installed.files == tuple(str(folder / name) for name in EXECUTABLES)
    assert reports == [
        *(f"installed {file}" for file in installed.files),
        "both are the Python client",
    ]
    assert sorted(os.listdir(folder)) == sorted(EXECUTABLES)
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in EXECUTABLES} == {0o755}


def test_a_file_names_interpreter_and_libraries_in_three_lines(installed: Installed) -> None:
    shebang, start, call = Path(installed.files[0]).read_text().splitlines()
    assert shebang == f"#!{sys.executable} -IS"
    folders = re.fullmatch(r"import sys; sys\.path\.extend\((\[.*\])\)", start)
    assert folders is not None
    for package in ("attrs", "pluggy", "netplug_core"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        assert repr(str(Path(spec.origin).resolve().parent.parent)) in folders[1]
    assert call == "from netplug_cli.cni.client import main; main()"


@pytest.mark.parametrize("name", EXECUTABLES)
def test_an_executable_answers(installed: Installed, folder: Path, name: str) -> None:
    done = subprocess.run(
        [folder / name], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True, timeout=EMERGENCY_STOP_S
    )
    assert "1.1.0" in json.loads(done.stdout)["supportedVersions"]
    about = subprocess.run([folder / name], env={}, capture_output=True, check=True, timeout=EMERGENCY_STOP_S)
    assert about.stdout == b""
    assert about.stderr.decode().startswith(f"{name} ")


def test_the_packages_are_byte_compiled(installed: Installed, bytecode: Path) -> None:
    names = {Path(path).name for path in installed.compiled}
    assert names >= {"attr", "attrs", "cattrs", "pluggy", "netplug_core", "netplug_backends", "netplug_cli"}
    for path in installed.compiled:
        compiled = Path(importlib.util.cache_from_source(f"{path}/__init__.py"))
        assert compiled.is_relative_to(bytecode)
        assert compiled.exists()
    assert len(list(bytecode.rglob("*.pyc"))) > 100, "their modules too"


def test_the_methods_that_attrs_generates_are_cached(installed: Installed, bytecode: Path) -> None:
    assert installed.files
    assert [file.name for file in bytecode.rglob("*.methods")] == [
        f"method_cache.{sys.implementation.cache_tag}.methods"
    ]


def test_an_unwritable_bytecode_cache_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "file"))
    reports: list[str] = []
    install(str(tmp_path / "bin"), reports.append, Client.PYTHON)
    assert any("netplug_core could not be byte-compiled; every call will be" in line for line in reports)
    assert any(line.startswith("warning: every call will be slower by a quarter: ") for line in reports)
    assert f"installed {tmp_path}/bin/netplug-ipam" in reports


def test_our_executables_are_removed(installed: Installed, folder: Path, tmp_path: Path) -> None:
    reports: list[str] = []
    (tmp_path / "netplug").write_text((folder / "netplug").read_text())
    assert uninstall(str(tmp_path), reports.append) == (str(tmp_path / "netplug"),)
    assert reports == [f"removed {tmp_path}/netplug", f"not there: {tmp_path}/netplug-ipam"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("module", ["cni.start", "wiring.cni"])
def test_a_launcher_of_an_earlier_release_is_removed(tmp_path: Path, module: str) -> None:
    (tmp_path / "netplug").write_text(f"#!/usr/bin/python3 -IS\nfrom netplug_cli.{module} import main; main()\n")
    assert uninstall(str(tmp_path), print) == (str(tmp_path / "netplug"),)


def test_foreign_files_are_kept(tmp_path: Path) -> None:
    reports: list[str] = []
    (tmp_path / "netplug").write_bytes(b"\x7fELF\xff\xfe")
    assert uninstall(str(tmp_path), reports.append) == ()
    assert reports == [
        f"left alone, not written by netplugctl: {tmp_path}/netplug",
        f"not there: {tmp_path}/netplug-ipam",
    ]
    assert os.listdir(tmp_path) == ["netplug"]


def test_a_file_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "netplug").mkdir()
    with pytest.raises(Unavailable) as refusal:
        uninstall(str(tmp_path), print)
    assert str(refusal.value) == f"{tmp_path}/netplug: a regular file is expected, and it is a folder"


@pytest.mark.parametrize("interpreter", ["/" + "x" * (SHEBANG_LIMIT - 6), "/with a/space"])
def test_an_interpreter_path_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, interpreter: str
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    with pytest.raises(ConfigurationError) as refusal:
        install(str(tmp_path), print)
    assert str(refusal.value) == (
        f"interpreter: {interpreter!r} is not accepted; a path without spaces of at most 121 bytes is needed"
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "interpreter,cause",
    [("/bin/false", "exit status 1, b''"), ("/not/a/python", "No such file or directory")],
)
def test_an_executable_that_does_not_run_replaces_nothing(
    monkeypatch: pytest.MonkeyPatch, installed: Installed, tmp_path: Path, interpreter: str, cause: str
) -> None:
    (tmp_path / "netplug").write_text("the release before")
    monkeypatch.setattr(sys, "executable", interpreter)
    with pytest.raises(Unavailable, match=f"^{tmp_path}/netplug: it does not run: .*{cause}"):
        install(str(tmp_path), print, Client.PYTHON)
    assert os.listdir(tmp_path) == ["netplug"]
    assert (tmp_path / "netplug").read_text() == "the release before"


def test_a_folder_that_cannot_be_written_is_named(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable) as refusal:
        install(str(tmp_path / "file"), print, Client.PYTHON)
    assert str(refusal.value) == f"{tmp_path}/file/netplug: File exists"


def test_a_relative_folder_is_in_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, installed: Installed, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert install(".", lambda _: None, Client.PYTHON).files == tuple(str(tmp_path / name) for name in EXECUTABLES)


def test_an_environment_that_lacks_a_library_gets_no_executables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only CHECK loads it, so without this test of the installer the first CHECK would fail."""
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    with pytest.raises(Unavailable, match=r"^pyroute2: .* not installed in this environment; netplug\[host\]"):
        install(str(tmp_path), lambda _line: None)
    assert list(tmp_path.iterdir()) == []


# --- the static client ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_static_client(bytecode: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the static client."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    folder = tmp_path_factory.mktemp("static")
    install(str(folder), lambda _line: None, Client.STATIC)
    return folder


def test_the_static_client_stands_beside_the_standalone_program(with_static_client: Path) -> None:
    assert sorted(os.listdir(with_static_client)) == sorted((*EXECUTABLES, *STANDALONE))
    assert {(with_static_client / name).read_bytes()[:4] for name in EXECUTABLES} == {b"\x7fELF"}
    assert {(with_static_client / name).read_bytes()[:3] for name in STANDALONE} == {b"#!/"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in with_static_client.iterdir()} == {0o755}


@pytest.mark.parametrize("name", EXECUTABLES)
def test_every_call_of_the_static_client_is_answered(with_static_client: Path, name: str) -> None:
    """VERSION and the list of versions by itself, everything else by the standalone program."""

    def call(*flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [with_static_client / name, *flags],
            env={"NETPLUG_NODE_SOCKET": "", **environ},
            input='{"cniVersion": "1.0.0", "name": "net1"}',
            capture_output=True, text=True, check=False, timeout=EMERGENCY_STOP_S,
        )  # fmt: skip

    assert json.loads(call(CNI_COMMAND="VERSION").stdout)["cniVersion"] == "1.0.0"
    assert call().stderr.startswith(f"{name} {__version__}: ")
    assert call("-v").stdout == f"{__version__}\n"
    refused = call(CNI_COMMAND="STATUS")
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, 4)
    refused = call(CNI_COMMAND="STATUS", CNI_PATH="/bin")
    assert (refused.returncode, json.loads(refused.stdout)["cniVersion"]) == (1, "1.0.0")
    assert ("cni-plugin" if name == "netplug" else "] ipam: ") in refused.stderr


def test_the_static_client_is_removed_with_all_that_came_with_it(with_static_client: Path, tmp_path: Path) -> None:
    shutil.copytree(with_static_client, tmp_path / "bin")
    removed = uninstall(str(tmp_path / "bin"), print)
    assert removed == tuple(str(tmp_path / "bin" / name) for name in (*EXECUTABLES, *STANDALONE))
    assert os.listdir(tmp_path / "bin") == []


@pytest.mark.parametrize("is_built", [False, True])
def test_without_a_choice_the_static_client_is_installed_if_it_was_built(
    bytecode: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_static_client: Path, *, is_built: bool
) -> None:
    built, reports = tmp_path / "built", list[str]()
    monkeypatch.setattr("netplug_backends.host.executables.built_file", lambda _source: built)
    if is_built:
        shutil.copy(with_static_client / "netplug", built)
    install(str(tmp_path / "other"), reports.append)
    kind = "static client" if is_built else "Python client; --client static makes it faster"
    assert reports[-1] == f"both are the {kind}"
    assert ((tmp_path / "other/netplug").read_bytes()[:4] == b"\x7fELF") == is_built


def test_without_a_compiler_the_static_client_is_refused(
    bytecode: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="this host has none of cc, gcc, clang"):
        install(str(tmp_path), print, Client.STATIC)
    assert os.listdir(tmp_path) == []
