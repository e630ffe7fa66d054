"""A client of containerd that does what a kubelet does: the part of the CRI that reaches a CNI plugin.

The messages are built from a table of the fields that tests use; protobuf skips the others. grpcio and protobuf come
with the etcd backend. Source: the Kubernetes Container Runtime Interface, package ``runtime.v1``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
from attrs import field, frozen
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.harness.runtimes.image import IMAGE
from tests.harness.waiting import EMERGENCY_STOP_S

__all__ = ["CRIError", "CRIRuntime", "PodSandbox", "open_cri"]

# Each field: name, number, type. A type that is not a scalar is a message of the table; "*": repeated, "%": a map of
# strings.
_MESSAGES = {
    "Empty": "",
    "StatusRequest": "verbose 1 bool",
    "RuntimeCondition": "type 1 string, status 2 bool, reason 3 string, message 4 string",
    "RuntimeStatus": "conditions 1 *RuntimeCondition",
    "StatusResponse": "status 1 RuntimeStatus",
    "PortMapping": "protocol 1 int64, container_port 2 int64, host_port 3 int64, host_ip 4 string",
    "LinuxPodSandboxConfig": "cgroup_parent 1 string",
    "PodSandboxMetadata": "name 1 string, uid 2 string, namespace 3 string, attempt 4 int64",
    "PodSandboxConfig": "metadata 1 PodSandboxMetadata, hostname 2 string, port_mappings 5 *PortMapping, labels 6 %,"
    " annotations 7 %, linux 8 LinuxPodSandboxConfig",
    "RunPodSandboxRequest": "config 1 PodSandboxConfig",
    "PodSandboxID": "pod_sandbox_id 1 string",
    "PodIP": "ip 1 string",
    "PodSandboxNetworkStatus": "ip 1 string, additional_ips 2 *PodIP",
    "PodSandboxStatus": "id 1 string, metadata 2 PodSandboxMetadata, state 3 int64, network 5 PodSandboxNetworkStatus",
    "PodSandboxStatusResponse": "status 1 PodSandboxStatus",
    "PodSandbox": "id 1 string, metadata 2 PodSandboxMetadata, state 3 int64",
    "ListPodSandboxResponse": "items 1 *PodSandbox",
    "ImageSpec": "image 1 string",
    "ContainerMetadata": "name 1 string",
    "ContainerConfig": "metadata 1 ContainerMetadata, image 2 ImageSpec, command 3 *string",
    "CreateContainerRequest": "pod_sandbox_id 1 string, config 2 ContainerConfig, sandbox_config 3 PodSandboxConfig",
    "ContainerID": "container_id 1 string",
    "ExecSyncRequest": "container_id 1 string, cmd 2 *string, timeout 3 int64",
    "ExecSyncResponse": "stdout 1 bytes, stderr 2 bytes, exit_code 3 int64",
}
_METHODS = {
    "Status": ("StatusRequest", "StatusResponse"),
    "RunPodSandbox": ("RunPodSandboxRequest", "PodSandboxID"),
    "StopPodSandbox": ("PodSandboxID", "Empty"),
    "RemovePodSandbox": ("PodSandboxID", "Empty"),
    "PodSandboxStatus": ("PodSandboxID", "PodSandboxStatusResponse"),
    "ListPodSandbox": ("Empty", "ListPodSandboxResponse"),
    "CreateContainer": ("CreateContainerRequest", "ContainerID"),
    "StartContainer": ("ContainerID", "Empty"),
    "ExecSync": ("ExecSyncRequest", "ExecSyncResponse"),
}
_PACKAGE = "runtime.v1"
_TIMEOUT_S = EMERGENCY_STOP_S
_PROTOCOLS = {"tcp": 0, "udp": 1, "sctp": 2}


class CRIError(Exception):
    """The runtime refused a call; the text is its own."""


@frozen
class PodSandbox:
    """A pod that the runtime has made, with the configuration that it was made from."""

    id: str
    config: Any = field(repr=False)


@frozen
class CRIRuntime:
    """A containerd, called as a kubelet calls it."""

    _channel: grpc.Channel
    _cgroup_parent: str

    def run_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        host_ports: Mapping[int, int] | None = None,
    ) -> PodSandbox:
        """Start a pod; ``host_ports`` lead from a TCP port of the node to one of the pod.

        Raises:
            CRIError: it does not start.
        """
        ports = [
            _make("PortMapping", protocol=_PROTOCOLS["tcp"], host_port=host, container_port=container)
            for host, container in (host_ports or {}).items()
        ]
        config = _make(
            "PodSandboxConfig",
            metadata=_make("PodSandboxMetadata", name=name, uid=uid or f"uid-of-{name}", namespace=namespace),
            hostname=name,
            port_mappings=ports,
            annotations=dict(annotations or {}),
            linux=_make("LinuxPodSandboxConfig", cgroup_parent=self._cgroup_parent),
        )
        reply = self._call("RunPodSandbox", config=config)
        return PodSandbox(reply.pod_sandbox_id, config)

    def addresses(self, pod: PodSandbox) -> list[str]:
        """The addresses of a pod, as a kubelet learns them."""
        network = self._call("PodSandboxStatus", pod_sandbox_id=pod.id).status.network
        return [network.ip, *(item.ip for item in network.additional_ips)]

    def run_container(self, pod: PodSandbox, *command: str) -> str:
        """Start a container in a pod; its id."""
        container = _make(
            "ContainerConfig",
            metadata=_make("ContainerMetadata", name=f"main-of-{pod.id[:8]}"),
            image=_make("ImageSpec", image=IMAGE),
            command=list(command) or ["/bin/pause"],
        )
        created = self._call("CreateContainer", pod_sandbox_id=pod.id, config=container, sandbox_config=pod.config)
        self._call("StartContainer", container_id=created.container_id)
        return str(created.container_id)

    def execute(self, container: str, *command: str) -> str:
        """What a program prints in a container.

        Raises:
            CRIError: it fails.
        """
        reply = self._call("ExecSync", container_id=container, cmd=list(command), timeout=60)
        if reply.exit_code != 0:
            raise CRIError(f"{command}: {reply.stderr.decode()}")
        return str(reply.stdout.decode())

    def stop_pod(self, pod: PodSandbox) -> None:
        """Stop a pod, and everything in it."""
        self._call("StopPodSandbox", pod_sandbox_id=pod.id)

    def remove_pod(self, pod: PodSandbox) -> None:
        """Remove a pod that is stopped, or not; a kubelet repeats it until it succeeds."""
        self._call("RemovePodSandbox", pod_sandbox_id=pod.id)

    def end_pod(self, pod: PodSandbox) -> None:
        """Stop and remove a pod."""
        self.stop_pod(pod)
        self.remove_pod(pod)

    def pods(self) -> list[str]:
        """The ids of all pods."""
        return [item.id for item in self._call("ListPodSandbox").items]

    def network_problem(self) -> str:
        """Why the runtime has no network for pods; empty if it has one."""
        conditions = {item.type: item for item in self._call("Status").status.conditions}
        network = conditions["NetworkReady"]
        return "" if network.status else network.message

    def _call(self, method: str, **values: object) -> Any:  # noqa: ANN401  # classes that protobuf makes have no types
        request, response = _METHODS[method]
        call = self._channel.unary_unary(
            f"/{_PACKAGE}.RuntimeService/{method}",
            request_serializer=_CLASSES[request].SerializeToString,
            response_deserializer=_CLASSES[response].FromString,
        )
        try:
            return call(_make(request, **values), timeout=_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError as error:
            raise CRIError(str(error.details())) from error


@contextmanager
def open_cri(socket: str, *, cgroup_parent: str) -> Iterator[CRIRuntime]:
    """A client of the containerd behind a socket; the pods' control groups are below ``cgroup_parent``."""
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        yield CRIRuntime(channel, cgroup_parent)


def _make(message: str, **values: object) -> Any:  # noqa: ANN401  # see above
    return _CLASSES[message](**values)


def _make_classes() -> dict[str, Any]:
    scalars = {
        "string": FieldDescriptorProto.TYPE_STRING,
        "bytes": FieldDescriptorProto.TYPE_BYTES,
        "bool": FieldDescriptorProto.TYPE_BOOL,
        "int64": FieldDescriptorProto.TYPE_INT64,
    }
    file = FileDescriptorProto(name="runtime.proto", package=_PACKAGE, syntax="proto3")
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for column in filter(None, text.split(", ")):
            field_name, number, kind = column.split()
            made = message.field.add(name=field_name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind == "%":
                entry = message.nested_type.add(name=f"{field_name.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                for at, key in enumerate(("key", "value"), 1):
                    entry.field.add(
                        name=key, number=at, label=FieldDescriptorProto.LABEL_OPTIONAL, type=scalars["string"]
                    )
                made.label, made.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
                made.type_name = f".{_PACKAGE}.{name}.{entry.name}"
                continue
            if kind.startswith("*"):
                made.label, kind = FieldDescriptorProto.LABEL_REPEATED, kind[1:]
            if kind in scalars:
                made.type = scalars[kind]
            else:
                made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


_CLASSES = _make_classes()
