"""The record of a lab as JSON, from which another command can show and remove the lab."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import assert_never

from netplug_cli.lab.model import CNI_VERSION, Lab, LabError, LabPod
from netplug_cli.lab.stores import ExternalServers, LabStore, OwnServers, SqliteStore, StoreKind
from netplug_core.cni.result import CNIResult, parse_result
from netplug_core.decoding.members import JSONObject
from netplug_core.errors import DecodeError

__all__ = ["attached_pod", "parse_lab", "render_lab"]


def render_lab(lab: Lab) -> str:
    """The text of the record."""
    pods = [{"name": pod.name, "result": json.loads(pod.add_output) if pod.add_output else None} for pod in lab.pods]
    document = {
        "name": lab.name,
        "uid": lab.uid,
        "isComplete": lab.is_complete,
        "store": _store_mapping(lab.store),
        "pods": pods,
    }
    return json.dumps(document, indent=2) + "\n"


def parse_lab(text: str, where: str) -> Lab:
    """The lab that a record describes; ``where`` begins the messages.

    Raises:
        LabError: the text is not a record of a lab.
    """
    try:
        top = JSONObject.of(json.loads(text), where)
        return Lab(
            name=top.required_string("name"),
            uid=top.required_string("uid"),
            store=_parse_store(top.optional_object("store") or JSONObject(f"{where}.store", {})),
            is_complete=top.optional_boolean("isComplete") is True,
            pods=tuple(_parse_pod(item) for item in top.object_list("pods")),
        )
    except ValueError as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    except DecodeError as error:
        raise LabError(f"not the record of a lab: {error}") from error


def attached_pod(name: str, add_output: str) -> LabPod:
    """The pod whose ADD printed that result.

    Raises:
        LabError: it is not a CNI result.
    """
    try:
        document: object = json.loads(add_output)
        result = parse_result(document, path="result", cni_version=CNI_VERSION)
    except (ValueError, DecodeError) as error:
        raise LabError(f"{name}: the plugin's answer is no result: {error}") from error
    return LabPod(name=name, add_output=json.dumps(document), result=result)


def _store_mapping(store: LabStore) -> Mapping[str, object]:
    match store:
        case SqliteStore():
            return {"datastore": store.kind.value}
        case OwnServers():
            return {"datastore": store.kind.value, "etcd": store.etcd, "kube-apiserver": store.apiserver}
        case ExternalServers():
            addresses = [{"host": host, "port": port} for host, port in store.addresses]
            return {"datastore": store.kind.value, "variables": dict(store.environment), "places": addresses}
    assert_never(store)


def _parse_store(members: JSONObject) -> LabStore:
    kind = _parse_store_kind(members)
    variables = members.optional_object("variables")
    if variables is not None:
        named = tuple((name, variables.optional_string(name)) for name in variables.members)
        addresses = tuple(
            (address.required_string("host"), address.optional_integer("port") or 0)
            for address in members.object_list("places")
        )
        return ExternalServers(kind=kind, environment=named, addresses=addresses)
    if kind is StoreKind.SQLITE:
        return SqliteStore()
    return OwnServers(etcd=members.required_string("etcd"), apiserver=members.optional_string("kube-apiserver"))


def _parse_store_kind(members: JSONObject) -> StoreKind:
    name = members.required_string("datastore")
    try:
        return StoreKind(name)
    except ValueError as error:
        raise DecodeError(f"{members.path}.datastore", f"{name!r} is none that a lab can be on") from error


def _parse_pod(item: JSONObject) -> LabPod:
    name = item.required_string("name")
    stored = item.optional_object("result")
    if stored is None:
        return LabPod(name=name)
    result: CNIResult = parse_result(stored.members, path=stored.path, cni_version=CNI_VERSION)
    return LabPod(name=name, add_output=json.dumps(stored.members), result=result)
