"""Whole invocations: what is printed, in which order a call is judged, and what is never touched."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest
from attrs import Factory, define, evolve

from netplug_core.addressing import Address
from netplug_core.cni.dispatch import (
    Invocation,
    Plugin,
    PluginIdentity,
    ProcessOutput,
    answer_at_once,
    plugin_from_argv0,
)
from netplug_core.cni.request import CNIRequest
from netplug_core.cni.result import CNIResult, IPConfig
from netplug_core.errors import NamespaceError, Unavailable
from netplug_core.flows.cni.call import run_invocation

SUPPORTED = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
CONFIG = '{"name": "net1", "cniVersion": "1.0.0", "type": "netplug"}'
ADD = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "abc123",
    "CNI_NETNS": "/run/netns/cni-1",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
}
RESULT = CNIResult(ips=(IPConfig(address=Address.parse("10.0.0.2"), length=32),))


def unread() -> str:
    raise AssertionError("standard input was read")


def giving(text: str | bytes) -> Callable[[], str | bytes]:
    return lambda: text


NETPLUG = Invocation(identity=PluginIdentity(plugin=Plugin.MAIN, version="3.33.0"), environ=ADD, stdin=giving(CONFIG))


@define
class DispatchHarness:
    """Runs invocations against handlers that note what they were given."""

    answer: CNIResult | None = RESULT
    error: Exception | None = None
    requests: list[CNIRequest] = Factory(list)
    namespaces: list[str] = Factory(list)
    logged: list[str] = Factory(list)
    tested: list[Mapping[str, object]] = Factory(list)
    own_namespace: str = ""

    def handle(self, request: CNIRequest) -> CNIResult | None:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return self.answer

    def test_connection(self, netconf: Mapping[str, object]) -> None:
        self.tested.append(netconf)
        if self.error is not None:
            raise self.error

    def is_own_namespace(self, path: str) -> bool:
        self.namespaces.append(path)
        return path == self.own_namespace

    def run(self, invocation: Invocation) -> ProcessOutput:
        return run_invocation(
            invocation,
            serve=self.handle,
            is_own_namespace=self.is_own_namespace,
            test_connection=self.test_connection,
            log=self.logged.append,
        )

    def refusal(self, invocation: Invocation) -> dict[str, object]:
        """The error object of an invocation that fails before any work."""
        reply = self.run(invocation)
        assert reply.exit_status == 1
        assert reply.stderr == ""
        assert self.requests == []
        assert len(self.logged) == 1
        document: dict[str, object] = json.loads(reply.stdout)
        return document


@pytest.fixture
def harness() -> DispatchHarness:
    return DispatchHarness()


def with_environ(command: str = "ADD", **changes: str) -> Invocation:
    return evolve(NETPLUG, environ={**ADD, "CNI_COMMAND": command, **changes})


def with_config(text: str | bytes, command: str = "ADD") -> Invocation:
    return evolve(with_environ(command), stdin=giving(text))


# --- who is called -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv0,plugin",
    [
        ("netplug", Plugin.MAIN),
        ("/opt/cni/bin/netplug", Plugin.MAIN),
        ("netplug-ipam", Plugin.IPAM),
        ("/opt/cni/bin/netplug-ipam", Plugin.IPAM),
        ("/opt/cni/bin/netplug-standalone", Plugin.MAIN),
        ("/opt/cni/bin/netplug-ipam-standalone", Plugin.IPAM),
        ("/opt/netplug-ipam/python3", Plugin.MAIN),
        ("anything", Plugin.MAIN),
        ("", Plugin.MAIN),
    ],
)
def test_the_base_name_selects_the_plugin(argv0: str, plugin: Plugin) -> None:
    assert plugin_from_argv0(argv0) is plugin


# --- without a request ---------------------------------------------------------------------------------------------


def test_the_version_flag_prints_one_line(harness: DispatchHarness) -> None:
    invocation = evolve(NETPLUG, flags=("-v",), environ={}, stdin=unread)
    assert harness.run(invocation) == ProcessOutput(stdout="3.33.0\n")


def test_check_26_the_test_flag_reads_the_configuration_and_no_variable(harness: DispatchHarness) -> None:
    invocation = evolve(NETPLUG, flags=("-t",), environ={"CNI_COMMAND": "FOO"})
    assert harness.run(invocation) == ProcessOutput()
    assert harness.tested == [json.loads(CONFIG)]
    assert (harness.requests, harness.namespaces) == ([], [])


def test_check_26_a_test_that_fails_is_code_100_and_says_why(harness: DispatchHarness) -> None:
    harness.error = Unavailable("etcd", "Connection refused")
    assert harness.refusal(evolve(NETPLUG, flags=("-t",), environ={})) == {
        "cniVersion": "1.0.0",
        "code": 100,
        "msg": "data store connection failed",
        "details": "etcd: Connection refused",
    }


def test_the_version_flag_goes_before_the_test(harness: DispatchHarness) -> None:
    invocation = evolve(NETPLUG, flags=("-t", "-v"), environ={}, stdin=unread)
    assert harness.run(invocation) == ProcessOutput(stdout="3.33.0\n")


@pytest.mark.parametrize("flags", [("-T",), ("-x", "-v"), ("-v", "word"), ("--version",)])
def test_any_other_argument_is_refused(harness: DispatchHarness, flags: tuple[str, ...]) -> None:
    document = harness.refusal(evolve(NETPLUG, flags=flags, stdin=unread))
    unknown = next(flag for flag in flags if flag != "-v")
    assert document == {
        "cniVersion": "1.1.0",
        "code": 100,
        "msg": "failed to parse CLI flags",
        "details": f'unknown argument "{unknown}"; -v, -t, --resume are accepted',
    }


def test_a_resumed_call_is_a_call_like_any_other(harness: DispatchHarness) -> None:
    assert harness.run(evolve(NETPLUG, flags=("--resume",))) == harness.run(NETPLUG)
    assert [request.is_resumed for request in harness.requests] == [True, False]


def test_what_goes_before_a_call_goes_before_a_resumed_one(harness: DispatchHarness) -> None:
    assert harness.run(evolve(NETPLUG, flags=("--resume", "-v"), stdin=unread)) == ProcessOutput(stdout="3.33.0\n")
    assert harness.run(evolve(NETPLUG, flags=("--resume", "-t"))) == ProcessOutput()
    assert (len(harness.tested), harness.requests) == (1, [])
    usage = harness.run(evolve(NETPLUG, flags=("--resume",), environ={}, stdin=unread))
    assert usage.stderr.startswith("netplug 3.33.0:")


@pytest.mark.parametrize("plugin", list(Plugin))
def test_a_call_without_any_variable_prints_what_the_program_is(harness: DispatchHarness, plugin: Plugin) -> None:
    invocation = Invocation(
        identity=PluginIdentity(plugin=plugin, version="3.33.0"), environ={"PATH": "/bin"}, stdin=unread
    )
    reply = harness.run(invocation)
    assert reply.stdout == ""
    assert reply.exit_status == 0
    assert reply.stderr == (
        f"{plugin.value} 3.33.0: a CNI plugin; container runtimes run it\n"
        "CNI protocol versions supported: 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0\n"
    )


@pytest.mark.parametrize("environ", [{"CNI_PATH": "/opt/cni/bin"}, {"CNI_COMMAND": ""}])
def test_one_variable_makes_it_a_call(harness: DispatchHarness, environ: dict[str, str]) -> None:
    document = harness.refusal(evolve(NETPLUG, environ=environ, stdin=unread))
    assert document == {
        "cniVersion": "1.1.0",
        "code": 4,
        "msg": "required env variables [CNI_COMMAND] missing",
    }


@pytest.mark.parametrize(
    "given,printed",
    [
        ('{"cniVersion": "0.4.0"}', "0.4.0"),
        (b'{"cniVersion": "0.1.0", "name": "-"}', "0.1.0"),
        ('{"cniVersion": "9.9.9"}', "1.1.0"),
        ('{"cniVersion": ""}', "1.1.0"),
        ('{"cniVersion": 1}', "1.1.0"),
        ("{}", "1.1.0"),
        ("[]", "1.1.0"),
        ("", "1.1.0"),
        ("{nope", "1.1.0"),
        (b"\xff\xfe\xfd", "1.1.0"),
        ('{"cniVersion": "0.4.0"}'.encode("utf-16"), "1.1.0"),
        (b'\xef\xbb\xbf{"cniVersion": "0.4.0"}', "1.1.0"),
        ("[" * 100_000, "1.1.0"),
    ],
)
def test_version_answers_whatever_is_sent(harness: DispatchHarness, given: str | bytes, printed: str) -> None:
    invocation = evolve(NETPLUG, environ={"CNI_COMMAND": "VERSION"}, stdin=giving(given))
    reply = harness.run(invocation)
    assert reply == ProcessOutput(stdout=reply.stdout)
    assert json.loads(reply.stdout) == {"cniVersion": printed, "supportedVersions": SUPPORTED}
    assert reply.stdout.startswith('{\n    "cniVersion"')
    assert harness == DispatchHarness()


def test_version_answers_without_standard_input(harness: DispatchHarness) -> None:
    invocation = evolve(NETPLUG, environ={"CNI_COMMAND": "VERSION"}, stdin=broken)
    assert json.loads(harness.run(invocation).stdout)["cniVersion"] == "1.1.0"


def test_what_has_to_be_judged_first_is_not_answered_at_once() -> None:
    """An argument that is wrong goes before the one that asks for the version."""
    assert answer_at_once(evolve(NETPLUG, flags=("-v",))) == ProcessOutput(stdout="3.33.0\n")
    for flags in (("-x", "-v"), ("-t",), ()):
        assert answer_at_once(evolve(NETPLUG, flags=flags, stdin=unread)) is None


def test_version_imports_little() -> None:
    script = (
        "import sys\n"
        "from netplug_core.cni.dispatch import Invocation, Plugin, PluginIdentity, answer_at_once\n"
        "identity = PluginIdentity(plugin=Plugin.MAIN, version='1')\n"
        "invocation = Invocation(identity=identity, environ={'CNI_COMMAND': 'VERSION'}, stdin=lambda: '{}')\n"
        "reply = answer_at_once(invocation)\n"
        "assert reply.exit_status == 0\n"
        "print(*sorted(sys.modules))\n"
    )
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in loaded if name.startswith("netplug")] == [
        "netplug_core",
        "netplug_core.cni",
        "netplug_core.cni.dispatch",
        "netplug_core.errors",
    ]
    assert {"cattrs", "logging", "ipaddress", "traceback", "subprocess", "socket"}.isdisjoint(loaded)


# --- the order of judgement ----------------------------------------------------------------------------------------


def broken() -> str:
    raise OSError(5, "Input/output error")


def test_the_environment_is_judged_before_standard_input(harness: DispatchHarness) -> None:
    document = harness.refusal(evolve(NETPLUG, environ={"CNI_COMMAND": "ADD"}, stdin=unread))
    assert document["code"] == 4
    assert document["msg"] == ("required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing")


def test_an_unknown_command_is_named(harness: DispatchHarness) -> None:
    document = harness.refusal(with_environ("FOO"))
    assert document["code"] == 4
    assert str(document["msg"]).startswith("unknown CNI_COMMAND: FOO;")


@pytest.mark.parametrize(
    "changes",
    [
        {"CNI_CONTAINERID": "-abc"},
        {"CNI_CONTAINERID": "a b"},
        {"CNI_CONTAINERID": ""},
        {"CNI_IFNAME": "eth0/1"},
        {"CNI_IFNAME": "a:b"},
        {"CNI_IFNAME": ".."},
        {"CNI_IFNAME": "sixteen-letters0"},
        {"CNI_ARGS": "x"},
    ],
)
def test_malformed_variables_are_code_4(harness: DispatchHarness, changes: dict[str, str]) -> None:
    assert harness.refusal(with_environ("ADD", **changes))["code"] == 4


def test_input_that_cannot_be_read_is_code_5(harness: DispatchHarness) -> None:
    assert harness.refusal(evolve(NETPLUG, stdin=broken)) == {
        "cniVersion": "1.1.0",
        "code": 5,
        "msg": "standard input cannot be read: [Errno 5] Input/output error",
    }


@pytest.mark.parametrize("text", ["", b"", "{nope", "[]", b'{"name": "\xff"}'])
def test_input_that_is_no_configuration_is_code_6(harness: DispatchHarness, text: str | bytes) -> None:
    document = harness.refusal(with_config(text))
    assert document["code"] == 6
    assert document["cniVersion"] == "1.1.0"


def test_bytes_that_are_no_utf8_are_named_by_their_place(harness: DispatchHarness) -> None:
    document = harness.refusal(with_config(b'{"name": "\xff"}'))
    assert document["msg"] == "standard input: is not UTF-8: invalid start byte at byte 10"


def test_the_name_is_judged_before_the_version(harness: DispatchHarness) -> None:
    document = harness.refusal(with_config('{"cniVersion": "9.9.9"}'))
    assert document["code"] == 7
    assert document["cniVersion"] == "9.9.9"


def test_the_version_is_judged_before_the_command(harness: DispatchHarness) -> None:
    document = harness.refusal(with_config('{"name": "net1", "cniVersion": "9.9.9"}', "GC"))
    assert document == {
        "cniVersion": "9.9.9",
        "code": 1,
        "msg": "incompatible CNI versions",
        "details": f'config is "9.9.9", plugin supports [{", ".join(SUPPORTED)}]',
    }


@pytest.mark.parametrize("command,version", [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")])
def test_a_version_without_the_command_is_code_1(harness: DispatchHarness, command: str, version: str) -> None:
    document = harness.refusal(with_config(f'{{"name": "net1", "cniVersion": "{version}"}}', command))
    assert document["code"] == 1
    assert document["msg"] == f"config version does not allow {command}"
    assert document["cniVersion"] == version


def test_the_command_is_judged_before_the_namespace(harness: DispatchHarness) -> None:
    harness.own_namespace = ADD["CNI_NETNS"]
    document = harness.refusal(with_config('{"name": "net1", "cniVersion": "9.9.9"}'))
    assert document["code"] == 1
    assert harness.namespaces == []


def test_an_add_into_our_own_namespace_is_refused_before_any_work(harness: DispatchHarness) -> None:
    harness.own_namespace = ADD["CNI_NETNS"]
    assert harness.refusal(NETPLUG) == {
        "cniVersion": "1.0.0",
        "code": 8,
        "msg": "plugin's netns and netns from CNI_NETNS should not be the same",
    }


def test_the_override_lifts_the_namespace_check(harness: DispatchHarness) -> None:
    harness.own_namespace = ADD["CNI_NETNS"]
    assert harness.run(with_environ(CNI_NETNS_OVERRIDE="true")).exit_status == 0
    assert harness.namespaces == []


def test_a_del_is_not_held_up_by_the_namespace_check(harness: DispatchHarness) -> None:
    harness.own_namespace = ADD["CNI_NETNS"]
    assert harness.run(with_environ("DEL")).exit_status == 0
    assert len(harness.requests) == 1


# --- handlers ------------------------------------------------------------------------------------------------------


def test_an_add_prints_its_result_in_the_version_of_the_call(harness: DispatchHarness) -> None:
    reply = harness.run(with_config(b'{"name": "net1", "cniVersion": "0.3.1"}'))
    assert reply.exit_status == 0
    assert reply.stderr == ""
    assert json.loads(reply.stdout) == {
        "cniVersion": "0.3.1",
        "ips": [{"version": "4", "address": "10.0.0.2/32"}],
    }
    assert harness.namespaces == [ADD["CNI_NETNS"]]
    assert harness.logged == []


def test_a_result_for_an_unstated_version_says_0_2_0(harness: DispatchHarness) -> None:
    reply = harness.run(with_config('{"name": "net1"}'))
    assert json.loads(reply.stdout) == {"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/32"}}


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_success_without_a_result_prints_nothing(command: str) -> None:
    harness = DispatchHarness(answer=None)
    reply = harness.run(with_config('{"name": "net1", "cniVersion": "1.1.0"}', command))
    assert reply == ProcessOutput()
    assert [request.command.value for request in harness.requests] == [command]


def test_an_error_of_ours_becomes_the_error_object() -> None:
    harness = DispatchHarness(error=Unavailable("the datastore", "no answer"))
    reply = harness.run(NETPLUG)
    assert reply.exit_status == 1
    assert json.loads(reply.stdout) == {
        "cniVersion": "1.0.0",
        "code": 11,
        "msg": "the datastore: no answer",
    }
    assert harness.logged == ["the final result was an error, code 11: the datastore: no answer"]


def test_an_error_for_an_unstated_version_says_0_2_0() -> None:
    reply = DispatchHarness(error=NamespaceError("gone")).run(with_config('{"name": "net1"}'))
    assert json.loads(reply.stdout)["cniVersion"] == "0.2.0"


def test_an_unforeseen_exception_becomes_one_error_object() -> None:
    harness = DispatchHarness(error=ZeroDivisionError("division by zero"))
    reply = harness.run(NETPLUG)
    assert reply.exit_status == 1
    assert json.loads(reply.stdout) == {
        "cniVersion": "1.0.0",
        "code": 999,
        "msg": "ZeroDivisionError: division by zero",
        "details": "ZeroDivisionError: division by zero",
    }
    assert "Traceback" not in reply.stdout
    assert "Traceback" in harness.logged[0]


def test_a_result_that_cannot_be_shown_is_an_error() -> None:
    reply = DispatchHarness(answer=CNIResult()).run(with_config('{"name": "net1", "cniVersion": "0.2.0"}'))
    assert reply.exit_status == 1
    assert json.loads(reply.stdout)["code"] == 7


def test_a_token_leaves_in_no_text() -> None:
    harness = DispatchHarness(error=ValueError("cannot use s3cr3t"))
    reply = harness.run(with_config('{"name": "net1", "policy": {"k8s_auth_token": "s3cr3t"}}'))
    assert json.loads(reply.stdout)["msg"] == "ValueError: cannot use <hidden>"
    assert "s3cr3t" not in reply.stdout + reply.stderr + harness.logged[0]
