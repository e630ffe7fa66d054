"""Parts that the containers of netplug's pods share: variables, volumes, probes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "ENDPOINT_CONFIG_MAP", "endpoint_override", "field_variable", "fixed_variables", "health_probe", "host_volume",
    "key_variable",
]  # fmt: skip

ENDPOINT_CONFIG_MAP: Final = "kubernetes-services-endpoint"
"""The ConfigMap that says where the API server is, beside the pods that read it."""

Json = Mapping[str, object]


def fixed_variables(variables: Mapping[str, str]) -> list[Json]:
    """Variables with a fixed value, sorted by their names."""
    return [{"name": name, "value": value} for name, value in sorted(variables.items())]


def field_variable(name: str, path: str) -> Json:
    """A variable with a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def key_variable(name: str, config_map: str, key: str) -> Json:
    """A variable with the text of a key of a ConfigMap."""
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def endpoint_override() -> Json:
    """Where the API server is, if the Service of it cannot be reached from the nodes."""
    return {"envFrom": [{"configMapRef": {"name": ENDPOINT_CONFIG_MAP, "optional": True}}]}


def host_volume(name: str, path: str, kind: str) -> Json:
    """A volume that is a folder or a file of the host."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def health_probe(path: str, port: int) -> Json:
    """A question to a port of 127.0.0.1, which is the node's: the pods are in its network."""
    return {"httpGet": {"host": "127.0.0.1", "port": port, "path": path}, "timeoutSeconds": 5}
