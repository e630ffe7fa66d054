"""What another IPAM plugin gets, and what its answers mean. ``flows/cni/test_delegated`` has whole calls."""

import pytest

from netplug_core.cni.delegation import (
    IPAMPluginError,
    IPAMPluginFailed,
    IPAMPluginTimeout,
    PluginOutput,
    is_unknown_command,
    parse_answer,
    plugin_environment,
    require_no_loop,
)
from netplug_core.cni.dispatch import CNICommand
from netplug_core.cni.request import CNIRequest, decode_netconf, make_request, parse_environment
from netplug_core.cni.result import describe_error
from netplug_core.errors import REDACTED, ConfigurationError

OWNER = (("container", "c1"), ("interface", "eth0"), ("network", "net1"))
VARIABLES = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/c1",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
    "HOME": "/root",
}


def request_of(**variables: str) -> CNIRequest:
    environ = {**VARIABLES, **variables}
    text = '{"cniVersion": "1.0.0", "name": "net1"}'
    return make_request(
        parse_environment(environ), netconf_text=text, netconf_mapping=decode_netconf(text), environ=environ
    )


def answer(stdout: bytes, status: int = 1, stderr: bytes = b"") -> IPAMPluginError | IPAMPluginFailed:
    """The error of a program's ADD."""
    with pytest.raises((IPAMPluginError, IPAMPluginFailed)) as failure:
        parse_answer("p", request_of(), CNICommand.ADD, PluginOutput(status=status, stdout=stdout, stderr=stderr))
    assert isinstance(failure.value, (IPAMPluginError, IPAMPluginFailed))
    return failure.value


def test_the_variables_of_the_call_with_another_command() -> None:
    expected = {
        **VARIABLES,
        "CNI_COMMAND": "DEL",
        "CNI_ARGS": "IgnoreUnknown=1;IP=10.0.0.9",
        "NETPLUG_DELEGATED": "p",
    }
    assert plugin_environment(request_of(CNI_ARGS="IP=10.0.0.9"), CNICommand.DEL, "p", OWNER) == expected
    expected |= {"CNI_COMMAND": "CHECK", "CNI_ARGS": "IgnoreUnknown=1"}
    assert plugin_environment(request_of(), CNICommand.CHECK, "p") == expected


def test_a_del_hands_on_the_arguments_that_it_takes_itself() -> None:
    """The program would refuse the others, and the container could never be removed."""
    request = request_of(CNI_COMMAND="DEL", CNI_ARGS="IP=10.0.0.9/24;K8S_POD_NAME=web;odd;A=1;")
    environ = plugin_environment(request, CNICommand.DEL, "p", OWNER)
    assert environ["CNI_ARGS"] == "IgnoreUnknown=1;K8S_POD_NAME=web;A=1"


def test_netplug_is_not_the_plugin_that_netplug_executes() -> None:
    with pytest.raises(ConfigurationError, match=r"ipam\.type: 'p' is not accepted; that program is netplug itself"):
        require_no_loop(request_of(**plugin_environment(request_of(), CNICommand.ADD, "p")))
    require_no_loop(request_of())  # a runtime's own call


@pytest.mark.parametrize("other", [("container", "c2"), ("interface", "eth1")])
def test_the_variables_for_another_attachment(other: tuple[str, str]) -> None:
    owner = dict((*OWNER, other))
    environ = plugin_environment(
        request_of(CNI_ARGS="IP=10.0.0.9"), CNICommand.DEL, "p", (*owner.items(), ("namespace", "shop"), ("pod", "web"))
    )
    assert environ == {
        "CNI_COMMAND": "DEL",
        "CNI_CONTAINERID": owner["container"],
        "CNI_IFNAME": owner["interface"],
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web",
        "CNI_PATH": "/opt/cni/bin",
        "HOME": "/root",
        "NETPLUG_DELEGATED": "p",
    }


@pytest.mark.parametrize(
    "code,reported",
    [("7", 7), ("4294967295", 4294967295), ("0", 160), ("-1", 160), ("4294967296", 160)],
)
def test_the_code_of_an_error(code: str, reported: int) -> None:
    error = answer(b'{"code": %s, "msg": "m", "details": "d", "cniVersion": "1.0.0"}' % code.encode())
    described = describe_error(error, secrets=())
    assert (described.code, described.message, described.details) == (reported, "m", "d")


@pytest.mark.parametrize("text", [b'{"code": "7", "msg": "m"}', b'{"code": 7}', b'{"code": true, "msg": "m"}', b"7"])
def test_what_is_no_error_object_is_quoted(text: bytes) -> None:
    error = answer(text)
    assert isinstance(error, IPAMPluginFailed)
    assert f"its standard output begins with {text.decode()!r}" in str(error)
    assert describe_error(error, secrets=()).message.endswith("; run the plugin by hand, or look at its own log")


def test_long_texts_are_cut() -> None:
    error = answer(b'{"code": 7, "msg": "%s", "details": "%s"}' % (b"m" * 5000, b"d" * 5000))
    assert (str(error), error.details) == ("m" * 200 + REDACTED, "d" * 200 + REDACTED)
    assert len(str(answer(b"\xff" * 5000, stderr=b"\xfe" * 5000))) < 500
    assert len(str(answer(b"[" * 100_000))) < 500


def test_standard_error_is_in_the_details() -> None:
    assert answer(b"", stderr=b"panic: oh\n").details == "panic: oh"


def test_only_a_code_of_the_program_says_that_it_lacks_a_command() -> None:
    assert is_unknown_command(answer(b'{"code": 4, "msg": "m"}'))
    assert not is_unknown_command(answer(b'{"code": 7, "msg": "m"}'))
    assert not is_unknown_command(answer(b""))


def test_a_program_that_was_killed_is_tried_again_later() -> None:
    error = IPAMPluginTimeout(plugin="p", command=CNICommand.DEL, seconds=10.0)
    assert describe_error(error, secrets=()).code == 11
    assert str(error) == "the IPAM plugin p, DEL: it did not end within 10.0 s and was killed"
