"""Who has to move, by code, and what each base error says."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

import pytest

import netplug_core
from netplug_core import errors
from netplug_core.addressing import Prefix
from netplug_core.errors import (
    AllocationError,
    ConfigurationError,
    ContentionExhausted,
    DataplaneError,
    DatastoreError,
    DecodeError,
    IncompatibleVersion,
    InvalidArgument,
    InvariantBroken,
    LimitedConnectivity,
    NamespaceError,
    NamespaceNotFound,
    NetplugError,
    NotYetSupported,
    ReadError,
    RequestError,
    Unauthorized,
    Unavailable,
    UnhealthyStatus,
    UsageError,
    did_you_mean,
    find_similar,
    narrow,
    require_count,
    require_type,
    shorten,
)
from netplug_core.ipam.outcome import AddressShortfall, PoolOutcome, PoolRefused, PoolTrace

# What a pool may be refused for although it was named.
REFUSED = (
    PoolOutcome.WRONG_FAMILY,
    PoolOutcome.DISABLED,
    PoolOutcome.TERMINATING,
    PoolOutcome.NOT_ALLOCATABLE,
)


@pytest.mark.parametrize("error, code, text", [
    (IncompatibleVersion("no such version"), 1, "no such version"),
    (RequestError("CNI_IFNAME is missing"), 4, "CNI_IFNAME is missing"),
    (ReadError("stdin is closed"), 5, "stdin is closed"),
    (DecodeError("ipam.type", "must be a string"), 6, "ipam.type: must be a string"),
    (ConfigurationError("mtu", "x", "a number is expected"), 7, "mtu: 'x' is not accepted; a number is expected"),
    (NotYetSupported("policy", "k8s", "leave it out"), 7, "policy: 'k8s' is not yet supported; leave it out"),
    (NamespaceError("/run/netns/x is the node's own"), 8, "/run/netns/x is the node's own"),
    (NamespaceNotFound("/run/netns/x is no namespace"), 4, "/run/netns/x is no namespace"),
    (Unavailable("etcd", "connection refused"), 11, "etcd: connection refused"),
    (Unauthorized("etcd", "no right"), 11, "etcd: no right"),
    (
        ContentionExhausted(7, "Block(x) was changed"), 11,
        "gave up after 7 attempts against concurrent writers; the last one: Block(x) was changed",
    ),
    (UnhealthyStatus("no pool serves"), 50, "no pool serves"),
    (LimitedConnectivity("not forwarded"), 51, "not forwarded"),
    (UsageError("unknown flag"), 100, "unknown flag"),
    (InvariantBroken("two owners"), 999, "internal error: two owners"),
])  # fmt: skip
def test_codes_and_texts(error: NetplugError, code: int, text: str) -> None:
    assert (error.code, str(error)) == (code, text)


def test_a_value_of_another_class_than_it_has_to_be_is_our_mistake() -> None:
    assert narrow("text", str) == "text"
    with pytest.raises(InvariantBroken, match="a int stands where a str has to be"):
        narrow(7, str)


def test_bases_say_whose_move_it_is() -> None:
    assert DataplaneError.code == 120
    assert issubclass(Unavailable, DatastoreError)
    assert issubclass(Unauthorized, Unavailable)
    assert issubclass(NotYetSupported, ConfigurationError)


def test_an_error_keeps_its_cause_though_it_is_frozen() -> None:
    error = Unavailable("etcd", "timeout")
    with pytest.raises(Unavailable) as caught:
        raise error from ValueError("why")
    assert isinstance(caught.value.__cause__, ValueError)
    assert (caught.value.what, caught.value.cause) == ("etcd", "timeout")


def test_a_code_and_an_identifier_of_allocation_belong_together() -> None:
    for found in walk_packages(netplug_core.__path__, "netplug_core."):
        if not found.name.startswith("netplug_core.testing"):
            import_module(found.name)  # so that every error class there is exists
    kinds = [kind for kind in subclasses(AllocationError) if kind is not AddressShortfall]
    names = {name for kind in kinds for name in names_of(kind)}
    assert sorted(code for code, _identifier in names) == list(range(101, 120))
    assert len({identifier for _code, identifier in names}) == len(names)


def subclasses(kind: type[AllocationError]) -> Iterator[type[AllocationError]]:
    # attrs makes a second class where it adds slots, and the first one lives until it is collected.
    for below in kind.__subclasses__():
        if getattr(import_module(below.__module__), below.__name__) is below:
            yield below
        yield from subclasses(below)


def names_of(kind: type[AllocationError]) -> list[tuple[int, str]]:
    if kind is not PoolRefused:
        return [(kind.code, kind.identifier)]
    prefix = Prefix.parse("10.0.0.0/24")
    seen = (PoolTrace(pool="p", prefix=prefix, outcome=outcome) for outcome in REFUSED)
    refusals = [PoolRefused("p", entry) for entry in seen]
    return [(refusal.code, refusal.identifier) for refusal in refusals]


def test_every_public_class_is_an_error_of_ours() -> None:
    public = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]
    classes = [each for each in public if each is not errors.ErrorCode]
    assert classes
    assert all(issubclass(each, NetplugError) for each in classes)


def test_an_argument_of_a_wrong_type_is_named_with_its_value_and_what_is_accepted() -> None:
    with pytest.raises(InvalidArgument) as refusal:
        require_type("open.url", 5, str, "a URL is expected")
    assert str(refusal.value) == "open.url: 5 is not accepted; a URL is expected"
    assert refusal.value.code == 7
    require_type("open.url", "memory:", str, "a URL is expected")


@pytest.mark.parametrize("value", [0, -1, True, "2", 2.0, None])
def test_a_count_is_a_whole_number_of_at_least_one(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^n: .* is not accepted; a whole number of at least 1 is expected$"):
        require_count("n", value)


def test_a_count_that_is_large_enough_is_accepted() -> None:
    require_count("n", 1)
    require_count("n", 0, minimum=0)


def test_a_long_argument_is_cut() -> None:
    assert str(InvalidArgument("x", "a" * 500, "less is expected")) == (
        "x: '" + "a" * 199 + "… is not accepted; less is expected"
    )


def test_a_text_of_ours_is_cut_where_a_text_from_outside_is_long() -> None:
    word = "c" * 100_000
    assert shorten(f"the container {word} is gone; {word}") == f"the container {word[:200]}… is gone; {word[:200]}…"
    sentence = "a sentence of ours " * 50
    assert shorten(sentence) == sentence
    assert shorten("c" * 200) == "c" * 200


@pytest.mark.parametrize(
    "word, known, expected",
    [
        ("cdir", ("blockSize", "cidr"), "cidr"),
        ("IPPol", ("node", "ippool"), "ippool"),
        ("yml", ("json", "yaml"), "yaml"),
        ("blocksiz", ("blockSize",), "blockSize"),
        ("natOut", ("natOutgoing", "vxlanMode"), "natOutgoing"),
        ("node-b", ("node-a", "node-c"), "node-a"),
        ("pool", ("pools", "pol", "pool"), "pool"),
        ("ippoollist", ("ippool",), ""),
        ("bpfEnabled", ("ipipEnabled",), ""),
        ("abcd", ("efgh",), ""),
        ("x", ("y",), ""),
        ("X", ("x",), "x"),
        ("", ("a",), ""),
        ("a", (), ""),
    ],
)
def test_the_known_word_that_was_probably_meant(word: str, known: tuple[str, ...], expected: str) -> None:
    assert find_similar(word, known) == expected
    assert did_you_mean(word, known) == (f"did you mean {expected}?" if expected else "")
