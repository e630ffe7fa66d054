"""The messages of etcd's v3 protocol that netplug uses, as protobuf classes that are built at import.

The generated code of the client library does not load with protobuf 4 and later. Classes that protobuf's factory builds
from descriptors load with all versions, and are as fast. The table has the part of the protocol that ``rpc`` and the
library's stubs use; protobuf skips other fields. The classes have a descriptor pool of their own, so they cannot
conflict with another program's definitions of the same messages.

Source: the etcd v3 API, packages ``etcdserverpb``, ``mvccpb`` and ``authpb``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["CLASSES", "generated_module"]

# Each field: name, number, type. A type that is not a scalar is a message or an enum of the tables; a leading "*" means
# repeated. The fields after "|" are a oneof.
_MESSAGES: Mapping[str, str] = {
    "ResponseHeader": "cluster_id 1 uint64, member_id 2 uint64, revision 3 int64, raft_term 4 uint64",
    "KeyValue": "key 1 bytes, create_revision 2 int64, mod_revision 3 int64, version 4 int64, value 5 bytes,"
    " lease 6 int64",
    "Event": "type 1 EventType, kv 2 KeyValue, prev_kv 3 KeyValue",
    "RangeRequest": "key 1 bytes, range_end 2 bytes, limit 3 int64, revision 4 int64, serializable 7 bool,"
    " keys_only 8 bool, count_only 9 bool, min_mod_revision 10 int64",
    "RangeResponse": "header 1 ResponseHeader, kvs 2 *KeyValue, more 3 bool, count 4 int64",
    "PutRequest": "key 1 bytes, value 2 bytes, lease 3 int64",
    "PutResponse": "header 1 ResponseHeader",
    "DeleteRangeRequest": "key 1 bytes, range_end 2 bytes",
    "DeleteRangeResponse": "header 1 ResponseHeader, deleted 2 int64",
    "RequestOp": "| request_range 1 RangeRequest, request_put 2 PutRequest, request_delete_range 3 DeleteRangeRequest",
    "ResponseOp": "| response_range 1 RangeResponse, response_put 2 PutResponse,"
    " response_delete_range 3 DeleteRangeResponse",
    "Compare": "result 1 CompareResult, target 2 CompareTarget, key 3 bytes, range_end 64 bytes |"
    " version 4 int64, create_revision 5 int64, mod_revision 6 int64",
    "TxnRequest": "compare 1 *Compare, success 2 *RequestOp, failure 3 *RequestOp",
    "TxnResponse": "header 1 ResponseHeader, succeeded 2 bool, responses 3 *ResponseOp",
    "CompactionRequest": "revision 1 int64, physical 2 bool",
    "CompactionResponse": "header 1 ResponseHeader",
    "WatchCreateRequest": "key 1 bytes, range_end 2 bytes, start_revision 3 int64",
    "WatchRequest": "| create_request 1 WatchCreateRequest",
    "WatchResponse": "header 1 ResponseHeader, watch_id 2 int64, created 3 bool, canceled 4 bool,"
    " compact_revision 5 int64, cancel_reason 6 string, events 11 *Event",
    "AuthenticateRequest": "name 1 string, password 2 string",
    "AuthenticateResponse": "header 1 ResponseHeader, token 2 string",
}

# Values count from 0. Each enum is nested in the message that is named first.
_ENUMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "EventType": ("Event", ("PUT", "DELETE")),
    "CompareResult": ("Compare", ("EQUAL", "GREATER", "LESS", "NOT_EQUAL")),
    "CompareTarget": ("Compare", ("VERSION", "CREATE", "MOD", "VALUE", "LEASE")),
}

# One package for all: names are not part of what is sent.
_PACKAGE = "etcdserverpb"
_FILE = "netplug_etcd.proto"


def _file() -> FileDescriptorProto:
    """The table as protobuf's own description of a file."""
    described = FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = described.message_type.add(name=name)
        plain, _, choice = fields.partition("|")
        if choice:
            message.oneof_decl.add(name="choice")
        for field in filter(None, map(str.split, plain.split(","))):
            message.field.append(_field(*field))
        for field in filter(None, map(str.split, choice.split(","))):
            message.field.append(_field(*field))
            message.field[-1].oneof_index = 0
        for enum, (owner, values) in _ENUMS.items():
            if owner == name:
                listed = message.enum_type.add(name=enum)
                for number, value in enumerate(values):
                    listed.value.add(name=value, number=number)
    return described


def _field(name: str, number: str, type_: str) -> FieldDescriptorProto:
    kind = type_.removeprefix("*")
    repeats = FieldDescriptorProto.LABEL_REPEATED if kind != type_ else FieldDescriptorProto.LABEL_OPTIONAL
    field = FieldDescriptorProto(name=name, number=int(number), label=repeats)
    if kind in _MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    elif kind in _ENUMS:
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, f".{_PACKAGE}.{_ENUMS[kind][0]}.{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    return field


def _classes() -> Mapping[str, Any]:
    pool = DescriptorPool()
    pool.Add(_file())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


CLASSES: Mapping[str, Any] = _classes()
"""Each message's class, by its name."""


def generated_module(name: str) -> ModuleType:
    """A module of that name with every message class, as a protocol compiler would generate it."""
    module = ModuleType(name)
    vars(module).update(CLASSES)
    return module
