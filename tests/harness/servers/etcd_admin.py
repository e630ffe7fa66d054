"""What tests do to an etcd themselves: through its JSON gateway, which needs no client."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from typing import cast

from tests.harness.servers.etcd import EtcdCluster

__all__ = ["calls_served", "compact", "enable_users", "post", "put", "stored_key_names"]

_SERVED = re.compile(r'^grpc_server_handled_total\{.*grpc_method="(\w+)".*\} (\d+)$', re.MULTILINE)


def post(etcd: EtcdCluster, path: str, body: Mapping[str, object]) -> Mapping[str, object]:
    """The answer to one call."""
    url = f"{etcd.endpoints[0]}/v3/{path}"
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")  # noqa: S310  # loopback
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  # loopback
        return cast("Mapping[str, object]", json.loads(answer.read()))


def put(etcd: EtcdCluster, key: str, value: str) -> None:
    """Write past netplug."""
    post(etcd, "kv/put", {"key": _base64(key), "value": _base64(value)})


def stored_key_names(etcd: EtcdCluster) -> set[str]:
    """The keys below /netplug, also of a server that is full and takes no transactions."""
    below = {"key": _base64("/netplug/"), "range_end": _base64("/netplug0"), "keys_only": True}
    found = cast("Sequence[Mapping[str, str]]", post(etcd, "kv/range", below).get("kvs", ()))
    return {base64.b64decode(each["key"]).decode() for each in found}


def compact(etcd: EtcdCluster, revision: int) -> None:
    """Remove the history before a revision."""
    post(etcd, "kv/compaction", {"revision": revision, "physical": True})


def enable_users(etcd: EtcdCluster, password: str) -> None:
    """Turn users on: ``root``, ``netplug`` who may read and write below /netplug, ``reader`` who may only read.

    ``certificate`` is a user without a password.
    """
    below = {"key": _base64("/netplug/"), "range_end": _base64("/netplug0")}
    for user, right in (("root", None), ("netplug", "READWRITE"), ("reader", "READ")):
        post(etcd, "auth/user/add", {"name": user, "password": password})
        post(etcd, "auth/role/add", {"name": user})
        if right:
            post(etcd, "auth/role/grant", {"name": user, "perm": {"permType": right, **below}})
        post(etcd, "auth/user/grant", {"user": user, "role": user})
    post(etcd, "auth/user/add", {"name": "certificate", "options": {"no_password": True}})
    post(etcd, "auth/enable", {})


def calls_served(etcd: EtcdCluster) -> dict[str, int]:
    """How many calls of each method the server has answered."""
    with urllib.request.urlopen(f"{etcd.endpoints[0]}/metrics", timeout=10) as answer:  # noqa: S310  # loopback
        text = answer.read().decode()
    counts: dict[str, int] = {}
    for method, count in _SERVED.findall(text):
        counts[method] = counts.get(method, 0) + int(count)
    return counts


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
