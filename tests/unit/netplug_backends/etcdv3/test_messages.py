"""The messages as bytes: known encodings of the protocol, which do not depend on our tables."""

import pytest

from netplug_backends.etcdv3.messages import CLASSES, generated_module


@pytest.mark.parametrize(
    "name,fields,data",
    [
        ("RangeRequest", {"key": b"a", "range_end": b"b", "limit": 3, "revision": 4}, "0a016112016218032004"),
        ("RangeRequest", {"key": b"a", "min_mod_revision": 300}, "0a016150ac02"),
        ("PutRequest", {"key": b"k", "value": b"v"}, "0a016b120176"),
        ("DeleteRangeRequest", {"key": b"k"}, "0a016b"),
        ("WatchCreateRequest", {"key": b"k", "start_revision": 7}, "0a016b1807"),
        ("AuthenticateRequest", {"name": "u", "password": "p"}, "0a0175120170"),
    ],
)
def test_a_message_has_the_known_bytes(name: str, fields: dict[str, object], data: str) -> None:
    message = CLASSES[name](**fields)
    assert message.SerializeToString(deterministic=True).hex() == data
    assert CLASSES[name].FromString(bytes.fromhex(data)) == message


def test_a_comparison_with_zero_is_encoded_although_zero_is_the_default() -> None:
    """The members to compare are a oneof, so the member must be encoded even with its default value."""
    compare = CLASSES["Compare"]
    absent = compare(key=b"k", target=compare.CREATE, result=compare.EQUAL, create_revision=0)
    assert absent.SerializeToString(deterministic=True).hex() == "10011a016b2800"


def test_a_range_comparison_has_an_end() -> None:
    compare = CLASSES["Compare"]
    newer = compare(key=b"a", range_end=b"b", target=compare.MOD, result=compare.LESS, mod_revision=9)
    assert newer.SerializeToString(deterministic=True).hex() == "080210021a01613009820401" + "62"


def test_unknown_fields_are_skipped() -> None:
    reply = CLASSES["RangeResponse"].FromString(bytes.fromhex("1801" + "c2060178"))
    assert reply.more
    assert len(reply.kvs) == 0


def test_the_generated_module_has_every_message() -> None:
    module = generated_module("etcd3.etcdrpc.rpc_pb2")
    assert module.__name__ == "etcd3.etcdrpc.rpc_pb2"
    assert {name for name in vars(module) if not name.startswith("__")} == set(CLASSES)
