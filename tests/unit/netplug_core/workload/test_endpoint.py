"""The endpoint that stands for a workload, and its share of the commit."""

import pytest
from attrs import evolve

from netplug_core.addressing import Address, Prefix
from netplug_core.clock import parse_time
from netplug_core.datastore.protocol import EndpointStorage
from netplug_core.ipam.allocation.request import AssignedAddress, Assignment
from netplug_core.ipam.protocol import NO_ENDPOINT, EndpointWrites
from netplug_core.records import Create, Delete, Get, ReadResult, Record, Revision, Snapshot, Update, Write
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec
from netplug_core.workload import (
    EndpointOptions,
    NewObjectMetadata,
    PodDetails,
    PodReplaced,
    WorkloadIdentity,
    build_endpoint,
    endpoint_delete,
    endpoint_upsert,
    has_endpoint,
)

POD = WorkloadIdentity(
    node="node-a", network="k8s-pod-network", container_id="4f2a", interface="eth0", pod="web-0", pod_namespace="prod"
)
BARE = evolve(POD, pod="", pod_namespace="")
AT = parse_time("2026-08-20T10:00:00Z")
BIRTH = NewObjectMetadata(uid="6f1c", creation_time_ns=AT + 123)
LATER = NewObjectMetadata(uid="other", creation_time_ns=AT + 10**12)
HELD = Assignment(
    addresses=tuple(
        AssignedAddress(address=Address.parse(address), prefix=Prefix.parse(prefix))
        for address, prefix in (("10.0.0.1", "10.0.0.0/24"), ("fd00::1", "fd00::/120"))
    )
)
REVISION = Revision("7")


def writes(
    part: EndpointWrites,
    workload: WorkloadIdentity,
    stored: WorkloadEndpoint | None,
    assignment: Assignment | None = None,
) -> tuple[Write, ...]:
    """What the part makes of a store that has this endpoint."""
    key = workload.endpoint_key
    assert part.queries == (Get(key),)
    answer = ReadResult((Record(key, stored, REVISION),) if stored else ())
    made = part.writes(Snapshot({Get(key): answer}, {}), assignment)
    assert isinstance(made, tuple)
    return made


def test_a_pods_endpoint_says_where_it_is_and_what_it_holds() -> None:
    assert build_endpoint(POD, HELD, BIRTH) == WorkloadEndpoint(
        metadata=Metadata(
            name="node--a-k8s-web--0-eth0",
            namespace="prod",
            uid="6f1c",
            creation_time_ns=AT,
            labels=(("projectnetplug.org/namespace", "prod"), ("projectnetplug.org/orchestrator", "k8s")),
        ),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node="node-a",
            container_id="4f2a",
            pod="web-0",
            endpoint="eth0",
            addresses=(Address.parse("10.0.0.1"), Address.parse("fd00::1")),
            profiles=("k8s-pod-network",),
            interface_name=POD.host_interface,
            mac=POD.mac,
        ),
    )


def test_a_bare_containers_endpoint_names_no_pod() -> None:
    endpoint = build_endpoint(evolve(POD, pod_namespace=""), HELD, BIRTH)
    assert (endpoint.spec.orchestrator, endpoint.spec.pod, endpoint.metadata.namespace) == ("cni", "", "default")


def test_a_new_endpoint_is_created() -> None:
    assert writes(endpoint_upsert(POD, BIRTH), POD, None, HELD) == (
        Create(POD.endpoint_key, build_endpoint(POD, HELD, BIRTH)),
    )


def test_an_endpoint_whose_addresses_are_taken_back_goes_if_it_is_this_containers() -> None:
    assert writes(endpoint_upsert(POD, BIRTH), POD, None) == ()
    assert writes(endpoint_upsert(POD, BIRTH), POD, build_endpoint(POD, HELD, BIRTH)) == (
        Delete(POD.endpoint_key, REVISION),
    )
    assert writes(endpoint_upsert(POD, BIRTH), POD, build_endpoint(evolve(POD, container_id="old"), HELD, BIRTH)) == ()


def test_a_repeated_call_writes_nothing() -> None:
    assert writes(endpoint_upsert(POD, LATER), POD, build_endpoint(POD, HELD, BIRTH), HELD) == ()


def test_a_restarted_pod_takes_its_endpoint_over_with_what_others_added() -> None:
    stored = build_endpoint(evolve(POD, container_id="old"), Assignment(addresses=()), BIRTH)
    stored = evolve(
        stored,
        metadata=evolve(
            stored.metadata,
            labels=(("app", "web"), ("projectnetplug.org/namespace", "wrong")),
            annotations=(("note", "kept"),),
        ),
        spec=evolve(stored.spec, unknown_json='{"x":1}'),
        unknown_json='{"y":2}',
    )
    (update,) = writes(endpoint_upsert(POD, LATER), POD, stored, HELD)
    assert isinstance(update, Update)
    assert update.revision == REVISION
    value = update.value
    assert isinstance(value, WorkloadEndpoint)
    assert (value.metadata.uid, value.metadata.creation_time_ns) == ("6f1c", AT)
    assert value.metadata.annotations == (("note", "kept"),)
    assert value.metadata.labels == (
        ("app", "web"),
        ("projectnetplug.org/namespace", "prod"),
        ("projectnetplug.org/orchestrator", "k8s"),
    )
    assert value.spec == evolve(build_endpoint(POD, HELD, BIRTH).spec, unknown_json='{"x":1}')
    assert value.unknown_json == '{"y":2}'


def test_the_labels_of_a_pod_replace_those_of_its_former_container() -> None:
    stored = build_endpoint(
        POD, HELD, BIRTH, EndpointOptions(pod=PodDetails(labels=(("old", "1"),), generate_name="a-"))
    )
    options = EndpointOptions(pod=PodDetails(labels=(("new", "2"),)))
    (update,) = writes(endpoint_upsert(POD, LATER, options=options), POD, stored, HELD)
    assert isinstance(update, Update)
    value = update.value
    assert isinstance(value, WorkloadEndpoint)
    assert value.metadata.labels == (
        ("new", "2"),
        ("projectnetplug.org/namespace", "prod"),
        ("projectnetplug.org/orchestrator", "k8s"),
    )
    assert value.metadata.generate_name == ""


def test_an_endpoint_goes_with_its_container() -> None:
    for workload in (POD, BARE):
        endpoint = build_endpoint(workload, HELD, BIRTH)
        assert writes(endpoint_delete(workload), workload, endpoint) == (Delete(workload.endpoint_key, REVISION),)


def test_the_endpoint_of_a_restarted_pod_stays() -> None:
    assert writes(endpoint_delete(POD), POD, build_endpoint(evolve(POD, container_id="new"), HELD, BIRTH)) == ()


def test_an_endpoint_that_is_gone_is_no_work() -> None:
    assert writes(endpoint_delete(POD), POD, None) == ()


@pytest.mark.parametrize(
    "workload,storage,is_stored",
    [
        (POD, EndpointStorage.PODS, True),
        (evolve(POD, interface="net1"), EndpointStorage.PODS, False),
        (evolve(POD, interface="net1"), EndpointStorage.RECORDS, True),
        (evolve(BARE, interface="net1"), EndpointStorage.PODS, True),
    ],
)
def test_a_pod_holds_the_endpoint_of_its_first_interface(
    workload: WorkloadIdentity, storage: EndpointStorage, *, is_stored: bool
) -> None:
    """The endpoint of a container without a pod is left to the store, which refuses it."""
    assert has_endpoint(workload, storage) is is_stored
    assert (endpoint_upsert(workload, BIRTH, storage) is NO_ENDPOINT) is not is_stored
    assert (endpoint_delete(workload, storage) is NO_ENDPOINT) is not is_stored


@pytest.mark.parametrize("uid", ["", "6f1c"])
def test_the_pod_that_the_runtime_names_is_attached(uid: str) -> None:
    pod = evolve(POD, pod_uid=uid)
    stored = build_endpoint(pod, Assignment(addresses=()), BIRTH)
    assert writes(endpoint_upsert(pod, LATER, EndpointStorage.PODS), pod, stored, HELD) == (
        Update(pod.endpoint_key, build_endpoint(pod, HELD, BIRTH), REVISION),
    )


def test_a_late_add_of_a_pod_does_not_touch_the_one_that_has_its_name_now() -> None:
    late = evolve(POD, pod_uid="before")
    key = late.endpoint_key
    stored = Record(key, build_endpoint(evolve(POD, container_id="new"), HELD, BIRTH), REVISION)
    snapshot = Snapshot({Get(key): ReadResult((stored,))}, {})
    refused = endpoint_upsert(late, LATER, EndpointStorage.PODS).writes(snapshot, HELD)
    assert isinstance(refused, PodReplaced)
    assert refused.code == 4
    assert str(refused) == (
        "pod prod/web-0 has the uid 6f1c, and K8S_POD_UID of CNI_ARGS names before: the pod to attach was deleted, "
        "and another one has its name"
    )
    # Where endpoints are records, the uid of an endpoint is its own.
    assert isinstance(endpoint_upsert(late, LATER).writes(snapshot, HELD), tuple)


def test_a_namespace_that_no_label_can_hold_is_hashed() -> None:
    labels = dict(build_endpoint(evolve(POD, pod_namespace="n" * 64), HELD, BIRTH).metadata.labels)
    assert labels["projectnetplug.org/namespace"].startswith("n" * 46 + "_")
