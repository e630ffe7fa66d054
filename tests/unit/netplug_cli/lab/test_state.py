"""The record of a lab, to text and back."""

import json

import pytest

from netplug_cli.lab.model import Lab, LabError, Pod, planned
from netplug_cli.lab.state import pod_attached, read_lab, render_lab
from tests.unit.netplug_cli.lab.bench import ANSWER


def test_a_record_is_read_back_as_it_was_written() -> None:
    attached = pod_attached("pod-1", json.dumps(ANSWER))
    lab = Lab(name="lab", pods=(attached, Pod(name="pod-2")), is_complete=True)
    again = read_lab(render_lab(lab), "lab.json")
    assert again == lab
    assert [pod.is_attached for pod in again.pods] == [True, False]
    assert again.pods[0].result == attached.result
    assert json.loads(again.pods[0].answer) == ANSWER


def test_a_planned_lab_has_no_addresses() -> None:
    lab = read_lab(render_lab(planned("lab", 2)), "lab.json")
    assert lab == planned("lab", 2)
    assert [(pod.addresses, pod.host_interface) for pod in lab.pods] == [((), ""), ((), "")]
    assert lab.node_name == "lab-node"


@pytest.mark.parametrize(
    "text,message",
    [
        ("{", "lab.json: not JSON: "),
        ("[]", "not the record of a lab: lab.json: must be an object"),
        ("{}", "not the record of a lab: lab.json.name: is missing or empty"),
        ('{"name": "x", "pods": [{}]}', r"not the record of a lab: lab.json.pods\[0\].name: is missing or empty"),
        ('{"name": "x", "pods": [{"name": "p", "result": 1}]}', r"lab.json.pods\[0\].result: must be an object"),
    ],
)
def test_what_is_no_record(text: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        read_lab(text, "lab.json")


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", '{"cniVersion": "9.9.9"}'])
def test_what_is_no_answer(answer: str) -> None:
    with pytest.raises(LabError, match="pod-1: the plugin's answer is no result: "):
        pod_attached("pod-1", answer)
