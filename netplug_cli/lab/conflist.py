"""The CNI configuration list of a lab, and the environment and the input that a plugin gets from it.

Every file that the plugins use is named here and is in the lab's folder. ``runtime`` runs the plugins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from attrs import frozen

from netplug_cli.lab.model import CNI_VERSION, IFNAME, POD_NAMESPACE, Lab, LabError
from netplug_cli.lab.paths import LabFolder
from netplug_cli.lab.stores import store_netconf_keys
from netplug_core.cni.node_socket import SOCKET_VARIABLE
from netplug_core.decoding.codecs import NONEMPTY_STRING, OBJECT
from netplug_core.decoding.tables import Decoder, Field, ListOf, Table, cni_error
from netplug_core.errors import DecodeError

__all__ = ["Conflist", "PluginCall", "parse_conflist", "plugin_environment", "render_conflist"]

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@frozen(kw_only=True)
class Conflist:
    """A configuration list: the name of its network, and the objects of its plugins, unchanged."""

    network: str
    cni_version: str
    plugins: tuple[Mapping[str, object], ...] = ()

    def request(self, position: int, previous: str) -> str:
        """The standard input of a plugin; ``previous`` is the JSON of the previous result, or empty.

        Source: CNI specification, "Deriving request configuration from plugin configuration".
        """
        request = {"name": self.network, "cniVersion": self.cni_version, **self.plugins[position]}
        if previous:
            request["prevResult"] = json.loads(previous)
        return json.dumps(request)


@frozen(kw_only=True)
class PluginCall:
    """One command about one pod: the namespace of its interface, the folder of the plugins, and their node process."""

    command: str
    pod: str
    netns: str
    bin_dir: str
    node_socket: str


def plugin_environment(call: PluginCall) -> dict[str, str]:
    """The variables of a call, with those of the kubelet's runtimes (CNI specification, "Parameters").

    The lab is a node of its own: its own node process is asked, not that of this machine.
    """
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": POD_NAMESPACE,
        "K8S_POD_NAME": call.pod,
        "K8S_POD_INFRA_CONTAINER_ID": call.pod,
    }
    return {
        "PATH": _PATH,
        SOCKET_VARIABLE: call.node_socket,
        "CNI_COMMAND": call.command,
        "CNI_CONTAINERID": call.pod,
        "CNI_NETNS": call.netns,
        "CNI_IFNAME": IFNAME,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments.items()),
        "CNI_PATH": call.bin_dir,
    }


def render_conflist(lab: Lab, folder: LabFolder) -> str:
    """The text of the lab's configuration list."""
    netplug = {
        "type": "netplug",
        "capabilities": {"ips": True, "mac": True},
        "nodename": lab.node_name,
        "nodename_file": folder.nodename_file,
        **store_netconf_keys(lab.store, folder),
        "log_level": "INFO",
        "log_file_path": folder.log_file,
        "mtu_file": folder.mtu_file,
        "ipam_lock_file": folder.ipam_lock_file,
        "release_record_dir": folder.release_record_dir,
        "ipam": {"type": "netplug-ipam", "assign_ipv4": "true", "assign_ipv6": "true"},
    }
    return json.dumps({"cniVersion": CNI_VERSION, "name": lab.name, "plugins": [netplug]}, indent=2) + "\n"


def parse_conflist(text: str, where: str) -> Conflist:
    """The configuration list that a text is; ``where`` begins the messages.

    Raises:
        LabError: it is not one.
    """
    try:
        return _decoder().decode(json.loads(text), Conflist, where)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    except DecodeError as error:
        raise LabError(f"not a configuration list: {error}") from error


@cache
def _decoder() -> Decoder:
    fields = {
        "network": Field("name", NONEMPTY_STRING),
        "cni_version": Field("cniVersion", NONEMPTY_STRING),
        "plugins": Field("plugins", ListOf(OBJECT)),
    }
    return Decoder((Table(cls=Conflist, fields=fields),), cni_error)
