"""host-local: the attachments that a folder's files name, for GC."""

from netplug_core.addressing import Address
from netplug_core.ipam.allocation.request import Attachment, ReleaseItem
from netplug_core.ipam.hostlocal.reserve import AddressFile, NetworkFolder, Owner, attachments
from netplug_core.resources.fields import Metadata
from netplug_core.resources.workloadendpoint import WorkloadEndpoint, WorkloadEndpointSpec


def endpoint(container: str, node: str, pod: str) -> WorkloadEndpoint:
    return WorkloadEndpoint(
        metadata=Metadata(name=f"{node}-{container}", namespace="test"),
        spec=WorkloadEndpointSpec(orchestrator="k8s", node=node, container_id=container, endpoint="eth0", pod=pod),
    )


def file(address: str, owner: Owner | None) -> AddressFile:
    return AddressFile(address, Address.parse(address), owner, 0)


def test_files_name_containers_and_endpoints_name_their_pods() -> None:
    folder = NetworkFolder(
        files=(
            file("10.0.0.2", Owner("pod-c")),
            file("fd00::2", Owner("pod-c")),
            file("10.0.0.3", Owner("c2", "net1")),
            file("10.0.0.4", None),
        )
    )
    endpoints = (endpoint("pod-c", "node-1", "web"), endpoint("c2", "node-1", "x"), endpoint("pod-c", "node-2", "y"))
    found = attachments(folder, endpoints, node="node-1", network="net")
    assert found == (
        Attachment(container_id="c2", interface="net1", handle="net.c2.net1"),
        Attachment(container_id="pod-c", interface="eth0", handle="net.pod-c", namespace="test", pod="web"),
    )
    assert found[1].addresses == (
        ReleaseItem(address=Address.parse("10.0.0.2"), handle="net.pod-c"),
        ReleaseItem(address=Address.parse("fd00::2"), handle="net.pod-c"),
    )
