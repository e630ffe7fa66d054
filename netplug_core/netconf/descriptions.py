"""What the keys of the network configuration are for that no class of it declares, by path, as an editor shows it.

These are the keys of settings that other sources have too, of objects around others, and of the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DESCRIPTIONS"]

_CREDENTIAL: Final = "Deprecated: put it into the file of kubernetes.kubeconfig."

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "name": "The network's name: letters, digits, '_', '.' and '-', a letter or digit first.",
    "cniVersion": "The version of the CNI specification; 0.1.0 if it is left out.",
    "plugins": "The plugins of the chain, in the order in which an ADD calls them; netplug is the first one.",
    "type": "The program that the runtime executes.",
    "datastore_type": "Where addresses and endpoints are stored; other names are those of installed backends.",
    "sqlite_path": "The file of the datastore sqlite; an absolute path.",
    "etcd_endpoints": "URLs of etcd, separated by commas. Not together with etcd_discovery_srv.",
    "etcd_discovery_srv": "The domain whose SRV records name the members of etcd. Not together with etcd_endpoints.",
    "etcd_authority": "Deprecated: host and port of one etcd; use etcd_endpoints.",
    "etcd_scheme": "Deprecated: http or https, of one etcd; use etcd_endpoints.",
    "etcd_key_file": "The private key of etcd_cert_file.",
    "etcd_cert_file": "The certificate that etcd knows the plugin by.",
    "etcd_ca_cert_file": "The certificates of all authorities that etcd's own certificate may be signed by.",
    "kubernetes": "How to reach the orchestrator's API.",
    "kubernetes.kubeconfig": "The kubeconfig file with server and credentials.",
    "kubernetes.k8s_api_root": "The URL of the API server; goes before the kubeconfig's.",
    "kubernetes.node_name": "The Node object whose pod CIDRs count, if it has another name than the node.",
    "netplug_api_group": "The API group of netplug's objects; found by asking the API server if it is left out.",
    "qps": "How many requests a second the API server gets at most; 0 means the default.",
    "burst": "How many requests may follow at once before qps counts; 0 means the default.",
    "annotation_prefix": "The prefix of the annotations of pods and namespaces.",
    "datastore_options": "Settings of a datastore backend that is not netplug's own.",
    "policy": "Network policy of the orchestrator.",
    "policy.k8s_api_root": "Deprecated: use kubernetes.k8s_api_root.",
    "policy.k8s_auth_token": _CREDENTIAL,
    "policy.k8s_client_certificate": _CREDENTIAL,
    "policy.k8s_client_key": _CREDENTIAL,
    "policy.k8s_certificate_authority": _CREDENTIAL,
    "dataplane_options": "Which implementation makes the links.",
    "runtimeConfig": "What the runtime adds for declared capabilities; not written by hand.",
    "capabilities": "What the runtime may add as runtimeConfig; it adds nothing that is not declared here.",
    "capabilities.ips": "true: the runtime may name the container's addresses.",
    "capabilities.mac": "true: the runtime may choose the MAC of the container's interface.",
    "capabilities.io.kubernetes.cri.pod-annotations": "true: containerd sends the pod's annotations.",
    "args": "What an orchestrator or a user says of the container.",
    "args.cni": "What is asked for in the words of the CNI conventions.",
    "args.org.apache.mesos": "What Mesos says of the container.",
    "args.org.apache.mesos.network_info": "What Mesos says of the container's network.",
    "args.org.apache.mesos.network_info.labels": "The labels of the container, as Mesos writes them.",
}
