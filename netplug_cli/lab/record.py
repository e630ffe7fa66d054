"""The record of a lab as JSON, from which another command can show and remove the lab."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import assert_never, cast

from attrs import frozen

from netplug_cli.lab.model import CNI_VERSION, Lab, LabError, LabPod
from netplug_cli.lab.stores import ExternalServers, LabStore, OwnServers, SqliteStore, StoreKind
from netplug_core.cni.result import parse_result
from netplug_core.decoding.codecs import BOOLEAN, INTEGER, NONEMPTY_STRING, OBJECT, STRING, STRING_MAP, Codec
from netplug_core.decoding.errors import cni_error
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, Unreadable
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
        record = _decoder().decode(json.loads(text), _Record, where)
        pods = tuple(pod.parsed(f"{where}.pods[{position}]") for position, pod in enumerate(record.pods))
        return Lab(
            name=record.name, uid=record.uid, store=record.store.parsed, is_complete=record.is_complete, pods=pods
        )
    except (ValueError, RecursionError) as error:
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
    except (ValueError, RecursionError, DecodeError) as error:
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


# --- the record's JSON ----------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Server:
    host: str
    port: int = 0


@frozen(kw_only=True)
class _Store:
    """Where the lab's data is. Each kind of store has its own members."""

    kind: StoreKind
    variables: tuple[tuple[str, str], ...] | None = None
    addresses: tuple[_Server, ...] = ()
    etcd: str = ""
    apiserver: str = ""

    @property
    def parsed(self) -> LabStore:
        if self.variables is not None:
            addresses = tuple((one.host, one.port) for one in self.addresses)
            return ExternalServers(kind=self.kind, environment=self.variables, addresses=addresses)
        if self.kind is StoreKind.SQLITE:
            return SqliteStore()
        return OwnServers(etcd=self.etcd, apiserver=self.apiserver)


@frozen(kw_only=True)
class _Pod:
    name: str
    result: Mapping[str, object] | None = None

    def parsed(self, where: str) -> LabPod:
        if self.result is None:
            return LabPod(name=self.name)
        result = parse_result(self.result, path=f"{where}.result", cni_version=CNI_VERSION)
        return LabPod(name=self.name, add_output=json.dumps(self.result), result=result)


@frozen(kw_only=True)
class _Record:
    name: str
    uid: str
    store: _Store
    is_complete: bool = False
    pods: tuple[_Pod, ...] = ()


def _read_store_kind(value: object) -> StoreKind:
    name = NONEMPTY_STRING.decode(value)
    try:
        return StoreKind(name)
    except ValueError:
        raise ValueError(f"{name!r} is none that a lab can be on") from None


def _read_variables(value: object) -> tuple[tuple[str, str], ...]:
    STRING_MAP.decode(value)
    return tuple(cast("Mapping[str, str]", value).items())


def _finish_store(values: dict[str, object], _: object) -> dict[str, object]:
    if "variables" not in values and values["kind"] is not StoreKind.SQLITE and not values.get("etcd"):
        raise Unreadable("is missing or empty", path=".etcd")
    return values


@cache
def _decoder() -> Decoder:
    record = {
        "name": Field("name", NONEMPTY_STRING),
        "uid": Field("uid", NONEMPTY_STRING),
        "store": Field("store", _Store),
        "is_complete": Field("isComplete", BOOLEAN),
        "pods": Field("pods", ListOf(_Pod)),
    }
    store = {
        "kind": Field("datastore", Codec(_read_store_kind)),
        "variables": Field("variables", Codec(_read_variables)),
        "addresses": Field("places", ListOf(_Server)),
        "etcd": Field("etcd", STRING),
        "apiserver": Field("kube-apiserver", STRING),
    }
    tables = (
        Table(cls=_Record, fields=record),
        Table(cls=_Store, fields=store, finish=_finish_store),
        Table(cls=_Server, fields={"host": Field("host", NONEMPTY_STRING), "port": Field("port", INTEGER)}),
        Table(cls=_Pod, fields={"name": Field("name", NONEMPTY_STRING), "result": Field("result", OBJECT)}),
    )
    return Decoder(tables, cni_error)
