"""What attrs compiles is kept once and used by every call; without it, or with rubbish there, nothing changes."""

import json
import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from netplug_cli.cni.method_cache import MethodCache
from tests.harness.waiting import EMERGENCY_STOP_S

KEEP = "from netplug_cli.cni.method_cache import cache_file, write_cache; print(write_cache(), cache_file())"
STATUS = "import sys; sys.argv[:] = ['netplug']; from netplug_cli.wiring.cni import main; sys.exit(main())"
# Every class that an ADD makes, and those of them whose methods were not found.
MISSED = """
from netplug_cli.cni import method_cache
kept, asked, missed = method_cache.read_cache(), [], []

def compiled(text, name):
    found = kept.find(text, name)
    asked.append(name)
    if found is None:
        missed.append(name)
    return found or compile(text, name, "exec")

method_cache.compile_attrs_with(compiled)
import netplug_cli.cni.main, netplug_cli.wiring.cni, netplug_cli.wiring.backends
import netplug_core.flows.cni.add, netplug_backends.sqlite.datastore
import netplug_backends.linux.dataplane, netplug_core.ipam.allocation.decide
from netplug_core.addressing import Address
address = Address.parse("10.0.0.1")
print(len(asked), missed, address == Address.parse("10.0.0.1"), {address: 1}[Address.parse("10.0.0.1")], repr(address))
"""
CONFIG = {"cniVersion": "1.1.0", "name": "n", "type": "netplug", "datastore_type": "memory", "ipam": {"type": "x"}}


def run(folder: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A process that looks for bytecode in a folder of its own."""
    return subprocess.run(
        [sys.executable, f"-Xpycache_prefix={folder}", "-c", script],
        env=environ,
        input=json.dumps(CONFIG),
        capture_output=True,
        text=True,
        check=False,
        timeout=EMERGENCY_STOP_S,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bytecode in which methods are kept."""
    folder = tmp_path_factory.mktemp("bytecode")
    count, file = run(folder, KEEP).stdout.split()
    assert int(count) > 200
    assert Path(file).is_relative_to(folder)
    assert Path(file).name == f"method_cache.{sys.implementation.cache_tag}.methods"
    assert [found.name for found in Path(file).parent.glob("method_cache*")].count(Path(file).name) == 1
    return folder


def test_every_class_of_an_add_finds_its_methods(kept: Path) -> None:
    """Salts are drawn anew in each process, and are no reason to compile."""
    count, rest = run(kept, MISSED).stdout.split(" ", 1)
    assert int(count) > 100
    assert rest == "[] True 1 Address(family=<Family.IPV4: 4>, value=167772161)\n"


def test_a_call_answers_the_same_with_and_without(kept: Path, tmp_path: Path) -> None:
    environ = {"CNI_COMMAND": "STATUS", "CNI_PATH": "/"}
    (with_them, without) = (run(folder, STATUS, **environ) for folder in (kept, tmp_path))
    assert with_them.stdout == without.stdout
    assert json.loads(without.stdout)["code"] == 7
    assert (with_them.returncode, without.returncode) == (1, 1)


@pytest.mark.parametrize("rubbish", [b"", b"x", b"{", marshal.dumps([1]), marshal.dumps({"a": b"b"})])
def test_what_cannot_be_read_is_compiled_as_ever(kept: Path, tmp_path: Path, rubbish: bytes) -> None:
    file = tmp_path / next(kept.rglob("*.methods")).relative_to(kept)
    file.parent.mkdir(parents=True)
    file.write_bytes(rubbish)
    done = run(tmp_path, STATUS, CNI_COMMAND="VERSION")
    assert json.loads(done.stdout)["supportedVersions"]
    assert done.returncode == 0


@pytest.mark.parametrize("change,status", [(b"", 1), (b"x", 0)])
def test_bytecode_of_another_python_is_not_run(kept: Path, tmp_path: Path, change: bytes, status: int) -> None:
    """A release that is not out yet has the name of its version, and bytecode of its own."""
    good = next(kept.rglob("*.methods"))
    file = tmp_path / good.relative_to(kept)
    file.parent.mkdir(parents=True)
    magic, stored = marshal.loads(good.read_bytes())  # noqa: S302  # written above
    foreign = marshal.dumps(compile("raise SystemExit(1)", "foreign", "exec"))
    file.write_bytes(marshal.dumps((magic + change, dict.fromkeys(stored, foreign))))
    assert run(tmp_path, STATUS, CNI_COMMAND="VERSION").returncode == status


def test_what_is_compiled_otherwise_is_left_to_python(tmp_path: Path) -> None:
    """Releases of attrs to come may ask for more than those that are known."""
    script = (
        "from netplug_cli.cni import method_cache; method_cache.compile_attrs_with(lambda text, name: None);"
        "from attr import _make;"
        "print(eval(_make.compile('1 + 1', 'x', 'eval')), _make.compile('2', 'x', 'exec', dont_inherit=True).co_name,"
        " _make.compile('3', 'x', 'exec'))"
    )
    assert run(tmp_path, script).stdout == "2 <module> None\n"


def test_what_cannot_be_put_in_its_place_is_taken_away(tmp_path: Path) -> None:
    name = run(tmp_path, "from netplug_cli.cni.method_cache import cache_file; print(cache_file())").stdout.strip()
    (Path(name) / "in the way").mkdir(parents=True)
    done = run(tmp_path, KEEP)
    assert done.returncode == 1
    assert [found.name for found in Path(name).parent.glob("method_cache.*.methods*")] == [Path(name).name]


def test_only_the_very_text_is_found() -> None:
    text = "def __hash__(self):\n    return hash((\n        {},\n        self.a,\n    ))"
    code = compile(text.format("1"), "of a class", "exec")
    methods = MethodCache()
    methods.add(text.format("-123"), "of a class", code)
    assert methods.find(text.format("456"), "of a class") == code
    assert methods.find(text.format("456"), "of another") is None
    assert methods.find(text.format("456") + " ", "of a class") is None


TOOL = "import sys; sys.argv[1:] = ['api-resources', '-o', 'csv']; from netplug_cli.wiring.ctl import main; main()"


def test_the_tool_keeps_what_it_had_to_compile(tmp_path: Path) -> None:
    """As Python keeps bytecode: the second run compiles nothing, and changes no file."""
    first = run(tmp_path, TOOL)
    (kept,) = tmp_path.rglob("netplugctl.*.methods")
    stored, written = marshal.loads(kept.read_bytes())[1], kept.stat().st_mtime_ns  # noqa: S302  of this test
    assert len(stored) > 100
    second = run(tmp_path, TOOL)
    assert (first.returncode, first.stderr, first.stdout) == (second.returncode, second.stderr, second.stdout)
    assert first.stdout.startswith("name,shortNames,apiVersion,namespaced,kind\n")
    assert kept.stat().st_mtime_ns == written


@pytest.mark.parametrize("content", [b"", b"rubbish", marshal.dumps((b"other", {}))])
def test_the_tool_replaces_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    run(tmp_path, TOOL)
    (kept,) = tmp_path.rglob("netplugctl.*.methods")
    kept.write_bytes(content)
    assert run(tmp_path, TOOL).returncode == 0
    assert len(marshal.loads(kept.read_bytes())[1]) > 100  # noqa: S302  of this test


def test_the_tool_writes_nothing_where_python_may_not(tmp_path: Path) -> None:
    assert run(tmp_path, TOOL, PYTHONDONTWRITEBYTECODE="1").returncode == 0
    assert list(tmp_path.rglob("*.methods")) == []
