"""The status of a node process as JSON: it comes back as it was, and what is none is refused by name."""

import json

import pytest
from attrs import evolve

from netplug_cli.node_status import (
    CallFigures,
    NodeDatastore,
    NodeStatus,
    RegistrationStatus,
    decode_status,
    encode_status,
    status_socket_of,
)
from netplug_core.clock import SECOND_NS
from netplug_core.errors import NetplugError
from tests.harness.node_status import REGISTRATION

STATUS = NodeStatus(
    version="3.33.0",
    pid=1742,
    started_ns=1_767_225_600 * SECOND_NS,
    socket="/run/netplug/node.sock",
    workers=16,
    queue_limit=256,
    calls=CallFigures(served=110, failed=2, refused=1, served_now=3, waiting=4),
    release_records=5,
)


@pytest.mark.parametrize(
    "status",
    [
        STATUS,
        evolve(STATUS, problems=("a thread has ended",)),
        evolve(STATUS, foreign_records=500, damaged_records=2),
        evolve(STATUS, registration=REGISTRATION),
        evolve(STATUS, registration=RegistrationStatus(node="n1", pod_mtu=1500, problems=("none",))),
        evolve(STATUS, datastores=(NodeDatastore(name="sqlite", location="/a.db", answered_s=0),)),
        evolve(STATUS, datastores=(NodeDatastore(name="etcdv3", location="", failure="Unavailable"),)),
    ],
)
def test_it_comes_back_as_it_was(status: NodeStatus) -> None:
    assert decode_status(json.loads(json.dumps(encode_status(status))), "/status") == status


def test_what_a_newer_release_adds_is_ignored() -> None:
    assert decode_status({**encode_status(STATUS), "cache": {"age": 3}}, "/status") == STATUS


@pytest.mark.parametrize(
    "change,text",
    [
        ({"pid": "1742"}, r"expected a whole number @ /status \$\.pid"),
        ({"started": "yesterday"}, r"expected a time such as .* @ /status \$\.started"),
        ({"calls": {}}, r"\$\.calls\.served"),
        ({"workers": -1}, r"\$\.workers"),
        ({"datastores": [{}]}, r"\$\.datastores\[0\]\.name"),
        ({"version": None}, r"\$\.version"),
    ],
)
def test_what_is_none_is_refused_by_name(change: dict[str, object], text: str) -> None:
    with pytest.raises(NetplugError, match=text):
        decode_status({**encode_status(STATUS), **change}, "/status")


def test_its_socket_is_beside_the_one_for_calls() -> None:
    assert status_socket_of("/run/netplug/node.sock") == "/run/netplug/node.sock.status"
