"""The record of a lab as JSON: what is in it, so that it can be shown and removed by another command."""

from __future__ import annotations

import json

from netplug_cli.lab.model import CNI_VERSION, Lab, LabError, Pod
from netplug_core.cni.result import Result, parse_result
from netplug_core.errors import DecodeError
from netplug_core.members import Members

__all__ = ["pod_attached", "read_lab", "render_lab"]


def render_lab(lab: Lab) -> str:
    """The record's text."""
    pods = [{"name": pod.name, "result": json.loads(pod.answer) if pod.answer else None} for pod in lab.pods]
    return json.dumps({"name": lab.name, "isComplete": lab.is_complete, "pods": pods}, indent=2) + "\n"


def read_lab(text: str, where: str) -> Lab:
    """The lab that a record describes; ``where`` begins the messages.

    Raises:
        LabError: it is no such record.
    """
    try:
        top = Members.of(json.loads(text), where)
        return Lab(
            name=top.required("name"),
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


def _pod(item: Members) -> Pod:
    name = item.required("name")
    stored = item.child("result")
    if stored is None:
        return Pod(name=name)
    result: Result = parse_result(stored.values, where=stored.where, cni_version=CNI_VERSION)
    return Pod(name=name, answer=json.dumps(stored.values), result=result)
