"""From variables and standard input to a request: examples, refusals, exact messages."""

import json
from collections.abc import Mapping

import pytest

from netplug_core.addressing import Address
from netplug_core.cni.request import (
    CNIArgs,
    CNICommand,
    CNIEnvironment,
    CNIRequest,
    decode_netconf,
    make_request,
    parse_environment,
)
from netplug_core.errors import ConfigurationError, DecodeError, IncompatibleVersion, RequestError

ATTACHMENT = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "abc123",
    "CNI_NETNS": "/run/netns/cni-1",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
}


def environ(command: str = "ADD", **changes: str | None) -> dict[str, str]:
    """The variables of a complete call, with some changed or, by None, taken away."""
    merged = {**ATTACHMENT, "CNI_COMMAND": command, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def request_of(config: Mapping[str, object], command: str = "ADD", **changes: str) -> CNIRequest:
    return make_request(
        parse_environment(environ(command, **changes)), netconf_text=json.dumps(config), netconf_mapping=config
    )


# --- variables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ADD", "CHECK", "DEL"])
def test_an_attachment_is_read_whole(command: str) -> None:
    assert parse_environment(environ(command, CNI_ARGS="K8S_POD_NAME=web")) == CNIEnvironment(
        command=CNICommand(command),
        container_id="abc123",
        netns="/run/netns/cni-1",
        ifname="eth0",
        args=CNIArgs(pod_name="web", pairs=(("K8S_POD_NAME", "web"),)),
        path=("/opt/cni/bin", "/usr/lib/cni"),
    )


@pytest.mark.parametrize("command", ["GC", "STATUS"])
def test_commands_without_an_attachment_look_at_the_path_only(command: str) -> None:
    given = environ(command, CNI_CONTAINERID="-bad", CNI_IFNAME="a/b", CNI_ARGS="bad")
    assert parse_environment(given) == CNIEnvironment(
        command=CNICommand(command), path=("/opt/cni/bin", "/usr/lib/cni")
    )


def test_version_needs_nothing_else() -> None:
    assert parse_environment({"CNI_COMMAND": "VERSION"}) == CNIEnvironment(command=CNICommand.VERSION)


@pytest.mark.parametrize(
    "given,missing",
    [
        ({"CNI_COMMAND": "ADD"}, "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
        (environ("ADD", CNI_NETNS=None, CNI_IFNAME=None), "CNI_NETNS,CNI_IFNAME"),
        (environ("ADD", CNI_CONTAINERID=""), "CNI_CONTAINERID"),
        (environ("CHECK", CNI_NETNS=""), "CNI_NETNS"),
        (environ("DEL", CNI_CONTAINERID=None), "CNI_CONTAINERID"),
        (environ("DEL", CNI_IFNAME=None), "CNI_IFNAME"),
        (environ("GC", CNI_PATH=None), "CNI_PATH"),
        (environ("STATUS", CNI_PATH=None), "CNI_PATH"),
        (environ("", CNI_IFNAME=None), "CNI_COMMAND"),
        ({"CNI_PATH": "/opt/cni/bin"}, "CNI_COMMAND"),
    ],
)
def test_all_missing_variables_are_named_at_once(given: dict[str, str], missing: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_environment(given)
    assert str(refusal.value) == f"required env variables [{missing}] missing"


def test_a_del_needs_no_namespace() -> None:
    assert parse_environment(environ("DEL", CNI_NETNS=None)).netns == ""


@pytest.mark.parametrize("command", ["FOO", "add", " ADD"])
def test_an_unknown_command_is_named(command: str) -> None:
    with pytest.raises(RequestError, match=f"^unknown CNI_COMMAND: {command}; ADD, DEL, CHECK, GC, STATUS, "):
        parse_environment(environ(command))


@pytest.mark.parametrize("container_id", ["a", "0", "A-b_c.d", "x" * 200])
def test_container_ids_of_the_specification_are_accepted(container_id: str) -> None:
    assert parse_environment(environ(CNI_CONTAINERID=container_id)).container_id == container_id


@pytest.mark.parametrize("container_id", ["-abc", "a b", ".a", "_a", "a/b", "../../x", "ä", "a\n"])
def test_other_container_ids_are_refused(container_id: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_environment(environ(CNI_CONTAINERID=container_id))
    assert str(refusal.value) == (
        f'CNI_CONTAINERID: "{container_id}" is not a container id; '
        "letters, digits, '_', '.' and '-' are accepted, a letter or digit first"
    )


@pytest.mark.parametrize("ifname", ["e", "eth0", "fifteen-letters", "-", "...", "a.b@c", "äöü"])
def test_interface_names_of_the_specification_are_accepted(ifname: str) -> None:
    assert parse_environment(environ(CNI_IFNAME=ifname)).ifname == ifname


@pytest.mark.parametrize(
    "ifname, shown",
    [
        *((name, name) for name in ("eth0/1", "a:b", ".", "..", "sixteen-letters0", "a b", "ääääääää")),
        ("a\tb", "a\\tb"),
        ("a\x1fb", "a\\x1fb"),
        ("\udcff", "\\udcff"),
    ],
)
def test_other_interface_names_are_refused(ifname: str, shown: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_environment(environ(CNI_IFNAME=ifname))
    assert str(refusal.value) == (
        f'CNI_IFNAME: "{shown}" is not an interface name; 1 to 15 bytes of printable UTF-8 without "/", ":" and white '
        'space are accepted, but not "." and ".."'
    )


@pytest.mark.parametrize("ifname", ["eth%d", "100%", "%", "all", "default", "à"])
def test_names_that_the_kernel_replaces_or_refuses_are_refused_before_anything_is_made(ifname: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_environment(environ(CNI_COMMAND="ADD", CNI_IFNAME=ifname))
    assert str(refusal.value) == (
        f'CNI_IFNAME: "{ifname}" is not a name that the kernel gives to an interface; names without "%" and without the'
        ' byte A0 are accepted, but not "all" and "default"'
    )
    assert parse_environment(environ(CNI_COMMAND="DEL", CNI_IFNAME=ifname)).ifname == ifname


@pytest.mark.parametrize(
    "text,expected",
    [("1", True), ("true", True), ("TrUe", True), ("", False), ("0", False), ("yes", False)],
)
def test_the_namespace_check_is_lifted_by_one_and_true(text: str, expected: bool) -> None:  # noqa: FBT001
    assert parse_environment(environ(CNI_NETNS_OVERRIDE=text)).has_netns_override is expected


def test_empty_parts_of_the_path_are_no_directories() -> None:
    assert parse_environment(environ(CNI_PATH=":/a::/b:")).path == ("/a", "/b")


# --- CNI_ARGS ------------------------------------------------------------------------------------------------------


def test_no_arguments() -> None:
    assert CNIArgs.parse("") == CNIArgs()


def test_every_known_argument_is_read() -> None:
    text = (
        "IgnoreUnknown=1;IP=10.0.0.7;K8S_POD_NAMESPACE=test;K8S_POD_NAME=web-0;"
        "K8S_POD_INFRA_CONTAINER_ID=sandbox;K8S_POD_UID=0e2f"
    )
    args = CNIArgs.parse(text)
    assert args == CNIArgs(
        address=Address.parse("10.0.0.7"),
        pod_namespace="test",
        pod_name="web-0",
        pod_infra_container_id="sandbox",
        pod_uid="0e2f",
        ignore_unknown=True,
        pairs=args.pairs,
    )
    assert ";".join(f"{key}={value}" for key, value in args.pairs) == text


def test_unknown_arguments_are_kept_whatever_ignore_unknown_says() -> None:
    args = CNIArgs.parse("IgnoreUnknown=0;K8S_NEW=x;ip=10.0.0.1")
    assert args.pairs == (("IgnoreUnknown", "0"), ("K8S_NEW", "x"), ("ip", "10.0.0.1"))
    assert not args.ignore_unknown
    assert args.address is None


def test_the_last_duplicate_wins() -> None:
    args = CNIArgs.parse("K8S_POD_NAME=a;K8S_POD_NAME=b")
    assert args.pod_name == "b"
    assert len(args.pairs) == 2


def test_an_empty_value_is_legal() -> None:
    args = CNIArgs.parse("K8S_POD_NAME=;IP=")
    assert args.pod_name == ""
    assert args.address is None


@pytest.mark.parametrize("text,pair", [("K", "K"), ("A=b;", ""), (";", ""), ("A=b=c", "A=b=c"), ("A=b;;C=d", "")])
def test_a_malformed_pair_is_quoted(text: str, pair: str) -> None:
    with pytest.raises(RequestError) as refusal:
        CNIArgs.parse(text)
    assert str(refusal.value) == (
        f'ARGS: invalid pair "{pair}"; KEY=VALUE in printable UTF-8 is accepted, pairs separated by ";"'
    )


@pytest.mark.parametrize("text", ["K8S_POD_NAME=a\udcff", "K8S_POD_NAMESPACE=a\x1fb", "K8S_POD_NAME=a\nb"])
def test_a_pair_that_cannot_be_printed_is_refused_and_shown_escaped(text: str) -> None:
    with pytest.raises(RequestError, match=r'^ARGS: invalid pair "[ -~]+"; KEY=VALUE in printable UTF-8 is accepted'):
        CNIArgs.parse(text)


@pytest.mark.parametrize("text", ["10.0.0.1/24", "garbage", "fe80::1%eth0", "010.0.0.1"])
def test_the_requested_address_is_bare(text: str) -> None:
    with pytest.raises(RequestError, match=r"^ARGS: IP: .* a bare IPv4 or IPv6 address is accepted$"):
        CNIArgs.parse(f"IP={text}")


@pytest.mark.parametrize("text", ["1", "true", "True", "TRUE"])
def test_ignore_unknown_can_be_on(text: str) -> None:
    assert CNIArgs.parse(f"IgnoreUnknown={text}").ignore_unknown


@pytest.mark.parametrize("text", ["", "yes", "2"])
def test_ignore_unknown_is_a_flag(text: str) -> None:
    with pytest.raises(RequestError) as refusal:
        CNIArgs.parse(f"IgnoreUnknown={text}")
    assert str(refusal.value) == f'ARGS: IgnoreUnknown: "{text}" is not accepted; 1, true, 0 and false are'


@pytest.mark.parametrize(
    "malformed",
    ["", "K", "A=b=c", "IP=10.65.0.9/24", "IP=10.65.0.9,10.65.0.10", "IgnoreUnknown=perhaps", "B=a\nb", "\udcff=1"],
)
def test_a_del_skips_what_it_does_not_use(malformed: str) -> None:
    """Its container was attached by a call with other arguments, or not at all, and has to go."""
    text = f"{malformed};K8S_POD_NAMESPACE=test;C=d;K8S_POD_NAME=web-0;{malformed}"
    args = parse_environment(environ("DEL", CNI_ARGS=text)).args
    assert (args.pod_namespace, args.pod_name, args.address) == ("test", "web-0", None)
    assert args.pairs == (("K8S_POD_NAMESPACE", "test"), ("C", "d"), ("K8S_POD_NAME", "web-0"))
    with pytest.raises(RequestError):
        parse_environment(environ("ADD", CNI_ARGS=text))


# --- standard input ------------------------------------------------------------------------------------------------


def test_a_configuration_is_decoded_whole() -> None:
    assert decode_netconf('{"name": "net1", "unknown": {"deep": [1, 2.5, null]}}') == {
        "name": "net1",
        "unknown": {"deep": [1, 2.5, None]},
    }


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "standard input: is empty; a network configuration is expected, as a JSON object"),
        (" \n", "standard input: is empty; a network configuration is expected, as a JSON object"),
        (
            "{nope",
            (
                "network configuration: is not JSON: "
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
            ),
        ),
        ('{"a": 1} x', "network configuration: is not JSON: Extra data: line 1 column 10 (char 9)"),
        ("[]", "network configuration: must be a JSON object"),
        ("null", "network configuration: must be a JSON object"),
        ('{"a": NaN}', "network configuration: is not JSON: NaN is no JSON number"),
        ('{"a": -Infinity}', "network configuration: is not JSON: -Infinity is no JSON number"),
        (
            '{"x": {"a": 1, "a": 2}}',
            "network configuration: is not JSON: the key 'a' stands twice in one object",
        ),
        ("[" * 100_000, "network configuration: is nested too deeply"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_netconf(text)
    assert str(refusal.value) == message


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"^network configuration: is not JSON: Exceeds the limit"):
        decode_netconf('{"a": ' + "1" * 5000 + "}")


@pytest.mark.parametrize("text", ['{"token": "s3cret"', '{"token": "s3cret", }', '"s3cret'])
def test_broken_input_is_not_repeated(text: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode_netconf(text)
    assert "s3cret" not in str(refusal.value)


# --- the request ---------------------------------------------------------------------------------------------------


def test_a_request_carries_everything() -> None:
    config = {"name": "net1", "cniVersion": "1.0.0", "type": "netplug"}
    assert request_of(config, CNI_ARGS="K8S_POD_NAME=p", CNI_NETNS_OVERRIDE="1") == CNIRequest(
        command=CNICommand.ADD,
        container_id="abc123",
        netns="/run/netns/cni-1",
        ifname="eth0",
        args=CNIArgs(pod_name="p", pairs=(("K8S_POD_NAME", "p"),)),
        path=("/opt/cni/bin", "/usr/lib/cni"),
        has_netns_override=True,
        network="net1",
        cni_version="1.0.0",
        reported_version="1.0.0",
        netconf_text=json.dumps(config),
        netconf_mapping=config,
    )


def test_a_request_never_shows_its_configuration() -> None:
    shown = repr(request_of({"name": "net1", "policy": {"k8s_auth_token": "s3cret"}}))
    assert "s3cret" not in shown
    assert "net1" in shown


@pytest.mark.parametrize("config", [{"name": "n"}, {"name": "n", "cniVersion": ""}, {"name": "n", "cniVersion": None}])
def test_a_configuration_without_a_version_is_served_as_the_oldest(config: Mapping[str, object]) -> None:
    request = request_of(config)
    assert request.cni_version == "0.1.0"
    assert request.reported_version == "0.2.0"


@pytest.mark.parametrize("name", ["n", "Net.1_x-y", "0"])
def test_any_name_of_the_specification_is_accepted(name: str) -> None:
    assert request_of({"name": name}).network == name


@pytest.mark.parametrize("config", [{}, {"name": None}, {"name": ""}, {"name": "-n"}, {"name": "a b"}, {"name": "ñ"}])
def test_a_missing_or_malformed_name_is_refused(config: Mapping[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        request_of({**config, "cniVersion": "9.9.9"})
    assert str(refusal.value) == (
        f"network configuration.name: {config.get('name') or ''!r} is not accepted; a name is required; "
        "letters, digits, '_', '.' and '-' are accepted, a letter or digit first"
    )


@pytest.mark.parametrize("key,value", [("name", 5), ("cniVersion", 1.0), ("cniVersion", ["1.0.0"])])
def test_name_and_version_are_strings(key: str, value: object) -> None:
    with pytest.raises(DecodeError) as refusal:
        request_of({"name": "net1", key: value})
    assert str(refusal.value) == f"network configuration.{key}: must be a string"


def test_an_unsupported_version_is_refused() -> None:
    with pytest.raises(IncompatibleVersion, match=r"^incompatible CNI versions$"):
        request_of({"name": "net1", "cniVersion": "9.9.9"})


@pytest.mark.parametrize("command,version", [("CHECK", "0.3.1"), ("CHECK", ""), ("GC", "1.0.0"), ("STATUS", "1.0.0")])
def test_a_version_without_the_command_is_refused(command: str, version: str) -> None:
    with pytest.raises(IncompatibleVersion, match=f"^config version does not allow {command}$"):
        request_of({"name": "net1", "cniVersion": version}, command)


@pytest.mark.parametrize(
    "args,orchestrator",
    [
        ("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p", "k8s"),
        ("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=", "cni"),
        ("K8S_POD_NAME=p", "cni"),
        ("", "cni"),
    ],
)
def test_a_pod_with_its_namespace_means_kubernetes(args: str, orchestrator: str) -> None:
    assert request_of({"name": "net1"}, CNI_ARGS=args).orchestrator == orchestrator
