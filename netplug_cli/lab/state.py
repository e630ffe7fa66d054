"""The record of a lab as JSON: what is in it, so that it can be shown and removed by another command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import assert_never

from netplug_cli.lab.model import CNI_VERSION, Lab, LabError, Pod
from netplug_cli.lab.stores import FileStore, OwnServers, RunningServers, Store, StoreKind
from netplug_core.cni.result import Result, parse_result
from netplug_core.errors import DecodeError
from netplug_core.members import Members

__all__ = ["pod_attached", "read_lab", "render_lab"]


def render_lab(lab: Lab) -> str:
    """The record's text."""
    pods = [{"name": pod.name, "result": json.loads(pod.answer) if pod.answer else None} for pod in lab.pods]
    told = {"name": lab.name, "uid": lab.uid, "isComplete": lab.is_complete, "store": _told(lab.store), "pods": pods}
    return json.dumps(told, indent=2) + "\n"


def read_lab(text: str, where: str) -> Lab:
    """The lab that a record describes; ``where`` begins the messages.

    Raises:
        LabError: it is no such record.
    """
    try:
        top = Members.of(json.loads(text), where)
        return Lab(
            name=top.required("name"),
            uid=top.required("uid"),
            store=_store(top.child("store") or Members(f"{where}.store", {})),
            is_complete=top.flag("isComplete") is True,
            pods=tuple(_pod(item) for item in top.children("pods")),
        )
    except ValueError as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    except DecodeError as error:
        raise LabError(f"not the record of a lab: {error}") from error


def pod_attached(name: str, answer: str) -> Pod:
    """The pod whose ADD printed that answer.

    Raises:
        LabError: it is no result.
    """
    try:
        document: object = json.loads(answer)
        result = parse_result(document, where="result", cni_version=CNI_VERSION)
    except (ValueError, DecodeError) as error:
        raise LabError(f"{name}: the plugin's answer is no result: {error}") from error
    return Pod(name=name, answer=json.dumps(document), result=result)


def _told(store: Store) -> Mapping[str, object]:
    match store:
        case FileStore():
            return {"datastore": store.kind.value}
        case OwnServers():
            return {"datastore": store.kind.value, "etcd": store.etcd, "kube-apiserver": store.apiserver}
        case RunningServers():
            places = [{"host": host, "port": port} for host, port in store.places]
            return {"datastore": store.kind.value, "variables": dict(store.variables), "places": places}
    assert_never(store)


def _store(told: Members) -> Store:
    kind = _kind(told)
    variables = told.child("variables")
    if variables is not None:
        named = tuple((name, variables.text(name)) for name in variables.values)
        places = tuple((place.required("host"), place.integer("port") or 0) for place in told.children("places"))
        return RunningServers(kind=kind, variables=named, places=places)
    if kind is StoreKind.SQLITE:
        return FileStore()
    return OwnServers(etcd=told.required("etcd"), apiserver=told.text("kube-apiserver"))


def _kind(told: Members) -> StoreKind:
    name = told.required("datastore")
    try:
        return StoreKind(name)
    except ValueError as error:
        raise DecodeError(f"{told.where}.datastore", f"{name!r} is none that a lab can be on") from error


def _pod(item: Members) -> Pod:
    name = item.required("name")
    stored = item.child("result")
    if stored is None:
        return Pod(name=name)
    result: Result = parse_result(stored.values, where=stored.where, cni_version=CNI_VERSION)
    return Pod(name=name, answer=json.dumps(stored.values), result=result)
