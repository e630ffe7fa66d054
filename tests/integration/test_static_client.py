"""What the static client does by itself: VERSION and help, byte for byte as Python, and its own error."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import netplug_cli
from netplug_backends.host.executables import build_client
from netplug_core import __version__
from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, ProcessOutput, answer_at_once
from netplug_core.cni.wire import HEADER_LENGTH, parse_body
from netplug_core.errors import Unavailable
from tests.harness.clients import InstalledClient, install_python_client, install_static_client
from tests.harness.scripted_server import answering, opened_server, sending
from tests.harness.waiting import EMERGENCY_STOP_S

SOURCE = Path(netplug_cli.__file__).parent / "cni/static"
LONG_S = 600.0
CONF = b'{"cniVersion": "1.0.0", "name": "net1"}'

# Each is a configuration that a reader of JSON could take for another one.
CONFIGURATIONS = [
    b"", b" ", b"{}", b"[]", b"null", b"1", b'"1.0.0"', b"{", b"}", b"{}}", b"{} x", b'{"cniVersion"}',
    b'{"cniVersion": "0.4.0"}', b' \t\r\n{ "cniVersion"\n:\t"0.3.1"\r} \n', b'{"cniVersion":"0.4.0",}',
    b'{"cniVersion": "0.4.0"} trailing', b'{"cniVersion": "9.9.9"}', b'{"cniVersion": ""}', b'{"cniVersion": 1.0}',
    b'{"cniVersion": null}', b'{"cniVersion": ["0.4.0"]}', b'{"cniVersion": {"cniVersion": "0.4.0"}}',
    b'[{"cniVersion": "0.4.0"}]', b'{"a": {"cniVersion": "0.4.0"}}', b'{"a": [{"cniVersion": "0.4.0"}], "b": {}}',
    b'{"cniVersion": "0.4.0", "cniVersion": "0.3.0"}', b'{"cniVersion": "0.4.0", "cniVersion": 3}',
    b'{"cniVersion": "0.4.0", "a": {"cniVersion": "0.3.0"}}', b'{"CniVersion": "0.4.0"}', b'{"cniVersion ": "0.4.0"}',
    rb'{"cni\u0056ersion": "0\u002e4.0"}', rb'{"cniVersion": "0.4.0\u0000"}', rb'{"cniVersion": "0.4.0\n"}',
    rb'{"cniVersion\u0000": "0.4.0"}', rb'{"cniVersion": "\u00300.4.0"}', rb'{"cniVersion": "0\/.4.0"}',
    rb'{"a": "\ud800\u12", "cniVersion": "0.4.0"}', rb'{"a": "\ud800\uDFff", "cniVersion": "0.4.0"}',
    rb'{"a": "\x41", "cniVersion": "0.4.0"}', rb'{"a": "\"", "cniVersion": "0.4.0"}',
    b'{"a": "\\", "cniVersion": "0.4.0"}',
    b'{"a": "\n", "cniVersion": "0.4.0"}', b'{"a": "\x7f", "cniVersion": "0.4.0"}',
    b'{"a": "\0", "cniVersion": "0.4.0"}',
    '{"ü": "☃𝄞", "cniVersion": "0.4.0"}'.encode(), b'{"a": "\xff", "cniVersion": "0.4.0"}',
    b'{"a": "\xc0\x80", "cniVersion": "0.4.0"}', b'{"a": "\xed\xa0\x80", "cniVersion": "0.4.0"}',
    b'{"a": "\xf4\x90\x80\x80", "cniVersion": "0.4.0"}', b'{"a": "\xf4\x8f\xbf\xbf", "cniVersion": "0.4.0"}',
    b'{"a": "\xe2\x98", "cniVersion": "0.4.0"}', b'{"cniVersion": "0.4.0"}\xe2', b'\xef\xbb\xbf{"cniVersion": "0.4.0"}',
    '{"cniVersion": "0.4.0"}'.encode("utf-16"), '{"cniVersion": "0.4.0"}'.encode("utf-32"),
    *(b'{"a": %s, "cniVersion": "0.4.0"}' % value for value in (
        b"0", b"-0", b"-", b"01", b"-1", b"1.", b".1", b"1.5", b"1.e3", b"1e3", b"1E+3", b"1e-3", b"1e", b"1e+", b"+1",
        b"0x1", b"1_0", b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"-Infinit", b"true", b"True", b"false", b"nul",
        b"null", b"nulll", b"[]", b"[ ]", b"[1]", b"[1,]", b"[,1]", b"[1 2]", b"[[[]]]", b"[}", b"{]", b"{ }",
        b"{1: 2}",
        b'{"b" 2}', b'{"b": }', b'{"b": 1,}', b"{,}", b"'b'", b"/**/ 1", b"9" * 4300, b"9" * 4301, b"-" + b"9" * 4301,
        b"9" * 5000 + b".5", b"9" * 5000 + b"e1", b"[" * 200 + b"]" * 200, b"[" * 100_000,
    )),
]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> InstalledClient:
    return install_static_client(tmp_path_factory.mktemp("client"), take_s=LONG_S, reply_s=LONG_S)


def python_answer(environ: dict[str, str], stdin: bytes, name: str = "netplug") -> ProcessOutput:
    """What the standalone program prints."""
    identity = PluginIdentity(plugin=Plugin(name), version=__version__)
    output = answer_at_once(Invocation(identity=identity, environ=environ, stdin=lambda: stdin))
    assert output is not None
    return output


@pytest.mark.parametrize("stdin", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_version_is_answered_as_by_python(client: InstalledClient, stdin: bytes) -> None:
    environ = {"CNI_COMMAND": "VERSION"}
    result = client.run({name.encode(): value.encode() for name, value in environ.items()}, stdin)
    expected = python_answer(environ, stdin)
    assert (result.status, result.stderr) == (0, b"")
    assert result.stdout.decode() == expected.stdout


def test_version_is_answered_without_standard_input(client: InstalledClient) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" <&-', client.folder / "netplug"],
        env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, python_answer({"CNI_COMMAND": "VERSION"}, b"").stdout)


@pytest.mark.parametrize("name", ["netplug", "netplug-ipam"])
def test_a_call_without_variables_says_what_the_program_is(client: InstalledClient, name: str) -> None:
    result = client.run({b"PATH": b"/bin", b"XCNI_COMMAND": b"ADD"}, b"", name=name)
    assert (result.status, result.stdout) == (0, b"")
    assert result.stderr.decode() == python_answer({}, b"", name).stderr


def test_two_builds_are_identical(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        build_client(SOURCE, tmp_path / name / name)
    one, two = ((tmp_path / name / name).read_bytes() for name in ("one", "two"))
    assert one == two
    assert b"NETPLUG_NODE_SOCKET" in one
    assert str(tmp_path).encode() not in one
    done = subprocess.run([tmp_path / "one/one"], env={"LD_PRELOAD": "/not/there"}, capture_output=True, check=True)
    assert done.stderr.startswith(b"netplug "), "a loader of libraries would complain"


def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho first >&2\necho no libc.a >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=f"^{compiler}: no libc.a$"):
        build_client(SOURCE, tmp_path / "client")
    compiler.unlink()
    with pytest.raises(Unavailable, match="this host has none of cc, gcc, clang; install gcc and libc6-dev"):
        build_client(SOURCE, tmp_path / "client")


# --- where no standalone program runs -----------------------------------------------------------------------------


@pytest.mark.parametrize("sent,words", [(b"", "does not answer"), (b"T", "did not finish")])
@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_standalone_program_the_error_says_what_to_do(
    client: InstalledClient, tmp_path: Path, sent: bytes, words: str, *, is_there: bool
) -> None:
    shutil.copy(client.folder / "netplug", tmp_path / "netplug")
    if is_there:
        (tmp_path / "netplug-standalone").write_text("#!/not/a/python -IS\n")
        (tmp_path / "netplug-standalone").chmod(0o755)
    path = tmp_path / "node.sock"
    with opened_server(str(path), sending(sent)):
        result = InstalledClient(tmp_path).run({b"CNI_COMMAND": b"ADD", b"NETPLUG_NODE_SOCKET": bytes(path)}, CONF)
    document = json.loads(result.stdout)
    assert (result.status, result.stderr) == (1, b"")
    assert result.stdout.decode() == json.dumps(document, indent=4) + "\n"
    assert (document["cniVersion"], document["code"]) == ("1.0.0", 11)
    assert words in document["msg"]
    assert document["msg"].count("netplugctl install host") == 1
    assert document["details"] == "No such file or directory"


def test_an_argument_without_a_standalone_program_is_the_same_error(client: InstalledClient, tmp_path: Path) -> None:
    shutil.copy(client.folder / "netplug", tmp_path / "netplug")
    result = InstalledClient(tmp_path).run({}, b"", "-v")
    assert (result.status, json.loads(result.stdout)["code"]) == (1, 11)


# --- an environment as only a kernel passes it ---------------------------------------------------------------------

_EXECUTE = """
import ctypes, sys
environ = [bytes.fromhex(text) for text in sys.argv[2:]]
array = ctypes.c_char_p * (len(environ) + 1)
argv = (ctypes.c_char_p * 2)(sys.argv[1].encode(), None)
ctypes.CDLL(None).execve(sys.argv[1].encode(), argv, array(*environ, None))
"""


@pytest.mark.parametrize("install", [install_python_client, install_static_client])
def test_variables_that_are_none_are_left_out(tmp_path: Path, install: Callable[..., InstalledClient]) -> None:
    """One without a name, one without a value, and of two of one name the second."""
    client = install(tmp_path, take_s=LONG_S, reply_s=LONG_S)
    path = str(tmp_path / "node.sock")
    environ = [b"A=1", b"=x", b"BARE", b"A=2", b"", b"CNI_COMMAND=ADD", f"NETPLUG_NODE_SOCKET={path}".encode()]
    with opened_server(path, answering(stdout=b"{}")) as server:
        done = subprocess.run(
            [sys.executable, "-c", _EXECUTE, client.folder / "netplug", *(text.hex() for text in environ)],
            input=CONF, capture_output=True, check=False, timeout=EMERGENCY_STOP_S,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"{}"), done
    found = parse_body(server.requests[0].data[HEADER_LENGTH:])
    assert dict(found.environ) | {"LC_CTYPE": ""} == {
        "A": "1", "CNI_COMMAND": "ADD", "NETPLUG_NODE_SOCKET": path, "LC_CTYPE": "",
    }  # fmt: skip
    assert found.stdin == CONF
