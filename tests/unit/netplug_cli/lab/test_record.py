"""The record of a lab, to text and back."""

import json

import pytest

from netplug_cli.lab.folder import attached_pod, parse_lab, render_lab
from netplug_cli.lab.model import (
    ExternalServers,
    Lab,
    LabError,
    LabPlan,
    LabPod,
    LabStore,
    OwnServers,
    SqliteStore,
    StoreKind,
    new_lab,
)
from tests.harness.lab import ADD_OUTPUT

START = '{"name": "x", "uid": "u", "store": {"datastore": "sqlite"},'


def test_a_record_is_read_back_as_it_was_written() -> None:
    attached = attached_pod(LabPod(name="pod-1"), json.dumps(ADD_OUTPUT))
    lab = Lab(name="lab", uid="u", pods=(attached, LabPod(name="pod-2")), is_complete=True)
    again = parse_lab(render_lab(lab), "lab.json")
    assert again == lab
    assert [pod.is_attached for pod in again.pods] == [True, False]
    assert again.pods[0].result == attached.result
    assert json.loads(again.pods[0].add_output) == ADD_OUTPUT


@pytest.mark.parametrize(
    "store",
    [
        SqliteStore(),
        OwnServers(etcd="/e"),
        OwnServers(etcd="/e", apiserver="/a"),
        ExternalServers(kind=StoreKind.KUBERNETES, environment=(("KUBECONFIG", "/k"),), addresses=(("::1", 6443),)),
        ExternalServers(
            kind=StoreKind.ETCD,
            environment=(("ETCD_ENDPOINTS", "http://10.0.0.1:1,http://10.0.0.2:2"),),
            addresses=(("10.0.0.1", 1), ("10.0.0.2", 2)),
        ),
    ],
)
def test_where_the_data_is_is_read_back_as_it_was_written(store: LabStore) -> None:
    lab = new_lab(LabPlan(name="lab", pod_count=1, store=store), uid="u")
    assert parse_lab(render_lab(lab), "lab.json") == lab


def test_a_planned_lab_has_no_addresses() -> None:
    lab = parse_lab(render_lab(new_lab(LabPlan(name="lab", pod_count=2), uid="u")), "lab.json")
    assert lab == new_lab(LabPlan(name="lab", pod_count=2), uid="u")
    assert [(pod.addresses, pod.host_interface) for pod in lab.pods] == [((), ""), ((), "")]
    assert [node.name for node in lab.nodes] == ["lab-node"]


@pytest.mark.parametrize(
    "text,message",
    [
        ("{", "lab.json: not JSON: "),
        ("[]", "not the record of a lab: lab.json: must be an object"),
        ("{}", "not the record of a lab: lab.json.name: is missing or empty"),
        ('{"name": "x", "uid": "u"}', "lab.json.store.datastore: is missing or empty"),
        ('{"name": "x", "uid": "u", "store": {"datastore": "y"}}', "lab.json.store.datastore: 'y' is none that a lab"),
        (f'{START} "pods": [{{}}]}}', r"not the record of a lab: lab.json.pods\[0\].name: is missing or empty"),
        (f'{START} "pods": [{{"name": "p", "result": 1}}]}}', r"lab.json.pods\[0\].result: must be an object"),
    ],
)
def test_what_is_no_record(text: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        parse_lab(text, "lab.json")


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", '{"cniVersion": "9.9.9"}'])
def test_what_is_no_answer(answer: str) -> None:
    with pytest.raises(LabError, match="pod-1: the plugin's answer is no result: "):
        attached_pod(LabPod(name="pod-1"), answer)
