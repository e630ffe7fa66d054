"""The messages as they travel: known bytes of the protocol, which no generated code of ours could get wrong with us."""

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
def test_a_message_is_written_as_the_protocol_says(name: str, fields: dict[str, object], data: str) -> None:
    message = CLASSES[name](**fields)
    assert message.SerializeToString(deterministic=True).hex() == data
    assert CLASSES[name].FromString(bytes.fromhex(data)) == message


def test_a_comparison_with_zero_is_written_although_zero_is_the_default() -> None:
    """The revision excludes the other things to compare with, so that it stands there says which is meant."""
    compare = CLASSES["Compare"]
    absent = compare(key=b"k", target=compare.CREATE, result=compare.EQUAL, create_revision=0)
    assert absent.SerializeToString(deterministic=True).hex() == "10011a016b2800"


def test_a_range_is_compared_with_its_end() -> None:
    compare = CLASSES["Compare"]
    newer = compare(key=b"a", range_end=b"b", target=compare.MOD, result=compare.LESS, mod_revision=9)
    assert newer.SerializeToString(deterministic=True).hex() == "080210021a01613009820401" + "62"


def test_fields_of_a_newer_etcd_are_passed_over() -> None:
    reply = CLASSES["RangeResponse"].FromString(bytes.fromhex("1801" + "c2060178"))
    assert reply.more
    assert len(reply.kvs) == 0


def test_the_module_that_stands_in_for_generated_code_has_every_message() -> None:
    module = generated_module("etcd3.etcdrpc.rpc_pb2")
    assert module.__name__ == "etcd3.etcdrpc.rpc_pb2"
    assert {name for name in vars(module) if not name.startswith("__")} == set(CLASSES)
